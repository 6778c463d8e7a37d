"""A baseline whose figures are doubtful is undecided, and says what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from measuring import run
from stub import Body, Reply, Stub, stream

from specops.load.validity import COUNT_ADVICE

pytestmark = pytest.mark.usefixtures("any_speed")

NOTHING = "not usable as a baseline; "
APOLOGY = "I'm sorry, the server is overloaded."


def prompt_of(body: Body) -> str:
    return str(body["messages"][0]["content"])


def counting(share: float, in_chunks_of: int = 3) -> Any:
    """Answers of as many words as `max_tokens` allows, of which `share` are counted."""

    def answer(body: Body) -> Reply:
        words = [f" {prompt_of(body)}"] * body["max_tokens"]
        pieces = ["".join(words[at : at + in_chunks_of]) for at in range(0, len(words), in_chunks_of)]
        counts = [0] * (len(pieces) - 1) + [round(share * len(words))]
        return Reply(stream(body, list(zip(pieces, counts, strict=True))))

    return answer


@pytest.mark.parametrize(
    ("share", "says"),
    [
        (1.0, ""),
        (1.5, "the server counts 12 tokens in an answer with max_tokens 8 (finish_reason length)"),
        (1.5, "in 12 of 12 answers the server counts more tokens than max_tokens allows, such as 24 of at "),
        (0.667, "the server counts 5 tokens in an answer with max_tokens 8 (finish_reason length)"),
    ],
)
def test_a_wrong_count_of_tokens(stub: Stub, prompts_file: Path, share: float, says: str) -> None:
    stub.answer = counting(share)
    found = run(stub, prompts_file)
    assert found.verdict == ("undecided" if says else "yes"), found.reason
    assert says in found.reason
    assert ("miscount" in found.data["endpoint"]) == bool(says)
    if says:
        assert found.reason.startswith(NOTHING)
        assert found.reason.endswith(f"; {COUNT_ADVICE}, and measure again")


def test_one_token_in_each_chunk_and_half_of_them_counted(stub: Stub, prompts_file: Path) -> None:
    stub.answer = counting(0.6, in_chunks_of=1)
    found = run(stub, prompts_file)
    assert found.verdict == "undecided"
    assert "in 12 of 12 answers the server counts fewer tokens than it sends chunks of text" in found.reason


@pytest.mark.parametrize(("every", "verdict"), [(1, "undecided"), (3, "undecided"), (13, "yes")])
def test_stock_answers(stub: Stub, prompts_file: Path, every: int, verdict: str) -> None:
    def answer(body: Body) -> Reply:
        number = int(prompt_of(body).split()[-1])
        text = APOLOGY if number % every == 0 else f"The whole answer to {prompt_of(body)}"
        return Reply(stream(body, [(text, body["max_tokens"])]))

    stub.answer = answer
    found = run(stub, prompts_file)
    assert found.verdict == verdict
    assert found.reason.startswith(NOTHING) == (verdict == "undecided")
    if verdict == "undecided":
        assert f"{12 // every} of 12 requests got the same answer as another prompt" in found.reason
        assert "; lower the load or fix the server; if such answers are correct, " in found.reason


def test_few_stock_answers_are_named_and_no_more(stub: Stub, prompts_file: Path) -> None:
    stub.answer = lambda body: Reply(
        stream(body, [(APOLOGY if prompt_of(body)[-1] in "12" else prompt_of(body), body["max_tokens"])])
    )
    found = run(stub, prompts_file, max_error_share=0.24)
    assert (found.verdict, "3 of 12 requests got the same" in found.reason) == ("undecided", True)
    found = run(stub, prompts_file, max_error_share=0.25)
    assert (found.verdict, "3 of 12 requests got the same" in found.reason) == ("yes", True)


def test_a_cache(stub: Stub, prompts_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specops.load.validity.CACHED", 1.2)
    answered: list[str] = []

    def answer(body: Body) -> Reply:
        known = prompt_of(body) in answered
        answered.append(prompt_of(body))
        return Reply(stream(body, [("x", 1)] * 8), first_s=0.008 if known else 0.03)

    stub.answer = answer
    assert run(stub, prompts_file, repeats=2).verdict == "yes"  # no request is a repeat
    found = run(stub, prompts_file, repeats=2, same_prompts=True)
    assert found.verdict == "undecided"
    assert found.reason.startswith(NOTHING)
    assert "at 1 stream, repeats are faster than first requests" in found.reason
    assert found.reason.endswith(
        "; leave out --same-prompts, or use --repeats 1 --warmup 0 (first requests only), and measure again"
    )
    answered.clear()
    assert run(stub, prompts_file).verdict == "yes"
