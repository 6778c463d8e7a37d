"""The live effect's statistics: exact cases, and simulated traffic whose effect is known."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.stats

from specops.effect.estimate import FIGURES, Counters, Moments, Scores, effects
from specops.effect.sequence import Array, always, log_likelihoods, ratios_held, student
from specops.effect.simulation import Traffic, simulate
from specops.effect.watch import LOOKBACK_S, RECENT_S, START_S, slower_after, standing

HOUR_S = 3600.0


def of_values(cells: list[list[tuple[list[float], list[float]]]], load: float = 1.0) -> Counters:
    """Counters of one figure for all: cells[bin][stratum] = (values of the holdout, of the speculative)."""
    shape = (len(cells), len(cells[0]), 2)
    n, total, squares = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    for row, strata in enumerate(cells):
        for column, groups in enumerate(strata):
            for group, values in enumerate(groups):
                n[row, column, group] = len(values)
                total[row, column, group] = sum(values)
                squares[row, column, group] = sum(value * value for value in values)
    moments = Moments(n, total, squares, n * load, n * load * load, total * load)
    names = tuple(f"class{column}" for column in range(shape[1]))
    ends = 60.0 * (1 + np.arange(shape[0]))
    return Counters(ends, 60.0, names, dict.fromkeys(FIGURES, moments))


def test_the_ratio_is_that_within_strata_however_the_groups_are_spread_over_them() -> None:
    """All requests take half as long with speculation. Hours with long prompts have few of its requests, so
    the plain ratio of the means is not one half."""
    cells = [[([2.0] * 10, [1.0] * 90)], [([20.0] * 10, [10.0] * 20)]] * 20
    overall = effects(of_values(cells))[0].figure_effect("e2e")
    plain = (90 * 1.0 + 20 * 10.0) / 110 / ((2.0 + 20.0) / 2)
    assert overall.ratio == pytest.approx(0.5)
    assert abs(plain - 0.5) > 0.25
    assert (overall.requests, overall.holdout_requests, overall.unmatched) == (2200, 400, 0)


def test_the_weight_of_a_stratum_is_its_number_of_pairs() -> None:
    cells = [[([1.0, 3.0], [4.0] * 6), ([10.0] * 4, [5.0] * 4)]] * 12
    sums = Scores.from_moments(of_values(cells).figures["e2e"]).since()
    first, second = 2 * 6 / 8, 4 * 4 / 8
    assert sums.pairs[-1] == pytest.approx(12 * (first + second))
    assert sums.ratio[-1] == pytest.approx((first * 4 + second * 5) / (first * 2 + second * 10))


def test_strata_of_one_group_say_nothing_and_are_counted() -> None:
    matched = [([1.0] * 4, [1.0] * 4), ([], [9.0] * 3)]
    overall, *by_class = effects(of_values([matched] * 20))
    e2e = overall.figure_effect("e2e")
    assert (e2e.ratio, e2e.unmatched) == (pytest.approx(1.0), 60)
    assert [part.traffic_class for part in by_class] == ["class0", "class1"]
    assert by_class[1].figure_effect("e2e").ratio is None


def test_too_few_requests_have_no_interval() -> None:
    few = effects(of_values([[([1.0], [2.0] * 9)]] * 31))[0].figure_effect("tpot")
    enough = effects(of_values([[([1.0], [2.0] * 9)]] * 32))[0].figure_effect("tpot")
    assert (few.ratio, few.low, few.high) == (None, None, None)
    assert enough.ratio == pytest.approx(2.0)


def test_what_a_minute_has_in_common_widens_the_interval() -> None:
    """Requests that vary by minute, and not within it, are not as many independent ones."""
    rng = np.random.default_rng(5)
    single, minutes = [], []
    for _ in range(60):
        draws = rng.lognormal(0, 0.5, 20)
        single.append([(list(draws[:10]), list(draws[10:]))])
        minutes.append([([draws[0]] * 10, [draws[1]] * 10)])
    ends = [effects(of_values(cells))[0].figure_effect("e2e") for cells in (single, minutes)]
    assert None not in (ends[0].low, ends[1].low, ends[0].high, ends[1].high)
    widths = [math.log(end.high / end.low) for end in ends if end.low and end.high]
    assert widths[1] > 2 * widths[0]


def test_the_interval_for_one_look_is_the_narrower_one() -> None:
    rng = np.random.default_rng(1)
    e2e = effects(simulate(Traffic(6 * HOUR_S, ratio=0.8), rng).counters)[0].figure_effect("e2e")
    ends = (e2e.low, e2e.once_low, 0.8, e2e.once_high, e2e.high)
    assert None not in ends
    assert list(ends) == sorted(ends)  # type: ignore[type-var]


def test_other_loads_do_not_bias_the_ratio_where_a_plain_comparison_is_biased() -> None:
    """The speculative pool has two and a half times the load of the other, and each request more takes 8%."""
    estimates, covered = [], 0
    for seed in range(20):
        drawn = simulate(Traffic(24 * HOUR_S, ratio=0.8), np.random.default_rng(seed))
        tpot = effects(drawn.counters)[0].figure_effect("tpot")
        assert None not in (tpot.ratio, tpot.once_low, tpot.once_high)
        assert abs(drawn.plain_ratio / 0.8 - 1) > 0.05
        estimates.append(tpot.ratio)
        covered += (tpot.once_low or 9.0) <= 0.8 <= (tpot.once_high or 0.0)
    assert np.mean(estimates) == pytest.approx(0.8, rel=0.01)
    assert covered >= 16


def by_load(loads: list[tuple[float, float]], slope: float) -> Counters:
    """Requests whose time is exactly 1 + slope x load: in each bin a group has ten, half of them at three
    quarters of its load and half at five quarters."""
    spread = np.array([0.75] * 5 + [1.25] * 5)
    load = np.array(loads)[:, None, :, None] * spread
    times = 1 + slope * load
    sums = (np.ones_like(load), times, times**2, load, load**2, load * times)
    moments = Moments(*(values.sum(axis=-1) for values in sums))
    return Counters(60.0 * (1 + np.arange(len(loads))), 60.0, ("all",), dict.fromkeys(FIGURES, moments))


def test_bursts_do_not_bias_the_slope_by_load() -> None:
    """Every tenth minute has six times the load. The means by load are exact, so the ratio must be, too."""
    loads = [(2.0, 5.0) if minute % 10 else (12.0, 30.0) for minute in range(120)]
    counters = by_load(loads, 0.1)
    assert counters.scores("e2e").since().ratio[-1] == pytest.approx(1.0, abs=1e-4)
    as_windows = replace(counters, mode="windows").scores("e2e").since()
    assert as_windows.ratio[-1] > 1.2  # the load is part of what windows compare


def test_the_error_of_the_slope_widens_the_interval_as_it_should() -> None:
    """With bursts the slope is most of the error. Of 60 intervals for one look, 57 should have the truth."""
    traffic = Traffic(48 * HOUR_S, per_s=0.5)
    covered = 0
    for seed in range(60):
        drawn = simulate(traffic, np.random.default_rng([7, seed])).counters
        sums = drawn.scores("tpot").since()
        low, high = sums.interval(np.full(sums.pairs.shape, 1.96))
        covered += bool(low[-1] <= 1 <= high[-1])
    assert covered >= 52


def test_windows_are_as_many_as_blocks_not_as_requests() -> None:
    week = Traffic(7 * 24 * HOUR_S, window_s=300.0, burn_in_s=60.0, ratio=0.9, bursts=0.0, loads=(4.0, 4.0))
    covered = 0
    for seed in range(40):
        drawn = simulate(week, np.random.default_rng([8, seed])).counters
        assert (drawn.mode, drawn.bin_s) == ("windows", 3000.0)
        e2e = effects(drawn)[0].figure_effect("e2e")
        covered += (e2e.once_low or 9.0) <= 0.9 <= (e2e.once_high or 0.0)
    assert covered >= 34
    by_request = effects(replace(drawn, mode="requests"))[0].figure_effect("e2e")
    assert e2e.high is not None
    assert e2e.low is not None
    assert by_request.unmatched == e2e.unmatched == 0


def test_a_few_blocks_are_never_sure() -> None:
    drawn = simulate(
        Traffic(2 * 3000.0, per_s=5.0, window_s=300.0, ratio=3.0), np.random.default_rng(1)
    ).counters
    now = standing(drawn, "e2e")
    assert now is None or now.direction == "open"


@pytest.mark.parametrize("freedom", [4.0, 10.0, 60.0])
@pytest.mark.parametrize("errors", [1.96, 4.9])
def test_few_degrees_of_freedom_widen_an_interval_by_students_t(errors: float, freedom: float) -> None:
    exact = float(scipy.stats.t.isf(scipy.stats.norm.sf(errors), freedom))
    wider = float(student(np.array(errors), freedom))
    assert exact <= wider * 1.001
    assert wider <= exact * (1.2 if freedom == 4 else 1.02)
    assert np.isinf(student(np.array(errors), 0.0))


def test_the_sums_from_several_starts_are_those_from_each_start() -> None:
    scores = simulate(Traffic(2 * HOUR_S), np.random.default_rng(2)).counters.scores("ttft")
    low, high = scores.totals(np.array([0, 15, 90])).interval(5.0)
    for row, first in enumerate((0, 15, 90)):
        one_low, one_high = (ends[-1] for ends in scores.since(first).interval(5.0))
        assert (low[row], high[row]) == (pytest.approx(one_low), pytest.approx(one_high))


def test_an_interval_of_every_moment_is_wider_than_one_look_and_narrows() -> None:
    errors = always(np.array([10.0, 500.0, 50_000.0]), 0.05)
    assert errors.min() > 2.9  # one look: 1.96
    assert errors[1] < errors[0]
    assert errors[2] < 1.3 * errors[1]
    assert (always(np.array([500.0]), 0.001) > always(np.array([500.0]), 0.05)).all()


def test_intervals_at_every_minute_hold_together() -> None:
    """In at most 5% of the days an interval excludes the truth at some moment: of 60, at most 7 with a
    probability of 99%."""
    excluded = 0
    for seed in range(60):
        counters = simulate(Traffic(12 * HOUR_S, per_s=0.5), np.random.default_rng(seed)).counters
        sums = Scores.from_moments(counters.figures["tpot"]).since()
        low, high = sums.interval(always(sums.pairs, 0.05))
        excluded += bool(((low > 1) | (high < 1)).any())
    assert excluded <= 7


def failures(shares: tuple[float, float], minutes: int, seed: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    requests = np.stack([rng.poisson(10, minutes), rng.poisson(90, minutes)], axis=1).astype(float)
    return rng.binomial(requests.astype(int), shares).astype(float), requests


def test_failures_have_a_ratio_only_if_there_are_any() -> None:
    failed, requests = failures((0.0, 0.0), 60, 1)
    assert ratios_held(log_likelihoods(failed, requests).sum(axis=0), 0.05) == (0.0, math.inf)


def test_more_failures_with_speculation_are_found_and_equal_shares_are_not() -> None:
    low, high = ratios_held(log_likelihoods(*failures((0.01, 0.05), 240, 2)).sum(axis=0), 0.05)
    assert 1 < low < 5 < high
    wrong = 0
    for seed in range(100):
        so_far = log_likelihoods(*failures((0.02, 0.02), 120, seed)).cumsum(axis=0)
        held = [ratios_held(likelihoods, 0.05) for likelihoods in so_far]
        wrong += any(low > 1 or high < 1 for low, high in held)
    assert wrong <= 11  # of 100, with at most 5% each, more has a probability below 1%


def test_the_guard_finds_a_slowdown_and_nothing_before_it() -> None:
    """10% slower from the fifth hour on, at 5 requests/s with a holdout of 10%: found within 30 minutes."""
    change_s = 5 * HOUR_S
    traffic = Traffic(6 * HOUR_S, per_s=5.0, loads=(4.0, 5.0), later_ratio=1.1, change_s=change_s)
    counters = simulate(traffic, np.random.default_rng(3)).counters

    def direction(ts: float) -> str | None:
        rows = counters.ends <= ts
        figures = {name: moments.part(rows, slice(None)) for name, moments in counters.figures.items()}
        now = standing(replace(counters, ends=counters.ends[rows], figures=figures), "tpot")
        return now.direction if now else None

    assert {direction(ts) for ts in np.arange(HOUR_S, change_s, 600.0)} == {"open"}
    assert direction(change_s + 1800.0) == "slower"
    assert slower_after(counters, "tpot", change_s) is True


def test_the_guard_sees_that_speculation_is_faster_and_since_when() -> None:
    counters = simulate(Traffic(8 * HOUR_S, ratio=0.8), np.random.default_rng(4)).counters
    now = standing(counters, "e2e")
    assert now is not None
    assert now.direction == "faster"
    assert now.low < 0.8 < (now.high or math.inf) < 1
    assert now.since % START_S == 0
    assert counters.ends[-1] - LOOKBACK_S <= now.since <= counters.ends[-1] - RECENT_S
    assert slower_after(counters, "e2e", counters.ends[-1] - 1800) is False


def test_a_past_slowdown_is_not_slower_now() -> None:
    """It was slow for an hour, and has not been since."""
    slow = simulate(Traffic(2 * HOUR_S, per_s=5.0, ratio=1.5), np.random.default_rng(5)).counters
    fast = simulate(Traffic(2 * HOUR_S, per_s=5.0, ratio=0.7), np.random.default_rng(6)).counters
    figures = {
        name: Moments(
            *(
                np.concatenate([getattr(part.figures[name], field) for part in (slow, fast)])
                for field in ("n", "total", "squares", "load", "load_squares", "load_product")
            )
        )
        for name in slow.figures
    }
    both_parts = replace(slow, ends=60.0 * (1 + np.arange(240)), figures=figures)
    now = standing(both_parts, "tpot")
    assert now is not None
    assert now.direction == "faster"


def test_a_guard_without_requests_of_the_holdout_has_no_effect() -> None:
    counters = of_values([[([], [1.0] * 60)]] * 60)
    assert standing(counters, "e2e") is None
    assert slower_after(counters, "e2e", 0.0) is None
    assert standing(counters.after(1e9), "e2e") is None
    assert slower_after(counters.after(1e9), "e2e", 0.0) is None


def test_the_page_has_the_figures_of_the_committed_result() -> None:
    root = Path(__file__).parents[2]
    result = json.loads((root / "benchmarks" / "results" / "live_effect.json").read_text(encoding="utf-8"))
    page = (root / "docs" / "live-effect.md").read_text(encoding="utf-8")
    coverage, by_windows = result["coverage"], result["coverage_windows"]
    rows = []
    for name in ("weeks_without_effect", "healthy_weeks", "windows_without_effect"):
        rows.append(f"| {result[name]['with_alarm']} of {result[name]['weeks']:,} |")
    for measured in (coverage, by_windows):
        rows.append(f"| {measured['one_look']:.1%} of {measured['intervals']:,} |")
    rows.append(f"| {coverage['every_moment']:.1%} of {coverage['intervals']:,} |")
    rows.append(f"| {coverage['plain_bias_least']:.0%} and more |")
    for name in ("detection_holdout_10", "detection_25_percent"):
        found = result[name]
        rows.append(f"| {found['minutes_median']:.0f} minutes (p90: {found['minutes_p90']:.0f}) |")
    rows.append(f"| {result['detection_equal_groups']['requests_median']:.0f} requests of each |")
    week_minutes = 7 * 24 * 60
    assert result["detection_windows"]["minutes_median"] >= week_minutes
    rows.append("| not within a week |")
    for row in rows:
        assert row in page
