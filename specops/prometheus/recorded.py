"""Names of the series that the recording rules of `monitor render` make: the same whichever engine serves.

With the labels specops_rollout, specops_pool and model_name, unless said otherwise, over the rollout's
`monitor.window_s`. Alerts, panels and the report read these, so that they need not know an engine's names.
"""

from __future__ import annotations

from collections.abc import Mapping

from specops.prometheus.promql import Latency

# The playbook's names. No engine exposes them any more.
ACCEPTANCE = "vllm:spec_decode_draft_acceptance_rate"
"""Accepted over drafted tokens."""
PER_POSITION = "vllm:spec_decode_per_position_acceptance_rate"
"""With `position`, from 0: the share of drafts that were accepted that far."""
ACCEPTED_LENGTH = "vllm:spec_decode_mean_accepted_length"
"""Tokens that a verification yields, the bonus token included."""

DRAFTED = "specops:drafted_tokens"
"""That were drafted within the window: what an acceptance rate is of. Of SGLang, verifications."""
TOKENS_PER_STEP = "specops:tokens_per_step"
"""Of one sequence, steps without a draft included; 1 without speculation. SGLang has no counter for it."""
MEAN: Mapping[Latency, str] = {
    "ttft": "specops:ttft_mean_seconds",
    "tpot": "specops:tpot_mean_seconds",
    "e2e": "specops:e2e_mean_seconds",
}
P95: Mapping[Latency, str] = {
    "ttft": "specops:ttft_p95_seconds",
    "tpot": "specops:tpot_p95_seconds",
    "e2e": "specops:e2e_p95_seconds",
}
"""No sample where it lies in the first bucket, of which only the upper end is known."""
CONCURRENCY = "specops:concurrency"
"""Requests that a server has at a time, as a request sees it: by which the baseline is compared."""
WAITING = "specops:requests_waiting"
FINISHED = "specops:requests_finished"
"""Within the window."""
ANSWER_TOKENS = "specops:answer_tokens"
"""That an answer has on average."""
TOKENS_PER_S = "specops:tokens_per_second"
KV_USAGE = "specops:kv_usage"
"""Of the fullest server: share of its KV cache. Not GPU memory."""
PREEMPTIONS = "specops:preemptions_per_second"

REQUESTS = "specops:requests"
"""Without model_name: within the window, answered or failed, by the routers where there are any."""
ERROR_SHARE = "specops:error_share"
"""Without model_name: of `REQUESTS`; by the routers 5xx of those that were sent to the pool, else what the
engine aborted."""
FAILOVER_SHARE = "specops:failover_share"
"""Without model_name: of the requests sent to the speculative pool, those that the standard pool answered in
its place."""
REQUESTS_LATELY = "specops:requests_lately"
"""By the routers, else by the servers' own APIs where they count requests: over four scrapes."""
UNANSWERED_SHARE = "specops:unanswered_share"
"""Without model_name: of `REQUESTS_LATELY`, those that the pool itself did not answer: 5xx, or answered by
the other pool."""
GPU_MEMORY = "specops:gpu_memory_share"
"""With DCGM's labels, without specops_pool and model_name."""

BASELINE_LATENCY = "specops:baseline_seconds"
"""From baseline.json: latency, stat (mean, p50, p95), concurrency. Constant."""
BASELINE_E2E_P95 = "vllm:baseline_e2e_p95_seconds"
"""The playbook's: with concurrency."""
RECORDED_ACCEPTANCE = "specops:recorded_acceptance_rate"
"""Without model_name: what was measured before it went live. Constant."""
EXPECTED: Mapping[Latency, str] = {
    "ttft": "specops:expected_ttft_seconds",
    "tpot": "specops:expected_tpot_seconds",
    "e2e": "specops:expected_e2e_seconds",
}
"""The baseline's mean at the load that there is now. No sample where that load was not measured."""
SPEEDUP = "specops:speedup"
"""With `latency`: what is expected over what is. Above 1 is faster than the baseline."""
