"""The planner's first measurement: a few trees at a few batch sizes, in the steps of a similar engine.

An engine with a short cache decodes random tokens. Their values do not matter: the time of a step depends on
its shapes, and acceptance is not recorded here.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from time import perf_counter

import torch
from torch import Tensor

from specops.engine.draft import Level, MakeGrower
from specops.engine.drafters.auto import Auto
from specops.engine.planner.cost_model import BaseCosts, Curve
from specops.engine.planner.planner import NONE, SETTLING, Planner, StepObservation, StepTrees
from specops.engine.request import Sampling
from specops.engine.sequence import Sequence as Decoded
from specops.engine.step import Engine
from specops.engine.tree import Draw, Topology
from specops.engine.verifiers import best_verifier
from specops.trees import parse_tree

LEAST, LONGER = "chain:1", "chain:3"
BROAD = ("expand:4,1", "expand:8,1")
TREES = (NONE, LEAST, LONGER, *BROAD)

PROMPT, LEAST_PROMPT = 48, 8
"""Number of prompt tokens before the timed steps; fewer for a target with few positions."""

ROUNDS, FEWEST = 3, 1
"""Number of rounds, and the least of them. In each round every tree has its steps, of which the first are
not counted."""

TIMED = 3

ROOM = (SETTLING + TIMED + 1) * (1 + parse_tree(LONGER).depth)
"""Largest number of tokens of one tree's steps, the step that reads the prompt included."""

BUDGET_S = 10.0
"""Time budget in seconds. Half of the remaining budget is for the next batch size; without any left, there
is no further one."""


class _Rehearsal:
    """A planner that gives the tree to be timed, and stores the times."""

    def __init__(self) -> None:
        self.tree = NONE
        self.observed: list[StepObservation] = []

    def turn(self, batch: int, behind: Callable[[], int] | None) -> StepTrees:
        return StepTrees(self.tree)

    def learn(self, observed: StepObservation) -> None:
        self.observed.append(observed)

    def grown(self, topology: Topology, path: Sequence[int]) -> None: ...

    def copied(self, count: int, right: int) -> None: ...


class _Blank:
    """A grower that runs nothing. Without a draft, the time to verify copies is that of any tree."""

    reads_features = False
    caches = ()

    def __init__(self, vocabulary: int) -> None:
        self._vocabulary = vocabulary

    def read(self, sequences: Sequence[Decoded]) -> tuple[list[int], Tensor]:
        ready = [index for index, sequence in enumerate(sequences) if not sequence.reading]
        return ready, torch.zeros(len(ready), self._vocabulary)

    def grow(self, levels: Sequence[Level]) -> Tensor:
        return torch.zeros(sum(len(level.tokens) for level in levels), self._vocabulary)

    def commit(self, sequence: Decoded, places: list[int], features: Tensor | None) -> None: ...

    def move(self, sequence: Decoded, row: int) -> None: ...

    def release(self, sequence: Decoded) -> None: ...


def warm_up(engine: Engine, auto: Auto) -> None:
    """Measure the times of steps with the parts of `engine` and its drafter `auto`, once, for some seconds.

    A target with hardly any positions is not measured: the planner then begins with `ROUGH`.
    """
    if isinstance(auto.planner, Planner) and engine.target.shape.max_positions >= LEAST_PROMPT + ROOM:
        auto.planner.paid.base = _measure(engine, auto)


def _measure(measured: Engine, planned: Auto) -> BaseCosts:
    target, nodes, max_batch = measured.target, planned.nodes, measured.max_batch
    trees = [tree for tree in TREES if parse_tree(tree).nodes <= nodes]
    sizes = dict.fromkeys((1, max_batch, round(max_batch**0.5)))
    length = min(target.shape.max_positions, PROMPT + ROUNDS * len(trees) * ROOM)
    rehearsal, times = _Rehearsal(), defaultdict[tuple[int, str], list[StepObservation]](list)
    blank: MakeGrower = lambda rows, length, nodes: _Blank(target.shape.vocab)  # noqa: E731
    auto = Auto(nodes, Draw.WITHOUT_REPLACEMENT, planned.draft_of or blank, max_batch, length)
    auto.planner = rehearsal
    engine = Engine(
        target,
        auto,
        best_verifier(auto.draws),
        measured.tokenizer,
        frozenset(),
        max_batch=max_batch,
        max_length=length,
        prefill_chunk=PROMPT * max_batch,
    )
    engine.clock = measured.clock
    began = perf_counter()
    for batch in sizes:
        left = BUDGET_S - (perf_counter() - began)
        if times and left < 0:
            break
        for tree, observed in _timed(engine, rehearsal, trees, batch, left / 2):
            times[batch, tree].append(observed)
    return _base(times, trees)


def _timed(
    engine: Engine, rehearsal: _Rehearsal, trees: Sequence[str], batch: int, seconds: float
) -> list[tuple[str, StepObservation]]:
    """Observed steps of every tree in turn, after all sequences have read their prompts; for `seconds` at
    most."""
    generator = random.Random(batch)
    prompt = min(PROMPT, engine.max_length - ROOM)
    once = engine.max_length >= prompt + ROUNDS * len(trees) * ROOM

    def begin() -> list[int]:
        rehearsal.observed.clear()
        rehearsal.tree = trees[-1]  # so that the draft reads the prompts too
        sampling = Sampling(max_tokens=engine.max_length - prompt, ignore_eos=True)
        ids = [
            engine.submit([generator.randrange(engine.target.shape.vocab) for _ in range(prompt)], sampling)
            for _ in range(batch)
        ]
        while engine.waiting or not rehearsal.observed:
            engine.step()
        return ids

    def end(ids: list[int]) -> None:
        for sequence in ids:
            engine.cancel(sequence)
        rehearsal.observed.clear()

    timed_steps: list[tuple[str, StepObservation]] = []
    ids = begin()
    began = perf_counter()
    for number in range(ROUNDS):
        if number >= FEWEST and perf_counter() - began > seconds:
            break
        for tree in trees:
            if not once:  # the sequences would end on the way
                end(ids)
                ids = begin()
            rehearsal.tree = tree
            rehearsal.observed.clear()
            for _ in range(SETTLING + TIMED):
                if engine.running == batch:
                    engine.step()
            timed = [observed for observed in rehearsal.observed[-TIMED:] if observed.batch == batch]
            timed_steps += [(tree, observed) for observed in timed]
    end(ids)
    return timed_steps


def _base(times: dict[tuple[int, str], list[StepObservation]], trees: Sequence[str]) -> BaseCosts:
    sizes = sorted({batch for batch, _ in times})

    def usual(batch: int, tree: str, part: Callable[[StepObservation], float]) -> float:
        ordered = sorted(map(part, times[batch, tree]))
        return ordered[len(ordered) // 4]  # the form does not include what a busy machine adds

    def draft(batch: int, tree: str) -> float:
        return usual(batch, tree, lambda observed: observed.draft)

    level: dict[int, list[float]] = defaultdict(list)
    for batch in sizes:
        further = draft(batch, LONGER) - draft(batch, LEAST) if LONGER in trees else 2 * draft(batch, LEAST)
        level[batch].append(max(0.0, further) / 2)
        for tree in BROAD:
            if tree in trees:
                wide = parse_tree(tree).widths[0]
                level[batch * wide].append(max(0.0, draft(batch, tree) - draft(batch, LEAST)))
    return BaseCosts(
        target={
            batch: Curve.rising(
                {
                    batch * (1 + parse_tree(tree).nodes): [
                        usual(batch, tree, lambda observed: observed.verify)
                    ]
                    for tree in trees
                }
            )
            for batch in sizes
        },
        first=_curve({batch: [draft(batch, LEAST)] for batch in sizes}),
        level=_curve(level),
        rest=_curve({batch: [usual(batch, NONE, lambda observed: observed.rest)] for batch in sizes}),
    )


def _curve(times: dict[int, list[float]]) -> Curve:
    """The curve through the points; constant if there is only one."""
    if len(times) == 1:
        ((count, seconds),) = times.items()
        times = {count: seconds, 2 * count: seconds}
    return Curve.rising(times)
