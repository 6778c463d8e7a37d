"""What the routers' counters say about each time bin."""

from __future__ import annotations

import math

import numpy as np
import pytest

from specops.effect.counters import counters_of
from specops.effect.sequence import Array
from specops.prometheus.api import Series
from specops.prometheus.series import EFFECT

TIMES = 600.0 + 60.0 * np.arange(5)


def rows(values: list[float | None], router: str = "a:1", group: str = "holdout") -> list[Series]:
    """The six counters of E2E, with the same values; None: no sample."""
    labels = {"figure": "e2e", "group": group, "class": "chat", "instance": router}
    points = tuple(
        (ts, value)
        for ts, value in zip(TIMES, values, strict=True)
        if value is not None and math.isfinite(value)
    )
    return [Series({**labels, "__name__": name}, points) for name in EFFECT.values()]


def increases(*series: list[Series], group: int = 0) -> list[float]:
    counters = counters_of([row for part in series for row in part], TIMES, 60.0)
    n: Array = counters.figures["e2e"].n
    return [float(value) for value in n[:, :, group].sum(axis=1)]


def test_each_bin_has_the_increase_of_its_counters() -> None:
    counters = counters_of(rows([1, 3, 3, 8, 9]), TIMES, 60.0)
    assert list(counters.ends) == [660.0, 720.0, 780.0, 840.0]
    assert counters.classes == ("chat",)
    assert counters.figures["e2e"].total[:, 0, 0].tolist() == [2.0, 0.0, 5.0, 1.0]
    assert counters.figures["tpot"].n.sum() == 0


def test_routers_add_up() -> None:
    assert increases(rows([1, 3, 3, 8, 9]), rows([0, 1, 2, 3, 4], "b:1")) == [3.0, 1.0, 6.0, 2.0]


def test_a_router_that_started_again_has_no_such_bin() -> None:
    """Neither that of the counter that went down, nor that of a counter that had already passed its value."""
    down, passed = rows([5, 9, 2, 4, 5]), rows([1, 2, 7, 8, 9], group="speculative")
    assert increases(down, passed) == [4.0, 0.0, 2.0, 1.0]
    assert increases(down, passed, group=1) == [1.0, 0.0, 1.0, 1.0]


def test_a_router_without_samples_has_no_such_bins() -> None:
    assert increases(rows([1, 2, None, 9, 11])) == [1.0, 0.0, 0.0, 2.0]


def test_a_new_series_of_a_router_began_at_zero() -> None:
    assert increases(rows([1, 2, 3, 4, 5], group="speculative"), rows([None, None, 2, 3, 3])) == [0, 2, 1, 0]


def test_replicas_of_prometheus_do_not_count_twice() -> None:
    assert increases(rows([1, 2, 3, 4, 5]), rows([1, 2, 3, 4, 5])) == [1.0] * 4


@pytest.mark.parametrize("times", [TIMES, TIMES[:1]])
def test_no_series_are_no_requests(times: Array) -> None:
    counters = counters_of([], times, 60.0)
    assert counters.classes == ()
    assert counters.ends.size == times.size - 1
