"""Does a sweep err as rarely as it says? Simulated sweeps with known truth, judged by the production code.

    python benchmarks/sweep_coverage.py [--trials 200] [--worlds 0,3,5] [--seed 0] [--json FILE]

What is drawn is in drawn_requests.py (prompts of three classes, calm, stalling or heavy-tailed requests,
a machine that does not drift, slows down evenly, by a step, or wanders), over a sweep's jobs. Every rung
begins and ends with the standard and goes through the settings forwards and backwards in turn. Each start
of a server is by chance a little faster or slower than the last: `starts` is the standard deviation, the
noise that the requests of a visit share, and `ar` its correlation from one start to the next.

The choice has half of the prompts: `whole` measures all settings in each of `rungs` rungs, `halving` leaves
the slower half alone after each, and asks other prompts in each. Then `picked_by` picks, and as many rungs of
the confirmation are measured on the other half. `judge` judges.

`yes`: sweeps that recommend something; where nothing gains, an error (2.5% at most). `chosen`: how much the
figure that the setting was chosen by is above its truth, in the mean. `reported`: the same of the figure that
is reported, the confirmation's, over all sweeps that have one (within 3%). `if yes`: the same over those that
recommend. `cover`: how often the reported interval holds the truth. `best`: how often what is recommended is
within 3% of the best. Means are geometric: a ratio that is as often twice the truth as half of it is right.
Behind each mean stands the half of its 95% interval, from the trials alone. The last line has the means over
all worlds.
"""

from __future__ import annotations

import argparse
import json
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate, product
from pathlib import Path

import numpy as np
from drawn_requests import (
    DRIFTS,
    LENGTH_SD,
    LONGER_GAINS,
    NOISES,
    PROMPT_SD,
    TOKEN_MS,
    TOKENS,
    TTFT_MS,
    Tally,
    answered,
    draw_drift,
    draw_noise,
    means,
    typical_gain,
)

from specops.config import Ab
from specops.load.record import CellRecord
from specops.phases.sweep.judging import judge, picked_by
from specops.phases.sweep.plan import (
    ANY_LENGTH,
    Finalists,
    Load,
    Memory,
    Rung,
    Skipped,
    Stage,
    StagePrompts,
    SweptCell,
    confirmation,
    rung,
    spare,
)
from specops.phases.sweep.report import Report
from specops.phases.sweep.speedups import Pairs, Stratum, SweepCells
from specops.serving import Setting
from specops.serving.embedded import EmbeddedPool
from specops.stats import Interval

CELL_S = 10.0
AT = Stratum(1)
LOAD = Load(1, 0.0, ANY_LENGTH)
NEAR = 0.03
AGAIN = 16
WIDE = Ab(failure_margin=0.5, answer_margin=0.5)
"""No request fails here: what is tested is the speed-up."""


@dataclass(frozen=True)
class World:
    plan: str
    """whole or halving."""

    settings: int
    rungs: int
    """Of the choice, and of the confirmation."""

    prompts: int
    gain: float
    """Of the best setting; each of the others gains 0.04 less than the one before, and none less than 1."""

    start_sd: float
    ar: float = 0.0

    def __str__(self) -> str:
        return (
            f"{self.plan:8} {self.settings:8} {self.rungs:5} {self.prompts:7}  {self.gain:4.2f} "
            f"{self.start_sd:6.1%} {self.ar:3.1f}"
        )

    @property
    def truths(self) -> list[float]:
        return [max(self.gain - 0.04 * i, 1.0) for i in range(self.settings)]


WORLDS = [
    *(
        World("whole", 6, 1, 64, 1.0, sd, ar)
        for sd in (0.0, 0.02, 0.1)
        for ar in (0.0, 0.5)[: 2 if sd else 1]
    ),
    *(World("whole", 6, 2, 64, 1.0, sd) for sd in (0.0, 0.03, 0.05, 0.1, 0.2)),
    World("whole", 1, 1, 64, 1.0, 0.02),
    World("whole", 1, 2, 64, 1.0, 0.1, 0.5),
    World("whole", 2, 2, 64, 1.0, 0.02),
    World("whole", 6, 3, 32, 1.0, 0.02),
    World("halving", 6, 3, 64, 1.0, 0.02),
    World("whole", 6, 1, 64, 1.2, 0.02),
    World("whole", 6, 2, 64, 1.2, 0.02),
    World("whole", 6, 2, 64, 1.4, 0.05),
    World("whole", 6, 2, 64, 1.6, 0.1),
    World("halving", 6, 3, 64, 1.4, 0.02),
]


class Drawn:
    """Prompts of a world: what each takes of the standard and of every setting, before any noise."""

    def __init__(self, world: World, generator: np.random.Generator) -> None:
        self.classes = [sorted(TOKENS)[index % len(TOKENS)] for index in range(world.prompts)]
        length, own = generator.standard_normal((2, world.prompts))
        decode = np.array([TOKENS[of] * TOKEN_MS for of in self.classes]) * np.exp(LENGTH_SD * length)
        self.expected = {"standard": TTFT_MS + decode}
        for number, truth in enumerate(world.truths):
            typical = np.array([typical_gain(of, truth) for of in self.classes])
            gain = typical * np.exp(LONGER_GAINS * length + PROMPT_SD * own)
            self.expected[f"k={number + 1}"] = TTFT_MS + decode / gain


class Machine:
    """What measures rungs: its drift, and the luck of each start."""

    def __init__(self, world: World, noise: str, drift: str, generator: np.random.Generator) -> None:
        self.world, self.noise, self.generator = world, noise, generator
        self.drawn = Drawn(world, generator)
        most = 2 * world.rungs * (world.settings + 2)
        self.drifts = draw_drift(drift, most, generator)
        self.cells: list[SweptCell] = []
        self.luck = generator.standard_normal()

    def measure(self, rung: Rung) -> None:
        self._start(rung.standard.setting.name, 0, rung)
        for job in rung.jobs:
            self._start(job.setting.name, job.turn, rung)
        self._start(rung.standard.setting.name, 1, rung)

    def _start(self, name: str, turn: int, rung: Rung) -> None:
        (planned,) = rung.standard.cells
        asked = [int(prompt) for prompt in planned.prompts]
        ar = self.world.ar
        self.luck = ar * self.luck + math.sqrt(1 - ar**2) * self.generator.standard_normal()
        factors = draw_noise(self.noise, len(asked), self.generator) * self.drifts[len(self.cells)]
        factors *= math.exp(self.world.start_sd * self.luck)
        at = rung.standard.rung, turn, len(self.cells)
        self.cells.append(cell(self.drawn, name, at, rung.standard.stage, asked, factors.tolist()))


def cell(
    drawn: Drawn,
    name: str,
    at: tuple[int, int, int],
    stage: Stage,
    asked: Sequence[int],
    factors: Sequence[float],
) -> SweptCell:
    """`at`: rung, turn, and how many cells were before. The requests go out one after the other."""
    number, turn, before = at
    e2e_ms = [
        float(drawn.expected[name][index]) * factor for index, factor in zip(asked, factors, strict=True)
    ]
    sent_ms = accumulate(e2e_ms[:-1], initial=0.0)
    rows = tuple(
        answered(
            str(index),
            drawn.classes[index],
            sent_s=sent / 1000,
            ttft_ms=TTFT_MS * factor,
            took_ms=took,
            tokens=100,
        )
        for index, factor, sent, took in zip(asked, factors, sent_ms, e2e_ms, strict=True)
    )
    record = CellRecord.model_construct(
        concurrency=AT.concurrency,
        rate=None,
        burstiness=1.0,
        repeat=number,
        wall_s=CELL_S,
        tokens=None,
        drafts=None,
        drafts_missing="simulated",
        server_tokens=None,
        client_bound=None,
        rows=rows,
    )
    sampled = [row.model_copy(update={"temperature": 0.7}) for row in rows[:AGAIN]]
    return SweptCell.model_construct(
        rung=number,
        setting=name,
        turn=turn,
        stage=stage,
        machine="here",
        temperature=0.0,
        length=ANY_LENGTH,
        began=CELL_S * before,
        memory=Memory(),
        cell=record,
        again=record.model_copy(update={"rows": tuple(sampled)}),
    )


def decks_of(world: World, generator: np.random.Generator) -> StagePrompts:
    deck = tuple(str(index) for index in generator.permutation(world.prompts))
    if world.settings == 1:
        return StagePrompts({ANY_LENGTH: deck}, {ANY_LENGTH: deck}, fresh=True)
    half = world.prompts // 2
    return StagePrompts({ANY_LENGTH: deck[:half]}, {ANY_LENGTH: deck[half:]}, fresh=True)


def choose(
    world: World, settings: Sequence[Setting], decks: StagePrompts, machine: Machine
) -> tuple[Finalists | None, list[Skipped]]:
    if world.settings == 1:
        return Finalists(settings=(settings[1].name,), streams=(AT.concurrency,)), []
    open_, skipped = [one.name for one in settings[1:]], list[Skipped]()
    deck = decks.choice[ANY_LENGTH]
    for number in range(world.rungs):
        asked = deck[number :: world.rungs] if world.plan == "halving" else deck
        prompts = {LOAD: asked}
        machine.measure(rung(number, settings, {LOAD: open_}, prompts, spare(decks.choice, prompts)))
        if world.plan == "halving" and len(open_) > 2:
            left = _left(SweepCells(machine.cells, settings), open_)
            skipped += [Skipped(name, LOAD, number, "slower") for name in open_ if name not in left]
            open_ = left
    finalists = picked_by(
        settings, [LOAD], machine.cells, [], confidence=0.95, skipped=skipped, fresh=decks.fresh
    )
    return finalists, skipped


def _left(so_far: SweepCells, names: list[str]) -> list[str]:
    found = {name: so_far.pairs(name, AT).ratio("e2e", 0.95) for name in names}
    ranked = sorted(names, key=lambda name: -(one.estimate if (one := found[name]) else 0.0))
    return ranked[: math.ceil(len(names) / 2)]


def trial(
    world: World,
    noise: str,
    drift: str,
    seed: Sequence[int],
    tallies: dict[str, Tally],
    errors: dict[str, list[float]],
) -> None:
    generator = np.random.default_rng(seed)
    pool = EmbeddedPool.model_construct(engine="embedded")
    settings = [Setting("standard", pool, 0)]
    settings += [Setting(f"k={k}", pool, k) for k in range(1, world.settings + 1)]
    truths = dict(zip([setting.name for setting in settings[1:]], world.truths, strict=True))
    machine, decks = Machine(world, noise, drift, generator), decks_of(world, generator)
    finalists, skipped = choose(world, settings, decks, machine)
    if finalists is not None:
        first = 1 + max((one.rung for one in machine.cells), default=-1)
        named = [settings[0], *(one for one in settings if one.name in finalists.settings)]
        count = len(decks.confirmation[ANY_LENGTH]) // world.rungs
        for one in confirmation(first, named, [LOAD], decks, [{LOAD: count}] * world.rungs, {}):
            machine.measure(one)
    judged = judge(
        settings,
        [LOAD],
        machine.cells,
        [],
        confidence=0.95,
        skipped=skipped,
        finalists=finalists,
        margins=WIDE,
    )
    tallies["yes"].add(judged.verdict == "yes")
    if finalists is None:
        return
    report, swept = Report.model_validate(judged.data), SweepCells(machine.cells, settings)
    assert report.confirmation is not None
    name = report.recommended or finalists.settings[0]
    reported = next(one for one in report.confirmation.settings if one.setting == name)
    truth = _of_all(swept.evidence(name, AT), truths[name])
    if reported.speedup is not None:
        errors["reported"].append(math.log(reported.speedup.estimate / truth))
        tallies["cover"].add(_holds(reported.speedup, truth))
        if judged.verdict == "yes":
            errors["if yes"].append(math.log(reported.speedup.estimate / truth))
    if reported.at_choice is not None:
        errors["chosen"].append(math.log(reported.at_choice.estimate / truth))
    if judged.verdict == "yes":
        tallies["best"].add(truths[name] * (1 + NEAR) >= max(world.truths))


def _of_all(pairs: Pairs, truth: float) -> float:
    taken = [means(pair.traffic_class, truth) for pair in pairs.all]
    return sum(before for before, _ in taken) / sum(after for _, after in taken)


def _holds(interval: Interval, truth: float) -> bool:
    return interval.low <= truth <= interval.high


def mean_error(errors: Sequence[float]) -> dict[str, float] | None:
    """The mean of logarithms of ratios as a share, and the half of its 95% interval; None of too few."""
    if len(errors) < 2:
        return None
    return {
        "mean": math.expm1(np.mean(errors)),
        "half": 1.96 * float(np.std(errors, ddof=1)) / math.sqrt(len(errors)),
    }


def show(label: str, shares: Sequence[float | None], found: Sequence[dict[str, float] | None]) -> None:
    cells = ["" if share is None else f"{share:.1%}" for share in shares]
    cells += ["" if one is None else f"{one['mean']:+.1%} ± {100 * one['half']:.1f}" for one in found]
    widths = [9] * len(shares) + [14] * len(found)
    print(label, *(f"{text:>{width}}" for text, width in zip(cells, widths, strict=True)), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=200, help="of each world")
    parser.add_argument("--worlds", help="their numbers, by commas; left out: all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    numbers = [int(part) for part in options.worlds.split(",")] if options.worlds else range(len(WORLDS))
    shares, means_of = ["yes", "cover", "best"], ["chosen", "reported", "if yes"]
    head = "plan     settings rungs prompts  gain starts  ar"
    print(head, *(f"{name:>9}" for name in shares), *(f"{name:>14}" for name in means_of))
    kinds, rows, of_all = list(product(NOISES, DRIFTS)), [], defaultdict[str, list[float]](list)
    for number in numbers:
        world = WORLDS[number]
        tallies: dict[str, Tally] = defaultdict(Tally)
        errors: dict[str, list[float]] = defaultdict(list)
        for index in range(options.trials):
            trial(world, *kinds[index % len(kinds)], (options.seed, number, index), tallies, errors)
        found = {name: tallies[name].share for name in shares}
        ofs = {name: mean_error(errors[name]) for name in means_of}
        show(str(world), list(found.values()), list(ofs.values()))
        rows.append(asdict(world) | {"trials": options.trials} | found | ofs)
        for name in means_of:
            of_all[name] += errors[name]
    show(f"{'all':{len(head)}}", [None] * len(shares), [mean_error(of_all[name]) for name in means_of])
    if options.json:
        options.json.write_text(json.dumps({"seed": options.seed, "worlds": rows}, indent=2))


if __name__ == "__main__":
    main()
