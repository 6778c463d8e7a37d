"""Whether two arms said the same at temperature 0, prompt by prompt, against a control. Pure.

Speculation may change no greedy answer. A server may also differ from itself, since sums of floating point
depend on the batch; so the standard arm's first two repeats are compared in the same way. Where they differ
too, a difference between the arms need not be speculation's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import comb
from typing import Any

from specops.load.arrivals import Level
from specops.load.record import CellRecord, Row


@dataclass(frozen=True)
class Matches:
    """Of the prompts that were answered twice, those whose answers differ, with the first such pair."""

    prompts: frozenset[str]
    unlike: frozenset[str]
    first_difference: dict[str, Any] | None

    @property
    def compared(self) -> int:
        return len(self.prompts)

    @property
    def equal(self) -> int:
        return len(self.prompts) - len(self.unlike)

    def told(self) -> dict[str, Any]:
        return {
            "compared": self.compared,
            "equal": self.equal,
            "first_difference": self.first_difference,
        }

    def __str__(self) -> str:
        return f"{self.equal}/{self.compared}"


@dataclass(frozen=True)
class Parity:
    arms: Matches
    control: Matches | None
    """The standard arm with itself; None where it has one repeat only."""

    def surely_lower(self, confidence: float) -> bool:
        """Whether the arms are equal less often than the control, by more than chance (McNemar, exact).

        Only prompts on which the two disagree count. Where speculation changed nothing, each would be as
        likely to be unlike in the control as between the arms.
        """
        if self.control is None:
            return False
        both = self.arms.prompts & self.control.prompts
        lost = len(both & (self.arms.unlike - self.control.unlike))
        gained = len(both & (self.control.unlike - self.arms.unlike))
        tried = lost + gained
        chance = sum(comb(tried, k) for k in range(lost, tried + 1)) / (1 << tried)
        return chance < 1 - confidence

    def told(self) -> dict[str, Any]:
        return self.arms.told() | {"control": self.control.told() if self.control else None}


def of(standard: Sequence[CellRecord], speculative: Sequence[CellRecord], level: Level) -> Parity:
    """Compare the first repeats of both arms at `level`, and the standard arm's first with its second."""
    ours, theirs = _by_repeat(standard, level), _by_repeat(speculative, level)
    control = _matches(ours[0], ours[1]) if 0 in ours and 1 in ours else None
    return Parity(_matches(ours.get(0, {}), theirs.get(0, {})), control)


def _by_repeat(cells: Sequence[CellRecord], level: Level) -> dict[int, dict[str, Row]]:
    return {
        cell.repeat: {row.prompt: row for row in cell.rows if row.error is None}
        for cell in cells
        if cell.level == level
    }


def _matches(ours: Mapping[str, Row], theirs: Mapping[str, Row]) -> Matches:
    shared = sorted(ours.keys() & theirs.keys())
    unlike = [p for p in shared if (ours[p].text, ours[p].tokens) != (theirs[p].text, theirs[p].tokens)]
    first = _witness(ours[unlike[0]], theirs[unlike[0]]) if unlike else None
    return Matches(frozenset(shared), frozenset(unlike), first)


def _witness(ours: Row, theirs: Row) -> dict[str, Any]:
    """Where two answers part, with a little of each from there."""
    same = 0
    while same < min(len(ours.text), len(theirs.text)) and ours.text[same] == theirs.text[same]:
        same += 1
    return {
        "prompt": ours.prompt,
        "character": same,
        "one": {"text": ours.text[same : same + 40], "tokens": ours.tokens},
        "other": {"text": theirs.text[same : same + 40], "tokens": theirs.tokens},
    }
