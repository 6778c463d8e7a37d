"""Parity: what speculation changed, held against what the server does by itself, and near ties."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_visits import ARMS, cell, row, visits

from specops.load.arrivals import Level
from specops.phases.ab.parity import (
    NEAR_TIE,
    Matches,
    Parity,
    Witness,
    again,
    alone,
    among_sampled,
    margin_at,
    margins_needed,
    with_margins,
)
from specops.phases.ab.visits import VisitRecord

ONE = Level(concurrency=1)


def told(unlike: int, control: int | None, prompts: int = 10) -> list[VisitRecord]:
    """Visits in which so many answers of the draft differ, and of the standard's second round."""

    def answer(visit: Any, prompt: str, at: float) -> dict[str, Any]:
        number = int(prompt[1:])
        changed = visit.arm == "draft" and number < unlike
        changed |= visit.arm == "standard" and visit.round == 1 and number < (control or 0)
        return {"text": "another answer" if changed else f"answer to {prompt}"}

    return visits(2.0, prompts=prompts, rounds=1 if control is None else 2, looks=1, answer=answer)


def probe(arm: str, unlike: int, prompts: int = 8) -> VisitRecord:
    rows = [
        row(f"p{n:03}", "edit", 100.0, text="garbled" if n < unlike else f"answer to p{n:03}")
        for n in range(prompts)
    ]
    made = cell(rows, Level(concurrency=2 * prompts), 0)
    return VisitRecord(stage=0, block=0, round=0, order=0, period=0, arm=arm, began=0.0, cell=made)


@pytest.mark.parametrize(
    ("unlike", "control", "lower"),
    [
        (0, 0, False),
        (10, 0, True),
        (5, 0, True),
        (4, 0, False),  # one in sixteen: no more than chance
        (10, 10, False),  # the server differs from itself as much
        (10, 5, True),
        (10, None, False),  # one round has nothing to be compared with
    ],
)
def test_only_what_the_control_does_not_show_is_held_against_speculation(unlike, control, lower) -> None:
    (found,) = alone(told(unlike, control), *ARMS)
    assert str(found.arms) == f"{10 - unlike}/10"
    assert (found.control is None) == (control is None)
    assert found.surely_lower(0.95) == lower


def test_a_witness_names_where_answers_part() -> None:
    def answer(visit: Any, prompt: str, at: float) -> dict[str, Any]:
        longer = visit.arm == "draft" and prompt == "p003"
        return {"text": f"answer to {prompt}" + (", but longer" if longer else "")}

    (found,) = alone(visits(2.0, prompts=8, answer=answer), *ARMS)
    (witness,) = found.arms.witnesses
    assert witness.place == ("p003", len("answer to p003"))
    assert (witness.standard, witness.other) == ("", ", but longer")


def test_equal_text_from_other_tokens_is_no_parity() -> None:
    def answer(visit: Any, prompt: str, at: float) -> dict[str, Any]:
        return {"tokens": 11 if visit.arm == "draft" else 10}

    (found,) = alone(visits(2.0, prompts=8, answer=answer), *ARMS)
    assert found.arms.equal == 0


def test_each_load_has_its_own_parity_and_control() -> None:
    found = alone(visits(2.0, concurrency=(4, 1)), *ARMS)
    assert [parity.level.concurrency for parity in found] == [1, 4]


def test_requests_that_failed_have_no_parity() -> None:
    def answer(visit: Any, prompt: str, at: float) -> dict[str, Any]:
        failed = visit.arm == "draft" and prompt == "p000"
        return {"error": "cut", "text": ""} if failed else {}

    (found,) = alone(visits(2.0, prompts=8, answer=answer), *ARMS)
    assert str(found.arms) == "7/7"


@pytest.mark.parametrize(
    ("draft", "standard", "lower"), [(7, 0, True), (7, 7, False), (0, 0, False), (2, 0, False)]
)
def test_mixed_batches_are_held_against_what_was_said_alone(draft, standard, lower) -> None:
    found = among_sampled(told(0, 0), [probe("standard", standard), probe("draft", draft)], *ARMS)
    assert (found.mixed, str(found.arms), str(found.control)) == (True, f"{8 - draft}/8", f"{8 - standard}/8")
    assert found.surely_lower(0.95) == lower


@pytest.mark.parametrize(
    ("draft", "standard", "margin", "fault"),
    [
        (2, 0, 1.0, True),  # of eight, too few to be counted against each other
        (1, 0, 1.0, False),  # rounding may turn one
        (2, 0, NEAR_TIE / 2, False),
        (2, 0, None, False),  # the standard did not tell how sure it was
        (2, 2, 1.0, False),  # the standard differs from itself on the same prompts
        (4, 2, 1.0, True),
    ],
)
def test_two_sure_witnesses_among_sampled_requests_are_a_fault(draft, standard, margin, fault) -> None:
    visits, probes = told(0, 0), [probe("standard", standard), probe("draft", draft)]
    found = among_sampled(visits, probes, *ARMS)
    found = with_margins(found, dict.fromkeys(margins_needed([found]), margin))
    assert found.shows_a_fault(0.95) == fault
    assert not replace(found, mixed=False).shows_a_fault(0.95)  # of all prompts alone, the share decides


@pytest.mark.parametrize(
    ("failed", "of_the_standard", "fault"), [(8, 0, True), (2, 0, True), (1, 0, False), (8, 8, False)]
)
def test_a_server_that_ends_among_sampled_requests_is_a_fault(failed, of_the_standard, fault) -> None:
    def broken(arm: str, count: int) -> VisitRecord:
        made = probe(arm, 0)
        gone = {"error": "stream_error", "text": "", "tokens": None, "detail": "the engine is dead"}
        rows = [one.model_copy(update=gone) if n < count else one for n, one in enumerate(made.cell.rows)]
        return made.model_copy(update={"cell": made.cell.model_copy(update={"rows": tuple(rows)})})

    probes = [broken("standard", of_the_standard), broken("draft", failed)]
    found = among_sampled(told(0, 0), probes, *ARMS)
    assert found.shows_a_fault(0.95) == fault
    assert found.failures == ("the engine is dead",) * (failed - of_the_standard)


def test_a_challenger_that_was_not_asked_among_sampled_requests_has_no_mixed_parity() -> None:
    assert among_sampled(told(0, 0), [probe("standard", 0)], *ARMS) is None
    assert among_sampled([], [probe("draft", 0)], *ARMS) is None


def test_near_ties_are_no_loss() -> None:
    (found,) = alone(told(10, 0), *ARMS)
    places = margins_needed([found, found])
    assert len(places) == 10
    close = with_margins(found, dict.fromkeys(places, NEAR_TIE / 2))
    assert str(close.arms) == "0/10"
    assert not close.surely_lower(0.95)
    assert close.arms.witnesses[0].margin == NEAR_TIE / 2
    far = with_margins(found, dict.fromkeys(places, NEAR_TIE))
    assert far.surely_lower(0.95)
    assert with_margins(found, {places[0]: None}) == found


def test_the_margin_is_of_the_token_that_holds_the_character() -> None:
    tokens = [("The", [-0.1, -3.0]), (" cat", [-1.5, -0.5, -2.0]), ("", [0.0, -9.0]), (" sat", [-0.2])]
    assert [margin_at(tokens, at) for at in (0, 2, 3, 6)] == [2.9, 2.9, 1.0, 1.0]
    assert margin_at(tokens, 7) is None  # only the likeliest is told
    assert margin_at(tokens, 11) is None


prompts = st.frozensets(st.integers(0, 30).map(str), max_size=25)


def matches(asked: frozenset[str], unlike: frozenset[str]) -> Matches:
    witnesses = [Witness(prompt=name, character=0, standard="", other="") for name in sorted(unlike & asked)]
    return Matches(asked, tuple(witnesses))


@given(prompts, prompts, prompts, st.floats(0.6, 0.999))
def test_a_loss_is_never_seen_from_both_sides(asked, ours, theirs, confidence) -> None:
    one = Parity("draft", False, ONE, matches(asked, ours), matches(asked, theirs))
    other = Parity("draft", False, ONE, matches(asked, theirs), matches(asked, ours))
    assert not (one.surely_lower(confidence) and other.surely_lower(confidence))
    if ours <= theirs:
        assert not one.surely_lower(confidence)


@pytest.mark.parametrize(
    ("draft", "standard", "possible", "opened"),
    [
        (5, 0, True, True),  # 3 of 8 equal beside a control of 8 of 8
        (2, 0, True, True),
        (1, 0, False, True),  # rounding may turn one; more requests show whether it is one of many
        (0, 0, False, False),
        (5, 5, False, False),
        (0, 3, False, False),
        (8, 0, True, False),  # that is a fault
    ],
)
def test_mixed_batches_that_differ_are_open_until_it_is_decided(draft, standard, possible, opened) -> None:
    found = among_sampled(told(0, 0), [probe("standard", standard), probe("draft", draft)], *ARMS)
    assert (found.possibly_lower(), found.open(0.95)) == (possible, opened)
    assert found.shows_a_fault(0.95) == (draft == 8)
    assert not replace(found, control=None).possibly_lower()
    assert not replace(found, control=None).open(0.95)


def test_rounds_of_mixed_batches_count_together() -> None:
    def shifted(visit: VisitRecord, by: int) -> VisitRecord:
        rows = tuple(
            one.model_copy(update={"prompt": f"p{n:03}", "text": one.text.replace(one.prompt, f"p{n:03}")})
            for n, one in enumerate(visit.cell.rows, start=by)
        )
        cell = visit.cell.model_copy(update={"rows": rows})
        return visit.model_copy(update={"round": 1, "cell": cell})

    probes = [probe("standard", 0), probe("draft", 5)]
    further = [shifted(one, 8) for one in probes]
    found = among_sampled(told_of(24), [*probes, *further], *ARMS)
    assert (str(found.arms), str(found.control)) == ("6/16", "16/16")
    assert found.shows_a_fault(0.95)
    assert not among_sampled(told_of(24), probes, *ARMS).shows_a_fault(0.95)


def told_of(prompts: int) -> list[VisitRecord]:
    return told(0, 0, prompts)


@pytest.mark.parametrize(
    ("unlike", "control", "possible"),
    [(3, 0, True), (2, 0, False), (3, 3, False), (4, 1, True), (0, 3, False)],
)
def test_of_all_prompts_alone_three_that_differ_are_evidence(unlike, control, possible) -> None:
    """Each one that differs by chance is as likely to be the control's: 1 in 8 for three, 1 in 4 for two."""
    (found,) = alone(told(unlike, control, prompts=48), *ARMS)
    assert found.possibly_lower() == possible


def come_again(changed: dict[str, dict[int, int]], rounds: int = 2, prompts: int = 24) -> list[VisitRecord]:
    """Visits in which, by arm and round, the answers to so many prompts are other ones."""

    def answer(visit: Any, prompt: str, at: float) -> dict[str, Any]:
        many = changed.get(visit.arm, {}).get(visit.round, 0)
        return {"text": f"other {visit.round}" if int(prompt[1:]) < many else f"answer to {prompt}"}

    return visits(2.0, prompts=prompts, rounds=rounds, looks=1, answer=answer)


@pytest.mark.parametrize(
    ("changed", "rounds", "equal", "control", "lower", "possible"),
    [
        ({}, 2, "24/24", "24/24", False, False),
        ({"draft": {1: 14}}, 2, "10/24", "24/24", True, True),
        ({"draft": {2: 14}}, 3, "10/24", "24/24", True, True),  # in a later round only
        ({"draft": {1: 14}, "standard": {1: 14}}, 2, "10/24", "10/24", False, False),
        ({"draft": {1: 4}}, 2, "20/24", "24/24", False, True),
        ({"draft": {1: 3}}, 2, "21/24", "24/24", False, True),  # of a standard that repeats itself
        ({"draft": {1: 2}}, 2, "22/24", "24/24", False, False),
        ({"draft": {1: 4}, "standard": {1: 1}}, 2, "20/24", "23/24", False, False),
        ({"draft": {0: 14}}, 2, "10/10", "10/10", False, False),  # what differs at first is told by `alone`
        ({"standard": {1: 14}}, 2, "24/24", "10/24", False, False),
    ],
)
def test_answers_that_change_where_a_prompt_comes_again(
    changed, rounds, equal, control, lower, possible
) -> None:
    (found,) = again(come_again(changed, rounds), *ARMS)
    assert (str(found.arms), str(found.control)) == (equal, control)
    assert found.repeated
    assert (found.surely_lower(0.95), found.possibly_lower()) == (lower, possible)


def test_one_round_has_no_prompt_that_comes_again() -> None:
    assert again(come_again({}, rounds=1), *ARMS) == []


@pytest.mark.parametrize(("draft", "standard", "possible"), [(3, 0, True), (3, 3, False), (2, 3, False)])
def test_mixed_batches_that_change_the_standard_as_often_are_no_evidence(draft, standard, possible) -> None:
    """Other prompts of the standard's change: the server differs from itself in any batch."""
    ours = probe("standard", 0)
    rows = tuple(
        row.model_copy(update={"text": "other"}) if n >= 8 - standard else row
        for n, row in enumerate(ours.cell.rows)
    )
    ours = ours.model_copy(update={"cell": ours.cell.model_copy(update={"rows": rows})})
    found = among_sampled(told_of(24), [ours, probe("draft", draft)], *ARMS)
    assert found is not None
    assert found.possibly_lower() == possible


@pytest.mark.parametrize(("unlike", "fault"), [(5, False), (6, True)])
def test_first_answers_and_those_that_come_again_share_the_error(unlike: int, fault: bool) -> None:
    """Five of five is one in 32, which is less than a twentieth and more than half of that."""
    (found,) = alone(told(unlike, 0, prompts=48), *ARMS)
    assert found.surely_lower(0.95)
    assert found.shows_a_fault(0.95) == fault
