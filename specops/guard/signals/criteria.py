"""The guard's reference: the standard pool's latencies by load, from baseline.json.

A load is the requests that one server has at a time, which is what a level of the baseline held constant. Its
figures between two levels lie on the line between theirs; beyond the outermost nothing is known but that
latency does not fall as load rises.

End to end, answers are compared at their own length. With the mean time to the first token and the mean time
of each further one, both of the baseline at that load:

    expected E2E = TTFT + time of a token * (mean tokens of an answer now - 1)

The time of a token is there that of all tokens, so that the baseline's own mean E2E comes out; TPOT is the
mean over requests, which is what an engine's histogram of it gives.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

import numpy as np

from specops.config import Pool
from specops.guard.signals.noise import Numbers
from specops.guard.signals.query import LiveQuery
from specops.guard.state import Threshold
from specops.load.record import CellRecord, Row
from specops.results import Result
from specops.serving import without_places

REACH = 1.1
"""A load this many times beyond the outermost level still counts as that level."""


@dataclass(frozen=True)
class BaselineLevel:
    """All requests at one number of streams; seconds."""

    streams: float
    ttft: float
    tpot: float
    token: float
    """Figures of all tokens after the first, not of requests."""

    e2e: float
    tpot_cv: float
    """Standard deviation of one request, over the mean."""

    tpot_error: float
    """Standard error of the mean, over it: between prompts, since production sends others."""

    e2e_cv: float
    """Standard deviation of one request's E2E over the mean, without the effect of the answer's length."""

    e2e_error: float
    whole_cv: float
    """Standard deviation of one request's E2E over the mean, with the effect of the answer's length."""

    whole_error: float


@dataclass(frozen=True)
class Range:
    """The range of a figure to expect, where the load is known from `low` to `high`."""

    low: Numbers
    high: Numbers


@dataclass(frozen=True)
class Baseline:
    levels: tuple[BaselineLevel, ...]
    """Levels by streams, rising; at least one."""

    source: str
    """The file, with its hash."""

    classes: tuple[tuple[str, tuple[BaselineLevel, ...]], ...] = ()

    def of_class(self, name: str) -> Baseline | None:
        levels = dict(self.classes).get(name)
        return Baseline(levels, self.source) if levels else None

    @property
    def most(self) -> float:
        """Streams of the highest level."""
        return self.levels[-1].streams

    def tpot(self, low: Numbers, high: Numbers, *, of_tokens: bool = False) -> Range:
        """Mean TPOT, in seconds, at a load that lies between `low` and `high`: of requests, or of tokens."""
        times = self._column("token" if of_tokens else "tpot")
        return Range(self._at_least(low, times), self._at_most(high, times))

    def e2e(self, low: Numbers, high: Numbers, tokens: Numbers) -> Range:
        """Mean E2E, in seconds, of answers of `tokens` on average."""
        first, token = self._column("ttft"), self._column("token")
        further = np.maximum(tokens - 1, 0.0)
        return Range(
            self._at_least(low, first) + self._at_least(low, token) * further,
            # With no further tokens an infinite time of each would be no number.
            self._at_most(high, first) + self._at_most(high, token) * np.maximum(further, 1e-9),
        )

    def as_answered(self, low: Numbers, high: Numbers) -> Range:
        """Mean E2E at the baseline's own lengths of answers, where nobody counts the tokens of those now."""
        times = self._column("e2e")
        return Range(self._at_least(low, times), self._at_most(high, times))

    def interpolate(self, figure: str, load: Numbers) -> Numbers:
        """Return one of a level's cv and errors, between the levels or of the nearest; of the lightest where
        the load is not known."""
        position = np.where(np.isnan(load), self._streams[0], load)
        between: Numbers = np.interp(position, self._streams, self._column(figure))
        return between

    @property
    def _streams(self) -> list[float]:
        return [level.streams for level in self.levels]

    def _column(self, name: str) -> list[float]:
        return [getattr(level, name) for level in self.levels]

    def _at_least(self, load: Numbers, times: Sequence[float]) -> Numbers:
        within = np.interp(load, self._streams, times)
        return np.where(np.less(load, self._streams[0] / REACH), 0.0, within)

    def _at_most(self, load: Numbers, times: Sequence[float]) -> Numbers:
        within = np.interp(load, self._streams, times)
        return np.where(np.greater(load, self._streams[-1] * REACH), np.inf, within)


@dataclass(frozen=True)
class Missing:
    why: str


def of_cells(cells: Iterable[CellRecord], source: str) -> Baseline | Missing:
    rows: dict[int, list[Row]] = defaultdict(list)
    for cell in cells:
        if cell.concurrency is not None:
            rows[cell.concurrency] += [row for row in cell.rows if row.error is None]
    levels = _levels(rows)
    if not levels:
        return Missing(f"{source} has no level of streams with two prompts whose tokens are known")
    names = sorted({row.traffic_class for level in rows.values() for row in level})
    classes = {
        name: _levels({n: [row for row in level if row.traffic_class == name] for n, level in rows.items()})
        for name in names
    }
    return Baseline(
        levels, source, tuple((name, class_levels) for name, class_levels in classes.items() if class_levels)
    )


def _levels(rows: dict[int, list[Row]]) -> tuple[BaselineLevel, ...]:
    levels = (_level(streams, rows[streams]) for streams in sorted(rows))
    return tuple(level for level in levels if level is not None)


def _level(streams: int, rows: Sequence[Row]) -> BaselineLevel | None:
    timed = [row for row in rows if row.tpot_ms is not None and row.ttft_ms is not None and row.tokens]
    if len({row.prompt for row in timed}) < 2:
        return None
    ttft = fmean(row.ttft_ms or 0.0 for row in timed)
    tpot = fmean(row.tpot_ms or 0.0 for row in timed)
    e2e = fmean(row.e2e_ms for row in timed)
    further = fmean((row.tokens or 1) - 1 for row in timed)
    if tpot <= 0 or further <= 0:
        return None
    token = (e2e - ttft) / further
    left = [row.e2e_ms - ttft - token * ((row.tokens or 1) - 1) for row in timed]

    def spread(values: Sequence[float], mean: float) -> tuple[float, float]:
        of_prompts = _between_prompts([row.prompt for row in timed], values)
        return stdev(values) / mean, of_prompts / mean

    tpot_cv, tpot_error = spread([row.tpot_ms or 0.0 for row in timed], tpot)
    e2e_cv, e2e_error = spread(left, e2e)
    whole_cv, whole_error = spread([row.e2e_ms for row in timed], e2e)
    return BaselineLevel(
        streams=float(streams),
        ttft=ttft / 1000,
        tpot=tpot / 1000,
        token=token / 1000,
        e2e=e2e / 1000,
        tpot_cv=tpot_cv,
        tpot_error=tpot_error,
        e2e_cv=e2e_cv,
        e2e_error=e2e_error,
        whole_cv=whole_cv,
        whole_error=whole_error,
    )


def _between_prompts(prompts: Sequence[str], values: Sequence[float]) -> float:
    """Standard error of the mean, with what repeats of one prompt have in common in it."""
    by_prompt: dict[str, list[float]] = defaultdict(list)
    for prompt, value in zip(prompts, values, strict=True):
        by_prompt[prompt].append(value)
    means = [fmean(repeats) for repeats in by_prompt.values()]
    return stdev(means) / math.sqrt(len(means))


def break_even(deployed: Pool, sweep: Result) -> float | None:
    """Accepted over drafted tokens below which a token takes longer than without, of the setting that is
    deployed. None where `sweep` did not measure that setting, or is not a result of a sweep: another setting
    breaks even elsewhere."""
    setting = deployed_setting(deployed, sweep)
    for step in sweep.data.get("steps") or []:
        if setting is not None and isinstance(step, dict) and step.get("setting") == setting:
            share = step.get("break_even_acceptance")
            return float(share) if isinstance(share, int | float) and 0 <= share <= 1 else None
    return None


def deployed_setting(deployed: Pool, sweep: Result) -> str | None:
    """The name of the deployed pool's setting in `sweep`; None where it did not measure that setting, or is
    not the result of a sweep."""
    described = without_places(deployed.model_dump(mode="json"))
    swept: dict[str, Any] = (sweep.settings.get("settings") or {}) if sweep.phase == "sweep" else {}
    return next((name for name, pool in swept.items() if without_places(pool) == described), None)


BREAK_EVEN_KNOWN = 0.05
"""Error to which a measured break-even is taken to be known. It is the ratio of two step times less 1, over
the tokens of a draft: 2.5% of that ratio move it by 0.015. So much acceptance below it makes a token slower
by about 8%, which is less than the rule for latency lets pass."""


@dataclass(frozen=True)
class Criteria:
    query: LiveQuery
    window_s: float
    min_acceptance: Threshold | Missing
    baseline: Baseline | Missing
    regression: Threshold
    """How many times the baseline's latency; 1 and what the rollout file allows."""

    max_error_share: Threshold
    min_requests: int | None
    """Least number of requests for a verdict; None: what the noise asks for."""

    break_even_known_to: float = 0.0
    """`BREAK_EVEN_KNOWN` where `min_acceptance` was measured."""

    ends_speculation: str | None = None
    """What may end the speculative pool's speculation until it is restarted."""

    holdout: float = 0.0
    """Share of the eligible requests without speculation, 0 to 1: with it, the live effect is read first."""

    block_s: float | None = None
    """Seconds of a block of random windows; None: chance draws requests."""
