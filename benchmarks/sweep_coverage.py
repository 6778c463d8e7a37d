"""Does a sweep err as rarely as it says? Simulated sweeps with known truth, judged by the production code.

    python benchmarks/sweep_coverage.py [--trials 300] [--seed 0] [--json FILE]

What is drawn is what coverage.py draws (prompts of three classes, calm, stalling or heavy-tailed requests, a
machine that does not drift, slows down evenly, by a step, or wanders), over a sweep's jobs: every rung begins
and ends with the standard and goes through the settings forwards and backwards in turn, and each start of a
server is by chance a little faster or slower than the last (`starts`, the standard deviation).

`all`, `class`: how often the plain 95% interval of a setting holds the truth (93-97% asked), over all prompts
and by class. `best`: how often that of the fastest-looking setting does, plain, which is what choosing costs;
`together`: how often the intervals of all settings, as the verdict uses them, hold theirs (95% at least).
`yes`: how often the verdict recommends something; where nothing gains, an error. `width`: the median half
width of the plain interval, of its logarithm.

`halving` leaves the slower half of the settings alone after each rung, by what was measured so far, and asks
other prompts in each rung. `greedy` is the meanest use of a budget: it stops as soon as the fastest-looking
setting's interval excludes 1.
"""

from __future__ import annotations

import argparse
import json
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

import numpy as np
from ab_coverage import (
    DRIFTS,
    LENGTH_SD,
    LONGER_GAINS,
    NOISES,
    PROMPT_SD,
    TOKEN_MS,
    TOKENS,
    TTFT_MS,
    Tally,
    draw_drift,
    draw_noise,
    means,
    typical_gain,
)

from specops.config import EmbeddedPool
from specops.load.record import CellRecord, Row
from specops.phases.ab.speedups import Pairs
from specops.phases.sweep import recommend
from specops.phases.sweep.choice import choose
from specops.phases.sweep.jobs import ANY_LENGTH, Setting
from specops.phases.sweep.records import Memory, SweptCell
from specops.phases.sweep.speedups import Swept, Where
from specops.stats import Interval

CELL_S = 10.0
AT = Where(1)


@dataclass(frozen=True)
class World:
    plan: str
    """whole, halving or greedy."""

    settings: int
    rungs: int
    prompts: int
    gain: float
    """Of the best setting; each of the others gains 0.04 less than the one before, and none less than 1."""

    start_sd: float

    def __str__(self) -> str:
        return (
            f"{self.plan:8} {self.settings:8} {self.rungs:5} {self.prompts:7}  {self.gain:4.2f} "
            f"{self.start_sd:6.1%}"
        )

    @property
    def truths(self) -> list[float]:
        return [max(self.gain - 0.04 * i, 1.0) for i in range(self.settings)]


WORLDS = [
    World("whole", 6, 2, 64, 1.0, 0.0),
    World("whole", 6, 2, 64, 1.0, 0.02),
    World("whole", 2, 2, 64, 1.0, 0.02),
    World("whole", 6, 3, 32, 1.0, 0.02),
    World("whole", 6, 1, 64, 1.0, 0.02),
    World("whole", 6, 2, 64, 1.2, 0.02),
    World("halving", 6, 3, 64, 1.0, 0.02),
    World("greedy", 6, 4, 64, 1.0, 0.02),
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


def cell(
    drawn: Drawn, name: str, rung: int, turn: int, at: int, asked: Sequence[int], factors: Sequence[float]
) -> SweptCell:
    rows = tuple(
        Row.model_construct(
            prompt=str(index),
            traffic_class=drawn.classes[index],
            ttft_ms=TTFT_MS * factor,
            tpot_ms=None,
            tokens=None,
            e2e_ms=float(drawn.expected[name][index]) * factor,
            error=None,
        )
        for index, factor in zip(asked, factors, strict=True)
    )
    return SweptCell.model_construct(
        rung=rung,
        setting=name,
        turn=turn,
        machine="here",
        temperature=0.0,
        length=ANY_LENGTH,
        began=CELL_S * at,
        memory=Memory(),
        cell=CellRecord.model_construct(concurrency=AT.concurrency, repeat=rung, wall_s=CELL_S, rows=rows),
    )


def swept(
    world: World, settings: Sequence[Setting], noise: str, drift: str, generator: np.random.Generator
) -> tuple[list[SweptCell], int]:
    """The cells, and how many looks what was measured depends on."""
    drawn, cells = Drawn(world, generator), list[SweptCell]()
    open_ = [setting.name for setting in settings[1:]]
    drifts = draw_drift(drift, world.rungs * (len(settings) + 1), generator)
    shuffled = generator.permutation(world.prompts)
    for rung in range(world.rungs):
        asked = shuffled[rung :: world.rungs] if world.plan == "halving" else np.arange(world.prompts)
        order = [
            ("standard", 0),
            *((name, 0) for name in (open_[::-1] if rung % 2 else open_)),
            ("standard", 1),
        ]
        for name, turn in order:
            factors = draw_noise(noise, len(asked), generator) * drifts[len(cells)]
            factors *= math.exp(world.start_sd * generator.standard_normal())
            cells.append(cell(drawn, name, rung, turn, len(cells), asked.tolist(), factors.tolist()))
        if world.plan != "whole":
            open_ = _left(world, Swept(cells, settings), open_)
        if not open_:
            break
    return cells, 1 if world.plan == "whole" else 1 + max(cell.rung for cell in cells)


def _left(world: World, so_far: Swept, names: list[str]) -> list[str]:
    found = {name: so_far.pairs(name, AT).ratio("e2e", 0.95) for name in names}
    ranked = sorted(names, key=lambda name: -(found[name].estimate if found[name] else 0))
    if world.plan == "halving":
        return ranked[: math.ceil(len(names) / 2)]
    best = found[ranked[0]]
    return [] if best is not None and best.low > 1 else ranked


def trial(
    world: World, noise: str, drift: str, seed: Sequence[int], tallies: dict[str, Tally]
) -> list[float]:
    generator = np.random.default_rng(seed)
    pool = EmbeddedPool.model_construct(engine="embedded")
    settings = [Setting("standard", pool, 0)]
    settings += [Setting(f"k={k}", pool, k) for k in range(1, world.settings + 1)]
    cells, looks = swept(world, settings, noise, drift, generator)
    found = Swept(cells, settings)
    truths = dict(zip([setting.name for setting in settings[1:]], world.truths, strict=True))
    plain = {name: found.pairs(name, AT).ratio("e2e", 0.95) for name in truths}
    whole = world.plan == "whole"
    for name, truth in truths.items():
        pairs = found.pairs(name, AT)
        if whole:
            holds = _holds(plain[name], _of_all(pairs, truth))
            for question in ("all", f"drift: {drift}", f"noise: {noise}"):
                tallies[question].add(holds)
            for of in TOKENS:
                tallies["class"].add(_holds(pairs.of(of).ratio("e2e", 0.95), truth))
    known = {name: interval for name, interval in plain.items() if interval}
    fastest = max(known, key=lambda name: known[name].estimate)
    tallies["best"].add(_holds(plain[fastest], _of_all(found.pairs(fastest, AT), truths[fastest])))
    each = recommend.of_each(0.95, world.settings, 1, looks)
    tallies["together"].add(
        all(
            _holds(found.pairs(n, AT).ratio("e2e", each), _of_all(found.pairs(n, AT), truth))
            for n, truth in truths.items()
        )
    )
    contest = recommend.contest(found, AT, settings[1:], each)
    of_classes = recommend.of_each(0.95, world.settings, len(TOKENS), looks)
    classes = {
        of: recommend.contest(found, Where(1, traffic_class=of), settings[1:], of_classes) for of in TOKENS
    }
    tallies["yes"].add(choose([contest], classes, {}, "standard").decision.verdict == "yes")
    return [math.log(interval.high / interval.low) / 2 for interval in known.values()]


def _of_all(pairs: Pairs, truth: float) -> float:
    taken = [means(pair.traffic_class, truth) for pair in pairs.all]
    return sum(before for before, _ in taken) / sum(after for _, after in taken)


def _holds(interval: Interval | None, truth: float) -> bool:
    return interval is None or interval.low <= truth <= interval.high


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=300, help="of each world")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    questions = ["all", "class", "best", "together", "yes", "width"]
    head = f"{'plan':8} settings rungs prompts  gain starts"
    print(head, *(f"{name:>9}" for name in questions))
    kinds, rows = list(product(NOISES, DRIFTS)), []
    over_all: dict[str, Tally] = defaultdict(Tally)
    for number, world in enumerate(WORLDS):
        tallies: dict[str, Tally] = defaultdict(Tally)
        widths: list[float] = []
        for index in range(options.trials):
            widths += trial(world, *kinds[index % len(kinds)], (options.seed, number, index), tallies)
        shares = {name: tally.share for name, tally in tallies.items()}
        shares["width"] = round(float(np.median(widths)), 4)
        shown = (f"{shares[name]:9.1%}" if shares.get(name) is not None else f"{'':9}" for name in questions)
        print(world, *shown, flush=True)
        rows.append(asdict(world) | shares)
        for name, tally in tallies.items():
            if world.rungs > 1:
                over_all[name].yes += tally.yes
                over_all[name].asked += tally.asked
    kept = {name: tally.share for name, tally in over_all.items() if ":" in name}
    print("coverage over all of two rungs and more:", ", ".join(f"{n} {s:.1%}" for n, s in kept.items()))
    if options.json:
        options.json.write_text(
            json.dumps({"seed": options.seed, "worlds": rows, "coverage": kept}, indent=2)
        )


if __name__ == "__main__":
    main()
