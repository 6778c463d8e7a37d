"""Who drafts, in each arm of the bench."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import Literal

from pydantic import BaseModel, ConfigDict

Kind = Literal["autoregressive", "server-only", "edge"]
AUTOREGRESSIVE, SERVER_ONLY = "autoregressive", "server-only"


class Arm(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    kind: Kind
    heads: int = 0
    """Guesses that the edge drafts on from while its round is away; 0 where nothing does."""

    depth: str = ""
    """When the edge sends; empty where the server drafts, or nobody."""


def arms_of(heads: Iterable[int], depths: Iterable[str]) -> list[Arm]:
    """The two that need no edge, and an edge arm for each number of heads and each depth."""
    heads, depths = sorted(set(heads)), list(dict.fromkeys(depths))
    edge = [
        Arm(name=_name(count, depth, len(depths)), kind="edge", heads=count, depth=depth)
        for depth, count in product(depths, heads)
    ]
    return [
        Arm(name=AUTOREGRESSIVE, kind="autoregressive"),
        Arm(name=SERVER_ONLY, kind="server-only"),
        *edge,
    ]


def _name(heads: int, depth: str, depths: int) -> str:
    name = f"edge, {heads} head{'' if heads == 1 else 's'}"
    return name if depths == 1 else f"{name}, {depth}"
