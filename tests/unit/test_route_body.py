"""body.lua against Python's own JSON: what is valid, what it says, and what costs too much."""

from __future__ import annotations

import json
import time
from functools import cache
from itertools import islice
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specops.assets import asset
from specops.phases.route.cases import fuzz

WANTED = ("a", "max_tokens", "stream", "ключ")


@cache
def reader() -> Any:
    from lupa.luajit21 import LuaRuntime

    lua = LuaRuntime(encoding=None)
    lua.globals()[b"package"][b"path"] = str(asset("nginx", "lua")).encode() + b"/?.lua"
    return lua.execute(b"""
        local body = require("specops.body")
        return function(text, names)
          local wanted = {}
          for name in names:gmatch("[^,]+") do wanted[name] = true end
          local question, fault = body.read(text, wanted)
          if not question then return fault end
          local fields = {}
          for name, value in pairs(question.fields) do
            local kind = type(value) == "table" and (value.empty and "empty" or "full")
            fields[#fields + 1] = {name, kind or value}
          end
          return "read", fields, question.prompts, body.content(text, question)
        end""")


def read(text: bytes) -> tuple[str, dict[str, Any], int, bytes]:
    found = reader()(text, ",".join(WANTED).encode())
    if isinstance(found, bytes):
        return found.decode(), {}, 0, b""
    fault, fields, prompts, content = found
    by_name = {row[1].decode(): row[2] for row in fields.values()}
    return fault.decode(), by_name, prompts, content


def python_reads(text: bytes) -> Any:
    """As json does it: numbers as floats, raw control characters let through, no NaN; ValueError."""

    def refuse(word: str) -> None:
        raise ValueError(word)

    shown = text.decode("utf-8", "surrogateescape")
    return json.loads(shown, strict=False, parse_int=float, parse_constant=refuse)


def expected(value: Any) -> Any:
    if isinstance(value, str):
        return b"text" if value else b""
    if isinstance(value, list | dict):
        return b"full" if value else b"empty"
    return value


def agree(text: bytes) -> None:
    fault, fields, _, _ = read(text)
    if fault == "too-complex":
        return
    try:
        found = python_reads(text)
    except (ValueError, RecursionError):
        assert fault == "not-json"
        return
    assert fault == ("read" if isinstance(found, dict) else "not-an-object")
    if isinstance(found, dict):
        assert fields == {name: expected(found[name]) for name in WANTED if found.get(name) is not None}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(WANTED) | st.text(), inner),
    max_leaves=12,
)


@given(json_values, st.booleans(), st.sampled_from([None, 1, "\t"]))
@settings(max_examples=300, deadline=None)
def test_what_json_writes_is_read(value: Any, ascii_only: bool, indent: Any) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent, allow_nan=False)
    agree(text.encode("utf-8", "surrogatepass"))


@given(st.binary(max_size=40) | st.text('{}[]",:\\untrefalsb0123.eE+- \n\0', max_size=40).map(str.encode))
@settings(max_examples=500, deadline=None)
def test_what_is_anything_is_judged_alike(text: bytes) -> None:
    agree(text)
    agree(b'{"a":' + text + b"}")


def test_what_is_made_up_is_judged_alike() -> None:
    for request in islice(fuzz(3), 3000):
        agree(request.body)


@given(st.text(max_size=50), st.booleans())
@settings(max_examples=200, deadline=None)
def test_text_is_what_it_says(said: str, ascii_only: bool) -> None:
    body = {"messages": [{"role": "user", "content": "no"}, {"content": said, "role": "user"}]}
    text = json.dumps(body, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    assert read(text)[3] == said.encode("utf-8", "surrogatepass")


def test_the_last_of_the_same_name_counts() -> None:
    assert read(b'{"a": 1, "a": 2}')[1] == {"a": 2}
    assert read(b'{"a": 1, "a": null}')[1] == {}
    assert read(b'{"a": 1, "\\u0061": 3}')[1] == {"a": 3}
    assert read(b'{"messages": [{"role": "user", "content": "x"}], "messages": []}')[3] == b""


def test_only_the_beginning_of_a_long_text_is_looked_at() -> None:
    long = "x" * 70_000 + "\\u0041"
    text = json.dumps({"prompt": ["a" * 60_000, "b" * 60_000]}).encode()
    assert read(text)[3] == b"a" * 16_384
    text = json.dumps({"prompt": ["a" * 16_000, "b" * 60_000]}).encode()
    assert len(read(text)[3]) == 16_384 + 1  # and the line between the two
    assert read(b'{"prompt": "' + long.encode() + b'"}')[3] == b"x" * 16_384


@pytest.mark.parametrize(
    "text",
    [b"[" * 100, b'{"a":' * 100, b"[" * 100_000, b"[" + b"0," * 200_000 + b"0]", b'{"messages":[' + b"{},"
     * 20_000 + b"{}]}"],
)  # fmt: skip
def test_what_would_take_long_is_left(text: bytes) -> None:
    assert read(text)[0] == "too-complex"


@pytest.mark.parametrize("text", [b'"\\' * 50_000, b'{"a": "' + b"\\n" * 400_000, b'"' * 100_000])
def test_no_text_takes_time_that_grows_with_its_square(text: bytes) -> None:
    """A hundred thousand steps of a hundred thousand bytes each would run into the limit of a test."""
    assert read(text)[0] == "not-json"


def test_a_prompt_of_many_tokens_is_not_too_complex() -> None:
    """200,000 numbers, as a long prompt that is tokenized already."""
    tokens = {"prompt": list(range(1, 200_001)), "max_tokens": 7}
    assert read(json.dumps(tokens).encode())[:3] == ("read", {"max_tokens": 7}, 1)
    assert read(json.dumps(tokens, separators=(",", ":")).encode())[:3] == ("read", {"max_tokens": 7}, 1)


long_texts = st.lists(
    st.sampled_from(['"', "\\", "\n", "é", "😀", "\ud800", "\x00", "a" * 31, "a" * 32, "b" * 40, "\\u00e9"]),
    max_size=60,
).map("".join)


@given(long_texts, st.booleans())
@settings(max_examples=300, deadline=None)
def test_escapes_are_read_wherever_they_stand(said: str, ascii_only: bool) -> None:
    """Dense, and so far apart that the next is looked for."""
    body = {"x": said, "prompt": said, "a": said}
    text = json.dumps(body, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    fault, fields, _, content = read(text)
    assert (fault, fields) == ("read", {"a": b"text" if said else b""})
    assert content == said.encode("utf-8", "surrogatepass")


HARD = ['"', "\\", "\n", "é", "\x01", "a" * 33 + '"', "x\n"]


@pytest.mark.parametrize("said", HARD, ids=repr)
def test_time_is_linear_whatever_a_text_is_of(said: str) -> None:
    """Four times the text in about four times the time; a square would take sixteen times as long."""

    def seconds(repeated: int) -> float:
        text = json.dumps({"messages": [{"role": "user", "content": said * repeated}]}).encode()
        started = time.process_time()
        for _ in range(3):
            assert read(text)[0] == "read"
        return time.process_time() - started

    count = 200_000 // len(said)
    assert min(seconds(4 * count) for _ in range(4)) < 9 * max(min(seconds(count) for _ in range(4)), 1e-3)
