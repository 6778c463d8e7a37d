"""How much is confirmed in the time that is left, and which budget is too short for anything."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_sweeps import loads, settings

from specops.phases.sweep.plan import ANY_LENGTH, Sample, StagePrompts, Timing
from specops.phases.sweep.stages import (
    LEAST_SHARE,
    BudgetError,
    ConfirmationInputs,
    confidence_of,
    owed,
    refuse_short,
    smallest,
)

DECK = {ANY_LENGTH: tuple(f"p{n:03}" for n in range(48))}
TWO = settings(3, 5)


def confirming(at=None, owed: int = 0) -> ConfirmationInputs:
    return ConfirmationInputs(TWO, at or loads(1), StagePrompts(DECK, DECK, fresh=True), 5, {}, owed)


def timing(start_s: float, prompt_s: float = 1.0) -> Timing:
    return Timing([Sample(1, prompt_s, "standard", loads(1)[0], start_s)], warmup=0)


@given(st.floats(0, 100), st.floats(0.01, 5.0), st.floats(1, 4000), st.sampled_from([(1,), (1, 4, 8)]))
def test_it_fits_into_the_time_and_every_rung_tells_something(
    start_s: float, prompt_s: float, left_s: float, streams: tuple[int, ...]
) -> None:
    known, asked = timing(start_s, prompt_s), confirming(loads(*streams))
    rungs = asked.within(known, left_s)
    least = asked.rungs([asked.fewest()])
    if rungs is None:
        assert sum(map(known.rung, least)) > left_s
        return
    assert sum(map(known.rung, rungs)) <= left_s
    assert [rung.standard.rung for rung in rungs] == list(range(5, 5 + len(rungs)))
    for rung in rungs:
        assert [job.setting.name for job in rung.jobs] in (["k=3", "k=5"], ["k=5", "k=3"])
        for cell in rung.standard.cells:
            assert len(cell.prompts) >= max(8, 2 * cell.load.concurrency)
    for load in asked.loads:
        ours = [name for rung in rungs for c in rung.standard.cells if c.load == load for name in c.prompts]
        assert len(set(ours)) == len(ours)


def test_time_for_prompts_goes_before_time_for_starts() -> None:
    """Of 400 s, three rungs would spend 360 s on starts and two 240."""
    rungs = confirming().within(timing(30.0, 0.5), 400.0)
    assert rungs is not None
    assert len(rungs) == 1
    assert len(rungs[0].standard.cells[0].prompts) == 48
    quick = confirming().within(timing(10.0, 0.5), 400.0)
    assert quick is not None
    assert len(quick) == 3


@given(st.integers(0, 300), st.integers(0, 300))
def test_what_is_owed_gives_settings_their_share(standard: int, others: int) -> None:
    more = owed(standard, others)
    assert (others + 2 * more) / (max(1, standard + others + 4 * more)) >= LEAST_SHARE or standard == 0
    if more:
        fewer = more - 1
        assert (others + 2 * fewer) / (standard + others + 4 * fewer) < LEAST_SHARE
    rungs = confirming(owed=min(more, 48)).within(timing(1.0), 1e6)
    assert rungs is not None
    assert sum(len(rung.standard.cells[0].prompts) for rung in rungs) >= min(more, 48)


def test_a_budget_is_refused_by_what_is_left_of_it() -> None:
    rung = smallest(TWO, loads(1, 4), StagePrompts(DECK, DECK, fresh=True))
    jobs = [rung.standard, *rung.jobs, rung.standard]
    assert [(job.setting.name, len(job.cells)) for job in jobs] == [
        ("standard", 1), ("k=3", 1), ("k=3", 1), ("standard", 1),
    ]  # fmt: skip
    need_s = 4 * (95.0 + 8 * 1.0)
    refuse_short(need_s, 0.0, timing(95.0), jobs)
    refuse_short(need_s + 60.0, 60.0, timing(95.0), jobs)
    with pytest.raises(BudgetError) as caught:
        refuse_short(need_s, 60.0, timing(95.0), jobs)
    assert caught.value.message == (
        "budget 6.86667 min: the standard and one setting need 4 more server starts, 4 × 95.0 s, after 60 s "
        "spent so far, which leaves nothing for 32 requests that take about 32 s; the smallest useful budget "
        "is about 7.9 min"
    )
    assert caught.value.minutes == "7.9"
    with pytest.raises(BudgetError, match=r"4 × 95\.0 s, which leaves 20 s for 32 requests"):
        refuse_short(400.0, 0.0, timing(95.0), jobs)


def test_every_further_look_has_half_of_what_is_left_of_the_error() -> None:
    errors = [1 - confidence_of(0.95, look, 1) for look in (1, 2, 3)]
    assert errors == pytest.approx([0.04, 0.005, 0.0025])
    assert 1 - confidence_of(0.95, 1, 2) == pytest.approx(0.02)
