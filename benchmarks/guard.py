"""Does the guard ever err? Simulated weeks and regressions with known truth, judged by the production code.

    python benchmarks/guard.py [--weeks 10000] [--regressions 10000] [--hardest 1000] [--seed 0]
        [--delays 40] [--processes N] [--json FILE]

`healthy`: weeks of a pool that pays (0.5 to 0.95 times the standard's latency, by week), an evaluation a
minute over five minutes' window: traffic by day and weekend, bursts, hours of nothing, gaps in scraping of 1
to 30 minutes (Prometheus away, or one pool's or the router's /metrics), both pools slow at once for minutes
to hours, servers that start anew and are slow at first, noise of requests that are not independent, a machine
that wanders by 2%, a baseline that is wrong by its own standard error (see
specops/guard/simulation/synthetic.py), and a break-even that was measured wrongly by 0.015 (standard
deviation; drawn for 25 weeks at a time). Counted are weeks with a fallback: three bad evaluations in a row,
each with bad samples of its own. The playbook's guard gets the same weeks, with recording rules for its
names, its p95 free of buckets, and its baseline's p95 at the highest load that was measured.

`regressions`: a pool that pays for two to four hours, then takes 1.2 times the standard's latency (a third of
them) or up to twice as long; acceptance falls to match, or stays as it was. Asked is a fallback within the
rate window and `consecutive` intervals, wherever the minimum traffic was there, and a load that was measured,
at every evaluation from the first window that is all regression. Where the standard pool has traffic, both
together must have enough to tell whether it is slower as well. Those left out are counted by why. Where it
has too little in one window, a longer one decides: asked is then a fallback within twice the windows that
have enough.

`hardest`: healthy weeks at the edge, to see more of what is rare: a pool that gains 5 to 10%, a standard pool
with 0.08 to 0.2 requests for each of the other's, and 20 spells a week in which both are slow.

`delays`: how long a fallback takes at a constant load, by how steeply latency rises with it: from the moment
at which a pool that paid takes 1.25 times the standard's latency or more, or, in a slow leak over a day, from
the moment at which it takes 1.2 times. Every incident counts, with gaps and starts of servers in it; one that
is not acted on in three hours is a miss.

What is vectorised is production's own: `verdicts.judge` takes arrays. Only rows of three bad windows and more
are walked one evaluation at a time; `again` walks all of some traces through `simulate`, and counts where
that differs (asked: nowhere).

`look`: an evaluation against a real Prometheus with half an hour of two pools and a router in it, less the
time that it waited for Prometheus (asked: 50 ms at most); and its whole time.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from specops.guard.policy import GuardRules, decide
from specops.guard.signals import noise, verdicts
from specops.guard.signals.criteria import BREAK_EVEN_KNOWN, Baseline, BaselineLevel, Criteria
from specops.guard.signals.noise import BAD, HEALTHY, NO_DATA, NO_TRAFFIC, UNKNOWN, VERDICTS, Codes
from specops.guard.signals.observation import observe
from specops.guard.signals.query import FIGURES, LiveFigures, LiveQuery
from specops.guard.signals.verdicts import FURTHER, Judgement
from specops.guard.simulation import traces
from specops.guard.simulation.simulate import observed, simulate, window_of
from specops.guard.simulation.synthetic import SimulatedIncident, WeekConstants, weeks
from specops.guard.simulation.traces import LiveTrace, windows
from specops.guard.state import Signal, State, Threshold
from specops.prometheus.api import Api
from specops.serving.vllm.pool import SERIES as VLLM

SPREAD = {"tpot_cv": 0.2, "tpot_error": 0.01, "e2e_cv": 0.2, "e2e_error": 0.015}
SPREAD |= {"whole_cv": 0.5, "whole_error": 0.04}
LEVELS = [(1, 0.08, 0.020), (8, 0.12, 0.024), (32, 0.25, 0.034), (64, 0.5, 0.050)]
"""Streams, TTFT, TPOT: made up, as a model of some size on a GPU has them."""

BASELINE = Baseline(
    tuple(
        BaselineLevel(float(n), first, token, token, first + token * 199, **SPREAD)
        for n, first, token in LEVELS
    ),
    "made up",
)
BREAK_EVENS = (0.25, 0.4, 0.5)
BREAK_EVEN_ERROR = 0.015
HARDEST = {"gain": (0.9, 0.95), "standard": (0.08, 0.2), "alone": 0.0, "both_slow": 20.0}
CHUNK = 25
HOURS = 8.0
COMPARED = float(noise.least_requests(SPREAD["tpot_cv"], 0.0, 0.2))
"""Requests, of both pools as of one, at which the ratio of their latencies is known to half of 20%."""

AGAIN = 3
"""Of each kind are walked through one evaluation at a time."""


def criteria_of(break_even: float, wrong: float = 0.0) -> Criteria:
    """`wrong`: by which the break-even was measured wrongly."""
    return Criteria(
        query=LiveQuery("bench", VLLM, VLLM, {}, scrape_s=15.0, routed=True),
        window_s=300.0,
        min_acceptance=Threshold(value=break_even + wrong, source="made up"),
        break_even_known_to=BREAK_EVEN_KNOWN,
        baseline=BASELINE,
        regression=Threshold(value=1.2, source="the default"),
        max_error_share=Threshold(value=0.05, source="the default"),
        min_requests=None,
    )


@dataclass
class Tally:
    weeks: int = 0
    fell_back: int = 0
    bad_evaluations: int = 0
    playbook_fell_back: int = 0
    playbook_triggers: int = 0
    verdicts: tuple[int, ...] = (0,) * len(VERDICTS)
    judged_latency: int = 0

    def __add__(self, other: Tally) -> Tally:
        ours, theirs = asdict(self), asdict(other)
        verdicts = tuple(a + b for a, b in zip(self.verdicts, other.verdicts, strict=True))
        return Tally(**{name: ours[name] + theirs[name] for name in ours} | {"verdicts": verdicts})


@dataclass
class Acted:
    regressions: int = 0
    too_little_traffic: int = 0
    standard_too_little: int = 0
    """The standard pool has traffic, and too little to tell whether it is slower as well."""

    standard_too_little_acted: int = 0
    """Of these, acted on in time nevertheless."""

    later: int = 0
    """Of these, those with traffic enough in some windows of `FURTHER`, twice as many of which were
    simulated."""

    acted_later: int = 0
    """Acted on within twice as many."""

    scraped_in_part: int = 0
    load_not_measured: int = 0
    server_started: int = 0
    fell_before: int = 0
    expected: int = 0
    acted: int = 0
    at_exactly: int = 0
    acted_at_exactly: int = 0
    ever_acted: int = 0
    """Within the hours that were simulated, those that were left out among them."""

    latest_s: float = 0.0

    def __add__(self, other: Acted) -> Acted:
        ours, theirs = asdict(self), asdict(other)
        latest = max(self.latest_s, other.latest_s)
        return Acted(**{name: ours[name] + theirs[name] for name in ours} | {"latest_s": latest})


def rows_of(bad: np.ndarray[Any, Any], times: int) -> Iterator[tuple[int, int]]:
    """Where at least so many are bad, one after the other: the first, and one after the last."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], bad, [False]]).astype(int)))
    return ((int(begin), int(end)) for begin, end in edges.reshape(-1, 2) if end - begin >= times)


def fell_at(
    trace: LiveTrace, criteria: Criteria, bad: np.ndarray[Any, Any], within: LiveFigures
) -> int | None:
    """The interval in which the guard falls back first; None where it does not.

    Only within rows of bad evaluations are they walked one at a time: elsewhere no row is long enough.
    """
    rules = GuardRules(interval_s=trace.interval_s)
    for begin, end in rows_of(bad, rules.consecutive):
        state = State()
        for at in range(begin, end):
            found = observed(trace, criteria, at, within, state, 0)
            state = decide(state, found, float(trace.ts[at]), rules).state
            if state.mode == "fallen":
                return at
    return None


def judged_all(criteria: Criteria, trace: LiveTrace) -> tuple[Codes, Mapping[Signal, Judgement]]:
    """At each instant, further back where the window has too little traffic, as `look` does it; and what was
    judged of the window alone."""
    window = window_of(trace, criteria)
    judged = verdicts.judge(criteria, windows(trace, window, 2 * window))
    further = verdicts.windows_needed(judged)
    codes = {signal: one.codes.copy() for signal, one in judged.items()}
    both_slow = {
        signal: np.broadcast_to(one.both_slow, further.shape).copy() for signal, one in judged.items()
    }
    for many in FURTHER:
        where = further == many
        if not where.any():
            continue
        back = verdicts.judge(
            criteria, _at(windows(trace, many * window, (many + 1) * window), where), windows=many
        )
        for signal, one in judged.items():
            found = verdicts.with_longer(criteria, _judged_at(one, where), back[signal], many)
            codes[signal][where] = found.codes
            both_slow[signal][where] = found.both_slow
    both = np.any(list(both_slow.values()), axis=0)
    return verdicts.overall(codes, both, trace.figures.missing), judged


def _at(live: LiveFigures, where: np.ndarray[Any, Any]) -> LiveFigures:
    return LiveFigures.from_mapping(
        {name: np.asarray(getattr(live, name))[where] for name in ("ts", *FIGURES)}
    )


def _judged_at(judged: Judgement, where: np.ndarray[Any, Any]) -> Judgement:
    return replace(
        judged,
        **{
            name: np.broadcast_to(np.asarray(value), where.shape)[where]
            for name, value in vars(judged).items()
        },
    )


def falls_of(criteria: Criteria, trace: LiveTrace, codes: Codes) -> list[int | None]:
    """Week by week, the interval in which the guard falls back first."""
    found: list[int | None] = []
    for week in range(len(codes)):
        rows = any(True for _ in rows_of(codes[week] == BAD, GuardRules().consecutive))
        one = trace.select(week) if rows else None
        window = window_of(trace, criteria)
        found.append(
            fell_at(one, criteria, codes[week] == BAD, windows(one, window, 2 * window)) if one else None
        )
    return found


def healthy(seed: tuple[int, int], count: int, **changes: Any) -> Tally:
    """`changes`: of the world."""
    random = np.random.default_rng(seed)
    break_even = float(random.choice(BREAK_EVENS))
    wrong = BREAK_EVEN_ERROR * float(random.standard_normal())
    criteria, world = criteria_of(break_even, wrong), WeekConstants(BASELINE, break_even, **changes)
    trace = weeks(world, count, random)
    codes, judged = judged_all(criteria, trace)
    theirs = traces.falls(trace.playbook)
    return Tally(
        weeks=count,
        fell_back=sum(at is not None for at in falls_of(criteria, trace, codes)),
        bad_evaluations=int((codes == BAD).sum()),
        playbook_fell_back=int(theirs.any(axis=1).sum()),
        playbook_triggers=int(theirs.sum()),
        verdicts=tuple(int((codes == code).sum()) for code in range(len(VERDICTS))),
        judged_latency=int((judged["tpot"].codes == HEALTHY).sum()),
    )


def regressions(seed: tuple[int, int], count: int) -> Acted:
    random = np.random.default_rng(seed)
    break_even = float(random.choice(BREAK_EVENS))
    criteria, rules = criteria_of(break_even), GuardRules()
    # Busier than most weeks are: where there is too little traffic, nothing is asked.
    world = replace(WeekConstants(BASELINE, break_even), length_s=HOURS * 3600, busy=(0.8, 1.6))
    interval, window = world.interval_s, round(criteria.window_s / world.interval_s)
    incident = _incident(random, count, int(interval))
    trace = weeks(world, count, random, incident)
    live = windows(trace, window, 2 * window)
    codes_of_all, judged = judged_all(criteria, trace)
    falls = falls_of(criteria, trace, codes_of_all)
    found = Acted(regressions=count)
    for at in range(count):
        began, fell = int(incident.began[at]), falls[at]
        if fell is not None and fell < began:
            found.fell_before += 1
            continue
        deadline = began + window + rules.consecutive - 1
        full = (at, slice(began + window - 1, deadline))
        tpot = judged["tpot"]
        codes, low, limit = tpot.codes[full], np.asarray(tpot.low)[full], np.asarray(tpot.limit)[full]
        gap = (codes == NO_DATA).any()
        few = (codes == NO_TRAFFIC).any()
        started = (np.nan_to_num(np.asarray(live.restarts)[full]) > 0).any()
        theirs, ours = np.asarray(tpot.standard_n)[full], np.asarray(tpot.n)[full]
        together = ours * theirs / np.maximum(ours + theirs, 1e-9)
        untold = (together < COMPARED).any()  # NaN, without traffic there, is not
        beyond = ((codes == UNKNOWN) & ~(low >= limit)).any()
        found.ever_acted += int(fell is not None)
        acted = fell is not None and fell <= deadline
        if gap or few or started or untold or beyond:
            found.scraped_in_part += int(gap)
            found.too_little_traffic += int(few and not gap)
            found.server_started += int(started and not few and not gap)
            found.standard_too_little += int(untold and not (gap or few or started))
            found.load_not_measured += int(beyond and not (gap or few or started or untold))
            if untold and not (gap or few or started):
                found.standard_too_little_acted += int(acted)
                later = _later(began, float(together.min()), window, rules)
                found.later += int(later is not None and later < world.intervals)
                found.acted_later += int(later is not None and fell is not None and fell <= later)
            continue
        found.expected += 1
        found.acted += int(acted)
        exactly = incident.slower[at] == 1.2
        found.at_exactly += int(exactly)
        found.acted_at_exactly += int(exactly and acted)
        if acted:
            found.latest_s = max(found.latest_s, float(((fell or 0) - began + 1) * interval))
    return found


STEEP = [(1, 0.05, 0.010), (8, 0.08, 0.020), (32, 0.15, 0.056), (64, 0.3, 0.105)]
"""A server whose time per token is ten times as long at 64 streams as alone."""

HOUR = 60
"""Minutes, which are the intervals."""


@dataclass(frozen=True)
class Delays:
    """Minutes from an incident's beginning to a fallback, of many incidents of one kind."""

    what: str
    requests: float
    """Finished in a window."""

    minutes: list[int]
    """Sorted; 0 where the guard had fallen back before."""

    missed: int

    def quantile(self, q: float) -> float:
        """With the misses as longer than all."""
        values = [*map(float, self.minutes), *([float("inf")] * self.missed)]
        return values[min(int(q * len(values)), len(values) - 1)]


def delays(seed: int, count: int) -> list[Delays]:
    """Kinds of incidents at a constant load, `count` of each."""
    found = []
    for shape, levels, tokens in (("flat", LEVELS, 60), ("steep", STEEP, 40)):
        for streams in (3.0, 12.0):
            for slower in (1.25, 1.3, 1.5):
                what = f"{shape}, {streams:g} at a time, {slower:g}x at once"
                found.append(measure_delays(seed, count, what, levels, tokens, streams, slower))
        what = f"{shape}, 12 at a time, a leak to 1.5x over a day"
        found.append(measure_delays(seed, count, what, levels, tokens, 12.0, 1.5, leak_hours=24))
    return found


def measure_delays(
    seed: int,
    count: int,
    what: str,
    levels: list[tuple[int, float, float]],
    tokens: int,
    streams: float,
    slower: float,
    leak_hours: int = 0,
) -> Delays:
    measured = (
        BaselineLevel(float(n), first, token, token, first + token * (tokens - 1), **SPREAD)
        for n, first, token in levels
    )
    baseline = Baseline(tuple(measured), "made up")
    criteria = replace(criteria_of(0.4), baseline=baseline)
    length = (leak_hours + 4) * HOUR
    world = WeekConstants(baseline, 0.4, tokens=float(tokens), length_s=length * 60.0, steady=streams)
    world = replace(world, gain=(0.6, 0.9), both_slow=0.0, alone=0.2)
    shown = np.zeros(count, dtype=bool)
    incident = SimulatedIncident(np.full(count, HOUR), np.full(count, slower), shown, leak=leak_hours * HOUR)
    trace = weeks(world, count, np.random.default_rng(seed), incident)
    codes, _ = judged_all(criteria, trace)
    falls = falls_of(criteria, trace, codes)
    minutes, missed = [], 0
    for week, fell in enumerate(falls):
        began = int(np.argmax(trace.slower[week] >= criteria.regression.value))
        if fell is None or fell - began >= 3 * HOUR:
            missed += 1
        else:
            minutes.append(max(fell - began + 1, 0))
    requests = 5 * float(np.nanmean(trace.figures.finished))
    return Delays(what, requests, sorted(minutes), missed)


def _later(began: int, together: float, window: int, rules: GuardRules) -> int | None:
    """The last interval to act in where the pools have so many requests in a window. None where not even the
    most windows that are looked back on have the minimum traffic."""
    for many in FURTHER:
        if many * together >= COMPARED:
            return began + 2 * many * window + rules.consecutive - 1
    return None


def _incident(random: np.random.Generator, count: int, interval: int) -> SimulatedIncident:
    exactly = random.random(count) < 1 / 3
    return SimulatedIncident(
        began=random.integers(2 * 3600 // interval, 4 * 3600 // interval, count),
        slower=np.where(exactly, 1.2, random.uniform(1.2, 2.0, count)),
        shown_by_acceptance=random.random(count) < 0.5,
    )


def again(seed: int) -> dict[str, int]:
    """One evaluation at a time, of weeks and of regressions: how often the end differs from the arrays'."""
    criteria, rules, differs, walked = criteria_of(0.4), GuardRules(), 0, 0
    for length_s, hit in ((WEEK, False), (HOURS * 3600, True)):
        random = np.random.default_rng((seed, int(hit)))
        world = replace(WeekConstants(BASELINE, 0.4), length_s=length_s)
        incident = _incident(random, AGAIN, int(world.interval_s)) if hit else None
        trace = weeks(world, AGAIN, random, incident)
        falls = falls_of(criteria, trace, judged_all(criteria, trace)[0])
        for week in range(AGAIN):
            found = simulate(trace.select(week), criteria, rules)
            fell = falls[week]
            first = trace.ts[week][fell] if fell is not None else None
            differs += int((found.fallbacks[0].ts if found.fallbacks else None) != first)
            walked += 1
    return {"walked": walked, "differ": differs}


WEEK = 7 * 86400.0


def looks(times: int = 200) -> dict[str, float]:
    # At the front: there is a daemons, and a backfilled, nowhere else.
    tests = Path(__file__).parent.parent / "tests"
    sys.path += [str(tests), str(tests / "real")]
    from backfilled import Pool, remembering, routed

    pools = [Pool("bench", servers=2), Pool("bench", servers=2, pool="standard", speculates=False)]
    rates = {
        (of, pool, pool, "2xx"): 0.5
        for of in ("chat", "code", "short", "long")
        for pool in ("speculative", "standard")
    }
    lines = routed("bench", rates, time.time())
    with tempfile.TemporaryDirectory() as folder, remembering(pools, Path(folder), *lines) as up:
        api = Api(up.url)
        found = [observe(api, criteria_of(0.4), time.time()) for _ in range(times)]
    assert {one.verdict for one in found} == {"healthy"}, found[0]
    own = np.array([one.took_ms - one.prometheus_ms for one in found])
    whole = np.array([one.took_ms for one in found])
    return {
        "own_p50_ms": round(float(np.median(own)), 3),
        "own_max_ms": round(float(own.max()), 3),
        "whole_p50_ms": round(float(np.median(whole)), 3),
        "whole_max_ms": round(float(whole.max()), 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--weeks", type=int, default=10_000)
    parser.add_argument("--regressions", type=int, default=10_000)
    parser.add_argument("--hardest", type=int, default=1000)
    parser.add_argument("--delays", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    began = time.perf_counter()
    with ProcessPoolExecutor(options.processes) as pool:
        parts = [pool.submit(healthy, (options.seed, n), size) for n, size in _chunks(options.weeks, CHUNK)]
        hits = [
            pool.submit(regressions, (options.seed + 1, n), size)
            for n, size in _chunks(options.regressions, 20 * CHUNK)
        ]
        hardest = [
            pool.submit(healthy, (options.seed + 2, n), size, **HARDEST)
            for n, size in _chunks(options.hardest, CHUNK)
        ]
        tally = sum((part.result() for part in parts), Tally())
        at_the_edge = sum((part.result() for part in hardest), Tally())
        acted = sum((hit.result() for hit in hits), Acted())
    took = delays(options.seed, options.delays) if options.delays else []
    walked = again(options.seed)
    observed = looks()
    _print(tally, at_the_edge, acted, walked, observed, time.perf_counter() - began)
    for kind in took:
        print(
            f"delay        {kind.what}, {kind.requests:.0f} requests a window:"
            f" median {kind.quantile(0.5):g} min, 95% {kind.quantile(0.95):g} min,"
            f" missed {kind.missed} of {options.delays}"
        )
    if options.json:
        figures = {
            "healthy": asdict(tally),
            "hardest": asdict(at_the_edge),
            "regressions": asdict(acted),
            "again": walked,
            "look": observed,
            "delays": [asdict(kind) for kind in took],
        }
        options.json.write_text(json.dumps(figures | {"seed": options.seed}, indent=1) + "\n")


def _chunks(total: int, size: int) -> list[tuple[int, int]]:
    return [(begin, min(size, total - begin)) for begin in range(0, total, size)]


def _print(
    tally: Tally,
    hardest: Tally,
    acted: Acted,
    walked: dict[str, int],
    observed: dict[str, float],
    took_s: float,
) -> None:
    evaluations = sum(tally.verdicts)
    shares = ", ".join(
        f"{count / max(evaluations, 1):.1%} {VERDICTS[code]}" for code, count in enumerate(tally.verdicts)
    )
    print(f"healthy      {tally.weeks} weeks, {evaluations} evaluations: {shares}")
    print(f"             latency judged at {tally.judged_latency / max(evaluations, 1):.1%} of them")
    print(
        f"             fell back falsely in {tally.fell_back} weeks; {tally.bad_evaluations} evaluations bad"
    )
    print(
        f"             the playbook's guard in {tally.playbook_fell_back} weeks,"
        f" {tally.playbook_triggers} times in all"
    )
    print(f"hardest      {hardest.weeks} weeks: fell back falsely in {hardest.fell_back}")
    print(
        f"regressions  {acted.regressions}: {acted.too_little_traffic} with too little traffic,"
        f" {acted.standard_too_little} with too little beside them to compare with in one window"
        f" (acted on in time {acted.standard_too_little_acted}; within twice the windows that have enough"
        f" {acted.acted_later} of {acted.later}),"
        f" {acted.scraped_in_part} scraped in part,"
        f" {acted.load_not_measured} at a load that was not measured, {acted.server_started} while a server"
        f" started, {acted.fell_before} fallen before"
    )
    print(
        f"             acted on in time {acted.acted} of {acted.expected}; of those of exactly 20%"
        f" {acted.acted_at_exactly} of {acted.at_exactly}; latest {acted.latest_s:.0f} s after it began;"
        f" in the hours after it {acted.ever_acted} of all"
    )
    print(f"again        {walked['walked']} traces walked one by one: {walked['differ']} end otherwise")
    print(
        f"evaluation   {observed['own_p50_ms']:.2f} ms beside Prometheus"
        f" (at most {observed['own_max_ms']:.2f}),"
        f" {observed['whole_p50_ms']:.1f} ms in all (at most {observed['whole_max_ms']:.1f})"
    )
    print(f"took         {took_s:.0f} s")


if __name__ == "__main__":
    main()
