"""Of each alert: the expression, and its words. Thresholds come from the caller.

Nothing alerts on a quantile: an engine's buckets are too coarse. A ratio of too few requests alerts nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from specops.config import Rollout
from specops.config.monitor import AlertName
from specops.prometheus import series
from specops.prometheus.promql import LATENCIES, Latency, Signals, selector, stuck_window_s
from specops.prometheus.series import (
    GUARD_LAST,
    GUARD_PERCENT,
    GUARD_STATE,
    GUARD_UNCONFIRMED,
    POOL,
    POOLS,
    ROLLOUT,
    ROUTE_PERCENT,
    PoolName,
    exposed,
)
from specops.render.prometheus.rule_file import duration
from specops.render.prometheus.targets import job_name
from specops.serving import Drafts, Series

MIN_DRAFTED = 1000
"""Drafted tokens within the window below which acceptance alerts nobody: some ten answers' worth."""
MIN_REQUESTS = 20
MIN_LATELY = 5
"""Requests within four scrapes below which a pool that fails them all alerts nobody."""
TTFT_GROWTH_S = 0.05
"""A fifth of very little is nothing that a user would notice; the veto of `ab` has the same."""

# Prometheus' own templates.
VALUE = '{{ $value | printf "%.2f" }}'
SHARE = "{{ $value | humanizePercentage }}"
WHERE = "{{ $labels.specops_pool }} pool, model {{ $labels.model_name }}"
RESOLVES = (
    "It resolves when traffic stops, too: no traffic has no acceptance. Resolved does not mean recovered."
)


@dataclass(frozen=True)
class Condition:
    severity: str
    expr: str
    summary: str
    description: str


@dataclass(frozen=True)
class Scope:
    """Whose series an alert reads."""

    rollout: Rollout

    @property
    def labels(self) -> dict[str, str]:
        """Of recorded series, and of what was scraped."""
        return {ROLLOUT: self.rollout.rollout} | self.rollout.monitor.labels

    @property
    def all(self) -> str:
        return selector(self.labels)

    @property
    def speculative(self) -> str:
        return selector(self.labels | {POOL: "speculative"})


_SAME = f"on ({ROLLOUT}, {POOL}, model_name)"
_SAME_LATENCY = f"on ({ROLLOUT}, model_name, latency)"
DECIDING: tuple[Latency, ...] = ("tpot", "e2e")
"""Latencies by which speculation is judged: it is to make these shorter."""


def _low_acceptance(scope: Scope, limit: float) -> Condition:
    return Condition(
        "warning",
        _acceptance_below(scope, limit),
        f"Only {VALUE} of the drafted tokens are accepted ({WHERE})",
        f"Below {limit:g} speculation may cost more than it brings. {RESOLVES}",
    )


def _critical_acceptance(scope: Scope, limit: float) -> Condition:
    return Condition(
        "critical",
        _acceptance_below(scope, limit),
        f"Hardly any of the drafted tokens are accepted: {VALUE} ({WHERE})",
        f"Below {limit:g} speculation should be off: take it off, unless the guard has. {RESOLVES}",
    )


def _acceptance_below(scope: Scope, limit: float) -> str:
    return f"{series.ACCEPTANCE}{scope.speculative} < {limit:g} and {_drafted_enough(scope)}"


def _drafted_enough(scope: Scope) -> str:
    return f"{series.DRAFTED}{scope.speculative} >= {MIN_DRAFTED}"


def _drift(scope: Scope, limit: float) -> Condition:
    before = f"{series.RECORDED_ACCEPTANCE}{scope.speculative}"
    fall = f"{before} - on ({ROLLOUT}, {POOL}) group_right () {series.ACCEPTANCE}{scope.speculative}"
    return Condition(
        "warning",
        f"{fall} > {limit:g} and {_drafted_enough(scope)}",
        f"Acceptance is {VALUE} lower than it was measured to be before ({WHERE})",
        f"The draft fits today's traffic less well, or acceptance decays with uptime. {RESOLVES}",
    )


def _latency(scope: Scope, limit: float) -> Condition:
    slower = " or ".join(f"{_times_as_long(scope, latency)} > {limit:g}" for latency in DECIDING)
    return Condition(
        "critical",
        f"({slower}) and {_requests_enough(scope)} unless {_SAME_LATENCY} ({_both_slow(scope, limit)})",
        f"{{{{ $labels.latency }}}} takes {VALUE} times as long as without speculation ({WHERE})",
        "Means over the window, against the baseline's at the load that there is now. Where that load was not"
        " measured there is nothing to compare with, and no alert.",
    )


def _both_pools_slow(scope: Scope, limit: float) -> Condition:
    return Condition(
        "warning",
        f"({_both_slow(scope, limit)}) and {_requests_enough(scope)}",
        f"Both pools are slow: {{{{ $labels.latency }}}} takes {VALUE} times as long as the baseline's",
        "The standard pool is as slow at its load, so it is not speculation's doing: look at the machines,"
        " the network and the traffic.",
    )


def _both_slow(scope: Scope, limit: float) -> str:
    """Latencies for which the standard pool is slow as well, and the speculative one no slower than that."""
    by_latency = []
    for latency in DECIDING:
        ours, theirs = (_times_as_long(scope, latency, pool) for pool in ("speculative", "standard"))
        slow = f"{ours} > {limit:g} and {_SAME_LATENCY} {theirs} > {limit:g}"
        by_latency.append(f"{slow} and {_SAME_LATENCY} ({ours}) / {_SAME_LATENCY} ({theirs}) <= {limit:g}")
    return " or ".join(by_latency)


def _ttft(scope: Scope, limit: float) -> Condition:
    now, before = series.MEAN["ttft"], series.EXPECTED["ttft"]
    grown = f"{now}{scope.speculative} - {before}{scope.speculative} > {TTFT_GROWTH_S:g}"
    return Condition(
        "warning",
        f"{_times_as_long(scope, 'ttft')} > {limit:g} and {_requests_enough(scope)} and {_SAME} {grown}",
        f"The first token takes {VALUE} times as long as without speculation ({WHERE})",
        f"And at least {TTFT_GROWTH_S * 1000:g} ms longer: users notice, whatever the tokens after it gain.",
    )


def _times_as_long(scope: Scope, latency: str, pool: PoolName = "speculative") -> str:
    of = selector(scope.labels | {POOL: pool, "latency": latency})
    return f"1 / {series.SPEEDUP}{of}"


def _requests_enough(scope: Scope) -> str:
    return f"{_SAME} {series.FINISHED}{scope.speculative} >= {MIN_REQUESTS}"


def _empty(scope: Scope, limit: float) -> Condition:
    # Not the standard pool: a router sends it what asks for a single token.
    enough = f"{series.FINISHED}{scope.speculative} >= {MIN_REQUESTS}"
    return Condition(
        "critical",
        f"{series.ANSWER_TOKENS}{scope.speculative} < {limit:g} and {enough}",
        f"Answers have {VALUE} tokens on average: most are empty ({WHERE})",
        "Requests end well by every other figure, and users get nothing. The end of an answer is a token.",
    )


def _errors(scope: Scope, limit: float) -> Condition:
    routed = "By the routers: the 5xx of what was sent there, also where the standard pool could not help."
    aborted = (
        "No router is scraped: these are requests that the engine aborted or failed, those whose client went"
        " away among them."
    )
    return Condition(
        "critical",
        f"{series.ERROR_SHARE}{scope.speculative} > {limit:g}"
        f" and {series.REQUESTS}{scope.speculative} >= {MIN_REQUESTS}",
        f"{SHARE} of the requests to the speculative pool fail",
        routed if scope.rollout.addresses.routers else aborted,
    )


def _pool_failing(scope: Scope, limit: float) -> Condition:
    return Condition(
        "critical",
        f"{series.UNANSWERED_SHARE}{scope.all} > {limit:g}"
        f" and {series.REQUESTS_LATELY}{scope.all} >= {MIN_LATELY}",
        f"The {{{{ $labels.specops_pool }}}} pool answers almost nothing: {SHARE} of its requests fail",
        "By the routers: it answers 5xx or not at all, or the standard pool answered in its place."
        if scope.rollout.addresses.routers
        else "By its own API, which answers 5xx. A server that does not answer at all is not counted.",
    )


def _failovers(scope: Scope, limit: float) -> Condition:
    return Condition(
        "warning",
        f"{series.FAILOVER_SHARE}{scope.speculative} > {limit:g}"
        f" and {series.REQUESTS}{scope.speculative} >= {MIN_REQUESTS}",
        f"The standard pool answered {SHARE} of the speculative pool's requests in its place",
        "Users get answers, later and without speculation. The standard pool carries this load as well.",
    )


def _stuck(scope: Scope, limit: float) -> Condition:
    return Condition(
        "critical",
        " or ".join(_stuck_of(scope, pool) for pool in POOLS),
        "{{ $labels.instance }} of the {{ $labels.specops_pool }} pool runs requests and makes no tokens",
        "Its requests hang, and so do those that are sent to it now. It still answers Prometheus.",
    )


def _stuck_of(scope: Scope, pool: PoolName) -> str:
    series = exposed(scope.rollout, pool)
    window = duration(stuck_window_s(series, scope.rollout.monitor.window_s))
    # Not by requests that ended: those whose client gave up end as well.
    return f"({Signals(series, scope.labels | {POOL: pool}, window, (ROLLOUT, POOL)).stuck()})"


def _not_a_number(scope: Scope, limit: float) -> Condition:
    return Condition(
        "warning",
        " or ".join(each for pool in POOLS for each in _not_a_number_of(scope, pool)),
        "{{ $labels.series }} of the {{ $labels.specops_pool }} pool is not a number",
        "Every mean and every comparison made from it is silent: alerts on latency, panels, the guard. A"
        " counter stays so until its server starts anew.",
    )


def _not_a_number_of(scope: Scope, pool: PoolName) -> Iterator[str]:
    series, of = exposed(scope.rollout, pool), selector(scope.labels | {POOL: pool})
    for latency in LATENCIES:
        name = series.tpot_seconds if latency == "tpot" else f"{getattr(series, latency)}_sum"
        # NaN differs from everything, and so does the difference of two infinities.
        bad = f"count by ({ROLLOUT}, {POOL}) ({name}{of} - {name}{of} != 0)"
        yield f'label_replace({bad}, "series", "{name}", "", "")'


def _target_down(scope: Scope, limit: float) -> Condition:
    guard = selector({"job": job_name(scope.rollout, "guard")} | scope.labels)
    return Condition(
        "critical",
        f"up{scope.all} == 0 unless up{guard}",
        "{{ $labels.job }} at {{ $labels.instance }} cannot be scraped",
        "It is down, does not answer in time, or answers something else. Nothing is known of it since.",
    )


def _absent(scope: Scope, limit: float) -> Condition:
    return Condition(
        "warning",
        " or ".join(each for pool in POOLS for each in _absent_of(scope, pool)),
        "The {{ $labels.specops_pool }} pool has no series {{ $labels.series }}",
        "Alerts and panels that need it are blind. `specops monitor check ROLLOUT` says what it is called.",
    )


def _absent_of(scope: Scope, pool: PoolName) -> list[str]:
    labels = selector(scope.labels | {POOL: pool})
    names = from_the_start(exposed(scope.rollout, pool), pool)
    return [f'label_replace(absent({name}{labels}), "series", "{name}", "", "")' for name in names]


def from_the_start(series: Series, pool: PoolName) -> tuple[str, ...]:
    """What an engine exposes before its first request: of SGLang, no counters and no histograms."""
    if not isinstance(series.acceptance, Drafts):
        return (series.running,)
    if series.requests_by_router:
        always: tuple[str, ...] = (series.running, series.generated, series.tpot)
    else:
        always = (series.running, series.finished, f"{series.tpot}_count", f"{series.e2e}_count")
    counted = series.acceptance
    return always + ((counted.draft_tokens, counted.accepted_tokens) if pool == "speculative" else ())


def _no_traffic(scope: Scope, limit: float) -> Condition:
    off = f" unless on ({ROLLOUT}) max by ({ROLLOUT}) ({ROUTE_PERCENT}{scope.all}) == 0"
    return Condition(
        "info",
        f"{series.FINISHED}{scope.speculative} == 0{off if scope.rollout.addresses.routers else ''}",
        f"No request has ended lately ({WHERE})",
        "Without traffic nothing is known of acceptance or latency, and their alerts are silent.",
    )


def _guard_down(scope: Scope, limit: float) -> Condition:
    up = selector({"job": job_name(scope.rollout, "guard")} | scope.labels)
    return Condition(
        "critical",
        f"absent(up{up} == 1) or time() - {GUARD_LAST}{scope.all} > {limit:g}",
        "The guard does not watch: it is down, or has not looked for a while",
        f"Nothing would take speculation off. Its last look may be {limit:g} s old.",
    )


def _guard_fell_back(scope: Scope, limit: float) -> Condition:
    off = " or ".join(
        f"{GUARD_STATE}{selector(scope.labels | {'state': state})} == 1" for state in ("fallen", "held")
    )
    return Condition(
        "warning",
        off,
        "The guard has taken speculation off ({{ $labels.state }})",
        "All goes to the standard pool. Fallen: it will be tried again in steps; held: a person must act."
        " `specops guard status ROLLOUT` has the reason.",
    )


def _unconfirmed(scope: Scope, limit: float) -> Condition:
    return Condition(
        "critical",
        f"{GUARD_UNCONFIRMED}{scope.all} == 1",
        "The guard's decision is not confirmed",
        "It tries again at every evaluation; until then traffic goes where it went before.",
    )


def _partial_switch(scope: Scope, limit: float) -> Condition:
    percent = f"{ROUTE_PERCENT}{scope.all}"
    most, least = (f"{operator} by ({ROLLOUT}) ({percent})" for operator in ("max", "min"))
    apart = f"{most} - {least} > 0"
    if scope.rollout.addresses.guard:
        apart += f" or abs({most} - max by ({ROLLOUT}) ({GUARD_PERCENT}{scope.all})) > 0"
    return Condition(
        "critical",
        apart,
        "The routers do not all have the share of traffic that they should have",
        "They are {{ $value }} points apart from each other, or from what the guard wants: one was missed.",
    )


CONDITIONS: Mapping[AlertName, Callable[[Scope, float], Condition]] = {
    "LowAcceptRatio": _low_acceptance,
    "CriticalAcceptRatio": _critical_acceptance,
    "SpeculationAcceptanceDrift": _drift,
    "SpeculationLatencyRegression": _latency,
    "SpeculationBothPoolsSlow": _both_pools_slow,
    "SpeculationTtftVeto": _ttft,
    "SpeculationEmptyOutputs": _empty,
    "SpeculationErrors": _errors,
    "SpeculationPoolFailing": _pool_failing,
    "SpeculationFailovers": _failovers,
    "SpeculationReplicaStuck": _stuck,
    "SpeculationNotANumber": _not_a_number,
    "SpeculationTargetDown": _target_down,
    "SpeculationSeriesAbsent": _absent,
    "SpeculationNoTraffic": _no_traffic,
    "SpecopsGuardDown": _guard_down,
    "SpecopsGuardFellBack": _guard_fell_back,
    "SpecopsGuardActionUnconfirmed": _unconfirmed,
    "SpecopsPartialSwitch": _partial_switch,
}
