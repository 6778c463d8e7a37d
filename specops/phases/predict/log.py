"""Logged answers: which text a model wrote after which prompt, and how it was sampled.

Formats, distinguished by their content:

- chat logs: `{"messages": [...]}`; each assistant message is an answer, what is before it its prompt
- ShareGPT: `{"conversations": [{"from": "human" | "gpt", "value": …}, …]}`, the same
- a request with its answer: `{"body" or "request": {...}, "response": {...}}`, as OpenAI sends and returns
- answers of the OpenAI batch API, `{"custom_id", "response": {"body": …}}`, with the prompts in another file
- text: `{"prompt" or "text": …, "completion": …}`, beside them the other fields of `LoggedAnswer`
- results of specops, ab.json and baseline.json, with the prompts of their rollout

An answer that cannot be used is counted with the reason, never left out in silence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, TypeGuard

from specops import results
from specops.errors import FileError, PromptsError, reason_of
from specops.hints import beginning, listing, with_options
from specops.load.record import Row
from specops.load.workload import DEFAULT_CLASS, Message, Prompt, PromptSet, items_of
from specops.phases.ab.earlier import measurements_of
from specops.phases.measurement import cells_of
from specops.results import Result

TOOLS = "the request has tools: how they are part of the prompt is not predicted"
ROLES = {"human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant", "system": "system"}
"""Roles of ShareGPT, as a chat request names them."""


@dataclass(frozen=True)
class LoggedAnswer:
    conversation: str
    """Answers of one conversation are not independent: intervals resample conversations."""

    traffic_class: str
    prompt: str | tuple[int, ...] | tuple[Message, ...]
    """Text, token ids, or the messages before the answer."""

    text: str
    token_ids: tuple[int, ...] | None = None
    """The answer's tokens, where the log has them."""

    temperature: float | None = None
    max_tokens: int | None = None
    finish_reason: str | None = None
    tokens: int | None = None
    """Number of the answer's tokens by the server's usage."""

    prompt_tokens: int | None = None
    """Number of the prompt's tokens by the server's usage."""


@dataclass(frozen=True)
class AnswerLog:
    path: str
    sha256: str
    answers: tuple[LoggedAnswer, ...]
    left_out: Mapping[str, int]
    """Number of entries that have no answer to use, by reason."""


class _Unusable(Exception):
    """Why an entry has no answer; the caller counts it."""


def read_log(path: Path, prompts: PromptSet | None, temperature: float | None) -> AnswerLog:
    """Read the answers at `path`. prompts: of answers that are logged without them, by id. temperature: of
    entries that do not have theirs; None: it is not known.

    Raises FileError for a file that cannot be read, PromptsError for one of another format, or without any
    answer.
    """
    try:
        raw = path.read_bytes()
        text = raw.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(
            f"could not read the log {path}: {reason_of(error)}: expected text in UTF-8",
            hint=listing(path.parent),
        ) from error
    left_out: Counter[str] = Counter()
    answers: list[LoggedAnswer] = []
    entries: Iterator[LoggedAnswer | str]
    if results.is_result(text):
        entries = _of_result(results.read(path), path, prompts)
    else:
        # A request of a batch is the last turn of its conversation: the earlier ones are its history.
        by_id = {prompt.session or prompt.id: prompt for prompt in (prompts.prompts if prompts else ())}
        logged: set[str] = set()
        entries = (
            entry
            for number, item in enumerate(items_of(path, text))
            for entry in _read(item, number, by_id, logged)
        )
    for entry in entries:
        if isinstance(entry, str):
            left_out[entry] += 1
        elif not entry.text and not entry.token_ids and entry.tokens != 1:  # an end of text alone is one
            left_out["the answer has no text"] += 1
        else:
            answers.append(
                entry if entry.temperature is not None else replace(entry, temperature=temperature)
            )
    if not answers:
        why = "; ".join(f"{reason} ({number})" for reason, number in left_out.most_common()) or "it is empty"
        raise PromptsError(f"{path} has no answer to predict from: {why}", hint=beginning(path))
    return AnswerLog(str(path), results.sha256(raw), tuple(answers), dict(left_out.most_common()))


def _of_result(result: Result, path: Path, prompts: PromptSet | None) -> Iterator[LoggedAnswer | str]:
    """The standard's answers of a comparison, or those of a baseline."""
    if result.phase == "ab":
        windows = measurements_of(result, str(path)).windows
        standard = result.data.get("standard") or next(iter(result.settings.get("arms") or ()), None)
        cells = [window.cell for window in windows if window.arm == standard]
    elif result.phase == "baseline":
        cells = list(cells_of(result, str(path)))
    else:
        raise PromptsError(
            f"{path} is a result of {result.phase}: expected ab.json, baseline.json or a log of answers",
            hint=beginning(path),
        )
    stored = (result.data.get("prompts") or {}).get("sha256")
    if prompts is None or prompts.sha256 != stored:
        raise PromptsError(
            f"{path} has answers to other prompts than {prompts.path if prompts else 'the rollout has'}: "
            "expected the prompt set that it was measured with",
            hint=with_options({"--prompts": "prompts.json"}),
        )
    by_id = {prompt.id: prompt for prompt in prompts.prompts}
    same = bool(result.settings.get("same_prompts"))
    chat = result.settings.get("endpoint", "chat") == "chat"
    logged: set[tuple[str, str, float]] = set()
    replayed = sum(len(cell.sent) for cell in cells if cell.level.replay)
    yield from replayed * ["it was sent with the lengths of a trace"]
    for row in chain.from_iterable(cell.sent for cell in cells if not cell.level.replay):
        key = (row.prompt, row.variant, row.temperature)
        if row.error is not None or row.prompt not in by_id:
            yield "the request failed" if row.error is not None else "its prompt is not in the prompt set"
        elif row.temperature == 0 and key in logged:
            yield "a greedy answer to the same request again"
        else:
            logged.add(key)
            prompt = by_id[row.prompt]
            if not same:
                prompt = prompt.fresh(str(result.data["run"]), row.variant)
            yield _of_row(row, prompt, result.settings, chat=chat)


def _of_row(row: Row, prompt: Prompt, settings: Mapping[str, Any], *, chat: bool) -> LoggedAnswer | str:
    if row.reasoning:
        return "its reasoning cannot be separated from the answer"
    ends = not settings.get("ignore_eos")
    return LoggedAnswer(
        conversation=prompt.session or prompt.id,
        traffic_class=row.traffic_class,
        prompt=tuple(prompt.messages()) if chat else _completion(prompt),
        text=row.text,
        temperature=row.temperature,
        max_tokens=settings.get("max_tokens") or prompt.max_tokens,
        finish_reason=row.finish_reason if ends else "length",
        tokens=row.tokens if row.tokens_from == "usage" else None,
        prompt_tokens=row.prompt_tokens,
    )


def _completion(prompt: Prompt) -> str | tuple[int, ...]:
    content = prompt.completion_prompt()
    return content if isinstance(content, str) else tuple(content)


def _read(
    item: tuple[str, Any], number: int, prompts: Mapping[str, Prompt], logged: set[str]
) -> Iterator[LoggedAnswer | str]:
    """The answers of one entry, or why it has none. `logged`: the turns so far, as hashes."""
    _, entry = item
    if not isinstance(entry, dict):
        yield "the entry is not an object"
        return
    name = str(entry.get("conversation_id") or entry.get("custom_id") or entry.get("id") or number)
    try:
        if "messages" in entry and "response" not in entry:
            yield from _turns(entry, name, _messages(entry["messages"]), logged)
        elif "conversations" in entry:
            yield from _turns(entry, name, _sharegpt(entry["conversations"]), logged)
        elif "response" in entry:
            yield from _exchange(entry, name, prompts)
        elif "completion" in entry:
            prompt, ids = entry.get("prompt", entry.get("text")), entry.get("token_ids")
            yield _answer(
                entry,
                name,
                _prompt({"prompt": prompt}),
                str(entry["completion"] or ""),
                finish_reason=entry.get("finish_reason"),
                token_ids=tuple(ids) if _are_ids(ids) else None,
                tokens=_whole(entry.get("tokens")),
                prompt_tokens=_whole(entry.get("prompt_tokens")),
            )
        else:
            yield "unknown format: expected messages, conversations, response or completion"
    except _Unusable as error:
        yield str(error)


def _answer(
    entry: Mapping[str, Any],
    name: str,
    prompt: str | tuple[int, ...] | tuple[Message, ...],
    text: str,
    **facts: Any,
) -> LoggedAnswer:
    return LoggedAnswer(
        conversation=name,
        traffic_class=str(entry.get("class") or entry.get("category") or DEFAULT_CLASS),
        prompt=prompt,
        text=text,
        **{"temperature": _number(entry.get("temperature")), "max_tokens": _whole(entry.get("max_tokens"))}
        | facts,
    )


def _is_more(message: Mapping[str, Any]) -> bool:
    """Whether a message has more than its content."""
    return any(message.get(key) for key in ("tool_calls", "reasoning_content", "reasoning"))


def _turns(
    entry: Mapping[str, Any], name: str, messages: Sequence[Message], logged: set[str]
) -> Iterator[LoggedAnswer | str]:
    """Each assistant message that follows another. A log of requests repeats earlier turns in each later
    one: they count once."""
    answered = False
    for index, message in enumerate(messages):
        if message.get("role") != "assistant" or index == 0:
            continue
        answered = True
        content = message.get("content")
        turn = results.sha256([dict(earlier) for earlier in messages[: index + 1]])
        if turn in logged and index + 1 < len(messages):
            yield "an earlier turn of a conversation again"
        elif entry.get("tools") or entry.get("functions"):
            yield TOOLS
        elif _is_more(message) or not isinstance(content, str):
            yield "the answer is not text alone: tool calls and reasoning are not predicted"
        else:
            yield _answer(entry, name, tuple(messages[:index]), content)
        logged.add(turn)
    if not answered:
        yield "the conversation has no answer"


def _messages(value: Any) -> list[Message]:
    if not isinstance(value, list) or not all(
        isinstance(m, dict) and isinstance(m.get("role"), str) for m in value
    ):
        raise _Unusable("messages is not a list of objects with a role")
    return value


def _sharegpt(value: Any) -> list[Message]:
    turns = value if isinstance(value, list) else []
    messages = [
        {"role": ROLES[str(turn.get("from"))], "content": turn.get("value")}
        for turn in turns
        if isinstance(turn, dict) and str(turn.get("from")) in ROLES
    ]
    if not turns or len(messages) != len(turns):
        raise _Unusable("conversations has turns of an unknown role")
    return messages


def _exchange(
    entry: Mapping[str, Any], name: str, prompts: Mapping[str, Prompt]
) -> Iterator[LoggedAnswer | str]:
    """A request with its response, or the response alone with its prompt in `prompts`."""
    response = entry["response"]
    if isinstance(response, str):
        yield _answer(entry, name, _prompt(entry), response)
        return
    if isinstance(response, dict) and response.get("status_code", 200) != 200:
        raise _Unusable("the request failed")
    body = response.get("body", response) if isinstance(response, dict) else None
    if not isinstance(body, dict) or not isinstance(body.get("choices"), list):
        raise _Unusable("the response has no choices: a stream is not read")
    request = entry.get("body") or entry.get("request") or ({} if "messages" not in entry else entry)
    if not isinstance(request, dict):
        raise _Unusable("the request is not an object")
    if request.get("tools") or request.get("functions"):
        raise _Unusable(TOOLS)
    ids = body.get("prompt_token_ids")
    if _are_ids(ids):
        prompt: str | tuple[int, ...] | tuple[Message, ...] = tuple(ids)
    elif request:
        prompt = _prompt(request)
    elif name in prompts:
        chat = any("message" in choice for choice in body["choices"] if isinstance(choice, dict))
        prompt = tuple(prompts[name].messages()) if chat else _completion(prompts[name])
    else:
        raise _Unusable("its prompt is not in the log: give the prompts as --prompts")
    usage = body["usage"] if isinstance(body.get("usage"), dict) else {}
    limit = _whole(request.get("max_completion_tokens")) or _whole(request.get("max_tokens"))
    if limit is None and name in prompts:
        limit = prompts[name].max_tokens
    for choice in body["choices"]:
        if not isinstance(choice, dict) or not isinstance(choice.get("message", {}), dict):
            yield "the response has no choices: a stream is not read"
            continue
        message = choice.get("message") or {}
        text = message.get("content") if message else choice.get("text")
        if _is_more(message) or not isinstance(text, str):
            yield "the answer is not text alone: tool calls and reasoning are not predicted"
            continue
        tokens = choice.get("token_ids")
        yield _answer(
            entry,
            name,
            prompt,
            text,
            temperature=_number(request.get("temperature", entry.get("temperature"))),
            max_tokens=limit,
            finish_reason=choice.get("finish_reason"),
            token_ids=tuple(tokens) if _are_ids(tokens) else None,
            tokens=_whole(usage.get("completion_tokens")) if len(body["choices"]) == 1 else None,
            prompt_tokens=_whole(usage.get("prompt_tokens")),
        )


def _prompt(request: Mapping[str, Any]) -> str | tuple[int, ...] | tuple[Message, ...]:
    match request:
        case {"messages": list() as messages} if messages:
            return tuple(_messages(messages))
        case {"prompt": str(text)} if text:
            return text
        case {"prompt": list() as ids} if _are_ids(ids):
            return tuple(ids)
    raise _Unusable("the request has no messages, and no prompt of text or token ids")


def _are_ids(value: Any) -> TypeGuard[list[int]]:
    return (
        isinstance(value, list) and bool(value) and all(type(token) is int and token >= 0 for token in value)
    )


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _whole(value: Any) -> int | None:
    return value if type(value) is int and value > 0 else None
