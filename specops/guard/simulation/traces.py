"""Traces of a pool, interval by interval, as Prometheus has them or made up: stored, and read back.

A trace holds what the guard's own query gives over each interval alone. A window is the intervals in it put
together, counts added and means weighted, so that one trace serves every length of window; and what is looked
at is what the guard would have looked at.

The playbook's guard is ported here with its faults, to be set beside ours in simulations; nothing else uses
it. Its faults, all of them included: no data is 0.0, and so is bad; NaN compares false, and is never caught;
one sample of latency is enough, where acceptance takes three; it takes the first series that it is given; it
never comes back, and triggers again at every evaluation; the baseline's p95 is of whatever load it was
measured at.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specops.effect.estimate import Counters
from specops.errors import FileError, UsageError
from specops.guard.signals.criteria import Criteria
from specops.guard.signals.live_effect import recorded_effect
from specops.guard.signals.query import FIGURES, STANDARD, LiveFigures, combine, read
from specops.guard.simulation import holdout
from specops.hints import listing, with_value
from specops.prometheus.api import MOST_POINTS, Api, Sample

ACCEPTANCE = "vllm:spec_decode_draft_acceptance_rate"
P95 = "histogram_quantile(0.95, rate(vllm:e2e_request_latency_seconds_bucket[5m]))"
BASELINE_P95 = "vllm:baseline_e2e_p95_seconds"
"""What it asks, as it asks it. vLLM has had no metric of the first name since 0.10; `monitor render` writes
rules that record the first and the last."""

MIN_ACCEPTANCE = 0.4
REGRESSION_PCT = 20.0
CONSECUTIVE = 3


@dataclass(frozen=True)
class Answers:
    """The results of its three queries at each instant: 0.0 where there was no series, NaN where Prometheus
    said so. Arrays; the last axis is time."""

    acceptance: NDArray[np.float64]
    p95: NDArray[np.float64]
    baseline_p95: NDArray[np.float64]

    @classmethod
    def names(cls) -> tuple[str, ...]:
        return tuple(field.name for field in fields(cls))


@dataclass
class PlaybookGuard:
    failures: int = 0

    def should_fall_back(self, acceptance: float, p95: float, baseline_p95: float) -> tuple[bool, str]:
        if acceptance < MIN_ACCEPTANCE:
            self.failures += 1
            if self.failures >= CONSECUTIVE:
                return True, f"accept_ratio={acceptance:.2f} < {MIN_ACCEPTANCE}"
        else:
            self.failures = 0
        if baseline_p95 > 0:
            regression = (p95 - baseline_p95) / baseline_p95 * 100
            if regression > REGRESSION_PCT:
                return True, f"latency regression {regression:.1f}% > {REGRESSION_PCT}%"
        return False, "healthy"


def falls(answers: Answers) -> NDArray[np.bool_]:
    """Return whether the playbook's guard would fall back, at each instant."""
    low = answers.acceptance < MIN_ACCEPTANCE
    third = low.copy()
    for back in range(1, CONSECUTIVE):
        third[..., back:] &= low[..., :-back]
        third[..., :back] = False
    with np.errstate(divide="ignore", invalid="ignore"):
        slower = (answers.p95 - answers.baseline_p95) / answers.baseline_p95 * 100
    return np.asarray(third | ((answers.baseline_p95 > 0) & (slower > REGRESSION_PCT)))


Figures = NDArray[np.float64]
FORMAT = 5
OLDER: Mapping[str, str] = {
    "asked": "requests",
    "others_asked": "standard_requests",
    "others_failed": "standard_failed",
}
"""What format 2 called the same figures."""
DAY_S = 86_400
YEAR_9999 = 253_370_764_800
"""Seconds since the epoch: later ones have no date."""

COUNTS = (
    "finished", "drafted", "tpot_n", "e2e_n", "gauged", "restarts",
    "requests", "failed", "cancelled", "standard_requests", "standard_failed",
    "standard_tpot_n", "standard_e2e_n", "standard_gauged", "eligible",
)  # fmt: skip
WEIGHTED = {
    "acceptance": "drafted", "tpot": "tpot_n", "e2e": "e2e_n", "tokens": "finished",
    "standard_tpot": "standard_tpot_n", "standard_e2e": "standard_e2e_n", "standard_tokens": "standard_e2e_n",
}  # fmt: skip
"""A mean, and the count that it is of. The load counts by the time that requests spent."""

NOT_SHARED = (
    "gauged", "restarts", "standard_requests", "standard_failed",
    "standard_tpot_n", "standard_e2e_n", "standard_gauged", "eligible",
)  # fmt: skip
"""Counts that do not fall with the pool's share of the traffic."""

AS_OF = ("targets", "up", "missing", "bursts", "standard_bursts")
"""Figures of an instant, whatever the window."""

SHARES = ("covered", "sampled", "counted", "standard_covered", "standard_sampled")
"""Names of shares of scrapes. An interval that has none counts as 0 in the mean of a window, one before the
trace too."""


@dataclass(frozen=True)
class LiveTrace:
    interval_s: float
    figures: LiveFigures
    """Arrays by name: the last axis is time, one item for each interval."""

    playbook: Answers
    """What the playbook's guard would have been answered, at the same instants."""

    slower: Figures
    """How many times the standard's latency the pool took in truth; NaN where nobody knows."""

    effect: Counters | None = None
    """The holdout's counters; None: nobody counted any."""

    @property
    def ts(self) -> Figures:
        return np.asarray(self.figures.ts, dtype=float)

    def __len__(self) -> int:
        return int(self.ts.shape[-1])

    def select(self, week: int) -> LiveTrace:
        """Return one of many traces."""

        def select_part(part: Any) -> Any:
            changes = {
                field.name: np.asarray(value)[week]
                for field in fields(part)
                if isinstance(value := getattr(part, field.name), np.ndarray)
            }
            return replace(part, **changes)

        return LiveTrace(
            self.interval_s,
            select_part(self.figures),
            select_part(self.playbook),
            self.slower[week],
            None if self.effect is None else holdout.of_week(self.effect, week),
        )


def windows(trace: LiveTrace, intervals: int, started: int) -> LiveFigures:
    """Return at each instant what the last so many intervals show together, and the starts of servers in the
    last `started`; fewer at the beginning."""
    arrays = {name: np.asarray(getattr(trace.figures, name), dtype=float) for name in FIGURES}
    grown = {name: _added(arrays[name], intervals) for name in COUNTS}
    grown["restarts"] = _added(arrays["restarts"], started)
    figures = dict(grown)
    for mean, count in WEIGHTED.items():
        figures[mean] = mean_of(arrays[mean], arrays[count], intervals)
    for prefix in ("", STANDARD):
        spent = arrays[f"{prefix}e2e"] * arrays[f"{prefix}e2e_n"]
        figures[f"{prefix}load"] = mean_of(arrays[f"{prefix}load"], spent, intervals)
        figures[f"{prefix}spread"] = mean_of(arrays[f"{prefix}spread"], arrays[f"{prefix}load"], intervals)
        figures[f"{prefix}running"] = mean_of(
            arrays[f"{prefix}running"], arrays[f"{prefix}gauged"], intervals
        )
    for share in SHARES:
        present = rolled((~np.isnan(arrays[share])).astype(float), intervals) > 0
        of_window = rolled(np.nan_to_num(arrays[share]), intervals) / intervals
        figures[share] = np.where(present, of_window, np.nan)
    return LiveFigures.from_mapping(figures | {name: arrays[name] for name in AS_OF} | {"ts": trace.ts})


def cut_window(trace: LiveTrace, end: int, intervals: int, started: int, share: float) -> LiveFigures:
    """Return the window up to the instant `end`, had only `share` of the traffic gone to the pool. Its load
    stays what it was, as its latencies do, which were of that load."""
    begin = max(end + 1 - max(intervals, started), 0)
    cut = {name: np.asarray(getattr(trace.figures, name))[begin : end + 1] for name in ("ts", *FIGURES)}
    part = replace(trace, figures=LiveFigures.from_mapping(cut))
    live = instant(windows(part, intervals, started), -1)
    fewer = {name: getattr(live, name) * share for name in COUNTS if name not in NOT_SHARED}
    return replace(live, **fewer)


def instant(live: LiveFigures, index: int) -> LiveFigures:
    """One instant of many, as floats."""
    return LiveFigures.from_mapping(
        {name: float(np.asarray(getattr(live, name))[index]) for name in ("ts", *FIGURES)}
    )


def _added(values: Figures, intervals: int) -> Figures:
    """Sums over the last so many; NaN where none of them is a number."""
    present = ~np.isnan(values)
    total = rolled(np.where(present, values, 0.0), intervals)
    return np.where(rolled(present.astype(float), intervals) > 0, total, np.nan)


def mean_of(values: Figures, weights: Figures, intervals: int) -> Figures:
    """Return at each instant the weighted mean of the last so many values; NaN where none has any weight."""
    present = ~np.isnan(values) & (np.nan_to_num(weights) > 0)
    weight = np.where(present, weights, 0.0)
    total = rolled(np.where(present, values, 0.0) * weight, intervals)
    whole = rolled(weight, intervals)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(whole > 1e-9, total / whole, np.nan)


def rolled(values: Figures, intervals: int) -> Figures:
    """Sums over the last so many, each from two of half as many. Not the difference of two cumulative sums:
    their rounding would outlast the traffic."""
    intervals = min(intervals, values.shape[-1])
    if intervals <= 1:
        return values.copy()
    half = intervals // 2
    part = rolled(values, half)
    total = part.copy()
    total[..., half:] += part[..., :-half]
    if intervals % 2:
        total[..., intervals - 1 :] += values[..., : values.shape[-1] - intervals + 1]
    return total


def record(api: Api, criteria: Criteria, start: float, end: float, interval_s: float) -> LiveTrace:
    """Return what Prometheus has between two instants. Raises EndpointError where it cannot be queried."""
    instants = np.arange(math.ceil(start), math.floor(end) + 1, interval_s)
    figures = {name: np.full(len(instants), np.nan) for name in FIGURES}
    query = combine(criteria.query.expressions(interval_s, interval_s))
    answers = {name: np.zeros(len(instants)) for name in (ACCEPTANCE, P95, BASELINE_P95)}
    for first in range(0, len(instants), MOST_POINTS):
        chunk = instants[first : first + MOST_POINTS]
        samples: dict[float, list[Sample]] = defaultdict(list)
        for series in api.range(query, chunk[0], chunk[-1], interval_s):
            for ts, value in series.points:
                samples[ts].append(Sample(series.labels, value, ts))
        for ts, batch in samples.items():
            live = read(batch, criteria.query, interval_s)
            for name, values in figures.items():
                values[round((ts - instants[0]) / interval_s)] = getattr(live, name)
        for query_, values in answers.items():
            for series in api.range(query_, chunk[0], chunk[-1], interval_s)[:1]:  # it takes the first
                for ts, value in series.points:
                    values[round((ts - instants[0]) / interval_s)] = value
    live = LiveFigures.from_mapping(figures | {"ts": instants})
    unknown = np.full(len(instants), np.nan)
    effect = recorded_effect(api, criteria, (start, end))
    return LiveTrace(interval_s, live, Answers(*answers.values()), unknown, effect)


def save(trace: LiveTrace, path: Path) -> None:
    """Write the trace as lines of JSON: what it is, then one line for each interval. Raises FileError where
    it cannot be written."""
    try:
        with path.open("w", encoding="utf-8") as out:
            first: dict[str, Any] = {"trace": FORMAT, "interval_s": trace.interval_s}
            if trace.effect is not None:
                first["effect"] = holdout.head(trace.effect)
            for line in (first, *_lines(trace), *(holdout.lines(trace.effect) if trace.effect else ())):
                print(json.dumps(line), file=out)
    except OSError as error:
        raise FileError(f"could not write the trace {path}: {error.strerror}") from error


def marked(trace: LiveTrace, incidents: Sequence[str]) -> LiveTrace:
    """Return a recorded trace with its truth: within an incident it did not pay, outside it did.

    Each incident is FROM/UNTIL, both as ISO 8601 has them, in UTC where they do not say. Raises UsageError
    for another form.
    """
    if not incidents:
        return trace
    bad = np.zeros(len(trace), dtype=bool)
    for text in incidents:
        try:
            begin, end = (_instant(part) for part in text.split("/"))
        except ValueError:
            raise UsageError(
                f"invalid incident {text!r}: expected BEGIN/END in UTC",
                hint=with_value(text, "2026-11-20T10:00/2026-11-20T12:00"),
            ) from None
        bad |= (trace.ts > begin) & (trace.ts <= end)
    return replace(trace, slower=np.where(bad, np.inf, 0.0))


def _instant(text: str) -> float:
    instant = datetime.fromisoformat(text)
    return (instant if instant.tzinfo else instant.replace(tzinfo=UTC)).timestamp()


def _lines(trace: LiveTrace) -> Iterator[dict[str, Any]]:
    columns = {name: np.asarray(getattr(trace.figures, name)) for name in ("ts", *FIGURES)}
    columns |= {f"playbook_{name}": getattr(trace.playbook, name) for name in Answers.names()}
    columns["slower"] = trace.slower
    for index in range(len(trace)):
        yield {name: float(values[index]) for name, values in columns.items() if math.isfinite(values[index])}


def load(path: Path) -> LiveTrace:
    """Read a trace. Raises UsageError for an invalid trace, with the line."""
    names = ["ts", *FIGURES, *(f"playbook_{name}" for name in Answers.names()), "slower"]
    columns: dict[str, list[float]] = {name: [] for name in names}
    number = 1
    try:
        with path.open(encoding="utf-8") as file:
            head = json.loads(next(file))
            if head["trace"] not in range(2, FORMAT + 1):
                raise ValueError(f"it has format {head['trace']}, expected 2 to {FORMAT}")
            interval_s = float(head["interval_s"])
            if not 0 < interval_s <= DAY_S:
                raise ValueError(f"invalid interval {interval_s:g} s")
            before = 0.0
            counted: list[dict[str, Any]] = []
            for line in file:
                number += 1
                row = {OLDER.get(name, name): value for name, value in json.loads(line).items()}
                if "bin" in row:
                    counted.append(row)
                    continue
                unknown = set(row) - set(names)
                if unknown:
                    raise ValueError(f"unknown: {', '.join(sorted(unknown))}")
                if not before < (ts := float(row["ts"])) < YEAR_9999:
                    raise ValueError(f"invalid time {ts:g}: expected one after {before:g}")
                before = ts
                for name in names:
                    columns[name].append(float(row.get(name, math.nan)))
            if not columns["ts"]:
                raise ValueError("it has no interval")
            effect = holdout.parsed(head["effect"], counted) if "effect" in head else None
    except OSError as error:
        raise FileError(f"could not read {path}: {error.strerror}", hint=listing(path.parent)) from error
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, StopIteration) as error:
        why = f"there is no {error}" if isinstance(error, KeyError) else str(error) or "it is empty"
        raise UsageError(
            f"invalid trace {path}, line {number}: {why}",
            hint="specops guard simulate ROLLOUT --last 7 --save FILE",
        ) from None
    arrays = {name: np.array(values) for name, values in columns.items()}
    live = LiveFigures.from_mapping({name: arrays[name] for name in ("ts", *FIGURES)})
    answered = Answers(**{name: arrays[f"playbook_{name}"] for name in Answers.names()})
    return LiveTrace(interval_s, live, answered, arrays["slower"], effect)
