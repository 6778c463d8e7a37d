"""The live effect's statistics on simulated weeks whose truth is known. No server runs; about half an hour.

    python benchmarks/live_effect.py [--weeks 60] [--worlds 300] [--out benchmarks/results/live_effect.json]

False alarms: weeks without an effect, evaluated every minute: the share with a minute that says "slower".
Healthy weeks: the same with a speed-up. Coverage: the share of the intervals of two days, for one look and
for every moment, that have the truth, where the pools' plain means are biased. Detection: a slowdown of 10%
begins; minutes until it is found at 5 requests/s with a holdout of 10%, and requests of each group until it
is found with groups of the same size.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np

from specops.effect.estimate import LATENCIES, Counters, Scores, effects
from specops.effect.simulation import Traffic, simulate
from specops.effect.watch import LOOKBACK_S, START_S, bounds

DAY_S = 86400.0
MINUTE_S = 60.0


def slower_minutes(counters: Counters) -> Iterator[tuple[int, int]]:
    """(minute, requests of the smaller group since the start) of each time at which a start is slower."""
    step, reach = round(START_S / MINUTE_S), round(LOOKBACK_S / MINUTE_S)
    for figure in LATENCIES:
        scores = Scores.of(counters.figures[figure])
        for first in range(0, counters.ends.size, step):
            sums = scores.since(first, first + reach)
            slower = np.flatnonzero(bounds(sums)[0] > 1)
            yield from ((first + int(bin_), int(sums.matched[bin_].min())) for bin_ in slower[:1])


def alarm_share(weeks: int, traffic: Traffic) -> float:
    drawn = (simulate(traffic, np.random.default_rng(seed)).counters for seed in range(weeks))
    return sum(any(slower_minutes(counters)) for counters in drawn) / weeks


def coverage(worlds: int) -> dict[str, float]:
    """Of the time per output token and the end-to-end time."""
    once, always, plain = [], [], []
    for seed in range(worlds):
        rng = np.random.default_rng(10_000 + seed)
        truth = float(rng.uniform(0.6, 1.1))
        drawn = simulate(Traffic(2 * DAY_S, per_s=0.5, ratio=truth), rng)
        plain.append(abs(drawn.plain_ratio / truth - 1))
        for figure in ("tpot", "e2e"):
            effect = effects(drawn.counters)[0].of(figure)
            once.append((effect.once_low or 0) <= truth <= (effect.once_high or 9))
            always.append((effect.low or 0) <= truth <= (effect.high or 9))
    return {
        "one_look": float(np.mean(once)),
        "every_moment": float(np.mean(always)),
        "plain_bias_median": float(np.median(plain)),
        "plain_bias_least": float(np.min(plain)),
    }


def detection(runs: int, traffic: Traffic) -> dict[str, float]:
    """Minutes from the change to the first minute that says "slower", and requests of the smaller group."""
    minutes, requests = [], []
    change = round(traffic.change_s / MINUTE_S)
    for seed in range(runs):
        counters = simulate(traffic, np.random.default_rng(20_000 + seed)).counters
        after = [found for found in slower_minutes(counters) if found[0] >= change]
        first, count = min(after, default=(counters.ends.size, 10**9))
        minutes.append(first - change + 1)
        requests.append(count)
    return {
        "minutes_median": float(np.median(minutes)),
        "minutes_p90": float(np.quantile(minutes, 0.9)),
        "requests_median": float(np.median(requests)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--weeks", type=int, default=60)
    parser.add_argument("--worlds", type=int, default=300)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/live_effect.json"))
    options = parser.parse_args()
    week = Traffic(7 * DAY_S, per_s=0.3)
    change = Traffic(5 * 3600.0, per_s=5.0, loads=(4.0, 5.0), later_ratio=1.1, change_s=2 * 3600.0)
    balanced = Traffic(
        5 * 3600.0, per_s=1.0, holdout=0.5, loads=(4.0, 4.0), later_ratio=1.1, change_s=2 * 3600.0
    )
    result = {
        "weeks": options.weeks,
        "worlds": options.worlds,
        "false_alarm_weeks": alarm_share(options.weeks, week),
        "healthy_weeks_with_alarm": alarm_share(options.weeks, Traffic(7 * DAY_S, per_s=0.3, ratio=0.8)),
        "coverage": coverage(options.worlds),
        "detection_holdout_10": detection(options.weeks, change),
        "detection_equal_groups": detection(options.weeks, balanced),
        "traffic": {"week": asdict(week), "change": asdict(change), "equal_groups": asdict(balanced)},
    }
    options.out.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
