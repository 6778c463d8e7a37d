"""Does `ab` err as rarely as it says? Simulated comparisons with known truth, judged by the real code.

    python benchmarks/ab_coverage.py [--trials 2000] [--only visits,other,periodic,power] [--json FILE]

Each trial takes its plan from visits.py, draws what the visits would have measured, and looks at it after
every stage until the verdict ends it. The intervals are those of specops.stats, computed for all trials of
a world at once. That they are the ones of verdict.py and speedups.py is checked first, on a few trials.

What is drawn: prompts of one to three traffic classes with lognormal lengths; a speed-up of each prompt's
own that grows with its length, under the null too, where classes pay for some prompts what they gain on
others; noise of each request (lognormal, 10%); and for abba-restart an arm that is 2% faster or slower
after each of its starts. Then, world by world:

- `visits`: noise that all requests of a visit share, of 0 to 20%, independent or correlated by 0.5 from one
  visit to the next, at 1 and 8 streams, for 16 to 64 prompts whose lengths scatter by 0.6 or 1.5;
- `other`: requests that stall or have a heavy tail, machines that drift, 24 to 200 prompts;
- `periodic`: one server as both arms, whose speed changes by 25% every 2 s, for requests of many durations;
- `power`: true speed-ups of 1.1, 1.3 and 1.5 under noise of visits of 0 to 20%.

`class`: how often the 95% interval of a class holds the truth, `all` that of all classes together; `none`
where the blocks are too few for an interval. `deploy`: how often some class deploys; where nothing is
gained, an error (2.5% at most), else the power. `width`: half of a class's interval, in per cent of the
speed-up. `used`: the share of prompts sent before it ended. Checks that only take a yes away are left out.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import accumulate, product
from pathlib import Path

import numpy as np
from drawn_requests import (
    LONGER_GAINS,
    NOISE_SD,
    PROMPT_SD,
    STALLED,
    TOKEN_MS,
    TOKENS,
    TTFT_MS,
    answered,
)
from numpy.typing import NDArray
from specops.phases.ab.speedups import pair_up
from specops.phases.ab.verdict import Confidences, of_each, of_look
from specops.phases.ab.visits import Visit, VisitRecord, schedule

from specops import stats
from specops.config.rollout import Design
from specops.load.arrivals import Level
from specops.load.record import CellRecord
from specops.phases.ab.settings import AbSettings

Array = NDArray[np.float64]

ARMS = ("standard", "speculative")
START_SD = 0.02
ROUNDS = 2
PLANS = 5
"""Orders of the visits in each world: the trials are shared among them."""

PERIOD_S, FASTER = 4.0, 1.25
"""Of a server whose speed changes: half of the time it is so many times as fast."""

BETWEEN_S = 0.01
"""From the end of a visit to the beginning of the next."""


@dataclass(frozen=True)
class World:
    design: Design = "interleaved"
    streams: int = 1
    prompts: int = 64
    length_sd: float = 0.6
    visit_sd: float = 0.0
    correlation: float = 0.0
    gain: float = 1.0
    noise: str = "calm"
    drift: str = "none"
    scale: float | None = None
    """Of all durations, where the server's speed is periodic; None where it is not."""

    @property
    def classes(self) -> list[str]:
        """As many as have enough prompts for intervals of their own."""
        return sorted(TOKENS)[: max(1, min(3, self.prompts // 16))]


@dataclass(frozen=True)
class Trials:
    """Of one world and one plan: what every request took, [trials, prompts, rounds, arms]."""

    world: World
    plan: list[Visit]
    took: Array
    of_class: NDArray[np.int64]

    @property
    def looks(self) -> int:
        return 1 + self.plan[-1].stage

    def stages(self) -> NDArray[np.int64]:
        return self._places()[0]

    def _places(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Of each prompt, its stage and its block."""
        stages, blocks = (np.zeros(self.world.prompts, dtype=np.int64) for _ in range(2))
        numbers: dict[tuple[int, int], int] = {}
        for visit in self.plan:
            number = numbers.setdefault((visit.stage, visit.block), len(numbers))
            stages[_indices(visit)], blocks[_indices(visit)] = visit.stage, number
        return stages, blocks

    def half(self, chosen: NDArray[np.bool_], level: float) -> tuple[Array, Array]:
        """The logarithm of the ratio over the chosen prompts, and half of its interval; infinite where it has
        none. As `stats.paired_ratio`, with the effect of restarts."""
        trials = len(self.took)
        blocks = self._places()[1]
        if chosen.sum() < stats.MIN_PAIRS or len(set(blocks[chosen])) < 2:
            return np.zeros(trials), np.full(trials, np.inf)
        member = np.equal.outer(blocks[chosen], np.unique(blocks[chosen])).astype(np.float64)
        means = self.took[:, chosen].mean(axis=2)
        log, variance, freedom = stats.log_ratio(means[..., 0] @ member, means[..., 1] @ member)
        known = freedom >= 1
        if self.world.design == "abba-restart":
            added, sure = self._starts
            summed = variance + added
            with np.errstate(divide="ignore", invalid="ignore"):
                together = summed**2 / (variance**2 / freedom + added**2 / sure)
            freedom = np.where(added > 0, np.minimum(freedom, together), freedom)
            variance = summed
        t = np.array([stats.t_quantile(level, max(1.0, one)) for one in freedom.tolist()])
        return log, np.where(known, t * np.sqrt(variance), np.inf)

    @cached_property
    def _starts(self) -> tuple[Array, Array]:
        """Trial by trial, the variance that restarts add and its degrees of freedom; all classes share it."""
        starts = [stats.start_effect(list(self._by_stage(trial))) for trial in range(len(self.took))]
        return (
            np.array([one.variance if one else 0.0 for one in starts]),
            np.array([one.freedom if one else 1.0 for one in starts]),
        )

    def _by_stage(self, trial: int) -> Iterator[tuple[Array, Array]]:
        stages, blocks = self._places()
        for stage in range(self.looks):
            chosen = stages == stage
            member = np.equal.outer(np.unique(blocks[chosen]), blocks[chosen]).astype(np.float64)
            taken = np.einsum("bp,pra->rba", member, self.took[trial, chosen])
            yield taken[:, :, 0], taken[:, :, 1]

    def judged(self) -> tuple[NDArray[np.bool_], Array]:
        """Whether some class deploys, and the share of the prompts used, trial by trial."""
        trials, stages = len(self.took), self.stages()
        deploy, ended = np.zeros(trials, dtype=bool), np.zeros(trials, dtype=bool)
        used = np.ones(trials)
        for done in range(1, self.looks + 1):
            level = of_look(0.95, done, self.looks, among=len(self.world.classes))
            together = of_look(0.95, done, self.looks)
            some, all_decided = np.zeros(trials, dtype=bool), np.ones(trials, dtype=bool)
            for number in [*range(len(self.world.classes)), None]:
                of = np.full(self.world.prompts, True) if number is None else self.of_class == number
                log, half = self.half(of & (stages < done), together if number is None else level)
                pays, slower = log > half, -log > half
                some |= pays & (number is not None)
                all_decided &= pays | slower
            now = ~ended & (all_decided | (done == self.looks))
            deploy |= now & some
            used[now] = (stages < done).mean()
            ended |= now
        return deploy, used


def drawn(world: World, trials: int, seed: list[int]) -> Trials:
    generator = np.random.default_rng(seed)
    classes = world.classes
    of_class = np.arange(world.prompts) % len(classes)
    names = [(f"p{n}", classes[of]) for n, of in enumerate(of_class)]
    # Every look costs abba-restart another start of every arm, so that it has one look by default.
    looks = AbSettings().looks if world.design == "interleaved" else 1
    level = Level(concurrency=world.streams)
    plan = schedule(world.design, ARMS, [level], names, rounds=ROUNDS, looks=looks, seed=seed[-1])
    expected = _expected(world, of_class, trials, generator)
    took = np.zeros((trials, world.prompts, ROUNDS, 2))
    if world.scale is not None:
        _periodic(world, plan, expected * world.scale, took, generator)
        return Trials(world, plan, took, of_class)
    shared = _shared(world, plan, trials, generator)
    for number, visit in enumerate(plan):
        chosen, arm = _indices(visit), ARMS.index(visit.arm)
        factors = _noise(world.noise, (trials, len(chosen)), generator)
        took[:, chosen, visit.round, arm] = expected[:, chosen, arm] * factors * shared[:, number, None]
    return Trials(world, plan, took, of_class)


def _expected(
    world: World, of_class: NDArray[np.int64], trials: int, generator: np.random.Generator
) -> Array:
    """What each prompt takes of each arm in milliseconds, before any noise."""
    length, own = generator.standard_normal((2, trials, world.prompts))
    median = np.array([TOKENS[name] for name in world.classes])[of_class] * TOKEN_MS
    decode = median * np.exp(world.length_sd * length)
    typical = np.array([_typical_gain(world, name) for name in world.classes])[of_class]
    gain = typical * np.exp(LONGER_GAINS * length + PROMPT_SD * own)
    return np.stack([TTFT_MS + decode, TTFT_MS + decode / gain], axis=-1)


def _means(world: World, name: str) -> tuple[float, float]:
    """The expectation over prompts of what each arm takes: the gain is their ratio."""
    before = TTFT_MS + TOKENS[name] * TOKEN_MS * math.exp(world.length_sd**2 / 2)
    return before, before / world.gain


def _typical_gain(world: World, name: str) -> float:
    """In decoding, of a prompt of median length, such that the class gains `world.gain` end to end."""
    after = _means(world, name)[1] - TTFT_MS
    spread = (world.length_sd - LONGER_GAINS) ** 2 + PROMPT_SD**2
    return TOKENS[name] * TOKEN_MS * math.exp(spread / 2) / after


def _noise(kind: str, shape: tuple[int, int], generator: np.random.Generator) -> Array:
    """What latencies are multiplied by, request by request."""
    noise = generator.lognormal(0, NOISE_SD, shape)
    if kind == "stalls":
        noise *= np.where(generator.random(shape) < STALLED, generator.uniform(5, 20, shape), 1)
    if kind == "heavy":
        noise += NOISE_SD * generator.pareto(2.2, shape)
    return noise


def _shared(world: World, plan: list[Visit], trials: int, generator: np.random.Generator) -> Array:
    """What all latencies of a visit are multiplied by, [trials, visits]: noise, drift, and starts."""
    count = len(plan)
    noise = generator.standard_normal((trials, count))
    for visit in range(1, count):
        fresh = math.sqrt(1 - world.correlation**2) * noise[:, visit]
        noise[:, visit] = world.correlation * noise[:, visit - 1] + fresh
    factors = np.exp(world.visit_sd * noise)
    at = np.arange(count) / count
    if world.drift == "linear":
        factors *= 1 + 0.2 * at
    if world.drift == "step":
        factors *= 1 + 0.15 * (at > generator.random((trials, 1)))
    if world.drift == "walk":
        walk = np.cumsum(generator.standard_normal((trials, count)), axis=1) * 0.1 / math.sqrt(count)
        factors *= np.exp(walk)
    if world.design == "abba-restart":
        starts = generator.standard_normal((trials, 1 + plan[-1].period))
        factors *= np.exp(START_SD * starts[:, [visit.period for visit in plan]])
    return factors


def _periodic(
    world: World, plan: list[Visit], expected: Array, took: Array, generator: np.random.Generator
) -> None:
    """One server as both arms, whose speed depends on the time: it has done `work(t)` by then."""

    def work(at: Array) -> Array:
        turns, rest = np.divmod(at, PERIOD_S)
        half = PERIOD_S / 2
        return turns * half * (1 + FASTER) + np.minimum(rest, half) + FASTER * np.maximum(rest - half, 0)

    def when(done: Array) -> Array:
        turns, rest = np.divmod(done, PERIOD_S / 2 * (1 + FASTER))
        half = PERIOD_S / 2
        return turns * PERIOD_S + np.where(rest < half, rest, half + (rest - half) / FASTER)

    clock = generator.uniform(0, PERIOD_S, len(took))
    for visit in plan:
        chosen, arm = _indices(visit), ARMS.index(visit.arm)
        needed = expected[:, chosen, 0] / 1000 * _noise("calm", (len(took), len(chosen)), generator)
        free = np.repeat(clock[:, None], world.streams, axis=1)  # when each stream is
        for number, prompt in enumerate(chosen):
            stream = free.argmin(axis=1)
            begun = free[np.arange(len(took)), stream]
            ended = when(work(begun) + needed[:, number])
            took[:, prompt, visit.round, arm] = 1000 * (ended - begun)
            free[np.arange(len(took)), stream] = ended
        clock = free.max(axis=1) + BETWEEN_S


def _indices(visit: Visit) -> list[int]:
    return [int(name[1:]) for name in visit.prompts]


@dataclass(frozen=True)
class Score:
    coverage: float | None
    together: float | None
    deploy: float
    width: float | None
    used: float
    trials: int


def score(world: World, trials: int, seed: int) -> Score:
    """Over all plans."""
    held: list[Array] = []
    of_all: list[Array] = []
    deploys: list[Array] = []
    widths: list[Array] = []
    used: list[Array] = []
    for plan in range(PLANS):
        found = drawn(world, trials // PLANS, [seed, plan])
        for number, _ in enumerate(world.classes):
            log, half = found.half(found.of_class == number, 0.95)
            known = np.isfinite(half)
            held.append((np.abs(log - math.log(world.gain)) <= half)[known])
            widths.append(half)
        log, half = found.half(np.full(world.prompts, True), 0.95)
        known = np.isfinite(half)
        of_all.append((np.abs(log - math.log(world.gain)) <= half)[known])
        deploy, share = found.judged()
        deploys.append(deploy)
        used.append(share)
    width = float(np.median(np.concatenate(widths)))
    return Score(
        coverage=_share(held),
        together=_share(of_all),
        deploy=float(np.concatenate(deploys).mean()),
        width=width if math.isfinite(width) else None,
        used=float(np.concatenate(used).mean()),
        trials=PLANS * (trials // PLANS),
    )


def _share(held: list[Array]) -> float | None:
    all_of_them = np.concatenate(held)
    return float(all_of_them.mean()) if len(all_of_them) else None


def worlds(kind: str) -> list[World]:
    designs: tuple[Design, ...] = ("interleaved", "abba-restart")
    visits_of = (0.0, 0.03, 0.05, 0.10, 0.20)
    if kind == "visits":
        return [
            World(design, streams, prompts, length_sd, visit_sd, correlation)
            for design, streams, prompts, length_sd, correlation, visit_sd in product(
                designs, (1, 8), (16, 32, 64), (0.6, 1.5), (0.0, 0.5), visits_of
            )
        ]
    if kind == "other":
        found = [
            World(design, noise=noise, drift=drift)
            for design, noise, drift in product(
                designs, ("calm", "stalls", "heavy"), ("none", "linear", "step", "walk")
            )
        ]
        return found + [World(design, prompts=prompts) for design, prompts in product(designs, (24, 200))]
    if kind == "periodic":
        return [
            World(streams=streams, length_sd=length_sd, scale=scale)
            for streams, length_sd, scale in product((1, 8), (0.0, 0.6), (0.02, 0.05, 0.1, 0.2, 0.5, 1.0))
        ]
    return [
        World(streams=streams, visit_sd=visit_sd, gain=gain)
        for streams, gain, visit_sd in product((1, 8), (1.1, 1.3, 1.5), (0.0, 0.02, 0.10, 0.20))
    ]


KINDS = ("visits", "other", "periodic", "power")


def check(seed: int) -> None:
    """That `Trials` makes the intervals and the verdicts that the production code makes; else SystemExit."""
    for design, streams in product(("interleaved", "abba-restart"), (1, 8)):
        world = World(design, streams, visit_sd=0.05, gain=1.2)
        found = drawn(world, 4, [seed, 1])
        for trial in range(4):
            records = list(_records(found, trial))
            settings = AbSettings(design=world.design)
            pairs = pair_up(records, *ARMS, world.design)
            for number, name in enumerate(world.classes):
                interval = pairs.of(name).ratio("e2e", 0.95)
                log, half = (each[trial] for each in found.half(found.of_class == number, 0.95))
                ends = (math.exp(log - half), math.exp(log + half))
                if interval is None or not np.allclose((interval.low, interval.high), ends):
                    raise SystemExit(f"{world}: the interval of {name} is {interval}, here {ends}")
            if found.looks == 1:
                confidences = Confidences.at(settings, pairs.classes, 1, 1, 1)
                verdicts = of_each(records, pairs, *ARMS, confidences, settings)
                if bool(verdicts.deploy) != bool(found.judged()[0][trial]):
                    raise SystemExit(f"{world}: {verdicts.deploy} deploys, here it does not, or the reverse")


def _records(found: Trials, trial: int) -> Iterator[VisitRecord]:
    """What the visits of one trial leave behind, without checking it: that would take most of the time."""
    for at, visit in enumerate(found.plan):
        indices = _indices(visit)
        took_ms = [float(found.took[trial, index, visit.round, ARMS.index(visit.arm)]) for index in indices]
        sent_ms = accumulate(took_ms[:-1], initial=0.0)
        rows = tuple(
            answered(
                name,
                found.world.classes[found.of_class[index]],
                sent_s=sent / 1000,
                ttft_ms=TTFT_MS,
                took_ms=took,
                tokens=None,
            )
            for name, index, sent, took in zip(visit.prompts, indices, sent_ms, took_ms, strict=True)
        )
        level = visit.level
        cell = CellRecord.model_construct(
            concurrency=level.concurrency, rate=level.rate, burstiness=level.burstiness, rows=rows
        )
        yield VisitRecord.model_construct(
            stage=visit.stage,
            block=visit.block,
            round=visit.round,
            order=visit.order,
            period=visit.period,
            arm=visit.arm,
            began=float(at),
            cell=cell,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=2000, help="of each world")
    parser.add_argument("--only", default=",".join(KINDS), help="kinds of worlds, by commas")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    check(options.seed)
    rows = []
    for kind in options.only.split(","):
        print(f"\n{kind}: {options.trials} trials of each world")
        print(f"{'world':72} {'class':>7} {'all':>7} {'deploy':>7} {'width':>7} {'used':>7}")
        for world in worlds(kind):
            found = score(world, options.trials, options.seed)
            figures = (found.coverage, found.together, found.deploy, found.width, found.used)
            print(f"{_named(world):72}", *(f"{_percent(value):>7}" for value in figures), flush=True)
            rows.append({"kind": kind} | asdict(world) | asdict(found))
    if options.json:
        options.json.write_text(json.dumps({"seed": options.seed, "worlds": rows}, indent=1) + "\n")


def _named(world: World) -> str:
    usual = asdict(replace(World(), design=world.design, streams=world.streams, prompts=world.prompts))
    changed = [f"{name} {value}" for name, value in asdict(world).items() if value != usual[name]]
    of = f"{world.design:12} {world.prompts:3} prompts, {Level(concurrency=world.streams)}"
    return ", ".join([of, *changed])


def _percent(value: float | None) -> str:
    return "none" if value is None else f"{value:.1%}"


if __name__ == "__main__":
    main()
