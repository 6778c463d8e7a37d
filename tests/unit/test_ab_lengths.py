"""Answers of other lengths: an arm that stops early is done early, which is no speed-up."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from made_visits import judged, visits

from specops.load.arrivals import Level
from specops.phases.ab.confounders import compare_lengths
from specops.phases.ab.speedups import Pair, Pairs
from specops.phases.ab.verdict import of_cell
from specops.phases.ab.visits import AbSettings

ONE = Level(concurrency=1)


def answering(
    share: float = 1.0,
    *,
    arm: str = "draft",
    faster: float = 1.0,
    spread: float = 0.0,
    of: tuple[int, ...] = (0, 1, 2),
    finish: str = "stop",
    tokens: bool = True,
) -> Any:
    """One arm's answers have `share` of the tokens, for classes `of`; each token is `faster` in the draft.

    Every answer's length is drawn anew, with a standard deviation of `spread` of its logarithm.
    """

    def answer(visit: Any, prompt: str, at: float) -> dict[str, Any]:
        drawn = random.Random(f"{visit.arm} {visit.round} {visit.level} {prompt}")
        length = (40 + 10 * (int(prompt[1:]) % 7)) * drawn.lognormvariate(0, spread)
        if visit.arm == arm and int(prompt[1:]) % 3 in of:
            length *= share
        count = max(1, round(length))
        tpot = 5.0 / (faster if visit.arm == "draft" else 1.0) * drawn.lognormvariate(0, 0.02)
        e2e = 20 + tpot * count
        return {
            "tokens": count if tokens else None,
            "tokens_from": "usage" if tokens else "unknown",
            "tpot_ms": tpot if tokens else None,
            "text": (f"{prompt} " + "word " * count)[: 5 * count],
            "finish_reason": finish if visit.arm == arm else "stop",
            "e2e_ms": e2e,
            "e2e_with_retries_ms": e2e,
        }

    return answer


def found(answer: Any, *, temperature: float = 0.7, settings: AbSettings | None = None, **made: Any) -> Any:
    return judged(
        visits(1.0, answer=answer, **{"prompts": 96} | made),
        temperature=temperature,
        settings=settings or AbSettings(),
    )


def of_all(result: Any) -> Any:
    return result.data["challengers"]["draft"]["levels"][0]


@pytest.mark.parametrize(("share", "words"), [(0.5, "answers are 50% ["), (0.8, "answers are 20% [")])
@pytest.mark.parametrize("faster", [1.0, 1.6])
def test_an_arm_that_truncates_never_deploys(share: float, words: str, faster: float) -> None:
    result = found(answering(share, faster=faster, spread=0.1))
    assert (result.verdict, result.summary["deploy"]) == ("no", [])
    assert words in of_all(result)["decision"]["reason"]
    assert "] shorter; " in result.reason
    assert of_all(result)["lengths"]["finding"] == "shorter"
    assert of_all(result)["decision"]["basis"] == "tpot"
    assert of_all(result)["speedups"]["e2e"]["low"] > 1  # which is what it seems to gain


def test_a_change_of_length_that_is_accepted_deploys_by_the_time_per_token() -> None:
    accept = AbSettings(accept_length_change=True)
    faster = found(answering(0.5, faster=1.6, spread=0.1), settings=accept)
    assert faster.verdict == "yes"
    assert "answers are 50% [" in faster.reason
    assert "1 stream, which is accepted" in faster.reason
    assert "1.60× [" in of_all(faster)["decision"]["reason"]
    assert "per output token" in of_all(faster)["decision"]["reason"]
    even = found(answering(0.5, faster=1.0, spread=0.1), settings=accept)
    assert (even.verdict, even.summary["deploy"]) == ("undecided", [])
    slower = found(answering(0.5, faster=0.8, spread=0.1), settings=accept)
    assert slower.verdict == "no"


def test_a_class_whose_answers_are_cut_does_not_deploy_and_the_others_may() -> None:
    result = found(answering(0.7, faster=1.6, spread=0.05, of=(1,)))
    assert {one["traffic_class"] for one in result.summary["deploy"]} == {"edit", "short"}
    assert "not for long: answers are 30% [" in result.reason


def test_a_standard_that_truncates_is_named() -> None:
    result = found(answering(0.5, arm="standard", finish="length", spread=0.1))
    assert result.verdict == "undecided"
    reason = of_all(result)["decision"]["reason"]
    assert "the standard truncates: 192 of its answers end at the length limit" in reason
    assert "] longer (" in reason
    assert "per output token" in reason
    assert of_all(result)["speedups"]["e2e"]["high"] < 1  # which would be slower
    silent = of_all(found(answering(0.5, arm="standard", spread=0.1)))["decision"]["reason"]
    assert "the standard may truncate its answers, or the other arm may not stop" in silent


def test_equal_lengths_are_decided_end_to_end() -> None:
    result = found(answering(faster=1.6), temperature=0.0)
    assert result.verdict == "yes"
    assert of_all(result)["lengths"]["finding"] == "equal"
    assert of_all(result)["decision"]["basis"] == "e2e"
    # Within the margin they are equal too, and beyond it they are not.
    assert of_all(found(answering(0.98, faster=1.6), prompts=96))["lengths"]["finding"] == "equal"
    margin = AbSettings(length_margin=0.005)
    assert of_all(found(answering(0.98, faster=1.6), settings=margin))["lengths"]["finding"] == "shorter"


def test_sampled_answers_of_equal_lengths_are_decided_by_the_time_per_token() -> None:
    result = found(answering(faster=1.6, spread=0.2))
    assert result.verdict == "yes"
    assert of_all(result)["lengths"]["finding"] == "open"
    assert of_all(result)["decision"]["basis"] == "tpot"
    assert found(answering(faster=1.0, spread=0.2)).verdict == "undecided"


@pytest.mark.parametrize("share", [0.8, 1.0])
def test_lengths_that_are_not_known_well_enough_leave_it_undecided(share: float) -> None:
    """Few prompts whose lengths are drawn anew: a fifth less could be chance, and equal could be less."""
    result = found(answering(share, faster=1.6, spread=0.5), prompts=24, classes=("chat",))
    assert (result.verdict, result.summary["deploy"]) == ("undecided", [])
    assert of_all(result)["lengths"]["finding"] == "open"
    assert "answers are " in result.reason
    if share == 1.0:
        assert result.summary["more_prompts"] > 0


def test_a_truncating_arm_deploys_by_luck_less_often_than_once_in_forty() -> None:
    deployed = 0
    for seed in range(40):
        made = visits(1.0, prompts=32, classes=("chat",), seed=seed, answer=_reseeded(seed))
        deployed += judged(made, temperature=0.7).verdict == "yes"
    assert deployed <= 1


def _reseeded(seed: int) -> Any:
    def answer(visit: Any, prompt: str, at: float) -> dict[str, Any]:
        drawn = random.Random(f"{seed} {visit.arm} {visit.round} {prompt}")
        length = 60 * drawn.lognormvariate(0, 0.4) * (0.8 if visit.arm == "draft" else 1.0)
        tpot = (3.0 if visit.arm == "draft" else 5.0) * drawn.lognormvariate(0, 0.05)
        e2e = 20 + tpot * length
        known = {
            "tokens": round(length),
            "tpot_ms": tpot,
            "text": (prompt + "x" * round(5 * length))[: round(5 * length)],
        }
        return known | {"e2e_ms": e2e, "e2e_with_retries_ms": e2e}

    return answer


def test_characters_are_compared_where_tokens_are_not_known() -> None:
    result = found(answering(0.5, faster=1.6, spread=0.1, tokens=False))
    assert result.verdict == "no"
    assert "] shorter, in characters; 1.6" in of_all(result)["decision"]["reason"]
    assert of_all(result)["lengths"]["unit"] == "characters"
    assert of_all(result)["decision"]["basis"] == "per_character"


def test_tokens_that_were_counted_and_not_sent_do_not_hide_a_short_answer() -> None:
    half = answering(0.5, faster=1.6, spread=0.05)

    def answer(visit: Any, prompt: str, at: float) -> dict[str, Any]:
        fields = half(visit, prompt, at)
        return fields | ({"tokens": 2 * fields["tokens"]} if visit.arm == "draft" else {})

    result = found(answer)
    assert result.verdict == "no"
    assert "] shorter, in characters" in result.reason


def pair(number: int, ours: float, theirs: float) -> Pair:
    return Pair(
        f"p{number}",
        "chat",
        ONE,
        0,
        0.0,
        e2e=((100.0, 50.0),),
        tpot=((5.0, 5.0),),
        ttft=(),
        tokens=((ours, theirs),),
    )


@pytest.mark.parametrize(
    ("theirs", "finding"),
    [
        (1 / 1.031, "shorter"),
        (1 / 1.029, "equal"),
        (1.0, "equal"),
        (1.029, "equal"),
        (1.031, "longer"),
    ],
)
def test_the_margin_is_the_same_both_ways(theirs: float, finding: str) -> None:
    lengths = compare_lengths([pair(n, 1000.0, 1000.0 * theirs) for n in range(9)], 0.03, 0.95)
    assert lengths is not None
    assert lengths.finding == finding
    assert lengths.ratio is not None
    assert lengths.ratio.estimate == pytest.approx(theirs)


def test_an_answer_of_nothing_is_a_short_one() -> None:
    lengths = compare_lengths([pair(n, 20.0, 0.0 if n % 2 else 20.0) for n in range(40)], 0.03, 0.95)
    assert lengths is not None
    assert lengths.finding == "shorter"


def test_few_prompts_have_no_interval_of_lengths() -> None:
    few = [pair(n, 20.0, 10.0) for n in range(7)]
    lengths = compare_lengths(few, 0.03, 0.95)
    assert lengths is not None
    assert (lengths.ratio, lengths.finding, lengths.more_prompts) == (None, "open", None)
    assert str(lengths) == "answers: too few prompts to compare their tokens"
    assert compare_lengths([], 0.03, 0.95) is None


def test_the_words() -> None:
    spread = [pair(n, 100.0, 52.0 + n % 3 - 1) for n in range(30)]
    assert str(compare_lengths(spread, 0.03, 0.95)) == "answers are 48% [48, 48] shorter"
    other = [pair(n, 52.0 + n % 3 - 1, 100.0) for n in range(30)]
    assert str(compare_lengths(other, 0.03, 0.95)).startswith("answers are 92% [91, 9")


def test_it_takes_a_speed_up_per_token_where_lengths_differ() -> None:
    cell = of_cell_of([pair(n, 20.0, 10.0) for n in range(20)], accept_length_change=True)
    assert (cell.decision.verdict, cell.decision.basis) == ("undecided", "tpot")
    same = of_cell_of([replace(pair(n, 20.0, 20.0), tpot=((10.0, 5.0),)) for n in range(20)])
    assert (same.decision.verdict, same.decision.basis) == ("yes", "e2e")


def of_cell_of(pairs: list[Pair], **chosen: Any) -> Any:
    return of_cell(Pairs(tuple(pairs)), ONE, 0.95, AbSettings(**chosen))
