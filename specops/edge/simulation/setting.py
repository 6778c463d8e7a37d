"""Plain data of a simulation: costs of passes, the setting and who drafts; and the log of events."""

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
from specops.hints import with_value

Arm = Literal["edge", "server-only", "autoregressive"]
"""Who drafts: clients, the server for itself, nobody."""

Heads = Literal["none", "one", "many"]
"""Guesses that a client drafts on from while its tree is away: none, the paper's one, a cache of outcomes."""

COSTS_SCHEMA = 1


def straight(pass_s: float, token_s: float = 0.0) -> Curve:
    """The curve of a pass with `pass_s` seconds, and `token_s` more for each token."""
    return Curve(((0, pass_s), (1, pass_s + token_s)))


@dataclass(frozen=True)
class EdgeCosts:
    """Costs in seconds; those of passes by the number of tokens in them, of all sequences."""

    draft: Curve
    """A pass of the draft at the edge."""

    verify: Curve
    """A pass of the target on the server: prompts, and trees with their roots."""

    server_draft: Curve
    """A pass of the draft on the server, where it drafts for itself."""

    step_s: float = 0.0
    """Time of a server's step beside its passes."""

    round_s: float = 0.0
    """Time of a round beside the network and the step: encoding, gRPC, and the path to the engine. A round
    that the server continues with at once was measured to take it too, between the two steps."""

    def __post_init__(self) -> None:
        curves = {"draft": self.draft, "verify": self.verify, "server_draft": self.server_draft}
        for name, curve in curves.items():
            if not 0 < curve.seconds(1) < math.inf:
                took = f"{name} takes {curve.seconds(1):g} s"
                raise UsageError(
                    f"invalid time of a pass: {took}: expected more than 0",
                    hint="specops edge simulate --help",
                )
        if not (0 <= self.step_s < math.inf and 0 <= self.round_s < math.inf):
            raise UsageError(
                f"invalid times: step_s {self.step_s:g}, round_s {self.round_s:g}: expected 0 or more",
                hint="specops edge simulate --help",
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
        """The costs in `text`, as `to_json` writes them. Raises a FileError that begins with `where` for
        other text."""
        try:
            fields: Mapping[str, Any] = json.loads(text)
            if fields["schema"] != COSTS_SCHEMA:
                raise ValueError(f"schema {fields['schema']}; this specops reads {COSTS_SCHEMA}")
            return EdgeCosts(
                draft=_curve(fields["draft_s"]),
                verify=_curve(fields["verify_s"]),
                server_draft=_curve(fields["server_draft_s"]),
                step_s=float(fields["step_s"]),
                round_s=float(fields["round_s"]),
            )
        except (ValueError, TypeError, KeyError, IndexError) as error:
            missing = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            raise FileError(
                f"invalid costs of edge drafting in {where}: {missing}",
                hint="specops edge simulate --out costs.json  # writes a file that has data.costs",
            ) from error


def _curve(points: Any) -> Curve:
    curve_points = tuple((int(count), float(seconds)) for count, seconds in points)
    if len(curve_points) < 2 or any(left[0] >= right[0] for left, right in pairwise(curve_points)):
        raise ValueError("a curve has two points or more, with counts that rise")
    return Curve(curve_points)


@dataclass(frozen=True)
class Setting:
    """Setting of one run."""

    arm: Arm = "edge"
    clients: int = 1
    """Number of concurrent streams; each begins its next request when one has ended."""

    rtt_s: float = 0.015
    jitter_s: float = 0.0
    """Jitter in seconds: each direction takes half the round-trip time and up to this much more,
    uniformly."""

    depth: str = "included:4"
    """Rule for when a tree is sent: adaptive, included:D or excluded:D. A server's own trees have D
    levels."""

    batching: str = "dynamic"
    """Batching of rounds: dynamic, static:N or static:N:WAIT_MS."""

    heads: Heads = "one"
    ahead: int = 0
    """Number of outcomes whose next trees are sent before the verdict; 0: none. The number above 0 makes
    no difference here: the right outcome is assumed to be among them, if the draft has run it."""

    nodes: int = 32
    beams: int = 8
    """Number of nodes in a draft pass."""

    children: int = 8
    """Number of candidates below a node, which are all nodes of a tree with one level."""

    most_ahead: int = 16
    """Largest number of passes that a client drafts while its tree is away: the room of its cache."""

    max_batch: int = 32
    """Largest number of trees in a step; where the server drafts, of streams that it serves at a time."""

    prompt_tokens: int = 0
    """Number of tokens that the server reads before the first token; 0: the KV is retained from before."""

    tokens: int = 256
    """Number of output tokens of a request."""

    def __post_init__(self) -> None:
        """Raises UsageError for an impossible setting: here, since simpy would lose the hint."""
        low = {"clients": self.clients, "nodes": self.nodes, "beams": self.beams, "tokens": self.tokens}
        for name, value in {**low, "max_batch": self.max_batch}.items():
            if value < 1:
                raise UsageError(f"invalid {name} {value}: expected at least 1", hint=with_value(value, 1))
        Batching.parse(self.batching)
        depth = parse_depth(self.depth)
        if self.arm == "server-only" and isinstance(depth, Adaptive):
            raise UsageError(
                "invalid depth adaptive: a server that drafts for itself needs a number",
                hint=with_value("adaptive", "included:4"),
            )
        if min(self.rtt_s, self.jitter_s, self.prompt_tokens, self.most_ahead, self.ahead) < 0:
            raise UsageError(
                "a time or a number is negative: expected 0 or more", hint="specops edge simulate --help"
            )

    def nodes_of(self, levels: int) -> int:
        """Number of nodes of a tree with `levels` levels."""
        return (0, min(self.children, self.nodes), self.nodes)[min(levels, 2)]


@dataclass(frozen=True)
class SimulatedVerdict:
    """A verdict: a stream has new output."""

    client: int
    time_s: float
    since: float
    """Time of the verdict before, or of the request."""

    tokens: int
    first: bool
    """Whether it is the first of its request, for the prompt and not for a round."""

    ahead: int
    """Number of passes drafted while the round was away."""

    hit: bool
    """Whether the next root had been run by then."""

    wasted: int
    """Number of the passes in `ahead` that were of no use."""

    waited_s: float
    """Seconds from the round's arrival to the beginning of its step."""

    used_ahead: bool = False
    """Whether the next round had been sent ahead, so that the server continued with it at once."""


@dataclass(frozen=True)
class SimulatedStep:
    began: float
    ended: float
    trees: int
    tokens: int
    """Number of tokens that the target processed."""


@dataclass
class Log:
    verdicts: list[SimulatedVerdict] = field(default_factory=list)
    steps: list[SimulatedStep] = field(default_factory=list)
    ended: float = 0.0
