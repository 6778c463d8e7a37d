"""The evidence of a comparison so far, what it needs next, and the requests that only a comparison sends.

Beside the visits there are four kinds of requests. Log-probabilities show how sure the standard was where
answers differ. Requests at temperature 0 go beside a measurement at a higher one. Greedy requests are sent
again while sampled ones are in flight: a batch of both is what production has. Speculation may change no
greedy answer, whoever shares its batch. Servers have broken that: answers were right while every request was
greedy, and wrong as soon as one was not. Sustained requests are one long visit of each arm: a server that is
slow after each pause is slow in all visits, and in production it has no pauses.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import groupby

from specops.load.answer import CountTokens
from specops.load.arrivals import Level, Pace
from specops.load.client import Client
from specops.load.record import Cell, CellRecord, Row
from specops.load.request_times import Exchange
from specops.load.runner import run_cell
from specops.load.settings import BaselineSettings
from specops.load.target_server import TargetServer
from specops.load.workload import Prompt
from specops.phases.ab import confounders, parity, verdict
from specops.phases.ab.parity import GREEDY_PROMPTS, MOST_MIXED_ROUNDS, Place, margin_at
from specops.phases.ab.visits import (
    AbSettings,
    Margin,
    Measurements,
    Visit,
    VisitKey,
    VisitRecord,
    as_last_round,
)
from specops.progress import Progress

SUSTAINED_VISITS = 6
"""The length of an arm's sustained requests, in visits. Only their second half counts."""

MIXED_WITH = 3
"""Requests of a mixed batch for each greedy one: itself, and a sampled one on each side."""

FEWEST_SUSTAINED = 24
"""Requests, where there are as many prompts: their second half must suffice for an interval."""


@dataclass
class Evidence:
    plan: Sequence[Visit]
    arms: Sequence[str]
    """The first is the standard."""

    requests: BaselineSettings
    settings: AbSettings
    sent_before: Sequence[str] = ()
    """Prompts that are sent before the first visit, to warm the arms up."""

    visits: dict[VisitKey, VisitRecord] = field(default_factory=dict)
    mixed: dict[tuple[str, int], VisitRecord] = field(default_factory=dict)
    """Greedy requests among sampled ones, by arm and round."""

    greedy: dict[tuple[str, Level, int], VisitRecord] = field(default_factory=dict)
    """Requests at temperature 0 beside a measurement at a higher one, by arm, load and round."""

    sustained: dict[str, VisitRecord] = field(default_factory=dict)
    """The sustained requests, by arm."""

    margins: dict[Place, Margin] = field(default_factory=dict)
    """How sure the standard was where another answer differs from its own."""

    failed: dict[str, str] = field(default_factory=dict)
    """Why an arm failed, by its name."""

    decided: dict[int, bool] = field(default_factory=dict)
    """Whether the look after a stage decided the comparison, by stage."""

    @property
    def standard(self) -> str:
        return self.arms[0]

    @property
    def working(self) -> list[str]:
        return [arm for arm in self.arms if arm not in self.failed]

    @property
    def looks(self) -> int:
        """The number of looks: one after each stage."""
        return 1 + self.plan[-1].stage

    def take_over(self, earlier: Measurements) -> None:
        """Take over what an earlier run of the same plan measured whole.

        Failed requests count: a resumed comparison must not repeat requests until they succeed. Only visits
        to an arm that was stopped are made again where they failed.
        """
        planned = {visit.key: set(visit.prompts) for visit in self.plan}
        stopped = {visit.arm for visit in earlier.visits if visit.cell.aborted}
        bound = self.requests.max_error_share
        for visit in earlier.visits:
            cell = visit.cell
            whole = cell.complete and {row.prompt for row in cell.rows} == planned.get(visit.key)
            if whole and not (visit.arm in stopped and cell.failed > bound * len(cell.rows)):
                self.visits[visit.key] = visit
        self.mixed = {(visit.arm, visit.round): visit for visit in earlier.mixed if visit.cell.failed == 0}
        self.greedy = {(v.arm, v.cell.level, v.round): v for v in earlier.greedy if v.cell.complete}
        self.sustained = {visit.arm: visit for visit in earlier.sustained if visit.cell.complete}
        self.margins = {margin.place: margin for margin in earlier.margins}

    def answered(self, arm: str) -> bool:
        return any(visit.arm == arm for visit in self.visits.values())

    def next_visit(self) -> Visit | None:
        """The first visit that is missing; None when all are there, or the evidence decides."""
        for stage, visits in groupby(self.plan, key=lambda visit: visit.stage):
            if self.standard in self.failed or len(self.working) < 2:
                return None
            for visit in visits:
                if visit.key not in self.visits and visit.arm not in self.failed:
                    return visit
            if self._decides(stage):
                return None
        return None

    def _decides(self, stage: int) -> bool:
        if stage not in self.decided:
            so_far = [visit for visit in self.visits.values() if visit.stage <= stage]
            look = verdict.look(so_far, self.working, self.settings, stage + 1, self.looks, self.sent_before)
            self.decided[stage] = look.decided
        return self.decided[stage]

    def requests_left(self) -> int:
        return sum(len(visit.prompts) for visit in self.plan if visit.key not in self.visits)

    def next_mixed(self) -> tuple[int, list[str]] | None:
        """The next round of greedy requests among sampled ones, and the arms that lack it.

        The first round is for every arm. Another follows, with other prompts, while some answers differ and
        the reason is undecided; there are at most `MOST_MIXED_ROUNDS`. None where no more are needed.
        """
        if not self.settings.mixed_prompts or self.requests.temperature != 0 or self.standard in self.failed:
            return None
        for round_ in range(MOST_MIXED_ROUNDS):
            arms = self.working if round_ == 0 else self._open_mixed()
            lacking = [arm for arm in arms if (arm, round_) not in self.mixed]
            if lacking and (round_ == 0 or self.mixed_prompts(round_)):
                return round_, lacking
        return None

    def _open_mixed(self) -> list[str]:
        """The standard and the challengers whose mixed batches are undecided; none before the standard's
        margins are known where their answers differ."""
        if self.margins_needed():
            return []
        margins = {place: margin.margin for place, margin in self.margins.items()}
        visits, mixed = list(self.visits.values()), list(self.mixed.values())
        found = []
        for challenger in self.working[1:]:
            among = parity.among_sampled(visits, mixed, self.standard, challenger)
            if among and parity.with_margins(among, margins).open(self.settings.confidence):
                found.append(challenger)
        return [self.standard, *found] if found else []

    def mixed_prompts(self, round_: int = 0) -> list[str]:
        """The prompts of a mixed round, the same for every arm: those of the standard's longest answers so
        far, without those of earlier rounds."""
        for visit in self.mixed.values():
            if visit.round == round_:
                return [row.prompt for row in visit.cell.rows]
        earlier = {row.prompt for visit in self.mixed.values() for row in visit.cell.rows}
        answers = (
            row
            for visit in self.visits.values()
            if visit.arm == self.standard and visit.round == 0
            for row in visit.cell.rows
            if row.prompt not in earlier
        )
        return longest(answers, self.settings.mixed_prompts)

    def next_greedy(self, up: Collection[str]) -> tuple[str, Level, int] | None:
        """The next arm, load and round of requests at temperature 0, of the arms that are `up`; None where no
        more are needed. The standard has two rounds, the second as control; challengers have one.

        At temperature 0 the measurement itself has these answers. Where the standard answers none of them,
        there is nothing to compare with.
        """
        if self.requests.temperature == 0 or self.standard in self.failed:
            return None
        others = [(name, 0) for name in self.working[1:]]
        for level in self.requests.levels():
            for name, round_ in [(self.standard, 0), *others, (self.standard, 1)]:
                first = self.greedy.get((self.standard, level, 0))
                useless = first is not None and first.cell.failed == len(first.cell.rows)
                if name in up and (name, level, round_) not in self.greedy and not useless:
                    return name, level, round_
        return None

    def greedy_prompts(self, level: Level) -> list[str]:
        """The first prompts in the order of the plan, in which every class has its share. There are enough of
        them to reach the load."""
        planned = (p for visit in self.plan if visit.level == level for p in visit.prompts)
        return list(dict.fromkeys(planned))[: max(GREEDY_PROMPTS, level.concurrency or 0)]

    def next_sustained(self, up: Collection[str]) -> str | None:
        """The next arm, of those that are `up`, that lacks its sustained requests; None where no more are
        needed. Only a gain needs them, and only where arms take turns."""
        turns = self.settings.design == "interleaved" and not self.settings.same_server
        if not turns or self.standard in self.failed or self.next_visit():
            return None
        paying = [name for name in self.working[1:] if self._pays(name)]
        arms = [self.standard, *paying] if paying else []
        return next((name for name in arms if name in up and name not in self.sustained), None)

    def _pays(self, challenger: str) -> bool:
        """Whether the visits would have the challenger deployed."""
        visits, settings = list(self.visits.values()), self.settings
        pairs = confounders.pairs_of(visits, self.standard, challenger, settings, self.sent_before)
        if not pairs.all:
            return False
        done, challengers = max(1, len(self.decided)), len(self.working) - 1
        confidences = verdict.Confidences.at(settings, pairs.classes, challengers, done, self.looks)
        found = verdict.of_each(visits, pairs, self.standard, challenger, confidences, settings)
        return bool(found.deploy)

    def sustained_prompts(self) -> list[str]:
        """The first prompts of the plan at the lightest load, `SUSTAINED_VISITS` times as many as a visit
        has."""
        visits = [visit for visit in self.plan if visit.level == self.plan[0].level]
        count = max(SUSTAINED_VISITS * max(len(visit.prompts) for visit in visits), FEWEST_SUSTAINED)
        return list(dict.fromkeys(p for visit in visits for p in visit.prompts))[:count]

    def most_beside(self) -> Counter[int]:
        """Return how many requests are sent beside the visits at most, by streams: the sustained ones, mixed
        batches, and requests at temperature 0 beside a higher one. Requests for margins are not counted:
        where answers differ there is one for each kind of difference."""
        found: Counter[int] = Counter()
        arms, mixed = len(self.arms), self.settings.mixed_prompts
        if self.settings.design == "interleaved" and not self.settings.same_server:
            found[self.plan[0].level.concurrency or 1] += arms * len(self.sustained_prompts())
        if self.requests.temperature > 0:
            for level in self.requests.levels():
                found[level.concurrency or 1] += (arms + 1) * len(self.greedy_prompts(level))
        elif mixed:
            found[MIXED_WITH * mixed] += MOST_MIXED_ROUNDS * arms * MIXED_WITH * mixed
        return found

    def margins_needed(self) -> list[Place]:
        """Places where answers differ and the standard's margin is not known yet; none before the last
        visit."""
        if self.standard in self.failed or self.next_visit():
            return []
        visits, mixed = list(self.visits.values()), list(self.mixed.values())
        sent = [*visits, *as_last_round(self.sustained.values(), visits)]
        parities = []
        for challenger in self.working[1:]:
            if self.requests.temperature > 0:
                parities += parity.greedy(list(self.greedy.values()), self.standard, challenger)
            else:
                parities += parity.compare(sent, mixed, self.standard, challenger)
        return [place for place in parity.margins_needed(parities) if place not in self.margins]


async def margins_of(arm: TargetServer, prompt: Prompt, characters: Sequence[int]) -> list[Margin]:
    """Return how sure the arm is of its tokens at these characters of its answer to `prompt`."""
    async with _at(arm, 0.0) as greedy:
        await arm.pace.turn()
        tokens = await greedy.likeliest(prompt)
    return [Margin(prompt=prompt.id, character=at, margin=margin_at(tokens, at)) for at in characters]


async def send_greedy(
    arm: TargetServer, prompts: Sequence[Prompt], level: Level, round_: int, progress: Progress
) -> CellRecord:
    """Send each prompt once at temperature 0, at the load of the measurement."""
    async with _at(arm, 0.0) as greedy:
        return await _send(greedy, arm, prompts, level, round_, progress)


async def send_sustained(
    arm: TargetServer, prompts: Sequence[Prompt], level: Level, progress: Progress
) -> CellRecord:
    """Send each prompt once, without a pause."""
    return await _send(arm.client, arm, prompts, level, 0, progress)


async def _send(
    client: Client,
    arm: TargetServer,
    prompts: Sequence[Prompt],
    level: Level,
    round_: int,
    progress: Progress,
) -> CellRecord:
    cell = await run_cell(
        client,
        prompts,
        level,
        round_,
        seed=arm.settings.seed,
        pace=arm.pace,
        progress=progress,
        count_tokens=arm.count_tokens,
    )
    return CellRecord.of(cell, arm.settings.slo)


async def send_mixed(arm: TargetServer, prompts: Sequence[Prompt], temperature: float) -> CellRecord:
    """The greedy answers of one mixed batch: see `_send_mixed`."""
    async with _at(arm, temperature) as sampled:
        cell = await _send_mixed(arm.client, sampled, prompts, arm.pace, arm.count_tokens)
    return CellRecord.of(cell, arm.settings.slo)


@asynccontextmanager
async def _at(arm: TargetServer, temperature: float) -> AsyncIterator[Client]:
    """A second client of the arm's server, which sends its requests at `temperature`."""
    seed = arm.settings.seed if temperature > 0 else None
    changed = replace(arm.client.decoding, temperature=temperature, seed=seed)
    async with Client(arm.settings.target(), changed) as client:
        client.adopt(arm.client)
        yield client


def longest(rows: Iterable[Row], count: int) -> list[str]:
    """The prompts of the `count` longest answers; a short answer hardly shares a batch."""
    tokens = {row.prompt: row.tokens or len(row.text) for row in rows}
    return sorted(tokens, key=lambda prompt: (-tokens[prompt], prompt))[:count]


async def _send_mixed(
    greedy: Client, sampled: Client, prompts: Sequence[Prompt], pace: Pace, count_tokens: CountTokens | None
) -> Cell:
    """Send every prompt greedily between two sampled requests, all at once, so that they share a batch. The
    cell holds the greedy requests alone."""
    tasks: list[asyncio.Task[Exchange]] = []
    async with asyncio.TaskGroup() as group:
        for prompt in prompts:
            group.create_task(sampled.send(prompt, pace))
            tasks.append(group.create_task(greedy.send(prompt, pace)))
            group.create_task(sampled.send(prompt, pace))
    observations = tuple(task.result().observe(count_tokens) for task in tasks)
    return Cell(Level(concurrency=3 * len(prompts)), 0, observations, complete=True)
