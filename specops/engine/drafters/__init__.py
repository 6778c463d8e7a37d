"""Drafters, and their registry: one file, and one line in DRAFTERS for each kind of tree
(`specops.trees`)."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Batch
from itertools import cycle

from torch import Tensor

from specops.engine.draft import Drafter, MakeGrower, Recipe
from specops.engine.drafters.auto import Auto
from specops.engine.drafters.compound import CopyFirst, Union
from specops.engine.drafters.dynamic import Dynamic
from specops.engine.drafters.expansion import Adaptive, Expansion
from specops.engine.drafters.ngram import NGram
from specops.engine.drafters.suffix import Suffix
from specops.engine.sequence import Sequence
from specops.engine.tree import Draw, TokenTree
from specops.errors import UsageError
from specops.hints import with_value
from specops.trees import TreeSpec, parse_tree


class Autoregressive:
    """Drafts nothing: each tree is its root, and a step is one of autoregressive decoding."""

    draws = Draw.DETERMINISTIC
    reads_features = False
    nodes = depth = 0
    caches = ()

    @classmethod
    def from_spec(cls, spec: TreeSpec, recipe: Recipe) -> Autoregressive:
        return cls()

    def draft(self, sequences: Batch[Sequence]) -> list[TokenTree]:
        return [TokenTree.bare(sequence.tokens[-1]) for sequence in sequences]

    def commit(self, sequence: Sequence, path: list[int], features: Tensor | None) -> None: ...

    def move(self, sequence: Sequence, row: int) -> None: ...

    def release(self, sequence: Sequence) -> None: ...


DRAFTERS: dict[str, Callable[[TreeSpec, Recipe], Drafter]] = {
    "none": Autoregressive.from_spec,
    "chain": Expansion.from_spec,
    "expand": Expansion.from_spec,
    "shape": Expansion.from_spec,
    "adaptive": Adaptive.from_spec,
    "dynamic": Dynamic.from_spec,
    "ngram": NGram.from_spec,
    "suffix": Suffix.from_spec,
    "merged": Union.from_spec,
    "either": CopyFirst.from_spec,
    "auto": Auto.from_spec,
}
"""The registry: how the drafter of each kind of tree is made."""


def make_drafter(tree: str, draw: Draw, growers: Batch[MakeGrower], rows: int, length: int) -> Drafter:
    """The drafter of `tree` for up to `rows` sequences of up to `length` tokens.

    draw: how a drafter that can choose should draw. growers: one for each part of the tree that a draft
    grows, or one for all. Raises UsageError for a tree that is not known or has another number of drafts.
    """
    spec = parse_tree(tree)
    if spec.needs_draft and len(growers) not in (1, spec.drafts):
        raise UsageError(
            f"the tree {tree!r} needs {spec.drafts} drafts, not {len(growers)}: expected one for each part "
            "that "
            "a model grows, or one for all"
            if spec.drafts > 1
            else f"the tree {tree!r} needs a draft model; ngram:8 and suffix:16 need none",
            hint=with_value(tree, "ngram:8"),
        )
    if spec.kind == "auto" and len(growers) > 1:
        raise UsageError(
            f"the tree {tree!r} plans for one draft, not {len(growers)}: expected one draft",
            hint=with_value(tree, "chain:3"),
        )

    def make(spec: TreeSpec, recipe: Recipe) -> Drafter:
        return DRAFTERS[spec.kind](spec, recipe)

    return make(spec, Recipe(draw, cycle(growers), rows, length, make))
