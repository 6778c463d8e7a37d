"""Parts of a pool that its means hide: a replica, a class of traffic, the slowest requests. Pure.

A part that is bad makes the pool *degraded*: it is no reason to take speculation off all traffic, and it is
never healthy.

**Replicas** are compared with the others of the same window, so that nothing of an earlier time is needed. A
slow server holds more requests at a time. It must not be excused by that load, so its yardstick is the load
that its requests would make at the speed of the others.

**Drafting.** A server that makes answers and drafts no token does not speculate. Its acceptance is unknown,
not low: the counters stand still.

**Classes.** Routers time a class and count no tokens. The pool's mean length of an answer says how much
longer those of one class can be at most: as long as if that class alone made all the difference. So a class
is bad where it is slow even for answers of that length, and healthy where it is not slow for those of the
baseline.

**The slowest requests.** A mean moves by little where one request in a hundred takes ten times as long.
Counted are those beyond the first bucket's bound from `SLOW` times the mean that the baseline expects.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from specops.guard.signals import noise, verdicts
from specops.guard.signals.criteria import Baseline, Criteria, Missing, Range
from specops.guard.signals.noise import NO_DATA, UNKNOWN, Numbers
from specops.guard.signals.query import STANDARD, Buckets, LiveFigures
from specops.guard.signals.replicas import Replica
from specops.guard.signals.verdicts import Judgement
from specops.guard.state import Signal, SignalFinding, Threshold

ANSWERS = 20
"""Answers of a server, of which some are drafted for wherever it speculates."""

APART = 1.3
"""Times the time that the other replicas take from which on a replica is bad. Their traffic differs a
little."""

ALIKE = 1.5
"""Requests of a replica over those of another, up to which they are taken to have the same load, where no
baseline says what more of them cost."""

WITHOUT_BASELINE_CV = 0.5
"""Standard deviation over the mean of a request's time per token, where no baseline has measured it."""

SLOW = 4.0
"""Times the expected mean from which on a request is one of the slowest."""

SLOWEST = 0.005
"""Share of requests that may be so slow in any pool."""


def drafting(criteria: Criteria, live: LiveFigures) -> Iterator[SignalFinding]:
    """A finding for each replica with enough answers; of the whole pool where none drafts."""
    late = criteria.query.series.drafts_come_late
    silent: list[str] = []
    flat = False
    judged = [
        (name, replica)
        for name, replica in live.replicas.items()
        if replica.whole and replica.finished >= ANSWERS
    ]
    for name, replica in judged:
        absent = math.isnan(replica.drafted)
        if replica.drafted > 0:
            continue
        silent.append(name)
        flat |= late or not absent
        problem = "no counter of drafts" if absent else "no token was drafted"
        tokens = "unknown" if math.isnan(replica.generated) else f"{replica.generated:.0f}"
        yield SignalFinding(
            signal="drafting",
            replica=name,
            verdict="bad" if late or not absent else "no_data",
            value=None if absent else 0.0,
            n=replica.finished,
            why=f"{name}: {problem} for {replica.finished:.0f} answers of {tokens} tokens",
        )
    if judged and len(silent) == len(judged):
        answers = math.fsum(replica.finished for _, replica in judged)
        ends = criteria.ends_speculation
        cause = f"; {ends} may have ended speculation for good: restart the servers" if ends else ""
        yield SignalFinding(
            signal="drafting",
            verdict="bad" if flat else "no_data",
            value=0.0 if flat else None,
            n=answers,
            why=f"drafting: no token was drafted for {answers:.0f} answers{cause}",
        )


def replicas(criteria: Criteria, live: LiveFigures, window_s: float) -> Iterator[SignalFinding]:
    """Findings of the replicas that are bad: slower than the others, or with too low an acceptance."""
    serving = {
        name: replica
        for name, replica in live.replicas.items()
        if replica.whole and replica.finished >= noise.LEAST
    }
    low = criteria.min_acceptance
    for name, replica in serving.items():
        least = criteria.min_requests or noise.least_for_acceptance()
        if not isinstance(low, Missing) and replica.drafted > 0 and len(live.replicas) > 1:
            acceptance = replica.accepted / replica.drafted
            judged = (acceptance, replica.drafted, replica.finished, least, low.value)
            if noise.acceptance(*judged, criteria.break_even_known_to) == noise.BAD:
                why = f"{name}: acceptance {acceptance:.2f} (threshold {low.value:.2f}, {low.source})"
                yield _of_replica(name, "acceptance", acceptance, low, replica.drafted, why)
    if live.restarts > 0:
        return  # the first minutes of a server are not what the others are
    signals: tuple[Signal, ...] = ("tpot", "e2e")
    for name, replica in serving.items():
        peers = [peer for peer_name, peer in serving.items() if peer_name != name]
        for signal in signals if peers else ():
            ratio, known_to = _beside(criteria, signal, replica, peers, window_s)
            limit = max(APART, 1 + known_to)
            if ratio >= limit:
                why = (
                    f"{name}: {verdicts.NAMES[signal]} {ratio:.2f}× ± {known_to:.2f} of the other"
                    f" {len(peers)} replicas' (threshold {limit:.2f}×, n={replica.finished:.0f})"
                )
                threshold = Threshold(value=APART, source="a default of specops")
                yield _of_replica(name, signal, ratio, threshold, replica.finished, why)


def _of_replica(
    name: str, signal: Signal, value: float, limit: Threshold, n: float, why: str
) -> SignalFinding:
    return SignalFinding(
        signal=signal, replica=name, verdict="bad", value=value, threshold=limit, n=n, why=why
    )


def _beside(
    criteria: Criteria, signal: Signal, replica: Replica, peers: list[Replica], window_s: float
) -> tuple[float, float]:
    """How many times the others' time a replica takes, each over what is expected at its load, and to how
    much that is known. NaN where they cannot be compared."""
    of_tokens = criteria.query.series.tpot_of_events
    rest_n = math.fsum(peer.finished for peer in peers)
    rest_e2e = math.fsum(peer.e2e_s for peer in peers) / max(math.fsum(peer.e2e_n for peer in peers), 1e-9)
    loads = [1 + n * rest_e2e / window_s for n in (replica.finished, rest_n / len(peers))]
    if signal == "tpot":
        weights = [peer.finished for peer in peers]
        rest = float(np.average([peer.tpot(of_tokens=of_tokens) for peer in peers], weights=weights))
        value = replica.tpot(of_tokens=of_tokens)
    else:
        value, rest = replica.e2e_s / max(replica.e2e_n, 1e-9), rest_e2e
    times, both_n = criteria.baseline, 1 / (1 / replica.finished + 1 / rest_n)
    if isinstance(times, Baseline):
        tokens = [
            replica.generated / replica.finished,
            math.fsum(peer.generated for peer in peers) / rest_n,
        ]
        first, token = (
            np.asarray(times.interpolate(figure, np.asarray(loads))) for figure in ("ttft", "token")
        )
        expected = token if signal == "tpot" else first + token * np.maximum(np.asarray(tokens) - 1, 0.0)
        cv = float(times.interpolate(f"{signal}_cv", loads[1]))
    elif signal == "tpot" and replica.finished <= ALIKE * rest_n / len(peers):
        expected, cv = np.ones(2), WITHOUT_BASELINE_CV
    else:
        return math.nan, math.nan
    ratio = value / rest * float(expected[1] / expected[0]) if rest > 0 else math.nan
    return ratio, float(noise.margin(both_n, cv, 0.0, criteria.regression.value - 1))


def slowest(criteria: Criteria, live: LiveFigures) -> Iterator[SignalFinding]:
    """A finding for each histogram of requests whose slowest ones can be judged."""
    if not isinstance(criteria.baseline, Baseline) or bool(verdicts.starting(live)):
        return
    signals: tuple[Signal, ...] = ("tpot", "e2e")
    for signal in signals:
        slow_share = _slow_share(criteria.baseline, live, signal)
        if slow_share is None:
            continue
        bound, share, n, standard_share, standard_n = slow_share
        surely = float(noise.wilson_low(share, n)) > SLOWEST
        if standard_n:
            spread = math.hypot(
                *(noise.error_of(*sample) for sample in ((share, n), (standard_share, standard_n)))
            )
            surely = surely and share - standard_share > noise.Z * float(spread)
        beside = f", {standard_share:.1%} of the standard pool's" if standard_n else ""
        yield SignalFinding(
            signal=signal,
            tail=True,
            verdict="bad" if surely else "healthy",
            value=share,
            threshold=Threshold(value=SLOWEST, source="a default of specops"),
            n=n,
            why=(
                f"{verdicts.NAMES[signal]} of the slowest: {share:.1%} of {n:.0f} requests took more than"
                f" {bound:g} s{beside} (threshold {SLOWEST:.1%}, {SLOW:g} times the expected mean)"
            ),
        )


def requests_for_slowest(criteria: Criteria, live: LiveFigures) -> float:
    """Requests with which a share of slow ones that may be too large is surely known; 0 where none may be."""
    if not isinstance(criteria.baseline, Baseline):
        return 0.0
    signals: tuple[Signal, ...] = ("tpot", "e2e")
    shares = [
        slow_share[1] for signal in signals if (slow_share := _slow_share(criteria.baseline, live, signal))
    ]
    share = max(shares, default=0.0)
    if share < 1.5 * SLOWEST:
        return 0.0
    return float(noise.Z**2 * share * (1 - share) / (share - SLOWEST) ** 2 + noise.LEAST)


def _slow_share(
    times: Baseline, live: LiveFigures, signal: Signal
) -> tuple[float, float, float, float, float] | None:
    """The bound in seconds, the share of requests beyond it, their number, and both of the standard pool (0
    requests where it has too few). None where they cannot be judged: of answers' lengths nothing is known but
    by a standard pool that has them, too."""
    pool_load = verdicts.load(live)
    if signal == "tpot":
        expected = times.tpot(pool_load.middle, pool_load.middle)
    else:
        expected = times.e2e(pool_load.middle, pool_load.middle, live.tokens)
    buckets, standard_buckets = live.buckets.get(signal, ()), live.buckets.get(f"{STANDARD}{signal}", ())
    least = SLOW * float(expected.high)
    bounds = [bound for bound, _ in buckets if least <= bound < math.inf]
    n, standard_n = _requests(buckets), _requests(standard_buckets)
    shared = [bound for bound in bounds if bound in dict(standard_buckets)]
    if standard_n < noise.LEAST or not shared:
        shared, standard_n = bounds, 0.0
    if not shared or n < noise.LEAST or (signal == "e2e" and not standard_n):
        return None
    bound = min(shared)
    slow = 1 - dict(buckets)[bound] / n
    standard_slow = 1 - dict(standard_buckets)[bound] / standard_n if standard_n else 0.0
    return bound, max(slow, 0.0), n, max(standard_slow, 0.0), standard_n


def _requests(buckets: Buckets) -> float:
    n = dict(buckets).get(math.inf, 0.0)
    return 0.0 if math.isnan(n) else n


def judge_class(criteria: Criteria, name: str, live: LiveFigures) -> Judgement | None:
    """Return the judgement on a class; None where the baseline had no such class."""
    times = criteria.baseline.of_class(name) if isinstance(criteria.baseline, Baseline) else None
    if times is None:
        return None
    figures, pool_load = live.classes[name], verdicts.load(live)
    shortest = _tokens(times, pool_load.middle)
    longest = np.fmax(shortest, _tokens_at_most(criteria.baseline, name, live, pool_load.middle))
    expected = Range(
        times.e2e(pool_load.low, pool_load.high, shortest).low,
        times.e2e(pool_load.low, pool_load.high, longest).high,
    )
    judged = verdicts.judge_latency(
        criteria, times, "whole", figures.e2e, figures.n, expected, pool_load, live
    )
    if figures.standard_n >= noise.LEAST:
        standard_load = verdicts.load(live.of_standard())
        beside = figures.standard_e2e / times.as_answered(standard_load.low, standard_load.high).high
        # Slow, or longer, on both pools: not speculation's doing.
        if beside > 1 + (criteria.regression.value - 1) / 2 and judged.codes == noise.BAD:
            judged = verdicts.recoded(judged, UNKNOWN)
    covered = bool(verdicts.scraped(live)) and bool(verdicts.is_enough(live.counted))
    return judged if covered else verdicts.recoded(judged, NO_DATA)


def _tokens(times: Baseline, load: Numbers) -> Numbers:
    """Mean tokens of an answer in the baseline."""
    first, token, e2e = (times.interpolate(figure, load) for figure in ("ttft", "token", "e2e"))
    return np.asarray((e2e - first) / token + 1)


def _tokens_at_most(baseline: Baseline | Missing, name: str, live: LiveFigures, load: Numbers) -> float:
    """Mean tokens of a class's answers, were all other classes' as long as in the baseline; those of classes
    that it did not have may be of any length. Infinite where the pool's mean is not known."""
    assert isinstance(baseline, Baseline)
    requests = {class_name: figures.n for class_name, figures in live.classes.items() if figures.n > 0}
    if math.isnan(float(live.tokens)) or name not in requests:
        return math.inf
    tokens = float(live.tokens) * math.fsum(float(n) for n in requests.values())
    for class_name, n in requests.items():
        times = baseline.of_class(class_name)
        if class_name != name and times is not None:
            tokens -= float(n) * float(_tokens(times, load))
    return tokens / float(requests[name])
