"""The live effect in an evaluation: where it is known, it decides on latencies, and the baseline does not.

The baseline was measured once, at some time and on some prompts. The holdout gets the same requests at the
same time, so it is the better yardstick. Where it leaves the answer open, the baseline is the fallback.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, get_args

import numpy as np

from specops.effect.counters import read_counters
from specops.effect.estimate import Counters, Mode
from specops.effect.watch import Standing, lookback_s, standing
from specops.errors import EndpointError
from specops.guard.signals.criteria import Criteria
from specops.guard.signals.noise import BAD, HEALTHY, NO_DATA
from specops.guard.signals.verdicts import NAMES, Judgement
from specops.guard.state import Signal, SignalFinding, Threshold
from specops.prometheus.api import Api

BIN_S = 60.0
LatencySignal = Literal["tpot", "e2e"]
SIGNALS: tuple[LatencySignal, ...] = get_args(LatencySignal)
NO_EFFECT = Threshold(value=1.0, source="live effect: as long as without speculation")


def read_effect(api: Api, criteria: Criteria, ts: float, since: float | None) -> Counters | str | None:
    """Return the counters of both groups up to `ts`, Prometheus' time, but not of before `since`, the last
    change of the share; or why they could not be read. None without a holdout."""
    bin_s = criteria.block_s or BIN_S
    try:
        counters = recorded_effect(api, criteria, (ts - lookback_s(bin_s), ts))
        return counters if counters is None or since is None else counters.after(since + bin_s)
    except EndpointError as error:
        return error.message


def recorded_effect(api: Api, criteria: Criteria, span: tuple[float, float]) -> Counters | None:
    """Return the counters of both groups within `span`, its ends in seconds since the epoch; None without a
    holdout. Raises EndpointError."""
    if not criteria.holdout:
        return None
    query, bin_s = criteria.query, criteria.block_s or BIN_S
    mode: Mode = "windows" if criteria.block_s else "requests"
    return read_counters(api, query.rollout, query.labels, span, bin_s, SIGNALS, mode)


def standings(counters: Counters | str | None) -> dict[Signal, Standing]:
    """Return how each latency stands, where both groups have enough requests."""
    if not isinstance(counters, Counters):
        return {}
    return {name: now for name in SIGNALS if (now := standing(counters, name)) is not None}


def decided_by_effect(judged: Judgement, now: Standing) -> Judgement:
    """Return the judgement of a latency, which the live effect replaces where it is not open. Missing series
    stay missing: what is faster must also be observed."""
    if now.direction == "open" or (now.direction == "faster" and bool(np.all(judged.codes == NO_DATA))):
        return judged
    code = BAD if now.direction == "slower" else HEALTHY
    codes = np.full_like(judged.codes, code)
    no = np.zeros_like(codes, dtype=bool)
    return replace(judged, codes=codes, both_slow=no, compare_over=0.0)


def with_effect(finding: SignalFinding, now: Standing | None, unread: str | None) -> SignalFinding:
    """Return the finding of a latency with what the live effect says; if it does not decide, with the words
    that the baseline does."""
    if now is None:
        why = unread or "too few requests of both groups"
        return finding.model_copy(update={"why": f"{finding.why}; by the baseline, no live effect: {why}"})
    words = effect_words(now)
    if now.direction == "open" or finding.verdict == "no_data":
        return finding.model_copy(
            update={"why": f"{finding.why}; by the baseline, live effect open: {words}"}
        )
    return finding.model_copy(
        update={
            "value": now.ratio,
            "threshold": NO_EFFECT,
            "n": float(now.requests + now.holdout_requests),
            "why": f"{NAMES[finding.signal]} {words} (threshold 1.00×, live effect)",
        }
    )


def effect_words(now: Standing) -> str:
    """The ratio with its interval and the requests behind it."""
    high = "∞" if now.high is None else f"{now.high:.2f}"
    groups = f"n={now.requests} speculative, {now.holdout_requests} holdout"
    return f"{now.ratio:.2f}× that of the holdout ({now.low:.2f} to {high}, {groups})"
