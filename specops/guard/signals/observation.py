"""One look at the deployment: asked, judged, and put into words."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from specops.errors import EndpointError
from specops.guard.signals import verdicts
from specops.guard.signals.criteria import REACH, Baseline, Missing, Plan
from specops.guard.signals.query import Seen, read, together
from specops.guard.signals.verdicts import Judged, word
from specops.guard.state import Evaluation, Finding, Signal, Threshold, Verdict
from specops.prometheus.api import Api

NAMES = {"acceptance": "acceptance", "tpot": "TPOT", "e2e": "E2E", "errors": "errors"}


@dataclass(frozen=True)
class Row:
    """Bad evaluations, one after the other; instants by Prometheus' clock."""

    began: float
    """When the first was made: its window ends there."""

    last: float
    """When the last that counted was made."""

    def fresh_s(self, now: float, window_s: float) -> float:
        """Seconds that came since the first, of which at most half a window was in the last that counted."""
        return min(now - self.began, now - self.last + window_s / 2)


@dataclass(frozen=True)
class Window:
    seconds: float
    seen: Seen


def look(api: Api, plan: Plan, now: float, since: float | None = None, row: Row | None = None) -> Evaluation:
    """What Prometheus has of the speculative pool at `now`, this machine's time.

    Where the last window has too little traffic for a signal, it looks further back, but not beyond `since`:
    when what is served came to be what it is, as far as the guard knows. In a `row` of bad evaluations it
    looks as well at what came since the first. Never raises: where Prometheus does not answer, it is unknown.
    """
    began = time.perf_counter()
    asking = 0.0

    def ask(seconds: float) -> Window:
        nonlocal asking
        asked_at = time.perf_counter()
        try:
            query = together(plan.asked.expressions(seconds, seconds + plan.window_s))
            return Window(seconds, read(api.instant(query)))
        finally:
            asking += time.perf_counter() - asked_at

    try:
        window, used_s = ask(plan.window_s), plan.window_s
        found = evaluate(plan, window.seen, now)
        further = further_back(plan, window.seen) if since is not None and found.findings else 0
        longer = min(further * plan.window_s, now - since) if since is not None else 0.0
        if longer > plan.window_s:
            used_s = math.floor(longer)
            found = evaluate(plan, window.seen, now, ask(used_s))
        if found.verdict == "bad" and row is not None:
            fresh_s = math.floor(row.fresh_s(float(window.seen.ts), used_s))
            again = fresh_s > 0 and repeated(plan, found, ask(fresh_s).seen)
            found = found.model_copy(update={"repeated": again})
    except EndpointError as error:
        found = Evaluation(ts=now, verdict="unknown", reason=error.message)
    took = time.perf_counter() - began
    return found.model_copy(
        update={"took_ms": round(took * 1000, 3), "prometheus_ms": round(asking * 1000, 3)}
    )


def repeated(plan: Plan, found: Evaluation, fresh: Seen) -> bool:
    """Whether a signal that `found` has as bad is bad in the `fresh` samples, too, which no bad evaluation
    before it had."""
    again = verdicts.judge(plan, fresh, repeats=True)
    bad = {one.signal for one in found.findings if one.verdict == "bad" and one.traffic_class is None}
    return any(word(again[signal].codes) == "bad" for signal in bad)


def further_back(plan: Plan, seen: Seen) -> int:
    """Windows that have traffic enough for what this one has too little for; 0 where it suffices."""
    return int(verdicts.further_back(verdicts.judge(plan, seen)))


def evaluate(plan: Plan, seen: Seen, now: float, longer: Window | None = None) -> Evaluation:
    """What the plan's window shows, and a `longer` one of signals that it has too little traffic for."""
    apart = float(seen.ts) - now
    if abs(apart) > plan.window_s:
        side = "ahead of" if apart > 0 else "behind"
        why = (
            f"Prometheus' clock is {abs(apart):.0f} s {side} this machine's: one of them is wrong, and which"
            " samples are of now is not known"
        )
        return Evaluation(ts=now, verdict="no_data", reason=why)
    short = Window(plan.window_s, seen)
    judged = dict(verdicts.judge(plan, seen))
    of = dict.fromkeys(judged, short)
    if longer is not None:
        windows = longer.seconds / plan.window_s
        for signal, found in verdicts.judge(plan, longer.seen, windows=windows).items():
            both = verdicts.with_longer(plan, judged[signal], found, windows)
            if word(judged[signal].codes) == "no_traffic":
                both, of[signal] = replace(found, codes=both.codes, both_slow=both.both_slow), longer
            judged[signal] = both
    verdict = word(verdicts.together(judged))
    both_slow = verdict != "bad" and bool(verdicts.both_slow(judged))
    findings = [_finding(plan, of[signal], signal, found) for signal, found in judged.items()]
    told = [found.why for found in findings if found.verdict == verdict]
    if verdict == "no_data":
        told = [_no_data(plan, seen)]
    if both_slow:
        told = ["both pools are slow: not speculation's doing", *told]
    if seen.restarts > 0:
        told.append(f"{seen.restarts:.0f} of its servers started lately")
    findings += _classes(plan, short, longer)
    return Evaluation(
        ts=now,
        verdict=verdict,
        reason="; ".join(told),
        findings=tuple(findings),
        observed_at=float(seen.ts),
        both_slow=both_slow,
    )


def _classes(plan: Plan, short: Window, longer: Window | None) -> Iterator[Finding]:
    for name, found in short.seen.classes.items():
        window, judged = short, verdicts.judge_class(plan, name, short.seen, found)
        if judged is None:
            continue
        if longer is not None and name in longer.seen.classes and word(judged.codes) == "no_traffic":
            back = verdicts.judge_class(plan, name, longer.seen, longer.seen.classes[name])
            window, judged = longer, back or judged
        finding = _finding(plan, window, "e2e", judged)
        why = f"{name}: {finding.why}, at whatever length its answers have"
        yield finding.model_copy(update={"traffic_class": name, "why": why})


def _finding(plan: Plan, window: Window, signal: Signal, judged: Judged) -> Finding:
    verdict = word(judged.codes)
    threshold: Threshold | Missing = plan.regression
    if signal == "acceptance":
        threshold = plan.min_acceptance
    elif signal == "errors":
        threshold = plan.max_error_share
    low, high = float(judged.low), float(judged.high)
    return Finding(
        signal=signal,
        verdict=verdict,
        value=None if low == 0 < high else _number((low + high) / 2),
        threshold=None if isinstance(threshold, Missing) else threshold,
        n=_number(float(window.seen.drafted if signal == "acceptance" else judged.n)),
        why=_why(plan, window, signal, verdict, judged),
    )


def _why(plan: Plan, window: Window, signal: Signal, verdict: Verdict, judged: Judged) -> str:
    name, seen = NAMES[signal], window.seen
    n = float(judged.n)
    match verdict:
        case "no_data":
            return f"no data of {name}"
        case "no_traffic":
            takes = f"{float(judged.least):.0f} requests that a verdict takes"
            return f"{name}: {n:.0f} of the {takes}, in {window.seconds:.0f} s"
        case "unknown":
            return f"{name}: {_unknown(plan, seen, signal, judged)}"
    match signal:
        case "acceptance":
            assert isinstance(plan.min_acceptance, Threshold)
            than = f"{plan.min_acceptance.value:.2f} ({plan.min_acceptance.source})"
            return f"acceptance {float(judged.low):.2f} ± {float(judged.known_to):.2f}, to be {than}"
        case "errors":
            allowed = f"{plan.max_error_share.value:.1%} ({plan.max_error_share.source})"
            return f"{float(judged.low):.1%} of {n:.0f} requests failed, allowed {allowed}"
    ratio = _ratio(judged)
    assert isinstance(plan.baseline, Baseline)
    known_to, limit = float(judged.known_to), float(judged.limit)
    surely = float(judged.surely)
    # Where the baseline is known too badly for what the rollout file asks.
    blind = f"; only {surely:.2f} and more is detectable" if surely > plan.regression.value + 0.01 else ""
    return (
        f"{name} is {ratio} ± {known_to:.2f} times that without speculation"
        f" ({plan.baseline.source}, at {_load(seen)} a server), bad from {limit:.2f} on{blind}"
        f"{_confirmed(judged) if verdict == 'bad' else ''}"
    )


def _confirmed(judged: Judged) -> str:
    """By the standard pool over more than one window, where that was needed."""
    beside, n, windows = float(judged.beside), float(judged.standard_n), float(judged.windows)
    if windows <= 1 or math.isnan(beside):
        return ""
    return f"; {beside:.2f} times the standard pool's over {windows:.0f} windows (n={n:.0f})"


def _unknown(plan: Plan, seen: Seen, signal: Signal, judged: Judged) -> str:
    missing = plan.min_acceptance if signal == "acceptance" else plan.baseline
    if isinstance(missing, Missing):
        return missing.why
    times = plan.baseline
    assert isinstance(times, Baseline)
    ours = verdicts.load(seen)
    lightest, heaviest = times.levels[0].streams / REACH, times.most * REACH
    if float(ours.high) > heaviest or float(ours.low) < lightest:
        between = f"{times.levels[0].streams:.0f} to {times.most:.0f}"
        return f"a server has {_load(seen)} at a time, and the baseline was measured with {between}"
    if bool(verdicts.starting(seen)):
        return f"{_ratio(judged)} times the baseline's, but servers started lately"
    if not math.isnan(float(judged.standard_n)):
        return f"{_ratio(judged)} times the baseline's; {_standard(judged)}"
    return f"{_ratio(judged)} times the baseline's, as far as the load is known"


def _standard(judged: Judged) -> str:
    n, times = float(judged.standard_n), float(judged.standard)
    if math.isnan(times):
        return (
            "the standard pool has samples missing, or a load that was not measured, so it cannot be compared"
        )
    over = f" in {windows:.0f} windows" if (windows := float(judged.windows)) > 1 else ""
    takes = f"the standard pool takes {times:.2f} times its own (n={n:.0f}{over})"
    return takes if bool(judged.both_slow) else f"{takes}, too few to tell whether both pools are slow"


def _no_data(plan: Plan, seen: Seen) -> str:
    share = min(float(np.nan_to_num(seen.covered)), float(np.nan_to_num(seen.sampled)))
    if seen.up > 0 and share > 0:
        return (
            f"{share:.0%} of the scrapes of the last {plan.window_s:.0f} s are there (threshold"
            f" {verdicts.COVERED:.0%}, one every {plan.asked.scrape_s:g} s)"
        )
    if math.isnan(seen.targets):
        return "Prometheus has no target of the speculative pool: is it scraped, with the labels of monitor?"
    if seen.up == 0:
        return f"no target of the speculative pool answers Prometheus, of {seen.targets:.0f}"
    gone = [
        series
        for value, series in (
            (seen.finished, plan.asked.series.finished),
            (seen.e2e_n, f"{plan.asked.series.e2e}_count"),
            (seen.drafted, "the counters of drafts"),
        )
        if math.isnan(value)
    ]
    missing = ", ".join(gone) or "number of what they do"
    return f"its targets are up, and Prometheus has no {missing}: specops monitor check ROLLOUT"


def _ratio(judged: Judged) -> str:
    low, high = float(judged.low), float(judged.high)
    if math.isinf(high):
        return f"at least {low:.2f}"
    if low == 0:
        return f"at most {high:.2f}"
    return f"{low:.2f}" if high - low < 0.01 else f"{low:.2f} to {high:.2f}"


def _load(seen: Seen) -> str:
    ours = verdicts.load(seen)
    low, high = float(ours.low), float(ours.high)
    return f"{low:.1f} requests" if high - low < 0.1 else f"{low:.1f} to {high:.1f} requests"


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None
