"""From what was seen to a verdict on each signal: pure, for one window or for arrays of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specops.guard.evaluation import Signal, Verdict
from specops.guard.seeing import noise
from specops.guard.seeing.baseline import Baseline, Missing, Range
from specops.guard.seeing.noise import BAD, HEALTHY, NO_DATA, NO_TRAFFIC, UNKNOWN, VERDICTS, Codes, Numbers
from specops.guard.seeing.plan import Plan
from specops.guard.seeing.query import OfClass, Seen

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


def judge(plan: Plan, seen: Seen) -> Mapping[Signal, Judged]:
    """All traffic. What there is no yardstick for is unknown once there is traffic enough to use one."""
    found = {"acceptance": _acceptance(plan, seen), "errors": _errors(plan, seen)}
    ours = load(seen)
    for signal, value, n in (("tpot", seen.tpot, seen.tpot_n), ("e2e", seen.e2e, seen.e2e_n)):
        if isinstance(plan.baseline, Baseline):
            times = plan.baseline
            expected = (
                times.tpot(ours.low, ours.high, of_tokens=plan.asked.series.tpot_of_events)
                if signal == "tpot"
                else times.e2e(ours.low, ours.high, seen.tokens)
            )
            found[signal] = _latency(plan, times, signal, value, n, expected, ours, seen)
        else:
            found[signal] = _no_yardstick(n)
    return found  # type: ignore[return-value]


def judge_class(plan: Plan, name: str, seen: Seen, found: OfClass) -> Judged | None:
    """None where the baseline had no such class."""
    times = plan.baseline.of_class(name) if isinstance(plan.baseline, Baseline) else None
    if times is None:
        return None
    ours = load(seen)
    expected = times.as_answered(ours.low, ours.high)
    return _latency(plan, times, "whole", found.e2e, found.n, expected, ours, seen)


def overall(found: Mapping[Signal, Codes]) -> Codes:
    """Bad where one signal is. Else no traffic where there was too little for one that decides, since healthy
    is what was judged by all that there is a yardstick for; then healthy where one is, unknown, no data."""
    deciding = [found[signal] for signal in DECIDING]

    def any_of(code: int) -> Codes:
        return np.any([codes == code for codes in deciding], axis=0)  # type: ignore[no-any-return]

    bad = any_of(BAD) | (found["errors"] == BAD)
    cases = [bad, any_of(NO_TRAFFIC), any_of(HEALTHY), any_of(UNKNOWN)]
    chosen = np.select(cases, [BAD, NO_TRAFFIC, HEALTHY, UNKNOWN], NO_DATA)
    return chosen.astype(np.int8)


def further_back(found: Mapping[Signal, Judged]) -> NDArray[np.int_]:
    """How many windows to look back on, where one has too little traffic for a signal that decides and none
    is bad: the fewest of `FURTHER` that should suffice at this rate, else the most; 0 where none are needed,
    or there is no traffic at all."""
    needed = np.zeros_like(np.asarray(found["acceptance"].n, dtype=float))
    for signal in DECIDING:
        judged = found[signal]
        lacks = (judged.codes == NO_TRAFFIC) & np.greater(judged.n, 0)
        needed = np.where(lacks, np.maximum(needed, judged.least / np.maximum(judged.n, 1e-9)), needed)
    needed = np.where(overall({signal: one.codes for signal, one in found.items()}) == BAD, 0.0, needed)
    few, many = FURTHER
    return np.select([needed == 0, needed <= few], [0, few], many)


def word(codes: Codes) -> Verdict:
    return VERDICTS[int(codes)]


def _acceptance(plan: Plan, seen: Seen) -> Judged:
    least = plan.min_requests or noise.least_for_acceptance()
    known_to = plan.break_even_known_to
    error = noise.acceptance_margin(seen.acceptance, seen.drafted, seen.finished, known_to)
    if isinstance(plan.min_acceptance, Missing):
        judged = _no_yardstick(seen.finished)
        return Judged(judged.codes, seen.acceptance, seen.acceptance, seen.finished, least, error)
    codes = noise.acceptance(
        seen.acceptance, seen.drafted, seen.finished, least, plan.min_acceptance.value, known_to
    )
    return Judged(codes, seen.acceptance, seen.acceptance, seen.finished, least, error)


def _errors(plan: Plan, seen: Seen) -> Judged:
    """Where there is no other pool to compare with, clients that may have left are no errors."""
    limit = plan.max_error_share.value
    compared = np.greater_equal(seen.others_asked, noise.LEAST)
    failed = np.asarray(seen.failed - np.where(compared, 0.0, np.nan_to_num(seen.cancelled)))
    codes = noise.errors(failed, seen.asked, seen.others_failed, seen.others_asked, limit)
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
) -> Judged:
    cv, error = (times.known(f"{figure}_{what}", ours.middle) for what in ("cv", "error"))
    regression = plan.regression.value - 1
    known_to = noise.margin(n, cv, error, regression)
    limit = noise.bad_from(n, cv, error, regression)
    least = noise.least_requests(cv, error, regression)
    if plan.min_requests is not None:
        least = np.full_like(np.asarray(least), plan.min_requests)
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
