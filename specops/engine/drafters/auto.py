"""The drafter `auto`: at each step it drafts the tree that the planner chose (planner/planner.py), from one
draft or from copies.

All trees share one grower, and so one cache. While nothing is grown the draft reads nothing. It falls behind
at no cost. When it drafts again, it catches up with `CATCH_UP` tokens a step, or with one sequence. A grower
always learns what was committed. So a head stores the target's features until it reads them: at most a row's
length of them, one layer's width each, a small share of the target's own cache.

The tree is chosen before anything of a step is drawn, from observations of earlier steps. So the output has
the target's distribution whatever the planner does. At temperature > 0, the draws of a seed depend on the
planner.
"""

from __future__ import annotations

from collections.abc import Sequence as Batch
from dataclasses import dataclass

from torch import Tensor

from specops.engine.draft import Grower, MakeGrower, Recipe
from specops.engine.drafters.expansion import Expansion
from specops.engine.drafters.ngram import NGram
from specops.engine.planner.acceptance_counts import FinishedLengths
from specops.engine.planner.planner import COPIES, DEPTH, NONE, Planner, Plans, StepObservation, StepTrees
from specops.engine.planner.tree_choice import levels
from specops.engine.request import StepTimes
from specops.engine.sequence import Sequence
from specops.engine.tree import Draw, TokenTree, Topology
from specops.trees import TreeSpec, parse_tree

CATCH_UP = 256
"""Tokens that a draft reads in one step to catch up with sequences; as many as a chunk of a prompt."""


WATCHED = 4
"""Number of sequences that are watched while no copies are drafted: copies are looked up and compared with
the output. To index a prompt takes a noticeable part of a step."""

EPISODE, CYCLE = 16, 64
"""Steps for which a sequence is watched, and steps between the beginnings of two watches. A look-up takes
about a fiftieth of a small target's step. Look-ups follow each other without a gap, as if copies were
drafted. A look-up at any token would mostly begin inside a run that copies take in one step, and so
promise too much."""


@dataclass(frozen=True)
class _LookedUp:
    """Copies that are compared with what is written, drafted or not."""

    start: int  # where in the sequence they would lie
    tokens: list[int]
    counts: bool  # it begins where a step of copies would


@dataclass
class _Step:
    """The current step, from which the planner learns once it is done."""

    turn: StepTrees
    batch: int
    levels: tuple[int, ...] | None
    tokens: int
    decoding: bool
    """Whether no prompt is read in this step."""

    read: int
    """Tokens that the draft reads to catch up with sequences."""

    emitted: int = 0


class Auto:
    reads_features: bool

    def __init__(self, nodes: int, draw: Draw, draft: MakeGrower | None, rows: int, length: int) -> None:
        """nodes: the most nodes of a tree. draft: None to draft by copying only."""
        self.nodes = nodes
        self.depth = nodes
        self.draws = draw if draft is not None else Draw.DETERMINISTIC
        self.planner: Plans = Planner(nodes, grows=draft is not None)
        self.steps_by_tree: dict[str, int] = {}
        self.draft_of = draft
        self._rows, self._length = rows, length
        self._grower: Grower | None = draft(rows, length, nodes) if draft is not None else None
        self.reads_features = self._grower is not None and self._grower.reads_features
        self.caches = () if self._grower is None else self._grower.caches
        self._growing: dict[str, Expansion] = {}  # by tree
        self._copying = NGram(min(nodes, max(COPIES)))
        self._by: dict[int, Expansion] = {}  # by row: what grew its tree in this step
        self._trees: dict[int, TokenTree] = {}  # by row: of this step, where it has nodes
        self._read: dict[int, int] = {}  # by row: tokens that the draft has read
        self._looked_up: dict[int, _LookedUp] = {}  # by sequence
        self._ended = FinishedLengths()
        self._steps = 0  # steps in which copies were not drafted
        self._watching: int | None = None  # the sequence whose look-ups follow one on the other
        self._step: _Step | None = None

    @classmethod
    def from_spec(cls, spec: TreeSpec, recipe: Recipe) -> Auto:
        return cls(spec.nodes, recipe.draw, next(recipe.growers, None), recipe.rows, recipe.length)

    def draft(self, sequences: Batch[Sequence]) -> list[TokenTree]:
        deciding = [sequence for sequence in sequences if not sequence.reading]
        self._by.clear()
        self._trees.clear()
        self._step = None
        for sequence in sequences:
            restored = self.caches[0].read[sequence.row] if self.caches else 0
            self._read.setdefault(sequence.row, restored)
        decoding = all(sequence.uncached == 1 for sequence in sequences)  # none reads its prompt
        turn = self._turn(deciding, decoding)
        spec = parse_tree(turn.common)
        alone = min(deciding, key=self._behind) if turn.alone else None
        self._look_up(deciding, every=spec.kind == "ngram")
        trees = {sequence.row: TokenTree.bare(sequence.tokens[-1]) for sequence in sequences}
        read = 0
        if spec.kind == "ngram":
            trees.update((sequence.row, self._copy(sequence, spec.nodes)) for sequence in deciding)
        elif spec.kind != NONE:
            common = [sequence for sequence in sequences if sequence is not alone]
            read = self._grow(spec, turn.common, self._followed(common), trees)
        if alone is not None and turn.trial is not None:
            self._grow(parse_tree(turn.trial), turn.trial, [alone], trees)
        drafted = [trees[sequence.row] for sequence in sequences]
        self._trees.update((s.row, tree) for s, tree in zip(sequences, drafted, strict=True) if len(tree) > 1)
        if deciding:
            self.steps_by_tree[turn.common] = self.steps_by_tree.get(turn.common, 0) + 1
            shape, tokens = self._levels(spec, deciding), sum(map(len, drafted))
            self._step = _Step(turn, len(deciding), shape, tokens, decoding, read)
        return drafted

    def _turn(self, deciding: Batch[Sequence], decoding: bool) -> StepTrees:
        if not deciding:
            return StepTrees(NONE)
        return self.planner.turn(
            len(deciding), (lambda: min(map(self._behind, deciding))) if decoding else None
        )

    def _behind(self, sequence: Sequence) -> int:
        return len(sequence.tokens) - self._read.get(sequence.row, 0)

    def _followed(self, sequences: Batch[Sequence]) -> list[Sequence]:
        """The sequences that the draft reads in this step: those that it follows, and as many others as
        fit. Ordered by row."""
        chosen, budget = [], CATCH_UP
        for sequence in sorted(sequences, key=self._behind):
            behind = self._behind(sequence)
            if sequence.reading:
                behind = min(behind, sequence.chunk)
            follows = behind <= DEPTH + 1
            if not follows and budget < CATCH_UP and behind > budget:
                break
            budget -= 0 if follows else behind
            chosen.append(sequence)
        return sorted(chosen, key=lambda sequence: sequence.row)

    def _grow(self, spec: TreeSpec, tree: str, chosen: Batch[Sequence], trees: dict[int, TokenTree]) -> int:
        """Grow `tree` for the `chosen` sequences and store it in `trees`, by row. Returns the number of
        tokens that the draft read to catch up."""
        by = self._expansion(spec, tree)
        if not chosen:
            return 0
        before = [
            (sequence, self._read.get(sequence.row, 0))
            for sequence in chosen
            if self._behind(sequence) > DEPTH + 1
        ]
        for sequence, grown in zip(chosen, by.draft(chosen), strict=True):
            trees[sequence.row] = grown
            self._by[sequence.row] = by
            self._read[sequence.row] = self._reads_to(sequence)
        return sum(self._read[sequence.row] - read for sequence, read in before)

    def _reads_to(self, sequence: Sequence) -> int:
        """Number of tokens of `sequence` that the draft has read after this step."""
        if self.reads_features:  # a new prompt has none yet
            new = sequence.cached == sequence.restored
            return 0 if new else min(sequence.cached + 1, len(sequence.tokens))
        if sequence.reading:
            return sequence.chunk_end(self._read.get(sequence.row, 0))
        return len(sequence.tokens)

    def _expansion(self, spec: TreeSpec, tree: str) -> Expansion:
        if tree not in self._growing:
            assert self._grower is not None
            grower = self._grower
            shape = Topology.expansion(spec.widths)
            self._growing[tree] = Expansion(shape, self.draws, lambda *_: grower, self._rows, self._length)
        return self._growing[tree]

    def _levels(self, spec: TreeSpec, deciding: Batch[Sequence]) -> tuple[int, ...] | None:
        """Nodes on each level of this step's trees; () if none was grown, None if their shapes differ from
        the plan."""
        if not spec.needs_draft:
            return ()
        whole = all(len(self._trees.get(sequence.row, ())) == 1 + spec.nodes for sequence in deciding)
        return levels(spec.widths) if whole else None

    # --- copies -------------------------------------------------------------------------------

    def _look_up(self, deciding: Batch[Sequence], *, every: bool) -> None:
        """Look up copies, for `every` sequence or for the one that is watched, and store them for
        `_compare`."""
        for sequence in deciding if every else self._watched(deciding):
            if sequence.id in self._looked_up or sequence.depth_left < self._copying.nodes:
                continue
            tokens = self._copying.draft([sequence])[0].tokens[1:]
            counts = every or sequence.id == self._watching
            self._looked_up[sequence.id] = _LookedUp(len(sequence.tokens), tokens, counts)
            self._watching = sequence.id

    def _watched(self, deciding: Batch[Sequence]) -> Batch[Sequence]:
        self._steps += 1
        episode, step = divmod(self._steps, CYCLE)
        if step == 0:
            self._watching = None
        place = episode % max(1, min(len(deciding), WATCHED))
        return deciding[place : place + 1] if step < EPISODE else ()

    def _copy(self, sequence: Sequence, count: int) -> TokenTree:
        looked_up = self._looked_up.get(sequence.id)
        if looked_up is not None and looked_up.start == len(sequence.tokens):  # just now
            tokens = [sequence.tokens[-1], *looked_up.tokens[:count]]
        else:
            tokens = self._copying.draft([sequence])[0].tokens[: 1 + count]
        return TokenTree(Topology.expansion((1,) * (len(tokens) - 1)), tokens, Draw.DETERMINISTIC)

    def _compare(self, sequence: Sequence) -> None:
        """Report a look-up to the planner as soon as the output shows how many of its tokens are right."""
        looked_up = self._looked_up.get(sequence.id)
        if looked_up is None:
            return
        written = sequence.tokens[looked_up.start :]
        right = 0
        for copied, token in zip(looked_up.tokens, written, strict=False):
            if copied != token:
                break
            right += 1
        if right < len(written) or right == len(looked_up.tokens):
            if looked_up.counts:
                self.planner.copied(len(looked_up.tokens), right)
            del self._looked_up[sequence.id]

    # --- outcomes -----------------------------------------------------------------------------

    def commit(self, sequence: Sequence, path: list[int], features: Tensor | None) -> None:
        row = sequence.row
        by = self._by.pop(row, None)
        if by is not None:
            by.commit(sequence, path, features)
        elif self._grower is not None:
            self._grower.commit(sequence, [], features)
        if sequence.reading:
            return
        tree = self._trees.pop(row, None)
        if by is not None and tree is not None:
            self.planner.grown(tree.topology, path)
        self._compare(sequence)
        if self._step is not None:
            self._step.emitted += len(path) + 1

    def learn(self, times: StepTimes) -> None:
        step = self._step
        if step is None or not (step.decoding or step.read):
            return
        self.planner.learn(
            StepObservation(
                step.batch,
                step.turn,
                step.levels,
                step.tokens,
                step.emitted,
                draft=times.draft,
                verify=times.verify,
                rest=times.commit,
                read=step.read,
                lengths=self._ended.lengths,
            )
        )

    def move(self, sequence: Sequence, row: int) -> None:
        if self._grower is not None:
            self._grower.move(sequence, row)
        if sequence.row in self._read:  # else nothing was drafted for it yet
            self._read[row] = self._read.pop(sequence.row)

    def release(self, sequence: Sequence) -> None:
        if self._grower is not None:
            self._grower.release(sequence)
        self._read.pop(sequence.row, None)
        self._ended.see(sequence.prompt_length, len(sequence.tokens) - sequence.prompt_length)
        self._looked_up.pop(sequence.id, None)
        self._copying.release(sequence)
