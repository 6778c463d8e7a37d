"""How a client drafts: sizes of its trees, and their depth: when it stops drafting and sends. Pure.

`included` and `excluded` are SpecEdge's (arXiv 2505.17052): what was drafted ahead counts towards the depth
of the next draft, or it does not. `adaptive` sends as soon as another pass would bring less than the stream
brings in the time that it takes. That rate falls as the way to the server gets longer, so a slow link makes
for deep drafts and a slow draft for shallow ones, without a setting for either.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from specops.errors import UsageError


@dataclass(frozen=True)
class Pace:
    """What a client's rounds were like of late: means."""

    tokens: float
    """That a round brought, the bonus included."""

    home_s: float
    """From a verdict to the next round's departure: drafting that the stream waited for."""

    away_s: float
    """From there to its verdict: the way, the wait and the server's step."""

    served_s: float
    """Of that, the wait and the step."""

    way_s: float
    """There and back, of rounds that were sent once it was their turn."""

    gain: float
    """Accepted tokens for each that the draft's own probabilities promised."""

    pass_s: float
    """Of one pass of the draft."""

    @property
    def rate(self) -> float:
        """Tokens a second."""
        return self.tokens / max(self.home_s + self.away_s, 1e-9)


@dataclass(frozen=True)
class Draft:
    """A tree on its way."""

    passes: int
    """Since the last verdict, the one that read it included."""

    retained: int
    """Levels that were there by then, drafted ahead."""

    promise: float
    """Of the nodes that another pass would run: the sum of the probabilities of their paths."""


class Depth(Protocol):
    def more(self, draft: Draft, pace: Pace | None) -> bool:
        """Whether it is worth another pass. pace: None before the first round."""

    def ahead(self, levels: int, promise: float, pace: Pace) -> bool:
        """Whether a tree of so many levels is sent before the outcome that it stands on is known, promising
        so many accepted tokens if that comes."""


@dataclass(frozen=True)
class Included:
    depth: int

    def more(self, draft: Draft, pace: Pace | None) -> bool:
        return draft.retained + draft.passes < self.depth

    def ahead(self, levels: int, promise: float, pace: Pace) -> bool:
        return levels >= self.depth

    def __str__(self) -> str:
        return f"included:{self.depth}"


@dataclass(frozen=True)
class Excluded:
    depth: int

    def more(self, draft: Draft, pace: Pace | None) -> bool:
        return draft.passes < self.depth

    def ahead(self, levels: int, promise: float, pace: Pace) -> bool:
        return False  # what was drafted ahead does not count

    def __str__(self) -> str:
        return f"excluded:{self.depth}"


@dataclass(frozen=True)
class Adaptive:
    first: int = 4
    """Levels, as long as nothing is known."""

    def more(self, draft: Draft, pace: Pace | None) -> bool:
        if pace is None:
            return Included(self.first).more(draft, pace)
        return draft.promise * pace.gain > pace.rate * pace.pass_s

    def ahead(self, levels: int, promise: float, pace: Pace) -> bool:
        # It saves the way and the drafting; what it must bring is what the stream brings in the rest.
        return 1 + promise * pace.gain > pace.rate * pace.served_s

    def __str__(self) -> str:
        return "adaptive"


def parse_depth(text: str) -> Depth:
    """adaptive, included:4 or excluded:4. Raises UsageError."""
    kind, _, depth = text.partition(":")
    if text == "adaptive":
        return Adaptive()
    if kind in ("included", "excluded") and depth.isdecimal() and int(depth) > 0:
        return Included(int(depth)) if kind == "included" else Excluded(int(depth))
    raise UsageError(
        f"{text!r} does not say when a draft is sent", hint="give adaptive, included:4 or excluded:4"
    )


class Pacing:
    """Learns a Pace. Older rounds weigh less."""

    MEMORY = 0.9

    def __init__(self) -> None:
        self._rounds = self._tokens = self._home_s = self._away_s = self._served_s = 0.0
        self._ways = self._way_s = 0.0
        # Believed before it is known: half of what the draft promises.
        self._accepted, self._promised = 1.0, 2.0

    def learn(
        self,
        *,
        tokens: int,
        promised: float,
        home_s: float,
        away_s: float,
        served_s: float,
        way_s: float | None,
    ) -> None:
        """A verdict has come on a tree that promised so many accepted tokens."""
        memory = self.MEMORY
        self._rounds = self._rounds * memory + 1
        self._tokens = self._tokens * memory + tokens
        self._home_s = self._home_s * memory + home_s
        self._away_s = self._away_s * memory + away_s
        self._served_s = self._served_s * memory + served_s
        if way_s is not None:
            self._ways = self._ways * memory + 1
            self._way_s = self._way_s * memory + way_s
        self._accepted = self._accepted * memory + tokens - 1
        self._promised = self._promised * memory + promised

    def pace(self, pass_s: float | None) -> Pace | None:
        """pass_s: of the draft, where it is known."""
        if not self._rounds or pass_s is None:
            return None
        n = self._rounds
        gain = self._accepted / self._promised
        return Pace(
            self._tokens / n,
            self._home_s / n,
            self._away_s / n,
            self._served_s / n,
            self._way_s / max(self._ways, 1.0),
            gain,
            pass_s,
        )


@dataclass(frozen=True)
class Drafting:
    nodes: int = 32
    """Of a round's tree, at most."""

    beams: int = 16
    """Nodes of a tree that one pass runs."""

    depth: Depth = field(default_factory=Adaptive)
    """When a tree is sent."""

    heads: int = 32
    """Outcomes of a round that are drafted for while it is away. 0: none; 1: the one that SpecEdge takes,
    below a leaf; more: the likeliest, wherever the path may end."""

    ahead: int = 16
    """Of these outcomes, those whose trees are sent before it is known which it is: the server goes on with
    the right one at once."""

    width: int = 2
    """Children drawn at each node, at temperature > 0."""

    support: int = 32
    """Tokens of a distribution that children are drawn from."""

    streams: int = 4
    """Sequences at a time; more of them wait."""

    chunk: int = 256
    """Tokens of a prompt that one pass reads."""

    patience_s: float = 30.0
    """How long a sequence waits for a server that is gone, or busy, before it fails."""

    def __post_init__(self) -> None:
        for name in ("nodes", "beams", "width", "support", "streams", "chunk"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} of the drafting must be at least 1, not {getattr(self, name)}")
        for name in ("heads", "ahead"):
            if getattr(self, name) < 0:
                raise UsageError(f"{name} of the drafting must be at least 0, not {getattr(self, name)}")
        if self.width > self.support:
            raise UsageError(
                f"a node cannot have {self.width} children drawn from {self.support} tokens",
                hint="lower the width, or raise the support",
            )

    @property
    def room(self) -> int:
        """Nodes of one sequence that may be run and are stored: of what was sent, and ahead of it."""
        return 4 * self.nodes + 8 * self.beams


DEFAULT = Drafting()
