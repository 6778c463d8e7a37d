"""Plain data of a simulation: what passes cost, the setting and who drafts; and the log of what happened."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

from specops.edge.batching import Batching
from specops.edge.settings import Adaptive, parse_depth
from specops.engine.planner.cost_model import Curve
from specops.errors import FileError, UsageError

Arm = Literal["edge", "server-only", "autoregressive"]
"""Who drafts: clients, the server for itself, nobody."""

Heads = Literal["none", "one", "many"]
"""Guesses that a client drafts on from while its tree is away: none, the paper's one, a cache of outcomes."""

COSTS_SCHEMA = 1


def straight(pass_s: float, token_s: float = 0.0) -> Curve:
    """So many seconds a pass and so many more for every token in it."""
    return Curve(((0, pass_s), (1, pass_s + token_s)))


@dataclass(frozen=True)
class EdgeCosts:
    """Seconds; passes by how many tokens are in them, whoever's."""

    draft: Curve
    """A pass of the draft at the edge."""

    verify: Curve
    """A pass of the target on the server: prompts, and trees with their roots."""

    server_draft: Curve
    """A pass of the draft on the server, where it drafts for itself."""

    step_s: float = 0.0
    """Of a server's step beside its passes."""

    round_s: float = 0.0
    """Of a round there and back, beside the network and the step: encoding, gRPC, the way to the engine. One
    that the server goes on with at once was found to take it too, between the two steps."""

    def __post_init__(self) -> None:
        curves = {"draft": self.draft, "verify": self.verify, "server_draft": self.server_draft}
        for name, curve in curves.items():
            if not 0 < curve.at(1) < math.inf:
                took = f"{name} takes {curve.at(1):g} s"
                raise UsageError(f"a pass takes time, and {took}", hint="declare a number above 0")
        if not (0 <= self.step_s < math.inf and 0 <= self.round_s < math.inf):
            raise UsageError(
                f"nothing takes less than no time: step_s {self.step_s:g}, round_s {self.round_s:g}",
                hint="give 0 or more",
            )

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": COSTS_SCHEMA,
            "draft_s": self.draft.points,
            "verify_s": self.verify.points,
            "server_draft_s": self.server_draft.points,
            "step_s": self.step_s,
            "round_s": self.round_s,
        }

    @staticmethod
    def of_json(text: str, where: str) -> EdgeCosts:
        """FileError, which begins with `where`, for what `to_json` did not write."""
        try:
            found: Mapping[str, Any] = json.loads(text)
            if found["schema"] != COSTS_SCHEMA:
                raise ValueError(f"schema {found['schema']}, and this specops reads {COSTS_SCHEMA}")
            return EdgeCosts(
                draft=_curve(found["draft_s"]),
                verify=_curve(found["verify_s"]),
                server_draft=_curve(found["server_draft_s"]),
                step_s=float(found["step_s"]),
                round_s=float(found["round_s"]),
            )
        except (ValueError, TypeError, KeyError, IndexError) as error:
            missing = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            raise FileError(
                f"{where} holds no costs of edge drafting: {missing}",
                hint="it is to be as data.costs of an answer of `edge simulate --json`",
            ) from error


def _curve(points: Any) -> Curve:
    found = tuple((int(count), float(seconds)) for count, seconds in points)
    if len(found) < 2 or any(left[0] >= right[0] for left, right in pairwise(found)):
        raise ValueError("a curve has two points or more, with counts that rise")
    return Curve(found)


@dataclass(frozen=True)
class Setting:
    """One run of the world."""

    arm: Arm = "edge"
    clients: int = 1
    """Streams at a time; each begins its next request when one has ended."""

    rtt_s: float = 0.015
    jitter_s: float = 0.0
    """Each way takes half the round trip and up to this much more, uniformly."""

    depth: str = "included:4"
    """When a tree is sent: adaptive, included:D or excluded:D. A server's own trees are D deep."""

    batching: str = "dynamic"
    """Which rounds a step takes: dynamic, static:N or static:N:WAIT_MS."""

    heads: Heads = "one"
    ahead: int = 0
    """Outcomes of a round whose next trees are sent before it is known which it is; 0: none. How many they
    are makes no difference here: the right one is taken to be among them, if the draft has run it."""

    nodes: int = 32
    beams: int = 8
    """Nodes of a draft pass."""

    children: int = 8
    """Candidates below a node: all that a tree of one level has."""

    most_ahead: int = 16
    """Passes that a client drafts while its tree is away, at most: its cache has so much room."""

    max_batch: int = 32
    """Trees of one step; where the server drafts, streams that it serves at a time."""

    prompt_tokens: int = 0
    """Read by the server before the first token; 0: retained from before."""

    tokens: int = 256
    """Of a request."""

    def __post_init__(self) -> None:
        """UsageError for what cannot be: here, since simpy would lose its hint."""
        low = {"clients": self.clients, "nodes": self.nodes, "beams": self.beams, "tokens": self.tokens}
        for name, value in {**low, "max_batch": self.max_batch}.items():
            if value < 1:
                raise UsageError(f"nothing can be simulated with {name} {value}", hint="give 1 or more")
        Batching.parse(self.batching)
        depth = parse_depth(self.depth)
        if self.arm == "server-only" and isinstance(depth, Adaptive):
            raise UsageError(
                "a server that drafts for itself has a depth, and adaptive is none", hint="such as included:4"
            )
        if min(self.rtt_s, self.jitter_s, self.prompt_tokens, self.most_ahead, self.ahead) < 0:
            raise UsageError("times and numbers are not negative", hint="give 0 or more")

    def nodes_of(self, levels: int) -> int:
        """Of a tree so deep."""
        return (0, min(self.children, self.nodes), self.nodes)[min(levels, 2)]


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
