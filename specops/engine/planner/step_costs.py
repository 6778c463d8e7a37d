"""The cost of a step, measured in the engine's steady state on real prompts.

A forward pass timed in a separate loop does not show the cost in a step. Between two verifications the
draft's weights leave the cache, and after drafting so do some of the target's (LOG.md). So engines with a few
different trees, the probes, decode the same text in turn. Their times give the cost of each part of a step.
The steps of other trees are the sum of their parts:

    the draft's first pass, and one for each further level, by its nodes
    + the target's pass and verification, by the tree's tokens, and what draft passes cost it in lost cache
    + committing, which has to gather where a tree branches

Each part is measured at a short and a long context, and is linear in between, as attention is.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter

from specops.engine.load import Pair
from specops.engine.planner.cost_model import Curve
from specops.engine.request import Sampling
from specops.engine.step import Engine
from specops.errors import UsageError
from specops.hints import with_options
from specops.trees import parse_tree

PLAIN, LEAST = "none", "chain:1"
DEEP, WIDE = "chain:8", "expand:4,1"
"""Trees with equally many nodes. The difference of the target's pass between them is what draft passes
cost it."""

CHAINS = (LEAST, "chain:2", "chain:3", "chain:4", "chain:5", "chain:6", DEEP)
"""Chains whose costs are measured, nearly all lengths: matrix kernels take rows in blocks, so that the
cost of a pass rises in steps."""

BRANCHING = ("expand:2,1", WIDE, "expand:8,1")
DRAFTED = (*CHAINS, *BRANCHING)
COPYING = "ngram:8"
PROBES = (PLAIN, *DRAFTED, COPYING)

MOST_NODES = 16
"""Number of nodes up to which the cost of a tree lies between measured ones."""

STEPS = 12
"""Number of timed steps of each probe on a prompt."""

SETTLED_S, SETTLED_TOKENS = 0.05, 16
"""Seconds and tokens after which a probe's steps take their usual time. After a prompt, or after another
probe's trees, steps of autoregressive decoding take half as long again."""

ROOM = SETTLED_TOKENS + (1 + STEPS) * 9
"""Largest number of tokens that the deepest probe writes on a prompt."""


@dataclass(frozen=True)
class ProbeStep:
    """Times of one step, in seconds."""

    draft: float
    forward: float
    """The target's pass and the verification."""

    commit: float
    """The rest of the step."""

    drafted: int
    """Number of drafted tokens."""

    @property
    def whole(self) -> float:
        return self.draft + self.forward + self.commit

    def over(self, slowness: float) -> ProbeStep:
        return ProbeStep(self.draft / slowness, self.forward / slowness, self.commit / slowness, self.drafted)


@dataclass(frozen=True)
class Reading:
    """Times of one probe over one prompt, in seconds."""

    opening: float
    """Time of the first steps, from the prompt until steps take their usual time. A head reads the prompt
    in the second step."""

    opening_steps: int
    steps: tuple[ProbeStep, ...]

    def mean(self, part: Callable[[ProbeStep], float]) -> float:
        """Mean time of a part over the steps. A median would be that of an idle machine: on a busy one,
        long steps are delayed more often than short ones."""
        return statistics.fmean(map(part, self.steps))

    def over(self, slowness: float) -> Reading:
        steps = tuple(step.over(slowness) for step in self.steps)
        return Reading(self.opening / slowness, self.opening_steps, steps)


Readings = Mapping[str, Reading]
"""The times of each probe over one prompt."""


class Probes:
    """Engines over one pair, one for each probe's tree."""

    def __init__(self, pair: Pair, temperature: float, longest: int) -> None:
        """longest: number of tokens of the longest prompt."""
        room = min(longest + ROOM, pair.positions)
        self._engines = {tree: pair.engine(tree, room) for tree in PROBES}
        self._temperature = temperature

    def read(self, prompt: list[int], seed: int) -> Readings:
        """Let every probe in turn decode after `prompt`, and return their times."""
        sampling = Sampling(temperature=self._temperature, seed=seed, max_tokens=ROOM, ignore_eos=True)
        return {tree: _read(engine, prompt, sampling) for tree, engine in self._engines.items()}


def _read(engine: Engine, prompt: list[int], sampling: Sampling) -> Reading:
    """The times of one probe; without steps if the prompt leaves too little room."""
    sequence = engine.submit(prompt, sampling)
    started, opening_steps, tokens = perf_counter(), 0, 0
    settled = math.inf
    while not engine.idle and tokens < SETTLED_TOKENS and perf_counter() < settled:
        for emission in engine.step():  # none while the prompt is being read
            settled = min(settled, perf_counter() + SETTLED_S)
            opening_steps += 1
            tokens += len(emission.tokens)
    opening = perf_counter() - started
    steps: list[ProbeStep] = []
    while not engine.idle and len(steps) < STEPS:
        steps.append(_timed(engine))
    engine.cancel(sequence)
    return Reading(opening, opening_steps, tuple(steps) if len(steps) == STEPS else ())


def _timed(engine: Engine) -> ProbeStep:
    counters = engine.counters
    draft, forward, drafted = counters.draft_seconds, counters.verify_seconds, counters.draft_tokens
    began = perf_counter()
    engine.step()
    whole = perf_counter() - began
    draft, forward = counters.draft_seconds - draft, counters.verify_seconds - forward
    return ProbeStep(draft, forward, whole - draft - forward, counters.draft_tokens - drafted)


@dataclass(frozen=True)
class Costs:
    """Times of the parts of a step, in seconds, at one length of context."""

    plain: float
    """Time of a whole step of autoregressive decoding."""

    first_pass: float
    """Time of the draft's first pass in a step."""

    level: Curve
    """Time of a further pass of the draft, by its nodes."""

    target: Curve
    """Time of the target's pass and the verification, by the tokens of the tree, root included."""

    crowding: float
    """Time that each further pass of the draft adds to the target's pass."""

    commit: float
    gather: float
    """Additional time of committing a tree that branches."""

    prompt: float
    """Time of reading the prompt, beyond the step's usual time, without a draft."""

    prompt_drafted: float
    """Time of reading the prompt, beyond the step's usual time, with a draft, which also reads it. For a head
    it is the whole first step, which has no draft."""

    def step(self, levels: Sequence[int], batch: int = 1) -> float:
        """Seconds of a step of `batch` sequences, each with `levels` nodes on each level below the root.

        A batch is one packed row of tokens, and costs as much as the same number of tokens of one sequence.
        """
        if not levels:
            return self.plain if batch == 1 else self.target.seconds(batch) + self.commit
        passes = self.first_pass + self.level.seconds(batch) - self.level.seconds(1)
        passes += sum(self.level.seconds(batch * nodes) for nodes in levels[:-1])
        forward = self.target.seconds(batch * (1 + sum(levels))) + self.crowding * (len(levels) - 1)
        return passes + forward + self.commit + (self.gather if max(levels) > 1 else 0.0)

    def towards(self, end: Costs, share: float) -> Costs:
        """Costs between this (share 0) and `end` (share 1)."""

        def mixed(part: Callable[[Costs], float]) -> float:
            return part(self) + share * (part(end) - part(self))

        return Costs(
            plain=mixed(lambda costs: costs.plain),
            first_pass=mixed(lambda costs: costs.first_pass),
            level=self.level.towards(end.level, share),
            target=self.target.towards(end.target, share),
            crowding=mixed(lambda costs: costs.crowding),
            commit=mixed(lambda costs: costs.commit),
            gather=mixed(lambda costs: costs.gather),
            prompt=mixed(lambda costs: costs.prompt),
            prompt_drafted=mixed(lambda costs: costs.prompt_drafted),
        )


def costs_of(rounds: Sequence[Readings], *, opens_bare: bool) -> Costs:
    """The costs of the parts, from the probes' times: means over the steps of a round, medians over the
    rounds.

    A busy machine slows down all probes of a round alike, so a round's times are divided by the slowness of
    the whole round. opens_bare: whether the step that reads a prompt has no draft. Raises UsageError if the
    prompts never left room for a probe's steps.
    """
    rounds = _levelled(rounds)

    def median(tree: str, part: Callable[[ProbeStep], float]) -> float:
        means = [readings[tree].mean(part) for readings in rounds if readings[tree].steps]
        if not means:
            raise UsageError(
                f"could not measure what {tree} costs: no prompt leaves it room for its steps: expected "
                "shorter prompts, or a pair with more positions",
                hint=with_options({"--prompts": "SHORTER_PROMPTS.json"}),
            )
        return statistics.median(means)

    def draft(tree: str) -> float:
        return median(tree, lambda step: step.draft)

    def forward(tree: str) -> float:
        return median(tree, lambda step: step.forward)

    def commit(trees: Sequence[str]) -> float:
        return statistics.median(median(tree, lambda step: step.commit) for tree in trees)

    def opening(tree: str, without: int) -> float:
        step = median(tree, lambda step: step.whole)
        measured = (readings[tree] for readings in rounds)
        over = [reading.opening - (reading.opening_steps - without) * step for reading in measured]
        return max(0.0, statistics.median(over))

    crowding = max(0.0, (forward(DEEP) - forward(WIDE)) / (_passes(DEEP) - _passes(WIDE)))
    level = {1: [(draft(DEEP) - draft(LEAST)) / (_passes(DEEP) - 1)]}
    # The further pass of an expansion runs a level of as many nodes as its first width.
    level |= {parse_tree(tree).widths[0]: [draft(tree) - draft(LEAST)] for tree in BRANCHING}
    target: dict[int, list[float]] = defaultdict(list, {1: [forward(PLAIN)]})
    for tree in DRAFTED:
        target[1 + parse_tree(tree).nodes].append(forward(tree) - crowding * (_passes(tree) - 1))
    return Costs(
        plain=median(PLAIN, lambda step: step.whole),
        first_pass=draft(LEAST),
        level=Curve.rising(level),
        target=Curve.rising(target),
        crowding=crowding,
        commit=commit(CHAINS),
        gather=max(0.0, commit(BRANCHING) - commit(CHAINS)),
        prompt=opening(PLAIN, 0),
        prompt_drafted=statistics.median(opening(tree, 1 if opens_bare else 0) for tree in DRAFTED),
    )


def _levelled(rounds: Sequence[Readings]) -> list[Readings]:
    """The rounds, each divided by its slowness, from the probes that have steps in every round."""
    whole = [tree for tree in PROBES if all(readings[tree].steps for readings in rounds)]
    totals = [sum(readings[tree].mean(lambda step: step.whole) for tree in whole) for readings in rounds]
    if not whole:
        return list(rounds)
    usual = statistics.median(totals)
    return [
        {tree: reading.over(total / usual) for tree, reading in readings.items()}
        for readings, total in zip(rounds, totals, strict=True)
    ]


@dataclass(frozen=True)
class CostsByContext:
    """Costs by length of context, and the cost of copied drafts, whose number changes from step to step."""

    short: int
    """Length of the short context, in tokens."""

    long: int
    at_short: Costs
    at_long: Costs
    copied: Curve | None
    """Time of a whole step by its number of copied tokens; None if there was too little to copy."""

    @property
    def ends(self) -> tuple[tuple[int, Costs], tuple[int, Costs]]:
        return (self.short, self.at_short), (self.long, self.at_long)

    def at_context(self, context: float) -> Costs:
        """Costs at a length of context, in tokens: linear from `short` on, also beyond `long`; below
        `short`, those at `short`."""
        share = (context - self.short) / max(self.long - self.short, 1)
        return self.at_short.towards(self.at_long, max(share, 0.0))


def sheet_of(
    contexts: tuple[int, int], rounds: Sequence[tuple[Readings, Readings]], *, opens_bare: bool
) -> CostsByContext:
    """The costs from `rounds`: the probes' times after a short and after a long prompt. contexts: the
    lengths of both, in tokens."""
    short, long = (costs_of([pair[end] for pair in rounds], opens_bare=opens_bare) for end in (0, 1))
    return CostsByContext(*contexts, short, long, _copied(rounds))


def _copied(rounds: Sequence[tuple[Readings, Readings]]) -> Curve | None:
    """The time of a step by copied tokens, from steps with the most copies and steps without; None if
    either is missing."""
    means_by_count: dict[int, list[float]] = {0: [], parse_tree(COPYING).nodes: []}
    for readings in (readings for pair in rounds for readings in pair):
        for count, means in means_by_count.items():
            times = [step.whole for step in readings[COPYING].steps if step.drafted == count]
            means += [statistics.fmean(times)] if times else []
    if not all(means_by_count.values()):
        return None
    return Curve.rising({count: [statistics.median(means)] for count, means in means_by_count.items()})


def _passes(tree: str) -> int:
    return len(parse_tree(tree).widths)
