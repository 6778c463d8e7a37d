"""Does a budgeted sweep find what an exhaustive grid finds, in a quarter of its time?

    python benchmarks/sweep.py [--repeats 4] [--k 1,2,3,4,5,6,8] [--json FILE]

The shipped pair with the shipped head, chains of K, one thread, 1 and 4 streams, 64 prompts.

1. exhaustive: every K at every load, `--repeats` times, a server started for each as a sweep does.
2. budgeted: the same sweep with a quarter of the time that took.
3. truth: at the load that decided, every K's server up at once and asked in turn, over and over, until the
   fastest K is known within 3% of every other (95% intervals of the paired ratio), or each has ten times the
   samples that the exhaustive grid gave it. How many it took is printed.
4. rerun: what the budgeted sweep recommends against the truth's best, by `ab`, interleaved and paired.

To reach: 4 within 3%, and 2 in at most a quarter of 1. It takes about half an hour on a quiet
machine; anything else that runs meanwhile is in the intervals.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from specops.assets import asset
from specops.config import Rollout
from specops.experiment.arms import Arm
from specops.launch.servers import serving
from specops.load.arrivals import Level
from specops.phases.ab.measure import compare
from specops.phases.ab.report import read as read_comparison
from specops.phases.ab.settings import AbSettings
from specops.phases.inputs import NO_ADDRESS_YET
from specops.phases.sweep import plan
from specops.phases.sweep.measure import Local
from specops.phases.sweep.plan import FailedJob, Load, SweptCell
from specops.phases.sweep.spec import SweepSpec, spec_of
from specops.phases.sweep.speedups import Stratum, SweepCells
from specops.phases.sweep.sweep import sweep
from specops.progress import SilentProgress
from specops.results import Result
from specops.serving import Setting
from specops.serving.endpoint import EndpointPool
from specops.stats import Interval

NEAR = 0.03
MORE = 10


def wanted(ks: Sequence[int], repeats: int, streams: Sequence[int]) -> SweepSpec:
    pair = asset("playbooks", "embedded")
    embedded = {"engine": "embedded", "target": pair / "target", "threads": 1}
    drafting = {"draft": pair / "head", "tree": "chain:3"}
    rollout = Rollout.model_validate(
        {
            "rollout": "bench",
            "pools": {"standard": embedded, "speculative": embedded | {"speculation": drafting}},
            "measure": {"endpoint": "completions", "repeats": repeats},
            "sweep": {"k": list(ks), "concurrency": list(streams)},
        }
    )
    return spec_of(rollout, Path())


def swept(asked: SweepSpec, logs: Path, budget_min: float | None = None) -> tuple[Result, float]:
    """A sweep as the command makes it, and its seconds."""
    asked = replace(asked, budget_min=budget_min)
    began = time.monotonic()
    result = sweep(
        asked, Local(asked.requests, asked.prompts.prompts, logs, SilentProgress()), SilentProgress()
    )
    return result, time.monotonic() - began


@contextmanager
def all_up(asked: SweepSpec, logs: Path) -> Iterator[list[Setting]]:
    """Every setting as an endpoint that runs already."""
    with ExitStack() as servers:
        yield [
            replace(one, pool=EndpointPool(engine="endpoint", base_url=server.base_url, model=server.model))
            for one in asked.settings
            for server in [
                servers.enter_context(
                    serving(
                        one.pool,
                        one.name,
                        model="target",
                        log=logs / f"{one.name}.log",
                        progress=SilentProgress(),
                    )
                )
            ]
        ]


def truth(asked: SweepSpec, load: Load, logs: Path, most: int) -> tuple[str, list[Interval], int]:
    """The fastest setting, how many times as fast as each other it is, and the rungs that took."""
    cells: list[SweptCell] = []

    def keep(record: SweptCell | FailedJob) -> None:
        if isinstance(record, FailedJob):
            raise SystemExit(f"{record.setting} failed: {record.why}")
        cells[:] = [cell for cell in cells if plan.key_of(cell) != plan.key_of(record)]
        cells.append(record)

    where, names = Stratum.of_load(load), [one.name for one in asked.settings[1:]]
    deck = asked.decks()[load.length]
    with all_up(asked, logs) as settings:
        here = Local(asked.requests, asked.prompts.prompts, logs, SilentProgress())
        for number in range(most):
            here.run(plan.rung(number, settings, {load: names}, {load: deck}), keep)
            found = SweepCells(cells, settings)
            known = {name: found.pairs(name, where).ratio("e2e", 0.95) for name in names}
            best = max(names, key=lambda name: known[name].estimate if known[name] else 0)
            over = [found.pairs(best, where, over=name).ratio("e2e", 0.95) for name in names if name != best]
            ratios = [ratio for ratio in over if ratio is not None]
            if number and len(ratios) == len(over) and all(ratio.low > 1 - NEAR for ratio in ratios):
                return best, ratios, number + 1
            told = ", ".join(f"{name} {ratio.estimate:.3f}" for name, ratio in known.items() if ratio)
            print(f"  truth, round {number + 1}: {told}", file=sys.stderr, flush=True)
    return best, ratios, most


def rerun(asked: SweepSpec, names: tuple[str, str], load: Load, logs: Path) -> Interval | None:
    """How many times as fast the second setting is as the first, interleaved and paired by prompt."""
    pools = {one.name: one.pool for one in asked.settings}
    fields: dict[str, Any] = {
        "base_url": NO_ADDRESS_YET,
        "model": "",
        "concurrency": (load.concurrency,),
        "repeats": 4,
    }
    result = compare(
        [Arm(name, pools[name]) for name in names],
        asked.requests.model_copy(update=fields),
        AbSettings(looks=1, mixed_prompts=0, requests=200, min_duration_s=0.0),
        SilentProgress(),
        logs=logs,
    )
    level = read_comparison(result, "the rerun").challengers[names[1]].levels[0]
    assert level.speedups.level == Level(concurrency=load.concurrency)
    return level.speedups.e2e


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=4, help="of the exhaustive grid")
    parser.add_argument("--k", default="1,2,3,4,5,6,8")
    parser.add_argument("--streams", default="1,4")
    parser.add_argument("--most", type=int, default=MORE, help="times the samples of the grid, for the truth")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    ks, streams = ([int(part) for part in text.split(",")] for text in (options.k, options.streams))
    asked = wanted(ks, options.repeats, streams)
    with tempfile.TemporaryDirectory() as folder:
        logs = Path(folder)
        grid, took_s = swept(asked, logs)
        print(f"exhaustive  {took_s:6.0f} s  {_told(grid)}", flush=True)
        quick, quick_s = swept(asked, logs, budget_min=took_s / 4 / 60)
        print(f"budgeted    {quick_s:6.0f} s  {_told(quick)}", flush=True)
        print(f"time        {quick_s / took_s:6.2f} of the exhaustive grid's (to reach: 0.25)", flush=True)
        at = quick.data["decided_at"] or streams[0]
        load = next(load for load in asked.loads if load.concurrency == at)
        best, ratios, rounds = truth(asked, load, logs, options.most * options.repeats)
        near = min((ratio.low for ratio in ratios), default=1.0)
        print(
            f"truth       {best} at {load}, after {rounds} rounds: {rounds / options.repeats:.1f} times the "
            f"grid's samples; at worst {near:.3f} times as fast as another (95%)",
            flush=True,
        )
        chosen = quick.data["recommended"]
        found = {
            "grid_s": took_s,
            "budgeted_s": quick_s,
            "recommended": chosen,
            "best": best,
            "rounds": rounds,
        }
        if chosen is None:
            print("rerun       nothing was recommended")
        elif chosen == best:
            print("rerun       it is the best: 1.00")
        else:
            ratio = rerun(asked, (best, chosen), load, logs)
            found["rerun"] = ratio and vars(ratio)
            shown = f"{ratio.estimate:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]" if ratio else "not known"
            print(f"rerun       {chosen} is {shown} times as fast as {best} (to reach: 0.97)")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def _told(result: Result) -> str:
    return f"{result.verdict}: {result.reason}"


if __name__ == "__main__":
    main()
