"""From what was seen to a verdict on each signal: pure, for one window or for arrays of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from specops.guard.evaluation import Signal, Verdict
from specops.guard.seeing import noise
from specops.guard.seeing.baseline import Baseline, Missing, Range
from specops.guard.seeing.noise import BAD, HEALTHY, NO_DATA, NO_TRAFFIC, UNKNOWN, VERDICTS, Codes, Numbers
from specops.guard.seeing.plan import Plan
from specops.guard.seeing.query import OfClass, Seen
from specops.serving import Series

COVERED = 0.9
"""Of a window's scrapes: with fewer the window is no data. A gap in scraping looks like traffic that stopped,
and the first samples after it like a burst."""

STARTING = 0.1
"""Of the servers: were these half as slow again, all would be slower by 5%, which a margin has room for."""

FURTHER = (8, 64)
"""Windows that it looks back on where there is too little traffic: of five minutes, for 40 minutes or five
hours; at night, or at a canary step."""

DECIDING: tuple[Signal, ...] = ("acceptance", "tpot", "e2e")
"""That few requests fail does not show that speculation pays: errors alone are never healthy."""


@dataclass(frozen=True)
class Load:
    """Requests that a request meets on its server, itself among them: at least 1."""

    low: Numbers
    high: Numbers

    @property
    def middle(self) -> Numbers:
        return np.asarray((self.low + self.high) / 2)


@dataclass(frozen=True)
class Judged:
    """A signal. Of latencies, `low` and `high` are how many times the baseline's; else both are the value."""

    codes: Codes
    low: Numbers
    high: Numbers
    n: Numbers
    """Requests."""

    least: Numbers
    """Requests that a verdict takes."""

    known_to: Numbers
    limit: Numbers = np.nan
    """Of latencies: bad from there on."""

    surely: Numbers = np.nan
    """Of latencies: seen every time."""

    beside: Numbers = np.nan
    """Of latencies: the ratio to the baseline over the standard pool's in the same window, at least."""

    standard: Numbers = np.nan
    """Of latencies: how many times the baseline's the standard pool takes, at least."""

    standard_n: Numbers = np.nan
    """Requests that `standard` is of; NaN where there is no standard pool to compare with."""

    both_slow: NDArray[np.bool_] | bool = False
    """Slower than the baseline, as the standard pool surely is too, and not bad beside it."""


def load(seen: Seen) -> Load:
    """Moments with many requests are met by many: the mean that they see is the mean over time plus variance
    over mean. The variance is of few scrapes, and known to two standard errors of a variance at best."""
    scrapes = np.maximum(np.nan_to_num(seen.gauged, nan=1.0), 2.0)
    error = 2 * np.sqrt(2 / scrapes)
    unseen = np.isnan(seen.spread)  # no scrape met a request: between always one and now and then one
    low = np.where(unseen, 0.0, seen.spread * np.maximum(1 - error, 0.0))
    high = np.where(unseen, 1.0, seen.spread * (1 + error))
    return Load(np.maximum(seen.load + low, 1.0), np.maximum(seen.load + high, 1.0))


def starting(seen: Seen) -> NDArray[np.bool_]:
    """Whether so many of the servers started lately that the pool may be slow for that alone: the first
    minutes of a server are not what was measured, its caches are empty."""
    servers = np.maximum(np.nan_to_num(seen.targets, nan=1.0), 1.0)
    return np.asarray(np.nan_to_num(seen.restarts) > STARTING * servers)


def scraped(seen: Seen) -> NDArray[np.bool_]:
    """Whether the window was scraped well enough to count: `up`, and the series themselves."""
    return _enough(seen.covered) & _enough(seen.sampled)


def _enough(share: Numbers) -> NDArray[np.bool_]:
    return np.asarray(np.nan_to_num(share) >= COVERED - 1e-9)


def judge(plan: Plan, seen: Seen, *, repeats: bool = False) -> Mapping[Signal, Judged]:
    """All traffic. What there is no yardstick for is unknown once there is traffic enough to use one.

    `repeats`: the window has only what came after a bad one, and is to show the same in samples of its own:
    at 95%, with as few requests as any verdict takes, and by the baseline alone.
    """
    found: dict[Signal, Judged] = {
        "acceptance": _acceptance(plan, seen, repeats),
        "errors": _errors(plan, seen, repeats),
    }
    ours = load(seen)
    latencies: tuple[tuple[Signal, Numbers, Numbers], ...] = (
        ("tpot", seen.tpot, seen.tpot_n),
        ("e2e", seen.e2e, seen.e2e_n),
    )
    for signal, value, n in latencies:
        if isinstance(plan.baseline, Baseline):
            expected = _expected(plan.baseline, plan.asked.series, signal, seen)
            judged = _latency(plan, plan.baseline, signal, value, n, expected, ours, seen, repeats)
            found[signal] = judged if repeats else _beside_standard(plan, signal, judged, seen)
        else:
            found[signal] = _no_yardstick(n)
    unseen = ~scraped(seen)
    uncounted = ~_enough(seen.counted)
    return {
        signal: _without_data(judged, uncounted if signal == "errors" else unseen)
        for signal, judged in found.items()
    }


def _without_data(judged: Judged, gone: NDArray[np.bool_]) -> Judged:
    codes = np.where(gone, NO_DATA, judged.codes).astype(np.int8)
    return replace(judged, codes=codes, both_slow=np.asarray(judged.both_slow & ~gone))


def _expected(times: Baseline, series: Series, signal: str, seen: Seen) -> Range:
    """What the baseline took at the load of the pool that `seen` has the figures of."""
    ours = load(seen)
    if signal == "tpot":
        return times.tpot(ours.low, ours.high, of_tokens=series.tpot_of_events)
    return times.e2e(ours.low, ours.high, seen.tokens)


def _beside_standard(plan: Plan, signal: str, judged: Judged, seen: Seen) -> Judged:
    """Bad by the baseline counts only where the pool is bad beside the standard pool's live latency, too:
    where both are slower than they were measured, each at its own load, speculation is not the reason.

    Without a standard pool, or with one that had no request in the window, the baseline decides alone. Where
    it has requests, but too few to tell, or its samples are missing, the answer is unknown.
    """
    assert isinstance(plan.baseline, Baseline)
    theirs = seen.of_standard()
    value, n = (theirs.tpot, theirs.tpot_n) if signal == "tpot" else (theirs.e2e, theirs.e2e_n)
    expected = _expected(plan.baseline, plan.asked.standard, signal, theirs)
    with np.errstate(divide="ignore", invalid="ignore"):
        low, high = np.divide(value, expected.high), np.divide(value, expected.low)
        beside = np.divide(judged.low, high)
        both_n = 1 / (1 / np.asarray(judged.n, dtype=float) + 1 / np.asarray(n, dtype=float))
    cv, error = (plan.baseline.known(f"{signal}_{what}", load(theirs).middle) for what in ("cv", "error"))
    regression = plan.regression.value - 1
    answers = _enough(theirs.covered)
    there = ~np.isnan(theirs.covered) & ~(answers & np.isnan(theirs.sampled))
    whole = answers & _enough(theirs.sampled)
    quiet = whole & np.less(np.nan_to_num(n), 1.0)
    compared = there & whole & ~quiet & np.isfinite(beside)
    surely = compared & np.greater(beside, 1 + noise.margin(both_n, cv, 0.0, regression))
    slow = compared & np.greater(low - noise.margin(n, cv, error, regression), 1.0)
    open_ = (judged.codes == BAD) & there & ~quiet & ~surely
    codes = np.where(open_, UNKNOWN, judged.codes).astype(np.int8)
    return replace(
        judged,
        codes=codes,
        beside=np.where(compared, beside, np.nan),
        standard=np.where(compared, low, np.nan),
        standard_n=np.where(there & ~quiet, np.nan_to_num(n), np.nan),
        both_slow=np.asarray(open_ & slow),
    )


def judge_class(plan: Plan, name: str, seen: Seen, found: OfClass) -> Judged | None:
    """None where the baseline had no such class."""
    times = plan.baseline.of_class(name) if isinstance(plan.baseline, Baseline) else None
    if times is None:
        return None
    ours = load(seen)
    expected = times.as_answered(ours.low, ours.high)
    judged = _latency(plan, times, "whole", found.e2e, found.n, expected, ours, seen)
    return _without_data(judged, ~(scraped(seen) & _enough(seen.counted)))


def overall(found: Mapping[Signal, Codes], both_slow: NDArray[np.bool_] | bool = False) -> Codes:
    """Bad where one signal is. Else unknown where both pools are slow, since nothing shows then whether
    speculation pays; else no traffic where there was too little for one that decides, since healthy
    is what was judged by all that there is a yardstick for; then healthy where one is, unknown, no data."""
    deciding = [found[signal] for signal in DECIDING]

    def any_of(code: int) -> Codes:
        return np.any([codes == code for codes in deciding], axis=0)  # type: ignore[no-any-return]

    bad = any_of(BAD) | (found["errors"] == BAD)
    both = np.broadcast_to(np.asarray(both_slow), bad.shape)
    cases = [bad, both, any_of(NO_TRAFFIC), any_of(HEALTHY), any_of(UNKNOWN)]
    chosen = np.select(cases, [BAD, UNKNOWN, NO_TRAFFIC, HEALTHY, UNKNOWN], NO_DATA)
    return chosen.astype(np.int8)


def together(judged: Mapping[Signal, Judged]) -> Codes:
    """`overall` of what `judge` found."""
    codes = {signal: one.codes for signal, one in judged.items()}
    return overall(codes, both_slow(judged))


def both_slow(judged: Mapping[Signal, Judged]) -> NDArray[np.bool_]:
    """Whether one latency shows that both pools are slow."""
    return np.asarray(np.any([np.asarray(one.both_slow) for one in judged.values()], axis=0))


def further_back(found: Mapping[Signal, Judged]) -> NDArray[np.int_]:
    """How many windows to look back on, where one has too little traffic for a signal that decides and none
    is bad: the fewest of `FURTHER` that should suffice at this rate, else the most; 0 where none are needed,
    or there is no traffic at all."""
    needed = np.zeros_like(np.asarray(found["acceptance"].n, dtype=float))
    for signal in DECIDING:
        judged = found[signal]
        lacks = (judged.codes == NO_TRAFFIC) & np.greater(judged.n, 0)
        needed = np.where(lacks, np.maximum(needed, judged.least / np.maximum(judged.n, 1e-9)), needed)
    needed = np.where(together(found) == BAD, 0.0, needed)
    few, many = FURTHER
    return np.select([needed == 0, needed <= few], [0, few], many)


def word(codes: Codes) -> Verdict:
    return VERDICTS[int(codes)]


def _acceptance(plan: Plan, seen: Seen, repeats: bool = False) -> Judged:
    least = plan.min_requests or noise.least_for_acceptance()
    z = noise.Z
    if repeats:
        least, z = min(noise.LEAST, least), noise.AGAIN
    known_to = plan.break_even_known_to
    error = noise.acceptance_margin(seen.acceptance, seen.drafted, seen.finished, known_to, z)
    if isinstance(plan.min_acceptance, Missing):
        judged = _no_yardstick(seen.finished)
        return Judged(judged.codes, seen.acceptance, seen.acceptance, seen.finished, least, error)
    codes = noise.acceptance(
        seen.acceptance, seen.drafted, seen.finished, least, plan.min_acceptance.value, known_to, z
    )
    return Judged(codes, seen.acceptance, seen.acceptance, seen.finished, least, error)


def _errors(plan: Plan, seen: Seen, repeats: bool = False) -> Judged:
    """Where there is no other pool to compare with, clients that may have left are no errors."""
    limit = plan.max_error_share.value
    compared = np.greater_equal(seen.others_asked, noise.LEAST)
    failed = np.asarray(seen.failed - np.where(compared, 0.0, np.nan_to_num(seen.cancelled)))
    z = noise.AGAIN if repeats else noise.Z
    codes = noise.errors(failed, seen.asked, seen.others_failed, seen.others_asked, limit, z)
    share = failed / np.maximum(seen.asked, 1.0)
    return Judged(codes, share, share, seen.asked, noise.LEAST, 0.0)


def _latency(
    plan: Plan,
    times: Baseline,
    figure: str,
    value: Numbers,
    n: Numbers,
    expected: Range,
    ours: Load,
    seen: Seen,
    repeats: bool = False,
) -> Judged:
    cv, error = (times.known(f"{figure}_{what}", ours.middle) for what in ("cv", "error"))
    regression = plan.regression.value - 1
    z = noise.AGAIN if repeats else noise.Z
    known_to = noise.margin(n, cv, error, regression, z)
    limit = noise.bad_from(n, cv, error, regression, z)
    least = noise.least_requests(cv, error, regression)
    if plan.min_requests is not None:
        least = np.full_like(np.asarray(least), plan.min_requests)
    if repeats:
        least = np.minimum(least, noise.LEAST)
    with np.errstate(divide="ignore", invalid="ignore"):
        low, high = np.divide(value, expected.high), np.divide(value, expected.low)
    codes = noise.latency(low, high, n, least, limit)
    codes = np.where((codes == BAD) & starting(seen), UNKNOWN, codes).astype(np.int8)
    surely = noise.surely_seen(n, cv, error, regression)
    return Judged(codes, low, high, n, least, known_to, limit, surely)


def _no_yardstick(n: Numbers) -> Judged:
    cases = [np.isnan(n), np.less(n, noise.LEAST)]
    codes = np.select(cases, [NO_DATA, NO_TRAFFIC], UNKNOWN).astype(np.int8)
    nothing = np.full_like(np.asarray(n, dtype=float), np.nan)
    return Judged(codes, nothing, nothing, n, noise.LEAST, nothing)
