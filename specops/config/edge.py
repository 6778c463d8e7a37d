"""Drafting at the edge, as it is written in the rollout file: what drafts, over which link, at what cost.

Only `specops edge` reads it. The server is the speculative pool: its target verifies, its draft model drafts
at the edge, and its own tree, drafted there, is what that is compared with.
"""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field, NonNegativeInt, PositiveInt
from pydantic_core import PydanticCustomError

from specops.defaults import CONCURRENCY
from specops.section import Section


def _depth(value: str) -> str:
    if not re.fullmatch(r"adaptive|(included|excluded):[1-9]\d?", value):
        raise PydanticCustomError(
            "depth", "{text} is no depth", {"text": repr(value), "hint": "adaptive, included:D or excluded:D"}
        )
    return value


def _batching(value: str) -> str:
    if not re.fullmatch(r"dynamic|static:[1-9]\d*(:\d+)?", value):
        raise PydanticCustomError(
            "batching",
            "{text} is no way of batching",
            {"text": repr(value), "hint": "dynamic, static:N or static:N:WAIT_MS"},
        )
    return value


Depth = Annotated[str, AfterValidator(_depth)]
Batching = Annotated[str, AfterValidator(_batching)]


class DeclaredPass(Section):
    """What one forward pass takes on a machine that is not here."""

    pass_ms: float = Field(gt=0.0, allow_inf_nan=False, description="Whatever is in it.")
    token_ms: float = Field(
        default=0.0, ge=0.0, allow_inf_nan=False, description="More for each token in it."
    )


class StandIn(Section):
    """Declared costs: where this machine stands in for a server and edges, passes take these times."""

    verify: DeclaredPass = Field(description="The target's, on the server.")
    server_draft: DeclaredPass = Field(description="The draft's, where the server drafts for itself.")
    edge_draft: DeclaredPass = Field(description="The draft's, at the edge.")


class Edge(Section):
    nodes: int = Field(default=32, ge=1, le=256, description="Of a tree that is sent.")
    beams: int = Field(default=8, ge=1, le=256, description="Nodes that one pass of the draft runs.")
    heads: list[NonNegativeInt] = Field(
        default=[0, 1, 8],
        min_length=1,
        description="Guesses that are drafted on from while the server verifies; 0: none, 1: as in the "
        "paper, more: a cache of outcomes. One arm each.",
    )
    ahead: list[NonNegativeInt] = Field(
        default=[0, 16],
        min_length=1,
        description="Of these outcomes, those whose next trees are sent before it is known which it is; 0: "
        "none, as in the paper. With the most heads, one arm each.",
    )
    depth: list[Depth] = Field(
        default=["adaptive"],
        min_length=1,
        description="When a tree is sent: adaptive, by what was measured; included:D, D deep with what was "
        "drafted ahead; excluded:D, D deeper. Several: one arm each.",
    )
    rtt_ms: float = Field(
        default=15.0, ge=0.0, allow_inf_nan=False, description="Of the link between edge and server."
    )
    clients: list[PositiveInt] = Field(default=list(CONCURRENCY), min_length=1, description="At a time.")
    batching: Batching = Field(
        default="dynamic",
        description="dynamic: a step takes the rounds that are there; static:N[:WAIT_MS]: it waits for N.",
    )
    stand_in: StandIn | None = Field(
        default=None, description="Left out: passes take what they take on this machine."
    )
