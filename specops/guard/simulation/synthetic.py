"""Synthetic weeks of a pool whose truth is known. The guard is tested against thousands of them.

A minute's traffic is a Poisson number of requests, by a day's curve with a weekend, bursts and slow noise.
Its load and its latency, the baseline's at that load, go together by Little's law; acceptance is what it
takes to be so much faster. Then what happens to a real one: hours without traffic, servers that start anew
and are slow at first, a pool that is a little faster or slower for a quarter of an hour.

What is scraped has gaps of 1 to 30 minutes: Prometheus is away, or one pool's /metrics is. A clock of
Prometheus that is set by some minutes is such a gap, too: samples of the time that it left out are not there,
and samples of a time that it has already are refused. For hours both pools are slow at once, by up to three
times: a network, a disk, a neighbour. The standard pool has a share of the traffic, in some weeks none; in
those weeks both are never slow at once, since the baseline alone cannot tell.

Noise is what the rule in noise.py assumes, or somewhat less: requests of a minute vary as if they were
1 / `TOGETHER` as many, tokens of a request go together by `ALIKE`, and the baseline is wrong by its own
standard error, drawn once a week. A rule that errs on these errs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial

import numpy as np
from numpy.typing import NDArray

from specops.defaults import LEAST_ACCEPTANCE
from specops.errors import UsageError
from specops.guard.signals.criteria import Baseline, Criteria, Missing
from specops.guard.signals.live_effect import LatencySignal
from specops.guard.signals.query import STANDARD, LiveFigures
from specops.guard.simulation.holdout import SimulatedGroup, drawn_counters
from specops.guard.simulation.traces import Answers, Figures, LiveTrace, mean_of, rolled
from specops.guard.state import Threshold
from specops.hints import with_options

WEEK_S = 7 * 86400
TOGETHER = 1.5
ALIKE = 0.15
SCRAPE_S = 15.0
WINDOW_S = 300.0
"""Window of the playbook's guard, in seconds."""

MONDAY = datetime(2026, 1, 5, tzinfo=UTC).timestamp()
"""When a week begins that is shown to somebody."""

SPELL_S = 12 * 3600.0
GAPS_A_WEEK = 3.0
"""Number of gaps a week of Prometheus, and of each part that it scrapes."""

BURSTS_S = 4 * 3600.0
BUSY = 0.4
"""Share of the highest load that was measured which a server has at the busiest time of a week."""


@dataclass(frozen=True)
class WeekConstants:
    """The constants that all weeks have in common."""

    baseline: Baseline
    break_even: float
    """Acceptance at which a token takes as long as without; k tokens are drafted a step."""

    k: int = 4
    tokens: float = 200.0
    """Mean number of tokens of an answer."""

    interval_s: float = 60.0
    length_s: float = float(WEEK_S)
    gain: tuple[float, float] = (0.5, 0.95)
    """How many times the standard's latency a pool that pays takes, week by week."""

    busy: tuple[float, float] = (0.3, 1.0)
    """Share of the traffic that a server has at `BUSY`, week by week."""

    standard: tuple[float, float] = (0.08, 0.5)
    """Requests of the standard pool for each one of the speculative pool, week by week."""

    alone: float = 0.2
    """Share of the weeks in which the standard pool has no traffic."""

    both_slow: float = 2.0
    """Spells a week in which both pools are slow at once."""

    holdout: float = 0.0
    """Share of the eligible requests that chance keeps on the standard pool; 0: no live effect."""

    steady: float | None = None
    """Requests at a time on a server that is as fast as the standard, all the time; None: by a day's curve,
    with a weekend, bursts and hours of nothing."""

    @property
    def intervals(self) -> int:
        return int(self.length_s // self.interval_s)


@dataclass(frozen=True)
class SimulatedIncident:
    """An incident: from an instant on the pool takes `slower` times the standard's latency; its acceptance
    falls to match, or it does not. One item for each week."""

    began: NDArray[np.intp]
    """Intervals after the first."""

    slower: Figures
    shown_by_acceptance: NDArray[np.bool_]
    intervals: int | None = None
    """Number of intervals that it lasts; None: to the end."""

    leak: int = 0
    """Number of intervals in which it gets as slow, in even steps; 0: at once."""


def week(criteria: Criteria, seed: int, slower: float | None) -> LiveTrace:
    """One, of a pool that pays; for half a day in its middle it takes `slower` times the standard's latency.
    UsageError without a baseline to make it up from."""
    if isinstance(criteria.baseline, Missing):
        raise UsageError(
            f"could not generate a week without a baseline: {criteria.baseline.why}",
            hint=f"{with_options({'--last': '7'})}  # replays the last 7 days of Prometheus",
        )
    least = (
        criteria.min_acceptance.value if isinstance(criteria.min_acceptance, Threshold) else LEAST_ACCEPTANCE
    )
    top = criteria.baseline.levels[-1]
    tokens = (top.e2e - top.ttft) / top.token + 1
    drawn = 0.0 if criteria.block_s else criteria.holdout  # a week has no random windows
    world = WeekConstants(criteria.baseline, least, tokens=tokens, busy=(0.8, 1.6), holdout=drawn)
    random = np.random.default_rng(seed)
    incident = None
    if slower is not None:
        middle = world.intervals // 2
        length = round(SPELL_S / world.interval_s)
        incident = SimulatedIncident(np.array([middle]), np.array([slower]), np.array([False]), length)
    return weeks(world, 1, random, incident, MONDAY).select(0)


def weeks(
    world: WeekConstants,
    count: int,
    random: np.random.Generator,
    incident: SimulatedIncident | None = None,
    start: float = 0.0,
) -> LiveTrace:
    """`count` weeks at once, as arrays of (week, interval)."""
    shape = (count, world.intervals)
    usual = _uniform(random, *world.gain, count)
    gain = usual * _slowly(random, shape, 0.02, 15 * 60 / world.interval_s)
    texts = _slowly(random, shape, 0.02, 120 * 60 / world.interval_s)
    acceptance = np.minimum(_acceptance(world, usual) * texts, 0.98)
    if incident is not None:
        since = np.arange(shape[1]) - incident.began[:, None]
        after = (since >= 0) & (since < (incident.intervals or shape[1]))
        grown = np.clip((since + 1) / max(incident.leak, 1), 0.0, 1.0)
        slower = gain + (incident.slower[:, None] - gain) * grown
        gain = np.where(after, slower if incident.leak else incident.slower[:, None], gain)
        falls = after & incident.shown_by_acceptance[:, None]
        acceptance = np.where(falls, _acceptance(world, gain), acceptance)
    traffic = _traffic(world, shape, random)
    idle, starting, slow = (_spells(shape, random, *kind) for kind in _kinds(world))
    standard_ratio = _uniform(random, *world.standard, count) * (random.random((count, 1)) >= world.alone)
    held = world.holdout / (1 - world.holdout)  # requests of the holdout for each of the speculative pool
    standard_ratio = standard_ratio + held
    common = np.where(slow & (standard_ratio > 0), _uniform(random, 1.05, 3.0, count), 1.0)
    load = np.minimum(traffic * gain * common, 0.95 * world.baseline.most)  # the faster, the fewer at a time
    begins = starting & ~np.roll(starting, 1, axis=1)
    load = np.where(idle | begins, 0.0, load)  # a server that starts answers nothing at first
    slowdown = np.where(starting, gain * _uniform(random, 1.0, 1.6, count), gain) * common
    scraped = _scraped(world, shape, random)
    trace = _measured(world, load, slowdown, acceptance, scraped["speculative"], begins, random, start)
    trace, standard_load = _with_standard(
        world, trace, load, common, standard_ratio, scraped["standard"], random
    )
    finished = np.nan_to_num(np.asarray(trace.figures.requests))
    trace = _by_routers(trace, scraped["router"])
    if not world.holdout:
        return replace(trace, slower=gain)
    counted = scraped["router"] >= 1  # what a bin counted is known if there are samples at both its ends
    tokens = world.tokens * _slowly(random, shape, 0.1, 120 * 60 / world.interval_s)
    groups = [
        SimulatedGroup(
            requests=np.where(counted, requests, 0).astype(int),
            load=of_pool,
            latency=partial(_by_signal, world.baseline, factor, tokens),
            cv={
                "tpot": np.asarray(world.baseline.interpolate("tpot_cv", of_pool)),
                "e2e": np.asarray(world.baseline.interpolate("whole_cv", of_pool)),
            },
        )
        for requests, of_pool, factor in (
            (random.poisson(finished * held), standard_load, common),
            (finished, load, slowdown),
        )
    ]
    effect = drawn_counters(groups, TOGETHER, np.asarray(trace.ts), world.interval_s, random)
    return replace(trace, slower=gain, effect=effect)


def _by_signal(
    baseline: Baseline, factor: Figures, tokens: Figures, load: Figures
) -> dict[LatencySignal, Figures]:
    tpot, e2e = _latencies(baseline, load, factor, tokens)
    return {"tpot": tpot, "e2e": e2e}


def _scraped(world: WeekConstants, shape: tuple[int, int], random: np.random.Generator) -> dict[str, Figures]:
    """Share of the scrapes that there are of each part, interval by interval."""
    per_interval = max(round(world.interval_s / SCRAPE_S), 1)
    often = GAPS_A_WEEK * world.length_s / WEEK_S
    scrapes = (shape[0], shape[1] * per_interval)
    minute = 60 / world.interval_s * per_interval
    away, *own = (_spells(scrapes, random, often, 1 * minute, 30 * minute) for _ in range(4))
    parts = zip(("speculative", "standard", "router"), own, strict=True)
    return {part: (~(away | gone)).reshape(*shape, per_interval).mean(axis=2) for part, gone in parts}


def _with_standard(
    world: WeekConstants,
    trace: LiveTrace,
    load: Figures,
    common: Figures,
    ratio: Figures,
    scraped: Figures,
    random: np.random.Generator,
) -> tuple[LiveTrace, Figures]:
    """The standard pool beside it, and its load: `ratio` requests for one of the other, `common` times its
    own latency, and its requests are not quite the same."""
    shape = load.shape
    unlike = _uniform(random, 0.97, 1.03, shape[0]) * _slowly(random, shape, 0.02, 15 * 60 / world.interval_s)
    standard_load = load * _uniform(random, 0.3, 1.0, shape[0])
    tokens = world.tokens * _slowly(random, shape, 0.1, 120 * 60 / world.interval_s)
    tpot, e2e = _latencies(world.baseline, standard_load, unlike * common, tokens)
    requests = np.nan_to_num(np.asarray(trace.figures.finished)) * ratio
    n = random.poisson(requests).astype(float)
    scrapes = np.full(shape, np.maximum(world.interval_s / SCRAPE_S, 1.0)) * scraped
    nothing = (scraped == 0) | (n == 0)

    def varied(mean: Figures, cv: Figures) -> Figures:
        noise = cv * np.sqrt(TOGETHER / np.maximum(n, 1.0)) * _normal(random, shape)
        return np.where(nothing, np.nan, mean * np.maximum(1 + noise, 0.05))

    counts = np.where(scraped == 0, np.nan, n * scraped)
    figures = {
        "tpot": varied(tpot, np.asarray(world.baseline.interpolate("tpot_cv", standard_load))),
        "tpot_n": counts,
        "e2e": varied(e2e, np.asarray(world.baseline.interpolate("e2e_cv", standard_load))),
        "e2e_n": counts,
        "tokens": np.where(nothing, np.nan, tokens),
        "load": varied(standard_load, np.full(shape, 0.2)),
        "spread": np.where(nothing, np.nan, _spread(scrapes, random)),
        "gauged": np.where(scraped == 0, np.nan, scrapes),
        "running": np.where(nothing, np.nan, _met(standard_load, scrapes, random)),
        "bursts": _bursts(world, standard_load),
        "covered": scraped,
        "sampled": np.where(scraped == 0, np.nan, scraped),
    }
    standard = {f"{STANDARD}{name}": values for name, values in figures.items()}
    live = LiveFigures.from_mapping({**vars(trace.figures), **standard, "standard_requests": np.ceil(n)})
    return replace(trace, figures=live), standard_load


def _by_routers(trace: LiveTrace, scraped: Figures) -> LiveTrace:
    """Return what the routers count: there while they are scraped, whichever pool is."""
    figures = trace.figures
    counted = ("requests", "failed", "cancelled", "standard_requests", "standard_failed")
    live = {
        name: np.where(scraped == 0, np.nan, np.asarray(getattr(figures, name)) * scraped) for name in counted
    }
    live["eligible"] = live["requests"]
    live["counted"] = np.where(scraped == 0, np.nan, scraped)
    return replace(trace, figures=LiveFigures.from_mapping({**vars(figures), **live}))


def _spread(scrapes: Figures, random: np.random.Generator) -> Figures:
    sd = np.sqrt(2 / np.maximum(scrapes, 1.0))
    return np.maximum(1 + sd * _normal(random, (scrapes.shape[0], scrapes.shape[1])), 0.0)


def _met(load: Figures, scrapes: Figures, random: np.random.Generator) -> Figures:
    """Requests at a time by so many scrapes: independent ones, of which each scrape meets a Poisson
    number."""
    noise = np.sqrt(np.maximum(load, 1e-9) / np.maximum(scrapes, 1.0)) * _normal(random, load.shape[:2])
    return np.asarray(np.maximum(load + noise, 0.0))


def _bursts(world: WeekConstants, load: Figures) -> Figures:
    """Variance over mean of the requests at a time in the last hours: that of independent requests, and of
    the load that wanders."""
    hours = round(BURSTS_S / world.interval_s)
    filled = np.nan_to_num(load)
    n = np.minimum(np.arange(1, load.shape[1] + 1), hours)
    mean, square = (rolled(values, hours) / n for values in (filled, filled**2))
    return np.where(mean > 1e-9, 1 + np.maximum(square - mean**2, 0.0) / np.maximum(mean, 1e-9), np.nan)


def _measured(
    world: WeekConstants,
    load: Figures,
    gain: Figures,
    acceptance: Figures,
    scraped: Figures,
    begins: NDArray[np.bool_],
    random: np.random.Generator,
    start: float,
) -> LiveTrace:
    shape = load.shape
    wrong = 1 + world.baseline.levels[0].tpot_error * random.standard_normal((shape[0], 1))
    tokens = world.tokens * _slowly(random, shape, 0.1, 120 * 60 / world.interval_s)
    tpot, e2e = _latencies(world.baseline, load, gain * wrong, tokens)
    n = random.poisson(load / e2e * world.interval_s).astype(float)  # Little's law
    some = np.maximum(n, 1.0)

    def varied(mean: Figures, cv: Figures) -> Figures:
        noise = cv * np.sqrt(TOGETHER / some) * _normal(random, shape)
        return np.asarray(mean * np.maximum(1 + noise, 0.05))

    drafted = n * tokens / (1 + world.k * acceptance) * world.k
    a_request = np.maximum(drafted / some, 1.0)
    spread = acceptance * (1 - acceptance) * (1 + (a_request - 1) * ALIKE) / np.maximum(drafted, 1.0)
    scrapes = np.full(shape, np.maximum(world.interval_s / SCRAPE_S, 1.0)) * scraped
    unscraped = scraped == 0
    nothing = unscraped | (n == 0)
    answered, failed = n, random.binomial(n.astype(int), 0.005).astype(float)
    n, drafted = n * scraped, drafted * scraped  # of an interval that was scraped in part, that part
    figures = {
        "finished": n,
        "drafted": drafted,
        "acceptance": np.clip(acceptance + np.sqrt(spread) * _normal(random, shape), 0.0, 1.0),
        "tpot": varied(tpot, np.asarray(world.baseline.interpolate("tpot_cv", load))),
        "tpot_n": n,
        "e2e": varied(e2e, np.asarray(world.baseline.interpolate("e2e_cv", load))),
        "e2e_n": n,
        "tokens": tokens,
        "load": varied(load, np.full(shape, 0.2)),
        "spread": _spread(scrapes, random),
        "gauged": scrapes,
        "running": _met(load, scrapes, random),
        "restarts": begins.astype(float),
        "targets": np.ones(shape),
        "up": np.ones(shape),
        "covered": scraped,
        "sampled": scraped,
    }
    means = ("acceptance", "tpot", "e2e", "tokens", "load", "spread", "running")
    for name in figures:
        figures[name] = np.where(nothing if name in means else unscraped, np.nan, figures[name])
    none = np.zeros(shape)
    figures |= {"bursts": _bursts(world, load), "missing": np.zeros(shape)}
    figures |= {"requests": answered, "failed": failed, "cancelled": none, "standard_failed": none}
    ts = start + world.interval_s * np.broadcast_to(np.arange(1, shape[1] + 1), shape)
    live = LiveFigures.from_mapping(figures | {"ts": ts})
    return LiveTrace(world.interval_s, live, _playbook(world, figures, random), np.full(shape, np.nan))


def _playbook(world: WeekConstants, figures: dict[str, Figures], random: np.random.Generator) -> Answers:
    """Return the playbook's guard, with rules that record its names. Its p95 is that of a normal spread, in
    buckets that are infinitely fine, and its baseline's that of the highest load: it is given the better of
    what it could have."""
    window = round(WINDOW_S / world.interval_s)
    acceptance = mean_of(figures["acceptance"], figures["drafted"], window)
    e2e = mean_of(figures["e2e"], figures["e2e_n"], window)
    top = world.baseline.levels[-1]
    wide = 1 + 1.645 * world.baseline.levels[0].whole_cv
    requests = np.nan_to_num(figures["e2e_n"]) * window
    noise = 2.1 * world.baseline.levels[0].whole_cv / wide / np.sqrt(np.maximum(requests, 1.0))
    longest = top.ttft + top.token * (world.tokens - 1)
    return Answers(
        acceptance=np.nan_to_num(acceptance, nan=0.0),
        p95=e2e * wide * (1 + noise * _normal(random, e2e.shape)),
        baseline_p95=np.full(e2e.shape, longest * wide),
    )


def _latencies(baseline: Baseline, load: Figures, gain: Figures, tokens: Figures) -> tuple[Figures, Figures]:
    """Mean TPOT and E2E with so many requests at a time; only the tokens after the first gain."""
    live = np.minimum(load + 1, baseline.most)  # of independent requests each meets one more than the mean
    tpot = np.asarray(baseline.tpot(live, live).low) * gain
    whole = np.asarray(baseline.e2e(live, live, tokens).low)
    first = np.asarray(baseline.e2e(live, live, np.ones_like(tokens)).low)
    return tpot, first + (whole - first) * gain


def _acceptance(world: WeekConstants, gain: Figures) -> Figures:
    """Return the acceptance that makes a step so much shorter than the tokens that it yields."""
    cost = 1 + world.k * world.break_even
    return np.clip((cost / gain - 1) / world.k, 0.02, 0.97)


def _traffic(world: WeekConstants, shape: tuple[int, int], random: np.random.Generator) -> Figures:
    """Requests at a time on one server, were it as fast as the standard."""
    if world.steady is not None:
        return np.full(shape, world.steady)
    days = np.arange(shape[1]) * world.interval_s / 86400 + random.uniform(0, 7, (shape[0], 1))
    day = 0.08 + 0.92 * np.sin(np.pi * (days % 1)) ** 2
    weekend = np.where(days % 7 >= 5, 0.5, 1.0)
    busy = BUSY * world.baseline.most * _uniform(random, *world.busy, shape[0])
    bursts = _slowly(random, shape, 0.25, 5 * 60 / world.interval_s)
    return np.asarray(busy * day * weekend * bursts)


Kind = tuple[float, float, float]
"""Spells a week, and how long they are in intervals, from … to."""


def _kinds(world: WeekConstants) -> tuple[Kind, Kind, Kind]:
    share, minute = world.length_s / WEEK_S, 60 / world.interval_s
    return (
        (2 * share * (world.steady is None), 10 * minute, 480 * minute),  # nobody asks
        (3 * share, 2 * minute, 6 * minute),  # a server starts, and is slow
        (world.both_slow * share, 10 * minute, 480 * minute),  # both pools are slow
    )


def _spells(
    shape: tuple[int, int], random: np.random.Generator, often: float, shortest: float, longest: float
) -> NDArray[np.bool_]:
    spells = np.zeros(shape, dtype=bool)
    for week, times in enumerate(random.poisson(often, shape[0])):
        for _ in range(times):
            begin = int(random.integers(0, shape[1]))
            length = float(np.exp(random.uniform(np.log(max(shortest, 1)), np.log(max(longest, 1.01)))))
            spells[week, begin : begin + max(round(length), 1)] = True
    return spells


def _slowly(random: np.random.Generator, shape: tuple[int, int], sd: float, over: float) -> Figures:
    """Around 1, by `sd`, much the same for about `over` intervals: straight lines between drawn points."""
    knots = int(np.ceil(shape[1] / max(over, 1))) + 2
    drawn = np.exp(sd * _normal(random, (shape[0], knots)))
    position = np.arange(shape[1]) / max(over, 1)
    left = position.astype(int)
    part = position - left
    return np.asarray(drawn[:, left] * (1 - part) + drawn[:, left + 1] * part)


def _uniform(random: np.random.Generator, low: float, high: float, count: int) -> Figures:
    return random.uniform(low, high, (count, 1))


def _normal(random: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.float32]:
    return random.standard_normal(shape, dtype=np.float32)
