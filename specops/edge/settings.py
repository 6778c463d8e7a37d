"""How a client drafts."""

from __future__ import annotations

from dataclasses import dataclass, field

from specops.edge.depth import Adaptive, Depth
from specops.errors import UsageError


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
