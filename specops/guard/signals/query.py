"""The query to Prometheus at every evaluation: all of it in one query, as of one instant.

Every expression gets a label that says what it is, and `or` puts them side by side. So an evaluation waits
for Prometheus once, and its figures are of the same window.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from specops.guard.signals.noise import Numbers
from specops.prometheus.api import Sample
from specops.prometheus.promql import Signals, selector
from specops.prometheus.series import POOL, ROLLOUT, ROUTE_DURATION, ROUTE_PERCENT, ROUTE_REQUESTS
from specops.serving import Series

SIGNAL = "specops_signal"
STANDARD = "standard_"
HISTORY = "1d"
"""How far back earlier samples of a server are looked for: whether it started since, whether it is gone."""

NOTHING = math.nan


@dataclass(frozen=True)
class ClassFigures:
    """A traffic class on the speculative pool, by the router."""

    e2e: Numbers = NOTHING
    n: Numbers = NOTHING


@dataclass(frozen=True)
class LiveFigures:
    """A window of the speculative pool, all its servers together; floats, or arrays with one item for each of
    many windows. NaN where Prometheus has no number. Seconds."""

    ts: Numbers = NOTHING
    """When it was queried, by Prometheus' clock."""

    finished: Numbers = NOTHING
    """Requests that ended."""

    drafted: Numbers = NOTHING
    """Tokens; of SGLang, verifications."""

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
    classes: Mapping[str, ClassFigures] = field(default_factory=dict)

    @classmethod
    def of(cls, figures: Mapping[str, Any]) -> LiveFigures:
        """Return the figures by the names of the fields; what is not given is not there."""
        return cls(**figures)

    def of_standard(self) -> LiveFigures:
        """The standard pool's figures as those of a pool of its own."""
        names = (name for name in FIGURES if name.startswith(STANDARD))
        return LiveFigures(ts=self.ts, **{name.removeprefix(STANDARD): getattr(self, name) for name in names})


FIGURES = tuple(found.name for found in fields(LiveFigures) if found.name not in ("ts", "classes"))
COPIED = (
    "finished", "drafted", "tpot_n", "e2e_n", "gauged", "requests", "failed", "cancelled",
    "standard_requests", "standard_failed", "standard_tpot_n", "standard_e2e_n", "standard_gauged",
)  # fmt: skip
"""Counts that are a multiple where each server is scraped more than once, as without deduplication of the
replicas of a Prometheus. Taken for as many requests, they would make noise look small."""
COPIES = "copies"


@dataclass(frozen=True)
class Query:
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

    def expressions(self, window_s: float, started_s: float) -> dict[str, str]:
        """Return the expressions by the name in `LiveFigures`, over the last `window_s` seconds, starts over
        `started_s`; of each class, class_e2e and class_n."""
        window, lately = (f"{round(seconds)}s" for seconds in (window_s, started_s))
        labels = {POOL: "speculative"} | self._ours
        pool, of_pool = Signals(self.series, labels, window), selector(labels)
        others = {POOL: "standard"} | self._ours
        counter = self.series.generated if self.series.requests_by_router else f"{self.series.e2e}_count"
        ends = f"{counter}{of_pool}"
        earlier = f"last_over_time({ends}[{HISTORY}] offset {lately})"
        # Smaller than before, or not there before: a counter of a server that started since.
        again = f"min_over_time({ends}[{lately}]) < {earlier}"
        new = f"count_over_time({ends}[{lately}]) unless {earlier}"
        latencies = self._latencies(self.series, labels, window_s)
        standard = self._latencies(self.standard, others, window_s)
        return (
            {"finished": pool.finished(), "drafted": pool.drafted(), "acceptance": pool.acceptance()}
            | latencies
            | {f"{STANDARD}{name}": expression for name, expression in standard.items()}
            | {
                "restarts": f"count(({again}) or ({new})) or vector(0)",
                "targets": f"count(up{of_pool})",
                "up": f"sum(up{of_pool})",
                COPIES: self._copies(),
            }
            | (self._routed(window_s) if self.routed else self._aborted(window_s))
        )

    def _latencies(self, series: Series, labels: Mapping[str, str], window_s: float) -> dict[str, str]:
        window = f"{round(window_s)}s"
        pool, of_pool = Signals(series, labels, window), selector(labels)
        e2e = f"{series.e2e}_count"
        spent = f"{series.e2e}_sum{of_pool}[{window}]"
        timed = e2e if series.tpot_of_events else f"{series.tpot}_count"
        running = f"{series.running}{of_pool}[{window}]"
        # Little's law, server by server: time spent in it over the time that its samples cover. Over the
        # window, a gap in scraping would make a server look idle.
        covered_s = f"clamp_max(count_over_time({spent}) * {self.scrape_s:g}, {round(window_s)})"
        at_a_time = f"(increase({spent}) / {covered_s})"
        if series.requests_by_router:  # which does not say by which server
            waiting = f"{series.waiting}{of_pool}[{window}]"
            at_a_time = f"(avg_over_time({running}) + avg_over_time({waiting}))"
        return {
            "tpot": pool.mean("tpot"),
            "tpot_n": _total(timed, window, labels),
            "e2e": pool.mean("e2e"),
            "e2e_n": _total(e2e, window, labels),
            "tokens": pool.answer_tokens(),
            "load": f"sum({at_a_time} ^ 2) / (sum({at_a_time}) > 0)",
            "spread": f"sum(stdvar_over_time({running})) / (sum(avg_over_time({running})) > 0)",
            "gauged": f"sum(count_over_time({running}))",
            # 0 where the targets of the last day are gone: only a pool that never was has no share.
            "covered": f"{self._share(f'up{of_pool}', window_s, 'sum_over_time')}"
            f" or count(last_over_time(up{of_pool}[{HISTORY}])) * 0",
            "sampled": self._share(f"{e2e}{of_pool}", window_s),
        }

    def _copies(self) -> str:
        """Series of `up` for each server."""
        up = f'up{selector(self._ours)[:-1]},instance!=""}}'
        return f"count({up}) / count(count by ({POOL}, instance) ({up}))"

    def _share(self, series: str, window_s: float, function: str = "count_over_time") -> str:
        """Samples within the window over those that the scrape interval makes. NaN without a sample."""
        within = f"{series}[{round(window_s)}s]"
        expected = f"(count(count_over_time({within})) * {window_s / self.scrape_s:g})"
        return f"sum({function}({within})) / {expected}"

    @property
    def _ours(self) -> dict[str, str]:
        return {ROLLOUT: self.rollout, **self.labels}

    def _routed(self, window_s: float) -> dict[str, str]:
        window = f"{round(window_s)}s"

        def grown(*matchers: str) -> str:
            return _total(ROUTE_REQUESTS, window, self._ours, *matchers)

        ours, others = 'pool="speculative"', 'pool="standard"'
        broken, elsewhere = 'status="5xx"', ('served="standard"', 'status!="5xx"')
        of_pool = selector(self._ours | {"pool": "speculative"})

        def by_class(function: str, part: str) -> str:
            return f"sum by (class) ({function}({ROUTE_DURATION}_{part}{of_pool}[{window}]))"

        return {
            "counted": self._share(f"{ROUTE_PERCENT}{selector(self._ours)}", window_s),
            "requests": grown(ours),
            # Prometheus has no series for a label that no request had yet: then none failed.
            "failed": f"({grown(ours, broken)} or vector(0)) + ({grown(ours, *elsewhere)} or vector(0))",
            "standard_requests": grown(others),
            "standard_failed": f"{grown(others, broken)} or vector(0)",
            "class_e2e": f"{by_class('rate', 'sum')} / ({by_class('rate', 'count')} > 0)",
            "class_n": by_class("increase", "count"),
        }

    def _aborted(self, window_s: float) -> dict[str, str]:
        window = f"{round(window_s)}s"
        requests, failed, left = _ended(self.series, window, {POOL: "speculative"} | self._ours)
        standard_requests, standard_failed, _ = _ended(self.standard, window, {POOL: "standard"} | self._ours)
        of_pool = selector({POOL: "speculative"} | self._ours)
        return {
            "counted": self._share(f"up{of_pool}", window_s, "sum_over_time"),
            "requests": requests,
            "failed": failed,
            "cancelled": left,
            "standard_requests": standard_requests,
            "standard_failed": standard_failed,
        }


def _ended(series: Series, window: str, labels: Mapping[str, str]) -> tuple[str, str, str]:
    """Requests that ended, those that the engine aborted, and of these those whose client may have left."""

    def aborted(reasons: str) -> str:
        return _total(series.aborted, window, labels, *([reasons] if series.aborted_reasons else []))

    ended = _total(series.finished, window, labels)
    failed = aborted(f'finished_reason=~"{series.aborted_reasons}"')
    left = aborted('finished_reason="abort"')  # vllm/v1/engine/__init__.py: "abort - aborted by client"
    # A counter with labels may be there only from its first count on.
    return ended, f"{failed} or {ended} * 0", left


def _total(name: str, window: str, labels: Mapping[str, str], *matchers: str) -> str:
    held = selector(labels)[1:-1]
    return f"sum(increase({name}{{{','.join(part for part in (held, *matchers) if part)}}}[{window}]))"


def together(expressions: Mapping[str, str]) -> str:
    """One query for all of them."""
    return " or ".join(
        f'label_replace({expression}, "{SIGNAL}", "{name}", "", "")'
        for name, expression in expressions.items()
    )


def read(samples: Sequence[Sample]) -> LiveFigures:
    """Return what the query's answer says."""
    figures: dict[str, float] = {}
    copies = 1.0
    classes: dict[str, dict[str, float]] = {}
    for sample in samples:
        name = sample.labels.get(SIGNAL, "")
        if name in FIGURES:
            # Two results of one expression: it is not known which of them is right.
            sound = name not in figures and math.isfinite(sample.value)
            figures[name] = sample.value if sound else NOTHING
        elif name.startswith("class_") and "class" in sample.labels:
            value = sample.value if math.isfinite(sample.value) else NOTHING
            classes.setdefault(sample.labels["class"], {})[name.removeprefix("class_")] = value
        elif name == COPIES and sample.value > 1:
            copies = sample.value
    figures |= {name: figures[name] / copies for name in COPIED if name in figures}
    return LiveFigures(
        ts=samples[0].ts if samples else NOTHING,
        classes={
            name: ClassFigures(found.get("e2e", NOTHING), found.get("n", NOTHING) / copies)
            for name, found in sorted(classes.items())
        },
        **figures,
    )
