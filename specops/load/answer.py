"""The answer of a stream: its output chunks, text, tokens and what went wrong, from the bytes as they came.

Chunks are never counted as tokens: under speculation one chunk carries several. A chunk's tokens are known
where the server sends a running total with every chunk (`continuous_usage_stats`), or where the answer has
as many tokens as chunks. Where they are unknown, the reason is given. Below: server-sent events, errors
and HTML pages in place of answers, and counting with the model's own tokenizer.
"""

from __future__ import annotations

import html
import json
import re
import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from specops.errors import FileError, UsageError
from specops.hints import listing
from specops.serving import RequestDrafts, request_drafts


@dataclass(frozen=True, slots=True)
class Event:
    time_s: float
    """Arrival of the bytes that completed the event, in seconds of the client's monotonic clock."""

    data: str
    kind: str = ""
    """What the server names the event; most have no name."""

    complete: bool = True
    """False for what the end of the stream left without the blank line that ends an event."""


def events(reads: Iterable[tuple[float, bytes]]) -> list[Event]:
    """The data events of a stream read in pieces, each piece stamped on its arrival.

    Pieces may end anywhere, inside a character too; lines end in LF, CRLF or CR; comments and fields other
    than `data` and `event` are passed over; data lines of one event are joined by LF (the WHATWG's HTML
    standard, 9.2). llama.cpp sends a field `error`: it is read as the data of an event of that name. The
    standard discards an event that the end cuts off; here it comes out marked as incomplete, because
    some servers leave the last blank line out.
    """
    stream_events: list[Event] = []
    data: list[bytes] = []
    kind = rest = b""
    last = 0.0
    after_cr = False

    def line_ends(line: bytes, time_s: float) -> None:
        nonlocal kind
        if line.startswith(b"data:"):
            data.append(line[5:].removeprefix(b" "))
        elif line.startswith(b"event:"):
            kind = line[6:].strip()
        elif line.startswith(b"error:"):
            data.append(line[6:].removeprefix(b" "))
            kind = b"error"
        elif not line:
            event_ends(time_s)

    def event_ends(time_s: float, complete: bool = True) -> None:
        nonlocal kind
        if data:
            text = b"\n".join(data).decode("utf-8", errors="replace")
            stream_events.append(Event(time_s, text, kind.decode("utf-8", errors="replace"), complete))
            data.clear()
        kind = b""

    begun = False
    for time_s, read in reads:
        if not read:
            continue
        if not begun:  # a byte order mark before the stream is no part of its first line (9.2.6)
            read, begun = read.removeprefix(_BYTE_ORDER_MARK), True
        # after a CR, an LF that begins the next piece is the same line's end
        piece = read.removeprefix(b"\n") if after_cr else read
        after_cr = piece.endswith(b"\r")
        rest += piece
        if b"\r" in rest:
            rest = rest.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *lines, rest = rest.split(b"\n")
        for line in lines:
            line_ends(line, time_s)
        last = time_s
    if rest:
        line_ends(rest, last)
    event_ends(last, complete=False)
    return stream_events


_BYTE_ORDER_MARK = b"\xef\xbb\xbf"

TokensFrom = Literal["usage", "retokenised", "unknown"]
CountTokens = Callable[[str], int]

_MOST_TOKENS = 2**31

_ABORTED = frozenset({"abort", "aborted", "cancel", "cancelled", "canceled", "error", "timeout", "timed_out"})
"""Finish reasons of answers that the server gave up: vLLM and SGLang say abort, and vLLM says error."""

_SILENT = 2
"""Most tokens of a whole answer without text: the end of the sequence, and a special token before it."""

_AS_MANY = 0.01
"""Chunks and tokens that differ by no more than this share are taken for one token a chunk."""


@dataclass(frozen=True, slots=True)
class Failure:
    """The reason why a request gave no whole answer.

    Kinds: `refused`, `unreachable`, `timeout` (the whole request), `stalled` (too long between chunks),
    `http_<status>`, `cut` (the stream ended early), `malformed`, `html` (a page in place of an answer),
    `stream_error` (the server said so in the stream), `aborted` (the finish reason says so), `empty` (a whole
    answer without output), `overrun` (not sent: too many in flight), `interrupted` (the run was stopped
    before the answer was whole, which is not the server's failure).
    """

    kind: str
    detail: str


@dataclass(frozen=True, slots=True)
class Chunk:
    """One event with output: text, reasoning or a tool call."""

    time_s: float
    tokens: int | None
    characters: int = 0


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
    tokens_missing: str | None = None
    """Why the tokens are unknown, or not the server's own count."""

    chunk_tokens_missing: str | None = None
    """Why the tokens of each chunk are unknown."""

    reasoning: int = 0
    """Characters of the text that are reasoning."""

    refusal: int = 0
    tool_calls: int = 0
    prompt_tokens: int | None = None
    """Number of prompt tokens by the server's usage."""

    cached_tokens: int | None = None
    """Those of them that were in the server's cache, by its usage."""

    drafts: RequestDrafts | None = None
    """What the answer reports of its drafts."""


@dataclass
class _Reading:
    instants: list[float] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)
    reasoning: int = 0
    refusal: int = 0
    tool_calls: int = 0
    totals: list[int | None] = field(default_factory=list)  # what usage said with each piece
    usage: int | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    drafts: RequestDrafts | None = None
    finish_reason: str | None = None
    finished: float | None = None
    ends_without_text: bool = False
    ended: float | None = None
    done: bool = False


class _Unreadable(Exception):
    def __init__(self, failure: Failure) -> None:
        self.failure = failure


def read_answer(
    reads: Iterable[tuple[float, bytes]],
    failure: Failure | None = None,
    count_tokens: CountTokens | None = None,
    *,
    finish_reasons: bool = True,
) -> Answer:
    """Read a whole stream. `failure` is what the transport met, if anything: it stands unless [DONE] came.

    Of an endpoint that never sends finish reasons (`finish_reasons` false), an answer with usage and [DONE]
    is whole.
    """
    reads = list(reads)
    reading = _Reading()
    try:
        for event in events(reads):
            reading.ended = event.time_s
            if event.data == "[DONE]":
                reading.done = True
                break
            if not event.complete:
                break
            _take(reading, event)
    except _Unreadable as error:
        failure = error.failure
    else:
        failure = None if reading.done else failure
        failure = failure or _incomplete(reading, reads, finish_reasons)
    text = well_formed("".join(reading.pieces))
    tokens, tokens_from, tokens_missing = _count(reading, text, count_tokens)
    chunk_tokens, chunk_tokens_missing = _of_each_chunk(reading, tokens)
    return Answer(
        tuple(map(Chunk, reading.instants, chunk_tokens, map(len, reading.pieces))),
        text,
        tokens,
        tokens_from,
        reading.finish_reason,
        reading.finished,
        reading.ended,
        failure,
        tokens_missing,
        chunk_tokens_missing,
        reading.reasoning,
        reading.refusal,
        reading.tool_calls,
        reading.prompt_tokens,
        reading.cached_tokens,
        reading.drafts,
    )


def contradicts(tokens: int | None, limit: int, finish_reason: str | None) -> bool:
    """Return whether a count of tokens is wrong beside `max_tokens`: above it, or, where the finish reason
    says that the limit ended the answer, below it. One token more or less may be a special one."""
    if tokens is None:
        return False
    return tokens > limit + 1 or (finish_reason == "length" and tokens < limit - 1)


def _take(reading: _Reading, event: Event) -> None:
    time_s, data = event.time_s, event.data
    try:
        body = json.loads(data)
    except (ValueError, RecursionError) as error:  # also numbers too long, and nesting too deep
        if event.kind == "error":
            raise _refused(data) from None
        raise _malformed(f"an event is not JSON ({error})", data) from None
    if not isinstance(body, dict):
        raise _malformed("an event is not a JSON object", data)
    message = error_message(body)
    if message is not None or event.kind == "error":
        raise _refused(message or data)
    usage = _tokens(body, "completion_tokens")
    if usage is not None:
        reading.usage = usage
    prompt = _tokens(body, "prompt_tokens")
    if prompt is not None:
        reading.prompt_tokens = prompt
        reading.cached_tokens = _cached_tokens(body["usage"])
    reading.drafts = request_drafts(body) or reading.drafts  # the last one: it may be a running count
    choices = body.get("choices") or []
    if not isinstance(choices, list):
        raise _malformed("choices is not a list", data)
    for choice in choices:
        if not isinstance(choice, dict):
            raise _malformed("a choice is not an object", data)
        if choice.get("error"):
            raise _refused(error_message(choice) or data)
        thought, content, refusal, calls = _output(choice, data)
        if piece := thought + content + refusal + calls:
            reading.reasoning += len(thought)
            reading.refusal += len(refusal)
            reading.tool_calls += len(calls)
            reading.instants.append(time_s)
            reading.pieces.append(piece)
            reading.totals.append(usage)
        if reason := choice.get("finish_reason"):
            if isinstance(reason, dict):  # as SGLang has it: {"type": "abort", "message": …}
                reason = reason.get("type", reason)
            reading.finish_reason = well_formed(str(reason))
            reading.finished = time_s
            reading.ends_without_text = not piece


def _output(choice: dict[str, Any], data: str) -> tuple[str, str, str, str]:
    """Return what the event adds to the output: reasoning, text, a refusal, tool calls."""
    if "text" in choice:
        parts = [None, choice["text"], None]
    else:
        delta = choice.get("delta") or {}
        if not isinstance(delta, dict):
            raise _malformed("a delta is not an object", data)
        parts = [delta.get("reasoning_content") or delta.get("reasoning")]
        parts += [delta.get("content"), delta.get("refusal")]
        calls = delta.get("tool_calls") or []
        if not isinstance(calls, list):
            raise _malformed("tool_calls is not a list", data)
        for call in calls:
            function = call.get("function") if isinstance(call, dict) else None
            if isinstance(function, dict):
                parts += [function.get("name"), function.get("arguments")]
    if not all(part is None or isinstance(part, str) for part in parts):
        raise _malformed("output is not text", data)
    thought, content, refusal, *calls = (part or "" for part in parts)
    return thought, content, refusal, "".join(calls)


def _tokens(body: dict[str, Any], which: str) -> int | None:
    """A count of the event's usage."""
    usage = body.get("usage")
    count = usage.get(which) if isinstance(usage, dict) else None
    return count if type(count) is int and 0 <= count <= _MOST_TOKENS else None


def _cached_tokens(usage: dict[str, Any]) -> int | None:
    """Return how many prompt tokens came from the cache, by OpenAI's `prompt_tokens_details`."""
    details = usage.get("prompt_tokens_details")
    count = details.get("cached_tokens") if isinstance(details, dict) else None
    return count if type(count) is int and 0 <= count <= _MOST_TOKENS else None


def _count(
    reading: _Reading, text: str, count_tokens: CountTokens | None
) -> tuple[int | None, TokensFrom, str | None]:
    """The answer's tokens, who counted them, and why not the server."""
    usage, chunks = reading.usage, len(reading.pieces)
    if usage is None:
        missing = "the endpoint reports no usage"
    elif chunks > 2 * usage:  # some split a token's text; none makes text of no token
        missing = f"the endpoint counts {usage} tokens beside {chunks} chunks of text"
    else:
        return usage, "usage", None
    if count_tokens is not None:
        return count_tokens(text), "retokenised", missing
    return None, "unknown", missing


def _of_each_chunk(reading: _Reading, tokens: int | None) -> tuple[list[int | None], str | None]:
    """The tokens of each chunk, or why they are unknown.

    Usage is taken for a running total only where it grows with every chunk. Tokens whose text was held back
    come with the next chunk.
    """
    chunks = len(reading.totals)
    if tokens is None:
        return [None] * chunks, "the tokens of the whole answer are unknown"
    totals = [total for total in reading.totals if total is not None]
    grown = [later - earlier for earlier, later in pairwise([0, *totals])]
    if len(grown) == chunks and min(grown, default=1) > 0 and sum(grown) <= tokens:
        return list(grown), None
    ending = reading.ends_without_text and reading.finish_reason == "stop"  # its token has no text
    if any(abs(tokens - textless - chunks) <= _AS_MANY * tokens for textless in (0, ending)):
        return [1] * chunks, None
    if totals and len(totals) == chunks:
        return [None] * chunks, "the usage beside the chunks is not a running total"
    return [None] * chunks, "the endpoint does not send usage with every chunk"


def _incomplete(reading: _Reading, reads: list[tuple[float, bytes]], finish_reasons: bool) -> Failure | None:
    if reading.ended is None:
        return _not_a_stream(b"".join(data for _, data in reads))
    if reading.finish_reason in _ABORTED:
        after = f"after {len(reading.pieces)} chunks"
        return Failure("aborted", f"the server ended the answer with {reading.finish_reason} {after}")
    if not reading.done and reading.finish_reason is None:
        return Failure("cut", "the stream ended without a finish reason or [DONE]")
    if reading.pieces and reading.finish_reason is None and (finish_reasons or not reading.usage):
        return Failure("cut", "the answer ended without a finish reason")
    ended_at_once = reading.finish_reason is not None and 0 < (reading.usage or 0) <= _SILENT
    if not reading.pieces and not ended_at_once:
        beside = f", and its usage counts {reading.usage} tokens" if reading.usage else ""
        return Failure("empty", f"the answer has no output{beside}")
    return None


def _not_a_stream(body: bytes) -> Failure:
    text = body.decode("utf-8", errors="replace")
    if not text.strip():
        return Failure("empty", "the stream had no events")
    if page := html_page(text):
        return Failure("html", well_formed(page))
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        parsed = None
    if isinstance(parsed, dict) and (message := error_message(parsed)):
        return Failure("stream_error", well_formed(message))
    return Failure("malformed", f"no event stream: it begins with {body[:80]!r}")


def _refused(message: str) -> _Unreadable:
    return _Unreadable(Failure("stream_error", well_formed(message)))


def _malformed(problem: str, data: str) -> _Unreadable:
    return _Unreadable(Failure("malformed", f"{problem}: {data[:80]!r}"))


_TITLE = re.compile(r"<(title|h1)\b[^>]*>(.*?)</\1>", re.IGNORECASE | re.DOTALL)


def error_message(body: dict[str, Any]) -> str | None:
    """The message of an error object in any of the usual shapes; None where `body` is not an error.

    Known are OpenAI's `{"error": {"message": …}}`, `{"error": "…"}`, vLLM's and SGLang's
    `{"object": "error", "message": …}` and FastAPI's `{"detail": …}`.
    """
    fault = body.get("error")
    if fault:
        return _text(fault)
    if body.get("object") == "error":
        return _text(body)
    if "choices" in body or "usage" in body or not ("detail" in body or "message" in body):
        return None
    return _text(body)


def html_page(text: str) -> str | None:
    """`an HTML page` with its title, where `text` begins as one."""
    if not re.match(r"\s*<(!doctype html|html|head|body)\b", text, re.IGNORECASE):
        return None
    title = _TITLE.search(text)
    return f"an HTML page ({html.unescape(title[2]).strip()})" if title else "an HTML page"


def described(body: bytes) -> str:
    """The cause that the body of a refusal gives: the message of an error, the title of a page, its text.
    Empty where it is."""
    text = body.decode("utf-8", errors="replace")
    try:
        parsed: Any = json.loads(text)
    except (ValueError, RecursionError):
        parsed = None
    message = error_message(parsed) if isinstance(parsed, dict) else html_page(text)
    return message or text.strip()


def _text(fault: Any) -> str:
    if isinstance(fault, dict):
        fault = next((fault[key] for key in ("message", "detail", "msg", "code") if fault.get(key)), fault)
    return fault if isinstance(fault, str) else json.dumps(fault)


def well_formed(text: str) -> str:
    """`text` with lone surrogates replaced, and pairs joined that two chunks had torn apart."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def tokenizer_file(path: Path) -> Path:
    """The tokenizer.json at `path`, or in the folder `path`. Raises FileError where it is missing."""
    file = path / "tokenizer.json" if path.is_dir() else path
    if not file.is_file():
        raise FileError(
            f"there is no tokenizer at {file}: expected a tokenizer.json or its folder",
            hint=listing(file.parent),
        )
    return file


def token_counter(path: Path) -> CountTokens:
    """A function from text to its number of tokens, without special ones, by the tokenizer.json at `path`."""
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise UsageError(
            "counting tokens needs the tokenizers package, which is not installed",
            hint="pip install tokenizers",
        ) from None
    file = tokenizer_file(path)
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:  # the package raises plain Exception
        raise UsageError(
            f"could not read the tokenizer {file}: {error}: expected the tokenizer.json of the served model",
            hint=f"head -c 300 {shlex.quote(str(file))}",
        ) from error

    def count(text: str) -> int:
        return len(tokenizer.encode(text, add_special_tokens=False).ids)

    return count
