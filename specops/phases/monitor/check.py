"""`monitor check`: whether a running Prometheus has the names that rules, alerts and panels need, with
data."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from pydantic import BaseModel

from specops import results
from specops.config import Rollout
from specops.progress import Progress
from specops.prometheus import series as names
from specops.prometheus.api import Api
from specops.prometheus.exposition import names_an_engine
from specops.prometheus.promql import selector
from specops.prometheus.series import POOL, POOLS, ROLLOUT, PoolName, exposed
from specops.render.prometheus.rules import duration
from specops.results import Result
from specops.section import Frozen
from specops.serving import USUAL, Series, namings, tables

GPU_NAMES = (names.GPU_USED, names.GPU_FREE)
RULES = "rules"
DOWN = (
    "is it scraped, and up? Prometheus' page Status, Targets says so; the rendered prometheus.yml has the job"
)
NO_DRAFTS = "an engine has it only where speculation is configured: was the server started with a draft?"
NO_RULES = "put the rendered rules.yml into rule_files of the Prometheus, and reload it"
OLD_RULES = "there is traffic, and the rules do not record it: render again, and reload"


@dataclass(frozen=True)
class Need:
    name: str
    """The series; of a histogram its _count, since sum and buckets come with it."""

    where: str
    """Who exposes it, for a person."""

    labels: Mapping[str, str]
    needs: str
    """What has no data without it."""

    traffic: str | None = None
    """An expression that is above 0 under traffic, if the name has no value without traffic."""

    aliases: Mapping[str, str] = field(default_factory=dict)
    """Other names that it may have, each with its fix."""

    fix: str | None = None
    """The fix if it is absent under all names."""

    instead: tuple[str, ...] = ()
    """Names of which the engine shows one in its place, with other settings."""

    optional: bool = False
    """Not every server of the engine exposes it."""


def needs(rollout: Rollout) -> Iterator[Need]:
    """All needs of a rollout, in the order of the page: pools, rules, routers, guard, GPUs."""
    rollout_labels = {ROLLOUT: rollout.rollout} | rollout.monitor.labels
    window = duration(rollout.monitor.window_s)
    for pool in POOLS:
        series, labels = exposed(rollout, pool), rollout_labels | {POOL: pool}
        yield from of_engine(series, f"{pool} pool", labels, window, pool)
        if series.http is not None and not rollout.addresses.routers:
            # It has none before its first request.
            http = f"sum(increase({series.http.counter}{selector(labels)}[{window}]))"
            yield Need(series.http.counter, f"{pool} pool", labels, "outages", http, fix=DOWN, optional=True)
    yield from _recorded(rollout_labels)
    if rollout.addresses.routers:
        yield from _of_routers(rollout_labels, window)
    if rollout.addresses.guard:
        yield from _of_guard(rollout_labels)
    if rollout.addresses.gpus:
        for name in GPU_NAMES:
            yield Need(name, "GPUs", rollout_labels, "GPU memory", fix=DOWN)


def of_engine(
    series: Series, where: str, labels: Mapping[str, str], window: str, pool: PoolName | None = None
) -> Iterator[Need]:
    """The needs of servers with these names. `pool` None: the pool is unknown, and may speculate."""
    # SGLang's counters and histograms come with the first request.
    lazy = not any(drafts.counted for drafts in series.acceptance)
    traffic = f"sum(increase({series.finished}{selector(labels)}[{window}]))"
    needed: list[tuple[str | None, str, bool]] = [
        (series.running, "the load that the baseline is compared at", False),
        (series.waiting, "the load that the baseline is compared at", False),
        (series.tpot if series.tpot_counts_seconds else f"{series.tpot}_count", "TPOT", lazy),
        (series.generated, "lengths of answers", lazy),
        (series.kv_usage, "KV cache", False),
        (series.preemptions, "preemptions", lazy),
    ]
    if not series.requests_by_router:  # otherwise the router's names are needed, by themselves
        needed += [
            (f"{series.ttft}_count", "TTFT", lazy),
            (f"{series.e2e}_count", "E2E", lazy),
            (series.finished, "traffic, errors", lazy),
        ]
        if series.aborted != series.finished:
            needed.append((series.aborted, "errors", lazy))
    for name, use, only in needed:
        if name is not None:
            under = traffic if only else None
            yield Need(name, where, labels, use, under, _aliases(name, series, pool), DOWN)
    first, *ways = series.acceptance
    for name in first.names if pool != "standard" else ():
        only = name == first.per_position or lazy
        # The gauge of the length stands in for the counter of drafts.
        alike = (first.drafts, first.length) if name in (first.drafts, first.length) else ()
        instead = (*filter(None, alike), *(alternative for way in ways for alternative in way.names))
        aliases = _aliases(name, series, pool)
        under = traffic if only else None
        yield Need(name, where, labels, "acceptance", under, aliases, NO_DRAFTS, instead)


def of_server(
    series: Series, pool: PoolName | None, exposed: Collection[str]
) -> tuple[list[Need], list[Need]]:
    """Return what monitoring reads of a server with these names, and what of it is not among the
    `exposed`."""
    all_needs = list(of_engine(series, str(pool), {}, WINDOW, pool))
    exposed_names = {*exposed}
    return all_needs, [need for need in all_needs if not {need.name, *need.instead} & exposed_names]


def fitting(series: Series, pool: PoolName, exposed: Collection[str]) -> str | None:
    """The word of `monitor.names` for a server that exposes these names; None where `series` fits as well,
    and where the server has not one name of any engine."""

    def lacks(names: Series) -> int:
        return len(of_server(names, pool, exposed)[1])

    candidates = [name for name, names in namings().items() if names_an_engine(names, exposed)]
    best = min(candidates, key=lambda name: lacks(namings()[name]), default=None)
    return best if best is not None and lacks(namings()[best]) < lacks(series) else None


def _aliases(name: str, series: Series, pool: PoolName | None) -> dict[str, str]:
    """Other names of the same series, each with its fix."""
    aliases: dict[str, str] = {}
    for naming, other_series in namings().items():
        for key in ("tpot", "kv_usage", "running", "finished"):
            own, alias = getattr(series, key), getattr(other_series, key)
            if own and alias and own != alias and name in (own, f"{own}_count"):
                aliases[name.replace(own, alias)] = (
                    f"these are the names of {naming}: monitor.names: {{{pool or 'POOL'}: {naming}}} in the"
                    " rollout file, and render again"
                )
    renamed = name.replace(":", "_", 1)
    aliases[renamed] = (
        "prometheus_client writes _ for : when Prometheus asks for OpenMetrics: take metric_relabel_configs"
        " from the rendered prometheus.yml into its scrape configuration"
    )
    if name.endswith("_total"):
        for short in (name.removesuffix("_total"), renamed.removesuffix("_total")):
            aliases[short] = (
                "something between the server and Prometheus takes _total off counters: scrape the server"
                " itself, or have it leave names as they are"
            )
    return aliases


def _recorded(labels: dict[str, str]) -> Iterator[Need]:
    yield Need(names.FINISHED, RULES, labels, "alerts and panels", fix=NO_RULES)
    yield Need(names.ALERT_INFO, RULES, labels, "texts of alerts", fix=OLD_RULES)
    of_drafts = (names.ACCEPTANCE, names.ACCEPTED_LENGTH, names.DRAFTED)
    of_both = (*names.MEAN.values(), names.CONCURRENCY, names.ANSWER_TOKENS)
    of_errors = (names.REQUESTS, names.ERROR_SHARE)
    # After a fallback there is traffic, and nothing is drafted.
    for group, where in ((of_drafts, labels | {POOL: "speculative"}), (of_both + of_errors, labels)):
        traffic = f"sum({names.FINISHED}{selector(where)})"
        for name in group:
            yield Need(name, RULES, labels, "alerts and panels", traffic, fix=OLD_RULES)


def _of_routers(labels: Mapping[str, str], window: str) -> Iterator[Need]:
    traffic = f"sum(increase({names.ROUTE_REQUESTS}{selector(labels)}[{window}]))"
    for name, use in (
        (names.ROUTE_PERCENT, "the partial switch"),
        (names.ROUTE_IN_FLIGHT, "requests in flight"),
    ):
        yield Need(name, "routers", labels, use, fix=DOWN)
    for name, use in (
        (names.ROUTE_REQUESTS, "routes by class, errors"),
        (names.ROUTE_DECISIONS, "reasons, spill"),
        (f"{names.ROUTE_DURATION}_count", "duration by class"),
    ):
        yield Need(name, "routers", labels, use, traffic, fix=DOWN)
    first = f"sum({names.ROUTE_FAILOVERS}{selector(labels)})"
    yield Need(names.ROUTE_FAILOVERS, "routers", labels, "failovers", first, fix=DOWN)


def _of_guard(labels: Mapping[str, str]) -> Iterator[Need]:
    for name, use in (
        (names.GUARD_STATE, "its state"),
        (names.GUARD_LAST, "whether it watches"),
        (names.GUARD_PERCENT, "the partial switch"),
        (names.GUARD_UNCONFIRMED, "unconfirmed actions"),
        (names.GUARD_OVERRIDE, "overrides"),
        (names.GUARD_EVALUATIONS, "its evaluations"),
        (names.GUARD_VERDICT, "its verdict"),
        (names.GUARD_BLIND, "how long it has had no verdict"),
        (names.GUARD_NOT_COVERED, "replicas that are not covered"),
        (names.GUARD_PART_BAD, "parts that are bad"),
    ):
        yield Need(name, "guard", labels, use, fix=DOWN)
    # It has no value until both groups have enough requests, whatever the traffic is.
    yield Need(names.GUARD_EFFECT, "guard", labels, "the live effect", "vector(0)", fix=DOWN, optional=True)


PHASE = "monitor-check"
SCRAPES = 4
"""A value is old if this many scrapes did not have it. Prometheus still returns it for 5 minutes."""
WINDOW, INTERVAL_S = "5m", 15
"""Defaults without a rollout file."""
LABELS = (
    "its scrape configuration does not add specops_rollout and specops_pool: take the job of the rendered"
    " prometheus.yml"
)

Status = Literal["there", "old", "no traffic", "renamed", "absent"]
GOOD: tuple[Status, ...] = ("there", "no traffic")
ANY_SERVER = "any server"
SERVERS = (*(f"{pool} pool" for pool in POOLS), ANY_SERVER)
"""`where` of the names that an engine exposes."""


class NameState(Frozen):
    """The state of one name; `data.names[]` of the result."""

    name: str
    where: str
    needs: str
    status: Status
    age_s: float | None
    """Age of its last value within a day, by Prometheus' clock."""

    now_called: str | None
    fix: str | None


class MonitorCheckData(BaseModel):
    """`data` of the result."""

    names: Sequence[NameState]


def check(rollout: Rollout | None, api: Api, progress: Progress) -> Result:
    """The verdict is no if something needed is missing, and undecided while a server's own names wait for
    traffic. Without a rollout, the names of any vLLM or SGLang are checked.

    Raises EndpointError where Prometheus cannot be queried.
    """
    api.ready()
    names = list(needs(rollout)) if rollout else list(_of_any(api))
    progress.start("asking for names", len(names))
    interval_s = rollout.monitor.scrape_interval_s if rollout else INTERVAL_S
    looking = _Looking(api, SCRAPES * interval_s)
    states = []
    for need in names:
        states.append(looking.look(need))
        progress.advance()
    optional = frozenset(need.name for need in names if need.optional)
    return _result(rollout, api.url, states, optional)


def _of_any(api: Api) -> Iterator[Need]:
    """The needs of any engine, with any labels."""
    candidates = (series for series in tables() if series.running != USUAL.running)
    series = next((names for names in candidates if api.instant(f"count({names.running})")), USUAL)
    return of_engine(series, ANY_SERVER, {}, WINDOW)


class _Looking:
    def __init__(self, api: Api, old_s: float) -> None:
        self.api = api
        self.old_s = old_s
        self._traffic: dict[str, bool] = {}

    def look(self, need: Need) -> NameState:
        age = self._age(f"{need.name}{selector(need.labels)}")
        if age is not None:
            status: Status = "there" if age <= self.old_s else "old"
            fix = None if status == "there" else "it was there a moment ago: is its target up?"
            return _state(need, status, age, fix=fix)
        if need.traffic is not None and not self._has_traffic(need.traffic):
            return _state(need, "no traffic")
        for alias in need.instead:
            if self._age(f"{alias}{selector(need.labels)}") is not None:
                return self.look(replace(need, name=alias, instead=()))
        for alias, fix in need.aliases.items():
            if self._age(f"{alias}{selector(need.labels)}") is not None:
                return _state(need, "renamed", now_called=alias, fix=fix)
        if need.labels and self._age(need.name) is not None:
            return _state(need, "absent", now_called=f"{need.name}, with other labels", fix=LABELS)
        series = f"timestamp({need.name}{selector(need.labels)})"
        last_s = self._value(f"time() - max(max_over_time({series}[1d:5m]))")
        return _state(need, "absent", last_s, fix=need.fix)

    def _age(self, series: str) -> float | None:
        """Seconds since its last value, by Prometheus' clock; None if it has no value now."""
        return self._value(f"time() - max(timestamp({series}))")

    def _has_traffic(self, expr: str) -> bool:
        if expr not in self._traffic:
            self._traffic[expr] = (self._value(expr) or 0.0) > 0.0
        return self._traffic[expr]

    def _value(self, expr: str) -> float | None:
        samples = self.api.instant(expr)
        return samples[0].value if samples and math.isfinite(samples[0].value) else None


def _state(
    need: Need,
    status: Status,
    age_s: float | None = None,
    *,
    now_called: str | None = None,
    fix: str | None = None,
) -> NameState:
    return NameState(
        name=need.name,
        where=need.where,
        needs=need.needs,
        status=status,
        age_s=None if age_s is None else round(age_s, 1),
        now_called=now_called,
        fix=fix,
    )


def _result(
    rollout: Rollout | None, url: str, states: Sequence[NameState], optional: Collection[str]
) -> Result:
    lacking = [state for state in states if state.status not in GOOD]
    # An engine's own names are not shown to be these before traffic; those of rules and routers are known.
    waiting = [state for state in states if state.status == "no traffic" and state.name not in optional]
    unseen = [state for state in waiting if state.where in SERVERS]
    settings: dict[str, Any] = {
        "prometheus": url,
        "rollout": rollout.rollout if rollout else None,
        "monitor": rollout.monitor.model_dump(mode="json") if rollout else None,
    }
    reason = f"all {len(states)} names are there, or wait for traffic"
    if lacking:
        first = lacking[0]
        more = f", and {len(lacking) - 1} more" if len(lacking) > 1 else ""
        reason = f"{first.name} of the {first.where} is {first.status}{more}"
    elif unseen:
        more = f", and {len(unseen) - 1} more" if len(unseen) > 1 else ""
        reason = (
            f"{len(unseen)} unknown: {unseen[0].name} of the {unseen[0].where}{more} comes with traffic,"
            " and there was none; send requests and check again"
        )
    return Result(
        phase=PHASE,
        inputs={"settings": results.sha256(settings)},
        settings=settings,
        environment=results.environment(),
        verdict="no" if lacking else "undecided" if unseen else "yes",
        reason=reason,
        summary={status: sum(state.status == status for state in states) for status in get_args(Status)},
        data=MonitorCheckData(names=states).model_dump(mode="json"),
    )
