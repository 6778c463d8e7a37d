"""Drafting at the edge, as it is written in the rollout file: what drafts, over which link, at what cost.

Only `specops edge` reads it. The server is the speculative pool: its target verifies, its draft model drafts
at the edge, and its own tree, drafted there, is what that is compared with.
"""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from specops.defaults import CONCURRENCY
from specops.quantities import Count, Milliseconds, Streams
from specops.section import Section


def _depth(value: str) -> str:
    if not re.fullmatch(r"adaptive|(included|excluded):[1-9]\d?", value):
        raise PydanticCustomError(
            "depth",
            "invalid depth {text}: expected adaptive, included:D or excluded:D",
            {"text": repr(value), "advice": "such as depth: [included:4]"},
        )
    return value


def _batching(value: str) -> str:
    if not re.fullmatch(r"dynamic|static:[1-9]\d*(:\d+)?", value):
        raise PydanticCustomError(
            "batching",
            "invalid batching {text}: expected dynamic, static:N or static:N:WAIT_MS",
            {"text": repr(value), "advice": "such as batching: static:4:50"},
        )
    return value


Depth = Annotated[str, AfterValidator(_depth)]
Batching = Annotated[str, AfterValidator(_batching)]


class DeclaredPass(Section):
    """Declared time of one forward pass on a machine that is not available here."""

    pass_ms: Milliseconds = Field(
        gt=0.0, allow_inf_nan=False, description="Fixed time of a pass, in milliseconds."
    )
    token_ms: Milliseconds = Field(
        default=0.0,
        ge=0.0,
        allow_inf_nan=False,
        description="Additional time for each token of a pass, in milliseconds.",
    )


class StandIn(Section):
    """Declared times of passes, where this machine stands in for a server and edge machines."""

    verify: DeclaredPass = Field(description="Pass of the target on the server.")
    server_draft: DeclaredPass = Field(
        description="Pass of the draft on the server, where the server drafts for itself."
    )
    edge_draft: DeclaredPass = Field(description="Pass of the draft at the edge.")


class Edge(Section):
    """Drafting at the edge, for `specops edge bench` and `specops edge simulate`."""

    nodes: Count = Field(
        default=32, ge=1, le=256, description="Number of nodes in a tree that the client sends."
    )
    beams: Count = Field(
        default=8, ge=1, le=256, description="Number of nodes that one pass of the draft evaluates."
    )
    heads: list[Annotated[Count, Field(ge=0)]] = Field(
        default=[0, 1, 8],
        min_length=1,
        description="Numbers of guessed outcomes to draft for while the server "
        "verifies, one arm each; 0: none, 1: as in the paper.",
    )
    ahead: list[Annotated[Count, Field(ge=0)]] = Field(
        default=[0, 16],
        min_length=1,
        description="Numbers of guessed outcomes whose next trees are sent "
        "before the verdict, one arm each; 0: none, as in the paper.",
    )
    depth: list[Depth] = Field(
        default=["adaptive"],
        min_length=1,
        description="Depths at which a tree is sent, one arm each: adaptive, from measured times; "
        "included:D, levels drafted ahead count towards D; excluded:D, they do not.",
    )
    rtt_ms: Milliseconds = Field(
        default=15.0,
        ge=0.0,
        allow_inf_nan=False,
        description="Round-trip time between edge and server, in milliseconds.",
    )
    clients: list[Annotated[Streams, Field(ge=1)]] = Field(
        default=list(CONCURRENCY), min_length=1, description="Concurrency levels, in clients."
    )
    batching: Batching = Field(
        default="dynamic",
        description="Batching of rounds: dynamic, a step takes the waiting "
        "rounds; static:N[:WAIT_MS], it waits for N rounds.",
    )
    stand_in: StandIn | None = Field(
        default=None,
        description="Declared times of passes; default: passes take their real time on this machine.",
    )
