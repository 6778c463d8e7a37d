"""A measurement at a higher temperature: answers at temperature 0 beside it show another model."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pytest
from made_visits import ARMS, CLASSES, cell, judged, row, visits

from specops.load.arrivals import Level
from specops.phases.ab import parity
from specops.phases.ab.judging import AbJudgement
from specops.phases.ab.visits import AbSettings, VisitRecord
from specops.stats import MIN_PAIRS

ONE, EIGHT = Level(concurrency=1), Level(concurrency=8)
PROMPTS = parity.GREEDY_PROMPTS
REFUSED = {"error": "http_400", "detail": "temperature must be above 0", "text": ""}
BROKEN = {"error": "http_500", "detail": "the engine is dead", "text": ""}


def sent(arm: str, differing: int = 0, round_: int = 0, level: Level = ONE, **fields: Any) -> VisitRecord:
    """The first `differing` answers are other ones; `fields` are those of all of them."""
    rows = [
        row(f"p{n:03}", CLASSES[n % 3], 100.0, **({"text": f"other {n}"} if n < differing else {}) | fields)
        for n in range(PROMPTS)
    ]
    return VisitRecord(
        stage=0, block=0, round=round_, order=0, period=0, arm=arm, began=9e9, cell=cell(rows, level, round_)
    )


def standard(control: int = 0, level: Level = ONE, **fields: Any) -> list[VisitRecord]:
    return [sent("standard", 0, 0, level, **fields), sent("standard", control, 1, level, **fields)]


def sampled(*greedy: VisitRecord, concurrency: tuple[int, ...] = (1,)) -> AbJudgement:
    """A measurement in which the draft is twice as fast."""
    return judged(visits(2.0, concurrency=concurrency, looks=1), temperature=0.7, greedy=greedy)


@pytest.mark.parametrize(
    ("differing", "control", "verdict"),
    [
        (0, 0, "yes"),
        (1, 0, "yes"),  # rounding
        (2, 0, "yes"),
        (3, 0, "undecided"),
        (5, 0, "undecided"),
        (6, 0, "no"),
        (PROMPTS, 0, "no"),
        (6, 6, "yes"),  # the standard differs from itself as often
        (PROMPTS, 6, "no"),
    ],
)
def test_more_differing_answers_than_the_standards_own_are_no_speed_up(differing, control, verdict) -> None:
    found = sampled(*standard(control), sent("draft", differing))
    assert found.verdict == verdict
    assert bool(found.data["challengers"]["draft"]["deploy"]) == (verdict == "yes")
    assert found.data["greedy_requests"] == 3 * PROMPTS


def test_they_are_not_compared_where_all_is_measured_at_temperature_0() -> None:
    greedy = [*standard(), sent("draft", PROMPTS)]
    found = judged(visits(2.0), temperature=0.0, greedy=greedy)
    assert (found.verdict, found.summary["parity"]) == ("yes", "48/48")


def test_answers_that_differ_at_a_load_are_held_against_that_load() -> None:
    greedy = [*standard(), *standard(level=EIGHT), sent("draft"), sent("draft", PROMPTS, level=EIGHT)]
    found = sampled(*greedy, concurrency=(1, 8))
    assert found.verdict == "no"
    levels = found.data["challengers"]["draft"]["levels"]
    assert [level["decision"]["verdict"] for level in levels] == ["yes", "no"]


@pytest.mark.parametrize("draft", [{}, REFUSED])
def test_a_standard_that_refuses_temperature_0_leaves_the_answers_unchecked(draft) -> None:
    found = sampled(sent("standard", **REFUSED), sent("draft", **draft))
    assert found.verdict == "yes"
    why = "standard answered no request at temperature 0; the first error: temperature must be above 0"
    assert found.reason.endswith(f"; the answers were not compared with the standard's: {why}")
    assert (found.data["parity_missing"], found.data["challengers"]["draft"]["parity"]) == (why, [])


def test_a_challenger_that_alone_refuses_temperature_0_is_not_deployed() -> None:
    found = sampled(*standard(), sent("draft", **REFUSED))
    assert found.verdict == "undecided"
    assert found.reason.startswith(
        "draft refuses requests at temperature 0, which the standard answers (temp"
    )
    assert found.data["challengers"]["draft"]["parity"][0]["failures"] == 0


def test_greedy_requests_that_the_challenger_alone_fails_are_a_fault() -> None:
    found = sampled(*standard(), sent("draft", **BROKEN))
    assert found.verdict == "no"
    assert found.reason.startswith(
        "do not deploy: greedy requests fail: 12, all of which the standard answered"
    )
    assert sampled(*standard(), sent("draft")).verdict == "yes"


def test_the_number_of_prompts_can_show_a_fault() -> None:
    """Half of the answers, as of one class in two, are enough to be sure at one load."""
    (one,) = parity.greedy([*standard(), sent("draft", PROMPTS // 2)], *ARMS)
    assert one.shows_a_fault(0.95)
    assert PROMPTS >= MIN_PAIRS


# a standard that hardly repeats itself


def answers(kept: int, ours: str, theirs: str) -> Any:
    """Both arms give random answers, but the first `kept` prompts, at which the standard repeats itself. They
    begin with `ours` and `theirs`; with an empty one, at random too."""

    def answer(visit: Any, prompt: str, at: float) -> dict[str, Any]:
        start = theirs if visit.arm == "draft" else ours
        noise = f"{visit.arm} {visit.round} {prompt}"
        if visit.arm == "standard" and int(prompt[1:]) < kept:
            noise = prompt
        elif not start:
            noise = f"{sum(noise.encode()) * 7919 % 9973} {noise}"
        return {"text": f"{start}{noise} and what follows from it, in so many words"[:50]}

    return answer


@pytest.mark.parametrize(
    ("kept", "ours", "theirs", "verdict"),
    [
        (0, "", "", "undecided"),  # random from the first character on: nothing is known
        (3, "", "", "undecided"),
        (0, "", "Sure, that", "undecided"),
        (0, "The function", "The function", "yes"),  # what differs comes later, in both
        (0, "The function", "Sure, that", "no"),
        (5, "The function", "Sure, that", "no"),
        (12, "", "", "no"),  # the standard repeats itself often enough to show that the draft does not
    ],
)
def test_where_the_standard_hardly_repeats_itself_beginnings_decide(kept, ours, theirs, verdict) -> None:
    found = judged(visits(2.0, answer=answers(kept, ours, theirs)))
    assert found.verdict == verdict, found.reason
    shown = found.data["challengers"]["draft"]["parity"]
    assert any(one["opening"] for one in shown) == (kept < 12)
    if verdict == "undecided":
        assert "a standard that hardly repeats itself cannot show" in found.reason
        assert "compare again; by speed alone: deploy for" in found.reason
        assert found.data["challengers"]["draft"]["deploy"] == []


def test_equal_answers_need_no_control() -> None:
    """Of a standard that never repeats itself, which a challenger repeats all the same."""

    def answer(visit: Any, prompt: str, at: float) -> dict[str, Any]:
        return {"text": f"{visit.round} {prompt}"}

    found = judged(visits(2.0, answer=answer))
    assert (found.verdict, found.summary["parity"], found.summary["parity_control"]) == (
        "yes",
        "48/48",
        "0/48",
    )


def test_a_challenger_that_differs_in_half_of_the_answers_is_not_excused_by_a_blind_control() -> None:
    def answer(visit: Any, prompt: str, at: float) -> dict[str, Any]:
        differs = int(prompt[1:]) < (30 if visit.arm == "draft" else 30 * visit.round)
        return {"text": f"{visit.arm} {visit.round} {prompt}" if differs else f"answer to {prompt}"}

    (found,) = parity.alone(visits(2.0, answer=answer), *ARMS)
    assert (str(found.arms), str(found.control)) == ("18/48", "18/48")
    assert not found.is_blind(0.95)  # 18 that the standard repeats would show an arm that repeats none
    assert found.is_blind(1 - 1e-6)
    assert not replace(found, control=None).is_blind(1 - 1e-6)


def at_temperature(text: str | None, arm: str = "draft", rounds: Collection[int] = (0, 1)) -> AbJudgement:
    """A measurement in which each sampled answer of the standard is its own, and the arm's in some rounds are
    `text`."""

    def answer(visit: Any, prompt: str, at: float) -> dict[str, Any]:
        own = f"{visit.arm[0]}{visit.round}swer to {prompt}"
        theirs = text is not None and visit.arm == arm and visit.round in rounds
        return {"text": str(text).format(prompt) if theirs else own}

    greedy = [*standard(), sent("draft")]
    return judged(visits(2.0, looks=1, answer=answer), temperature=0.7, greedy=greedy)


def test_an_arm_that_ignores_the_temperature_is_a_no() -> None:
    ignoring = at_temperature("answer to {}")
    assert ignoring.verdict == "no"
    assert ignoring.data["challengers"]["draft"]["deploy"] == []
    assert (
        f"do not deploy: at 1 stream, for {PROMPTS} of {PROMPTS} prompts, an answer at the higher "
        f"temperature is the greedy answer (standard: 0 of {PROMPTS}): the temperature is ignored; by speed "
        "alone: deploy"
    ) in ignoring.reason
    assert at_temperature(None).verdict == "yes"
    half = at_temperature("answer to {}", rounds=(1,))
    assert (half.verdict, f" {PROMPTS} of {PROMPTS} prompts, an answer at" in half.reason) == ("no", True)
    assert at_temperature("answer to {}", arm="standard").verdict == "yes"


def test_a_beginning_of_the_standards_answer_is_another_answer_unless_lengths_are_accepted() -> None:
    greedy = [*standard(), sent("draft", text="answer to")]

    def found(**settings: bool) -> AbJudgement:
        records = visits(2.0, looks=1)
        return judged(records, temperature=0.7, greedy=greedy, settings=AbSettings(**settings))

    assert found().verdict == "no"
    assert found(accept_length_change=True).verdict == "yes"
    greedy = [*standard(), sent("draft", text="answering")]
    assert found(accept_length_change=True).verdict == "no"
