"""Whether a setting's greedy answers are the standard's, counted once a prompt, beside a control."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from made_sweeps import judged, loads, settings, swept

from specops.load.record import Row
from specops.phases.sweep.plan import Finalists, SweptCell
from specops.phases.sweep.vetoes import compare_answers

Text = Callable[[SweptCell, Row], str]
"""What a cell says to a row's prompt."""


def number(row: Row) -> int:
    return int(row.prompt[1:])


def saying(text: Text, temperature: float = 0.0, rungs: int = 2) -> list[SweptCell]:
    cells = swept({"k=3": 1.5, "k=5": 1.5}, settings(3, 5), loads(1), rungs=rungs, confirming=0)
    found = []
    for one in cells:
        rows = tuple(row.model_copy(update={"text": text(one, row)}) for row in one.cell.rows)
        cell = one.cell.model_copy(update={"rows": rows})
        found.append(one.model_copy(update={"cell": cell, "temperature": temperature}))
    return found


def told(text: Text, **more: object) -> tuple[int, int, int, int, bool]:
    found = compare_answers(saying(text, **more), "standard", "k=3", 1)  # type: ignore[arg-type]
    assert found is not None
    return found.equal, found.compared, found.control_equal, found.control_compared, found.differ


def test_equal_answers() -> None:
    assert told(lambda cell, row: row.prompt) == (48, 48, 48, 48, False)


def test_other_answers_of_another_setting_do_not_count() -> None:
    assert told(lambda cell, row: f"{cell.setting == 'k=5'} {row.prompt}") == (48, 48, 48, 48, False)


@pytest.mark.parametrize(("many", "differ"), [(29, True), (5, True), (4, False)])
def test_other_answers_are_counted_once_a_prompt(many: int, differ: bool) -> None:
    said = told(lambda cell, row: "other" if cell.setting == "k=3" and number(row) < many else row.prompt)
    assert said == (48 - many, 48, 48, 48, differ)


def test_the_first_rung_counts_where_a_prompt_was_sent_in_several() -> None:
    said = told(lambda cell, row: row.prompt[:: -1 if cell.setting == "k=3" and cell.rung else 1])
    assert said == (48, 48, 48, 48, False)


def test_a_standard_that_differs_from_itself_as_much_is_no_evidence() -> None:
    def text(cell: SweptCell, row: Row) -> str:
        own = (cell.setting, cell.turn) == ("standard", 0)
        return row.prompt if own or number(row) >= 20 else f"{cell.setting} {cell.turn}"

    assert told(text) == (28, 48, 28, 48, False)


def test_failed_requests_and_sampled_answers_are_not_compared() -> None:
    assert compare_answers(saying(lambda cell, row: "x", temperature=0.7), "standard", "k=3", 1) is None
    assert compare_answers(saying(lambda cell, row: "x"), "standard", "k=3", 2) is None
    cells = saying(lambda cell, row: row.prompt, rungs=1)
    rows = tuple(
        row.model_copy(update={"error": "http_500"} if number(row) < 8 else {}) for row in cells[1].cell.rows
    )
    assert cells[1].setting == "k=3"
    cells[1] = cells[1].model_copy(update={"cell": cells[1].cell.model_copy(update={"rows": rows})})
    found = compare_answers(cells, "standard", "k=3", 1)
    assert found is not None
    assert found.compared == 40


def test_a_rung_whose_standard_was_measured_once_has_no_control() -> None:
    cells = [
        one for one in saying(lambda cell, row: row.prompt) if (one.setting, one.turn) != ("standard", 1)
    ]
    assert compare_answers(cells, "standard", "k=3", 1) is None


def test_the_reason_names_other_answers_of_the_recommended_setting() -> None:
    finalists = Finalists(settings=("k=3",), streams=(1,))

    def reason(many: int, begins: str = "So ") -> str:
        cells = saying(
            lambda cell, row: (
                begins + row.prompt[:: -1 if cell.setting == "k=3" and number(row) < many else 1]
            )
        )
        cells = [one.model_copy(update={"stage": "confirmation"}) for one in cells if one.setting != "k=5"]
        return judged(settings(3), loads(1), cells, [], finalists=finalists).reason

    assert "answers" not in reason(0)
    assert "answers" not in reason(2)
    assert reason(20).endswith(
        "; its answers differ: 28 of 48 greedy answers are the standard's, which repeats 48 of 48 of its own"
    )

    # The first token is never drafted: rounding in a verification cannot change it.
    other = reason(20, begins="")
    assert other.startswith(("do not deploy", "not enough evidence")), other
    assert "28 of 48 greedy answers are the standard's" in other
    assert "20 differ from the first character on" in other
    assert "20 differ from the first character on" in reason(20, begins=" \n")
    assert "first character" not in reason(4, begins="")


def test_one_answer_to_many_prompts_is_named_beside_other_answers() -> None:
    cells = saying(
        lambda cell, row: (
            "I am sorry, there are too many requests."
            if cell.setting == "k=3" and number(row) < 20
            else row.prompt
        )
    )
    cells = [one.model_copy(update={"stage": "confirmation"}) for one in cells if one.setting != "k=5"]
    found = judged(settings(3), loads(1), cells, [], finalists=Finalists(settings=("k=3",), streams=(1,)))
    assert found.verdict == "no"
    assert "20 differ from the first character on" in found.reason
    assert "got the same answer as another prompt" in found.reason


def test_answers_at_temperature_0_beside_a_sampled_measurement() -> None:
    def found(of_setting: str, sampled: str = "sampled {}") -> Any:
        greedy = saying(lambda cell, row: (of_setting if cell.setting == "k=3" else "{}").format(row.prompt))
        cells = saying(
            lambda cell, row: (sampled if cell.setting == "k=3" else "own {}").format(row.prompt), 0.7
        )
        both = [one.model_copy(update={"greedy": of.cell}) for one, of in zip(cells, greedy, strict=True)]
        return compare_answers(both, "standard", "k=3", 1)

    assert (found("{}").equal, found("{}").starts_differ, found("{}").ignored) == (48, False, None)
    assert found("other {}").starts_differ
    assert found("{}", sampled="{}").ignored == (
        "for 48 of 48 prompts, an answer at the higher temperature is the greedy answer (standard: 0 of 48): "
        "the temperature is ignored"
    )


def test_a_standard_that_differs_from_itself_later_still_shows_another_start() -> None:
    def text(cell: SweptCell, row: Row) -> str:
        return f"{'theirs' if cell.setting == 'k=3' else 'own'} {cell.setting} {cell.turn} {row.prompt}"

    found = compare_answers(saying(text), "standard", "k=3", 1)
    assert found is not None
    assert (found.control_equal, found.other_start, found.starts_differ) == (0, 48, True)
