"""The query to Prometheus at every evaluation: all of it in one query, as of one instant.

Every expression gets a label that says what it is, and `or` puts them side by side. So an evaluation waits
for Prometheus once, and its figures are of the same window. Servers are queried one by one: a pool's figures
are those of the replicas that Prometheus scraped (replicas.py), and one replica can be compared with the
others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from specops.guard.signals.noise import Numbers
from specops.guard.signals.replicas import BY_REPLICA, Replica, pool_figures
from specops.prometheus.api import Sample
from specops.prometheus.promql import Signals, selector
from specops.prometheus.series import (
    POOL,
    ROLLOUT,
    ROUTE_DECISIONS,
    ROUTE_DURATION,
    ROUTE_PERCENT,
    ROUTE_REQUESTS,
)
from specops.serving import Series

SIGNAL = "specops_signal"
STANDARD = "standard_"
HISTORY = "1d"
"""How far back earlier samples of a server are looked for: whether it started since, whether it is gone."""

NOTHING = math.nan


@dataclass(frozen=True)
class LiveClassFigures:
    """A traffic class on the speculative pool, by the router."""

    e2e: Numbers = NOTHING
    n: Numbers = NOTHING
    standard_e2e: Numbers = NOTHING
    """The same class on the standard pool, in the same window."""

    standard_n: Numbers = NOTHING


Buckets = tuple[tuple[float, float], ...]
"""Upper bounds of a histogram in seconds, ascending, each with the requests of the window up to it."""


@dataclass(frozen=True)
class LiveFigures:
    """A window of the speculative pool, all its servers together; floats, or arrays with one item for each of
    many windows. NaN where Prometheus has no number. Seconds."""

    ts: Numbers = NOTHING
    """When it was queried, by Prometheus' clock."""

    finished: Numbers = NOTHING
    """Requests that ended."""

    drafted: Numbers = NOTHING
    """Tokens."""

    acceptance: Numbers = NOTHING
    tpot: Numbers = NOTHING
    tpot_n: Numbers = NOTHING
    e2e: Numbers = NOTHING
    e2e_n: Numbers = NOTHING
    tokens: Numbers = NOTHING
    """Mean number of tokens of an answer."""

    load: Numbers = NOTHING
    """Requests that a server has at a time."""

    spread: Numbers = NOTHING
    """Variance of the requests that run at a time, over their mean: 0 where there are always as many, 1 where
    they come independently of each other."""

    gauged: Numbers = NOTHING
    """Scrapes that `spread` is of."""

    running: Numbers = NOTHING
    """Requests that run on a server, by its scrapes: far fewer than `load` where bursts come between them."""

    bursts: Numbers = NOTHING
    """As `spread`, over the last `BURSTS`: of bursts that no scrape of the window may have met."""

    restarts: Numbers = NOTHING
    """Servers that started within the window or the one before: slow at first, for a window at most, and in
    the figures until that has left them."""

    targets: Numbers = NOTHING
    up: Numbers = NOTHING
    requests: Numbers = NOTHING
    """Requests for the speculative pool: by the router, else those that it ended."""

    failed: Numbers = NOTHING
    """Number of these that failed: answered 5xx or not at all, or by the other pool in its place; else
    aborted."""

    cancelled: Numbers = NOTHING
    """Number of failed requests that the client may have ended. Without a router they are
    indistinguishable."""

    standard_requests: Numbers = NOTHING
    """Number of requests of the standard pool."""

    standard_failed: Numbers = NOTHING
    covered: Numbers = NOTHING
    """Share of the pool's scrapes that succeeded, of all that the scrape interval makes: samples of `up`."""

    sampled: Numbers = NOTHING
    """Share of the expected samples of the E2E histogram, 0 to 1."""

    counted: Numbers = NOTHING
    """Share of the expected samples that count failed requests, 0 to 1: the routers', else the pool's."""

    standard_tpot: Numbers = NOTHING
    """From here on the same figures of the standard pool."""

    standard_tpot_n: Numbers = NOTHING
    standard_e2e: Numbers = NOTHING
    standard_e2e_n: Numbers = NOTHING
    standard_tokens: Numbers = NOTHING
    standard_load: Numbers = NOTHING
    standard_spread: Numbers = NOTHING
    standard_gauged: Numbers = NOTHING
    standard_covered: Numbers = NOTHING
    standard_sampled: Numbers = NOTHING
    standard_running: Numbers = NOTHING
    standard_bursts: Numbers = NOTHING
    eligible: Numbers = NOTHING
    """Requests that the router's rules allow on the speculative pool, wherever the switch sent them."""

    missing: Numbers = NOTHING
    """Share of the replicas that the figures are not of, 0 to 1: their samples are missing."""

    classes: Mapping[str, LiveClassFigures] = field(default_factory=dict)
    replicas: Mapping[str, Replica] = field(default_factory=dict)
    """By `instance`, those that Prometheus has as a target now, covered or not."""

    buckets: Mapping[str, Buckets] = field(default_factory=dict)
    """By `BUCKETS`; of the standard pool with `STANDARD` before it."""

    routers: float = NOTHING
    """Routers that are scraped."""

    @classmethod
    def from_mapping(cls, figures: Mapping[str, Any]) -> LiveFigures:
        """Return the figures by the names of the fields; what is not given is not there."""
        return cls(**figures)

    def of_standard(self) -> LiveFigures:
        """The standard pool's figures as those of a pool of its own."""
        names = (name for name in FIGURES if name.startswith(STANDARD))
        return LiveFigures(ts=self.ts, **{name.removeprefix(STANDARD): getattr(self, name) for name in names})


PARTS = ("ts", "classes", "replicas", "buckets", "routers")
FIGURES = tuple(field.name for field in fields(LiveFigures) if field.name not in PARTS)
BURSTS = "4h"
BUCKETS = ("tpot", "e2e")
"""Histograms of which the slowest requests are judged, where the engine has one of requests."""

COPIED = ("requests", "failed", "cancelled", "standard_requests", "standard_failed", "eligible")
"""Counts that are a multiple where each server is scraped more than once, as without deduplication of the
replicas of a Prometheus. Taken for as many requests, they would make noise look small."""
COPIES = "copies"


@dataclass(frozen=True)
class LiveQuery:
    """The labels that identify the series of a rollout, and the series that it has."""

    rollout: str
    series: Series
    standard: Series
    labels: Mapping[str, str]
    """Labels of every query, beside those of the rollout and the pool."""

    scrape_s: float
    """Seconds between two scrapes of a target."""

    routed: bool
    """Whether routers are scraped. Without them requests that an engine aborted are its errors, where another
    pool has fewer of them: clients that leave do so there too."""

    servers: int = 0
    """Servers of the speculative pool in the rollout file; 0 where it does not list them."""

    routers: int = 0

    def expressions(self, window_s: float, started_s: float) -> dict[str, str]:
        """Return the expressions by name, over the last `window_s` seconds, starts over `started_s`: by the
        name in `LiveFigures`; of each replica, by `BY_REPLICA`; of each class, class_e2e and class_n; of
        each bucket, bucket_ and its histogram."""
        window, lately = (f"{round(seconds)}s" for seconds in (window_s, started_s))
        labels = {POOL: "speculative"} | self._own_labels
        of_pool = selector(labels)
        counter = self.series.generated if self.series.requests_by_router else f"{self.series.e2e}_count"
        ends = f"{counter}{of_pool}"
        earlier = f"last_over_time({ends}[{HISTORY}] offset {lately})"
        # Smaller than before, or not there before: a counter of a server that started since.
        again = f"min_over_time({ends}[{lately}]) < {earlier}"
        new = f"count_over_time({ends}[{lately}]) unless {earlier}"
        by_pool: dict[str, str] = {}
        for prefix, series, pool in (("", self.series, "speculative"), (STANDARD, self.standard, "standard")):
            which = {POOL: pool} | self._own_labels
            figures = self._by_replica(series, which, window_s) | _buckets(series, which, window)
            by_pool |= {f"{prefix}{name}": expression for name, expression in figures.items()}
            up = f"up{selector(which)}"
            by_pool[f"{prefix}gone"] = f"count(last_over_time({up}[{HISTORY}]))"
        servers = f'up{selector(self._own_labels)[:-1]},instance!=""}}'
        return (
            by_pool
            | {
                "restarts": f"count(({again}) or ({new})) or vector(0)",
                "targets": f"count(up{of_pool})",
                "up": f"sum(up{of_pool})",
                COPIES: f"count({servers}) / count(count by ({POOL}, instance) ({servers}))",
            }
            | (self._routed(window_s) if self.routed else {})
        )

    def _by_replica(self, series: Series, labels: Mapping[str, str], window_s: float) -> dict[str, str]:
        """The figures of `Replica`, each by `instance`."""
        window = f"{round(window_s)}s"
        pool, which = Signals(series, labels, window, ("instance",)), selector(labels)

        def total(name: str, *matchers: str) -> str:
            return _total(name, window, labels, *matchers, by="instance")

        def over(function: str, name: str, seconds: str = window) -> str:
            return f"sum by (instance) ({function}({name}{which}[{seconds}]))"

        e2e = f"{series.e2e}_count"
        counted = series.generated if series.requests_by_router else e2e
        expressions = {
            "finished": pool.finished(),
            "generated": total(series.generated),
            "drafted": pool.drafted(),
            "accepted": pool.accepted(),
            "tpot_s": total(series.tpot_seconds),
            "tpot_n": total(e2e if series.tpot_of_events else f"{series.tpot}_count"),
            "first_n": total(f"{series.ttft}_count"),
            "e2e_s": total(f"{series.e2e}_sum"),
            "e2e_n": total(e2e),
            "running": over("avg_over_time", series.running),
            "waiting": over("avg_over_time", series.waiting),
            "variance": over("stdvar_over_time", series.running),
            "gauged": over("count_over_time", series.running),
            "long_running": over("avg_over_time", series.running, BURSTS),
            "long_variance": over("stdvar_over_time", series.running, BURSTS),
            "covered": self._share(f"up{which}", window_s, "sum_over_time"),
            "sampled": self._share(f"{counted}{which}", window_s),
            "age_s": f"time() - max by (instance) (timestamp(up{which}))",
        }
        if not self.routed:
            reasons = f'finished_reason=~"{series.aborted_reasons}"'
            expressions["failed"] = total(series.aborted, *([reasons] if series.aborted_reasons else []))
            # vllm/v1/engine/__init__.py: "abort - aborted by client"
            left = ['finished_reason="abort"'] if series.aborted_reasons else []
            expressions["cancelled"] = total(series.aborted, *left)
        return {f"{BY_REPLICA}{name}": expression for name, expression in expressions.items()}

    def _share(self, series: str, window_s: float, function: str = "count_over_time") -> str:
        """Samples within the window over those that the scrape interval makes, by instance."""
        within = f"{series}[{round(window_s)}s]"
        expected = f"(count by (instance) (count_over_time({within})) * {window_s / self.scrape_s:g})"
        return f"sum by (instance) ({function}({within})) / {expected}"

    @property
    def _own_labels(self) -> dict[str, str]:
        return {ROLLOUT: self.rollout, **self.labels}

    def _routed(self, window_s: float) -> dict[str, str]:
        window = f"{round(window_s)}s"

        def grown(*matchers: str) -> str:
            return _total(ROUTE_REQUESTS, window, self._own_labels, *matchers)

        speculative, standard = 'pool="speculative"', 'pool="standard"'
        broken, elsewhere = 'status="5xx"', ('served="standard"', 'status!="5xx"')

        def by_class(function: str, part: str, pool: str = "speculative") -> str:
            which = selector(self._own_labels | {"pool": pool})
            return f"sum by (class) ({function}({ROUTE_DURATION}_{part}{which}[{window}]))"

        percent = f"{ROUTE_PERCENT}{selector(self._own_labels)}"
        decisions = f"{ROUTE_DECISIONS}{selector(self._own_labels)[:-1]}"
        # What the rules allow, and the switch or the limit of requests in flight did not.
        allowed = f'{decisions},pool="speculative"}}[{window}]'
        held = f'{decisions},pool="standard",reason=~"switch|in-flight"}}[{window}]'
        return {
            "counted": f"min({self._share(percent, window_s)})",
            "routers": f"count(count by (instance) ({percent}))",
            "eligible": f"sum(increase({allowed}) or increase({held}))",
            "requests": grown(speculative),
            # Prometheus has no series for a label that no request had yet: then none failed.
            "failed": f"({grown(speculative, broken)} or vector(0))"
            f" + ({grown(speculative, *elsewhere)} or vector(0))",
            "standard_requests": grown(standard),
            "standard_failed": f"{grown(standard, broken)} or vector(0)",
            "class_e2e": f"{by_class('rate', 'sum')} / ({by_class('rate', 'count')} > 0)",
            "class_n": by_class("increase", "count"),
            "class_standard_e2e": f"{by_class('rate', 'sum', 'standard')}"
            f" / ({by_class('rate', 'count', 'standard')} > 0)",
            "class_standard_n": by_class("increase", "count", "standard"),
        }


def _buckets(series: Series, labels: Mapping[str, str], window: str) -> dict[str, str]:
    """Expressions of the histograms of requests, by `le`."""
    whole = () if series.tpot_of_events else ("tpot",)
    names = {name: getattr(series, name) for name in BUCKETS if name in (*whole, "e2e")}
    return {
        f"bucket_{name}": f"sum by (le) (increase({series_name}_bucket{selector(labels)}[{window}]))"
        for name, series_name in names.items()
    }


def _total(name: str, window: str, labels: Mapping[str, str], *matchers: str, by: str = "") -> str:
    held = selector(labels)[1:-1]
    which = ",".join(part for part in (held, *matchers) if part)
    return f"sum{f' by ({by}) ' if by else ''}(increase({name}{{{which}}}[{window}]))"


def combine(expressions: Mapping[str, str]) -> str:
    """One query for all of them."""
    return " or ".join(
        f'label_replace({expression}, "{SIGNAL}", "{name}", "", "")'
        for name, expression in expressions.items()
    )


def read(samples: Sequence[Sample], query: LiveQuery, window_s: float) -> LiveFigures:
    """Return what the query's answer says, of the replicas whose samples are there."""
    figures: dict[str, float] = {}
    classes: dict[str, dict[str, float]] = {}
    instances: dict[str, dict[str, dict[str, float]]] = {"": {}, STANDARD: {}}
    buckets: dict[str, dict[float, float]] = {}
    for sample in samples:
        name = sample.labels.get(SIGNAL, "")
        value = sample.value if math.isfinite(sample.value) else NOTHING
        prefix = STANDARD if name.startswith(STANDARD) else ""
        part = name.removeprefix(prefix)
        if part.startswith(BY_REPLICA):
            instance = instances[prefix].setdefault(sample.labels.get("instance", ""), {})
            _put(instance, part.removeprefix(BY_REPLICA), value)
        elif part.startswith("bucket_") and "le" in sample.labels:
            histogram = f"{prefix}{part.removeprefix('bucket_')}"
            buckets.setdefault(histogram, {})[float(sample.labels["le"])] = value
        elif name.startswith("class_") and "class" in sample.labels:
            _put(classes.setdefault(sample.labels["class"], {}), name.removeprefix("class_"), value)
        else:
            _put(figures, name, value)
    copies = max(figures.get(COPIES, 1.0), 1.0)
    figures |= {name: figures[name] / copies for name in COPIED if name in figures}
    for values in classes.values():
        values |= {name: values[name] / copies for name in ("n", "standard_n") if name in values}
    replicas = {
        prefix: {name: Replica(**values).over(copies) for name, values in sorted(by_name.items())}
        for prefix, by_name in instances.items()
    }
    for prefix, series in (("", query.series), (STANDARD, query.standard)):
        pool = pool_figures(replicas[prefix], series, query.scrape_s, window_s, routed=query.routed)
        if pool is None and figures.get(f"{prefix}gone", 0.0) > 0:
            pool = {
                "covered": 0.0
            }  # its targets of the last day are gone: only a pool that never was has no share
        figures |= {f"{prefix}{name}": value for name, value in (pool or {}).items()}
    if not query.routed:
        figures["counted"] = figures.get("covered", NOTHING)
    return LiveFigures(
        ts=samples[0].ts if samples else NOTHING,
        classes={name: LiveClassFigures(**values) for name, values in sorted(classes.items())},
        replicas={name: replica for name, replica in replicas[""].items() if not math.isnan(replica.covered)},
        buckets={
            name: tuple((bound, count / copies) for bound, count in sorted(counts.items()))
            for name, counts in buckets.items()
        },
        routers=figures.get("routers", NOTHING),
        **{name: figures[name] for name in FIGURES if name in figures},
    )


def _put(into: dict[str, float], name: str, value: float) -> None:
    """Two results of one expression: it is not known which of them is right."""
    into[name] = NOTHING if name in into else value
