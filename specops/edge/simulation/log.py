"""What happened in a simulated world: the verdicts by which streams went on, and the server's steps."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Verdict:
    """A stream went on."""

    client: int
    at: float
    since: float
    """The verdict before, or the beginning of the request."""

    tokens: int
    first: bool
    """Of its request: the prompt's, and no round's."""

    ahead: int
    """Passes drafted while it was away."""

    hit: bool
    """The next root had been run by then."""

    wasted: int
    """Of `ahead`, those that left nothing."""

    waited_s: float
    """From the round's arrival to the beginning of its step."""

    taken: bool = False
    """The next round had been sent ahead of it: the server went on with that at once."""


@dataclass(frozen=True)
class Step:
    began: float
    ended: float
    trees: int
    tokens: int
    """That went through the target."""


@dataclass
class Log:
    verdicts: list[Verdict] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    ended: float = 0.0
