"""Drafters: what proposes a token tree for each sequence. One file each, and one line in `make_drafter`."""

from __future__ import annotations

from collections.abc import Sequence as Batch
from itertools import cycle
from typing import Protocol, runtime_checkable

from torch import Tensor

from specops.engine.drafters.grower import Draft
from specops.engine.request import StepTimes
from specops.engine.sequence import Sequence
from specops.engine.tree import Draw, TokenTree, Topology
from specops.errors import UsageError
from specops.trees import TreeSpec, parse_tree


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


@runtime_checkable
class Learner(Protocol):
    """A drafter that chooses its trees by what steps take (auto.py)."""

    @property
    def steps_by_tree(self) -> dict[str, int]:
        """How many steps it chose each tree for: the very dictionary, which the engine's counters hold."""

    def learn(self, times: StepTimes) -> None:
        """The step that it drafted for has been committed."""


def make_drafter(tree: str, draw: Draw, drafts: Batch[Draft], rows: int, length: int) -> Drafter:
    """`draw`: how a drafter that can choose should draw; `rows` sequences of up to `length` tokens.

    Of several parts, every one that needs a draft takes the next of `drafts`; a single one grows them all.
    """
    from specops.engine.drafters.adaptive import Adaptive
    from specops.engine.drafters.auto import Auto
    from specops.engine.drafters.autoregressive import Autoregressive
    from specops.engine.drafters.dynamic import Dynamic
    from specops.engine.drafters.either import Either
    from specops.engine.drafters.expansion import Expansion
    from specops.engine.drafters.merged import Merged
    from specops.engine.drafters.ngram import NGram
    from specops.engine.drafters.suffix import Suffix

    spec = parse_tree(tree)
    if spec.needs_draft and len(drafts) not in (1, spec.drafts):
        raise UsageError(
            f"the tree {tree!r} needs {spec.drafts} drafts, not {len(drafts)}"
            if spec.drafts > 1
            else f"the tree {tree!r} needs a draft model",
            hint="give one for each part that a model grows, or one for all; ngram and suffix need none",
        )
    if spec.kind == "auto" and len(drafts) > 1:
        raise UsageError(
            f"the tree {tree!r} plans for one draft, not {len(drafts)}", hint="give the best one"
        )
    next_draft = cycle(drafts)

    def made(spec: TreeSpec) -> Drafter:
        if spec.kind == "either":
            copying, grown = map(made, spec.parts)
            return Either(copying, grown)
        if spec.kind == "merged":
            return Merged([made(part) for part in spec.parts])
        if spec.kind == "none":
            return Autoregressive()
        if spec.kind == "ngram":
            return NGram(spec.nodes)
        if spec.kind == "suffix":
            return Suffix(spec.nodes)
        if spec.kind == "auto":
            return Auto(spec.nodes, draw, drafts[0] if drafts else None, rows, length)
        draft = next(next_draft)
        if spec.kind == "dynamic":
            nodes, depth = spec.sizes
            return Dynamic(nodes, depth, draft, rows, length)
        if spec.kind == "adaptive":
            return Adaptive(spec.nodes, draw, draft, rows, length)
        shape = Topology.of(spec.parents) if spec.kind == "shape" else Topology.expansion(spec.widths)
        return Expansion(shape, draw, draft, rows, length)

    return made(spec)
