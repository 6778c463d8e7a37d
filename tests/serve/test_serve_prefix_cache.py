"""What an answer and /metrics say of the prefix cache is what it did."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from live import Live

from specops.engine import load_engine
from specops.engine.attention import BLOCK

LABELS = 'engine="0",model_name="tiny"'
PROMPT = list(range(20, 20 + 2 * BLOCK + 10))


@pytest.fixture
def caching(tiny_pair: tuple[Path, Path]) -> Iterator[Live]:
    target, draft = tiny_pair
    options: dict[str, Any] = {"max_batch": 4, "max_length": 256, "threads": 1}
    live = Live(load_engine(target, draft, tree="chain:2", prefix_cache_mb=20, **options))
    yield live
    live.close()


def cached_tokens(usage: dict[str, Any]) -> int:
    details: dict[str, int] = usage["prompt_tokens_details"]
    assert details.keys() == {"cached_tokens"}
    return details["cached_tokens"]


def test_answers_and_counters_agree(caching: Live) -> None:
    asked = {"max_tokens": 3, "ignore_eos": True, "temperature": 0}
    first = caching.complete(PROMPT, **asked)
    again = caching.complete(PROMPT, **asked)
    follow_up = caching.complete([*PROMPT, *range(70)], **asked)
    assert [cached_tokens(answer["usage"]) for answer in (first, again, follow_up)] == [
        0,
        2 * BLOCK,
        2 * BLOCK,
    ]
    assert again["choices"] == first["choices"]

    body = {"prompt": PROMPT, **asked}
    options = {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}
    chunks = caching.stream("/v1/completions", body | options)
    assert {cached_tokens(chunk["usage"]) for chunk in chunks} == {2 * BLOCK}

    several = caching.complete([PROMPT, [7, *PROMPT]], n=2, **asked | {"temperature": 1, "seed": 3})
    assert several["usage"]["prompt_tokens"] == 2 * len(PROMPT) + 1
    assert cached_tokens(several["usage"]) == 2 * BLOCK  # of each prompt, its first choice's

    series = caching.metrics()
    lengths = [len(PROMPT), len(PROMPT), len(PROMPT) + 70, len(PROMPT)]
    lengths += [len(PROMPT)] * 2 + [len(PROMPT) + 1] * 2
    queries, hits, read = (
        series[f"vllm:{name}{{{LABELS}}}"]
        for name in ("prefix_cache_queries_total", "prefix_cache_hits_total", "prompt_tokens_total")
    )
    assert queries == read == sum(lengths)
    assert hits == 6 * 2 * BLOCK  # the second to fourth prompt, and all choices but the first of [7, …]
    computed = series[f"vllm:iteration_tokens_total_sum{{{LABELS}}}"]
    generated = series[f"vllm:generation_tokens_total{{{LABELS}}}"]
    assert computed == read - hits + generated


def test_a_conversation_is_read_from_its_last_turn_on(caching: Live) -> None:
    messages = [{"role": "user", "content": "Who checks drafts? " * 4}]
    cached, prompts = [], []
    for _ in range(3):
        reply = caching.ask("/v1/chat/completions", {"messages": messages, "max_tokens": 4}).json
        cached.append(cached_tokens(reply["usage"]))
        prompts.append(reply["usage"]["prompt_tokens"])
        messages += [reply["choices"][0]["message"], {"role": "user", "content": "And why?"}]
    assert cached[-1] >= BLOCK
    assert cached == [0, *((tokens - 1) // BLOCK * BLOCK for tokens in prompts[:-1])]


def test_without_a_cache_nothing_is_said(tiny: Live) -> None:
    assert "prompt_tokens_details" not in tiny.complete(PROMPT, max_tokens=2)["usage"]
    series = tiny.metrics()
    assert series[f"vllm:prefix_cache_queries_total{{{LABELS}}}"] == 0
    assert series[f"vllm:prefix_cache_hits_total{{{LABELS}}}"] == 0
