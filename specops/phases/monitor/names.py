"""The names that rules, alerts and panels need of a Prometheus: what `monitor check` asks for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from specops.config import Rollout
from specops.prometheus import series
from specops.prometheus import series as names
from specops.prometheus.promql import selector
from specops.prometheus.series import POOL, POOLS, ROLLOUT, PoolName, exposed
from specops.render.prometheus.rule_file import duration
from specops.serving import Drafts, Series, namings

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
    """Of a histogram, its _count: sum and buckets come with it."""

    where: str
    """Who exposes it, in words."""

    labels: Mapping[str, str]
    needs: str
    """What is blind without it."""

    traffic: str | None = None
    """An expression that is above 0 under traffic, where the name has no value without any."""

    others: Mapping[str, str] = field(default_factory=dict)
    """What it may be called instead, and what to do then."""

    fix: str | None = None
    """What to do where it is not there under any name."""


def needs(rollout: Rollout) -> Iterator[Need]:
    """In the order in which they are told: pools, what records them, routers, guard, GPUs."""
    ours = {ROLLOUT: rollout.rollout} | rollout.monitor.labels
    window = duration(rollout.monitor.window_s)
    for pool in POOLS:
        series, labels = exposed(rollout, pool), ours | {POOL: pool}
        yield from of_engine(series, f"{pool} pool", labels, window, pool)
        if series.http is not None and not rollout.addresses.routers:
            # Not every server with these names counts them; and it has none before its first request.
            http = f"sum(increase({series.http.counter}{selector(labels)}[{window}]))"
            yield Need(series.http.counter, f"{pool} pool", labels, "outages", http, fix=DOWN)
    yield from _recorded(ours)
    if rollout.addresses.routers:
        yield from _of_routers(ours, window)
    if rollout.addresses.guard:
        yield from _of_guard(ours)
    if rollout.addresses.gpus:
        for name in GPU_NAMES:
            yield Need(name, "GPUs", ours, "GPU memory", fix=DOWN)


def of_engine(
    series: Series, where: str, labels: Mapping[str, str], window: str, pool: PoolName | None = None
) -> Iterator[Need]:
    """`pool` None: it is not known which pool it is, and it may speculate."""
    # SGLang's counters and histograms come with the first request.
    lazy = not isinstance(series.acceptance, Drafts)
    traffic = f"sum(increase({series.finished}{selector(labels)}[{window}]))"
    wanted: list[tuple[str | None, str, bool]] = [
        (series.running, "the load that the baseline is compared at", False),
        (series.waiting, "the load that the baseline is compared at", False),
        (series.tpot if series.tpot_counts_seconds else f"{series.tpot}_count", "TPOT", lazy),
        (series.generated, "lengths of answers", lazy),
        (series.kv_usage, "KV cache", False),
        (series.preemptions, "preemptions", lazy),
    ]
    if not series.requests_by_router:  # else the router's names are needed, by themselves
        wanted += [
            (f"{series.ttft}_count", "TTFT", lazy),
            (f"{series.e2e}_count", "E2E", lazy),
            (series.finished, "traffic, errors", lazy),
        ]
        if series.aborted != series.finished:
            wanted.append((series.aborted, "errors", lazy))
    for name, what, only in wanted:
        if name is not None:
            under = traffic if only else None
            yield Need(name, where, labels, what, under, _others(name, series, pool), DOWN)
    for name in _of_drafts(series) if pool != "standard" else ():
        only = name == getattr(series.acceptance, "per_position", None) or lazy
        others = _others(name, series, pool)
        yield Need(name, where, labels, "acceptance", traffic if only else None, others, NO_DRAFTS)


def _of_drafts(series: Series) -> tuple[str, ...]:
    counted = series.acceptance
    if isinstance(counted, Drafts):
        return counted.drafts, counted.draft_tokens, counted.accepted_tokens, counted.per_position
    return counted.rate, counted.verifications


def _others(name: str, series: Series, pool: PoolName | None) -> dict[str, str]:
    """Names under which the same is found, and the fix."""
    found: dict[str, str] = {}
    for naming, other in namings().items():
        for key in ("tpot", "kv_usage", "running", "finished"):
            ours, theirs = getattr(series, key), getattr(other, key)
            if ours and theirs and ours != theirs and name in (ours, f"{ours}_count"):
                found[name.replace(ours, theirs)] = (
                    f"these are the names of {naming}: monitor.names: {{{pool or 'POOL'}: {naming}}} in the"
                    " rollout file, and render again"
                )
    renamed = name.replace(":", "_", 1)
    found[renamed] = (
        "prometheus_client writes _ for : when Prometheus asks for OpenMetrics: take metric_relabel_configs"
        " from the rendered prometheus.yml into its scrape configuration"
    )
    if name.endswith("_total"):
        for short in (name.removesuffix("_total"), renamed.removesuffix("_total")):
            found[short] = (
                "something between the server and Prometheus takes _total off counters: scrape the server"
                " itself, or have it leave names as they are"
            )
    return found


def _recorded(labels: dict[str, str]) -> Iterator[Need]:
    yield Need(series.FINISHED, RULES, labels, "alerts and panels", fix=NO_RULES)
    of_drafts = (series.ACCEPTANCE, series.ACCEPTED_LENGTH, series.DRAFTED)
    of_both = (*series.MEAN.values(), series.CONCURRENCY, series.ANSWER_TOKENS)
    of_errors = (series.REQUESTS, series.ERROR_SHARE)
    # After a fall-back there is traffic, and nothing is drafted.
    for group, where in ((of_drafts, labels | {POOL: "speculative"}), (of_both + of_errors, labels)):
        traffic = f"sum({series.FINISHED}{selector(where)})"
        for name in group:
            yield Need(name, RULES, labels, "alerts and panels", traffic, fix=OLD_RULES)


def _of_routers(labels: Mapping[str, str], window: str) -> Iterator[Need]:
    traffic = f"sum(increase({names.ROUTE_REQUESTS}{selector(labels)}[{window}]))"
    for name, what in (
        (names.ROUTE_PERCENT, "the partial switch"),
        (names.ROUTE_IN_FLIGHT, "requests in flight"),
    ):
        yield Need(name, "routers", labels, what, fix=DOWN)
    for name, what in (
        (names.ROUTE_REQUESTS, "routes by class, errors"),
        (names.ROUTE_DECISIONS, "reasons, spill"),
        (f"{names.ROUTE_DURATION}_count", "duration by class"),
    ):
        yield Need(name, "routers", labels, what, traffic, fix=DOWN)
    first = f"sum({names.ROUTE_FAILOVERS}{selector(labels)})"
    yield Need(names.ROUTE_FAILOVERS, "routers", labels, "failovers", first, fix=DOWN)


def _of_guard(labels: Mapping[str, str]) -> Iterator[Need]:
    for name, what in (
        (names.GUARD_STATE, "its state"),
        (names.GUARD_LAST, "whether it watches"),
        (names.GUARD_PERCENT, "the partial switch"),
        (names.GUARD_UNCONFIRMED, "unconfirmed actions"),
        (names.GUARD_OVERRIDE, "overrides"),
        (names.GUARD_EVALUATIONS, "its evaluations"),
    ):
        yield Need(name, "guard", labels, what, fix=DOWN)
