"""Reasons to doubt the figures of a measurement. Pure.

- Repeats and stock answers: a cache, or one text for several prompts.
- Counts of tokens that contradict the chunks or the limit.
- Drift: the end of a measurement is compared with its beginning, in two ways. The last quarter of the
  requests is compared with the first half, and the last half with the first quarter. Both go by ranks, so a
  burst of slow requests counts as drift only if it fills most of a quarter. Requests come in a random order,
  so prompts of different lengths are noise, not drift; each is compared with the mean of its class and turn.
  The first request of each stream of a closed loop is left out, since all start at once. So are the last
  ones, which have the server to themselves.
- Slow starts: the place at which a warm-up ended is looked for in the first half of the requests.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

import numpy as np

from specops import stats
from specops.load.answer import contradicts
from specops.load.arrivals import Level
from specops.load.record import CellRecord, Row, positive
from specops.load.workload import stage
from specops.section import Frozen

STOCK_LENGTH = 20
"""Characters. Shorter answers, such as "yes", are rightly the same for many prompts."""

CACHED = 1.2
"""Repeats that are faster by less do not count as cached: a warm-up may be the reason."""

UNDERCOUNT = 0.01
"""Share of the chunks. Figures are to be right within it."""

COUNT_ADVICE = "fix the token count in the server or the gateway before it, or bypass the gateway"

_LATENCIES = {"ttft_ms": "TTFT", "tpot_ms": "TPOT", "e2e_ms": "E2E"}


def is_stock(rows: Sequence[Row]) -> list[bool]:
    """Return for each of one server's requests whether its answer was also given to another prompt. Turns of
    one conversation count as one prompt: there, the same may be said twice.

    A server that is overloaded, or a gateway in front of it, may send an apology as text with status 200.
    """
    prompts: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        if row.error is None and len(row.text) >= STOCK_LENGTH:
            prompts[row.text].add(row.session)
    return [row.error is None and len(prompts.get(row.text, ())) > 1 for row in rows]


_LOOP = re.compile(r"(.{1,80}?)\1{2,}", re.DOTALL)


def loops(text: str) -> bool:
    """Return whether over half of `text` is one passage of up to 80 characters, three times in a row or
    more."""
    if len(text) < STOCK_LENGTH:
        return False
    longest = max((len(match[0]) for match in _LOOP.finditer(text)), default=0)
    return 2 * longest > len(text)


@dataclass(frozen=True)
class Doubt:
    """A reason to doubt the figures of a measurement."""

    sentence: str
    share: float
    """Share of the requests that it concerns."""

    advice: str


def stock(cells: Collection[CellRecord]) -> Doubt | None:
    """Return where requests got the answer of another prompt."""
    rows = [row for cell in cells for row in cell.rows]
    affected = [row for row, same in zip(rows, is_stock(rows), strict=True) if same]
    if not affected:
        return None
    return Doubt(
        f"{len(affected)} of {len(rows)} requests got the same answer as another prompt, such as: "
        f"{affected[0].text[:60]!r}",
        len(affected) / len(rows),
        "lower the load or fix the server; if such answers are correct, use prompts with distinct answers",
    )


def undercounted(cells: Collection[CellRecord]) -> Doubt | None:
    """Return where the server counts surely fewer tokens than it sent chunks of text."""
    rows = [row for cell in cells for row in cell.rows if row.error is None and row.tokens_from == "usage"]
    affected = [row for row in rows if row.tokens is not None and row.tokens < (1 - UNDERCOUNT) * row.chunks]
    if not affected:
        return None
    tokens, chunks = (
        sum(row.tokens or 0 for row in affected),
        sum(row.chunks for row in affected),
    )
    return Doubt(
        f"in {len(affected)} of {len(rows)} answers the server counts fewer tokens than it sends chunks of "
        f"text ({tokens} and {chunks}): TPOT and tokens/s rest on its count",
        len(affected) / len(rows),
        COUNT_ADVICE,
    )


def overcounted(cells: Collection[CellRecord], limits: Mapping[str, int]) -> Doubt | None:
    """Return where the server counts more tokens than `max_tokens` allowed; `limits` has that of each
    prompt."""
    rows = [row for cell in cells for row in cell.rows if row.error is None and row.tokens_from == "usage"]
    affected = [row for row in rows if contradicts(row.tokens, limits[row.prompt], None)]
    if not affected:
        return None
    return Doubt(
        f"in {len(affected)} of {len(rows)} answers the server counts more tokens than max_tokens allows, "
        f"such as {affected[0].tokens} of at most {limits[affected[0].prompt]}: TPOT and tokens/s rest on "
        "its count",
        len(affected) / len(rows),
        COUNT_ADVICE,
    )


def unanswered(cells: Collection[CellRecord]) -> str | None:
    """The sentence on answers that are reasoning and nothing else; None without such answers."""
    rows = [row for cell in cells for row in cell.rows]
    count = sum(map(no_answer, rows))
    if not count:
        return None
    return (
        f"{count} of {len(rows)} requests got reasoning and no answer: raise max_tokens, or repair the "
        "server's reasoning parser"
    )


def filtered(cells: Collection[CellRecord]) -> str | None:
    """The sentence on answers that a content filter ended; None without such answers."""
    rows = [row for cell in cells for row in cell.rows]
    count = sum(map(is_filtered, rows))
    return f"{count} of {len(rows)} answers were ended by a content filter" if count else None


def without_reasons(rows: Collection[Row], owner: str = "") -> str | None:
    """The sentence on whole answers without a finish reason; `owner` names whose they are. None without such
    answers."""
    good = [row for row in rows if row.error is None]
    count = sum(row.finish_reason is None for row in good)
    if not count:
        return None
    return (
        f"{count} of {len(good)} answers{owner} have no finish_reason: an answer that max_tokens cut off "
        "looks complete"
    )


def is_filtered(row: Row) -> bool:
    """Return whether a content filter ended the answer."""
    return row.error is None and row.finish_reason == "content_filter"


def no_answer(row: Row) -> bool:
    """Return whether all of the output is reasoning."""
    return row.error is None and 0 < row.reasoning == len(row.text)


def limited(cells: Collection[CellRecord], limits: Mapping[str, int]) -> str | None:
    """The sentence on answers that ended at the length limit below their `max_tokens`, which `limits` has by
    prompt; None without such answers."""
    rows = [row for cell in cells for row in cell.rows if row.error is None]
    affected = [row for row in rows if row.finish_reason == "length"]
    affected = [row for row in affected if row.tokens is not None and row.tokens < limits[row.prompt] - 1]
    if not affected:
        return None
    return (
        f"{len(affected)} of {len(rows)} answers end with finish_reason length below max_tokens, such as "
        f"after {affected[0].tokens} of {limits[affected[0].prompt]} tokens: the server has a lower limit of "
        "its own"
    )


def cached(cells: Collection[CellRecord], confidence: float = stats.LEVEL) -> list[Doubt]:
    """Return a doubt for each level at which repeats are surely faster than the first requests of the same
    prompts: then the figures are partly those of a cache."""
    doubts = []
    for level in dict.fromkeys(cell.level for cell in cells):
        level_cells = [cell for cell in cells if cell.level == level]
        ratios = {name: _faster(level_cells, latency, confidence) for latency, name in _LATENCIES.items()}
        faster = [f"{name} {ratio}" for name, ratio in ratios.items() if ratio is not None]
        if faster:
            doubts.append(
                Doubt(
                    f"at {level}, repeats are faster than first requests ({', '.join(faster)}), as with a "
                    "cache or a server that became faster; the figures mix first requests and repeats",
                    1.0,
                    "leave out --same-prompts, or use --repeats 1 --warmup 0 (first requests only)",
                )
            )
    return doubts


def _faster(cells: Sequence[CellRecord], latency: str, confidence: float) -> str | None:
    """Return how many times as fast repeats are, such as `3.1× [2.7, 3.5]`; None where it is not surely
    notable."""
    first: dict[tuple[str, str], float] = {}
    later: dict[tuple[str, str], list[float]] = defaultdict(list)
    begin = min(cell.repeat for cell in cells)
    for cell in cells:
        for row in cell.rows:
            duration = positive(getattr(row, latency)) if row.error is None else None
            if duration is not None and cell.repeat == begin:
                first[row.prompt, row.variant] = duration
            elif duration is not None:
                later[row.prompt, row.variant].append(duration)
    prompts = sorted(first.keys() & later.keys())
    ratio = stats.paired_ratio(
        [first[prompt] for prompt in prompts], [median(later[prompt]) for prompt in prompts], level=confidence
    )
    if ratio is None or ratio.low <= CACHED:
        return None
    return f"{ratio.estimate:.1f}× [{ratio.low:.1f}, {ratio.high:.1f}]"


DRIFT = 1.15
"""A change is a drift where its whole interval is beyond this: phases that build on a baseline judge by
differences of a fifth."""

FALSE_ALARMS = 0.05
"""At most this share of steady measurements is accused, all that is looked at together."""

_MOST_BLOCKS = 24  # requests soon after each other share the server's moods, and count as one


class LatencyChange(Frozen):
    """One latency at the end of what was measured, over that at the beginning: of the first comparison that
    shows a drift, else of the first one."""

    latency: str
    concurrency: int | None
    rate: float | None
    repeat: int | None
    """The cell in which it changed; null where the repeats of a level are looked at as one."""

    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    n: int
    """Requests that were looked at."""

    drift: bool = False
    sentence: str


def changes(cells: Sequence[CellRecord]) -> list[LatencyChange]:
    """Return what was looked for in complete cells, drift or not; the intervals hold together."""
    series = [latencies for cell in cells if cell.complete for latencies in _of_cell(cell)]
    for level in dict.fromkeys(cell.level for cell in cells):
        repeats = sorted((c for c in cells if c.level == level and c.complete), key=lambda cell: cell.repeat)
        if len(repeats) > 1:
            # All repeats as one. Not of TTFT: a cache makes that of repeated prompts shorter.
            rows = [row for cell in repeats for row in _between_the_edges(cell)]
            series.append(_whole_answers(level, rows))
    confidence = 1 - FALSE_ALARMS / max(1, len(_PARTS) * len(series))
    return [latencies.judged(confidence) for latencies in series]


def change_over_windows(level: Level, windows: Sequence[Sequence[Row]], looked_at: int) -> LatencyChange:
    """Return how one server changed over its windows at a load, in order of time; `looked_at` series share
    the false alarms."""
    rows = [row for window in windows for row in sorted(window, key=lambda row: row.sent_s)]
    answered = [row for row in rows if row.error is None]
    confidence = 1 - FALSE_ALARMS / max(1, len(_PARTS) * looked_at)
    return _whole_answers(level, answered).judged(confidence)


@dataclass(frozen=True)
class SlowStart:
    """Requests at the beginning of a cell that surely took longer than the others: the warm-up was too
    short."""

    sentence: str
    moved: float
    """How many times as high the mean of the cell surely is for it."""


def slow_starts(cells: Sequence[CellRecord]) -> list[SlowStart]:
    """Return a slow start for each latency of a complete cell that was surely longer at the beginning than
    afterwards."""
    series = [latencies for cell in cells if cell.complete for latencies in _of_cell(cell)]
    confidence = 1 - FALSE_ALARMS / max(1, len(series))
    return [
        slow_start for latencies in series if (slow_start := latencies.slow_start(confidence)) is not None
    ]


class _Series:
    """Latencies in the order of time, each over what is usual in its class, as logarithms."""

    def __init__(self, latency: str, level: Level, repeat: int | None, rows: Sequence[Row]) -> None:
        self.latency, self.level, self.repeat = latency, level, repeat
        logs = [
            ((row.traffic_class, stage(row.turn)), math.log(value))
            for row in rows
            if (value := positive(getattr(row, latency))) is not None
        ]
        by_kind: dict[tuple[str, int], list[float]] = defaultdict(list)
        for kind, value in logs:
            by_kind[kind].append(value)
        usual = {kind: fmean(values) for kind, values in by_kind.items()}
        self.values = [value - usual[kind] for kind, value in logs]

    @property
    def head(self) -> str:
        where = f"{self.level}" if self.repeat is None else f"{self.level}, repeat {self.repeat + 1}"
        return f"{_LATENCIES[self.latency]} at {where}"

    @property
    def blocks(self) -> list[float]:
        return [math.exp(median(block)) for block in _blocks(self.values)]

    def slow_start(self, confidence: float) -> SlowStart | None:
        start = stats.changed_start(self.blocks, level=confidence)
        if start is None or start[1].low <= DRIFT:
            return None
        place, change = start
        count = sum(map(len, _blocks(self.values)[:place]))
        size = f"{change.estimate:.2f}× [{change.low:.2f}, {change.high:.2f}]"
        before = (self.level.concurrency or 1) - 1  # left out, and slow as well
        return SlowStart(
            f"{self.head} was {size} as long in about the first {count + before} requests as in the others: "
            f"raise --warmup by {count + before}",
            1 + count / len(self.values) * (change.low - 1),
        )

    def judged(self, confidence: float) -> LatencyChange:
        blocks, head = self.blocks, self.head
        undetected = LatencyChange(
            latency=self.latency,
            concurrency=self.level.concurrency,
            rate=self.level.rate,
            repeat=self.repeat,
            n=len(self.values),
            sentence=f"{head}: too few requests to see a drift ({len(self.values)})",
        )
        part_changes = []
        for end, end_divisor, beginning, beginning_divisor in _PARTS:
            change = stats.two_groups(
                blocks[-(len(blocks) // end_divisor) :],
                blocks[: len(blocks) // beginning_divisor],
                level=confidence,
            )
            if change is not None:
                ratio, low, high = (round(x, 4) for x in (change.estimate, change.low, change.high))
                size = f"{ratio:.2f}× [{low:.2f}, {high:.2f}]"
                description = f"{size} in the last {end}, compared with the first {beginning}"
                drift = low > DRIFT or high < 1 / DRIFT
                update = {"ratio": ratio, "low": low, "high": high, "drift": drift}
                part_changes.append(
                    undetected.model_copy(update=update | {"sentence": f"{head} was {description}"})
                )
        return next(
            (part_change for part_change in part_changes if part_change.drift),
            next(iter(part_changes), undetected),
        )


_PARTS = (("quarter", 4, "half", 2), ("half", 2, "quarter", 4))
"""What of the end is compared with what of the beginning: names and shares of the requests."""


def _of_cell(cell: CellRecord) -> list[_Series]:
    rows = _between_the_edges(cell)
    paced = sum(row.tpot_ms is not None for row in rows) * 2 > len(rows)
    latencies = ("ttft_ms", "tpot_ms") if paced else ("e2e_ms",)
    return [_Series(latency, cell.level, cell.repeat, rows) for latency in latencies]


def _whole_answers(level: Level, rows: Sequence[Row]) -> _Series:
    paced = sum(row.tpot_ms is not None for row in rows) * 2 > len(rows)
    return _Series("tpot_ms" if paced else "e2e_ms", level, None, rows)


def _between_the_edges(cell: CellRecord) -> list[Row]:
    rows = sorted((row for row in cell.rows if row.error is None), key=lambda row: row.sent_s)
    edge = (cell.concurrency or 1) - 1
    return rows[edge : len(rows) - edge] if len(rows) > 2 * edge else []


def _blocks(values: Sequence[float]) -> list[list[float]]:
    count = min(_MOST_BLOCKS, len(values))
    return [list(block) for block in np.array_split(np.asarray(values), count)] if count else []
