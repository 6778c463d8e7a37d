"""One evaluation of the deployment: queries Prometheus, judges the answer, and puts the result into words."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from specops.effect.estimate import Counters
from specops.effect.watch import slower_after
from specops.errors import EndpointError
from specops.guard.signals import noise, parts, verdicts
from specops.guard.signals.criteria import REACH, Baseline, Criteria, Missing
from specops.guard.signals.live_effect import (
    SIGNALS,
    decided_by_effect,
    read_effect,
    standings,
    with_effect,
)
from specops.guard.signals.query import LiveFigures, combine, read
from specops.guard.signals.replicas import COVERED, late_s, not_covered
from specops.guard.signals.verdicts import DECIDING, FURTHER, NAMES, Judgement, word
from specops.guard.state import Evaluation, Probe, Signal, SignalFinding, Threshold, Verdict
from specops.prometheus.api import Api

LISTED = 3
"""Replicas that a message names; the others are counted."""


@dataclass(frozen=True)
class BadRow:
    """Consecutive bad evaluations; times by Prometheus' clock."""

    began: float
    """Time of the first, where its window ends."""

    last: float
    """Time of the last that counted."""

    passed_s: float = math.inf
    """Seconds since the first, by this machine's clock: a replica of Prometheus may have another time."""

    def fresh_s(self, now: float, window_s: float) -> float:
        """Seconds since the first, of which the last that counted had at most half a window."""
        return min(now - self.began, now - self.last + window_s / 2, self.passed_s)


@dataclass(frozen=True)
class LiveWindow:
    seconds: float
    live: LiveFigures


def observe(
    api: Api, criteria: Criteria, now: float, since: float | None = None, row: BadRow | None = None
) -> Evaluation:
    """Evaluate the speculative pool at `now`, this machine's time.

    Where the last window has too little traffic for a signal, a longer one is used, but not beyond `since`,
    the time of the last change. In a `row` of bad evaluations the samples since its first are judged as well.
    Where samples come late, all windows end at the newest ones. Never raises: where Prometheus does not
    answer, the verdict is unknown."""
    began = time.perf_counter()
    waited_s = 0.0
    end: float | None = None

    def window_of(seconds: float) -> LiveWindow:
        nonlocal waited_s
        started = time.perf_counter()
        try:
            query = combine(criteria.query.expressions(seconds, seconds + criteria.window_s))
            return LiveWindow(seconds, read(api.instant(query, end), criteria.query, seconds))
        finally:
            waited_s += time.perf_counter() - started

    try:
        window, used_s = window_of(criteria.window_s), criteria.window_s
        late = late_s(window.live.replicas.values(), criteria.query.scrape_s)
        if late:
            end = float(window.live.ts) - late
            window = window_of(criteria.window_s)
        judged = verdicts.judge(criteria, window.live)
        counters = read_effect(api, criteria, end or float(window.live.ts), since)
        evaluation = evaluate(criteria, window.live, now, judged=judged, counters=counters)
        further = (
            windows_needed(criteria, window.live, judged) if since is not None and evaluation.findings else 0
        )
        longer = min(further * criteria.window_s, now - since) if since is not None else 0.0
        if longer > criteria.window_s:
            used_s = math.floor(longer)
            evaluation = evaluate(criteria, window.live, now, window_of(used_s), judged, counters)
        if evaluation.verdict == "bad" and row is not None:
            fresh_s = math.floor(row.fresh_s(float(window.live.ts), used_s))
            again = fresh_s > 0 and (
                still_slower(evaluation, counters, row.began)
                or repeated(criteria, evaluation, window_of(fresh_s).live)
            )
            evaluation = evaluation.model_copy(update={"repeated": again})
    except EndpointError as error:
        evaluation = Evaluation(ts=now, verdict="unknown", reason=error.message)
    took = time.perf_counter() - began
    return evaluation.model_copy(
        update={"took_ms": round(took * 1000, 3), "prometheus_ms": round(waited_s * 1000, 3)}
    )


def repeated(criteria: Criteria, evaluation: Evaluation, fresh: LiveFigures) -> bool:
    """Return whether a signal that is bad in `evaluation` is also bad in the `fresh` samples, which no
    earlier bad evaluation used."""
    again = verdicts.judge(criteria, fresh, repeats=True)
    bad = {finding.signal for finding in evaluation.whole if finding.verdict == "bad"} & again.keys()
    return any(word(again[signal].codes) == "bad" for signal in bad)


def still_slower(found: Evaluation, counters: Counters | str | None, began: float) -> bool:
    """Return whether a latency that the live effect has as slower was so after `began` as well, by the
    requests since then alone."""
    slower = [now.figure for now in found.effect if now.direction == "slower"]
    return isinstance(counters, Counters) and any(slower_after(counters, name, began) for name in slower)


def windows_needed(criteria: Criteria, live: LiveFigures, judged: Mapping[Signal, Judgement]) -> int:
    """Return how many windows have enough traffic where this one has too little, also to judge its slowest
    requests; 0 where it has enough. `judged`: `verdicts.judge` of this one."""
    needed = int(verdicts.windows_needed(judged))
    requests = parts.requests_for_slowest(criteria, live)
    windows = requests / max(float(np.nan_to_num(live.finished)), 1e-9)
    tail = next((step for step in FURTHER if step >= windows), FURTHER[-1]) if requests else 0
    return max(needed, tail if windows > 1 else 0)


def evaluate(
    criteria: Criteria,
    live: LiveFigures,
    now: float,
    longer: LiveWindow | None = None,
    judged: Mapping[Signal, Judgement] | None = None,
    counters: Counters | str | None = None,
) -> Evaluation:
    """Judge one window, and a `longer` one for signals with too little traffic in it. `judged`:
    `verdicts.judge` of the one window, where the caller has it. Where `counters`, of the live effect, decide
    on a latency, the baseline does not; text says why they could not be read."""
    clock_offset_s = float(live.ts) - now
    if abs(clock_offset_s) > criteria.window_s:
        side = "ahead of" if clock_offset_s > 0 else "behind"
        why = (
            f"Prometheus' clock is {abs(clock_offset_s):.0f} s {side} this machine's (threshold"
            f" {criteria.window_s:.0f} s): which samples are current is not known"
        )
        return Evaluation(ts=now, verdict="no_data", reason=why)
    short = LiveWindow(criteria.window_s, live)
    judged = dict(verdicts.judge(criteria, live) if judged is None else judged)
    window_by_signal = dict.fromkeys(judged, short)
    if longer is not None:
        windows = longer.seconds / criteria.window_s
        for signal, judgement in verdicts.judge(criteria, longer.live, windows=windows).items():
            merged = verdicts.with_longer(criteria, judged[signal], judgement, windows)
            if word(judged[signal].codes) == "no_traffic":
                merged, window_by_signal[signal] = (
                    replace(judgement, codes=merged.codes, both_slow=merged.both_slow),
                    longer,
                )
            judged[signal] = merged
    effect = standings(counters)
    judged |= {signal: decided_by_effect(judged[signal], of_effect) for signal, of_effect in effect.items()}
    verdict: Verdict = word(verdicts.overall_verdict(judged, live.missing))
    both_slow = verdict != "bad" and bool(verdicts.both_slow(judged))
    findings = [
        _finding(criteria, window_by_signal[signal], signal, judgement)
        for signal, judgement in judged.items()
    ]
    if criteria.holdout:
        unread = counters if isinstance(counters, str) else None
        findings = [
            with_effect(finding, effect.get(finding.signal), unread) if finding.signal in SIGNALS else finding
            for finding in findings
        ]
    missing = tuple(
        not_covered(
            live.replicas,
            criteria.query.series,
            criteria.window_s,
            criteria.query.scrape_s,
            criteria.query.servers,
        )
    )
    if live.routers < criteria.query.routers:
        scraped = f"{live.routers:.0f} of {criteria.query.routers} routers are scraped"
        missing = (*missing, scraped)
    if missing and verdict == "healthy":
        verdict = "no_data"
    reasons = [finding.why for finding in findings if finding.verdict == verdict]
    if verdict == "no_data":
        reasons = [_no_data(criteria, live, missing), *reasons]
    elif missing:
        reasons.append(f"not covered: {_listed(missing)}")
    if both_slow:
        reasons = ["both pools are slow, so speculation is not the cause", *reasons]
    of_parts = list(_parts(criteria, short, longer))
    bad_parts = [finding.why for finding in of_parts if finding.verdict == "bad"][::-1]
    if bad_parts and verdict != "bad" and not both_slow:
        reasons = bad_parts if verdict == "healthy" else [*bad_parts, *reasons]
        verdict = "degraded"
    if live.restarts > 0:
        reasons.append(f"{live.restarts:.0f} of its servers started within the last two windows")
    return Evaluation(
        ts=now,
        verdict=verdict,
        reason="; ".join(reasons),
        findings=(*findings, *of_parts),
        observed_at=float(live.ts),
        both_slow=both_slow,
        not_covered=missing,
        probe=_probe(criteria, live, judged),
        effect=tuple(effect.values()),
    )


def _probe(criteria: Criteria, live: LiveFigures, judged: Mapping[Signal, Judgement]) -> Probe | None:
    if not np.isfinite(live.eligible):
        return None
    rate = float(live.eligible) / criteria.window_s
    needed = [noise.LEAST, *(float(judged[signal].least) for signal in DECIDING)]
    least_share = 0.0
    if isinstance(criteria.baseline, Baseline):
        lightest = criteria.baseline.levels[0]
        servers = max(float(np.nan_to_num(live.targets)), 1.0)
        load = rate * lightest.e2e / servers  # by Little's law, were all of them to go there
        if lightest.streams > REACH:
            least_share = min(lightest.streams / REACH / max(load, 1e-9), 1.0)
    return Probe(eligible_per_s=rate, requests=max(needed), least_share=least_share)


def _parts(criteria: Criteria, short: LiveWindow, longer: LiveWindow | None) -> Iterator[SignalFinding]:
    """Findings of parts. The slowest requests and silent replicas take many requests: those of the longer
    window, where there is one."""
    widest = longer or short
    yield from parts.drafting(criteria, widest.live)
    yield from parts.replicas(criteria, short.live, short.seconds)
    yield from parts.slowest(criteria, widest.live)
    yield from _classes(criteria, short, longer)


def _classes(criteria: Criteria, short: LiveWindow, longer: LiveWindow | None) -> Iterator[SignalFinding]:
    for name in short.live.classes:
        window, judged = short, parts.judge_class(criteria, name, short.live)
        if judged is None:
            continue
        if longer is not None and name in longer.live.classes and word(judged.codes) == "no_traffic":
            back = parts.judge_class(criteria, name, longer.live)
            window, judged = longer, back or judged
        finding = _finding(criteria, window, "e2e", judged)
        yield finding.model_copy(update={"traffic_class": name, "why": f"{name}: {finding.why}"})


def _finding(criteria: Criteria, window: LiveWindow, signal: Signal, judged: Judgement) -> SignalFinding:
    verdict = word(judged.codes)
    threshold: Threshold | Missing = criteria.regression
    if isinstance(criteria.baseline, Missing):
        threshold = criteria.baseline
    if signal == "acceptance":
        threshold = criteria.min_acceptance
    elif signal == "errors":
        threshold = criteria.max_error_share
    low, high = float(judged.low), float(judged.high)
    return SignalFinding(
        signal=signal,
        verdict=verdict,
        value=None if low == 0 < high or math.isinf(high) else _number((low + high) / 2),
        threshold=None if isinstance(threshold, Missing) else threshold,
        n=_number(float(window.live.drafted if signal == "acceptance" else judged.n)),
        why=_why(criteria, window, signal, verdict, judged),
    )


def _why(criteria: Criteria, window: LiveWindow, signal: Signal, verdict: Verdict, judged: Judgement) -> str:
    name, live = NAMES[signal], window.live
    n = float(judged.n)
    match verdict:
        case "no_data":
            return f"{name}: no data"
        case "no_traffic":
            needed = f"a verdict needs {float(judged.least):.0f}"
            return f"{name}: {n:.0f} requests in {window.seconds:.0f} s, {needed}"
        case "unknown":
            return f"{name}: {_unknown(criteria, live, signal, judged)}"
    match signal:
        case "acceptance":
            assert isinstance(criteria.min_acceptance, Threshold)
            threshold = f"threshold {criteria.min_acceptance.value:.2f}, {criteria.min_acceptance.source}"
            return f"acceptance {float(judged.low):.2f} ± {float(judged.known_to):.2f} ({threshold})"
        case "errors":
            threshold = f"threshold {criteria.max_error_share.value:.1%}, {criteria.max_error_share.source}"
            return f"{float(judged.low):.1%} of {n:.0f} requests failed ({threshold})"
    ratio = _ratio(judged)
    assert isinstance(criteria.baseline, Baseline)
    known_to, limit = float(judged.known_to), float(judged.limit)
    surely = float(judged.surely)
    # The baseline may be known too badly for what the rollout file allows.
    wide = surely > criteria.regression.value + 0.01
    blind = f"; with this baseline only {surely:.2f}× and more is detectable" if wide else ""
    return (
        f"{name} {ratio}× ± {known_to:.2f} of that without speculation (threshold {limit:.2f}×,"
        f" {criteria.baseline.source} at {_load(live)} per server){blind}"
        f"{_confirmed(judged) if verdict == 'bad' else ''}"
    )


def _confirmed(judged: Judgement) -> str:
    """Return how the standard pool confirmed it, where that took more than one window."""
    beside, n, windows = float(judged.beside), float(judged.standard_n), float(judged.windows)
    if windows <= 1 or math.isnan(beside):
        return ""
    return f"; {beside:.2f}× the standard pool over {windows:.0f} windows (n={n:.0f})"


def _unknown(criteria: Criteria, live: LiveFigures, signal: Signal, judged: Judgement) -> str:
    missing = criteria.min_acceptance if signal == "acceptance" else criteria.baseline
    if isinstance(missing, Missing):
        return missing.why
    if signal == "acceptance":
        return f"unknown, no token was drafted for {float(judged.n):.0f} requests"
    times = criteria.baseline
    assert isinstance(times, Baseline)
    pool_load = verdicts.load(live)
    lightest, heaviest = times.levels[0].streams / REACH, times.most * REACH
    if float(pool_load.high) > heaviest or float(pool_load.low) < lightest:
        between = f"{times.levels[0].streams:.0f} to {times.most:.0f} streams"
        return f"load {_load(live)} per server; the baseline was measured at {between}"
    if bool(verdicts.starting(live)):
        return f"{_ratio(judged)}× the baseline, but servers have just started"
    if not math.isnan(float(judged.standard_n)):
        return f"{_ratio(judged)}× the baseline; {_standard(judged)}"
    return f"{_ratio(judged)}× the baseline: the load is not known well enough"


def _standard(judged: Judgement) -> str:
    n, times = float(judged.standard_n), float(judged.standard)
    if math.isnan(times):
        return (
            "not compared with the standard pool, which has missing samples or a load that was not measured"
        )
    over = f" in {windows:.0f} windows" if (windows := float(judged.windows)) > 1 else ""
    takes = f"the standard pool takes {times:.2f}× its own baseline (n={n:.0f}{over})"
    return (
        takes
        if bool(judged.both_slow)
        else f"{takes}, too few requests to decide whether both pools are slow"
    )


def _no_data(criteria: Criteria, live: LiveFigures, missing: Sequence[str]) -> str:
    if bool(verdicts.too_many(live)):
        most = max(float(np.nan_to_num(share)) for share in (live.covered, live.sampled))
        return (
            f"{most:.1f}× the expected samples (one every {criteria.query.scrape_s:g} s): set"
            " monitor.scrape_interval_s to the scrape interval of Prometheus; otherwise gaps are not detected"
        )
    if math.isnan(live.targets):
        return "Prometheus has no target of the speculative pool with the labels of monitor"
    if live.up == 0:
        return f"none of the {live.targets:.0f} targets of the speculative pool answers Prometheus"
    if missing:
        return f"not covered: {_listed(missing)}"
    if not bool(verdicts.is_enough(live.counted)):
        return (
            f"{float(np.nan_to_num(live.counted)):.0%} of the samples that count failed requests are there"
            f" for the last {criteria.window_s:.0f} s (threshold {COVERED:.0%})"
        )
    gone = [
        series
        for value, series in (
            (live.finished, criteria.query.series.finished),
            (live.e2e_n, f"{criteria.query.series.e2e}_count"),
            (live.e2e, f"{criteria.query.series.e2e}_sum"),
            (live.tpot, criteria.query.series.tpot_seconds),
            (live.drafted, "the counters of drafts"),
        )
        if math.isnan(value)
    ]
    series = ", ".join(gone) or "usable value of their series"
    return f"the targets are up, but Prometheus has no {series}: specops monitor check ROLLOUT"


def _listed(missing: Sequence[str]) -> str:
    more = f"; and {len(missing) - LISTED} more" if len(missing) > LISTED else ""
    return "; ".join(missing[:LISTED]) + more


def _ratio(judged: Judgement) -> str:
    low, high = float(judged.low), float(judged.high)
    if math.isinf(high):
        return f"at least {low:.2f}"
    if low == 0:
        return f"at most {high:.2f}"
    return f"{low:.2f}" if high - low < 0.01 else f"{low:.2f} to {high:.2f}"


def _load(live: LiveFigures) -> str:
    pool_load = verdicts.load(live)
    low, high = float(pool_load.low), float(pool_load.high)
    return f"{low:.1f} requests" if high - low < 0.1 else f"{low:.1f} to {high:.1f} requests"


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None
