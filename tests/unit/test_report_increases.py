"""An hour's increase by its ends is the one that its samples have, whatever a counter did."""

from __future__ import annotations

import itertools
import math
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specops.phases.report import prometheus_data
from specops.phases.report.pools import extremes, ratio
from specops.phases.report.prometheus_data import Increases, differences, rises
from specops.prometheus.api import Series

HOUR = 3600
HOURS = 6
LABELS = {"__name__": "counted_total", "instance": "a"}


class Remembered:
    """A Prometheus of one series, whose range selectors have both their ends, as before Prometheus 3."""

    def __init__(self, samples: list[tuple[float, float]]) -> None:
        self.samples = samples
        self.asked_raw = 0

    def range(self, expr: str, start: float, end: float, step_s: float) -> list[Series]:
        points = []
        for at in np.arange(start, end + 1, step_s).tolist():
            if expr.startswith("last_over_time"):
                inside = [value for ts, value in self.samples if at - 3599.999 <= ts <= at]
                points += [(at, inside[-1])] if inside else []
            else:
                assert expr.startswith("resets(")
                assert "[2h]" in expr
                inside = [value for ts, value in self.samples if at - 7200 <= ts <= at]
                count = sum(b < a for a, b in itertools.pairwise(inside))
                points += [(at, float(count))] if count else []
        labels = LABELS if expr.startswith("last") else {"instance": "a"}
        return [Series(labels, tuple(points))] if points else []

    def raw(self, which: str, start: float, end: float) -> list[Series]:
        self.asked_raw += 1
        return [Series(LABELS, tuple((ts, value) for ts, value in self.samples if start < ts <= end))]


def by_hour(samples: list[tuple[float, float]]) -> list[float]:
    """From the definition: every rise, in the hour of its later sample."""
    found = [math.nan] * HOURS
    previous = None
    for ts, value in samples:
        hour = math.ceil(ts / HOUR) - 1
        if 0 <= hour < HOURS:
            grew = 0.0 if previous is None else value - previous if value >= previous else value
            found[hour] = (0.0 if math.isnan(found[hour]) else found[hour]) + grew
        previous = value
    return found


@st.composite
def counters(draw: Any) -> list[tuple[float, float]]:
    """Samples every ten minutes from an hour before the first; some missing, some after a reset."""
    offset = draw(st.sampled_from([0.0, 0.001, 17.5, 599.999]))
    total, found = 0.0, []
    for at in range(-HOUR + 600, HOURS * HOUR + 1, 600):
        total = draw(st.integers(0, 3)) + (0.0 if draw(st.integers(0, 9)) == 0 else total)
        if draw(st.integers(0, 3)):
            found.append((at - 600 + offset, total))
    gap = draw(st.tuples(st.integers(0, HOURS), st.integers(0, 3)))
    return [one for one in found if not gap[0] * HOUR < one[0] <= (gap[0] + gap[1]) * HOUR]


@given(counters())
def test_by_the_ends_of_hours_it_is_what_the_samples_say(samples: list[tuple[float, float]]) -> None:
    prometheus: Any = Remembered(samples)
    read = prometheus_data.read_increases(prometheus, ["counted_total"], {}, 0, HOURS)["counted_total"]
    rows = read.rows if read.labels else np.full((1, HOURS), np.nan)
    np.testing.assert_array_equal(rows[0], by_hour(samples))


def test_samples_are_asked_for_only_where_the_ends_do_not_tell() -> None:
    steady = [(float(at), float(at)) for at in range(-1800, HOURS * HOUR, 600)]
    prometheus: Any = Remembered(steady)
    prometheus_data.read_increases(prometheus, ["counted_total"], {}, 0, HOURS)
    assert prometheus.asked_raw == 0
    again: Any = Remembered([(at, value - 9000 if at > 9000 else value) for at, value in steady])
    prometheus_data.read_increases(again, ["counted_total"], {}, 0, HOURS)
    assert again.asked_raw == 1


def test_a_long_window_is_asked_for_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    samples = [(float(at), float(at % 7000)) for at in range(-1800, HOURS * HOUR, 600)]
    whole, parts = (Remembered(samples) for _ in range(2))
    expected = prometheus_data.read_increases(whole, ["counted_total"], {}, 0, HOURS)["counted_total"]  # type: ignore[arg-type]
    monkeypatch.setattr(prometheus_data, "POINTS_AT_ONCE", 2)
    found = prometheus_data.read_increases(parts, ["counted_total"], {}, 0, HOURS)["counted_total"]  # type: ignore[arg-type]
    np.testing.assert_array_equal(found.rows, expected.rows)
    assert found.labels == expected.labels


def test_a_reset_is_unclear_and_so_is_what_follows_nothing() -> None:
    last = np.array([1.0, 4.0, 3.0, math.nan, 9.0, 9.0])
    found = differences(last, np.array([False, False, False, False, True]))
    np.testing.assert_array_equal(found, [3.0, math.inf, math.nan, math.inf, math.inf])


@pytest.mark.parametrize(
    ("values", "before", "total"),
    [([], None, 0), ([5], None, 0), ([5], 3, 2), ([5, 2, 4], 3, 6), ([0, 0], 7, 0), ([7, 8], 7, 1)],
)
def test_rises(values: list[float], before: float | None, total: float) -> None:
    assert rises(values, before) == total


def test_hours_of_which_some_series_know_nothing_are_of_the_others() -> None:
    of = Increases(({"a": "1"}, {"a": "2"}), np.array([[1, math.nan, math.nan], [2, 3, math.nan]]))
    np.testing.assert_array_equal(of.hourly, [3, 3, math.nan])
    assert of.total == 6
    assert of.only(a="2").total == 5
    assert of.only(a="3").total is None


def test_a_ratio_is_of_sums_and_not_a_mean_of_ratios() -> None:
    found = ratio(np.array([1.0, 90.0, math.nan]), np.array([10.0, 100.0, 5.0]))
    assert found is not None
    assert found.value == pytest.approx(91 / 110)
    assert found.n == 2
    assert ratio(np.array([0.0]), np.array([0.0])) is None


def test_the_lowest_and_the_highest_hour_are_those_that_count() -> None:
    window = cast(Any, SimpleNamespace(start=0, iso=str))
    values, counted = np.array([9.0, 3.0, 1.0, math.nan, 2.0]), np.array([False, True, True, True, True])
    lowest, highest = extremes(window, values, counted)
    assert lowest is not None
    assert highest is not None
    assert (lowest.value, lowest.at) == (1.0, str(2 * 3600))
    assert (highest.value, highest.at) == (3.0, str(3600))
