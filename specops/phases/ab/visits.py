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
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, product

from pydantic import BaseModel, Field, ValidationError

from specops.config import Ab, Pool
from specops.config.rollout import Design
from specops.errors import UsageError
from specops.hints import with_value
from specops.load.arrivals import Level
from specops.load.record import CellRecord
from specops.load.settings import checked_base_url
from specops.load.workload import StoredProvenance
from specops.phases.measurement import checked
from specops.results import Result
from specops.section import Frozen
from specops.serving import ENGINES, pool_at

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
    design: Design,
    arms: Sequence[str],
    levels: Sequence[Level],
    prompts: Sequence[tuple[str, str]],
    *,
    rounds: int,
    looks: int,
    seed: int,
) -> list[Visit]:
    """Every visit in the order of execution; `prompts` are (id, traffic class).

    interleaved: stage, level, block, round, arm; arms take turns block by block, within one period.
    abba-restart: stage, round, arm, level, block; each turn of an arm is a period, A B B A.
    """
    stages = _stages(prompts, levels, looks, seed)
    if design == "interleaved":
        return list(_interleaved(arms, levels, stages, rounds, seed))
    return list(_restarting(arms, levels, stages, rounds))


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


def _restarting(
    arms: Sequence[str], levels: Sequence[Level], stages: Sequence[Sequence[str]], rounds: int
) -> Iterator[Visit]:
    periods = count()
    for (stage, prompts), round_ in product(enumerate(stages), range(rounds)):
        for order, arm in enumerate(_turn(arms, stage + round_)):
            period = next(periods)
            for level in levels:
                for block, ids in enumerate(_blocks(prompts, level, len(stages))):
                    yield Visit(stage, level, block, round_, order, period, arm, ids)


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


class VisitRecord(Frozen):
    """A visit (visits.py has the names) and what was measured; pairs are visits equal but for their arm."""

    stage: int
    block: int
    round: int
    order: int
    period: int
    arm: str
    began: float
    """Seconds since the epoch."""

    cell: CellRecord
    """The measured cell with the level of load; its `repeat` is the round."""

    @property
    def key(self) -> VisitKey:
        return self.stage, self.cell.level, self.block, self.round, self.arm


def as_last_round(beside: Iterable[VisitRecord], visits: Sequence[VisitRecord]) -> list[VisitRecord]:
    """Return visits `beside` the plan as one more round than `visits` have: their prompts were sent again."""
    last = 1 + max((visit.round for visit in visits), default=-1)
    return [visit.model_copy(update={"round": last}) for visit in beside]


class Margin(Frozen):
    """The margin by which the standard preferred its token at a place where another answer differs from its
    own."""

    prompt: str
    character: int
    margin: float | None
    """Margin between the log-probabilities of its two likeliest tokens, in nats; None where it did not report
    them."""

    @property
    def place(self) -> tuple[str, int]:
        return self.prompt, self.character


class Measurements(BaseModel):
    """The part of `data` in ab.json from which another run of the same comparison resumes."""

    visits: list[VisitRecord]
    mixed: list[VisitRecord]
    """One for each arm and round: the greedy requests that were sent among sampled ones (evidence.py)."""

    margins: list[Margin]
    greedy: list[VisitRecord] = []
    """Requests at temperature 0 beside a measurement at a higher one, for each arm, load and round."""

    sustained: list[VisitRecord] = []
    """One visit of each arm without a pause, several times as long as those that are compared."""


class LookCounts(BaseModel):
    """The number of looks at the evidence, done and planned."""

    done: int
    planned: int


class AbData(Measurements):
    """`data` of ab.json beside the report (report.py)."""

    prompts: StoredProvenance
    failed: dict[str, str]
    """Arms that failed, and why."""

    looks: LookCounts
    visits_planned: int


def measurements_of(result: Result, name: str) -> Measurements:
    """The visits of a comparison; FileError, which calls it `name`, where they are damaged."""
    return checked(Measurements, result.data, f"{name} is damaged: data")


@dataclass(frozen=True)
class Arm:
    name: str
    pool: Pool


class AbSettings(Ab):
    """Settings of a comparison: the section `ab` of the rollout file, and what only this program sets.

    The requests themselves are in `BaselineSettings`, the same for every arm. The intervals at the looks are
    so wide that all of them hold together with `confidence` (group-sequential repeated confidence intervals,
    Jennison and Turnbull 1989; Lan and DeMets 1983 with O'Brien and Fleming's spending). Intervals of traffic
    classes and of several challengers share the error.

    Designs: `interleaved`, where every arm is up and they take turns, block of prompts by block of prompts;
    `abba-restart`, where arms that share a device are started in turn, A B B A, and only one is ever up.
    """

    ttft_veto_ratio: float = Field(default=1.2, gt=1)
    ttft_veto_ms: float = Field(default=50.0, ge=0)
    """A class stays off speculation where its TTFT surely grows by more than the ratio, and by at least so
    many milliseconds: a user does not notice a fifth of very little."""

    mixed_temperature: float = Field(default=0.7, gt=0)
    """Temperature of the sampled requests, two for each of `mixed_prompts` greedy ones."""

    same_server: bool = False
    """An A/A: all arms are one server, so every difference is noise. The verdict is never deploy."""


EXAMPLES = {
    "http": "http://127.0.0.1:8000/v1",
    "embedded": "embedded:ngram:8",
    "command": "command:vllm serve MODEL --port {port}",
}
"""An arm's SPEC, by how it begins."""


def parse_arms(texts: Sequence[str]) -> list[Arm]:
    """The arms, the standard first. Raises UsageError for a wrong one, two of one name, or fewer than two."""
    arms = [parse_arm(text) for text in texts]
    names = [arm.name for arm in arms]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(
            f"two arms are called {twice}: expected a name of its own for each", hint="specops ab --help"
        )
    if len(arms) < 2:
        raise UsageError(
            f"a comparison needs two arms, not {len(arms)}: expected --arm twice, the standard first",
            hint="specops ab --arm a=embedded:none --arm b=embedded:ngram:8",
        )
    return arms


def parse_arm(text: str) -> Arm:
    """The arm that `text` describes. The model of an endpoint is empty where none is named."""
    name, separator, spec = text.partition("=")
    kind = spec.partition(":")[0].removesuffix("s")
    hint = with_value(text, f"{name or 'NAME'}={EXAMPLES.get(kind, EXAMPLES['embedded'])}")
    if not separator or not re.fullmatch(r"[A-Za-z0-9._-]+", name):
        raise UsageError(
            f"invalid arm {text!r}: expected NAME=SPEC, with letters, digits, '.', '_' and '-' in the name",
            hint=with_value(text, f"NAME={EXAMPLES['embedded']}"),
        )
    try:
        return Arm(name, _pool(spec))
    except UsageError as error:
        raise UsageError(error.message, hint=hint) from None
    except ValidationError as error:
        first = error.errors()[0]
        where = next((str(part) for part in reversed(first["loc"])), "")
        advice = first.get("ctx", {}).get("advice")
        problem = ": ".join(filter(None, (where, first["msg"])))
        raise UsageError(
            f"the arm {name} cannot be used: {problem}{f'; {advice}' if advice else ''}", hint=hint
        ) from None


def _pool(spec: str) -> Pool:
    kind, _, rest = spec.partition(":")
    if kind in ("http", "https"):
        address, _, model = spec.partition("#")
        try:
            base_url = checked_base_url(address)
        except ValueError as error:
            raise UsageError(f"{address} is not a usable address: it {error}") from None
        return pool_at(base_url, model)
    engine = ENGINES.get(kind)
    if engine is None or engine.arm is None:
        expected = ", ".join(EXAMPLES.values())
        raise UsageError(
            f"{spec!r} is not a pool that can be served or measured: expected {expected}, or the like"
        )
    return engine.arm(rest)
