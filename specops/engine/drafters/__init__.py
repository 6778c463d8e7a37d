"""Drafters: what proposes a token tree for each sequence. One file each, and one line in `make_drafter`."""

from __future__ import annotations

from collections.abc import Sequence as Batch
from typing import Protocol

from torch import Tensor

from specops.engine.drafters.grower import Draft
from specops.engine.sequence import Sequence
from specops.engine.tree import Draw, TokenTree
from specops.errors import UsageError
from specops.trees import parse_tree


class Drafter(Protocol):
    @property
    def draws(self) -> Draw:
        """How the trees of sequences at temperature > 0 are drawn."""

    @property
    def reads_features(self) -> bool:
        """Whether `commit` is to be given the target's features."""

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

    def commit(self, sequence: Sequence, path: list[int], features: Tensor | None) -> None:
        """The nodes on `path` were accepted, and `sequence` has its new tokens; or a chunk was read.

        features: the target's, of the tokens that are new in its cache; None unless `reads_features`.
        """

    def move(self, sequence: Sequence, row: int) -> None:
        """`sequence` is about to go on in another row."""

    def release(self, sequence: Sequence) -> None:
        """`sequence` has ended."""


def make_drafter(tree: str, draw: Draw, draft: Draft | None, rows: int, length: int) -> Drafter:
    """`draw`: how a drafter that can choose should draw; `rows` sequences of up to `length` tokens."""
    from specops.engine.drafters.autoregressive import Autoregressive
    from specops.engine.drafters.dynamic import Dynamic
    from specops.engine.drafters.expansion import Expansion
    from specops.engine.drafters.ngram import NGram

    spec = parse_tree(tree)
    if spec.kind == "none":
        return Autoregressive()
    if spec.kind == "ngram":
        return NGram(spec.sizes[0])
    if draft is None:
        raise UsageError(f"the tree {tree!r} needs a draft model", hint="give one, or take an ngram tree")
    if spec.kind == "dynamic":
        nodes, depth = spec.sizes
        return Dynamic(nodes, depth, draft, rows, length)
    return Expansion(spec.widths, draw, draft, rows, length)
