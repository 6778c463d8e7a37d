"""An answer of the OpenAI API as checks look at it, the same whether it was streamed or not. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from specops.load.answer import Failure, well_formed

REFUSALS = ("http_400", "http_404", "http_422", "http_501")
PASSING = ("timeout", "stalled", "http_429", "http_503")
"""What a busy server does as well, so that it shows nothing of speculation."""


@dataclass(frozen=True)
class Token:
    text: str
    logprob: float
    top: tuple[float, ...] = ()
    """Log-probabilities of the likeliest there, the greatest first."""


@dataclass(frozen=True)
class Call:
    """Of a tool; `arguments` is the text of a JSON object."""

    name: str = ""
    arguments: str = ""


@dataclass(frozen=True)
class Choice:
    text: str = ""
    finish_reason: str | None = None
    tokens: tuple[Token, ...] | None = None
    """None where there are none."""

    calls: tuple[Call, ...] = ()


@dataclass(frozen=True)
class Usage:
    prompt: int
    completion: int
    total: int


@dataclass(frozen=True)
class Reply:
    choices: Mapping[int, Choice] = field(default_factory=dict)
    """By their index."""

    usage: Usage | None = None
    failure: Failure | None = None

    @property
    def text(self) -> str:
        """Of the first choice."""
        return self.first.text

    @property
    def first(self) -> Choice:
        return self.choices.get(0, Choice())

    @property
    def ok(self) -> bool:
        return self.failure is None

    @property
    def refused(self) -> bool:
        return self.failure is not None and self.failure.kind in REFUSALS

    @property
    def said(self) -> tuple[str, tuple[Call, ...], int | None]:
        """What two answers must share to be the same."""
        return self.text, self.first.calls, self.usage.completion if self.usage else None


def whole(body: Any) -> Reply:
    """A reply from the JSON of an answer that was not streamed."""
    try:
        choices = {int(one.get("index", 0)): _whole_choice(one) for one in body["choices"]}
        return Reply(choices, _usage(body.get("usage")))
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        return Reply(failure=Failure("malformed", f"the answer cannot be read: {error!r}"[:200]))


def streamed(events: Iterable[str], *, ended: bool = True) -> Reply:
    """A reply from the data of a stream's events. With `ended` it must have come to its end."""
    choices: dict[int, Choice] = {}
    usage: Usage | None = None
    done = False
    try:
        for data in events:
            if data == "[DONE]":
                done = True
                break
            event = json.loads(data)
            if error := event.get("error"):
                raw = error.get("message") if isinstance(error, dict) else error
                return Reply(choices, usage, Failure("stream_error", str(raw)[:200]))
            usage = _usage(event.get("usage")) or usage
            for one in event.get("choices") or []:
                index = int(one.get("index", 0))
                choices[index] = _grown(choices.get(index, Choice()), one)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        return Reply(choices, usage, Failure("malformed", f"an event cannot be read: {error!r}"[:200]))
    if ended and not done and not any(choice.finish_reason for choice in choices.values()):
        return Reply(choices, usage, Failure("cut", "the stream ended without a finish reason or [DONE]"))
    return Reply({i: replace(one, text=well_formed(one.text)) for i, one in choices.items()}, usage)


def _whole_choice(one: dict[str, Any]) -> Choice:
    message = one.get("message") or {}
    text = one["text"] if "text" in one else message.get("content")
    calls = message.get("tool_calls") or []
    return Choice(
        well_formed(text or ""),
        one.get("finish_reason"),
        _tokens(one.get("logprobs")),
        tuple(Call(call["function"]["name"], call["function"]["arguments"]) for call in calls),
    )


def _grown(choice: Choice, one: dict[str, Any]) -> Choice:
    delta = one.get("delta") or {}
    text = one["text"] if "text" in one else delta.get("content")
    tokens = _tokens(one.get("logprobs"))
    calls = list(choice.calls)
    for call in delta.get("tool_calls") or []:
        place, function = int(call.get("index", 0)), call.get("function") or {}
        calls += [Call()] * (place + 1 - len(calls))
        so_far = calls[place]
        calls[place] = Call(
            so_far.name + (function.get("name") or ""), so_far.arguments + (function.get("arguments") or "")
        )
    return Choice(
        choice.text + (text or ""),
        one.get("finish_reason") or choice.finish_reason,
        choice.tokens if tokens is None else (*(choice.tokens or ()), *tokens),
        tuple(calls),
    )


def _tokens(raw: Any) -> tuple[Token, ...] | None:
    """From the chat's shape of logprobs, or the completions'."""
    if not raw:
        return None
    if "content" in raw:
        return tuple(
            Token(one["token"], float(one["logprob"]), _top(t["logprob"] for t in one["top_logprobs"] or []))
            for one in raw["content"] or []
        )
    tops = raw.get("top_logprobs") or [{}] * len(raw["tokens"])
    return tuple(
        Token(str(text), float(value), _top((top or {}).values()))
        for text, value, top in zip(raw["tokens"], raw["token_logprobs"], tops, strict=True)
    )


def _top(values: Iterable[float]) -> tuple[float, ...]:
    return tuple(sorted(map(float, values), reverse=True))


def _usage(raw: Any) -> Usage | None:
    if not raw:
        return None
    return Usage(int(raw["prompt_tokens"]), int(raw["completion_tokens"]), int(raw["total_tokens"]))
