"""The guard reads the live effect first, and the baseline where that is open."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import numpy as np
import pytest

from specops.effect.counters import GROUPS
from specops.effect.estimate import Counters
from specops.effect.simulation import Traffic, simulate
from specops.guard.policy import GuardRules, decide
from specops.guard.signals.criteria import Baseline, BaselineLevel, Criteria
from specops.guard.signals.live_effect import read_effect, standings
from specops.guard.signals.observation import evaluate, still_slower
from specops.guard.signals.query import LiveFigures, LiveQuery
from specops.guard.state import Evaluation, State, Threshold
from specops.prometheus.api import Api, Series
from specops.prometheus.series import EFFECT
from specops.serving.vllm.pool import SERIES

TS = 1_764_300_000.0
LEVELS = tuple(
    BaselineLevel(
        streams=streams, ttft=0.1, tpot=tpot, token=tpot, e2e=0.1 + 100 * tpot,
        tpot_cv=0.1, tpot_error=0.01, e2e_cv=0.1, e2e_error=0.01, whole_cv=0.5, whole_error=0.03,
    )
    for streams, tpot in ((1.0, 0.020), (4.0, 0.026), (8.0, 0.040))
)  # fmt: skip
CRITERIA = Criteria(
    query=LiveQuery("demo", SERIES, SERIES, {}, scrape_s=15.0, routed=True),
    window_s=300.0,
    min_acceptance=Threshold(value=0.4, source="a sweep"),
    baseline=Baseline(LEVELS, "baseline.json"),
    regression=Threshold(value=1.2, source="the rollout file"),
    max_error_share=Threshold(value=0.05, source="the rollout file"),
    min_requests=None,
)
WITH_HOLDOUT = replace(CRITERIA, holdout=0.1)
LIVE = LiveFigures(
    ts=TS, finished=900.0, drafted=60_000.0, acceptance=0.7, tpot=0.0182, tpot_n=900.0, e2e=1.92, e2e_n=900.0,
    tokens=101.0, load=4.0, spread=0.0, gauged=20.0, restarts=0.0, targets=1.0, up=1.0, requests=900.0,
    failed=0.0, cancelled=0.0, standard_requests=100.0, standard_failed=0.0, covered=1.0, sampled=1.0,
    counted=1.0,
)  # fmt: skip
"""Healthy by the baseline: 0.7 times its time per token."""


def counters(ratio: float, seed: int = 1, per_s: float = 5.0) -> Counters:
    """Two hours up to `TS`."""
    drawn = simulate(Traffic(7200.0, per_s=per_s, ratio=ratio, loads=(4.0, 5.0)), np.random.default_rng(seed))
    return replace(drawn.counters, ends=drawn.counters.ends + (TS // 900 * 900 - 7200))


def of(evaluation: Evaluation, signal: str) -> tuple[str, str]:
    finding = next(one for one in evaluation.whole if one.signal == signal)
    return finding.verdict, finding.why


def test_slower_than_the_holdout_is_bad_though_the_baseline_is_met() -> None:
    by_baseline = evaluate(CRITERIA, LIVE, TS)
    evaluation = evaluate(WITH_HOLDOUT, LIVE, TS, counters=counters(1.15))
    verdict, why = of(evaluation, "tpot")
    assert by_baseline.verdict == "healthy"
    assert (evaluation.verdict, verdict) == ("bad", "bad")
    assert "that of the holdout" in why
    assert "live effect" in why


def test_faster_than_the_holdout_is_healthy_though_the_baseline_is_not_met() -> None:
    slow = replace(LIVE, tpot=3 * LIVE.tpot, e2e=3 * LIVE.e2e)
    assert evaluate(CRITERIA, slow, TS).verdict == "bad"
    evaluation = evaluate(WITH_HOLDOUT, slow, TS, counters=counters(0.7))
    assert (evaluation.verdict, of(evaluation, "e2e")[0]) == ("healthy", "healthy")
    assert {now.direction for now in evaluation.effect} == {"faster"}


def test_an_open_effect_leaves_the_answer_to_the_baseline_and_says_so() -> None:
    evaluation = evaluate(WITH_HOLDOUT, LIVE, TS, counters=counters(1.0))
    verdict, why = of(evaluation, "tpot")
    assert (evaluation.verdict, verdict) == ("healthy", "healthy")
    assert "by the baseline, live effect open" in why


@pytest.mark.parametrize(
    ("unread", "words"), [(None, "too few requests of both groups"), ("could not ask", "could not ask")]
)
def test_without_an_effect_the_finding_names_the_baseline(unread: str | None, words: str) -> None:
    evaluation = evaluate(WITH_HOLDOUT, LIVE, TS, counters=unread)
    assert of(evaluation, "e2e")[1].endswith(f"by the baseline, no live effect: {words}")
    assert of(evaluation, "acceptance") == of(evaluate(CRITERIA, LIVE, TS), "acceptance")


def test_without_a_holdout_nothing_changes() -> None:
    assert evaluate(CRITERIA, LIVE, TS, counters=None) == evaluate(CRITERIA, LIVE, TS)


def test_missing_series_are_not_healthy_by_the_effect() -> None:
    gone = replace(LIVE, e2e=np.nan, e2e_n=np.nan)
    evaluation = evaluate(WITH_HOLDOUT, gone, TS, counters=counters(0.7))
    assert of(evaluation, "e2e")[0] == "no_data"


def test_a_slowdown_that_is_over_does_not_count_again() -> None:
    """A row of bad evaluations needs that the requests since its first were slower by themselves."""
    slow = counters(1.15)
    evaluation = evaluate(WITH_HOLDOUT, LIVE, TS, counters=slow)
    assert still_slower(evaluation, slow, slow.ends[-1] - 1200)
    fast = counters(0.7, seed=2)
    assert not still_slower(evaluation, fast, fast.ends[-1] - 1200)
    assert not still_slower(evaluation, "could not ask", slow.ends[-1] - 1200)


class CountedApi:
    """A Prometheus that has a slowdown in its last six hours."""

    def range(self, expr: str, start: float, end: float, step_s: float) -> list[Series]:
        assert 'figure=~"tpot|e2e"' in expr
        assert 'specops_rollout="demo"' in expr
        drawn = simulate(Traffic(end - start, ratio=1.3), np.random.default_rng(1)).counters
        times = [start + step_s * index for index in range(drawn.ends.size + 1)]
        moments = drawn.figures["tpot"]
        return [
            Series(
                {"__name__": name, "figure": "tpot", "group": group, "class": "default", "instance": "a:1"},
                tuple(zip(times, [0.0, *getattr(moments, field)[:, 0, column].cumsum()], strict=True)),
            )
            for field, name in EFFECT.items()
            for column, group in enumerate(GROUPS)
        ]


def test_what_was_before_the_last_change_of_the_share_does_not_count() -> None:
    api = cast(Api, CountedApi())
    whole = read_effect(api, WITH_HOLDOUT, TS, None)
    assert {now.direction for now in standings(whole).values()} == {"slower"}
    later = read_effect(api, WITH_HOLDOUT, TS, TS - 180)
    assert isinstance(later, Counters)
    assert (later.ends - later.bin_s).min() >= TS - 180
    assert standings(later) == {}
    assert read_effect(api, CRITERIA, TS, None) is None


def test_the_guard_falls_back_for_the_effect() -> None:
    state, rules = State(), GuardRules()
    slow = counters(1.15)
    for index in range(rules.consecutive):
        evaluation = evaluate(WITH_HOLDOUT, LIVE, TS, counters=slow)
        at = TS + 60.0 * index
        evaluation = evaluation.model_copy(update={"ts": at, "observed_at": at, "repeated": True})
        state = decide(state, evaluation, at, rules).state
    assert (state.mode, state.percent) == ("fallen", 0)
    assert "tpot" in state.fell_for
