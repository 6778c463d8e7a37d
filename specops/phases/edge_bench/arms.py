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

    ahead: int = 0
    """Of these, those whose next trees it sends before it knows which is right."""

    depth: str = ""
    """When the edge sends; empty where the server drafts, or nobody."""


def arms_of(heads: Iterable[int], depths: Iterable[str], ahead: Iterable[int]) -> list[Arm]:
    """The two that need no edge, and at each depth an edge arm for each number of heads, which sends as few
    trees ahead as were asked for; with the most heads, one for each other number of them as well."""
    heads, ahead, depths = sorted(set(heads)), sorted(set(ahead)), list(dict.fromkeys(depths))
    tried = [(count, ahead[0]) for count in heads]
    if heads[-1] > 0:  # without guesses there is nothing to send ahead
        tried += [(heads[-1], trees) for trees in ahead[1:]]
    edge = [
        Arm(name=_name(count, trees, depth, len(depths)), kind="edge", heads=count, ahead=trees, depth=depth)
        for depth, (count, trees) in product(depths, tried)
    ]
    return [
        Arm(name=AUTOREGRESSIVE, kind="autoregressive"),
        Arm(name=SERVER_ONLY, kind="server-only"),
        *edge,
    ]


def _name(heads: int, ahead: int, depth: str, depths: int) -> str:
    name = f"edge, {heads} head{'' if heads == 1 else 's'}" + (f", {ahead} ahead" if ahead else "")
    return name if depths == 1 else f"{name}, {depth}"
