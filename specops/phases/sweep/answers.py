"""Whether a setting's greedy answers are the standard's, beside what the standard does itself. Pure.

The standard is measured twice in a rung, so it has its own control. How sure it was of its tokens is not
known here: some of the differences may be near ties (ab/parity.py), so they decide nothing. They are named,
and the comparison that follows a sweep decides. An answer's first token is different: it comes from the
prompt alone and is never drafted, so that other first tokens are another model or garbage.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from pydantic import BaseModel, ConfigDict

from specops.load.arrivals import Level
from specops.load.record import Row
from specops.phases.ab.parity import Matches, Parity, chance, matches
from specops.phases.sweep.records import SweptCell

CONFIDENCE = 0.95


class Answers(BaseModel):
    """Of a setting at one concurrency: each prompt once, in the first rung in which it was sent."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    setting: str
    concurrency: int
    equal: int
    compared: int
    control_equal: int
    control_compared: int
    """The standard's answers before and after the setting's."""

    differ: bool
    """Surely less often equal than the control."""

    other_start: int = 0
    """Answers that part from the standard's at the first character, where the standard repeats its own."""

    starts_differ: bool = False
    """These are surely more than the same of the control."""

    def __str__(self) -> str:
        return (
            f"{self.equal} of {self.compared} greedy answers are the standard's, which repeats "
            f"{self.control_equal} of {self.control_compared} of its own"
            + (f"; {self.other_start} differ from the first character on" if self.starts_differ else "")
        )


def compare(cells: Sequence[SweptCell], standard: str, setting: str, concurrency: int) -> Answers | None:
    """None where no prompt was answered at temperature 0 by both, and twice by the standard."""
    said: dict[tuple[int, str, str], dict[tuple[str, int], dict[str, Row]]] = defaultdict(dict)
    for cell in cells:
        if cell.temperature == 0 and cell.cell.concurrency == concurrency:
            rows = {row.prompt: row for row in reversed(cell.cell.rows) if row.error is None}
            said[cell.rung, cell.machine, cell.length][cell.setting, cell.turn] = rows
    first: dict[str, Row] = {}
    again: dict[str, Row] = {}
    theirs: dict[str, Row] = {}
    for _, of in sorted(said.items()):
        ours, repeated = of.get((standard, 0), {}), of.get((standard, 1), {})
        others = of.get((setting, 1), {}) | of.get((setting, 0), {})
        for prompt in ours.keys() & repeated.keys() & others.keys() - first.keys():
            first[prompt], again[prompt], theirs[prompt] = ours[prompt], repeated[prompt], others[prompt]
    if not first:
        return None
    arms, control = matches(first, theirs), matches(first, again)
    parity = Parity(setting, False, Level(concurrency=concurrency), arms, control)
    other, own = _starts(arms, first) - control.unlike, _starts(control, first) - arms.unlike
    return Answers(
        other_start=len(other),
        starts_differ=chance(len(other), len(other) + len(own)) < 1 - CONFIDENCE,
        setting=setting,
        concurrency=concurrency,
        differ=parity.surely_lower(CONFIDENCE),
        **_counts("", arms),
        **_counts("control_", control),
    )


def _starts(found: Matches, said: Mapping[str, Row]) -> frozenset[str]:
    """Prompts whose two answers differ from the first character on, white space aside; `said` are the
    standard's answers."""
    return frozenset(
        witness.prompt
        for witness in found.witnesses
        if not said[witness.prompt].text[: witness.character].strip()
    )


def _counts(of: str, found: Matches) -> dict[str, int]:
    return {f"{of}equal": found.equal, f"{of}compared": found.compared}
