"""JSON, tools, and reasoning beside a schema. The request forces the form, so that a model too weak to choose
it shows it as well."""

from __future__ import annotations

import json
from typing import Any

from specops.phases.canary.client import CanaryRequest, PoolClient, Reply, ToolCall
from specops.phases.canary.pool_pair import ConformanceCheck, PoolOutcome, PoolPair, of_each, trouble

TOKENS = 96
REASONING_TOKENS = 768
MARK = "</think>"
"""What ends the reasoning of most models; a parser removes it."""
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"size": {"enum": ["small", "large"]}, "ready": {"type": "boolean"}},
    "required": ["size", "ready"],
    "additionalProperties": False,
}
QUESTION = "Describe a parcel as a JSON object with its size, small or large, and whether it is ready."
TOOL = {
    "type": "function",
    "function": {"name": "send_parcel", "description": "Send a parcel.", "parameters": SCHEMA},
}
CHOSEN = {"type": "function", "function": {"name": "send_parcel"}}
FORMATS: dict[str, dict[str, Any]] = {
    "json_object": {"type": "json_object"},
    "json_schema": {
        "type": "json_schema",
        "json_schema": {"name": "parcel", "schema": SCHEMA, "strict": True},
    },
}


def fits(text: str) -> bool:
    """Return whether `text` is an object of SCHEMA."""
    try:
        value = json.loads(text)
    except ValueError:
        return False
    if not isinstance(value, dict):
        return False
    return (
        value.keys() == {"size", "ready"}
        and value["size"] in ("small", "large")
        and type(value["ready"]) is bool
    )


def is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def begun(reply: Reply) -> bool:
    """Return whether an answer may be the beginning of an object that max_tokens cut off: grammars allow as
    many spaces as a weak model likes to write."""
    return reply.first.finish_reason == "length" and reply.text.lstrip()[:1] in ("", "{")


async def json_object(pool: PoolClient, pair: PoolPair) -> PoolOutcome:
    return await _formatted(pool, "json_object")


async def json_schema(pool: PoolClient, pair: PoolPair) -> PoolOutcome:
    return await _formatted(pool, "json_schema")


async def _formatted(pool: PoolClient, name: str) -> PoolOutcome:
    plain = pool.chat_request(QUESTION, max_tokens=TOKENS, temperature=0, response_format=FORMATS[name])
    blank = True
    for ask in (plain, plain.streaming(), plain.with_fields(temperature=1.0, seed=7)):
        reply = await pool.ask(ask)
        if side := trouble(reply, ask):
            return side
        good = is_object(reply.text) if name == "json_object" else fits(reply.text)
        if not good and not begun(reply):
            return PoolOutcome("ignored", f"{name} was requested, and it wrote {reply.text[:60]!r}", ask)
        blank = blank and not reply.text.strip()
    if blank:
        return PoolOutcome("unsure", "max_tokens ends all its answers before their first word", plain)
    return PoolOutcome("ok", ask=plain)


async def tools(pool: PoolClient, pair: PoolPair) -> PoolOutcome:
    ask = _with_tool(pool)
    reply = await pool.ask(ask)
    return trouble(reply, ask) or called(reply, ask) or PoolOutcome("ok", ask=ask)


async def tools_stream(pool: PoolClient, pair: PoolPair) -> PoolOutcome:
    """The arguments in a stream, put together, are those of the whole answer."""
    plain = _with_tool(pool)
    whole = await pool.plain(plain)
    ask = plain.streaming()
    reply = await pool.ask(ask)
    if side := trouble(whole, plain) or trouble(reply, ask) or called(reply, ask):
        return side
    if reply.first.calls != whole.first.calls:
        again = await pool.ask(plain)
        if again.first.calls == whole.first.calls:
            message = (
                f"the stream's call is {_short(reply.first.calls)}, the whole one {_short(whole.first.calls)}"
            )
            return PoolOutcome("wrong", message, ask)
    return PoolOutcome("ok", ask=ask)


async def reasoning(pool: PoolClient, pair: PoolPair) -> PoolOutcome:
    """Of a model that reasons: beside a schema its reasoning stays in its own field."""
    most = min(REASONING_TOKENS, (await pool.longest() or 2 * REASONING_TOKENS) // 2)
    plain = pool.chat_request(QUESTION, max_tokens=most, temperature=0)
    first = await pool.plain(plain)
    if side := trouble(first, plain):
        return side
    if not first.first.reasoning:
        return PoolOutcome("ignored", "it reports no reasoning", plain)
    formatted = plain.with_fields(response_format=FORMATS["json_schema"])
    for ask in (formatted, formatted.streaming()):
        reply = await pool.ask(ask)
        if side := trouble(reply, ask):
            return side
        if MARK in reply.text or not (fits(reply.text) or begun(reply)):
            message = f"beside a schema its answer is {reply.text[:60]!r}, outside its reasoning"
            return PoolOutcome("wrong", message, ask)
        if not reply.text.strip():
            message = f"its reasoning takes all {most} tokens, and no answer is left to check"
            return PoolOutcome("unsure", message, ask)
        if not reply.first.reasoning:
            return PoolOutcome("ignored", "it reports no reasoning beside a schema", ask)
    return PoolOutcome("ok", ask=formatted)


def called(reply: Reply, ask: CanaryRequest) -> PoolOutcome | None:
    """Return what is wrong with an answer that was to call the tool; None where nothing is."""
    calls = reply.first.calls
    if not calls:
        return PoolOutcome("ignored", f"a tool had to be called, and it wrote {reply.text[:60]!r}", ask)
    if len(calls) != 1 or calls[0].name != "send_parcel" or not fits(calls[0].arguments):
        return PoolOutcome(
            "wrong", f"the call is {_short(calls)}, which the tool's schema does not allow", ask
        )
    return None


def _with_tool(pool: PoolClient) -> CanaryRequest:
    return pool.chat_request(QUESTION, max_tokens=TOKENS, temperature=0, tools=[TOOL], tool_choice=CHOSEN)


def _short(calls: tuple[ToolCall, ...]) -> str:
    return "; ".join(f"{call.name}({call.arguments[:60]})" for call in calls)


CHECKS: tuple[ConformanceCheck, ...] = (
    of_each("json_object", "JSON mode gives JSON", json_object, "response_format"),
    of_each(
        "json_schema",
        "answers follow a JSON schema, streamed and sampled too",
        json_schema,
        "response_format",
    ),
    of_each("tools", "a tool that must be called is called by its schema", tools, "tools"),
    of_each("reasoning", "reasoning stays out of an answer with a schema", reasoning, "response_format"),
    of_each("tools_stream", "a tool's arguments come whole in a stream", tools_stream, "tools"),
)
