"""Where a budget goes: to what may still be the best, within the time, and what was left out is told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import settings as budget_of_examples
from hypothesis import strategies as st
from made_sweeps import loads, settings
from made_worlds import PROMPTS, World

from specops.phases.sweep.plan import Load, Rung, Timing, samples_of_cells
from specops.phases.sweep.stages import NO_TIME, Halving
from specops.serving import Setting


def spend(world: World, asked: Sequence[Setting], at: Sequence[Load], budget_s: float) -> Halving:
    """The choice alone, all of the time for it."""
    halving = Halving(asked, dict.fromkeys(at, PROMPTS), confidence=0.95)
    world.measure(first_rung(halving))
    halving.narrow(0, world.cells, set())
    for number in range(1, 100):
        timing = Timing(samples_of_cells(world.cells), warmup=0)
        rung = halving.plan(number, timing, budget_s - world.now, 0.0)
        if rung is None:
            return halving
        world.measure(rung)
        halving.narrow(number, world.cells, set())
    raise AssertionError("it never ends")


def first_rung(halving: Halving) -> Rung:
    planned = halving.opening(0)
    assert planned is not None
    return planned


def started(world: World) -> list[list[str]]:
    return [sorted(job.setting.name for job in rung.jobs) for rung in world.rungs]


def requests(world: World, name: str) -> int:
    return sum(len(cell.cell.rows) for cell in world.cells if cell.setting == name)


def test_the_best_is_asked_most_and_the_worst_least() -> None:
    speeds = {"k=3": 1.5, "k=4": 1.48, "k=5": 1.3, "k=6": 1.1, "k=7": 0.9, "k=8": 0.7}
    world = World(speeds, start_noise=0.01)
    spend(world, settings(3, 4, 5, 6, 7, 8), loads(1), 1500)
    assert started(world)[0] == ["k=3", "k=4", "k=5", "k=6", "k=7", "k=8"]
    assert "k=3" in started(world)[-1]
    assert "k=8" not in started(world)[1]
    assert requests(world, "k=3") > 2 * requests(world, "k=8")


@budget_of_examples(max_examples=15)
@given(
    st.lists(st.floats(0.5, 2.0), min_size=2, max_size=6),
    st.integers(0, 99),
    st.floats(0, 4000),
    st.floats(1, 60),
)
def test_the_time_is_kept_to_and_everything_left_out_has_a_reason(
    speeds: list[float], seed: int, more_s: float, start_s: float
) -> None:
    ks = range(1, len(speeds) + 1)
    world = World({f"k={k}": speed for k, speed in zip(ks, speeds, strict=True)}, start_s, seed=seed)
    asked, at = settings(*ks), loads(1, 4)
    trial = World(world.speed, start_s, seed=seed)
    trial.measure(first_rung(Halving(asked, dict.fromkeys(at, PROMPTS), confidence=0.95)))
    budget_s = trial.now + more_s
    halving = spend(world, asked, at, budget_s)
    assert world.now <= 1.05 * budget_s
    assert all(len(left) <= 1 for left in halving.open.values())
    left = [(one.name, load) for load, found in halving.open.items() for one in found]
    known = left + [(one.setting, one.load) for one in halving.skipped]
    assert sorted(map(str, known)) == sorted(str((one.name, load)) for one in asked[1:] for load in at)
    assert all(one.why for one in halving.skipped)
    for rung in world.rungs:  # a load without a choice is not measured
        for load in at:
            names = {j.setting.name for j in rung.jobs for cell in j.cells if cell.load == load}
            assert len(names) != 1


@pytest.mark.parametrize("seed", range(5))
def test_a_clear_best_is_among_the_last(seed: int) -> None:
    world = World({"k=3": 1.1, "k=4": 1.25, "k=5": 1.5, "k=8": 1.0}, seed=seed)
    spend(world, settings(3, 4, 5, 8), loads(1), 1200)
    assert "k=5" in started(world)[-1]
    assert requests(world, "k=5") >= requests(world, "k=8")


def test_it_ends_early_where_nothing_pays() -> None:
    world = World({"k=3": 0.6, "k=5": 0.5})
    halving = spend(world, settings(3, 5), loads(1), 1e5)
    assert world.now < 1e4
    assert {one.setting: one.why.split(",")[0] for one in halving.skipped}[
        "k=3"
    ] == "decided: nothing pays here"


def test_it_ends_early_where_no_other_could_be_faster() -> None:
    world = World({"k=3": 1.5, "k=5": 1.2})
    halving = spend(world, settings(3, 5), loads(1), 1e5)
    assert world.now < 1e4
    (skipped,) = halving.skipped
    assert skipped.setting == "k=5"
    assert "k=3 is 1.5" in skipped.why
    assert [one.name for one in halving.open[loads(1)[0]]] == ["k=3"]


def test_a_setting_that_is_the_best_of_one_load_stays_for_it() -> None:
    speeds = {("k=8", 1): 2.0, ("k=2", 1): 1.2, ("k=8", 16): 0.6, ("k=2", 16): 1.2}
    speeds |= {(f"k={k}", streams): 0.9 for k in (4, 5) for streams in (1, 16)}
    world = World(speeds, start_noise=0.03)
    world.measure(_first(world, settings(2, 4, 5, 8), loads(1, 16)))
    halving = Halving(settings(2, 4, 5, 8), dict.fromkeys(loads(1, 16), PROMPTS), confidence=0.95)
    halving.narrow(0, world.cells, set())
    left = {load.concurrency: [one.name for one in found] for load, found in halving.open.items()}
    assert left[1][0] == "k=8"
    assert left[16][0] == "k=2"
    assert {name for names in left.values() for name in names} == {"k=2", "k=8"}


def test_settings_that_are_as_good_as_each_other_are_not_all_started_again() -> None:
    """Which of them is the best of a load is luck; one that is about as good at all of them does."""
    speeds = {(f"k={k}", streams): 1.5 for k in (3, 4, 5, 6) for streams in (1, 4, 16)}
    speeds |= {("k=5", 1): 1.51, ("k=4", 4): 1.51, ("k=6", 16): 1.51}
    world = World(speeds, noise=0.0)
    asked, at = settings(3, 4, 5, 6), loads(1, 4, 16)
    world.measure(_first(world, asked, at))
    halving = Halving(asked, dict.fromkeys(at, PROMPTS), confidence=0.95)
    halving.narrow(0, world.cells, set())
    assert not halving.contested
    assert {len(found) for found in halving.open.values()} == {1}


def test_one_that_failed_is_not_started_again() -> None:
    world = World({"k=3": 1.5, "k=5": 1.4}, start_noise=0.03)
    world.measure(_first(world, settings(3, 5), loads(1)))
    halving = Halving(settings(3, 5), dict.fromkeys(loads(1), PROMPTS), confidence=0.95)
    halving.narrow(0, world.cells, {"k=3"})
    assert [one.name for found in halving.open.values() for one in found] == ["k=5"]
    assert halving.skipped[0].why == "it failed"


def test_one_of_which_nothing_is_known_yet_is_not_halved_away() -> None:
    world = World({"k=3": 1.5, "k=4": 1.4})
    world.measure(_first(world, settings(3, 4), loads(1)))
    halving = Halving(settings(3, 4, 5), dict.fromkeys(loads(1), PROMPTS), confidence=0.95)
    halving.narrow(0, world.cells, set())
    assert "k=5" in {one.name for found in halving.open.values() for one in found}


def test_later_rungs_ask_other_prompts_first() -> None:
    world = World({"k=3": 1.5, "k=4": 1.49, "k=5": 1.48, "k=6": 1.47})
    spend(world, settings(3, 4, 5, 6), loads(1), 700)
    first, second = (rung.standard.cells[0].prompts for rung in world.rungs[:2])
    assert not set(first) & set(second[: len(PROMPTS) - len(first)])


def _first(world: World, asked: Sequence[Setting], at: Sequence[Load]) -> Rung:
    return first_rung(Halving(asked, dict.fromkeys(at, PROMPTS), confidence=0.95))


def test_one_that_was_stopped_goes_on_with_what_was_left_and_with_other_prompts() -> None:
    speeds = {"k=3": 1.5, "k=4": 1.45, "k=5": 1.4, "k=6": 1.35}
    asked, at = settings(3, 4, 5, 6), loads(1)
    world = World(speeds, start_noise=0.03)
    first = spend(world, asked, at, 200)
    again = Halving(asked, dict.fromkeys(at, PROMPTS), confidence=0.95)
    again.resume(world.cells, first.skipped)
    decided = {one.setting for one in first.skipped if one.why != NO_TIME}
    assert decided
    assert {one.name for one in again.open[at[0]]} == {one.name for one in asked[1:]} - decided
    rung = again.plan(9, Timing(samples_of_cells(world.cells), warmup=0), 3000, 0.0)
    assert rung is not None
    had = {row.prompt for cell in world.cells for row in cell.cell.rows}
    assert not had & set(rung.standard.cells[0].prompts[: len(PROMPTS) - len(had)])


def test_of_a_first_rung_only_what_fits_is_measured() -> None:
    """After its standard's first turn: and nothing where no two settings fit."""
    asked, at = settings(3, 4, 5, 8), loads(1)
    halving = Halving(asked, dict.fromkeys(at, PROMPTS), confidence=0.95)
    opening = first_rung(halving)
    world = World({"k=3": 1.0}, start_s=100.0)
    world.measure(replace(opening, jobs=()))
    assert [cell.setting for cell in world.cells] == ["standard"]
    timing = Timing(samples_of_cells(world.cells), warmup=0)
    one_s = timing.job(opening.standard)
    fits = halving.fitting(opening, timing, 3.5 * one_s)
    assert fits is not None
    assert [job.setting.name for job in fits.jobs] == ["k=4", "k=5"]  # the nearest to the usual K
    assert {(one.setting, one.why) for one in halving.skipped} == {("k=3", NO_TIME), ("k=8", NO_TIME)}
    assert halving.fitting(opening, timing, 2.9 * one_s) is None
    assert [one.name for one in halving.open[at[0]]] == ["k=5"]


def test_of_three_the_better_two_go_on() -> None:
    world = World({"k=3": 1.5, "k=4": 1.45, "k=5": 1.2}, start_noise=0.05)
    asked, at = settings(3, 4, 5), loads(1)
    world.measure(_first(world, asked, at))
    halving = Halving(asked, dict.fromkeys(at, PROMPTS), confidence=0.999)
    halving.narrow(0, world.cells, set())
    assert {one.name for one in halving.open[at[0]]} == {"k=3", "k=4"}


def test_a_rung_has_as_many_prompts_as_fit_into_its_share_of_the_time() -> None:
    world, asked, at = World({"k=3": 1.5, "k=5": 1.5}, 1.0), settings(3, 5), loads(1)
    halving = Halving(asked, dict.fromkeys(at, PROMPTS), confidence=0.95)
    world.measure(first_rung(halving))
    timing = Timing(samples_of_cells(world.cells), warmup=0)

    def planned(left_s: float) -> tuple[int, float]:
        rung = halving.plan(1, timing, left_s, 0.0)
        assert rung is not None
        return len(rung.standard.cells[0].prompts), timing.rung(rung)

    whole, whole_s = planned(1e6)
    assert whole == len(PROMPTS)
    for share in (0.9, 0.6):
        count, seconds = planned(share * whole_s)
        more, more_s = planned(share * whole_s * (1 + 2 / whole))
        assert seconds <= share * whole_s < more_s or more == count + 1
        assert len(PROMPTS) > more > count
