"""What starts of servers add to the error, on figures small enough to be computed by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from specops import stats
from specops.stats import RungBlock, SingleStart, Times

EIGHT = [f"p{n}" for n in range(8)]
UNEVEN = [80.0, 90.0, 95.0, 100.0, 100.0, 105.0, 110.0, 120.0]


def block(
    theirs: list[float], share: float | None = 0.5, own: int = 1, names: list[str] = EIGHT
) -> RungBlock:
    return RungBlock({name: (100.0, took) for name, took in zip(names, theirs, strict=True)}, share, own)


def even(took: float) -> RungBlock:
    return block([took] * 8)


@pytest.mark.parametrize(
    ("share", "own", "starts", "shared"),
    [
        (None, 1, 2.0, 1 / 2),
        (0.0, 1, 2.0, 1 / 2),
        (0.5, 1, 1.5, 1 / 3),
        (0.25, 1, 1.625, 1 - 1 / 1.625),
        (0.5, 2, 1.0, 1 / 2),
    ],
)
def test_a_block_has_its_own_starts_and_the_standards(
    share: float | None, own: int, starts: float, shared: float
) -> None:
    found = block([100.0] * 8, share, own)
    assert (found.starts, found.shared) == pytest.approx((starts, shared))


def test_blocks_count_by_their_weight() -> None:
    light, heavy = even(100.0), RungBlock({"a": (2400.0, 100.0)}, 0.5)
    found = SingleStart(0.04, 3.0).over([light, heavy])
    assert found is not None
    assert found.variance == pytest.approx(0.04 * 1.5 * (0.25**2 + 0.75**2))
    assert found.freedom == 3.0
    assert SingleStart(0.0, 3.0).over([light]) is None
    assert SingleStart(0.04, 3.0).over([]) is None


def test_two_starts_of_an_arm_differ_by_two_variances() -> None:
    turn: dict[str, Times] = {"a": (100.0, 120.0), "b": (100.0, 130.0)}
    found = stats.one_start([turn], {})
    assert found is not None
    square, noise = math.log(100 / 125) ** 2, (0.04**2 + 0.04**2) / 2
    assert found.variance == pytest.approx((square - noise) / 2)
    assert found.freedom == pytest.approx(((square - noise) / square) ** 2)
    assert stats.one_start([{"a": (100.0, 120.0)}], {}) is None


def test_the_rungs_of_a_setting_differ_by_their_starts() -> None:
    found = stats.one_start([], {"k=3": [even(100.0), even(110.0)]})
    assert found is not None
    square = math.log(1.1) ** 2 / 2
    assert found.variance == pytest.approx(square / (2 * 1.5 * (1 - 1 / 2)))
    assert found.freedom == pytest.approx(1.0)
    assert stats.one_start([], {"k=3": [even(100.0)]}) is None


def test_settings_that_share_a_standard_are_worth_fewer() -> None:
    rungs = [even(100.0), even(110.0)]
    found = stats.one_start([], {"k=3": rungs, "k=5": rungs})
    assert found is not None
    assert found.freedom == pytest.approx(2 / (1 + (1 / 3) ** 2))


def test_what_is_a_prompts_own_cancels_between_rungs_that_have_it_in_common() -> None:
    longer = [1.1 * took for took in UNEVEN]
    found = stats.one_start([], {"k=3": [block(UNEVEN), block(longer)]})
    assert found is not None
    assert found.variance == pytest.approx(math.log(1.1) ** 2 / 2 / 1.5)
    assert found.freedom == pytest.approx(1.0)


def test_between_rungs_of_other_prompts_the_scatter_of_all_of_them_is_noise() -> None:
    others = [f"q{n}" for n in range(8)]
    found = stats.one_start([], {"k=3": [block(UNEVEN), block([2 * took for took in UNEVEN], names=others)]})
    assert found is not None
    square = math.log(2) ** 2 / 2
    scatter = sum((1 - took / 100) ** 2 for took in UNEVEN) / (8 * 7)
    assert found.variance == pytest.approx((square - scatter) / 1.5)
    assert found.freedom == pytest.approx(((square - scatter) / square) ** 2)


def test_starts_of_rounds_are_what_their_prompts_do_not_explain() -> None:
    before = np.full((2, 2), 100.0)
    after = np.array([[100.0, 104.0], [130.0, 134.0]])
    found = stats.start_effect([(before, after)])
    assert found is not None
    between = math.log(132 / 102) ** 2 / 2
    noise = (2 / 102 - 2 / 132) / 2
    within = 4 * noise**2 / (2 * 1)
    assert found.variance == pytest.approx((between - within) / 2, rel=1e-9)
    assert found.freedom == pytest.approx(((between - within) / between) ** 2, rel=1e-9)


def test_two_clusters_of_equal_weight_have_one_degree_of_freedom_and_an_interval() -> None:
    clusters = [0] * 4 + [1] * 4
    found = stats.paired_ratio([3.0] * 4 + [2.0] * 4, [2.0] * 4 + [3.0] * 4, clusters=clusters)
    assert found is not None
    assert found.low < 1 < found.high
