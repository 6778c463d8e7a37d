"""Prompts that come twice in a set, and answers that several prompts get."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from made_visits import ARMS, judged, visits

from specops.load import validity
from specops.load.answer import contradicts
from specops.load.arrivals import Level
from specops.load.settings import BaselineSettings
from specops.load.workload import load_prompts, repeated_sentence

APOLOGY = "I'm sorry, the server is overloaded."


@dataclass
class MadeRow:
    prompt: str
    text: str = ""
    error: str | None = None
    chunks: int = 10
    tokens: int | None = 10
    tokens_from: str = "usage"
    ttft_ms: float | None = 10.0
    tpot_ms: float | None = 5.0
    e2e_ms: float = 100.0
    reasoning: int = 0
    finish_reason: str = "stop"


@dataclass
class MadeCell:
    repeat: int
    rows: list[MadeRow]
    level: Level = Level(concurrency=1)  # noqa: RUF009 - frozen


def cells(second: float, prompts: int = 12) -> Any:
    """Two repeats; the second takes `second` times as long in all, with the same TTFT and TPOT."""
    return [
        MadeCell(
            n,
            [
                MadeRow(f"p{i}", f"answer {i}", e2e_ms=(100.0 + i) * (second if n else 1.0))
                for i in range(prompts)
            ],
        )
        for n in (0, 1)
    ]


def written(path: Path, texts: list[str]) -> Path:
    path.write_text(
        json.dumps([{"id": f"p{n}", "class": f"c{n % 2}", "text": t} for n, t in enumerate(texts)])
    )
    return path


def test_a_prompt_that_repeats_an_earlier_one_is_sent_once(tmp_path: Path) -> None:
    path = written(tmp_path / "p.json", ["one", "two", "one", "three", "two", "one"])
    found = BaselineSettings(base_url="http://127.0.0.1:1/v1", model="m", prompts=path).prompt_set()
    assert [prompt.id for prompt in found.prompts] == ["p0", "p1", "p3"]
    assert repeated_sentence(found.repeated, 3) == "3 of 6 prompts repeat an earlier one and were left out"
    assert found.provenance()["count"] == 3
    assert found.provenance()["repeated"] == 3


def test_prompts_that_only_look_alike_are_all_sent(tmp_path: Path) -> None:
    found = load_prompts(written(tmp_path / "p.json", ["one", "One", "one ", "one."])).distinct()
    assert (len(found.prompts), repeated_sentence(found.repeated, 4)) == (4, "")


def gets(share_of: int, arm: str, text: str) -> Any:
    sent = 0

    def answer(visit: Any, prompt: str, at: float) -> dict[str, Any]:
        nonlocal sent
        sent += visit.arm == arm
        own = f"the answer to {prompt}, in words"
        return {"text": text if visit.arm == arm and sent % share_of == 0 else own}

    return answer


@pytest.mark.parametrize(("every", "verdict"), [(1, "no"), (2, "no"), (20, "undecided")])
def test_one_answer_to_several_prompts_never_deploys(every: int, verdict: str) -> None:
    found = judged(visits(2.0, prompts=32, answer=gets(every, "draft", APOLOGY)), temperature=0.7)
    assert (found.verdict, found.summary["deploy"]) == (verdict, [])
    assert f"{64 // every} of 64 requests got the same answer as another prompt" in found.reason


def test_short_answers_and_those_of_the_standard_are_no_evidence() -> None:
    for arm, text in (("draft", "yes, that is right"), ("standard", APOLOGY)):
        found = judged(visits(2.0, prompts=32, answer=gets(2, arm, text)), temperature=0.7)
        assert found.verdict == "yes", found.reason
    both = judged(
        visits(2.0, prompts=32, answer=lambda visit, prompt, at: {"text": APOLOGY}), temperature=0.7
    )
    assert both.verdict == "yes", both.reason


def everywhere(arm: str, **fields: Any) -> Any:
    def answer(visit: Any, prompt: str, at: float) -> dict[str, Any]:
        made = {"text": "the answer to {}, in words"} | (fields if visit.arm == arm else {})
        return made | {"text": made["text"].format(prompt)}

    return answer


UNLIKE_THE_STANDARDS = [
    ({"text": "{0} and " * 9}, "got an answer that repeats one passage"),
    ({"text": "let me think of {:<6}", "reasoning": 22}, "got reasoning and no answer"),
    ({"finish_reason": "content_filter"}, "got an answer that a content filter ended"),
]


@pytest.mark.parametrize(("fields", "says"), UNLIKE_THE_STANDARDS)
def test_answers_that_are_none_never_deploy(fields: dict[str, Any], says: str) -> None:
    found = judged(visits(2.0, prompts=32, answer=everywhere("draft", **fields)), temperature=0.7)
    assert (found.verdict, found.summary["deploy"]) == ("no", [])
    assert f"64 of 64 requests {says} (standard: 0 of 64; " in found.reason


@pytest.mark.parametrize(("fields", "says"), UNLIKE_THE_STANDARDS)
def test_what_both_arms_answer_alike_is_no_evidence(fields: dict[str, Any], says: str) -> None:
    def answer(visit: Any, prompt: str, at: float) -> dict[str, Any]:
        return everywhere(visit.arm, **fields)(visit, prompt, at)

    both = judged(visits(2.0, prompts=32, answer=answer), temperature=0.7)
    assert both.verdict == "yes", both.reason
    assert says not in both.reason


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("the same. " * 3, True),
        ("it begins well, then " + "on and " * 4, True),
        ("it begins well and it goes well for long, then " + "on and " * 3, False),
        ("the same. " * 2, False),
        ("no " * 6, False),
        ("an answer in which no passage comes again at once", False),
        ("", False),
    ],
)
def test_a_loop_is_most_of_an_answer(text: str, found: bool) -> None:
    assert validity.loops(text) is found


def test_a_baseline_names_answers_that_are_not_what_was_requested() -> None:
    limits = {"p0": 64, "p1": 64}

    def said(**fields: Any) -> list[str | None]:
        rows = [MadeCell(0, [MadeRow("p0", "own text"), MadeRow("p1", "a text", **fields)])]
        return [validity.unanswered(rows), validity.filtered(rows), validity.limited(rows, limits)]

    assert said() == [None, None, None]
    unanswered = said(reasoning=6)[0]
    assert unanswered is not None
    assert unanswered.startswith("1 of 2 requests got reasoning and no answer: raise max_tokens")
    assert said(reasoning=5) == [None, None, None]
    assert said(finish_reason="content_filter")[1] == "1 of 2 answers were ended by a content filter"
    limited = said(finish_reason="length", tokens=32)[2]
    assert limited is not None
    assert limited.startswith("1 of 2 answers end with finish_reason length below max_tokens")
    assert "after 32 of 64 tokens" in limited
    for tokens in (63, 64, None):
        assert said(finish_reason="length", tokens=tokens)[2] is None


def test_a_baseline_names_repeats_that_come_from_a_cache() -> None:
    said = validity.cached(cells(0.3))
    assert len(said) == 1
    assert "E2E 3.3× [3.3, 3.3]" in said[0].sentence
    assert "TTFT" not in said[0].sentence
    for unsurprising in (cells(1.0), cells(0.9), cells(3.0), cells(0.3)[:1], cells(0.3, prompts=3)):
        assert validity.cached(unsurprising) == []


def test_a_baseline_names_an_answer_that_several_prompts_get() -> None:
    assert validity.stock(cells(1.0)) is None
    said = validity.stock(
        [MadeCell(0, [MadeRow(f"p{i}", APOLOGY if i < 3 else f"answer {i}") for i in range(9)])]
    )
    assert said is not None
    assert said.sentence == f"3 of 9 requests got the same answer as another prompt, such as: {APOLOGY!r}"
    assert said.share == 3 / 9
    assert validity.stock([MadeCell(n, [MadeRow("p0", APOLOGY)]) for n in (0, 1)]) is None


def test_a_baseline_names_a_server_that_counts_fewer_tokens_than_it_sends() -> None:
    def said(**fields: Any) -> str:
        doubt = validity.undercounted([MadeCell(0, [MadeRow("p0"), MadeRow("p1", **fields)])])
        assert doubt is None or doubt.share == 0.5
        return doubt.sentence if doubt else ""

    for right in (
        {},
        {"tokens": 30},
        {"tokens": None},
        {"tokens": 99, "chunks": 100},
        {"error": "cut", "tokens": 6},
    ):
        assert said(**right) == ""
    assert said(tokens=6, tokens_from="retokenised") == ""
    assert said(tokens=6).startswith("in 1 of 2 answers the server counts fewer tokens than it sends chunks")
    assert "(6 and 10)" in said(tokens=6)
    assert said(tokens=98, chunks=100) != ""


def test_a_baseline_names_a_server_that_counts_more_tokens_than_the_limit_allows() -> None:
    def said(limit: int = 64, **fields: Any) -> validity.Doubt | None:
        cell: Any = MadeCell(0, [MadeRow("p0"), MadeRow("p1", **fields)])
        return validity.overcounted([cell], {"p0": 64, "p1": limit})

    for right in ({"tokens": 64}, {"tokens": 65}, {"tokens": None}, {"tokens": 96, "error": "cut"}):
        assert said(**right) is None
    assert said(tokens=96, tokens_from="retokenised") is None
    found = said(tokens=96)
    assert found is not None
    assert found.sentence.startswith(
        "in 1 of 2 answers the server counts more tokens than max_tokens allows, "
    )
    assert ("such as 96 of at most 64" in found.sentence, found.share) == (True, 0.5)
    assert said(tokens=20, limit=16) is not None


@pytest.mark.parametrize(
    ("tokens", "finish", "wrong"),
    [
        (8, "length", False),
        (8, "stop", False),
        (3, "stop", False),
        (9, "length", False),
        (7, "length", False),
        (12, "length", True),
        (12, "stop", True),
        (5, "length", True),
        (None, "length", False),
    ],
)
def test_a_count_is_checked_against_the_limit_that_ended_the_answer(tokens, finish, wrong) -> None:
    assert contradicts(tokens, 8, finish) == wrong


def test_a_comparison_with_an_arm_that_counts_wrongly_decides_nothing() -> None:
    miscount = "the server counts 12 tokens in an answer with max_tokens 8 (finish_reason length)"
    for wrong in ("standard", "draft"):
        facts = {arm: {"pool": {}} | ({"miscount": miscount} if arm == wrong else {}) for arm in ARMS}
        found = judged(visits(2.0), facts=facts)
        assert (found.verdict, found.summary["deploy"]) == ("undecided", [])
        assert found.reason.startswith(f"{wrong}: {miscount}; fix the token count")
    assert judged(visits(2.0), facts={arm: {"pool": {}} for arm in ARMS}).verdict == "yes"


def test_equal_texts_with_other_counts_of_tokens_are_named() -> None:
    made = visits(2.0, answer=lambda visit, prompt, at: {"tokens": 15 if visit.arm == "draft" else 10})
    found = judged(made)
    assert found.verdict == "no"
    assert "0/48 greedy answers are the same in both arms at 1 stream (48 more have the same text, and" in (
        found.reason
    )
