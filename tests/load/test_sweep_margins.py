"""Where a confirmed setting answers otherwise, the standard is queried for how sure it was of its token."""

from __future__ import annotations

import json
from typing import Any

import pytest
from stub import Reply, Stub, stream
from sweeping import found, run, spec

pytestmark = pytest.mark.usefixtures("any_speed")


def beginning(prompt: str) -> str:
    """The answer to a prompt begins so, whatever its nonce."""
    return f"{prompt.rpartition('] ')[2]}: so it goes on, and "


def answering(word: str, nats: float) -> Any:
    """An endpoint that ends some answers with `word`; its second likeliest token is less likely by `nats`."""

    def answer(body: dict[str, Any]) -> Reply:
        prompt = str(body["messages"][-1]["content"])
        pieces = [(beginning(prompt), 4), (word if prompt.endswith(("Prompt 3", "Prompt 7")) else "ends", 1)]
        if not body.get("logprobs"):
            return Reply(stream(body, pieces))
        top = [{"token": "x", "logprob": -0.75}, {"token": "y", "logprob": -0.75 - nats}]
        content = [{"token": text, "top_logprobs": top} for text, _ in pieces]
        choice = {"index": 0, "finish_reason": "stop", "message": {}, "logprobs": {"content": content}}
        return Reply([json.dumps({"id": "a", "choices": [choice]}).encode()], content_type="application/json")

    return answer


def queries(stub: Stub) -> list[str]:
    return [request["messages"][0]["content"] for request in stub.requests if request.get("logprobs")]


@pytest.mark.parametrize("nats", [0.125, 2.0])
def test_the_standard_is_queried_where_answers_differ(
    stub: Stub, other: Stub, prompts_file: Any, nats: float
) -> None:
    stub.answer, other.answer = answering("stops", nats), answering("halts", nats)
    what = spec((stub, other), prompts_file, ks=(0, 3))
    result = run(what)
    margins = found(result).margins
    assert {margin.prompt for margin in margins} == {"p3", "p7"}
    assert {margin.character for margin in margins} == {len(beginning("Prompt 3"))}
    assert [margin.nats for margin in margins] == pytest.approx([nats] * len(margins))
    differing = ("Prompt 3", "Prompt 7")
    assert len(queries(stub)) == 2 == sum(prompt.endswith(differing) for prompt in queries(stub))
    sent = {request["messages"][0]["content"] for request in other.requests}
    assert set(queries(stub)) <= sent  # the same variants
    assert not queries(other)
    (finding,) = [
        finding
        for figures in result.data["overall"]
        for finding in figures["findings"]
        if finding["claim"] == "answers"
    ]
    assert finding["counts"]["challenger"] == (0 if nats < 0.25 else 4)
    assert (finding["verdict"] == "against") == (nats > 0.25)
    again = run(what, previous=result)
    assert found(again).margins == margins
    assert len(queries(stub)) == 2


def test_equal_answers_need_no_query(stub: Stub, other: Stub, prompts_file: Any) -> None:
    stub.answer = other.answer = answering("stops", 2.0)
    result = run(spec((stub, other), prompts_file, ks=(0, 3)))
    assert found(result).margins == []
    assert not queries(stub)
