"""decide.lua: which pool, which class and why, run by LuaJIT as NGINX runs it."""

from __future__ import annotations

import zlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_rules import NO_FOLDER, asked, judge, rollout

from specops.phases.route.thresholds import rules
from specops.router import COMPLETIONS, Request
from specops.router.nginx import LuaJudge, literal

PLAYBOOK = judge()
LONG = {"max_tokens": 300}


def decided(request: Request, **state: Any) -> tuple[str, str]:
    found = PLAYBOOK.decide(request, **state)
    return found["pool"], found["reason"]


@pytest.mark.parametrize(
    ("fields", "pool", "reason"),
    [
        ({}, "speculative", "otherwise"),
        ({"max_tokens": 31}, "standard", "short"),
        ({"max_tokens": 31, "stream": True, "temperature": 0}, "standard", "short"),
        ({"max_tokens": 32}, "standard", "short-unstreamed"),
        ({"max_tokens": 32, "stream": True}, "speculative", "streaming"),
        ({"max_tokens": 63, "temperature": 0}, "standard", "short-unstreamed"),
        ({"max_tokens": 64}, "speculative", "otherwise"),
        ({"max_tokens": 64, "temperature": 0}, "speculative", "greedy"),
        ({"max_tokens": 255}, "speculative", "otherwise"),
        ({"max_tokens": 256}, "speculative", "long"),
        ({"max_tokens": 1000, "temperature": 1.0}, "speculative", "long"),
        ({"max_tokens": 1000, "temperature": 1.01}, "standard", "temperature"),
        ({"stream": True}, "speculative", "streaming"),
        ({"max_completion_tokens": 10, "max_tokens": 1000}, "standard", "short"),
        ({"max_completion_tokens": None, "max_tokens": 1000}, "speculative", "long"),
        ({"max_tokens": -5}, "standard", "short"),
        ({**LONG, "min_p": 0.05}, "standard", "parameter"),
        ({**LONG, "min_p": 0}, "speculative", "long"),
        ({**LONG, "logit_bias": {"5": -100}}, "standard", "parameter"),
        ({**LONG, "logit_bias": {}}, "speculative", "long"),
        ({**LONG, "logit_bias": []}, "speculative", "long"),
        ({**LONG, "temperature": "0"}, "standard", "type"),
        ({**LONG, "temperature": True}, "standard", "type"),
        ({**LONG, "n": 1.5}, "standard", "type"),
        ({**LONG, "stream": 0}, "standard", "type"),
        ({**LONG, "max_completion_tokens": [1]}, "standard", "type"),
        ({**LONG, "n": 8}, "speculative", "long"),
        ({**LONG, "n": 9}, "standard", "in-flight"),
        ({**LONG, "best_of": 9}, "standard", "in-flight"),
        ({"max_tokens": 32, "stream": True, "n": 4}, "speculative", "streaming"),  # no other size by it
    ],
)
def test_the_playbooks_matrix(fields: dict[str, Any], pool: str, reason: str) -> None:
    assert decided(asked(**fields)) == (pool, reason)


def test_completions_without_a_size_are_sixteen_tokens() -> None:
    assert decided(asked(COMPLETIONS, prompt="x")) == ("standard", "short")
    assert decided(asked(COMPLETIONS, prompt="x", max_tokens=64)) == ("speculative", "otherwise")


def test_each_of_several_prompts_counts() -> None:
    def weight(prompt: object, **fields: object) -> float:
        found: float = PLAYBOOK.decide(asked(COMPLETIONS, prompt=prompt, **fields))["weight"]
        return found

    assert weight("one") == weight([1, 2, 3]) == weight([]) == 1
    assert weight(["one", "two"]) == weight([[1, 2], [3]]) == 2
    assert weight(["one", "two"], n=3) == 6
    assert weight("one", n=10**300) == 10_000  # sums of it stay exact


@pytest.mark.parametrize(("in_flight", "pool"), [(0, "speculative"), (7, "speculative"), (8, "standard")])
def test_no_more_than_eight_at_a_time(in_flight: int, pool: str) -> None:
    assert decided(asked(**LONG), in_flight=in_flight)[0] == pool


def test_what_is_no_chat_and_no_completion() -> None:
    assert decided(Request(b"", "GET")) == ("standard", "method")
    assert decided(Request(b"{}", path="/v1/embeddings")) == ("standard", "path")
    assert decided(Request(b"", "GET", "/health?x=1")) == ("standard", "path")
    for path in ("/metrics", "/healthz", "/", "/v1", "/v1/../metrics", "/v1/%2E%2e/x"):
        assert decided(Request(b"", "GET", path)) == ("none", "path")


def test_the_switch_and_the_override() -> None:
    trusting = judge(trusted=["10.0.0.0/8", "2001:db8::/32"])

    def chosen(pool: str, address: str = "10.1.2.3", percent: float = 100, **fields: Any) -> tuple[str, str]:
        request = Request(asked(**fields).body, headers={"x-specops-pool": pool}, address=address)
        found = trusting.decide(request, percent=percent, in_flight=100)
        return found["pool"], found["reason"]

    assert chosen("speculative", max_tokens=1) == ("speculative", "override")
    assert chosen("speculative", "2001:db8::1", max_tokens=1) == ("speculative", "override")
    assert chosen("standard", **LONG) == ("standard", "override")
    assert chosen("speculative", percent=1, max_tokens=1) == ("speculative", "override")
    assert chosen("speculative", percent=0, max_tokens=1) == ("standard", "switch")
    assert chosen("speculative", "11.0.0.1", max_tokens=1) == ("standard", "short")
    assert chosen("nonsense", max_tokens=1) == ("standard", "short")
    assert decided(asked(**LONG), percent=0) == ("standard", "switch")
    assert decided(asked(max_tokens=1), percent=0) == ("standard", "short")


@given(st.text(st.characters(codec="utf-8"), max_size=60), st.integers(0, 10_000))
@settings(max_examples=200, deadline=None)
def test_callers_are_split_by_crc32(key: str, hundredths: int) -> None:
    percent = hundredths / 100
    request = Request(asked(**LONG).body, headers={"authorization": key})
    bucket = zlib.crc32(key.encode()) % 10_000
    pool, reason = decided(request, percent=percent)
    assert pool == ("speculative" if bucket < percent * 100 else "standard")
    assert reason in ("long", "switch" if percent == 0 else "canary")


def test_what_a_caller_is_known_by() -> None:
    by_user = judge(canary_key="X-User")

    def seen(headers: dict[str, str], address: str = "192.0.2.7") -> float | None:
        request = Request(asked(**LONG).body, headers=headers, address=address)
        found: float | None = by_user.decide(request, percent=0.001).get("observed")
        return found

    def bucket(key: str) -> int:
        return zlib.crc32(key.encode()) % 10_000

    assert seen({"x-user": "a", "authorization": "b"}) == bucket("a")
    assert seen({"authorization": "b"}) == bucket("b")
    assert seen({}) == bucket("192.0.2.7")


def test_classes() -> None:
    found = judge(
        classes=[
            {"name": "code", "content": r"\bdef \w+\("},
            {"name": "legal", "contains": ["Confidential", "privileged"], "speculate": False},
            {"name": "both", "content": "both", "headers": {"X-Task": "t"}},
            {"name": "old", "path": COMPLETIONS},
        ]
    )

    def of(request: Request) -> tuple[str, str]:
        decision = found.decide(request)
        return decision["class"], decision["pool"]

    def says(text: object, **headers: str) -> Request:
        messages = [
            {"role": "user", "content": "def earlier("},
            {"role": "user", "content": text},
            {"role": "assistant", "content": "def answer("},
        ]
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return Request(asked(messages=messages, **LONG).body, headers=named)

    assert of(says("DEF  x")) == ("default", "speculative")
    assert of(says("a DEF x(")) == ("code", "speculative")
    assert of(says([{"type": "text", "text": "is confiDENTIAL"}])) == ("legal", "standard")
    assert of(says([{"type": "image_url", "text": "confidential"}])) == ("default", "speculative")
    assert of(says("both")) == ("default", "speculative")
    assert of(says("both", x_task="t")) == ("both", "speculative")
    assert of(asked(COMPLETIONS, prompt="x", max_tokens=300)) == ("old", "speculative")
    assert of(asked(COMPLETIONS, prompt=["x", "def f("], max_tokens=300)) == ("code", "speculative")
    assert of(Request(b"no json", path=COMPLETIONS)) == ("old", "standard")
    assert of(Request(b"", "GET", "/v1/models")) == ("other", "standard")


@pytest.mark.parametrize(
    ("text", "in_flight", "expected"),
    [
        ("write code", 15, ("speculative", "long")),
        ("write code", 16, ("standard", "in-flight")),
        ("anything else", 7, ("speculative", "long")),
        ("anything else", 8, ("standard", "in-flight")),
    ],
)
def test_a_class_may_have_a_limit_of_its_own(text: str, in_flight: int, expected: tuple[str, str]) -> None:
    table = rules(rollout(route={"classes": [{"name": "code", "contains": ["code"]}]}), NO_FOLDER).table
    table["classes"][0]["max_in_flight"] = {"value": 16, "source": "ab.json"}
    request = asked(messages=[{"role": "user", "content": text}], **LONG)
    found = LuaJudge(f"return {literal(table)}", []).decide(request, in_flight=in_flight)
    assert (found["pool"], found["reason"]) == expected
