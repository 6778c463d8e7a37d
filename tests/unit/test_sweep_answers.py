"""What is held against a setting over all requests that it was sent: failures, other answers, other
prompts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from made_sweeps import BOUND_BY_96, judged, loads, sampled, settings, swept

from specops.config import Ab
from specops.experiment.findings import ClaimName, Finding
from specops.experiment.records import Place
from specops.load.record import Row
from specops.phases.sweep import claims
from specops.phases.sweep.plan import Finalists, SweptCell

Change = Callable[[SweptCell, Row], dict[str, Any]]
"""What of a row is other than usual."""

FINALISTS = Finalists(settings=("k=3",), streams=(1,))


def number(row: Row) -> int:
    return int(row.prompt[1:])


def changed(change: Change, temperature: float = 0.0, rungs: int = 2, **made: Any) -> list[SweptCell]:
    found = []
    for one in swept({"k=3": 1.5, "k=5": 1.5}, settings(3, 5), loads(1), rungs=rungs, confirming=0, **made):
        rows = [
            row.model_copy(update={"temperature": temperature} | change(one, row)) for row in one.cell.rows
        ]
        counted = tuple(row for row in rows if row.part == "counted")
        beside = tuple(row for row in rows if row.part != "counted")
        cell = one.cell.model_copy(update={"rows": counted, "beside": beside})
        again = sampled(one.cell.rows)
        found.append(one.model_copy(update={"cell": cell, "temperature": temperature, "again": again}))
    return found


def finding(claim: ClaimName, cells: list[SweptCell], margins: Ab | None = None) -> Finding:
    evidence = claims.evidence_on(cells, "standard", "k=3", margins or Ab(), {})
    return next(one for one in claims.of_requests(evidence) if one.claim == claim)


def verdict(change: Change, nats: Mapping[Place, float | None] | None = None) -> tuple[str, str]:
    """The verdict on k=3 alone, confirmed by 96 requests, and 32 sampled ones, and its reason."""
    cells = [one.model_copy(update={"stage": "confirmation"}) for one in changed(change)]
    cells = [one for one in cells if one.setting != "k=5"]
    found = judged(
        settings(3), loads(1), cells, [], finalists=FINALISTS, margins=BOUND_BY_96, nats=nats or {}
    )
    return found.verdict, found.reason


def test_equal_answers() -> None:
    answers = finding("answers", changed(lambda cell, row: {"text": row.prompt}))
    assert answers.verdict == "shown"


def test_other_answers_of_another_setting_do_not_count() -> None:
    cells = changed(lambda cell, row: {"text": f"{cell.setting == 'k=5'} {row.prompt}"})
    assert finding("answers", cells).verdict == "shown"


@pytest.mark.parametrize("many", [2, 20])
def test_answers_that_begin_otherwise_are_another_models(many: int) -> None:
    """The first tokens are hardly ever drafted, and rounding rarely changes several of them."""
    other = verdict(
        lambda cell, row: {"text": row.prompt[:: -1 if cell.setting == "k=3" and number(row) < many else 1]}
    )
    assert other[0] == "no"
    assert f"{4 * many} of" in other[1] or f"{2 * many} of" in other[1]


def test_answers_that_differ_later_may_be_near_ties_and_are_named() -> None:
    def text(many: int) -> Change:
        return lambda cell, row: {
            "text": f"So it begins {row.prompt[:: -1 if cell.setting == 'k=3' and number(row) < many else 1]}"
        }

    assert verdict(text(0))[0] == "yes"
    assert "answers" not in verdict(text(0))[1]
    found, reason = verdict(text(2))
    assert found == "undecided"
    assert "4 of 96 answers differ from the standard's" in reason
    # The margins are requested (test_sweep_margins.py): near ties are no differences, and others are.
    places = {("p000", "", 13): 0.1, ("p001", "", 13): 0.1}
    assert verdict(text(2), places)[0] == "yes"
    assert verdict(text(2), dict.fromkeys(places, 2.0))[0] == "no"


def test_a_standard_that_differs_from_itself_as_much_is_no_evidence() -> None:
    def text(cell: SweptCell, row: Row) -> dict[str, Any]:
        own = (cell.setting, cell.turn, cell.rung) == ("standard", 0, 0)
        return {
            "text": f"So it begins {row.prompt}"
            + ("" if own or number(row) >= 20 else f" {cell.setting} {cell.turn}")
        }

    found, reason = verdict(text)
    assert found == "undecided"
    assert "40 of 96 answers differ from the standard's (control 60 of 144)" in reason


def test_other_prompts_are_named_unless_all_answers_are_the_same() -> None:
    def cut(cell: SweptCell, row: Row) -> dict[str, Any]:
        return {"prompt_tokens": 15 if cell.setting == "k=3" and number(row) < 3 else 30}

    same = changed(cut)
    found = claims.of_requests(claims.evidence_on(same, "standard", "k=3", Ab(), {}))
    assert [(f.cause, f.verdict) for f in found if f.cause] == [("other prompts", "shown")]

    def unsteady(cell: SweptCell, row: Row) -> dict[str, Any]:
        return cut(cell, row) | {"text": f"{cell.setting} {cell.turn} {cell.rung} {row.prompt}"}

    assert verdict(unsteady)[0] != "yes"
    found = claims.of_requests(claims.evidence_on(changed(unsteady), "standard", "k=3", Ab(), {}))
    (prompts,) = [one for one in found if one.cause == "other prompts"]
    assert prompts.counts is not None
    assert (prompts.counts.challenger, prompts.counts.challenger_n) == (3, 48)


def test_one_answer_to_many_prompts_is_unacceptable() -> None:
    found, reason = verdict(
        lambda cell, row: {
            "text": "I am sorry, there are too many requests."
            if cell.setting == "k=3" and number(row) < 20
            else row.prompt
        }
    )
    assert found == "no"
    assert "answers" in reason


def test_a_temperature_that_is_ignored_is_against_the_setting() -> None:
    def sampled(of_setting: str) -> Finding:
        greedy = changed(lambda cell, row: {"text": f"greedy {row.prompt}"})
        cells = changed(
            lambda cell, row: {
                "text": (of_setting if cell.setting == "k=3" else "own {} {}").format(row.prompt, cell.began)
            },
            0.7,
        )
        both = [one.model_copy(update={"again": of.cell}) for one, of in zip(cells, greedy, strict=True)]
        return finding("sampled answers", both)

    assert sampled("own {} {}").verdict != "against"
    ignored = sampled("greedy {}")
    assert (ignored.verdict, ignored.cause) == ("against", "temperature")


# Every request counts: warm-up, too.


@pytest.mark.parametrize(
    "trouble",
    [
        {"error": "timeout", "detail": "no answer within 30 s", "e2e_ms": 30_000.0},
        {"e2e_ms": 30_000.0, "e2e_with_retries_ms": 30_000.0},
        {"retries": 1},
    ],
)
@pytest.mark.parametrize("part", ["warm-up", "counted"])
def test_a_setting_with_trouble_of_its_own_is_not_recommended(trouble: dict[str, Any], part: str) -> None:
    def change(cell: SweptCell, row: Row) -> dict[str, Any]:
        warm_up = number(row) < 2 and cell.rung == 0 and (cell.setting, cell.turn) == ("k=3", 0)
        return ({"part": part} | trouble) if warm_up else {}

    found, reason = verdict(change)
    assert found != "yes"
    assert "2 of 128 requests failed, were refused or were late (standard 0 of 256)" in reason
    assert ("in the warm-up" in reason) == (part == "warm-up")


def test_trouble_that_the_standard_has_as_often_leaves_a_yes() -> None:
    found, reason = verdict(lambda cell, row: {"error": "http_500"} if number(row) == 2 else {})
    assert found == "yes", reason


def test_a_setting_whose_drafts_are_never_accepted_gains_nothing_by_them() -> None:
    from made_sweeps import drafts

    cells = changed(lambda cell, row: {})
    none = [
        one.model_copy(
            update={
                "cell": one.cell.model_copy(
                    update={"drafts": drafts(3, acceptance=0.0), "drafts_missing": None}
                )
            }
        )
        if one.setting == "k=3"
        else one
        for one in cells
    ]
    assert finding("speculation", none).verdict == "against"
    assert finding("speculation", cells).verdict == "shown"


@pytest.mark.parametrize("blind", ["k=3", "standard"])
def test_tokens_that_one_server_does_not_count_are_unknown_and_not_different(blind: str) -> None:
    def change(cell: SweptCell, row: Row) -> dict[str, Any]:
        unknown = {"tokens": None, "tokens_from": "unknown", "tpot_ms": None, "prompt_tokens": None}
        return unknown if cell.setting == blind else {}

    found, reason = verdict(change)
    assert found == "yes", reason
    assert "answers" not in reason
