"""How often does a comparison of windows decide, and how often wrongly? Simulated, with known truth.

    python benchmarks/experiment_power.py [--trials 1000] [--requests 320] [--only power,equal] [--json FILE]

A window is one arm at one load. Windows come in pairs, one of each arm with the same prompts. Answers have 6
to 50 tokens. Each request has lognormal noise of 15%, AR(1) with 0.3 from one request of a server to its
next. At more than one stream, requests of a window share noise of 3%, too. A trial looks at a quarter, a
half, three quarters and all of its requests; it ends when the interval at that look (95% over all looks)
excludes 1. The intervals are those of `stats.paired_ratio` with instants, computed for all trials at once;
that they are is checked first.

- `power`: true speed-ups from 0.95 to 2, by load. Besides the word: the median interval where the trial
  ended, the median requests to both arms and the seconds of decoding. `unpaired` are the same rows as two
  independent samples of windows: its words, and how many times as many requests it would need for an
  interval as narrow (at the last look).
- `equal`: two equal servers under noise that lasts longer and longer, by window size and number of
  requests: how often the 95% interval excludes 1, how often that of independent windows does, and how many
  times as wide the interval is. Eight windows are too few to see noise that lasts.
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from specops import stats
from specops.stats.autocorrelation import widening
from specops.stats.sequential import levels

Array = NDArray[np.float64]

CONFIDENCE = 0.95
NOISE_SD = 0.15
MILD = 0.3
SHARED_SD = 0.03
"""Noise that the requests of a window share, at more than one stream."""

TOKENS = (6, 50)
FIRST_TOKEN_S, TOKEN_S = 0.03, 0.01
LOOKS = (0.25, 0.5, 0.75, 1.0)
TRUTHS = (0.95, 1.0, 1.05, 1.1, 1.3, 1.5, 2.0)
WINDOWS = {1: 8, 4: 16, 8: 24}
"""Requests of a window, by streams."""


@dataclass(frozen=True)
class World:
    truth: float = 1.0
    streams: int = 1
    window: int = 8
    requests: int = 320
    """To each arm."""

    phi: float = MILD
    """From one request of a server to its next."""

    shared_sd: float = 0.0
    independent_sd: float = 0.0
    """Of noise of each request that does not last, besides."""


def draw_windows(world: World, trials: int, generator: np.random.Generator) -> tuple[Array, Array]:
    """Return the seconds that each window took of both arms, summed over its requests [trials, windows]."""
    windows = world.requests // world.window
    shape = (trials, windows, world.window)
    seconds = FIRST_TOKEN_S + TOKEN_S * generator.integers(TOKENS[0], TOKENS[1] + 1, shape)
    noise = generator.standard_normal((2, trials, windows * world.window))
    for place in range(1, noise.shape[-1]):
        fresh = math.sqrt(1 - world.phi**2) * noise[..., place]
        noise[..., place] = world.phi * noise[..., place - 1] + fresh
    noise = NOISE_SD * noise.reshape(2, *shape)
    noise += world.independent_sd * generator.standard_normal(noise.shape)
    noise += world.shared_sd * generator.standard_normal((2, trials, windows, 1))
    before, after = (seconds * np.exp(noise)).sum(axis=-1)
    return before, after / world.truth


def paired(before: Array, after: Array, level: float) -> tuple[Array, Array, Array]:
    """Return the logarithm of the ratio, half of its interval, and how many times the plain one that is."""
    log, variance, freedom = stats.log_ratio(before, after)
    pulls = before / before.sum(axis=-1, keepdims=True) - after / after.sum(axis=-1, keepdims=True)
    factors = widening(pulls, level)
    t = np.array([stats.t_quantile(level, max(1.0, value)) for value in freedom.tolist()])
    return log, np.where(freedom >= 1, factors * t * np.sqrt(variance), np.inf), factors


def unpaired(before: Array, after: Array, level: float) -> tuple[Array, Array]:
    """Return the logarithm of the ratio and half of its interval, of two independent samples of windows."""
    windows = before.shape[-1]
    shares = [(arm.std(axis=-1, ddof=1) / arm.mean(axis=-1)) ** 2 / windows for arm in (before, after)]
    half = stats.t_quantile(level, 2 * windows - 2) * np.sqrt(shares[0] + shares[1])
    return np.log(before.mean(axis=-1) / after.mean(axis=-1)), half


@dataclass(frozen=True)
class Decided:
    """What trials ended with."""

    deploy: float
    no: float
    covered: float
    low: float
    high: float
    requests: float
    seconds: float
    width: float
    """Half of the interval at the last look, as a logarithm; the median."""


def decide(world: World, before: Array, after: Array, *, pairs: bool) -> Decided:
    trials, windows = before.shape
    ended = np.zeros(trials, dtype=bool)
    logs, halves, used = np.zeros(trials), np.zeros(trials), np.zeros(trials, dtype=np.int64)
    for share, level in zip(LOOKS, levels(LOOKS, CONFIDENCE), strict=True):
        upto = round(share * windows)
        log, half = (
            paired(before[:, :upto], after[:, :upto], level)[:2]
            if pairs
            else unpaired(before[:, :upto], after[:, :upto], level)
        )
        ending = ~ended & ((np.abs(log) > half) | (share == 1))
        logs[ending], halves[ending], used[ending] = log[ending], half[ending], upto
        ended |= ending
    low, high = np.exp(logs - halves), np.exp(logs + halves)
    all_seconds = np.cumsum(before + after, axis=1)[np.arange(trials), used - 1] / world.streams
    return Decided(
        deploy=float((low > 1).mean()),
        no=float((high < 1).mean()),
        covered=float(((low <= world.truth) & (world.truth <= high)).mean()),
        low=float(np.median(low)),
        high=float(np.median(high)),
        requests=float(np.median(used)) * 2 * world.window,
        seconds=float(np.median(all_seconds)),
        width=float(np.median(half)),
    )


def check(seed: int) -> None:
    """That `paired` makes the intervals that the production code makes; else SystemExit."""
    before, after = draw_windows(World(phi=0.95), 5, np.random.default_rng(seed))
    log, half, _ = paired(before, after, CONFIDENCE)
    for trial in range(len(before)):
        interval = stats.paired_ratio(
            before[trial].tolist(), after[trial].tolist(), instants=dict(enumerate(range(before.shape[1])))
        )
        ends = np.exp([log[trial] - half[trial], log[trial] + half[trial]])
        if interval is None or not np.allclose((interval.low, interval.high), ends):
            raise SystemExit(f"the interval of trial {trial} is {interval}, here {ends}")


def show_power(trials: int, requests: int, seed: int) -> list[dict[str, object]]:
    print(f"power: {trials} trials, up to {requests} requests an arm and load")
    print(
        f"{'truth':>6} {'streams':>7} {'deploy':>7} {'no':>6} {'open':>6} {'covered':>8} {'interval':>14} "
        f"{'requests':>8} {'seconds':>8}   unpaired: {'deploy':>7} {'open':>6} {'requests':>9}"
    )
    rows: list[dict[str, object]] = []
    for truth, (streams, window) in product(TRUTHS, WINDOWS.items()):
        shared_sd = SHARED_SD if streams > 1 else 0.0
        world = World(truth, streams, window, requests, shared_sd=shared_sd)
        before, after = draw_windows(world, trials, np.random.default_rng([seed, streams]))
        both, apart = (decide(world, before, after, pairs=pairs) for pairs in (True, False))
        times = (apart.width / both.width) ** 2
        print(
            f"{truth:6.2f} {streams:7} {both.deploy:7.1%} {both.no:6.1%} {1 - both.deploy - both.no:6.1%} "
            f"{both.covered:8.1%}   [{both.low:.2f}, {both.high:.2f}] {both.requests:8.0f} "
            f"{both.seconds:8.0f} {'':13}{apart.deploy:7.1%} "
            f"{1 - apart.deploy - apart.no:6.1%} {times:8.1f}x",
            flush=True,
        )
        rows.append(
            {"paired": asdict(both), "unpaired": asdict(apart), "times_the_requests": times} | asdict(world)
        )
    return rows


def show_equal(trials: int, seed: int) -> list[dict[str, object]]:
    print(f"\nequal: two equal servers, {trials} trials; share of intervals that exclude 1")
    print(
        f"{'noise':34} {'window':>6} {'requests':>8} {'excluded':>8} {'plain':>7} "
        f"{'width: mean':>12} {'median':>7}"
    )
    noises = [
        ("independent", World(phi=0.0)),
        ("independent, windows 10%", World(phi=0.0, shared_sd=0.1)),
        *[(f"AR(1) {phi}", World(phi=phi)) for phi in (0.5, 0.9, 0.95, 0.98)],
        *[
            (f"AR(1) {phi} and independent 15%", World(phi=phi, independent_sd=NOISE_SD))
            for phi in (0.95, 0.98)
        ],
    ]
    rows: list[dict[str, object]] = []
    for (name, noise), (window, requests) in product(noises, ((8, 64), (8, 320), (8, 750), (24, 320))):
        world = replace(noise, window=window, requests=requests)
        before, after = draw_windows(world, trials, np.random.default_rng([seed, window, requests]))
        log, half, factors = paired(before, after, CONFIDENCE)
        excluded, plain = (float((np.abs(log) > width).mean()) for width in (half, half / factors))
        mean, median = float(factors.mean()), float(np.median(factors))
        print(
            f"{name:34} {window:6} {requests:8} {excluded:8.1%} {plain:7.1%} {mean:11.2f}x {median:6.2f}x",
            flush=True,
        )
        rows.append(asdict(world) | {"excluded": excluded, "plain": plain, "mean": mean, "median": median})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=1000, help="of each world")
    parser.add_argument("--requests", type=int, default=320, help="at most, to each arm, in `power`")
    parser.add_argument("--only", default="power,equal", help="kinds of worlds, by commas")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    check(options.seed)
    tables: dict[str, list[dict[str, object]]] = {}
    for kind in options.only.split(","):
        if kind == "power":
            tables[kind] = show_power(options.trials, options.requests, options.seed)
        elif kind == "equal":
            tables[kind] = show_equal(options.trials, options.seed)
        else:
            parser.error(f"invalid kind '{kind}': expected power or equal")
    if options.json:
        options.json.write_text(json.dumps({"seed": options.seed} | tables, indent=1) + "\n")


if __name__ == "__main__":
    main()
