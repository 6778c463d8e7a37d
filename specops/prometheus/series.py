"""Names of the series that specops itself exposes, DCGM's, and the labels that it adds.

Those of a serving engine are in its package (specops/serving).
"""

from __future__ import annotations

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
