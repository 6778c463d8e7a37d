"""Verdicts on signals: from observations to a verdict on each signal; pure, for one window or for arrays of
them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from specops.guard.signals import noise
from specops.guard.signals.criteria import Baseline, Criteria, Missing, Range
from specops.guard.signals.noise import BAD, HEALTHY, NO_DATA, NO_TRAFFIC, UNKNOWN, VERDICTS, Codes, Numbers
from specops.guard.signals.query import LiveFigures
from specops.guard.signals.replicas import COVERED, TOO_MANY
from specops.guard.state import Signal, Verdict
from specops.serving import Series

MISSING = 0.5
"""Windows of the standard pool's samples that may be missing in a longer one: both pools may have been slow
in that time, and only one of them shows it."""

MOSTLY = 0.5
"""Share of a longer window's scrapes that may be missing where it shows no request of the standard pool."""

FASTEST = 0.5
"""Times the baseline's latency: the least that a pool that pays is taken to have had before it changed."""

MIXED = 0.25
"""Standard deviation over the mean, of requests of which some came before a fault of both pools began, and
some after. It may be twice that, for a part of one window."""

STARTING = 0.1
"""Share of the servers that may be starting: were these half as slow again, all would be slower by 5%, which
a margin has room for."""

FURTHER = (2, 4, 8, 16, 32, 64)
"""Windows to look back on where one has too little traffic: of five minutes, ten minutes to five hours."""

QUIET_OVER = 8
"""Windows without any request, at least, after which the standard pool has no traffic to compare with. One
window alone may have none by chance; see also `UNUSED`."""

UNUSED = 0.01
"""Requests of the standard pool for each of the speculative pool: with surely fewer it has no traffic to
compare with, and the baseline decides alone."""

ROOM = 1.5
"""A factor for the windows that would have enough requests, since there may have been fewer earlier."""

DECIDING: tuple[Signal, ...] = ("acceptance", "tpot", "e2e")
"""Signals whose verdict takes traffic of the pool's own: errors are counted by the router, too."""

HABIT = 0.15
"""Relative error to which the spread of the load over hours is known: a thousand scrapes, some of them of
another time of the day."""

UNMET = 0.5
"""Share of the requests at a time, by the time that they took, which the scrapes must have met. With surely
less, bursts came between them, and how many requests met each other is not known."""

LOAD_OVER = 4
"""Windows to look back on where the load is not known well enough: with four times the scrapes its spread is
known twice as well."""


@dataclass(frozen=True)
class LoadBounds:
    """Requests that a request meets on its server, itself among them: at least 1."""

    low: Numbers
    high: Numbers

    @property
    def middle(self) -> Numbers:
        return np.where(np.isinf(self.high), self.low, (self.low + self.high) / 2)


@dataclass(frozen=True)
class Judgement:
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
    """Limit of a latency: bad from there on."""

    surely: Numbers = np.nan
    """Ratio of a latency to the baseline that was reached every time."""

    beside: Numbers = np.nan
    """Ratio of a latency to the baseline over the standard pool's in the same window, at least."""

    standard: Numbers = np.nan
    """Ratio of the standard pool's latency to the baseline's, at least."""

    standard_n: Numbers = np.nan
    """Requests that `standard` is of; NaN where there is no standard pool to compare with."""

    windows: Numbers = 1.0
    """Number of windows that `beside` and `standard` are of, looked back on together."""

    beside_n: Numbers = np.nan
    """Requests of which the ratio `beside` is as well known as a mean is of so many."""

    beside_cv: Numbers = np.nan
    """Coefficient of variation of one of these: standard deviation over the mean."""

    slower: NDArray[np.bool_] | bool = False
    """Surely slower than the standard pool is, each over its own expected latency."""

    compare_over: Numbers = 0.0
    """Windows in which the standard pool should have traffic enough to compare with, where this one has too
    little to confirm a latency that is bad by the baseline; else 0."""

    both_slow: NDArray[np.bool_] | bool = False
    """Slower than the baseline, as the standard pool surely is too, and not bad beside it."""


NAMES: Mapping[Signal, str] = {
    "acceptance": "acceptance",
    "tpot": "TPOT",
    "e2e": "E2E",
    "errors": "errors",
    "drafting": "drafting",
}


def load(live: LiveFigures) -> LoadBounds:
    """Moments with many requests are met by many: the mean that they see is the mean over time plus variance
    over mean. A window's variance is of few scrapes, and known to two standard errors at best. Where it
    agrees with that of the last hours, the hours' is taken; else the load is anything that either of them
    allows."""
    scrapes = np.maximum(np.nan_to_num(live.gauged, nan=1.0), 2.0)
    error = 2 * np.sqrt(2 / scrapes)
    unseen = np.isnan(live.spread)  # no scrape met a request: between always one and now and then one
    low = np.where(unseen, 0.0, live.spread * np.maximum(1 - error, 0.0))
    high = np.where(unseen, 1.0, live.spread * (1 + error))
    hours = np.asarray(live.bursts, dtype=float)
    agree = (low <= hours) & (hours <= high)
    low = np.where(agree, hours * (1 - HABIT), np.fmin(low, hours))
    high = np.where(agree, hours * (1 + HABIT), np.fmax(high, hours))
    # By the time that requests took, so many would be met by the scrapes.
    expected = np.nan_to_num(live.load * scrapes)
    chance = 4 * np.sqrt(expected * (1 + high))
    unmet = expected - np.nan_to_num(live.running * scrapes, nan=np.inf) > np.maximum(
        chance, UNMET * expected
    )
    high = np.where(unmet, np.inf, high)
    return LoadBounds(np.maximum(live.load + low, 1.0), np.maximum(live.load + high, 1.0))


def starting(live: LiveFigures) -> NDArray[np.bool_]:
    """Return whether so many of the servers started lately that the pool may be slow for that alone: the
    first minutes of a server are not what was measured, its caches are empty."""
    servers = np.maximum(np.nan_to_num(live.targets, nan=1.0), 1.0)
    return np.asarray(np.nan_to_num(live.restarts) > STARTING * servers)


def scraped(live: LiveFigures) -> NDArray[np.bool_]:
    """Return whether the window was scraped well enough to count: `up`, and the series themselves."""
    return is_enough(live.covered) & is_enough(live.sampled)


def is_enough(share: Numbers, missing: float = 1 - COVERED) -> NDArray[np.bool_]:
    return np.asarray(np.nan_to_num(share) >= 1 - missing - 1e-9)


def too_many(live: LiveFigures) -> NDArray[np.bool_]:
    """Return whether there are more samples than the scrape interval makes. A window of few scrapes may have
    one more."""
    return np.asarray(np.fmax(live.covered, live.sampled) > TOO_MANY + 1e-9)


def judge(
    criteria: Criteria, live: LiveFigures, *, repeats: bool = False, windows: float = 1.0
) -> Mapping[Signal, Judgement]:
    """Return the judgement of each signal for all traffic, over `windows` windows. A signal without a
    reference is unknown if there is enough traffic to judge it, else no traffic.

    `repeats`: the window has only what came after a bad one, and is to show the same in samples of its own:
    at 95%, with as few requests as any verdict takes, and by the baseline alone.
    """
    judgements: dict[Signal, Judgement] = {
        "acceptance": _acceptance(criteria, live, repeats),
        "errors": _errors(criteria, live, repeats),
    }
    pool_load = load(live)
    standard = live.of_standard()
    standard_load = load(standard)
    latencies: tuple[tuple[Signal, Numbers, Numbers], ...] = (
        ("tpot", live.tpot, live.tpot_n),
        ("e2e", live.e2e, live.e2e_n),
    )
    for signal, value, n in latencies:
        if isinstance(criteria.baseline, Baseline):
            expected = _expected(criteria.baseline, criteria.query.series, signal, live, pool_load)
            judged = judge_latency(
                criteria, criteria.baseline, signal, value, n, expected, pool_load, live, repeats
            )
            if not repeats:
                judged = _beside_standard(criteria, signal, judged, standard, standard_load, windows)
            judgements[signal] = judged
        else:
            judgements[signal] = _no_reference(n)
    unseen = ~scraped(live) if repeats else ~scraped(live) | too_many(live)
    uncounted = ~is_enough(live.counted)
    return {
        signal: _without_data(judged, uncounted if signal == "errors" else unseen)
        for signal, judged in judgements.items()
    }


def recoded(judged: Judgement, code: int) -> Judgement:
    """The judgement with another code."""
    return replace(judged, codes=np.full_like(judged.codes, code))


def _without_data(judged: Judgement, gone: NDArray[np.bool_]) -> Judgement:
    return replace(
        judged,
        codes=np.where(gone, NO_DATA, judged.codes).astype(np.int8),
        slower=np.asarray(judged.slower & ~gone),
        compare_over=np.where(gone, 0.0, judged.compare_over),
        both_slow=np.asarray(judged.both_slow & ~gone),
    )


def _expected(
    times: Baseline, series: Series, signal: str, live: LiveFigures, pool_load: LoadBounds
) -> Range:
    """Return what the baseline took at the load of the pool that `live` has the figures of."""
    if signal == "tpot":
        return times.tpot(pool_load.low, pool_load.high, of_tokens=series.tpot_of_events)
    return times.e2e(pool_load.low, pool_load.high, live.tokens)


def _beside_standard(
    criteria: Criteria,
    signal: str,
    judged: Judgement,
    standard: LiveFigures,
    standard_load: LoadBounds,
    windows: float,
) -> Judgement:
    """Bad by the baseline counts only where the pool is bad beside the standard pool's live latency, too:
    where both are slower than they were measured, each at its own load, speculation is not the reason.

    Without a standard pool, or with one that had no request in the window, the baseline decides alone. Where
    it has requests, but too few to decide, or its samples are missing, the answer is unknown. `with_longer`
    decides where a longer window is there.
    """
    assert isinstance(criteria.baseline, Baseline)
    value, n = (standard.tpot, standard.tpot_n) if signal == "tpot" else (standard.e2e, standard.e2e_n)
    expected = _expected(criteria.baseline, criteria.query.standard, signal, standard, standard_load)
    with np.errstate(divide="ignore", invalid="ignore"):
        low, high = np.divide(value, expected.high), np.divide(value, expected.low)
        beside = np.divide(judged.low, high)
        both_n = 1 / (1 / np.asarray(judged.n, dtype=float) + 1 / np.asarray(n, dtype=float))
    cv, error = (
        criteria.baseline.interpolate(f"{signal}_{figure}", standard_load.middle)
        for figure in ("cv", "error")
    )
    regression = criteria.regression.value - 1
    missing = min(1 - COVERED, MISSING / windows)
    answers = is_enough(standard.covered, missing)
    present = ~np.isnan(standard.covered) & ~(answers & np.isnan(standard.sampled))
    whole = answers & is_enough(standard.sampled, missing)
    n = np.nan_to_num(n)
    quiet = np.less(n, 1.0) & (whole if windows <= 1 else present & is_enough(standard.covered, MOSTLY))
    comparable = present & whole & ~quiet & np.isfinite(beside)
    # Where both have just become slow, more of the one pool's few requests than of the other's may be slow.
    mixed = np.clip(np.nan_to_num(judged.low) - criteria.regression.value, 0.0, 2 * MIXED) / 2
    known_to = noise.margin(both_n, np.hypot(cv, mixed), 0.0, regression)
    surely = comparable & np.greater_equal(n, noise.LEAST) & np.greater(beside, 1 + known_to)
    slow = comparable & np.greater(low - noise.margin(n, cv, error, regression), 1.0)
    bad = (judged.codes == BAD) & present
    open_ = bad & ~quiet & ~surely
    least = noise.least_requests(cv, 0.0, regression)
    needed = _windows_to_compare(least, both_n, known_to, beside)
    with np.errstate(divide="ignore", invalid="ignore"):
        to_tell = ROOM * np.divide(noise.most_of(0.0), UNUSED * np.nan_to_num(judged.n))
    needed = np.where(quiet, np.maximum(to_tell, QUIET_OVER), needed)
    return replace(
        judged,
        codes=np.where(open_, UNKNOWN, judged.codes).astype(np.int8),
        beside=np.where(comparable, beside, np.nan),
        standard=np.where(comparable, low, np.nan),
        standard_n=np.where(present & ~quiet, n, np.nan),
        beside_n=both_n,
        beside_cv=cv,
        slower=np.asarray(surely),
        compare_over=np.where(bad & (quiet | (comparable & ~surely & ~slow)), needed, 0.0),
        both_slow=np.asarray(open_ & slow),
    )


def _windows_to_compare(least: Numbers, both_n: Numbers, known_to: Numbers, beside: Numbers) -> Numbers:
    """Windows after which what is observed `beside` the standard pool is surely observed, were it to stay;
    at most those with the minimum traffic."""
    with np.errstate(divide="ignore", invalid="ignore"):
        at_most = np.divide(least, both_n)
        windows = np.where(np.greater(beside, 1.0), np.square(known_to / (np.asarray(beside) - 1)), at_most)
    return np.asarray(np.maximum(np.fmin(windows, at_most), 1.0))


def with_longer(criteria: Criteria, short: Judgement, longer: Judgement, windows: float) -> Judgement:
    """Return what a window and a `longer` one, of so many `windows`, say together.

    The longer one replaces a window with too little traffic, or with too few scrapes to know the load. Where
    the standard pool has too little of it to confirm what is bad by the baseline, both pools are compared
    over the longer one, and the answer is:

    - bad where the speculative pool is surely slower there, and what the short window has of the standard
      pool does not contradict;
    - bad where the standard pool surely has less than `UNUSED` of the requests, and those that it has do not
      contradict; or none in the most windows that are looked back on. It has no traffic to compare with then;
    - else unknown; both slow where the longer window shows that.

    A fault of both pools that has just begun is in the same part of both longer windows. Few requests of the
    standard pool may miss that part by chance, which `_spread_over_time` allows for. A gap in the standard
    pool's samples could hide it, so little of them may be missing (`MISSING`).
    """
    few = (short.codes == NO_TRAFFIC) | (load_unknown(short) & np.isin(longer.codes, (HEALTHY, BAD)))
    compares = np.greater(np.where(few, longer.compare_over, short.compare_over), 0)
    compares |= few & (longer.codes == BAD) & np.asarray(longer.slower)
    agrees = np.less(short.n, noise.LEAST) | _may_be_slower(criteria, short)
    none = np.isnan(longer.standard_n)
    hardly_any = ~np.isnan(longer.standard) & agrees & _may_be_slower(criteria, longer)
    unused = np.less_equal(noise.most_of(np.nan_to_num(longer.standard_n)), UNUSED * longer.n)
    alone = (none | hardly_any) & (unused | (none & (windows >= FURTHER[-1])))
    stopped = ~few & np.isnan(short.beside)  # its requests of before were not of the same time
    spread = _spread_over_time(short, longer)
    slower = (longer.codes != NO_DATA) & _surely_slower(criteria, longer, spread)
    bad = alone | (slower & agrees & ~stopped)
    slow = ~bad & np.asarray(longer.both_slow)
    comparison = np.where(bad, BAD, UNKNOWN)
    return replace(
        short,
        codes=np.where(compares, comparison, np.where(few, longer.codes, short.codes)).astype(np.int8),
        both_slow=np.where(compares, slow, np.where(few, longer.both_slow, short.both_slow)),
        beside=np.where(compares, longer.beside, short.beside),
        standard=np.where(compares, longer.standard, short.standard),
        standard_n=np.where(compares, longer.standard_n, short.standard_n),
        windows=np.where(compares, windows, short.windows),
    )


def _spread_over_time(short: Judgement, longer: Judgement) -> Numbers:
    """Standard deviation over the mean of the longer window's latency over time, had it changed once, to what
    the short one has. The standard pool's few requests are of random moments of that time.

    Of a share p of the time at b and the rest at a, the mean m: (b - a)^2 p (1 - p) = (b - m) (m - a).
    """
    now, mean = np.asarray(short.low), np.asarray(longer.low)
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = np.sqrt(np.abs(now - mean) * np.maximum(mean - FASTEST, 0.0)) / mean
    return np.where(np.isfinite(spread), spread, 2 * MIXED)


def _surely_slower(criteria: Criteria, judged: Judgement, spread: Numbers) -> NDArray[np.bool_]:
    """Return whether the pool is slower than the standard pool beyond noise. Requests of a pool vary by
    `spread` over time, in addition to what they vary by in the baseline."""
    regression = criteria.regression.value - 1
    known_to = noise.margin(judged.beside_n, np.hypot(judged.beside_cv, spread), 0.0, regression)
    enough = np.greater_equal(np.nan_to_num(judged.standard_n), noise.LEAST)
    return np.asarray(enough & np.greater(judged.beside, 1 + known_to))


def _may_be_slower(criteria: Criteria, judged: Judgement) -> NDArray[np.bool_]:
    """Return whether it is slower than the standard pool by half the regression, or nothing was measured
    there."""
    halfway = 1 + (criteria.regression.value - 1) / 2
    return np.asarray(np.isnan(judged.beside) | np.greater(judged.beside, halfway))


def overall(
    codes_by_signal: Mapping[Signal, Codes],
    both_slow: NDArray[np.bool_] | bool = False,
    missing: Numbers = 0.0,
) -> Codes:
    """Bad where one signal is. Healthy where every signal is and no replica is `missing`. Else unknown where
    both pools are slow, since nothing shows then whether speculation pays; no data where a part has none; no
    traffic where there was too little for a signal; unknown."""
    codes = [codes_by_signal[signal] for signal in (*DECIDING, "errors")]

    def any_of(code: int) -> Codes:
        return np.any([signal == code for signal in codes], axis=0)  # type: ignore[no-any-return]

    bad = any_of(BAD)
    slow = np.broadcast_to(np.asarray(both_slow), bad.shape)
    gaps = any_of(NO_DATA) | (np.nan_to_num(missing) > 0)
    cases = [bad, slow, gaps, any_of(NO_TRAFFIC), any_of(UNKNOWN)]
    chosen = np.select(cases, [BAD, UNKNOWN, NO_DATA, NO_TRAFFIC, UNKNOWN], HEALTHY)
    return chosen.astype(np.int8)


def overall_verdict(judged: Mapping[Signal, Judgement], missing: Numbers = 0.0) -> Codes:
    """`overall` of what `judge` found."""
    codes = {signal: judgement.codes for signal, judgement in judged.items()}
    return overall(codes, both_slow(judged), missing)


def both_slow(judged: Mapping[Signal, Judgement]) -> NDArray[np.bool_]:
    """Return whether one latency shows that both pools are slow."""
    return np.asarray(np.any([np.asarray(judgement.both_slow) for judgement in judged.values()], axis=0))


def load_unknown(judged: Judgement) -> NDArray[np.bool_]:
    """Return whether a latency is bad at the lightest load that it may be of, and not at the heaviest."""
    straddles = np.less(judged.low, judged.limit) & np.greater_equal(judged.high, judged.limit)
    return np.asarray((judged.codes == UNKNOWN) & straddles & np.greater(judged.low, 0))


def windows_needed(judgements: Mapping[Signal, Judgement]) -> NDArray[np.int_]:
    """Return how many windows to look back on: the fewest of `FURTHER` that should suffice at this rate, else
    the most. 0 where none are needed, or there is no traffic at all.

    They are needed where one window has too little traffic for a signal that decides, or too few scrapes to
    know the load; or where the standard pool has too little to confirm a latency that is bad. No signal is
    bad without them.
    """
    own = np.zeros_like(np.asarray(judgements["acceptance"].n, dtype=float))
    to_compare = np.zeros_like(own)
    confirmed = {}
    for signal, judged in judgements.items():
        compares = np.greater(judged.compare_over, 0)
        confirmed[signal] = np.where(compares, UNKNOWN, judged.codes)
        to_compare = np.maximum(to_compare, judged.compare_over)
        if signal in DECIDING:
            lacks = (judged.codes == NO_TRAFFIC) & np.greater(judged.n, 0)
            needs = np.maximum(judged.least / np.maximum(judged.n, 1e-9), QUIET_OVER)
            own = np.maximum(own, np.where(lacks, needs, 0.0))
            own = np.maximum(own, np.where(load_unknown(judged), LOAD_OVER, 0.0))
    needed = np.where(overall(confirmed) == BAD, 0.0, np.maximum(own, to_compare))
    steps = [needed == 0, *(needed <= windows for windows in FURTHER)]
    return np.select(steps, [0, *FURTHER], FURTHER[-1])


def word(codes: Codes) -> Verdict:
    return VERDICTS[int(codes)]


def _acceptance(criteria: Criteria, live: LiveFigures, repeats: bool = False) -> Judgement:
    least = criteria.min_requests or noise.least_for_acceptance()
    z = noise.Z
    if repeats:
        least, z = min(noise.LEAST, least), noise.AGAIN
    known_to = criteria.break_even_known_to
    error = noise.acceptance_margin(live.acceptance, live.drafted, live.finished, known_to, z)
    if isinstance(criteria.min_acceptance, Missing):
        judged = _no_reference(live.finished)
        return Judgement(judged.codes, live.acceptance, live.acceptance, live.finished, least, error)
    codes = noise.acceptance(
        live.acceptance, live.drafted, live.finished, least, criteria.min_acceptance.value, known_to, z
    )
    return Judgement(codes, live.acceptance, live.acceptance, live.finished, least, error)


def _errors(criteria: Criteria, live: LiveFigures, repeats: bool = False) -> Judgement:
    """Return the signal for a pool that has no other to compare with: requests that clients may have ended
    are not errors."""
    limit = criteria.max_error_share.value
    has_standard = np.greater_equal(live.standard_requests, noise.LEAST)
    failed = np.asarray(live.failed - np.where(has_standard, 0.0, np.nan_to_num(live.cancelled)))
    z = noise.AGAIN if repeats else noise.Z
    codes = noise.errors(failed, live.requests, live.standard_failed, live.standard_requests, limit, z)
    share = failed / np.maximum(live.requests, 1.0)
    return Judgement(codes, share, share, live.requests, noise.LEAST, 0.0)


def judge_latency(
    criteria: Criteria,
    times: Baseline,
    figure: str,
    value: Numbers,
    n: Numbers,
    expected: Range,
    pool_load: LoadBounds,
    live: LiveFigures,
    repeats: bool = False,
) -> Judgement:
    cv, error = (times.interpolate(f"{figure}_{suffix}", pool_load.middle) for suffix in ("cv", "error"))
    regression = criteria.regression.value - 1
    z = noise.AGAIN if repeats else noise.Z
    known_to = noise.margin(n, cv, error, regression, z)
    limit = noise.bad_from(n, cv, error, regression, z)
    least = noise.least_requests(cv, error, regression)
    if criteria.min_requests is not None:
        least = np.full_like(np.asarray(least), criteria.min_requests)
    if repeats:
        least = np.minimum(least, noise.LEAST)
    with np.errstate(divide="ignore", invalid="ignore"):
        low, high = np.divide(value, expected.high), np.divide(value, expected.low)
    codes = noise.latency(low, high, n, least, limit)
    codes = np.where((codes == BAD) & starting(live), UNKNOWN, codes).astype(np.int8)
    surely = noise.detectable(n, cv, error, regression)
    return Judgement(codes, low, high, n, least, known_to, limit, surely)


def _no_reference(n: Numbers) -> Judgement:
    cases = [np.isnan(n), np.less(n, noise.LEAST)]
    codes = np.select(cases, [NO_DATA, NO_TRAFFIC], UNKNOWN).astype(np.int8)
    nothing = np.full_like(np.asarray(n, dtype=float), np.nan)
    return Judgement(codes, nothing, nothing, n, noise.LEAST, nothing)
