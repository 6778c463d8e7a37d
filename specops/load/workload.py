"""Prompt sets: what is sent, in which traffic class, and where it came from.

Four formats are read, distinguished by their content:

- a JSON list: `{"text": …}`, with `max_tokens`, `id` and `class` where there are any
- OpenAI batch JSONL: `{"custom_id": …, "body": {"messages" or "prompt": …, "max_tokens": …}}`
- ShareGPT JSON: `{"id": …, "conversations": [{"from": "human", "value": …}, …]}`; its first human turn
- Spec-Bench JSONL: `{"question_id": …, "category": …, "turns": [str, …]}`; its first turn, by category
"""

from __future__ import annotations

import json
import random
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import TypeAdapter, WithJsonSchema
from typing_extensions import TypedDict

from specops.assets import asset
from specops.errors import FileError, PromptsError, reason_of
from specops.hints import beginning, json_check, listing, with_options, with_value
from specops.results import sha256

DEFAULT_CLASS = "all"

_NONCE_LENGTH = 8
"""Characters, or token ids."""

Format = Literal["playbook", "openai-batch", "sharegpt", "spec-bench"]
Message = dict[str, Any]


@dataclass(frozen=True)
class Prompt:
    id: str
    traffic_class: str
    content: str | tuple[int, ...] | tuple[Message, ...]
    """Text, token ids (completions only), or a whole conversation."""

    max_tokens: int | None = None
    variant: str = ""
    """Distinguishes repeats of a prompt that differ in their nonce; empty for the prompt as it is."""

    temperature: float | None = None
    """In place of that of the measurement."""

    seed: int | None = None
    """Of a sampled answer, in place of that of the measurement."""

    def messages(self) -> list[Message]:
        """Return the prompt as the messages of a chat request."""
        match self.content:
            case str():
                return [{"role": "user", "content": self.content}]
            case (int(), *_):
                raise PromptsError(
                    f"prompt {self.id} is a list of token ids, which a chat request cannot carry",
                    hint=with_options({"--endpoint": "completions"}),
                )
            case _:
                return [dict(message) for message in self.content if isinstance(message, dict)]

    def fresh(self, run: str, variant: str) -> Prompt:
        """Return a variant of the prompt with a nonce in front: no server has its answer, or a prefix of
        it, in a cache. The nonce follows from `run`, the prompt and the variant, so both arms of a pair
        get the same.

        A list of token ids gets ids of its own, in an order that the nonce draws: others might be
        special.
        """
        nonce = sha256([run, self.id, variant])[:_NONCE_LENGTH]
        content: str | tuple[int, ...] | tuple[Message, ...]
        match self.content:
            case str(text):
                content = f"[{nonce}] {text}"
            case (int(), *_):
                ids = [token for token in self.content if isinstance(token, int)]
                content = (*random.Random(nonce).choices(ids, k=_NONCE_LENGTH), *ids)
            case _:
                first, *rest = (dict(message) for message in self.content if isinstance(message, dict))
                parts = first.get("content")
                if isinstance(parts, list):
                    first["content"] = [{"type": "text", "text": f"[{nonce}]"}, *parts]
                else:
                    first["content"] = f"[{nonce}] {parts or ''}"
                content = (first, *rest)
        return replace(self, content=content, variant=variant)

    def completion_prompt(self) -> str | list[int]:
        """Return the prompt as the `prompt` of a completions request: text, token ids, or a lone message's
        text."""
        match self.content:
            case str():
                return self.content
            case ({"content": str(text)},):
                return text
            case (int(), *_):
                return [token for token in self.content if isinstance(token, int)]
            case _:
                raise PromptsError(
                    f"prompt {self.id} is a conversation, which a completions request cannot carry",
                    hint=with_options({"--endpoint": "chat"}),
                )


class Provenance(TypedDict):
    """The prompts that were sent: what `PromptSet.provenance` returns."""

    path: str
    format: Format
    sha256: str
    count: int
    classes: dict[str, int]
    ignored_fields: list[str]
    repeated: int
    samples: bool


StoredProvenance = Annotated[dict[str, Any], WithJsonSchema(TypeAdapter(Provenance).json_schema())]
"""Provenance of the prompts of a stored result, which may be older and have fewer keys."""


@dataclass(frozen=True)
class PromptSet:
    prompts: tuple[Prompt, ...]
    path: str
    format: Format
    sha256: str
    """Hash of the file's bytes."""

    ignored: tuple[str, ...] = ()
    """Request fields in the file that were not sent: one run samples every prompt the same way."""

    repeated: int = 0
    """Prompts that were left out because an earlier one has the same content."""

    @property
    def classes(self) -> list[str]:
        return sorted({prompt.traffic_class for prompt in self.prompts})

    def select(self, classes: Sequence[str]) -> PromptSet:
        """Return the set with only the prompts of these traffic classes; none named keeps all."""
        unknown = sorted(set(classes) - set(self.classes))
        if unknown:
            raise PromptsError(
                f"{self.path} has no prompts of class {', '.join(unknown)}: expected "
                f"{', '.join(self.classes)}",
                hint=with_value(unknown[0], self.classes[0]),
            )
        chosen = tuple(p for p in self.prompts if not classes or p.traffic_class in classes)
        return replace(self, prompts=chosen)

    def distinct(self) -> PromptSet:
        """Return the set without prompts whose content is that of an earlier one.

        A server may answer these from a cache, even in the first round, so they add no evidence.
        """
        first = {
            prompt.id
            for prompt in {json.dumps(p.content, sort_keys=True): p for p in reversed(self.prompts)}.values()
        }
        chosen = tuple(prompt for prompt in self.prompts if prompt.id in first)
        return replace(self, prompts=chosen, repeated=self.repeated + len(self.prompts) - len(chosen))

    def spread(self, count: int) -> list[Prompt]:
        """`count` of them, evenly over the set; all where it has no more."""
        count = min(count, len(self.prompts))
        return [self.prompts[index * len(self.prompts) // count] for index in range(count)]

    def provenance(self) -> dict[str, Any]:
        """Return where the prompts are from. `samples`: these prompts ship with specops, under whatever path,
        and are not those of a service."""
        shipped = asset("playbooks", "embedded", "prompts.json")
        return {
            "path": self.path,
            "format": self.format,
            "sha256": self.sha256,
            "count": len(self.prompts),
            "classes": {c: sum(p.traffic_class == c for p in self.prompts) for c in self.classes},
            "ignored_fields": list(self.ignored),
            "repeated": self.repeated,
            "samples": self.sha256 == sha256(shipped),
        }


def load_prompts(path: Path, class_of: Callable[[Prompt], str] | None = None) -> PromptSet:
    """Read a prompt set. Raises PromptsError, which names the item or line that is wrong, and FileError where
    the file is missing.

    `class_of` puts prompts into traffic classes in place of what the file says.
    """
    try:
        raw = path.read_bytes()
        text = raw.decode("utf-8")
    except FileNotFoundError:
        raise FileError(f"there are no prompts at {path}", hint=listing(path.parent)) from None
    except (OSError, UnicodeDecodeError) as error:
        refused = FileError if isinstance(error, PermissionError) else PromptsError
        raise refused(
            f"could not read the prompts in {path}: {reason_of(error)}: expected text in UTF-8",
            hint=listing(path) if isinstance(error, OSError) else f"file {shlex.quote(str(path))}",
        ) from error
    items = _items(path, text)
    if not items:
        raise PromptsError(
            f'{path} has no prompts: expected a JSON list of {{"text": …, "max_tokens": …}}',
            hint=beginning(path),
        )
    format_, read = _format(path, *items[0])
    prompts: list[Prompt] = []
    places: dict[str, str] = {}
    for number, (where, item) in enumerate(items):
        try:
            _whole_characters(item)
            prompt = read(item, number)
        except _Wrong as error:
            raise PromptsError(
                f"{path}, {where}: {error} (read as {format_})", hint=beginning(path)
            ) from None
        if prompt.id in places:
            raise PromptsError(
                f"{path}, {where}: the id {prompt.id} is {places[prompt.id]}'s already: expected an id of "
                "its "
                "own for each prompt, or no ids",
                hint=f"grep -n -F -e {shlex.quote(prompt.id)} {shlex.quote(str(path))}",
            )
        places[prompt.id] = where
        if class_of:
            prompt = Prompt(prompt.id, class_of(prompt), prompt.content, prompt.max_tokens)
        prompts.append(prompt)
    ignored = _ignored_fields([item for _, item in items]) if format_ == "openai-batch" else ()
    return PromptSet(tuple(prompts), str(path), format_, sha256(raw), ignored)


def repeated_sentence(repeated: int, sent: int) -> str:
    """Return the sentence that `repeated` prompts were left out beside `sent` ones; empty for none."""
    return f"{repeated} of {repeated + sent} prompts repeat an earlier one and were left out" * bool(repeated)


class _Wrong(Exception):
    """An error in one item; the caller adds where."""


def _items(path: Path, text: str) -> list[tuple[str, Any]]:
    """Return each item with the words for its place: the items of a JSON list, or the lines of JSON lines."""
    stripped = text.lstrip()
    if stripped.startswith("["):
        try:
            return [(f"item {i}", item) for i, item in enumerate(json.loads(text), start=1)]
        except json.JSONDecodeError as error:
            raise PromptsError(
                f"{path} is damaged at line {error.lineno}, column {error.colno}: {error.msg}",
                hint=json_check(path),
            ) from None
        except (ValueError, RecursionError) as error:  # numbers too long, nesting too deep
            raise PromptsError(f"{path} cannot be read as JSON: {error}", hint=json_check(path)) from None
    items = []
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            try:
                items.append((f"line {number}", json.loads(line)))
            except json.JSONDecodeError as error:
                raise PromptsError(
                    f"{path} is damaged at line {number}, column {error.colno}: {error.msg}",
                    hint=json_check(path, lines=True),
                ) from None
            except (ValueError, RecursionError) as error:
                raise PromptsError(
                    f"{path}, line {number} cannot be read as JSON: {error}",
                    hint=json_check(path, lines=True),
                ) from None
    return items


def _format(path: Path, where: str, first: Any) -> tuple[Format, Callable[[Any, int], Prompt]]:
    if isinstance(first, dict):
        if "body" in first:
            return "openai-batch", _openai_batch
        if "conversations" in first:
            return "sharegpt", _sharegpt
        if "turns" in first:
            return "spec-bench", _spec_bench
        if "text" in first:
            return "playbook", _playbook
    raise PromptsError(
        f"{path}, {where}: unknown prompt format: expected text (JSON list), body (OpenAI), "
        "conversations (ShareGPT) or turns (Spec-Bench)",
        hint=beginning(path),
    )


def _playbook(item: Any, number: int) -> Prompt:
    fields = _object(item)
    return Prompt(
        str(fields.get("id", number)),
        _text(fields, "class") if "class" in fields else DEFAULT_CLASS,
        _text(fields, "text"),
        _max_tokens(fields),
    )


def _openai_batch(item: Any, number: int) -> Prompt:
    fields = _object(item)
    body = fields.get("body")
    if not isinstance(body, dict):
        raise _Wrong("body must be an object")
    content: str | tuple[int, ...] | tuple[Message, ...]
    match body:
        case {"messages": [_, *_] as messages}:
            if not all(isinstance(m, dict) and isinstance(m.get("role"), str) for m in messages):
                raise _Wrong("each of body.messages must be an object with a role")
            content = tuple(messages)
        case {"prompt": str(text)} if text:
            content = text
        case {"prompt": [_, *_] as tokens} if all(type(token) is int and token >= 0 for token in tokens):
            content = tuple(tokens)
        case _:
            raise _Wrong("body needs messages, or a prompt of text or token ids")
    return Prompt(
        str(fields.get("custom_id", number)),
        DEFAULT_CLASS,
        content,
        _max_tokens(body, "max_completion_tokens") or _max_tokens(body),
    )


def _sharegpt(item: Any, number: int) -> Prompt:
    fields = _object(item)
    turns = fields.get("conversations")
    if not isinstance(turns, list):
        raise _Wrong("conversations must be a list")
    for turn in turns:
        if isinstance(turn, dict) and turn.get("from") in ("human", "user"):
            return Prompt(str(fields.get("id", number)), DEFAULT_CLASS, _text(turn, "value"))
    raise _Wrong("conversations has no human turn")


def _spec_bench(item: Any, number: int) -> Prompt:
    fields = _object(item)
    match fields.get("turns"):
        case [str(first), *_] if first:
            category = _text(fields, "category") if "category" in fields else DEFAULT_CLASS
            return Prompt(str(fields.get("question_id", number)), category, first)
    raise _Wrong("turns must be a list of text that is not empty")


def _whole_characters(item: Any) -> None:
    try:
        json.dumps(item, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        half = ascii(error.object[error.start])
        raise _Wrong(f"{half} is half a surrogate pair, which no request can carry") from None


def _object(item: Any) -> dict[str, Any]:
    if not isinstance(item, dict):
        raise _Wrong(f"expected an object, not {type(item).__name__}")
    return item


def _text(fields: dict[str, Any], key: str) -> str:
    value = fields.get(key)
    if not isinstance(value, str) or not value:
        raise _Wrong(f"{key} must be text that is not empty")
    return value


def _max_tokens(fields: dict[str, Any], key: str = "max_tokens") -> int | None:
    value = fields.get(key)
    if value is None:
        return None
    if type(value) is not int or value < 1:  # bool is an int
        raise _Wrong(f"{key} must be a whole number above 0")
    return value


def _ignored_fields(items: Sequence[Any]) -> tuple[str, ...]:
    sent = {"model", "messages", "prompt", "max_tokens", "max_completion_tokens"}
    return tuple(sorted({key for item in items for key in item["body"]} - sent))
