"""What does the judge of a comparison say in worlds of known truth? Whole comparisons, simulated.

    python benchmarks/experiment_worlds.py [--trials 20] [--only NAME,…] [--json FILE]

Each trial is a comparison as `ab` plans it: windows of all kinds, the looks, every claim, every factor, the
error budget. Only the servers are simulated. A request takes what its prompt takes (lognormal, 40%), times
noise of 10% of each request, times what the world adds. `wrong` is a deployment that the truth forbids;
`missed` is one that it allows and that did not come. The interval is that of the speed-up at the lightest
load where the comparison ended, and `covered` says how often it has the truth.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "unit"))

from made_windows import Answer, evidence, plan, windows

from specops.config.rollout import Design
from specops.experiment.decide import LOOKS, Confidences, Judged, judge_challenger, over_all
from specops.experiment.plan import Window
from specops.experiment.records import WindowRecord
from specops.experiment.run import FEWEST_CYCLES
from specops.phases.ab.settings import AbSettings

REQUESTS = 750
PROMPTS = 64
NOISE = 0.1
Make = Callable[[random.Random], Answer]
"""What a world adds to each request, for one trial."""


@dataclass(frozen=True)
class World:
    name: str
    truth: float
    """The speed-up at the lightest load; 1 and below must not be deployed."""

    make: Make = lambda dice: lambda window, prompt, at: {}
    deploy: bool | None = None
    """Whether to deploy is right; None: by the truth."""

    concurrency: tuple[int, ...] = (1,)
    noise: float = NOISE
    design: Design = "interleaved"

    @property
    def right(self) -> bool:
        return self.truth > 1 if self.deploy is None else self.deploy


def lasting(phi: float, sd: float = 0.15) -> Make:
    """Each server has noise of its own that goes over from request to request: AR(1)."""

    def make(dice: random.Random) -> Answer:
        state = {arm: dice.gauss(0, 1) for arm in ("standard", "draft")}

        def answer(window: Window, prompt: str, at: float) -> dict[str, Any]:
            fresh = math.sqrt(1 - phi * phi) * dice.gauss(0, 1)
            state[window.arm] = phi * state[window.arm] + fresh
            return {"slower": math.exp(sd * state[window.arm])}

        return answer

    return make


def of_windows(sd: float) -> Make:
    """Each window has a speed of its own."""

    def make(dice: random.Random) -> Answer:
        drawn: dict[object, float] = {}
        return lambda window, prompt, at: {"slower": drawn.setdefault(window.key, dice.lognormvariate(0, sd))}

    return make


def fault(share: float, **fields: Any) -> Make:
    """A share of the challenger's requests, each by chance."""
    return lambda dice: (
        lambda window, prompt, at: dict(fields) if window.arm == "draft" and dice.random() < share else {}
    )


def over_time(change: Callable[[float], float], arms: Sequence[str] = ("draft",)) -> Make:
    """How many times as long requests take, by the share of them that has been sent."""

    def make(dice: random.Random) -> Answer:
        sent = {arm: itertools.count() for arm in arms}
        return lambda window, prompt, at: (
            {"slower": change(next(sent[window.arm]) / REQUESTS)} if window.arm in sent else {}
        )

    return make


def second(factor: float) -> Make:
    """The standard is slow where it goes second."""
    return lambda dice: (
        lambda window, prompt, at: {
            "slower": factor if window.arm == "standard" and window.order == 1 else 1.0
        }
    )


def waking(factor: float, arms: Sequence[str]) -> Make:
    """The first request of a window takes longer."""

    def make(dice: random.Random) -> Answer:
        seen: set[object] = set()

        def answer(window: Window, prompt: str, at: float) -> dict[str, Any]:
            first = window.key not in seen
            seen.add(window.key)
            return {"slower": factor if first and window.arm in arms else 1.0}

        return answer

    return make


def without_pause(factor: float) -> Make:
    """How many times as long the challenger takes in the windows that follow one another without a pause."""
    cycles = plan(prompts=PROMPTS).cycles_without_pause
    return lambda dice: (
        lambda window, prompt, at: {
            "slower": factor
            if window.arm == "draft" and window.kind == "measured" and window.cycle in cycles
            else 1.0
        }
    )


BOTH = ("standard", "draft")
WORLDS = (
    World("equal", 1.0),
    World("equal, windows 10%", 1.0, of_windows(0.1)),
    *(World(f"equal, AR(1) {phi}", 1.0, lasting(phi)) for phi in (0.5, 0.9, 0.95, 0.98)),
    World("equal at 1 and 8", 1.0, concurrency=(1, 8)),
    World("0.7x", 0.7),
    World("1.05x", 1.05, noise=0.15),
    World("1.1x", 1.1, noise=0.15),
    World("1.1x, windows 3%", 1.1, of_windows(0.03), noise=0.15),
    World("1.3x", 1.3, noise=0.15),
    World("1.3x at 8", 1.3, of_windows(0.03), concurrency=(8,), noise=0.15),
    World("1.3x at 1 and 8", 1.3, of_windows(0.03), concurrency=(1, 8), noise=0.15),
    World("1.5x", 1.5),
    World("1.5x, restarts 3%", 1.5, of_windows(0.03), design="abba-restart"),
    World("1.5x, AR(1) 0.95", 1.5, lasting(0.95)),
    World("2x, both wake", 2.0, waking(3.0, BOTH)),
    World("2x, both slow down", 2.0, over_time(lambda share: 1 + 0.4 * share, BOTH)),
    World("standard wakes", 1.0, waking(6.0, ("standard",))),
    World("standard wakes 2.5x", 1.0, waking(2.5, ("standard",))),
    World("1.6x after pauses alone", 1.6, without_pause(1.6), deploy=False),
    World("1.6x, 1.5x without pauses", 1.6, without_pause(1.6 / 1.5)),
    World("standard slow when second", 1.0, second(1.6)),
    World("2x for the first 30%", 2.0, over_time(lambda share: 1.0 if share < 0.3 else 2.0), deploy=False),
    # A comparison that is decided before the change has not observed it.
    World("1.5x for the first 85%", 1.5, over_time(lambda share: 1.0 if share < 0.85 else 1.6), deploy=False),
    World(
        "1.6x after the first 20%", 1.6, over_time(lambda share: 1.6 if share < 0.2 else 1.0), deploy=False
    ),
    World("standard slows down", 1.0, over_time(lambda share: 1 + 1.5 * share, ("standard",))),
    World("2x, 0.5% fail", 2.0, fault(0.005, error="http_500", detail="down")),  # within the margin of 1%
    World("2x, 2% fail", 2.0, fault(0.02, error="http_500", detail="down"), deploy=False),
    World("2x, 2% hang", 2.0, fault(0.02, e2e_ms=3e4, e2e_with_retries_ms=3e4), deploy=False),
    World("2x, 3% garbage", 2.0, fault(0.03, text="junk and more junk"), deploy=False),
)


@dataclass(frozen=True)
class Outcome:
    word: str
    deployed: int
    """Of the cells of a class at a load."""

    cells: int
    ratio: float | None
    low: float | None
    high: float | None
    requests: int
    """To each arm."""


def judged(records: Sequence[WindowRecord], look: int, design: Design) -> Judged:
    found = evidence(records, settings=AbSettings(design=design))
    return over_all(judge_challenger(found, Confidences.at(0.95, len(found.classes), 1, look, LOOKS)))


def compare(world: World, seed: int) -> Outcome:
    """One comparison: look after look, until it is settled."""
    dice = random.Random(f"{world.name} {seed}")
    sent = plan(concurrency=world.concurrency, prompts=PROMPTS, design=world.design).requests_a_cycle()
    cycles = max(FEWEST_CYCLES, math.ceil(REQUESTS / sent))
    records = windows(
        world.truth,
        cycles=cycles,
        noise=world.noise,
        seed=seed,
        prompts=PROMPTS,
        concurrency=world.concurrency,
        design=world.design,
        answer=world.make(dice),
    )
    seen: list[WindowRecord] = []
    for look, share in enumerate(LOOKS, start=1):
        seen = [record for record in records if record.cycle < math.ceil(share * cycles)]
        found = judged(seen, look, world.design)
        if found.settled:
            break
    speedup = found.together[0].speedup
    cells = [decision for row in found.classes.values() for decision in row]
    return Outcome(
        found.decision.verdict,
        len(found.deploy),
        len(cells),
        *((speedup.estimate, speedup.low, speedup.high) if speedup else (None, None, None)),
        sum(len(record.cell.sent) for record in seen if record.arm == "standard"),
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=20, help="of each world")
    parser.add_argument("--only", default="", help="names of worlds, separated by a vertical bar")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    chosen = options.only.split("|") if options.only else [world.name for world in WORLDS]
    print(
        f"{'world':28} {'yes':>5} {'no':>5} {'open':>5} {'wrong':>6} {'missed':>7} {'covered':>8} "
        f"{'interval':>14} {'requests':>8} {'s':>5}"
    )
    rows = []
    for world in WORLDS:
        if world.name not in chosen:
            continue
        began = time.perf_counter()
        outcomes = [compare(world, seed) for seed in range(options.trials)]
        words = Counter(one.word for one in outcomes)
        yes = words["yes"] / len(outcomes)
        lows, highs = ([getattr(one, end) for one in outcomes if one.low] for end in ("low", "high"))
        covered = sum(low <= world.truth <= high for low, high in zip(lows, highs, strict=True))
        row = {
            "world": world.name,
            "truth": world.truth,
            "right": world.right,
            "wrong": 0.0 if world.right else yes,
            "missed": 1 - yes if world.right else 0.0,
            "covered": covered / max(1, len(lows)),
            "requests": median(one.requests for one in outcomes),
            "outcomes": [asdict(one) for one in outcomes],
        }
        print(
            f"{world.name:28} {yes:5.0%} {words['no'] / len(outcomes):5.0%} "
            f"{words['undecided'] / len(outcomes):5.0%} {row['wrong']:6.1%} {row['missed']:7.1%} "
            f"{row['covered']:8.1%}   [{median(lows):.2f}, {median(highs):.2f}] {row['requests']:8.0f} "
            f"{time.perf_counter() - began:5.0f}",
            flush=True,
        )
        rows.append(row)
    if options.json:
        options.json.write_text(json.dumps({"trials": options.trials, "worlds": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
