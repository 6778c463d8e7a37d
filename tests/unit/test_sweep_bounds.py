"""A recommendation is a yes: rare events are bounded by requests that had no part in the choice."""

from __future__ import annotations

import pytest
from made_sweeps import judged, loads, settings, swept

from specops.config import Ab
from specops.load.record import Row
from specops.phases.sweep.judging import SweepJudgement
from specops.phases.sweep.plan import ANY_LENGTH, Finalists, StagePrompts, SweptCell
from specops.phases.sweep.stages import ConfirmationInputs
from specops.phases.sweep.sweep import requests_to
from specops.stats import shares

FINALISTS = Finalists(settings=("k=3",), streams=(1,))
TWO = settings(3, 5)


def failing(cells: list[SweptCell], stage: str, number: int) -> list[SweptCell]:
    """With so many of the first requests to k=3 in this stage refused at first, one in each cell."""

    def refused(cell: SweptCell) -> SweptCell:
        first, *rest = cell.cell.rows
        rows: tuple[Row, ...] = (first.model_copy(update={"retries": 1}), *rest)
        return cell.model_copy(update={"cell": cell.cell.model_copy(update={"rows": rows})})

    chosen = [cell for cell in cells if (cell.setting, cell.stage) == ("k=3", stage)][:number]
    assert len(chosen) == number
    return [refused(cell) if cell in chosen else cell for cell in cells]


def verdict(cells: list[SweptCell], margins: Ab | None = None) -> SweepJudgement:
    return judged(TWO, loads(1), cells, finalists=FINALISTS, margins=margins or Ab())


def measured(rungs: int, confirming: int, prompts: int = 80) -> list[SweptCell]:
    return swept({"k=3": 1.6, "k=5": 1.2}, TWO, rungs=rungs, confirming=confirming, prompts=prompts)


def test_a_setting_is_recommended_where_its_requests_bound_failures() -> None:
    found = verdict(measured(1, 4))
    assert found.verdict == "yes", found.reason
    assert found.recommendation["k"] == 3


def test_too_few_requests_are_undecided_and_the_reason_says_how_many_more() -> None:
    found = verdict(measured(1, 2))
    assert found.verdict == "undecided"
    assert found.recommendation["setting"] is None
    assert found.recommendation["k"] is None
    more = found.summary["more_prompts"]
    assert 107 <= more <= 200
    assert "0 of 192 requests failed, were refused or were late (standard 0 of 384): at most 1.5% more" in (
        found.reason
    )
    assert f"about {more} more requests would decide" in found.reason
    assert verdict(measured(1, 2), Ab(failure_margin=0.02)).verdict == "yes"


def test_requests_of_the_choice_bound_nothing() -> None:
    """Of several settings with rare events, the choice is likelier to pick one that had none there."""
    assert verdict(measured(4, 2)).verdict == "undecided"


def test_an_event_of_the_choice_counts() -> None:
    assert verdict(measured(2, 4)).verdict == "yes"
    found = verdict(failing(measured(2, 4), "choice", 2))
    assert found.verdict == "undecided"
    assert "2 of 544 requests failed, were refused or were late" in found.reason
    assert verdict(failing(measured(2, 4), "confirmation", 2)).verdict == "undecided"


def test_a_candidate_of_the_choice_needs_no_bound_to_be_picked() -> None:
    found = judged(TWO, loads(1), measured(1, 4), margins=Ab())
    assert found.verdict == "yes"
    assert found.reason.startswith("deploy K=3 for all traffic at 1 stream (1.60× [")


@pytest.mark.parametrize("names", [(3,), (3, 5)])
@pytest.mark.parametrize("rungs", [1, 2, 3])
@pytest.mark.parametrize("streams", [(1,), (1, 4)])
def test_a_confirmation_has_the_requests_that_bound_failures(
    names: tuple[int, ...], rungs: int, streams: tuple[int, ...]
) -> None:
    deck = {ANY_LENGTH: tuple(f"p{n:03}" for n in range(24))}
    needed = shares.requests_to_bound(0.01)
    assert shares.share_upper(0, needed) <= 0.01 < shares.share_upper(0, needed - 1)
    inputs = ConfirmationInputs(
        settings(*names), loads(*streams), StagePrompts(deck, deck, fresh=True), 0, {}, requests=needed
    )
    planned = inputs.rungs(inputs.even(rungs))
    for name in names:
        assert needed <= requests_to(f"k={name}", planned) <= needed + 2 * rungs * len(streams)
    few = ConfirmationInputs(settings(*names), loads(*streams), StagePrompts(deck, deck, fresh=True), 0, {})
    sent = {cell.load: len(cell.prompts) for cell in few.rungs(few.even(rungs))[0].standard.cells}
    assert set(sent.values()) == {24 // rungs if 24 // rungs >= 8 else 8}
