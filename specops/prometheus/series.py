"""Names of the series that an engine exposes, by what they tell. The embedded engine has vLLM's.

Read in the sources of vLLM 0.8 to 0.33 (vllm/v1/metrics/loggers.py) and SGLang 0.5.23
(srt/observability/metrics_collector.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Drafts:
    """Counters of what was drafted and accepted."""

    drafts: str
    draft_tokens: str
    accepted_tokens: str
    per_position: str
    """With the label `position`, from 0."""


@dataclass(frozen=True)
class Gauges:
    """Where an engine counts no drafted tokens: the rate and the length of its last interval of logging, 0
    while it decodes nothing, and counters of verifications and generated tokens."""

    rate: str
    verifications: str


@dataclass(frozen=True)
class Series:
    ttft: str
    """Histograms, in seconds, without _sum, _count, _bucket."""
    tpot: str
    """Of a request: mean time per token after the first."""
    e2e: str
    running: str
    """Gauges."""
    waiting: str
    kv_usage: str
    """Share of the KV cache in use, 0 to 1; not GPU memory."""
    generated: str
    """Counters."""
    finished: str
    """Requests that ended, however they did."""
    preemptions: str
    acceptance: Drafts | Gauges
    aborted: str
    """Requests that the engine gave up, those whose client went away among them."""
    aborted_reasons: str | None = None
    """Where `aborted` counts all requests: its label finished_reason, as a regular expression."""
    http: str | None = None
    """Counter of HTTP requests that its API answered: handler, method, status ("2xx" … "5xx")."""

    counts_at_end: bool = False
    """`generated` grows when an answer ends, and not while it is made."""

    tpot_of_events: bool = False
    """`tpot` has a sample for each output event, of however many tokens, and none for a request."""


VLLM = Series(
    ttft="vllm:time_to_first_token_seconds",
    tpot="vllm:request_time_per_output_token_seconds",
    e2e="vllm:e2e_request_latency_seconds",
    running="vllm:num_requests_running",
    waiting="vllm:num_requests_waiting",
    kv_usage="vllm:kv_cache_usage_perc",
    generated="vllm:generation_tokens_total",
    finished="vllm:request_success_total",
    preemptions="vllm:num_preemptions_total",
    acceptance=Drafts(
        drafts="vllm:spec_decode_num_drafts_total",
        draft_tokens="vllm:spec_decode_num_draft_tokens_total",
        accepted_tokens="vllm:spec_decode_num_accepted_tokens_total",
        per_position="vllm:spec_decode_num_accepted_tokens_per_pos_total",
    ),
    aborted="vllm:request_success_total",
    aborted_reasons="abort|error",
    http="http_requests_total",
)

VLLM_BEFORE_0_11 = replace(
    VLLM,
    tpot="vllm:time_per_output_token_seconds",
    tpot_of_events=True,
    kv_usage="vllm:gpu_cache_usage_perc",
)

SGLANG = Series(
    ttft="sglang:time_to_first_token_seconds",
    tpot="sglang:request_time_per_output_token_seconds",
    e2e="sglang:e2e_request_latency_seconds",
    running="sglang:num_running_reqs",
    waiting="sglang:num_queue_reqs",
    kv_usage="sglang:token_usage",
    generated="sglang:generation_tokens_total",
    finished="sglang:num_requests_total",
    preemptions="sglang:num_retracted_requests_total",
    acceptance=Gauges(rate="sglang:spec_accept_rate", verifications="sglang:spec_verify_calls_total"),
    aborted="sglang:num_aborted_requests_total",
    counts_at_end=True,
)

# What specops itself exposes: the router's admin listener, and the guard.
ROUTE_REQUESTS = "specops_route_requests_total"
"""class, pool (decided), served (that answered; "none" where nothing did), status ("2xx" … "5xx")."""
ROUTE_DECISIONS = "specops_route_decisions_total"
"""class, pool, reason; counted when a request begins, the others when it has ended."""
ROUTE_DURATION = "specops_route_request_duration_seconds"
"""Histogram of answers with status 2xx: class, pool (served)."""
ROUTE_FIRST_BYTE = "specops_route_first_byte_seconds"
"""Histogram: class, pool (served)."""
ROUTE_FAILOVERS = "specops_route_failovers_total"
"""class: answered by the standard pool for a speculative one that did not."""
ROUTE_IN_FLIGHT = "specops_route_in_flight"
"""pool: requests, each counted `n` times."""
ROUTE_PERCENT = "specops_route_speculative_percent"
"""Of what the rules allow on the speculative pool, the share that goes there: 0 switches all to standard."""

GUARD_STATE = "specops_guard_state"
"""state: on, fallen, canary, held; 1 of the state it is in, 0 of the others."""
GUARD_PERCENT = "specops_guard_speculative_percent"
"""What it wants the routers to have."""
GUARD_EVALUATIONS = "specops_guard_evaluations_total"
"""verdict: healthy, bad, no_data, no_traffic, unknown."""
GUARD_BAD_IN_A_ROW = "specops_guard_bad_in_a_row"
GUARD_FALLBACKS = "specops_guard_fallbacks_total"
GUARD_ACTIONS = "specops_guard_actions_total"
"""action, result: done, failed."""
GUARD_UNCONFIRMED = "specops_guard_action_unconfirmed"
"""1 while what it decided is not seen to be so."""
GUARD_BOTH_SLOW = "specops_guard_both_pools_slow"
"""1 while both pools are slower than they were measured: speculation is not the reason."""
GUARD_LAST = "specops_guard_last_evaluation_timestamp_seconds"
GUARD_TOOK = "specops_guard_evaluation_seconds"
"""Summary (_sum, _count): of one evaluation, Prometheus' time included."""
GUARD_OVERRIDE = "specops_guard_override"
"""1 while a person's override holds."""

GPU_USED, GPU_FREE = "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE"
"""Of DCGM's exporter, in MiB: gpu, Hostname."""

POOL, ROLLOUT = "specops_pool", "specops_rollout"
"""Labels that the scrape configuration adds."""
