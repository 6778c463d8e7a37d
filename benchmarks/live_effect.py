"""The live effect's statistics on simulated weeks whose truth is known. No server runs; about half an hour.

    python benchmarks/live_effect.py [--weeks 2000] [--healthy 10000] [--out FILE]

False alarms: weeks without an effect, evaluated every minute: the share with a minute that says "slower".
Healthy weeks: the same with a speed-up, from 5% to twice as fast. Coverage: the share of the intervals of two
days, for one look and for every moment, that have the truth, where the pools' plain means are biased.
Detection: a slowdown of 10% or 25% begins; minutes until it is found at 5 requests/s with a holdout of 10%,
and requests of each group until it is found with groups of the same size. Windows: the same for random
windows of 5 minutes, on pools that share their hardware.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from specops.effect.estimate import LATENCIES, Counters, Figure, Scores, effects
from specops.effect.simulation import Traffic, simulate
from specops.effect.watch import PER_START, START_S, WEEK_S, bounds, lookback_s

DAY_S = 86400.0
HOUR_S = 3600.0
MINUTE_S = 60.0
SLABS = 2
"""A slope is fitted to so many times what the guard looks back on: once a slab, not once a minute."""

LEAST_ERRORS = math.sqrt(-2 * math.log(PER_START))
"""Standard errors to a side that an interval for every moment has at least."""

NOT_BY_BIN = ("noise", "by_window")


def slower_bins(counters: Counters) -> Iterator[tuple[int, int]]:
    """(bin, requests of the smaller group since the start) of the first bin at which a start is slower."""
    reach = round(lookback_s(counters.bin_s) / counters.bin_s)
    step = max(round(START_S / counters.bin_s), 1)
    for figure in LATENCIES:
        for first in range(0, counters.ends.size, reach):
            yield from _slower(counters, figure, first, reach, step)


def _slower(
    counters: Counters, figure: Figure, first: int, reach: int, step: int
) -> Iterator[tuple[int, int]]:
    """Of the starts in the `reach` bins from `first` on."""
    rows = slice(first, first + SLABS * reach)
    moments = counters.figures[figure].part(rows, slice(None))
    part = replace(counters, ends=counters.ends[rows], figures={figure: moments})
    scores = part.scores(figure)
    starts = np.arange(0, min(reach, scores.pairs.size), step)
    starts = starts[_may_be_slower(scores, starts, reach)]
    if not starts.size:
        return
    by_bin = (part.name for part in fields(scores) if part.name not in NOT_BY_BIN)
    running = {name: _running(getattr(scores, name), starts, reach) for name in by_bin}
    sums = replace(scores, **{name: sums.reshape(-1, *sums.shape[2:]) for name, sums in running.items()})
    slower = (bounds(sums)[0] > 1).reshape(-1, reach)
    matched = running["matched"].min(axis=2)
    for row in np.flatnonzero(slower.any(axis=1)):
        at = int(slower[row].argmax())
        end = first + int(starts[row]) + at
        if end < counters.ends.size:  # beyond it is padding
            yield end, int(matched[row, at])


def _may_be_slower(scores: Scores, starts: np.ndarray, reach: int) -> np.ndarray:
    """Whether a start is ever as slow as an interval needs at least, by its requests alone. It is quick."""
    names = ("speculative", "holdout", "within", "freedom", "leverage")
    speculative, holdout, *rest = (_running(getattr(scores, name), starts, reach) for name in names)
    within, freedom, leverage = rest
    variance = (leverage * within / np.maximum(freedom, 1e-12)).sum(axis=2)
    return (speculative - holdout > LEAST_ERRORS * np.sqrt(variance)).any(axis=1)


def _running(values: np.ndarray, starts: np.ndarray, reach: int) -> np.ndarray:
    """The sums from each start on, at each of the `reach` bins after it; empty bins follow the last."""
    padded = np.pad(values, [(0, reach)] + [(0, 0)] * (values.ndim - 1))
    return np.moveaxis(sliding_window_view(padded, reach, axis=0)[starts], -1, 1).cumsum(axis=1)


def alarms(
    weeks: int, traffic: Traffic, gains: tuple[float, float], seed: int, limit_s: float
) -> dict[str, int]:
    """Weeks that were simulated, within `limit_s`, and those with a minute that says slower."""
    began, done, wrong = time.monotonic(), 0, 0
    while done < weeks and time.monotonic() - began < limit_s:
        rng = np.random.default_rng([seed, done])
        rate = float(np.exp(rng.uniform(np.log(0.2), np.log(5.0))))
        world = replace(traffic, per_s=rate, ratio=float(rng.uniform(*gains)))
        wrong += any(True for _ in slower_bins(simulate(world, rng).counters))
        done += 1
    return {"weeks": done, "with_alarm": wrong}


def coverage(worlds: int, traffic: Traffic, seed: int) -> dict[str, float]:
    """Of the time per output token and the end-to-end time."""
    once, always, plain = [], [], []
    for world in range(worlds):
        rng = np.random.default_rng([seed, world])
        truth = float(rng.uniform(0.6, 1.1))
        drawn = simulate(replace(traffic, ratio=truth), rng)
        plain.append(abs(drawn.plain_ratio / truth - 1))
        for figure in ("tpot", "e2e"):
            effect = effects(drawn.counters)[0].figure_effect(figure)
            once.append((effect.once_low or 0) <= truth <= (effect.once_high or 9))
            always.append((effect.low or 0) <= truth <= (effect.high or 9))
    return {
        "intervals": len(once),
        "one_look": float(np.mean(once)),
        "every_moment": float(np.mean(always)),
        "plain_bias_median": float(np.median(plain)),
        "plain_bias_least": float(np.min(plain)),
    }


def detection(runs: int, traffic: Traffic) -> dict[str, float]:
    """Minutes from the change to the first bin that says "slower", and requests of the smaller group."""
    minutes, requests = [], []
    for seed in range(runs):
        counters = simulate(traffic, np.random.default_rng([20_000, seed])).counters
        change = round(traffic.change_s / counters.bin_s)
        after = [alarm for alarm in slower_bins(counters) if alarm[0] >= change]
        first, count = min(after, default=(counters.ends.size, 10**9))
        minutes.append((first - change + 1) * counters.bin_s / MINUTE_S)
        requests.append(count)
    return {
        "runs": runs,
        "minutes_median": float(np.median(minutes)),
        "minutes_p90": float(np.quantile(minutes, 0.9)),
        "requests_median": float(np.median(requests)),
    }


def picture() -> str:
    """An SVG of eight hours: E2E of the speculative group over that of the holdout in the last hour, with the
    interval that the guard reads. After five hours speculation turns slow."""
    traffic = Traffic(8 * 3600.0, per_s=5.0, ratio=0.75, later_ratio=1.15, change_s=5 * 3600.0)
    scores = simulate(traffic, np.random.default_rng(2)).counters.scores("e2e")
    bars, minutes = [], 60
    for end in range(minutes, scores.pairs.size + 1, 10):
        first = (end - minutes) // 15 * 15
        sums = scores.since(first, end)
        low, high = (float(ends[-1]) for ends in bounds(sums))
        bars.append((end, low, float(sums.ratio[-1]), high))

    def x(minute: float) -> float:
        return 60 + 640 * minute / scores.pairs.size

    def y(ratio: float) -> float:
        return 230 - 200 * (min(max(ratio, 0.5), 1.5) - 0.5)

    rows = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 270" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="720" height="270" fill="white"/>',
    ]
    for ratio in (0.5, 0.75, 1.0, 1.25, 1.5):
        stroke = "#555" if ratio == 1 else "#ddd"
        rows.append(f'<path d="M60 {y(ratio):.0f}H700" stroke="{stroke}"/>')
        rows.append(f'<text x="52" y="{y(ratio) + 4:.0f}" text-anchor="end">{ratio:g}×</text>')
    for minute, low, ratio, high in bars:
        colour = "#c0392b" if low > 1 else "#1e8449" if high < 1 else "#888"
        rows.append(
            f'<path d="M{x(minute):.1f} {y(low):.1f}V{y(high):.1f}" stroke="{colour}" stroke-width="3"/>'
        )
        rows.append(f'<circle cx="{x(minute):.1f}" cy="{y(ratio):.1f}" r="3" fill="{colour}"/>')
    change = x(traffic.change_s / MINUTE_S)
    rows.append(f'<path d="M{change:.0f} 20V230" stroke="#555" stroke-dasharray="4 3"/>')
    rows.append(f'<text x="{change + 6:.0f}" y="30">speculation turns slow</text>')
    rows += [
        f'<text x="{x(60 * hour):.0f}" y="248" text-anchor="middle">{hour} h</text>' for hour in range(9)
    ]
    rows.append(
        '<text x="60" y="14">E2E, speculative over holdout, last hour; green: faster, red: slower</text>'
    )
    return "\n".join([*rows, "</svg>", ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--weeks", type=int, default=2000)
    parser.add_argument("--healthy", type=int, default=10_000)
    parser.add_argument("--worlds", type=int, default=2000)
    parser.add_argument("--runs", type=int, default=400)
    parser.add_argument("--limit-s", type=float, default=3600.0, help="Of each row of weeks.")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/live_effect.json"))
    parser.add_argument(
        "--picture", type=Path, help="SVG to write, such as docs/live-effect.svg; nothing else."
    )
    options = parser.parse_args()
    if options.picture:
        options.picture.write_text(picture(), encoding="utf-8")
        return
    week = Traffic(WEEK_S)
    change = Traffic(5 * HOUR_S, per_s=5.0, loads=(4.0, 5.0), later_ratio=1.1, change_s=2 * HOUR_S)
    balanced = replace(change, per_s=1.0, holdout=0.5, loads=(4.0, 4.0))
    steady = replace(change, later_ratio=1.25, rhythm=0.0, bursts=0.0)
    windows = Traffic(WEEK_S, window_s=300.0, burn_in_s=60.0, loads=(5.0, 5.0))
    slow_windows = replace(
        windows, seconds=2 * WEEK_S, per_s=5.0, holdout=0.5, later_ratio=1.1, change_s=WEEK_S
    )
    limit_s, runs, worlds = options.limit_s, options.runs, options.worlds
    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "detection_holdout_10": lambda: detection(runs, change),
        "detection_equal_groups": lambda: detection(runs, balanced),
        "detection_25_percent": lambda: detection(runs, steady),
        "coverage": lambda: coverage(worlds, Traffic(2 * DAY_S, per_s=0.5), 1),
        "weeks_without_effect": lambda: alarms(options.weeks, week, (1.0, 1.0), 3, limit_s),
        "healthy_weeks": lambda: alarms(options.healthy, week, (0.5, 0.95), 5, limit_s),
        "coverage_windows": lambda: coverage(worlds // 2, replace(windows, per_s=0.5), 2),
        "windows_without_effect": lambda: alarms(options.weeks // 4, windows, (1.0, 1.0), 4, limit_s),
        "detection_windows": lambda: detection(runs // 4, slow_windows),
    }
    traffics = {"week": week, "change": change, "equal_groups": balanced, "steady": steady}
    traffics |= {"windows": windows, "slow_windows": slow_windows}
    result: dict[str, Any] = {"traffic": {name: asdict(traffic) for name, traffic in traffics.items()}}
    for name, part in parts.items():
        result[name] = part()
        print(name, json.dumps(result[name]), flush=True)
        options.out.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
