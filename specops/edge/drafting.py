"""Drafting at the client: trees of many sequences, by shared passes of a model or by copying."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Batch
from typing import Protocol

from torch import Tensor

from specops.edge.client_metrics import EdgeCounters
from specops.edge.growth import Floats, Growth, Ints, Retained
from specops.edge.link import DRAWN_AHEAD, Branch, Proposal
from specops.edge.quantisation import quantise
from specops.edge.settings import Drafting
from specops.engine.drafters.ngram import NGram
from specops.engine.heads.draft_model import ModelGrower
from specops.engine.models.model import Model
from specops.engine.rng import are_distributions, distribution
from specops.engine.sequence import Sequence
from specops.errors import NotFinite

CHILDREN = 16
"""Number of candidates below a node. Those from the ninth on are hardly ever sent. But one in four target
tokens that end a path is not among the draft's first eight, so as guesses they pay."""


def likeliest(logits: Tensor) -> tuple[Ints, Floats]:
    """Candidates below nodes with these logits, [nodes, V], and their log-probabilities: [nodes, children]
    each."""
    best = logits.topk(min(CHILDREN, logits.shape[-1]), -1)
    logs = best.values - logits.logsumexp(-1, keepdim=True)
    return best.indices.numpy(), logs.double().numpy()


class Drafts(Protocol):
    """The drafting of a client. A sequence is known from `begin` to `end`. It begins away: its first
    verdict is its prompt's."""

    @property
    def kv_usage(self) -> float:
        """Share of the draft's KV cache that committed tokens fill."""

    def begin(self, sequence: Sequence) -> None: ...

    def end(self, sequence: Sequence) -> None: ...

    def work(self, due: Batch[Sequence], away: Batch[Sequence]) -> list[Sequence]:
        """Run one pass: for sequences whose turn it is (`due`), and ahead for those whose tree is away.
        Returns the sequences that took part."""

    def promise(self, sequence: Sequence) -> float | None:
        """Expected accepted tokens of another pass, by the draft's own probabilities, for a sequence whose
        turn it is. None if its last token has not been read yet."""

    def levels(self, sequence: Sequence) -> int:
        """Number of levels of the sequence's tree that were drafted before the last verdict."""

    def propose(self, sequence: Sequence) -> tuple[Proposal, float]:
        """The sequence's tree, which counts as away from now on, and its expected accepted tokens."""

    def ahead(
        self, sequence: Sequence, count: int, worth: Callable[[int, float], bool]
    ) -> list[tuple[Branch, float]]:
        """The trees after the likeliest outcomes of a tree that is away, each with its expected tokens; at
        most `count`.

        worth: whether to send a tree, by its levels and its expected accepted tokens. Each call makes the
        next version of the trees, from 1.
        """

    def withdraw(self, sequence: Sequence) -> None:
        """Treat the sequence's last token alone as away, whatever was sent."""

    def follow(self, sequence: Sequence, path: list[int], tokens: list[int], version: int = 0) -> bool:
        """Process the verdict on the tree that was away, before the sequence has the new tokens. Returns
        whether the draft continues from what was drafted ahead.

        version: that of the tree sent ahead for this outcome, if the server continues with it; else 0.
        """

    def walk(self, sequence: Sequence, tokens: list[int]) -> bool:
        """Follow tokens as `follow` does, where it is unknown how they were verified."""


class _Place:
    """State of one sequence, whose `cached` is the number of its tokens in the draft's cache."""

    def __init__(self, sequence: Sequence) -> None:
        self.sequence = sequence
        self.growth: Growth | None = None  # None until the last token was read
        self.away = True
        self.next: tuple[list[int], float] | None = None  # Growth.next_here, until something is grown


class CopyDrafts:
    """Drafts by copying. A look-up costs nothing, so it never drafts ahead."""

    kv_usage = 0.0

    def __init__(self, nodes: int) -> None:
        self._ngram = NGram(nodes)

    def begin(self, sequence: Sequence) -> None: ...

    def end(self, sequence: Sequence) -> None:
        self._ngram.release(sequence)

    def work(self, due: Batch[Sequence], away: Batch[Sequence]) -> list[Sequence]:
        return []

    def promise(self, sequence: Sequence) -> float:
        return 0.0

    def levels(self, sequence: Sequence) -> int:
        return 0

    def propose(self, sequence: Sequence) -> tuple[Proposal, float]:
        sequence.cached = len(sequence.tokens) - 1
        (tree,) = self._ngram.draft([sequence])
        odds = tree.odds or (1.0,)
        return Proposal(tuple(tree.tokens[1:]), tree.topology.parents[1:]), sum(odds[1:])

    def ahead(
        self, sequence: Sequence, count: int, worth: Callable[[int, float], bool]
    ) -> list[tuple[Branch, float]]:
        return []

    def withdraw(self, sequence: Sequence) -> None: ...

    def follow(self, sequence: Sequence, path: list[int], tokens: list[int], version: int = 0) -> bool:
        return False

    def walk(self, sequence: Sequence, tokens: list[int]) -> bool:
        return False


class ModelDrafts:
    """Drafts by a draft model."""

    def __init__(
        self,
        model: Model,
        settings: Drafting,
        length: int,
        *,
        nodes: int,
        support: int,
        counters: EdgeCounters,
    ) -> None:
        """length: the most tokens of one sequence. nodes, support: the server's limits on a tree's nodes
        and on a distribution's tokens."""
        self._settings, self._length = settings, length
        self._nodes = min(settings.nodes, nodes)
        self._support = min(settings.support, support)
        self._width = min(settings.width, self._nodes, self._support)
        self._draft = ModelGrower(model, settings.streams, length, settings.room)
        self._rows = list(range(settings.streams))[::-1]  # that are free
        self._places: dict[int, _Place] = {}  # by sequence
        self._counters = counters

    @property
    def kv_usage(self) -> float:
        cached = sum(place.sequence.cached for place in self._places.values())
        return cached / (self._settings.streams * self._length)

    def begin(self, sequence: Sequence) -> None:
        sequence.row, sequence.cached = self._rows.pop(), 0
        self._places[sequence.id] = _Place(sequence)

    def end(self, sequence: Sequence) -> None:
        del self._places[sequence.id]
        self._draft.release(sequence)
        self._rows.append(sequence.row)
        sequence.row = -1

    # --- passes -------------------------------------------------------------------------------

    def work(self, due: Batch[Sequence], away: Batch[Sequence]) -> list[Sequence]:
        behind: list[Sequence] = []
        frontiers: list[tuple[Sequence, list[int]]] = []
        for sequence in sorted((*due, *away), key=lambda s: s.row):
            place = self._places[sequence.id]
            if place.growth is None:
                if sequence.depth_left > 0:
                    behind.append(sequence)
            elif frontier := self._frontier(place, place.growth):
                frontiers.append((sequence, frontier))
        if behind:
            self._read(behind)
        if frontiers:
            self._grow(frontiers)
        return [*behind, *(sequence for sequence, _ in frontiers)]

    def _frontier(self, place: _Place, growth: Growth) -> list[int]:
        if not place.away:
            return self._next(place)[0]
        settings = self._settings
        return growth.next_ahead(settings.beams, settings.heads, place.sequence.depth_left)

    def _next(self, place: _Place) -> tuple[list[int], float]:
        assert place.growth is not None
        if place.next is None:
            width = None if place.sequence.greedy else self._width
            deepest = place.sequence.depth_left
            place.next = place.growth.next_here(self._settings.beams, self._nodes, deepest, width=width)
        return place.next

    def _read(self, sequences: list[Sequence]) -> None:
        """Read a chunk of each sequence's new tokens. The tree of a sequence begins once all are read."""
        ready, logits = self._draft.read(sequences)
        self._counters.passes += 1
        for sequence in sequences:
            sequence.cached = sequence.cached + sequence.chunk if sequence.reading else len(sequence.tokens)
        begun = []
        for index in ready:
            sequence = sequences[index]
            place = self._places[sequence.id]
            place.growth = Growth(sequence.tokens[-1], self._settings.room, sequence.ends)
            place.next = None
            if place.away:
                place.growth.send_bare()
            begun.append((place, [0]))
        self._branch(begun, logits)

    def _grow(self, frontiers: list[tuple[Sequence, list[int]]]) -> None:
        levels, grown = [], []
        for sequence, frontier in frontiers:
            place = self._places[sequence.id]
            assert place.growth is not None
            stop = len(place.growth.run)
            levels += place.growth.levels_of(sequence, frontier)
            grown.append((place, place.growth.run[stop:]))
            place.next = None
            self._counters.run += len(frontier)
            self._counters.ahead += len(frontier) if place.away else 0
        self._counters.passes += 1
        self._branch(grown, self._draft.grow(levels))

    def _branch(self, grown: list[tuple[_Place, list[int]]], logits: Tensor) -> None:
        """Add children to the nodes that were run. logits: [nodes, V], a row for each node, place after
        place."""
        if not grown:
            return
        if not are_distributions(logits):
            raise NotFinite("could not draft: the draft's logits are not finite")
        tokens, logs = likeliest(logits)
        stop = 0
        for place, nodes in grown:
            start, stop = stop, stop + len(nodes)
            growth, sequence = place.growth, place.sequence
            assert growth is not None
            if sequence.greedy:
                growth.branch(nodes, tokens[start:stop], logs[start:stop])
                continue
            q = quantise(distribution(logits[start:stop], sequence.sampling), self._support)
            for node, drawn_from in zip(nodes, q, strict=True):
                growth.branch_drawn(node, drawn_from, self._width, sequence.chance)

    # --- rounds -------------------------------------------------------------------------------

    def promise(self, sequence: Sequence) -> float | None:
        place = self._places[sequence.id]
        if place.growth is None:
            return None if sequence.depth_left > 0 else 0.0
        return self._next(place)[1]

    def levels(self, sequence: Sequence) -> int:
        growth = self._places[sequence.id].growth
        return growth.levels if growth is not None else 0

    def propose(self, sequence: Sequence) -> tuple[Proposal, float]:
        place = self._places[sequence.id]
        place.away, place.next = True, None
        if place.growth is None:  # the next token is the last one: there is nothing to draft
            return Proposal((), ()), 0.0
        proposal = place.growth.propose(self._nodes, sequence.depth_left, sampled=not sequence.greedy)
        return proposal, place.growth.promised

    def withdraw(self, sequence: Sequence) -> None:
        place = self._places[sequence.id]
        place.away, place.next = True, None
        if place.growth is not None:
            place.growth.send_bare()

    def ahead(
        self, sequence: Sequence, count: int, worth: Callable[[int, float], bool]
    ) -> list[tuple[Branch, float]]:
        growth = self._places[sequence.id].growth
        if growth is None:
            return []
        deepest, sampled = sequence.depth_left, not sequence.greedy
        count = min(count, DRAWN_AHEAD) if sampled else count
        return growth.branch_off(count, self._nodes, deepest, worth, sampled=sampled)

    def follow(self, sequence: Sequence, path: list[int], tokens: list[int], version: int = 0) -> bool:
        hit = self._keep(sequence, lambda growth: growth.follow(path, tokens[-1], version))
        self._places[sequence.id].away = version > 0
        return hit

    def walk(self, sequence: Sequence, tokens: list[int]) -> bool:
        return self._keep(sequence, lambda growth: growth.walk(tokens))

    def _keep(self, sequence: Sequence, keep: Callable[[Growth], Retained]) -> bool:
        place = self._places[sequence.id]
        place.away, place.next = False, None
        growth = place.growth
        if growth is None:
            return False
        ran, ahead = growth.ran, len(growth.run) - growth.ran if growth.sent is not None else 0
        retained = keep(growth)
        self._draft.splice(sequence, retained.accepted, retained.ahead)
        sequence.cached += len(retained.accepted)
        spliced = (
            sum(number >= ran for number in (*retained.accepted, *retained.ahead)) if retained.hit else 0
        )
        self._counters.spliced += spliced
        self._counters.wasted += ahead - spliced
        if not retained.hit:
            place.growth = None
        return retained.hit
