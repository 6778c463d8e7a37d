"""Bad input: each gets a 4xx in OpenAI's shape that names what is wrong, and never a 500."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from typing import Any

import openai
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jinja2 import TemplateError
from live import Live

from specops.serve.limits import Limits
from specops.serve.protocol import (
    MAX_STOP_CHARACTERS,
    MAX_STOP_TOKENS,
    MAX_STOPS,
    ChatRequest,
    CompletionRequest,
    PromptEncoder,
)

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
HELLO: dict[str, Any] = {"messages": [{"role": "user", "content": "hello"}]}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"max_tokens": "5"}, "max_tokens"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 5.5}, "max_tokens"),
        ({"max_completion_tokens": 10_000}, "max_completion_tokens"),
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"top_p": 1.1}, "top_p"),
        ({"top_k": -2}, "top_k"),
        ({"n": 0}, "n"),
        ({"n": 129}, "n"),
        ({"n": True}, "n"),
        ({"seed": 2**63}, "seed"),
        ({"seed": "x"}, "seed"),
        ({"stop": [""]}, "stop"),
        ({"stop": 3}, "stop"),
        ({"stop_token_ids": ["a"]}, "stop_token_ids"),
        ({"stop_token_ids": [1] * (MAX_STOP_TOKENS + 1)}, "stop_token_ids"),
        ({"stream": "yes"}, "stream"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"stream": True, "stream_options": {"include_usage": 7}}, "stream_options"),
        ({"logprobs": 3}, "logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"ignore_eos": 1}, "ignore_eos"),
        ({"messages": []}, "messages"),
        ({"messages": "hello"}, "messages"),
        ({"messages": [{"content": "no role"}]}, "messages"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages"),
        ({"model": 3}, "model"),
    ],
)
def test_a_wrong_value_is_refused_by_its_name(tiny: Live, fields: dict[str, Any], param: str) -> None:
    reply = tiny.ask(CHAT, {**HELLO, **fields})
    assert reply.status == 400
    assert reply.error["param"] == param
    assert reply.error["type"] == "invalid_request_error"
    assert param in reply.error["message"] or "tokens" in reply.error["message"]


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": [{"type": "function", "function": {"name": "f"}}]},
        {"response_format": {"type": "json_object"}},
        {"logit_bias": {"5": 1}},
        {"frequency_penalty": 0.5},
        {"presence_penalty": -1},
        {"repetition_penalty": 1.1},
        {"min_p": 0.1},
        {"min_tokens": 4},
        {"best_of": 2},
        {"suffix": "end"},
        {"echo": True},
    ],
)
def test_what_the_engine_lacks_is_refused_and_not_left_out(tiny: Live, fields: dict[str, Any]) -> None:
    (name,) = fields
    for path, prompt in ((CHAT, HELLO), (TEXT, {"prompt": "a"})):
        reply = tiny.ask(path, {**prompt, **fields})
        assert reply.status == 400
        assert reply.error["param"] == name
        assert f"the embedded engine does not support {name}" in reply.error["message"]


@pytest.mark.parametrize(
    "prompt",
    [None, "", [], [[]], ["a", 1], [1, "a"], [[1], "a"], [1.5], [True], {"a": 1}, [-1], [300_000], [2**80]],
)
def test_a_prompt_that_is_none(tiny: Live, prompt: Any) -> None:
    reply = tiny.ask(TEXT, {"prompt": prompt})
    assert reply.status == 400
    assert reply.error["param"] == "prompt"


@pytest.mark.parametrize("prompt", [["a"] * 40_000, [[1]] * 40_000, ["a", "b"], "a"])
def test_too_many_sequences_are_refused_before_a_prompt_is_encoded(
    serve_scripted: Callable[..., Live], monkeypatch: pytest.MonkeyPatch, prompt: Any
) -> None:
    encoded = []
    monkeypatch.setattr(PromptEncoder, "_ids", lambda self, text, special: encoded.append(text) or [5])
    live = serve_scripted(capacity=64)
    reply = live.ask(TEXT, {"prompt": prompt, "n": 128})
    assert reply.status == 400
    assert reply.error["message"].endswith("sequences in one request; this server holds 64")
    assert live.ask(CHAT, {**HELLO, "n": 128}).status == 400
    assert encoded == []
    assert live.ask(TEXT, {"prompt": ["a", "b"], "n": 2, "max_tokens": 1}).status == 200


@pytest.mark.parametrize("error", [KeyError, AttributeError, RecursionError, OverflowError, TemplateError])
def test_a_chat_template_that_fails_is_a_400(tiny: Live, monkeypatch, error: type[Exception]) -> None:
    def fail(*args: Any, **options: Any) -> str:
        raise error("no system role here")

    monkeypatch.setattr(tiny.engine.tokenizer, "apply_chat_template", fail)
    reply = tiny.ask(CHAT, HELLO)
    assert reply.status == 400
    assert reply.error["param"] == "messages"
    assert "no system role here" in reply.error["message"]


def test_a_prompt_that_is_too_long_is_refused_with_the_numbers(tiny: Live) -> None:
    reply = tiny.ask(TEXT, {"prompt": [5] * 256})
    assert reply.status == 400
    assert reply.error["code"] == "context_length_exceeded"
    assert "256 tokens" in reply.error["message"]
    reply = tiny.ask(TEXT, {"prompt": [5] * 200, "max_tokens": 57})
    assert reply.error["param"] == "max_tokens"
    assert all(number in reply.error["message"] for number in ("57", "200", "56", "256"))
    assert tiny.ask(TEXT, {"prompt": [5] * 200, "max_tokens": 56}).status == 200


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[1]", b"null", b"\xff\xfe", b'{"prompt": "\\ud800"}', b"[" * 100_000, b'{"n": 1e999}'],
)
def test_a_body_that_is_no_json_object(tiny: Live, body: bytes) -> None:
    reply = tiny.ask(TEXT, body)
    assert reply.status == 400
    assert reply.error["type"] == "invalid_request_error"


def test_an_encoded_body_that_is_broken(tiny: Live) -> None:
    packed = gzip.compress(json.dumps({"prompt": "a", "max_tokens": 1}).encode())
    headers = {"Content-Encoding": "gzip"}
    assert tiny.ask(TEXT, packed, headers).status == 200
    assert tiny.ask(TEXT, packed[:8] + b"nonsense", headers).status == 400


def test_an_unknown_model_path_or_method(tiny: Live) -> None:
    reply = tiny.ask(CHAT, {**HELLO, "model": "gpt-17"})
    assert reply.status == 404
    assert (reply.error["param"], reply.error["code"]) == ("model", "model_not_found")
    assert tiny.ask("/v1/embeddings", {"input": "a"}).error["message"]
    assert tiny.ask("/v1/embeddings", {"input": "a"}).status == 404
    wrong_method = tiny.ask(CHAT)
    assert wrong_method.status == 405
    assert wrong_method.headers["Allow"] == "POST"


def test_the_openai_client_reads_the_errors(tiny: Live) -> None:
    with openai.OpenAI(base_url=f"{tiny.url}/v1", api_key="unused", max_retries=0) as client:
        with pytest.raises(openai.NotFoundError, match="there is no model 'other'"):
            client.completions.create(model="other", prompt="a")
        with pytest.raises(openai.BadRequestError) as caught:
            client.completions.create(model="tiny", prompt="a", max_tokens=-1)
        assert caught.value.param == "max_tokens"


def test_a_body_over_the_limit(serve_scripted: Callable[..., Live]) -> None:
    live = serve_scripted(limits=Limits(body_bytes=1000))
    assert live.ask(TEXT, {"prompt": "a" * 900, "max_tokens": 1}).status == 200
    reply = live.ask(TEXT, {"prompt": "a" * 1000})
    assert reply.status == 413
    assert reply.error["code"] == "body_too_large"


@pytest.mark.parametrize(
    ("stop", "said"),
    [
        (["a"] * (MAX_STOPS + 1), f"{MAX_STOPS + 1} with {MAX_STOPS + 1}"),
        ("a" * (MAX_STOP_CHARACTERS + 1), f"1 with {MAX_STOP_CHARACTERS + 1}"),
        (["ab", "a" * (MAX_STOP_CHARACTERS - 1)], f"2 with {MAX_STOP_CHARACTERS + 1}"),
        ([f"never {number}" for number in range(20_000)], "20000 with 208890"),
    ],
)
def test_more_stop_strings_than_are_matched_in_time(tiny: Live, stop: str | list[str], said: str) -> None:
    for path, body in ((CHAT, HELLO), (TEXT, {"prompt": "a"})):
        reply = tiny.ask(path, {**body, "stop": stop})
        assert reply.status == 400
        assert reply.error["param"] == "stop"
        most = f"at most {MAX_STOPS} strings with {MAX_STOP_CHARACTERS} characters in all"
        assert reply.error["message"] == f"stop: may hold {most}, not {said}"


def test_as_many_stop_strings_as_are_allowed(tiny: Live) -> None:
    each = MAX_STOP_CHARACTERS // MAX_STOPS
    stop = [f"{number:02}".ljust(each, "~") for number in range(MAX_STOPS)]
    assert tiny.complete("a", max_tokens=2, stop=stop)["usage"]["completion_tokens"] == 2
    assert tiny.complete("a", max_tokens=2, stop="~" * MAX_STOP_CHARACTERS)["choices"]
    assert tiny.complete("a", max_tokens=2, stop_token_ids=[1] * MAX_STOP_TOKENS)["choices"]


def test_an_api_key(serve_scripted: Callable[..., Live]) -> None:
    live = serve_scripted(api_key="s3cret")
    for path in ("/health", "/metrics", "/version"):
        assert live.ask(path).status == 200
    wrong = ("", "Bearer", "Bearer wrong", "s3cret", "Basic s3cret", "Bearers3cret", "Bearer s3cret s3cret")
    for headers in ({}, *({"Authorization": value} for value in wrong)):
        reply = live.ask("/v1/models", headers=headers)
        assert reply.status == 401
        assert reply.error["code"] == "invalid_api_key"
        assert "s3cret" not in reply.text
    for value in ("Bearer s3cret", "bearer s3cret", "BEARER  s3cret"):  # any case: RFC 9110, section 11.1
        assert live.ask("/v1/models", headers={"Authorization": value}).status == 200
    assert live.ask("/v1/models", headers={"Authorization": "Bearer S3CRET"}).status == 401
    with openai.OpenAI(base_url=f"{live.url}/v1", api_key="s3cret", max_retries=0) as client:
        assert client.completions.create(model="tiny", prompt="a", max_tokens=2).choices[0].text == " go go"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
FIELDS = st.sampled_from(
    [*ChatRequest.model_fields, *CompletionRequest.model_fields, "tools", "logit_bias", "min_tokens", "echo"]
)
LIKELY = st.one_of(
    st.integers(-1, 5), st.floats(0, 2), st.booleans(), st.lists(st.integers(-1, 400), max_size=3), JSON
)
BODIES = st.builds(
    lambda prompt, role, content, fields: {
        "max_tokens": 2,
        "prompt": prompt,
        "messages": [{"role": role, "content": content}],
        **fields,
    },
    st.text(max_size=20) | st.lists(st.integers(0, 299), max_size=5) | JSON,
    st.just("user") | JSON,
    st.text(max_size=20) | JSON,
    st.dictionaries(FIELDS, LIKELY, max_size=5),
)


@pytest.mark.parametrize("path", [CHAT, TEXT])
@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(body=BODIES | JSON)
def test_no_json_makes_the_server_fail(tiny: Live, path: str, body: Any) -> None:
    reply = tiny.ask(path, json.dumps(body).encode())
    assert reply.status < 500, reply.text
    assert reply.status == 200 or reply.error["message"]
    assert tiny.ask("/health").status == 200
