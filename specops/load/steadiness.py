"""Whether a server stayed as fast as it was while it was measured. Pure.

The end is compared with the beginning, in two ways: the last quarter of the requests with the first half, and
the last half with the first quarter. Both go by ranks, so that a burst of slow requests is no drift unless it
fills most of a quarter. Requests come in a random
order, so prompts of other lengths are noise, not drift; each is compared with what is usual in its class.

Left out are the first request of each stream of a closed loop, which all start at once, and the last ones,
which have the server to themselves.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean, median

import numpy as np
from pydantic import BaseModel, ConfigDict

from specops import stats
from specops.load.arrivals import Level
from specops.load.record import CellRecord, Row, positive

NOTABLE = 1.15
"""A change is a drift where its whole interval is beyond this: phases that build on a baseline judge by
differences of a fifth."""

FALSE_ALARMS = 0.05
"""At most this share of steady measurements is accused, all that is looked at together."""

_MOST_BLOCKS = 24  # requests soon after each other share the server's moods, and count as one
_LABELS = {"ttft_ms": "TTFT", "tpot_ms": "TPOT", "e2e_ms": "E2E latency"}


class Change(BaseModel):
    """One latency at the end of what was measured, over that at the beginning: of the first comparison that
    shows a drift, else of the first one."""

    model_config = ConfigDict(extra="forbid", frozen=True)

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


def changes(cells: Sequence[CellRecord]) -> list[Change]:
    """What was looked for in complete cells, drift or not; the intervals hold together."""
    series = [one for cell in cells if cell.complete for one in _of_cell(cell)]
    for level in dict.fromkeys(cell.level for cell in cells):
        ours = sorted((c for c in cells if c.level == level and c.complete), key=lambda cell: cell.repeat)
        if len(ours) > 1:
            series.append(_over_repeats(level, ours))
    confidence = 1 - FALSE_ALARMS / max(1, len(_PARTS) * len(series))
    return [one.judged(confidence) for one in series]


class _Series:
    """Latencies in the order of time, each over what is usual in its class, as logarithms."""

    def __init__(self, latency: str, level: Level, repeat: int | None, rows: Sequence[Row]) -> None:
        self.latency, self.level, self.repeat = latency, level, repeat
        logs = [
            (row.traffic_class, math.log(value))
            for row in rows
            if (value := positive(getattr(row, latency))) is not None
        ]
        by_class: dict[str, list[float]] = defaultdict(list)
        for name, value in logs:
            by_class[name].append(value)
        usual = {name: fmean(values) for name, values in by_class.items()}
        self.values = [value - usual[name] for name, value in logs]

    def judged(self, confidence: float) -> Change:
        blocks = [math.exp(median(block)) for block in _blocks(self.values)]
        where = f"{self.level}" if self.repeat is None else f"{self.level}, repeat {self.repeat + 1}"
        head = f"{_LABELS[self.latency]} at {where}"
        found = Change(
            latency=self.latency,
            concurrency=self.level.concurrency,
            rate=self.level.rate,
            repeat=self.repeat,
            n=len(self.values),
            sentence=f"{head}: too few requests to see a drift ({len(self.values)})",
        )
        compared = []
        for end, ours, beginning, theirs in _PARTS:
            change = stats.two_groups(
                blocks[-(len(blocks) // ours) :], blocks[: len(blocks) // theirs], level=confidence
            )
            if change is not None:
                ratio, low, high = (round(x, 4) for x in (change.estimate, change.low, change.high))
                said = f"{ratio:.2f}× [{low:.2f}, {high:.2f}] in the last {end}, over the first {beginning}"
                drift = low > NOTABLE or high < 1 / NOTABLE
                update = {"ratio": ratio, "low": low, "high": high, "drift": drift}
                compared.append(found.model_copy(update=update | {"sentence": f"{head} was {said}"}))
        return next((one for one in compared if one.drift), next(iter(compared), found))


_PARTS = (("quarter", 4, "half", 2), ("half", 2, "quarter", 4))
"""What of the end is compared with what of the beginning: names and shares of the requests."""


def _of_cell(cell: CellRecord) -> list[_Series]:
    rows = _between_the_edges(cell)
    paced = sum(row.tpot_ms is not None for row in rows) * 2 > len(rows)
    latencies = ("ttft_ms", "tpot_ms") if paced else ("e2e_ms",)
    return [_Series(latency, cell.level, cell.repeat, rows) for latency in latencies]


def _over_repeats(level: Level, cells: Sequence[CellRecord]) -> _Series:
    """All repeats as one. Not of TTFT: a cache makes that of repeated prompts shorter."""
    rows = [row for cell in cells for row in _between_the_edges(cell)]
    paced = sum(row.tpot_ms is not None for row in rows) * 2 > len(rows)
    return _Series("tpot_ms" if paced else "e2e_ms", level, None, rows)


def _between_the_edges(cell: CellRecord) -> list[Row]:
    rows = sorted((row for row in cell.rows if row.error is None), key=lambda row: row.sent_s)
    edge = (cell.concurrency or 1) - 1
    return rows[edge : len(rows) - edge] if len(rows) > 2 * edge else []


def _blocks(values: Sequence[float]) -> list[list[float]]:
    count = min(_MOST_BLOCKS, len(values))
    return [list(block) for block in np.array_split(np.asarray(values), count)] if count else []
