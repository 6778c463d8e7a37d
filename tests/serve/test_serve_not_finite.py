"""Logits that are not finite: the request fails with an error and is counted, and others go on."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from live import Live
from torch import Tensor

from specops.engine.attention import Layout
from specops.engine.request import Emission, TokenLogprob
from specops.serve.protocol import ChatRequest, CompletionRequest
from specops.serve.responses import ChatAnswer, CompletionAnswer

BAD = 77
LABELS = 'engine="0",model_name="tiny"'
FAILED = f"vllm:corrupted_requests_total{{{LABELS}}}"
ENDED = 'vllm:request_success_total{engine="0",finished_reason="error",model_name="tiny"}'
BODY = {"max_tokens": 12, "temperature": 0.0, "ignore_eos": True, "return_token_ids": True}


@pytest.fixture(params=[math.nan, math.inf, -math.inf])
def broken(tiny_pair: tuple[Path, Path], request: pytest.FixtureRequest) -> Iterator[Live]:
    """A server whose target has such logits after prompts that begin with BAD."""
    from specops.engine import load_engine

    engine = load_engine(tiny_pair[0], tiny_pair[0], tree="chain:2", max_batch=2, max_length=128, threads=1)
    forward = engine.target.forward

    def with_fault(tokens: Tensor, layout: Layout, some: Tensor | None = None) -> Tensor:
        logits = forward(tokens, layout, some)
        if any(span.start == 0 for span in layout.spans) and (tokens == BAD).any():
            logits[:, 3] = request.param
        return logits

    engine.target.forward = with_fault  # type: ignore[method-assign]
    live = Live(engine)
    yield live
    live.close()


def test_a_request_fails_with_its_error_and_is_counted(broken: Live) -> None:
    before = broken.complete([5, 6, 7], **BODY)["choices"][0]["token_ids"]
    reply = broken.ask("/v1/completions", {"prompt": [BAD, 1], **BODY})
    assert reply.status == 500
    assert reply.error["code"] == "not_finite"
    assert reply.error["message"] == "the target's logits are not finite"
    streamed = broken.ask("/v1/completions", {"prompt": [BAD, 1], **BODY, "stream": True, "logprobs": 2})
    assert (streamed.status, streamed.error["code"]) == (500, "not_finite")
    two = broken.ask("/v1/completions", {"prompt": [[BAD, 1], [5, 6, 7]], **BODY})
    assert two.status == 500
    assert broken.metrics()[FAILED] == 4
    assert broken.metrics()[ENDED] == 4
    assert broken.complete([5, 6, 7], **BODY)["choices"][0]["token_ids"] == before
    assert broken.ask("/health").status == 200


def strictly(text: str) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    json.loads(text, parse_constant=refuse)


values = st.floats(allow_nan=True, allow_infinity=True)


@given(logprobs=st.lists(values, min_size=1, max_size=4))
def test_logprobs_are_json(logprobs: list[float], tiny: Live) -> None:
    entries = [TokenLogprob(5, min(value, 0.0), ((6, min(value, 0.0)),)) for value in logprobs]
    emission = Emission(0, [5] * len(entries), "a" * len(entries), "length", None, entries)
    tokenizer = tiny.engine.tokenizer
    chat = ChatRequest(messages=[{"role": "user", "content": "a"}], logprobs=True, top_logprobs=1)
    completion = CompletionRequest(prompt="a", logprobs=1)
    for answer in (
        ChatAnswer(chat, "tiny", [[1]], tokenizer),
        CompletionAnswer(completion, "tiny", [[1]], tokenizer),
    ):
        strictly(json.dumps(answer.chunk(0, emission)))
        strictly(json.dumps(answer.whole()))
