"""Drafters: what proposes a token tree for each sequence. A drafter is one file and one line here.

Specs, as the command line and rollout files write them:

    chain:K            K tokens in a line, from the draft model
    expand:3,1,1       SpecInfer's expansion <3,1,1>, from the draft model
    dynamic:N:D        the N best nodes of the draft's most likely continuations, at most D deep
    ngram:K            up to K tokens copied from where the last few tokens occurred before
    none               nothing: autoregressive decoding
"""

from __future__ import annotations

from collections.abc import Sequence as Batch
from typing import Protocol

from specops.engine.model import Model
from specops.engine.sequence import Sequence
from specops.engine.tree import Draw, TokenTree
from specops.errors import UsageError

FORMS = "chain:4, expand:3,1,1, dynamic:16:6, ngram:8 or none"


class Drafter(Protocol):
    @property
    def draws(self) -> Draw:
        """How the trees of sequences at temperature > 0 are drawn."""

    @property
    def nodes(self) -> int:
        """The most nodes, without the root, that a tree may have."""

    @property
    def depth(self) -> int:
        """How deep below the root a node may lie, at most."""

    def draft(self, sequences: Batch[Sequence]) -> list[TokenTree]:
        """A tree for each sequence, its root the last token, no deeper than `sequence.depth_left`.

        A sequence that is still reading its prompt gets a bare root, which nobody will look at; the
        drafter reads as far as the target does.
        """

    def commit(self, sequence: Sequence, path: list[int]) -> None:
        """The nodes on `path` were accepted; `sequence` has its new tokens."""

    def move(self, sequence: Sequence, row: int) -> None:
        """`sequence` is about to go on in another row."""

    def release(self, sequence: Sequence) -> None:
        """`sequence` has ended."""


def parse_tree(spec: str) -> tuple[str, list[int]]:
    """The kind of a tree and its sizes; UsageError where `spec` is none."""
    kind, _, rest = spec.partition(":")
    if kind == "none" and not rest:
        return kind, []
    counts = {"chain": 1, "ngram": 1, "dynamic": 2, "expand": None}
    try:
        sizes = [int(part) for part in rest.replace(":", ",").split(",")]
    except ValueError:
        sizes = []
    if kind not in counts or not sizes or min(sizes) < 1 or counts[kind] not in (None, len(sizes)):
        raise UsageError(f"{spec!r} is no tree", hint=f"write a tree like {FORMS}")
    return kind, sizes


def make_drafter(spec: str, draw: Draw, model: Model | None, rows: int, length: int) -> Drafter:
    """`draw`: how a drafter that can choose should draw; `rows` sequences of up to `length` tokens."""
    from specops.engine.drafters.autoregressive import Autoregressive
    from specops.engine.drafters.dynamic import Dynamic
    from specops.engine.drafters.expansion import Expansion
    from specops.engine.drafters.ngram import NGram

    kind, sizes = parse_tree(spec)
    if kind == "none":
        return Autoregressive()
    if kind == "ngram":
        return NGram(sizes[0])
    if model is None:
        raise UsageError(f"the tree {spec!r} needs a draft model", hint="give one, or take an ngram tree")
    if kind == "dynamic":
        return Dynamic(sizes[0], sizes[1], model, rows, length)
    widths = (1,) * sizes[0] if kind == "chain" else tuple(sizes)
    return Expansion(widths, draw, model, rows, length)
