"""What repeated prompts and repeated answers say of a measurement. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from specops import stats
from specops.load.answer import contradicts
from specops.load.record import CellRecord, Row, positive

STOCK_LENGTH = 20
"""Characters. Shorter answers, such as "yes", are rightly the same for many prompts."""

NOTABLE = 1.2
"""Repeats that are faster by less do not count as cached: a warm-up may be the reason."""

UNDERCOUNT = 0.01
"""Share of the chunks. Figures are to be right within it."""

COUNT_ADVICE = "repair what counts the tokens (the server, or a gateway before it), or leave it out"

_FIGURES = {"ttft": "TTFT", "tpot": "TPOT", "e2e": "E2E"}


def is_stock(rows: Sequence[Row]) -> list[bool]:
    """Of each of one server's requests, whether its answer was also given to another prompt.

    A server that is overloaded, or a gateway in front of it, may send an apology as text with status 200.
    """
    prompts: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        if row.error is None and len(row.text) >= STOCK_LENGTH:
            prompts[row.text].add(row.prompt)
    return [row.error is None and len(prompts.get(row.text, ())) > 1 for row in rows]


@dataclass(frozen=True)
class Doubt:
    """Something that makes the figures of a measurement doubtful."""

    sentence: str
    share: float
    """Of the requests."""

    advice: str


def stock(cells: Collection[CellRecord]) -> Doubt | None:
    """Where requests got the answer of another prompt."""
    rows = [row for cell in cells for row in cell.rows]
    found = [row for row, same in zip(rows, is_stock(rows), strict=True) if same]
    if not found:
        return None
    return Doubt(
        f"{len(found)} of {len(rows)} requests got the same answer as another prompt, such as: "
        f"{found[0].text[:60]!r}",
        len(found) / len(rows),
        "lower the load or repair the server; where such answers are right, give prompts with answers of "
        "their own",
    )


def undercounted(cells: Collection[CellRecord]) -> Doubt | None:
    """Where the server counts surely fewer tokens than it sent chunks of text."""
    rows = [row for cell in cells for row in cell.rows if row.error is None and row.tokens_from == "usage"]
    found = [row for row in rows if row.tokens is not None and row.tokens < (1 - UNDERCOUNT) * row.chunks]
    if not found:
        return None
    tokens, chunks = sum(row.tokens or 0 for row in found), sum(row.chunks for row in found)
    return Doubt(
        f"in {len(found)} of {len(rows)} answers the server counts fewer tokens than it sends chunks of text "
        f"({tokens} and {chunks}): TPOT and tokens/s rest on its count",
        len(found) / len(rows),
        COUNT_ADVICE,
    )


def overcounted(cells: Collection[CellRecord], limits: Mapping[str, int]) -> Doubt | None:
    """Where the server counts more tokens than `max_tokens` allowed; `limits` has that of each prompt."""
    rows = [row for cell in cells for row in cell.rows if row.error is None and row.tokens_from == "usage"]
    found = [row for row in rows if contradicts(row.tokens, limits[row.prompt], None)]
    if not found:
        return None
    return Doubt(
        f"in {len(found)} of {len(rows)} answers the server counts more tokens than max_tokens allows, such "
        f"as {found[0].tokens} of at most {limits[found[0].prompt]}: TPOT and tokens/s rest on its count",
        len(found) / len(rows),
        COUNT_ADVICE,
    )


def cached(cells: Collection[CellRecord], confidence: float = 0.95) -> list[Doubt]:
    """One for each level at which repeats are surely faster than the first requests of the same prompts: then
    the figures are partly those of a cache."""
    found = []
    for level in dict.fromkeys(cell.level for cell in cells):
        ours = [cell for cell in cells if cell.level == level]
        ratios = {name: _faster(ours, figure, confidence) for figure, name in _FIGURES.items()}
        faster = [f"{name} {ratio}" for name, ratio in ratios.items() if ratio is not None]
        if faster:
            found.append(
                Doubt(
                    f"at {level}, repeats are faster than first requests, as from a cache "
                    f"({', '.join(faster)}), and the figures include both",
                    1.0,
                    "--repeats 1 --warmup 0 measures first requests alone",
                )
            )
    return found


def _faster(cells: Sequence[CellRecord], figure: str, confidence: float) -> str | None:
    """How many times as fast repeats are, such as `3.1× [2.7, 3.5]`; None where it is not surely notable."""
    first: dict[str, float] = {}
    later: dict[str, list[float]] = defaultdict(list)
    begin = min(cell.repeat for cell in cells)
    for cell in cells:
        for row in cell.rows:
            taken = positive(getattr(row, f"{figure}_ms")) if row.error is None else None
            if taken is not None and cell.repeat == begin:
                first[row.prompt] = taken
            elif taken is not None:
                later[row.prompt].append(taken)
    prompts = sorted(first.keys() & later.keys())
    ratio = stats.paired_ratio(
        [first[prompt] for prompt in prompts], [median(later[prompt]) for prompt in prompts], level=confidence
    )
    if ratio is None or ratio.low <= NOTABLE:
        return None
    return f"{ratio.estimate:.1f}× [{ratio.low:.1f}, {ratio.high:.1f}]"
