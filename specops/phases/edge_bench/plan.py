"""The arms of a comparison, in which order they are visited, and what a visit leaves behind. Pure.

Prompts are dealt into stages, each with the same mix of traffic classes; between two stages the evidence
may be looked at. A stage's prompts are cut, for each level of load, into blocks. In a round every arm gets
the same block. Rounds run forwards and backwards in turn (A B, B A), so that a steady drift falls on all arms
alike. Which way a block begins is drawn by lot, one each way of two successive blocks, so that a machine
whose speed changes periodically cannot stay in step with the order.

A block is the unit of noise that intervals count, so there are at least `FEWEST_BLOCKS` at each level where
the prompts suffice. A block holds at least as many prompts as there are streams; otherwise the load would
not be reached.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, product

from specops.load.arrivals import Level

SMALLEST_STAGE = 4
"""Prompts; a look at fewer would decide nothing."""

USUAL_BLOCK = 4
"""Prompts; with many streams a block is twice their number, so that most of it runs at the full load."""

SMALLEST_BLOCK = 2
"""Prompts, where larger blocks would be too few; with many streams, their number."""

FEWEST_BLOCKS = 8
"""At each level, over all stages: an interval over fewer blocks is too wide to decide anything."""

VisitKey = tuple[int, Level, int, int, str]
"""Stage, level, block, round and arm: what makes it one visit of a schedule and no other."""


@dataclass(frozen=True)
class Visit:
    """One arm is given one block of prompts, at one level of load."""

    stage: int
    level: Level
    block: int  # of the stage, at this level
    round: int
    order: int  # the arm's place in its round: 0 goes first
    period: int  # visits of one period are made without a server starting or ending between them
    arm: str
    prompts: tuple[str, ...]  # ids

    @property
    def key(self) -> VisitKey:
        return self.stage, self.level, self.block, self.round, self.arm


def schedule(
    arms: Sequence[str],
    levels: Sequence[Level],
    prompts: Sequence[tuple[str, str]],
    *,
    rounds: int,
    looks: int,
    seed: int,
) -> list[Visit]:
    """Every visit in the order of execution: stage, level, block, round, arm. `prompts` are (id, traffic
    class)."""
    stages = _stages(prompts, levels, looks, seed)
    return list(_interleaved(arms, levels, stages, rounds, seed))


def _interleaved(
    arms: Sequence[str],
    levels: Sequence[Level],
    stages: Sequence[Sequence[str]],
    rounds: int,
    seed: int,
) -> Iterator[Visit]:
    turns_at = {level: _turns(f"{seed}:{level}") for level in levels}
    for (stage, prompts), level in product(enumerate(stages), levels):
        for block, ids in enumerate(_blocks(prompts, level, len(stages))):
            begun = next(turns_at[level])
            for round_ in range(rounds):
                for order, arm in enumerate(_turn(arms, begun + round_)):
                    yield Visit(stage, level, block, round_, order, 0, arm, ids)


def _turns(seed: str) -> Iterator[int]:
    """0 for a block that begins forwards, 1 for one that begins backwards: one of each, by lot, again and
    again."""
    dealer = random.Random(seed)
    while True:
        first = dealer.randrange(2)
        yield from (first, 1 - first)


def _turn(arms: Sequence[str], number: int) -> Sequence[str]:
    """Forwards and backwards in turn, so that an odd number of rounds favours no arm."""
    return arms[::-1] if number % 2 else arms


def _stages(
    prompts: Sequence[tuple[str, str]], levels: Sequence[Level], looks: int, seed: int
) -> list[tuple[str, ...]]:
    """The prompts dealt class by class, so that each stage has its share of every class, to within one; each
    stage large enough for the heaviest load."""
    of_class: dict[str, list[str]] = defaultdict(list)
    for name, traffic_class in prompts:
        of_class[traffic_class].append(name)
    smallest = max(SMALLEST_STAGE, *(level.concurrency or 1 for level in levels))
    stages: list[list[str]] = [[] for _ in range(max(1, min(looks, len(prompts) // smallest)))]
    dealer = random.Random(seed)
    seats = count()  # continues from class to class, so that the stages too are equal to within one
    for _, names in sorted(of_class.items()):
        dealer.shuffle(names)
        for name in names:
            stages[next(seats) % len(stages)].append(name)
    for stage in stages:
        dealer.shuffle(stage)  # blocks are to mix classes as the stage does
    return [tuple(stage) for stage in stages]


def _blocks(prompts: Sequence[str], level: Level, stages: int) -> list[tuple[str, ...]]:
    """Cut to length; a rest that is shorter joins the block before it. An open loop has no turns to fill: its
    blocks are as long as their number allows."""
    streams = level.concurrency
    usual = len(prompts) if streams is None else max(USUAL_BLOCK, 2 * streams)
    wanted = -(-FEWEST_BLOCKS // stages)
    size = max(min(usual, len(prompts) // wanted), SMALLEST_BLOCK, streams or 0)
    starts = list(range(0, max(1, len(prompts) - size + 1), size))
    return [tuple(prompts[start:end]) for start, end in zip(starts, [*starts[1:], len(prompts)], strict=True)]
