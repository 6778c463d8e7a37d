"""Settings of a client's drafting: the sizes of its trees, and their depth, which is when it stops drafting
and sends. Pure.

`included` and `excluded` are SpecEdge's (arXiv 2505.17052): levels drafted ahead count towards the depth of
the next draft, or they do not. `adaptive` sends as soon as another pass would bring fewer tokens than the
stream brings in the time of the pass. That rate falls with the round-trip time. So a slow link leads to deep
drafts and a slow draft to shallow ones, without a setting for either.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from specops.errors import UsageError
from specops.hints import with_value


@dataclass(frozen=True)
class RoundPace:
    """Means over a client's recent rounds."""

    tokens: float
    """Tokens of a round, the bonus included."""

    home_s: float
    """Seconds from a verdict until the next round is sent: drafting that the stream waits for."""

    away_s: float
    """Seconds from then to its verdict: the round trip, the wait and the server's step."""

    served_s: float
    """Seconds of the wait and the step."""

    way_s: float
    """Round-trip time in seconds, of rounds that were not sent ahead."""

    gain: float
    """Accepted tokens per token that the draft's own probabilities promised."""

    pass_s: float
    """Seconds of one pass of the draft."""

    @property
    def rate(self) -> float:
        """Tokens a second."""
        return self.tokens / max(self.home_s + self.away_s, 1e-9)


@dataclass(frozen=True)
class DraftedTree:
    """A tree that is being drafted."""

    passes: int
    """Number of passes since the last verdict, the pass that read it included."""

    retained: int
    """Number of levels that were drafted ahead of the last verdict."""

    promise: float
    """Expected accepted tokens of another pass: the sum of the probabilities of its nodes' paths."""


class Depth(Protocol):
    def more(self, draft: DraftedTree, pace: RoundPace | None) -> bool:
        """Return whether another pass pays. pace: None before the first round."""

    def ahead(self, levels: int, promise: float, pace: RoundPace) -> bool:
        """Return whether a tree with `levels` levels, and `promise` expected accepted tokens if its outcome
        occurs, is sent before the outcome is known."""


@dataclass(frozen=True)
class Included:
    depth: int

    def more(self, draft: DraftedTree, pace: RoundPace | None) -> bool:
        return draft.retained + draft.passes < self.depth

    def ahead(self, levels: int, promise: float, pace: RoundPace) -> bool:
        return levels >= self.depth

    def __str__(self) -> str:
        return f"included:{self.depth}"


@dataclass(frozen=True)
class Excluded:
    depth: int

    def more(self, draft: DraftedTree, pace: RoundPace | None) -> bool:
        return draft.passes < self.depth

    def ahead(self, levels: int, promise: float, pace: RoundPace) -> bool:
        return False  # what was drafted ahead does not count

    def __str__(self) -> str:
        return f"excluded:{self.depth}"


@dataclass(frozen=True)
class Adaptive:
    first: int = 4
    """Number of levels before the first round."""

    def more(self, draft: DraftedTree, pace: RoundPace | None) -> bool:
        if pace is None:
            return Included(self.first).more(draft, pace)
        return draft.promise * pace.gain > pace.rate * pace.pass_s

    def ahead(self, levels: int, promise: float, pace: RoundPace) -> bool:
        # It saves the round trip and the drafting; it must bring what the stream brings meanwhile.
        return 1 + promise * pace.gain > pace.rate * pace.served_s

    def __str__(self) -> str:
        return "adaptive"


def parse_depth(text: str) -> Depth:
    """The rule that `text` describes, such as adaptive, included:4 or excluded:4. Raises UsageError for
    other text."""
    kind, _, depth = text.partition(":")
    if text == "adaptive":
        return Adaptive()
    if kind in ("included", "excluded") and depth.isdecimal() and int(depth) > 0:
        return Included(int(depth)) if kind == "included" else Excluded(int(depth))
    raise UsageError(
        f"invalid depth {text!r}: expected adaptive, included:D or excluded:D",
        hint=with_value(text, "included:4"),
    )


class Pacing:
    """Means of rounds, in which older rounds weigh less."""

    MEMORY = 0.9

    def __init__(self) -> None:
        self._rounds = self._tokens = self._home_s = self._away_s = self._served_s = 0.0
        self._ways = self._way_s = 0.0
        # Assumed before it is measured: half of what the draft promises.
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
        """Record the verdict on a tree that promised `promised` accepted tokens. way_s: None for a round
        that was sent ahead."""
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

    def pace(self, pass_s: float | None) -> RoundPace | None:
        """The means; None before the first round, or while `pass_s`, the seconds of a draft pass, is
        unknown."""
        if not self._rounds or pass_s is None:
            return None
        n = self._rounds
        gain = self._accepted / self._promised
        return RoundPace(
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
    """Largest number of nodes of a round's tree."""

    beams: int = 16
    """Number of a tree's nodes that one pass runs."""

    depth: Depth = field(default_factory=Adaptive)
    """Rule for when a tree is sent."""

    heads: int = 32
    """Number of outcomes that are drafted for while a round is away. 0: none; 1: SpecEdge's, below a leaf;
    more: the likeliest, at any end of the path."""

    ahead: int = 16
    """Number of these outcomes whose trees are sent before the verdict, so that the server continues with
    the right one at once."""

    width: int = 2
    """Number of children drawn at each node, at temperature > 0."""

    support: int = 32
    """Number of tokens in the distribution that children are drawn from."""

    streams: int = 4
    """Number of sequences at a time; others wait."""

    chunk: int = 256
    """Number of prompt tokens that one pass reads."""

    patience_s: float = 30.0
    """Timeout of a sequence while the server is out of reach or busy, in seconds."""

    def __post_init__(self) -> None:
        for name in ("nodes", "beams", "width", "support", "streams", "chunk"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} must be at least 1, not {getattr(self, name)}")
        for name in ("heads", "ahead"):
            if getattr(self, name) < 0:
                raise UsageError(f"{name} must be at least 0, not {getattr(self, name)}")
        if self.width > self.support:
            raise UsageError(
                f"a node cannot have {self.width} children drawn from {self.support} tokens: expected a "
                "width of at most the support",
            )

    @property
    def room(self) -> int:
        """Largest number of nodes of one sequence that are run and stored, those ahead included."""
        return 4 * self.nodes + 8 * self.beams


DEFAULT = Drafting()
