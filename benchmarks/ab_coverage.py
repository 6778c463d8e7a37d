"""Does `ab` err as rarely as it says? Simulated comparisons with known truth, judged by the production code.

    python benchmarks/ab_coverage.py [--trials 1000] [--seed 0] [--json FILE]

Each trial plans its visits (visits.py), draws what they would have measured, and is looked at after every
stage, until the verdict ends it (verdict.py, speedups.py, specops.stats). What is drawn:

- prompts of three traffic classes with lognormal lengths, each with a speed-up of its own that grows with its
  length; under the null too, where classes pay for some prompts what they gain on others;
- one of three noises: calm (lognormal), stalls (one request in 200 takes 5 to 20 times as long), heavy (a
  Pareto tail of index 2.2: hardly a variance);
- one of four drifts that all arms share: none, a fifth slower by the end, a step of 15% at a random time, a
  random walk that ends 10% off;
- for abba-restart, an arm that is 2% faster or slower after each of its starts.

`coverage`: how often the plain 95% interval over all prompts holds the truth, class by class (93-97% asked);
`all`: over all classes together. `stopped`: how often all intervals that the verdict was made of, at the look
that ended the trial, hold theirs (95% at least). `deploy`: how often the verdict was yes; where nothing is
gained, an error (2.5% at most), else the power; drift and parity, which only take a yes away, are left out.
`used`: the prompts asked before it ended.
"""

from __future__ import annotations

import argparse
import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from specops.load.arrivals import Level
from specops.load.record import CellRecord, Row
from specops.phases.ab import verdict
from specops.phases.ab.records import VisitRecord
from specops.phases.ab.settings import AbSettings, Design
from specops.phases.ab.speedups import pair_up
from specops.phases.ab.visits import Visit, schedule
from specops.stats import Interval

ARMS = ("standard", "speculative")
DESIGNS: tuple[Design, ...] = ("interleaved", "abba-restart")
LEVEL = Level(concurrency=1)
TOKENS = {"edit": 120, "long": 400, "short": 30}  # medians, by class
LENGTH_SD, LONGER_GAINS, PROMPT_SD = 0.6, 0.10, 0.15  # of logarithms
TTFT_MS, TOKEN_MS = 50.0, 10.0
NOISES, DRIFTS = ("calm", "stalls", "heavy"), ("none", "linear", "step", "walk")
NOISE_SD, STALLED, START_SD = 0.1, 0.005, 0.02
VISIT_S = 5.0

Truth = Mapping[str, float]
"""By class: the standard's expected latency over the challenger's."""

NOTHING = dict.fromkeys(TOKENS, 1.0)
MIXED = {"edit": 2.0, "long": 1.3, "short": 1.0}


@dataclass(frozen=True)
class World:
    """Trials that differ in nothing but chance, noise and drift."""

    design: Design
    prompts: int
    truth: Truth
    trials: int

    def __str__(self) -> str:
        gains = sorted(set(self.truth.values()))
        return f"{self.design:12} {self.prompts:7}  {'/'.join(f'{gain:g}' for gain in gains):9}"


def worlds(trials: int) -> list[World]:
    """The nulls take `trials`, what is no promise of `ab` takes fewer; each at least one of every kind."""
    fewer = max(len(NOISES) * len(DRIFTS), round(0.15 * trials))
    return [
        World(design, prompts, truth, share)
        for design in DESIGNS
        for prompts, truth, share in (
            (64, NOTHING, trials),
            (24, NOTHING, fewer),
            (200, NOTHING, fewer),
            (64, dict.fromkeys(TOKENS, 1.1), fewer),
            (64, dict.fromkeys(TOKENS, 1.3), fewer),
            (64, MIXED, fewer),
        )
    ]


@dataclass
class Tally:
    """Of yes and no answers to one question."""

    yes: int = 0
    asked: int = 0

    def add(self, answer: bool) -> None:
        self.yes += answer
        self.asked += 1

    @property
    def share(self) -> float | None:
        return round(self.yes / self.asked, 4) if self.asked else None


@dataclass
class Score:
    used: list[float] = field(default_factory=list)
    tallies: dict[str, Tally] = field(default_factory=lambda: defaultdict(Tally))


@dataclass(frozen=True)
class Drawn:
    """One prompt: what it takes of each arm, in milliseconds, before any noise."""

    name: str
    traffic_class: str
    expected: Mapping[str, float]


def draw_prompts(world: World, generator: np.random.Generator) -> list[Drawn]:
    found = []
    for index in range(world.prompts):
        of = sorted(TOKENS)[index % len(TOKENS)]
        length, own = generator.standard_normal(2)
        decode = TOKENS[of] * TOKEN_MS * math.exp(LENGTH_SD * length)
        gain = typical_gain(of, world.truth[of]) * math.exp(LONGER_GAINS * length + PROMPT_SD * own)
        expected = {"standard": TTFT_MS + decode, "speculative": TTFT_MS + decode / gain}
        found.append(Drawn(f"{of}-{index}", of, expected))
    return found


def means(of: str, truth: float) -> tuple[float, float]:
    """The expectation over prompts of what each arm takes: `truth` is their ratio."""
    before = TTFT_MS + TOKENS[of] * TOKEN_MS * math.exp(LENGTH_SD**2 / 2)
    return before, before / truth


def typical_gain(of: str, truth: float) -> float:
    """In decoding, of a prompt of median length, such that the class gains `truth` end to end."""
    after = means(of, truth)[1] - TTFT_MS
    spread = (LENGTH_SD - LONGER_GAINS) ** 2 + PROMPT_SD**2
    return TOKENS[of] * TOKEN_MS * math.exp(spread / 2) / after


def draw_noise(kind: str, count: int, generator: np.random.Generator) -> NDArray[np.float64]:
    """What latencies are multiplied by, request by request."""
    noise = generator.lognormal(0, NOISE_SD, count)
    if kind == "stalls":
        noise *= np.where(generator.random(count) < STALLED, generator.uniform(5, 20, count), 1)
    if kind == "heavy":
        noise += NOISE_SD * generator.pareto(2.2, count)
    return noise


def draw_drift(kind: str, count: int, generator: np.random.Generator) -> NDArray[np.float64]:
    """What latencies are multiplied by, visit by visit."""
    at = np.arange(count) / count
    if kind == "linear":
        return 1 + 0.2 * at
    if kind == "step":
        return 1 + 0.15 * (at > generator.random())
    walk = np.cumsum(generator.standard_normal(count)) * 0.1 / math.sqrt(count)
    return np.exp(walk) if kind == "walk" else np.ones(count)


def measure(
    prompts: Sequence[Drawn], plan: Sequence[Visit], noise: str, drift: str, generator: np.random.Generator
) -> list[VisitRecord]:
    """What the visits leave behind, without checking it: that would take most of the time."""
    by_name = {prompt.name: prompt for prompt in prompts}
    drifts = draw_drift(drift, len(plan), generator)
    restarts = {visit.period for visit in plan} != {0}
    starts = np.exp((START_SD if restarts else 0) * generator.standard_normal(1 + plan[-1].period))
    found = []
    for index, visit in enumerate(plan):
        factors = draw_noise(noise, len(visit.prompts), generator) * drifts[index] * starts[visit.period]
        rows = tuple(
            Row.model_construct(
                prompt=name,
                traffic_class=by_name[name].traffic_class,
                ttft_ms=TTFT_MS * factor,
                tpot_ms=None,
                e2e_ms=by_name[name].expected[visit.arm] * factor,
                error=None,
            )
            for name, factor in zip(visit.prompts, factors.tolist(), strict=True)
        )
        cell = CellRecord.model_construct(
            concurrency=LEVEL.concurrency, rate=LEVEL.rate, burstiness=LEVEL.burstiness, rows=rows
        )
        found.append(
            VisitRecord.model_construct(
                stage=visit.stage,
                block=visit.block,
                round=visit.round,
                order=visit.order,
                period=visit.period,
                arm=visit.arm,
                began=VISIT_S * index,
                cell=cell,
            )
        )
    return found


def trial(world: World, noise: str, drift: str, seed: Sequence[int], score: Score) -> None:
    """One comparison as `ab` makes it, and what its intervals and its verdict are worth."""
    generator, settings = np.random.default_rng(seed), AbSettings(design=world.design)
    prompts = draw_prompts(world, generator)
    names = [(prompt.name, prompt.traffic_class) for prompt in prompts]
    plan = schedule(world.design, ARMS, [LEVEL], names, rounds=2, looks=settings.looks, seed=seed[-1])
    visits = measure(prompts, plan, noise, drift, generator)
    _cover(world, visits, noise, drift, score)

    looks = 1 + plan[-1].stage
    stages = (done for done in range(1, looks) if _look(visits, settings, done, looks))
    done = next(stages, looks)
    asked = [visit for visit in visits if visit.stage < done]
    pairs = pair_up(asked, *ARMS, world.design)
    confidence = verdict.Confidences.at(settings, pairs.classes, 1, done, looks).of_classes
    classes = verdict.by_class(pairs, LEVEL, confidence, settings)
    intervals = {name: pairs.of(name).ratio("e2e", confidence) for name in classes}
    score.tallies["deploy"].add(bool(verdict.deployed(classes)))
    score.tallies["stopped"].add(all(_holds(intervals[name], world.truth[name]) for name in classes))
    score.used.append(len(pairs.all) / world.prompts)


def _look(visits: Sequence[VisitRecord], settings: AbSettings, done: int, looks: int) -> bool:
    return verdict.look([v for v in visits if v.stage < done], ARMS, settings, done, looks).decided


def _cover(world: World, visits: Sequence[VisitRecord], noise: str, drift: str, score: Score) -> None:
    pairs = pair_up(visits, *ARMS, world.design)
    for name, truth in world.truth.items():
        interval = pairs.of(name).ratio("e2e", 0.95)
        for question in ("coverage", noise, f"drift: {drift}") if interval else ():
            score.tallies[question].add(_holds(interval, truth))
    taken = [means(pair.traffic_class, world.truth[pair.traffic_class]) for pair in pairs.all]
    truth = sum(before for before, _ in taken) / sum(after for _, after in taken)
    score.tallies["all"].add(_holds(pairs.ratio("e2e", 0.95), truth))


def _holds(interval: Interval | None, truth: float) -> bool:
    return interval is None or interval.low <= truth <= interval.high


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--trials", type=int, default=1000, help="of each null at 64 prompts; others take fewer"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    kinds = list(product(NOISES, DRIFTS))
    questions = ["coverage", "all", "stopped", "deploy", "used"]
    print(f"{'design':12} {'prompts':>7}  {'gain':9} {'trials':>6}", *(f"{name:>9}" for name in questions))
    rows = []
    over_all: dict[str, Tally] = defaultdict(Tally)
    for number, world in enumerate(worlds(options.trials)):
        score = Score()
        for index in range(world.trials):
            trial(world, *kinds[index % len(kinds)], (options.seed, number, index), score)
        shares = {name: tally.share for name, tally in score.tallies.items()}
        shares["used"] = round(float(np.mean(score.used)), 4)
        print(f"{world} {world.trials:6}", *(f"{shares[name]:9.1%}" for name in questions), flush=True)
        rows.append(asdict(world) | shares)
        for name, tally in score.tallies.items():
            over_all[name].yes += tally.yes
            over_all[name].asked += tally.asked
    shares = {name: over_all[name].share for name in (*NOISES, *(f"drift: {name}" for name in DRIFTS))}
    print("coverage of all:", ", ".join(f"{name} {share:.1%}" for name, share in shares.items()))
    if options.json:
        found = {"seed": options.seed, "worlds": rows, "coverage": shares}
        options.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
