"""The API as clients see it: an unmodified OpenAI client, and load generators' requests."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from live import Live, events_of, until
from openai import OpenAI

from specops import __version__
from specops.serve.protocol import PromptEncoder

PROMPT = "the server measures"
MESSAGES: list[Any] = [{"role": "user", "content": "what does the draft propose?"}]
GREEDY = {"temperature": 0, "max_tokens": 24, "ignore_eos": True}


@pytest.fixture
def client(tiny: Live) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{tiny.url}/v1", api_key="unused", max_retries=0) as client:
        yield client


def text_of(chunks: list[dict[str, Any]], index: int = 0) -> str:
    choices = [choice for chunk in chunks for choice in chunk["choices"] if choice["index"] == index]
    return "".join(choice["text"] if "text" in choice else choice["delta"]["content"] for choice in choices)


def test_the_openai_client_chats(client: OpenAI) -> None:
    answer = client.chat.completions.create(
        model="tiny",
        messages=MESSAGES,
        max_completion_tokens=12,
        temperature=0,
        extra_body={"ignore_eos": True},
    )
    assert answer.object == "chat.completion"
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].message.content
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 12
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 12


def test_the_openai_client_streams_the_same_chat(client: OpenAI) -> None:
    asked: dict[str, Any] = {"model": "tiny", "messages": MESSAGES, "max_tokens": 24, "temperature": 0}
    whole = client.chat.completions.create(**asked)
    chunks = list(
        client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True})
    )
    first, *middle, usage = chunks
    assert first.choices[0].delta.role == "assistant"
    assert first.choices[0].delta.content == ""
    assert "".join(c.choices[0].delta.content or "" for c in middle) == whole.choices[0].message.content
    assert [c.choices[0].finish_reason for c in middle[:-1]] == [None] * (len(middle) - 1)
    assert middle[-1].choices[0].finish_reason == whole.choices[0].finish_reason
    assert usage.choices == []
    assert usage.usage == whole.usage


def test_the_openai_client_completes_and_lists_models(client: OpenAI) -> None:
    whole = client.completions.create(model="tiny", prompt=PROMPT, max_tokens=20, temperature=0)
    stream = client.completions.create(model="tiny", prompt=PROMPT, max_tokens=20, temperature=0, stream=True)
    assert "".join(chunk.choices[0].text for chunk in stream) == whole.choices[0].text
    (model,) = client.models.list()
    assert model.id == "tiny"
    assert model.model_extra is not None
    assert model.model_extra["max_model_len"] == 256


def test_every_form_of_prompt_gets_the_same_completion(tiny: Live) -> None:
    ids = tiny.engine.tokenizer.encode(PROMPT)
    texts = [
        [choice["text"] for choice in tiny.complete(prompt, **GREEDY)["choices"]]
        for prompt in (PROMPT, ids, [PROMPT, PROMPT], [ids, ids])
    ]
    assert texts[0] == texts[1]
    assert texts[2] == texts[3] == texts[0] * 2


def test_max_tokens_defaults_as_openai_has_it(tiny: Live) -> None:
    assert tiny.complete(PROMPT, ignore_eos=True)["usage"]["completion_tokens"] == 16
    chat = tiny.ask("/v1/chat/completions", {"messages": MESSAGES, "ignore_eos": True}).json
    assert chat["usage"]["total_tokens"] == tiny.engine.max_length
    both = tiny.complete(PROMPT, ignore_eos=True, max_tokens=9, max_completion_tokens=5)
    assert both["usage"]["completion_tokens"] == 5


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_usage_counts_tokens_not_chunks(tiny: Live, path: str) -> None:
    body = {"prompt": PROMPT, "messages": MESSAGES, **GREEDY, "return_token_ids": True}
    options = {"include_usage": True, "continuous_usage_stats": True}
    *chunks, last = tiny.stream(path, {**body, "stream_options": options})
    tokens = 0
    for chunk in chunks:
        tokens += len(chunk["choices"][0].get("token_ids", []))
        assert chunk["usage"]["completion_tokens"] == tokens
    assert last["usage"]["completion_tokens"] == tokens == 24
    assert len(chunks) < 24  # some hold several tokens
    assert tiny.ask(path, body).json["usage"] == last["usage"]


def test_a_chunk_has_usage_only_where_it_was_asked_for(tiny: Live) -> None:
    chunks = tiny.stream("/v1/completions", {"prompt": PROMPT, **GREEDY})
    assert not any("usage" in chunk for chunk in chunks)
    assert len({chunk["id"] for chunk in chunks}) == 1


def test_token_ids_come_back_in_vllms_places(tiny: Live) -> None:
    ids = tiny.engine.tokenizer.encode(PROMPT)
    whole = tiny.complete(PROMPT, **GREEDY, return_token_ids=True)["choices"][0]
    assert whole["prompt_token_ids"] == ids
    chunks = tiny.stream("/v1/completions", {"prompt": PROMPT, **GREEDY, "return_token_ids": True})
    assert [chunk["choices"][0]["prompt_token_ids"] for chunk in chunks] == [ids] + [None] * (len(chunks) - 1)
    assert [token for chunk in chunks for token in chunk["choices"][0]["token_ids"]] == whole["token_ids"]
    chat = {"messages": MESSAGES, **GREEDY, "return_token_ids": True}
    answer = tiny.ask("/v1/chat/completions", chat).json
    first, *rest = tiny.stream("/v1/chat/completions", chat)
    assert first["prompt_token_ids"] == answer["prompt_token_ids"]
    streamed = [token for chunk in rest for token in chunk["choices"][0]["token_ids"]]
    assert streamed == answer["choices"][0]["token_ids"]


def test_a_stop_string_ends_the_text_before_it_also_across_chunks(tiny: Live) -> None:
    full = tiny.complete(PROMPT, **GREEDY)["choices"][0]["text"]
    stop = full[6:11]
    end = full.index(stop)
    whole = tiny.complete(PROMPT, **GREEDY, stop=["never in it", stop])["choices"][0]
    assert whole["text"] == full[:end]
    assert (whole["finish_reason"], whole["stop_reason"]) == ("stop", stop)
    chunks = tiny.stream("/v1/completions", {"prompt": PROMPT, **GREEDY, "stop": stop})
    assert text_of(chunks) == full[:end]
    assert chunks[-1]["choices"][0]["stop_reason"] == stop


def test_a_stop_token_ends_the_answer(tiny: Live) -> None:
    tokens = tiny.complete(PROMPT, **GREEDY, return_token_ids=True)["choices"][0]["token_ids"]
    stopped = tiny.complete(PROMPT, **GREEDY, return_token_ids=True, stop_token_ids=[tokens[5]])["choices"][0]
    assert (stopped["finish_reason"], stopped["stop_reason"]) == ("stop", tokens[5])
    assert stopped["token_ids"] == tokens[: tokens.index(tokens[5]) + 1]


def test_n_choices_have_the_seeds_that_follow(tiny: Live) -> None:
    sampled = {"temperature": 1.0, "max_tokens": 12, "ignore_eos": True}
    together = tiny.complete([PROMPT, "the draft"], **sampled, n=2, seed=7)
    assert [choice["index"] for choice in together["choices"]] == [0, 1, 2, 3]
    apart = [
        tiny.complete(prompt, **sampled, seed=seed)["choices"][0]["text"]
        for prompt in (PROMPT, "the draft")
        for seed in (7, 8)
    ]
    assert [choice["text"] for choice in together["choices"]] == apart
    assert apart[0] != apart[1]
    assert together["usage"]["completion_tokens"] == 48
    prompts = sum(len(tiny.engine.tokenizer.encode(prompt)) for prompt in (PROMPT, "the draft"))
    assert together["usage"]["prompt_tokens"] == prompts


def test_streamed_choices_are_told_apart_by_index(tiny: Live) -> None:
    body = {"messages": MESSAGES, "temperature": 1.0, "max_tokens": 10, "seed": 3, "n": 3}
    whole = tiny.ask("/v1/chat/completions", body).json
    chunks = tiny.stream("/v1/chat/completions", body)
    for choice in whole["choices"]:
        assert text_of(chunks, choice["index"]) == choice["message"]["content"]


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_usage_of_several_choices_is_of_all_of_them(tiny: Live, path: str) -> None:
    body = {"prompt": PROMPT, "messages": MESSAGES, **GREEDY, "max_tokens": 10, "n": 3}
    *chunks, last = tiny.stream(path, {**body, "stream_options": {"include_usage": True}})
    assert all(chunk["choices"] for chunk in chunks)
    assert {chunk["choices"][0]["index"] for chunk in chunks} == {0, 1, 2}
    assert [chunk.get("usage") for chunk in chunks] == [None] * len(chunks)
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 30
    assert last["usage"] == tiny.ask(path, body).json["usage"]


def test_special_tokens_are_added_as_the_client_asks(tiny: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    encode = PromptEncoder._ids

    def spy(self: PromptEncoder, text: str, add_special_tokens: bool) -> list[int]:
        asked.append(add_special_tokens)
        return encode(self, text, add_special_tokens)

    monkeypatch.setattr(PromptEncoder, "_ids", spy)
    for path in ("/v1/completions", "/v1/chat/completions"):
        for chosen in ({}, {"add_special_tokens": False}, {"add_special_tokens": True}):
            body = {"prompt": PROMPT, "messages": MESSAGES, "max_tokens": 1, **chosen}
            assert tiny.ask(path, body).status == 200
    assert asked == [True, False, True, False, False, True]


def test_a_seeded_answer_does_not_depend_on_what_else_is_served(tiny: Live) -> None:
    body = {"prompt": PROMPT, "temperature": 0.9, "top_p": 0.95, "max_tokens": 24, "seed": 11}
    alone = tiny.complete(**body)["choices"][0]["text"]
    noise = {"prompt": "something else, longer than that", "max_tokens": 40, "ignore_eos": True}
    with ThreadPoolExecutor(6) as pool:
        others = [pool.submit(tiny.complete, **noise) for _ in range(3)]
        crowded = [pool.submit(tiny.complete, **body) for _ in range(3)]
        assert [future.result()["choices"][0]["text"] for future in crowded] == [alone] * 3
        assert all(future.result() for future in others)


def test_a_client_that_leaves_changes_nothing_for_the_others(tiny: Live) -> None:
    asked = {"prompt": PROMPT, **GREEDY, "max_tokens": 100}
    alone = tiny.complete(**asked)["choices"][0]["text"]
    leaving = {"prompt": "the draft", "max_tokens": 240, "ignore_eos": True, "stream": True}
    with ThreadPoolExecutor(2) as pool:
        with tiny.open("/v1/completions", leaving) as response:
            next(events_of(response))
            staying = [pool.submit(tiny.complete, **asked) for _ in range(2)]
            until(lambda: tiny.engine.running > 1, "they run together")
        assert [future.result()["choices"][0]["text"] for future in staying] == [alone] * 2
    until(lambda: tiny.engine.running == 0, "the place of the client that left is free")


def test_chat_logprobs(tiny: Live) -> None:
    body = {"messages": MESSAGES, **GREEDY, "max_tokens": 6, "logprobs": True, "top_logprobs": 3}
    entries = tiny.ask("/v1/chat/completions", body).json["choices"][0]["logprobs"]["content"]
    assert len(entries) == 6
    for entry in entries:
        tops = entry["top_logprobs"]
        assert len(tops) == 3
        assert [top["logprob"] for top in tops] == sorted((top["logprob"] for top in tops), reverse=True)
        assert entry["logprob"] == pytest.approx(tops[0]["logprob"])  # greedy: the likeliest was taken
        assert entry["bytes"] == list(entry["token"].encode())
    chunks = tiny.stream("/v1/chat/completions", body)
    streamed = [
        entry["token"] for chunk in chunks[1:] for entry in chunk["choices"][0]["logprobs"]["content"]
    ]
    assert streamed == [entry["token"] for entry in entries]


def test_completion_logprobs(tiny: Live) -> None:
    body = {"prompt": PROMPT, **GREEDY, "max_tokens": 6, "logprobs": 2}
    whole = tiny.complete(**body)["choices"][0]["logprobs"]
    assert [len(whole[key]) for key in ("tokens", "token_logprobs", "top_logprobs", "text_offset")] == [6] * 4
    starts = [sum(len(token) for token in whole["tokens"][:number]) for number in range(6)]
    assert whole["text_offset"] == starts
    for token, logprob, top in zip(*(whole[k] for k in list(whole)[:3]), strict=True):
        assert top[token] == logprob == max(top.values())
    chunks = tiny.stream("/v1/completions", body)
    for key, values in whole.items():
        assert [item for chunk in chunks for item in chunk["choices"][0]["logprobs"][key]] == values
    assert tiny.complete(PROMPT)["choices"][0]["logprobs"] is None


VLLM_BENCH = {"temperature": 0.0, "repetition_penalty": 1.0, "logprobs": None, "max_tokens": 8}
GUIDELLM = {"max_completion_tokens": 8, "stop": None, "stream_options": {"include_usage": True}}
AIPERF = {"min_tokens": 8, "max_tokens": 8, "stream_options": {"include_usage": True}}
EVERY_PARAMETER = {
    "max_tokens": 8,
    "frequency_penalty": 0,
    "presence_penalty": 0.0,
    "logit_bias": {},
    "tools": [],
    "tool_choice": "none",
    "response_format": {"type": "text"},
    "user": "someone",
    "top_k": -1,
    "min_p": 0.0,
    "seed": None,
    "n": None,
    "stop": [],
    "unheard_of": {"a": 1},
}


@pytest.mark.parametrize("extras", [VLLM_BENCH, GUIDELLM, AIPERF, EVERY_PARAMETER])
def test_requests_of_other_peoples_load_generators(tiny: Live, extras: dict[str, Any]) -> None:
    prompts = {"/v1/chat/completions": {"messages": MESSAGES}, "/v1/completions": {"prompt": PROMPT}}
    for path, prompt in prompts.items():
        chunks = tiny.stream(path, {"model": "tiny", **prompt, "ignore_eos": True, **extras})
        assert chunks[-1 if chunks[-1]["choices"] else -2]["choices"][0]["finish_reason"] == "length"


def test_content_may_come_in_parts(tiny: Live) -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    answers = [
        tiny.ask("/v1/chat/completions", {"messages": [{"role": "user", "content": content}], **GREEDY}).json
        for content in (parts, "one\ntwo")
    ]
    assert answers[0]["choices"] == answers[1]["choices"]


def test_version_and_health(tiny: Live) -> None:
    assert tiny.ask("/version").json == {"version": __version__}
    assert tiny.ask("/health").status == 200
