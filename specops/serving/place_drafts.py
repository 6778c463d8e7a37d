"""Drafts before each token of a written answer: what an engine that copies would draft, and what of it is
right. Plain data, without torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Steps = list[tuple[int, int]]
"""Drafted and accepted tokens of each step along an answer, the step that reads the end of the prompt
included. A step yields what it accepted and one token more, up to the end of the answer."""


@dataclass(frozen=True)
class PlaceDrafts:
    """A draft before every token of an answer of n tokens: its length, [n], and how many of its first tokens
    are the answer's, [n]."""

    drafted: Sequence[int]
    accepted: Sequence[int]
    opens_bare: bool = False
    """Whether the step that reads the end of the prompt has no draft."""

    assumes: str = ""
    """What the drafts take for granted of the server; empty: nothing."""

    def steps(self, count: int) -> Steps:
        """The steps with drafts of up to `count` tokens."""
        steps: Steps = []
        place, end = 0, len(self.drafted)
        if self.opens_bare and end:
            steps.append((0, 0))
            place = 1
        while place < end:
            drafted, accepted = self.drafted[place], self.accepted[place]
            if drafted > count:
                drafted = count
            if accepted > count:
                accepted = count
            steps.append((drafted, accepted))
            place += accepted + 1
        return steps
