"""Where answers part, the standard is asked how sure it was: a near tie is no loss, another answer is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from comparing import Decided, run
from stub import Body, Reply, Stub, fault, stream

from specops.phases.ab import verdict
from specops.phases.ab.visits import AbSettings, measurements_of

ONE_LOOK = AbSettings(looks=1, mixed_prompts=0)
OURS, THEIRS = [("a dog", 2), (" ran", 1)], [("a dog", 2), (" sat", 1)]
TOKENS = [("a", -0.1, -5.0), (" dog", -0.1, -5.0), (" ran", -0.69, -0.70)]


@pytest.fixture(autouse=True)
def never_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdict, "look", lambda *_: Decided(False))


def told(body: Body) -> Reply:
    """As OpenAI and vLLM tell log-probabilities, for either kind of request."""
    logprobs: Any = {
        "content": [
            {"token": text, "top_logprobs": [{"logprob": one}, {"logprob": two}]} for text, one, two in TOKENS
        ]
    }
    if "prompt" in body:
        logprobs = {
            "tokens": [text for text, _, _ in TOKENS],
            "top_logprobs": [{text: one, "?": two} for text, one, two in TOKENS],
        }
    answer = {"choices": [{"index": 0, "logprobs": logprobs}]}
    return Reply([json.dumps(answer).encode()], content_type="application/json")


def differing(stub: Stub, other: Stub, how_sure: Any = told) -> None:
    """The arms part at the same prompt, at the last word."""

    def unlike(body: Body) -> bool:
        return "Prompt 3" in json.dumps(body)

    stub.answer = lambda body: Reply(stream(body, OURS)) if body["stream"] else how_sure(body)
    other.answer = lambda body: Reply(stream(body, THEIRS if unlike(body) else OURS))


@pytest.mark.parametrize("endpoint", ["chat", "completions"])
def test_the_margin_is_asked_for_once_and_kept(stub, other, prompts_file: Path, endpoint) -> None:
    differing(stub, other)
    found = run((stub, other), prompts_file, settings=ONE_LOOK, endpoint=endpoint)
    (margin,) = measurements_of(found, "it").margins
    assert (margin.prompt, margin.character) == ("p3", len("a dog "))
    assert margin.margin == pytest.approx(0.01)
    asked = stub.requests[-1]
    assert (asked["stream"], "stream_options" in asked) == (False, False)
    parity, again = found.data["challengers"]["b"]["parity"]
    assert (parity["equal"], parity["compared"], parity["near_ties"]) == (11, 12, 1)
    assert (again["repeated"], again["equal"], again["compared"]) == (True, 11, 11)
    stub.requests.clear()
    run((stub, other), prompts_file, found, ONE_LOOK, endpoint=endpoint)
    assert stub.requests == []


@pytest.mark.parametrize(
    "how_sure",
    [
        lambda _: fault(400, "logprobs are not supported"),
        lambda _: Reply([b'{"choices": [{"logprobs": null}]}'], content_type="application/json"),
        lambda _: Reply([b"<html>"], content_type="text/html"),
    ],
    ids=["refused", "left out", "nonsense"],
)
def test_a_standard_that_does_not_tell_is_asked_no_more(stub, other, prompts_file: Path, how_sure) -> None:
    differing(stub, other, how_sure)
    found = run((stub, other), prompts_file, settings=ONE_LOOK)
    assert [margin.margin for margin in measurements_of(found, "it").margins] == [None]
    assert found.data["challengers"]["b"]["parity"][0]["near_ties"] == 0


def test_nothing_is_asked_where_the_answers_are_the_same(stub, other, prompts_file: Path) -> None:
    found = run((stub, other), prompts_file, settings=ONE_LOOK)
    assert measurements_of(found, "it").margins == []
    assert all(request["stream"] for request in stub.requests)
