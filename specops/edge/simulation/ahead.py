"""Drafting ahead of a round that is out: when passes are begun, and after which of them trees are sent. Pure.

The rules are those of client_sessions.py, for a client with one stream. What it expects it has from its
rounds of late; a pass takes as long as any other, so that all of it is known as soon as the round is out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from specops.edge.client_sessions import SLACK
from specops.edge.rounds import VERSIONS

TICK = 1e-9
"""Seconds, or passes: what comes together comes together, however it was rounded."""


@dataclass(frozen=True)
class Passes:
    """One after another, but for the one within which the verdict is due: that would have to wait for its
    end. Where the verdict does not come when it is due, they go on."""

    since: float
    pass_s: float
    most: int
    due: float = math.inf

    @property
    def _in_time(self) -> int:
        """Those that end before the verdict is due."""
        if not self.since < self.due < math.inf:
            return self.most
        return math.floor((self.due - self.since) / self.pass_s + TICK)

    def begun(self, before: float) -> int:
        count = min(self._whole(before - self.since), self.most)
        if count > self._in_time:
            count = min(self._in_time + self._whole(before - self.due), self.most)
        return count

    def _whole(self, seconds: float) -> int:
        """Passes that fill so many, the last of them perhaps for longer."""
        return max(math.ceil(seconds / self.pass_s - TICK), 0)

    def ended(self, count: int) -> float:
        """When so many have."""
        if count <= self._in_time:
            return self.since + count * self.pass_s
        return self.due + (count - self._in_time) * self.pass_s


def sent_after(passes: Passes, late: float) -> list[int]:
    """After how many passes trees are sent: as late as they are in time, or when no pass is left; and again
    after each further pass, until it is too late."""
    found: list[int] = []
    for count in range(passes.most + 1):
        now = passes.ended(count)
        if count < passes.most and now + SLACK * passes.pass_s < late - TICK:
            continue
        if len(found) == VERSIONS or (found and now > late + TICK):
            break
        found.append(count)
    return found
