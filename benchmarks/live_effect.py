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
        scores = Scores.from_moments(counters.figures[figure])
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
            effect = effects(drawn.counters)[0].figure_effect(figure)
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


def picture() -> str:
    """An SVG of eight hours: E2E of the speculative group over that of the holdout in the last hour, with the
    interval that the guard reads. After five hours speculation turns slow."""
    traffic = Traffic(8 * 3600.0, per_s=5.0, ratio=0.75, later_ratio=1.15, change_s=5 * 3600.0)
    scores = Scores.from_moments(simulate(traffic, np.random.default_rng(2)).counters.figures["e2e"])
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
    parser.add_argument("--weeks", type=int, default=60)
    parser.add_argument("--worlds", type=int, default=300)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/live_effect.json"))
    parser.add_argument(
        "--picture", type=Path, help="SVG to write, such as docs/live-effect.svg; nothing else."
    )
    options = parser.parse_args()
    if options.picture:
        options.picture.write_text(picture(), encoding="utf-8")
        return
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
