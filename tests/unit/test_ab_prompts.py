"""Prompts that the arms do not read alike, by the servers' own numbers of tokens."""

from __future__ import annotations

from typing import Any

import pytest
from made_sweeps import judged as judged_sweep
from made_sweeps import loads, settings, swept
from made_visits import judged, row, visits

from specops.phases.ab.confounders import other_prompts
from specops.phases.ab.judging import AbJudgement

FEW = {f"p{number:03}" for number in range(3)}
WORDS = "of 48 prompts, and the standard"


def counting(tokens: int | None, arm: str = "draft", *, unlike: bool = False) -> AbJudgement:
    """A comparison in which `arm` counts so many tokens in a few prompts of 30, and answers one of them
    otherwise."""

    def answer(visit: Any, prompt: str, at: float) -> dict[str, Any]:
        if visit.arm != arm or prompt not in FEW:
            return {}
        other = {"text": "something else"} if unlike and prompt == min(FEW) else {}
        return {"prompt_tokens": tokens} | other

    return judged(visits(2.0, answer=answer))


@pytest.mark.parametrize("arm", ["draft", "standard"])
@pytest.mark.parametrize("tokens", [15, 33, 60])
def test_a_gain_on_other_prompts_is_undecided(arm: str, tokens: int) -> None:
    assert counting(30, arm, unlike=True).verdict == "yes"  # one other answer may be rounding
    found = counting(tokens, arm, unlike=True)
    assert (found.verdict, found.summary["deploy"]) == ("undecided", [])
    ours, theirs = (90, 3 * tokens) if arm == "draft" else (3 * tokens, 90)
    said = f"the challenger counts {theirs} tokens in 3 {WORDS} {ours}: one of them cuts prompts"
    assert said in found.reason
    assert "by speed alone: deploy for edit, long, short at 1 stream" in found.reason


@pytest.mark.parametrize("tokens", [28, 32, None])
def test_special_tokens_and_unknown_numbers_are_not_other_prompts(tokens: int | None) -> None:
    found = counting(tokens, unlike=True)
    assert found.verdict == "yes"
    assert "counts" not in found.reason


def test_arms_that_answer_alike_only_count_differently() -> None:
    found = counting(15)
    assert found.verdict == "yes"
    assert f"counts 45 tokens in 3 {WORDS} 90" in found.reason


def test_a_margin_is_a_share_of_the_standards_number() -> None:
    def counted(tokens: int, margin: float) -> bool:
        rows = [row("p", "edit", 100.0, prompt_tokens=number) for number in (1000, tokens)]
        return other_prompts(rows[:1], rows[1:], margin) is not None

    assert [counted(tokens, 0.03) for tokens in (969, 970, 1030, 1031)] == [True, False, False, True]
    assert not counted(1031, 0.1)


def test_the_largest_number_of_a_prompt_counts_and_prompts_of_one_arm_do_not() -> None:
    whole = [row(prompt, "edit", 100.0) for prompt in ("p", "q", "p")]
    cached = [row("p", "edit", 100.0, prompt_tokens=tokens) for tokens in (1, 30, 2)]
    assert other_prompts(whole, cached, 0.03) is None
    found = other_prompts(whole, cached[:1], 0.03)
    assert found is not None
    assert (found.of, found.counts) == (1, ((30, 1),))


@pytest.mark.parametrize(("unlike", "verdict"), [(True, "undecided"), (False, "yes")])
def test_a_setting_that_cuts_prompts_is_not_recommended(unlike: bool, verdict: str) -> None:
    cells = []
    for one in swept({"k=3": 1.5}, settings(3), loads(1), rungs=2):
        rows = one.cell.rows
        if one.setting == "k=3":
            other = {"text": "something else"} if unlike else {}
            rows = tuple(
                row.model_copy(update={"prompt_tokens": 15} | other) if row.prompt == rows[0].prompt else row
                for row in rows
            )
        cells.append(one.model_copy(update={"cell": one.cell.model_copy(update={"rows": rows})}))
    found = judged_sweep(settings(3), loads(1), cells)
    assert found.verdict == verdict, found.reason
    assert ("one of them cuts prompts" in found.reason) == unlike
