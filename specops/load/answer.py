"""What a stream said: its output chunks, text, tokens and what went wrong, from the bytes as they came.

Chunks are never counted as tokens: under speculation one chunk carries several. A chunk's tokens are known
only where the server sends usage with every chunk (`continuous_usage_stats`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from specops.load.sse import events
from specops.load.unicode import well_formed

TokensFrom = Literal["usage", "retokenised", "unknown"]
CountTokens = Callable[[str], int]

_MOST_TOKENS = 2**31


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a request gave no whole answer.

    Kinds: `refused`, `unreachable`, `timeout` (the whole request), `stalled` (too long between chunks),
    `http_<status>`, `cut` (the stream ended early), `malformed`, `stream_error` (the server said so in the
    stream), `empty` (a whole answer without output), `overrun` (not sent: too many in flight).
    """

    kind: str
    detail: str


@dataclass(frozen=True, slots=True)
class Chunk:
    """One event with output: text, reasoning or a tool call."""

    at: float
    tokens: int | None


@dataclass(frozen=True, slots=True)
class Answer:
    chunks: tuple[Chunk, ...] = ()
    text: str = ""
    tokens: int | None = None
    tokens_from: TokensFrom = "unknown"
    finish_reason: str | None = None
    finished: float | None = None
    """When the finish reason came: the last token's instant, also where that token has no text."""

    ended: float | None = None
    failure: Failure | None = None


@dataclass
class _Reading:
    chunks: list[Chunk] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)
    usage: int | None = None
    counted: int = 0  # tokens given to chunks so far
    finish_reason: str | None = None
    finished: float | None = None
    ended: float | None = None
    done: bool = False


class _Unreadable(Exception):
    def __init__(self, failure: Failure) -> None:
        self.failure = failure


def read_answer(
    reads: Iterable[tuple[float, bytes]],
    failure: Failure | None = None,
    count_tokens: CountTokens | None = None,
) -> Answer:
    """Read a whole stream. `failure` is what the transport met, if anything: it stands unless [DONE] came."""
    reads = list(reads)
    reading = _Reading()
    try:
        for event in events(reads):
            reading.ended = event.at
            if event.data == "[DONE]":
                reading.done = True
                break
            if not event.complete:
                break
            _take(reading, event.at, event.data)
    except _Unreadable as error:
        failure = error.failure
    else:
        failure = None if reading.done else failure
        failure = failure or _incomplete(reading, reads)
    text = well_formed("".join(reading.pieces))
    tokens, tokens_from = _count(reading.usage, text, count_tokens)
    return Answer(
        tuple(reading.chunks),
        text,
        tokens,
        tokens_from,
        reading.finish_reason,
        reading.finished,
        reading.ended,
        failure,
    )


def _take(reading: _Reading, at: float, data: str) -> None:
    try:
        body = json.loads(data)
    except (ValueError, RecursionError) as error:  # also numbers too long, and nesting too deep
        raise _malformed(f"an event is no JSON ({error})", data) from None
    if not isinstance(body, dict):
        raise _malformed("an event is no JSON object", data)
    if body.get("error"):
        fault = body["error"]
        message = fault.get("message") if isinstance(fault, dict) else fault
        raise _Unreadable(Failure("stream_error", well_formed(str(message))))
    usage = _completion_tokens(body)
    if usage is not None:
        reading.usage = usage
    choices = body.get("choices") or []
    if not isinstance(choices, list):
        raise _malformed("choices is no list", data)
    for choice in choices:
        if not isinstance(choice, dict):
            raise _malformed("a choice is no object", data)
        piece = _output(choice, data)
        if piece:
            reading.pieces.append(piece)
            # usage is a running total; tokens whose text was held back come with the next chunk
            tokens = None if usage is None else usage - reading.counted
            reading.counted += tokens or 0
            reading.chunks.append(Chunk(at, tokens))
        if choice.get("finish_reason"):
            reading.finish_reason = well_formed(str(choice["finish_reason"]))
            reading.finished = at


def _output(choice: dict[str, Any], data: str) -> str:
    """What the event adds to the output: reasoning, text and tool calls, in the order of one chunk."""
    if "text" in choice:
        parts = [choice["text"]]
    else:
        delta = choice.get("delta") or {}
        if not isinstance(delta, dict):
            raise _malformed("a delta is no object", data)
        parts = [delta.get("reasoning_content") or delta.get("reasoning")]
        parts += [delta.get("content"), delta.get("refusal")]
        calls = delta.get("tool_calls") or []
        if not isinstance(calls, list):
            raise _malformed("tool_calls is no list", data)
        for call in calls:
            function = call.get("function") if isinstance(call, dict) else None
            if isinstance(function, dict):
                parts += [function.get("name"), function.get("arguments")]
    if not all(part is None or isinstance(part, str) for part in parts):
        raise _malformed("output that is no text", data)
    return "".join(part for part in parts if part)


def _completion_tokens(body: dict[str, Any]) -> int | None:
    usage = body.get("usage")
    count = usage.get("completion_tokens") if isinstance(usage, dict) else None
    return count if type(count) is int and 0 <= count <= _MOST_TOKENS else None


def _count(usage: int | None, text: str, count_tokens: CountTokens | None) -> tuple[int | None, TokensFrom]:
    if usage is not None:
        return usage, "usage"
    if count_tokens is not None:
        return count_tokens(text), "retokenised"
    return None, "unknown"


def _incomplete(reading: _Reading, reads: list[tuple[float, bytes]]) -> Failure | None:
    if reading.ended is None:
        start = b"".join(data for _, data in reads)[:80]
        if start.strip():
            return Failure("malformed", f"no event stream: it begins with {start!r}")
        return Failure("empty", "the stream had no events")
    if not reading.done and reading.finish_reason is None:
        return Failure("cut", "the stream ended without a finish reason or [DONE]")
    ended_at_once = reading.finish_reason is not None and bool(reading.usage)  # its token has no text
    if not reading.chunks and not ended_at_once:
        return Failure("empty", "the answer has no output")
    return None


def _malformed(what: str, data: str) -> _Unreadable:
    return _Unreadable(Failure("malformed", f"{what}: {data[:80]!r}"))
