"""Pairs: one request to each arm for the same prompt in the same variant, and the factors that divide
them. Pure.

A speed-up is the standard's time over the challenger's, so above 1 the challenger is faster. Requests
that run side by side share noise, so the unit of evidence is a pair of windows: intervals are over those.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, quantiles

import numpy as np

from specops import stats
from specops.experiment.answers import as_long
from specops.experiment.plan import Key, Kind, cache_state
from specops.experiment.records import WindowRecord
from specops.load.arrivals import Level
from specops.load.record import Row, positive
from specops.load.request_drafts import length_bounds
from specops.load.request_times import Objectives
from specops.load.workload import OWN_HISTORY, stage
from specops.stats import Interval

LONG_RUN = 3
"""Windows without a pause before one that shows what a server does in steady load. In turn, arms have at most
two."""

LATE = 2
"""Without an objective, a request is late that takes so many times the standard's 95th percentile of its
class and load."""


@dataclass(frozen=True)
class Sample:
    """One request of each arm for the same prompt, or for two of like length (`_matched`), in windows that
    are a pair."""

    level: Level
    traffic_class: str
    cycle: int
    kind: Kind
    began: float
    """When the pair of windows began, in seconds since the epoch."""

    standard: Row
    challenger: Row
    factors: Mapping[str, float]

    @property
    def window(self) -> tuple[int, Kind, Level]:
        return self.cycle, self.kind, self.level

    @property
    def answered(self) -> bool:
        return self.standard.error is None and self.challenger.error is None


def pair_up(windows: Sequence[WindowRecord], standard: str, challenger: str) -> list[Sample]:
    """Return every request that both arms were sent in the same cycle at the same load, in order of time."""
    pairs: dict[tuple[int, Kind, Level], dict[str, WindowRecord]] = defaultdict(dict)
    for window in windows:
        if window.arm in (standard, challenger):
            pairs[window.cycle, window.kind, window.level][window.arm] = window
    before = _windows_without_pause(windows)
    sent: set[tuple[str, str]] = set()
    prompts_sent: set[str] = set()
    opened: dict[str, set[int]] = defaultdict(set)
    samples = []
    complete = [pair for pair in pairs.values() if len(pair) == 2]
    for pair in sorted(complete, key=lambda pair: min(window.began for window in pair.values())):
        first = pair[standard]
        for row in (row for w in pair.values() for row in w.cell.beside if row.part == "warm-up"):
            sent.add((row.prompt, row.variant))
            prompts_sent.add(row.prompt)
        soonest: dict[str, float] = {}
        for row in first.cell.sent:
            if row.prompt not in prompts_sent:
                soonest[row.prompt] = min(row.sent_s, soonest.get(row.prompt, math.inf))
        for matched in _matched(first.cell.rows, pair[challenger].cell.rows):
            rows = dict(zip((standard, challenger), matched, strict=True))
            factors = {
                "order": float(pair[challenger].order < first.order),
                "place": _place(rows[standard], first.cell.rows),
                "connection": float(any(row.connection not in opened[arm] for arm, row in rows.items())),
                "repeat": float((matched[0].prompt, matched[0].variant) in sent),
                "new prompt": float(rows[standard].sent_s <= soonest.get(matched[0].prompt, -math.inf)),
                # Only like is compared: a server that had a pause beside one that had none is neither.
                "pause": fmean(not before[window.key] for window in pair.values()),
                "long run": float(min(before[window.key] for window in pair.values()) >= LONG_RUN),
                "turn": float(stage(rows[standard].turn)),
                "context": float(length_bounds(rows[standard].prompt_tokens or 0)[0]),
                "cache": float(cache_state(rows[standard].variant, rows[standard].turn)),
            }
            samples.append(
                Sample(
                    level=first.level,
                    traffic_class=rows[standard].traffic_class,
                    cycle=first.cycle,
                    kind=first.kind,
                    began=min(window.began for window in pair.values()),
                    standard=rows[standard],
                    challenger=rows[challenger],
                    factors=factors,
                )
            )
        for arm, window in pair.items():
            opened[arm] |= {row.connection for row in window.cell.sent}
        sent |= {(row.prompt, row.variant) for row in first.cell.sent}
        prompts_sent |= soonest.keys()
    return samples


def _windows_without_pause(windows: Sequence[WindowRecord]) -> dict[Key, int]:
    """How many windows of its arm each followed, without one of another arm between them."""
    numbers: dict[Key, int] = {}
    earlier: WindowRecord | None = None
    for window in sorted(windows, key=lambda window: window.began):
        same = earlier is not None and (earlier.arm, earlier.period) == (window.arm, window.period)
        numbers[window.key] = numbers[earlier.key] + 1 if earlier is not None and same else 0
        earlier = window
    return numbers


def longest_run(windows: Sequence[WindowRecord], arm: str) -> int:
    """The most requests that an arm was sent without a window of another arm between them."""
    ran = longest = period = 0
    for window in sorted(windows, key=lambda window: window.began):
        ran = ran if window.period == period else 0
        ran = ran + len(window.cell.sent) if window.arm == arm else 0
        longest, period = max(longest, ran), window.period
    return longest


def _matched(standard: Sequence[Row], challenger: Sequence[Row]) -> Iterator[tuple[Row, Row]]:
    """The requests of both arms that are compared: the same request, and of later turns that follow on the
    arms' own answers, which may differ, two of one class with prompts of like length. Where a server does
    not report lengths, two of like turns."""
    arms = _by_prompt(standard), _by_prompt(challenger)
    same = arms[0].keys() & arms[1].keys()
    yield from ((row, arms[1][key]) for key, row in arms[0].items() if key in same)
    reported = all(row.prompt_tokens or row.error for row in (*standard, *challenger))
    groups: tuple[dict[tuple[str, float, int, int], list[Row]], ...] = (defaultdict(list), defaultdict(list))
    for arm, group in zip(arms, groups, strict=True):
        for key, row in arm.items():
            if key not in same and OWN_HISTORY in row.variant:
                tokens = row.prompt_tokens if reported else None
                length = length_bounds(tokens)[0] if tokens else -stage(row.turn)
                state = cache_state(row.variant, row.turn)
                group[row.traffic_class, row.temperature, length, state].append(row)
    for kind, rows in groups[0].items():
        yield from zip(rows, groups[1].get(kind, []), strict=False)


def _by_prompt(rows: Iterable[Row]) -> dict[tuple[str, str, float, int], Row]:
    """Rows by prompt, variant and temperature; of the same request twice, by their order."""
    numbers: dict[tuple[str, str, float], int] = defaultdict(int)
    answers = {}
    for row in sorted(rows, key=lambda row: row.sent_s):
        key = row.prompt, row.variant, row.temperature
        answers[*key, numbers[key]] = row
        numbers[key] += 1
    return answers


def _place(row: Row, rows: Sequence[Row]) -> float:
    """0.0 in the first half of the window, 1.0 in the second; requests that begin at once share a half."""
    number = sum(earlier.sent_s < row.sent_s for earlier in rows)
    return float(2 * number >= len(rows))


Figure = Callable[[Sample], tuple[float, float] | None]
"""The standard's value and the challenger's; None where one of them is unknown."""


def figure_of(read: Callable[[Row], float | None]) -> Figure:
    """The figure of requests that both arms answered."""

    def values(sample: Sample) -> tuple[float, float] | None:
        if not sample.answered:
            return None
        standard, challenger = positive(read(sample.standard)), positive(read(sample.challenger))
        return None if standard is None or challenger is None else (standard, challenger)

    return values


def waited_ms(row: Row) -> float:
    """Milliseconds from when a request was due to its end: users wait for refused attempts, too."""
    took = row.e2e_with_retries_ms + max(0.0, row.sent_s - row.due_s) * 1000
    return max(row.e2e_ms, took)  # of a replay, the end-to-end latency begins when the request was due


AT_ONCE, FASTEST_MS = 0.05, 0.1
"""Share of the wait, and milliseconds a token. A proxy that holds an answer back sends all of it in less, and
no model generates tokens so fast."""


def _came_at_once(row: Row) -> bool:
    """Return whether the time between the tokens of an answer was not observed."""
    if row.ttft_ms is None or row.e2e_ms - row.ttft_ms < AT_ONCE * row.e2e_ms:
        if row.tpot_ms is not None:
            return row.tpot_ms < FASTEST_MS
        # Without a count of tokens, by characters.
        return row.ttft_ms is None or row.e2e_ms - row.ttft_ms < FASTEST_MS * len(row.text)
    return False


def _per_character(row: Row) -> float | None:
    if row.ttft_ms is None or len(row.text) < 2 or _came_at_once(row):
        return None
    return (row.e2e_ms - row.ttft_ms) / len(row.text)


def _at_equal_length(sample: Sample) -> tuple[float, float] | None:
    """The wait as if both answers had their mean length: each arm's time after the first token is scaled.
    None where it was not observed and the lengths differ."""
    if not sample.answered or sample.standard.ttft_ms is None or sample.challenger.ttft_ms is None:
        return None
    lengths = [row.tokens or len(row.text) for row in (sample.standard, sample.challenger)]
    if (sample.standard.tokens is None) != (sample.challenger.tokens is None):
        lengths = [len(row.text) for row in (sample.standard, sample.challenger)]
    if min(lengths) < 1:
        return None
    if lengths[0] != lengths[1] and (_came_at_once(sample.standard) or _came_at_once(sample.challenger)):
        return None
    mean = sum(lengths) / 2
    standard, challenger = (
        waited_ms(row) + (row.e2e_ms - row.ttft_ms) * (mean / length - 1)
        for row, length in zip((sample.standard, sample.challenger), lengths, strict=True)
        if row.ttft_ms is not None
    )
    return standard, challenger


def _lengths(sample: Sample) -> tuple[float, float] | None:
    """Tokens of both answers, counted in the same way; characters where one server's count is unknown."""
    if not sample.answered:
        return None
    if None in (sample.standard.tokens, sample.challenger.tokens):
        return _characters(sample)
    standard, challenger = max(sample.standard.tokens or 0, 0.5), max(sample.challenger.tokens or 0, 0.5)
    same = sample.standard.text == sample.challenger.text and as_long(sample.standard, sample.challenger)
    return (standard, standard) if same else (standard, challenger)


def _characters(sample: Sample) -> tuple[float, float] | None:
    if not sample.answered:
        return None
    return max(len(sample.standard.text), 0.5), max(len(sample.challenger.text), 0.5)


FIGURES: Mapping[str, Figure] = {
    "e2e": figure_of(waited_ms),
    "tpot": figure_of(lambda row: row.tpot_ms),
    "ttft": figure_of(lambda row: row.ttft_ms),
    "per_character": figure_of(_per_character),
    "equal_length": _at_equal_length,
    "tokens": _lengths,
    "characters": _characters,
}


def ratio_of(
    samples: Sequence[Sample], figure: str, confidence: float, *, restarts: bool = False
) -> Interval | None:
    """The standard's mean over the challenger's, with an interval over pairs of windows; None with too few.

    With `restarts`, the interval is widened by what restarts of the servers add.
    """
    read = FIGURES[figure]
    values = [(sample, pair) for sample in samples if (pair := read(sample)) is not None]
    clusters = [sample.window for sample, _ in values]
    return stats.paired_ratio(
        [standard for _, (standard, _) in values],
        [challenger for _, (_, challenger) in values],
        level=confidence,
        clusters=clusters,
        instants={sample.window: sample.began for sample, _ in values},
        starts=start_effect(values) if restarts else None,
    )


def start_effect(values: Sequence[tuple[Sample, tuple[float, float]]]) -> stats.Starts | None:
    """What restarts add: the requests of one order of the arms share a start of each."""
    rounds: dict[float, dict[tuple[str, int], tuple[float, float]]] = defaultdict(dict)
    for sample, pair in values:
        numbers = sum(key[0] == sample.standard.prompt for key in rounds[sample.factors["order"]])
        rounds[sample.factors["order"]][sample.standard.prompt, numbers] = pair
    if len(rounds) < 2:
        return None
    common = sorted(set.intersection(*(set(by_prompt) for by_prompt in rounds.values())))
    if not common:
        return None
    times = np.array([[by_prompt[key] for key in common] for by_prompt in rounds.values()])
    return stats.start_effect([(times[:, :, 0], times[:, :, 1])])


def change_ms(samples: Sequence[Sample], figure: str) -> float | None:
    """The challenger's mean less the standard's."""
    values = [pair for sample in samples if (pair := FIGURES[figure](sample)) is not None]
    return sum(challenger - standard for standard, challenger in values) / len(values) if values else None


class Lateness:
    """Which requests were late: over the objective, or over a multiple of what is usual in the standard.

    An outlier is over that multiple whatever the objective: a mean over the others leaves out no request that
    is merely as slow as usual.
    """

    def __init__(self, windows: Sequence[WindowRecord], standard: str, objectives: Objectives) -> None:
        self._objective_ms = objectives.e2e_ms
        first: dict[tuple[Level, str], list[float]] = defaultdict(list)
        repeated: dict[tuple[Level, str], list[float]] = defaultdict(list)
        sent: set[tuple[str, str]] = set()
        for window in sorted(windows, key=lambda window: window.began):
            for row in window.cell.sent if window.arm == standard else ():
                if row.error is None:  # a repeat may come from a cache, which is not what is usual
                    times = repeated if (row.prompt, row.variant) in sent else first
                    times[window.level, row.traffic_class].append(waited_ms(row))
                sent.add((row.prompt, row.variant))
        self._limits = {cell: LATE * _percentile_95(values) for cell, values in (repeated | first).items()}

    def is_late(self, window: WindowRecord, row: Row) -> bool:
        """Return whether an answered request made its user wait too long."""
        return row.error is None and waited_ms(row) > (self._objective_ms or self._limit(window, row))

    def is_outlier(self, window: WindowRecord, row: Row) -> bool:
        """Return whether it was late and far from what is usual."""
        return self.is_late(window, row) and waited_ms(row) > self._limit(window, row)

    def _limit(self, window: WindowRecord, row: Row) -> float:
        return self._limits.get((window.level, row.traffic_class), math.inf)


def _percentile_95(values: Sequence[float]) -> float:
    return quantiles(values, n=20, method="inclusive")[-1] if len(values) > 1 else values[0]
