"""Outcomes of rounds of a real pair over real prompts: texts for the streams of a simulation.

The target's greedy text after a prompt does not depend on the draft, so it determines the acceptance of every
tree. From each of its tokens the client's own growth (growth.py) runs as in a client: one pass for each
level, the tree as it would then be sent, and passes ahead while it is away.
"""

from __future__ import annotations

from collections.abc import Sequence as Batch
from copy import copy
from dataclasses import dataclass

import numpy as np
import torch

from specops.edge.drafting import likeliest
from specops.edge.growth import Growth
from specops.edge.settings import Drafting
from specops.edge.simulation.rounds import GUESSING, Rounds, Text, of_texts
from specops.edge.simulation.setting import Heads
from specops.engine.heads.draft_model import ModelGrower
from specops.engine.models.model import Model
from specops.engine.request import Sampling
from specops.engine.sequence import Sequence
from specops.progress import Progress

LEVELS = 8
AHEAD = 3
"""Number of passes drafted ahead that are evaluated. For the shipped pair, the tenth pass ran in only 1 of
100 rounds what the second had not run."""


@dataclass(frozen=True)
class GreedyText:
    prompt: list[int]
    written: list[int]
    """The target's greedy text."""


def measure(
    model: Model, answers: Batch[GreedyText], settings: Drafting, source: str, progress: Progress
) -> Rounds:
    """Outcomes of rounds with `model` as the draft. Raises UsageError for an answer too short for a tree
    of LEVELS levels."""
    length = max(len(answer.prompt) + len(answer.written) for answer in answers)
    walk = _Walk(model, settings, length)
    progress.start("rounds", len(answers))
    texts = []
    for answer in answers:
        texts.append(walk.along(answer))
        progress.advance()
    return of_texts(texts, source)


class _Walk:
    def __init__(self, model: Model, settings: Drafting, length: int) -> None:
        self._settings, self._length = settings, length + 1
        self._draft = ModelGrower(model, 1, self._length, settings.room)
        self._heads: dict[Heads, int] = {"one": 1, "many": max(settings.heads, 2)}

    @torch.inference_mode()
    def along(self, answer: GreedyText) -> Text:
        """The outcomes of rounds from every token of `answer` that LEVELS + 1 others follow."""
        sequence = Sequence(
            0,
            answer.prompt,
            Sampling(max_tokens=len(answer.written) + 1, ignore_eos=True),
            room=self._length,
            chunk=self._length,
            eos=frozenset(),
            tokenizer=None,
        )
        sequence.row = 0
        self._draft.release(sequence)
        accepted: list[list[int]] = [[] for _ in range(LEVELS)]
        run_by: dict[Heads, list[list[int]]] = {heads: [[] for _ in range(LEVELS)] for heads in GUESSING}
        for place in range(len(answer.written) - LEVELS - 1):
            sequence.tokens.append(answer.written[place])
            growth = self._begun(sequence)
            follow = answer.written[place + 1 :]
            for level in range(LEVELS):
                if level:
                    beams, most = self._settings.beams, self._settings.nodes
                    nodes, _ = growth.next_here(beams, most, LEVELS, width=None)
                    self._run(sequence, growth, nodes)
                sent = _twin(growth)
                sent.propose(self._settings.nodes, LEVELS, sampled=False)
                end, count = _end(sent, follow)
                accepted[level].append(count)
                for heads, number in self._heads.items():
                    by = self._ahead(sequence, _twin(sent), end, follow[count], number)
                    run_by[heads][level].append(by)
        return Text(
            tuple(map(tuple, accepted)), {heads: tuple(map(tuple, rows)) for heads, rows in run_by.items()}
        )

    def _begun(self, sequence: Sequence) -> Growth:
        growth = Growth(sequence.tokens[-1], self._settings.room, sequence.ends)
        _, logits = self._draft.read([sequence])
        sequence.cached = len(sequence.tokens)
        growth.branch([0], *likeliest(logits))
        return growth

    def _run(self, sequence: Sequence, growth: Growth, nodes: list[int]) -> None:
        if nodes:
            start = len(growth.run)
            logits = self._draft.grow(growth.levels_of(sequence, nodes))
            growth.branch(growth.run[start:], *likeliest(logits))

    def _ahead(self, sequence: Sequence, growth: Growth, end: int, bonus: int, heads: int) -> int:
        """Number of the pass that runs `bonus` after `end`; 0: none of AHEAD passes."""
        for by in range(1, AHEAD + 1):
            nodes = growth.next_ahead(self._settings.beams, heads, sequence.depth_left)
            if not nodes:
                return 0
            self._run(sequence, growth, nodes)
            child = growth.child(end, bonus)
            if child is not None and growth.places[child] >= 0:
                return by
        return 0


def _twin(growth: Growth) -> Growth:
    """A copy of `growth` that grows independently; a deep copy takes thirty times as long."""
    twin = copy(growth)
    for name, value in vars(growth).items():
        if isinstance(value, list | np.ndarray):
            setattr(twin, name, value.copy())
    return twin


def _end(growth: Growth, follow: list[int]) -> tuple[int, int]:
    """The node at which the text's path through the sent tree ends, and the length of the path."""
    assert growth.sent is not None
    node, count = 0, 0
    while (child := growth.child(node, follow[count])) is not None and child in growth.sent:
        node, count = child, count + 1
    return node, count
