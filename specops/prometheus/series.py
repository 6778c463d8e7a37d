"""Names of series: those that specops exposes, DCGM's, those that the recording rules make, and which names a
pool's servers have.

Those of a serving engine are in its package (specops/serving).
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Literal

from specops.config import Pool, Rollout
from specops.prometheus.promql import Latency
from specops.serving import ENGINES, USUAL, Series, namings

# The router's admin listener, and the guard.
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
"""Percentage that goes to the speculative pool, of what the rules allow there: 0 switches all to standard."""

EFFECT: Mapping[str, str] = {
    "n": "specops_effect_requests_total",
    "total": "specops_effect_sum_total",
    "squares": "specops_effect_squares_total",
    "load": "specops_effect_load_total",
    "load_squares": "specops_effect_load_squares_total",
    "load_product": "specops_effect_load_product_total",
}
"""Of the eligible requests, by figure, group (holdout, speculative) and class: number, sum and sum of squares
of the figure; of the loads (requests for each server of the pool), the sum, the sum of squares and the sum of
load times figure. In the order of `Moments`."""
EFFECT_LEFT_OUT = "specops_effect_left_out_total"
"""class, reason: requests of a group that are in no latency: failover, failed, client-left."""

GUARD_STATE = "specops_guard_state"
"""state: on, fallen, canary, held; 1 for the current state of the guard, 0 for the others."""
GUARD_PERCENT = "specops_guard_speculative_percent"
"""Speculative share decided by the guard, in percent."""
GUARD_EVALUATIONS = "specops_guard_evaluations_total"
"""verdict: healthy, bad, degraded, no_data, no_traffic, unknown."""
GUARD_VERDICT = "specops_guard_verdict"
"""verdict; 1 for that of the last evaluation, 0 for the others."""
GUARD_BLIND = "specops_guard_blind_seconds"
"""For how long evaluations have had no data or been unknown, or a replica has not been covered; 0
otherwise."""
GUARD_NOT_COVERED = "specops_guard_replicas_not_covered"
GUARD_PART_BAD = "specops_guard_part_bad"
"""part (replica HOST:PORT, class NAME, the slowest requests, all replicas), signal; 1 for one that is bad."""
GUARD_BAD_IN_A_ROW = "specops_guard_bad_in_a_row"
GUARD_FALLBACKS = "specops_guard_fallbacks_total"
GUARD_ACTIONS = "specops_guard_actions_total"
"""action, result: done, failed."""
GUARD_UNCONFIRMED = "specops_guard_action_unconfirmed"
"""1 while what it decided is not confirmed."""
GUARD_BOTH_SLOW = "specops_guard_both_pools_slow"
"""1 while both pools are slower than they were measured: speculation is not the reason."""
GUARD_EFFECT = "specops_guard_effect_ratio"
"""latency, end (low, estimate, high): speculative over holdout, as the guard reads it; none without enough
requests of both groups, and no high end where it is not bounded."""
GUARD_LAST = "specops_guard_last_evaluation_timestamp_seconds"
GUARD_TOOK = "specops_guard_evaluation_seconds"
"""Summary (_sum, _count): of one evaluation, Prometheus' time included."""
GUARD_OVERRIDE = "specops_guard_override"
"""1 while a person's override holds."""

GPU_USED, GPU_FREE = "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE"
"""Series of DCGM's exporter, in MiB: gpu, Hostname."""

POOL, ROLLOUT = "specops_pool", "specops_rollout"
"""Labels that the scrape configuration adds."""

# What the recording rules of `monitor render` make: the same names whichever engine serves, with the labels
# specops_rollout, specops_pool, model_name and those of `monitor.labels` unless stated otherwise, over
# `monitor.window_s`. Alerts, panels and the report read only these.

# The playbook's names. No engine exposes them any more.
ACCEPTANCE = "vllm:spec_decode_draft_acceptance_rate"
"""Accepted over drafted tokens."""
PER_POSITION = "vllm:spec_decode_per_position_acceptance_rate"
"""Share of drafts that were accepted as far as `position`, from 0."""
ACCEPTED_LENGTH = "vllm:spec_decode_mean_accepted_length"
"""Tokens that a verification yields, the bonus token included."""

DRAFTED = "specops:drafted_tokens"
"""Tokens drafted within the window: what an acceptance rate is of."""
TOKENS_PER_STEP = "specops:tokens_per_step"
"""Tokens of one sequence a step, steps without a draft included; 1 without speculation. SGLang has no counter
for it."""
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
"""Tokens that an answer has on average."""
TOKENS_PER_S = "specops:tokens_per_second"
KV_USAGE = "specops:kv_usage"
"""Share of the KV cache of the fullest server. Not GPU memory."""
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
"""Latencies of baseline.json: latency, stat (mean, p50, p95), concurrency. Constant."""
BASELINE_E2E_P95 = "vllm:baseline_e2e_p95_seconds"
"""The playbook's: with concurrency."""
RECORDED_ACCEPTANCE = "specops:recorded_acceptance_rate"
"""Without model_name: what was measured before it went live. Constant."""
EXPECTED: Mapping[Latency, str] = {
    "ttft": "specops:expected_ttft_seconds",
    "tpot": "specops:expected_tpot_seconds",
    "e2e": "specops:expected_e2e_seconds",
}
"""The baseline's mean at the current load. No sample where that load was not measured."""
SPEEDUP = "specops:speedup"
"""Ratio of the expected time over the measured, by `latency`. Above 1 is faster than the baseline."""

ALERT_INFO = "specops:alert_info"
"""Without specops_pool and model_name: alertname, title, runbook_url. Constant 1 for each alert that is
loaded, so that a dashboard can join the texts to ALERTS, which has no annotations."""

PoolName = Literal["standard", "speculative"]
POOLS: tuple[PoolName, ...] = ("standard", "speculative")


def exposed(rollout: Rollout, pool: PoolName) -> Series:
    """Return the names that a pool exposes: by `monitor.names` where the rollout file has it, else by its
    engine.

    An endpoint, and a command that names no engine, is taken to have the names of a current vLLM; `monitor
    check` finds out where that is wrong.
    """
    named = rollout.monitor.names.get(pool)
    return namings()[named] if named is not None else _series_of_pool(getattr(rollout.pools, pool))


def _series_of_pool(pool: Pool) -> Series:
    if pool.series is not None:
        return pool.series
    words = [word for program in pool.programs for word in shlex.split(program)]
    for engine in ENGINES.values():
        line, series = engine.command_line, next(iter(engine.namings.values()), USUAL)
        if series is not USUAL and line is not None and any(line.call.mark in word for word in words):
            return series
    return USUAL
