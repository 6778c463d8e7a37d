"""Prompt sets: what is sent, in which traffic class, and where it came from.

Four formats are read, distinguished by their content:

- a JSON list: `{"text": …}`, with `max_tokens`, `id` and `class` where there are any; or a conversation,
  `{"session": …, "system": …, "turns": [{"text": …, "answer": …, "think_s": …}, …]}`
- OpenAI batch JSONL: `{"custom_id": …, "body": {"messages" or "prompt": …, "max_tokens": …}}`
- ShareGPT JSON: `{"id": …, "conversations": [{"from": "human", "value": …}, …]}`
- Spec-Bench JSONL: `{"question_id": …, "category": …, "turns": [str, …], "reference": [str, …]}`

A conversation is a session: each of its turns is a prompt that holds the recorded messages before it.
"""

from __future__ import annotations

import json
import math
import random
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import TypeAdapter, WithJsonSchema
from typing_extensions import TypedDict

from specops.assets import asset
from specops.errors import FileError, PromptsError, reason_of
from specops.hints import beginning, json_check, listing, with_options, with_value
from specops.results import sha256

DEFAULT_CLASS = "all"

SHIPPED = ("prompts.json", "prompts-conversations.json")
"""The prompt sets of the embedded pair."""

_NONCE_LENGTH = 8
"""Characters, or token ids."""

OWN_HISTORY = "~"
"""In a variant, before the hash of a history that has the server's own answers in place of recorded ones."""

Format = Literal["playbook", "openai-batch", "sharegpt", "spec-bench"]
Message = dict[str, Any]
Content = str | tuple[int, ...] | tuple[Message, ...]


@dataclass(frozen=True)
class Prompt:
    id: str
    traffic_class: str
    content: Content
    """Text, token ids (completions only), or messages: of a turn, all that the session has up to it."""

    max_tokens: int | None = None
    variant: str = ""
    """Distinguishes repeats of a prompt that differ in their nonce; empty for the prompt as it is."""

    temperature: float | None = None
    """In place of that of the measurement."""

    seed: int | None = None
    """Of a sampled answer, in place of that of the measurement."""

    session: str = ""
    """The conversation of which it is a turn; empty for a prompt by itself."""

    turn: int = 1
    think_s: float = 0.0
    """Seconds that were recorded between the answer before it and this turn."""

    due_s: float | None = None
    """When it is sent in a replay, in seconds from the beginning of its window."""

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
        get the same. All turns of a session get one, so that a cache serves later turns as in production.

        A list of token ids gets ids of its own, in an order that the nonce draws: others might be
        special.
        """
        nonce = sha256([run, self.session or self.id, variant])[:_NONCE_LENGTH]
        content: Content
        match self.content:
            case str(text):
                content = f"[{nonce}] {text}"
            case (int(), *_):
                ids = [token for token in self.content if isinstance(token, int)]
                content = (*random.Random(nonce).choices(ids, k=_NONCE_LENGTH), *ids)
            case _:
                first, *rest = (message for message in self.content if isinstance(message, dict))
                parts = first.get("content")
                text_or_parts: Any = f"[{nonce}] {parts or ''}"
                if isinstance(parts, list):
                    text_or_parts = [{"type": "text", "text": f"[{nonce}]"}, *parts]
                content = (first | {"content": text_or_parts}, *rest)
        return replace(self, content=content, variant=variant)

    def behind(self, text: str) -> Prompt:
        """Return the prompt with `text` in front: of a conversation, in front of its first message. Raises
        PromptsError for token ids."""
        if isinstance(self.content, str):
            return replace(self, content=text + self.content)
        messages = [dict(message) for message in self.content if isinstance(message, dict)]
        if not messages:
            raise PromptsError(
                f"prompt {self.id} is a list of token ids, in front of which no text can be put",
                hint=with_options({"--prompts": "prompts.json"}),
            )
        first, *rest = messages
        parts = first.get("content")
        if isinstance(parts, list):
            first["content"] = [{"type": "text", "text": text}, *parts]
        else:
            first["content"] = f"{text}{parts or ''}"
        return replace(self, content=(first, *rest))

    def text(self) -> str:
        """Return the text of the prompt; empty for token ids."""
        if isinstance(self.content, str):
            return self.content
        parts = [message.get("content") for message in self.content if isinstance(message, dict)]
        return "\n".join(part for part in parts if isinstance(part, str))

    def continuing(self, before: Prompt, sent: Prompt, answer: str | None) -> Prompt:
        """Return this turn as it follows on the server's own `answer` to `sent`, which was sent for the
        recorded turn `before`. None: the turn has no answer, so the recorded one takes its place.

        A recorded call of a tool stays: the result that follows belongs to it. The variant names a history
        that is not the recorded one, so that only requests with the same one count as the same.
        """
        recorded, earlier, history = self.messages(), before.messages(), sent.messages()
        follows = recorded[len(earlier) :]
        if recorded[: len(earlier)] != earlier:  # without a recorded answer, the texts are one message
            shared = len(str(earlier[-1]["content"]))
            text = str(recorded[len(earlier) - 1]["content"])[shared:].removeprefix("\n\n")
            follows = [{"role": "user", "content": text}, *follows]
            if not answer:
                text = f"{history.pop()['content']}\n\n{text}"
                follows[0] = {"role": "user", "content": text}
        elif answer and not any(message["role"] in ("tool", "function") for message in follows):
            follows = [message for message in follows if message["role"] != "assistant"]
        else:
            answer = None
        if answer:
            history.append({"role": "assistant", "content": answer})
        messages = [*history, *follows]
        if messages == recorded:
            return self
        variant = f"{self.variant}{OWN_HISTORY}{sha256(json.dumps(messages))[:_NONCE_LENGTH]}"
        return replace(self, content=tuple(messages), variant=variant)

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


def sessions_of(prompts: Iterable[Prompt]) -> list[tuple[Prompt, ...]]:
    """Return the turns of each session together, by their order in `prompts`; a prompt by itself is a session
    of one turn. A session that begins again is another one."""
    sessions: list[list[Prompt]] = []
    begun: dict[tuple[str, str, float | None], list[Prompt]] = {}
    for prompt in prompts:
        key = prompt.session, prompt.variant, prompt.temperature
        turns = begun.get(key, []) if prompt.session else []
        if not turns or turns[-1].turn >= prompt.turn:
            turns = []
            begun[key] = turns
            sessions.append(turns)
        turns.append(prompt)
    return [tuple(turns) for turns in sessions]


def stage(turn: int) -> int:
    """Return the first turn of those that are judged together: 1, 2, 3, 4, 5 to 8, 9 to 16, …"""
    return turn if turn < 5 else 1 + 2 ** ((turn - 1).bit_length() - 1)


class Provenance(TypedDict):
    """The prompts that were sent: what `PromptSet.provenance` returns."""

    path: str
    format: Format
    sha256: str
    count: int
    sessions: int
    later_turns_left_out: int
    separate_turns: int
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

    later_turns_left_out: int = 0
    """Turns after the first that were left out because they cannot be sent."""

    separate_turns: int = 0
    """Turns after the first that are sent without those before them, with all their messages."""

    @property
    def classes(self) -> list[str]:
        return sorted({prompt.traffic_class for prompt in self.prompts})

    @cached_property
    def sessions(self) -> list[tuple[Prompt, ...]]:
        """The turns of each conversation; a prompt by itself is a session of one turn."""
        return sessions_of(self.prompts)

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
        """Return the set without prompts whose content is that of an earlier one, and without conversations
        that are the beginning of another: a log has a line for each turn, and the last one holds them all.

        A server may answer these from a cache, even in the first round, so they add no evidence.
        """
        contents: set[str] = set()
        first: set[str] = set()
        for session in sorted(self.sessions, key=len, reverse=True):  # stable
            hashes = [sha256(json.dumps(prompt.content, sort_keys=True)) for prompt in session]
            if hashes[-1] not in contents:
                first |= {prompt.id for prompt in session}
            contents.update(hashes)
        chosen = tuple(prompt for prompt in self.prompts if prompt.id in first)
        return replace(self, prompts=chosen, repeated=self.repeated + len(self.prompts) - len(chosen))

    def as_text(self, note: Callable[[str], None] | None = None) -> PromptSet:
        """Return the set without later turns that hold messages, for what sends text alone; `note` is called
        with a sentence where that leaves out any."""
        chosen = tuple(p for p in self.prompts if p.turn == 1 or isinstance(p.content, str))
        left_out = len(self.prompts) - len(chosen)
        if note and left_out:
            note(later_turns_sentence(left_out))
        return replace(self, prompts=chosen, later_turns_left_out=self.later_turns_left_out + left_out)

    def with_separate_turns(self) -> PromptSet:
        """Return the set with each turn as a prompt by itself, still with the messages before it."""
        turns = tuple(replace(prompt, session="") for prompt in self.prompts)
        return replace(self, prompts=turns, separate_turns=sum(prompt.turn > 1 for prompt in turns))

    def spread(self, count: int) -> list[Prompt]:
        """`count` of them, evenly over the set; all where it has no more."""
        count = min(count, len(self.prompts))
        return [self.prompts[index * len(self.prompts) // count] for index in range(count)]

    def provenance(self) -> dict[str, Any]:
        """Return where the prompts are from. `samples`: these prompts ship with specops, under whatever path,
        and are not those of a service."""
        shipped = {sha256(asset("playbooks", "embedded", name)) for name in SHIPPED}
        return {
            "path": self.path,
            "format": self.format,
            "sha256": self.sha256,
            "count": len(self.prompts),
            "sessions": len(self.sessions),
            "later_turns_left_out": self.later_turns_left_out,
            "separate_turns": self.separate_turns,
            "classes": {c: sum(p.traffic_class == c for p in self.prompts) for c in self.classes},
            "ignored_fields": list(self.ignored),
            "repeated": self.repeated,
            "samples": self.sha256 in shipped,
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
    items = items_of(path, text)
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
            session = read(item, number)
        except _Wrong as error:
            raise PromptsError(
                f"{path}, {where}: {error} (read as {format_})", hint=beginning(path)
            ) from None
        for prompt in session:
            if prompt.id in places:
                raise PromptsError(
                    f"{path}, {where}: the id {prompt.id} is {places[prompt.id]}'s already: expected an id "
                    "of its own for each prompt, or no ids",
                    hint=f"grep -n -F -e {shlex.quote(prompt.id)} {shlex.quote(str(path))}",
                )
            places[prompt.id] = where
        if class_of:
            session = [replace(prompt, traffic_class=class_of(session[0])) for prompt in session]
        prompts += session
    ignored = _ignored_fields([item for _, item in items]) if format_ == "openai-batch" else ()
    return PromptSet(tuple(prompts), str(path), format_, sha256(raw), ignored)


def repeated_sentence(repeated: int, sent: int) -> str:
    """Return the sentence that `repeated` prompts were left out beside `sent` ones; empty for none."""
    return f"{repeated} of {repeated + sent} prompts repeat an earlier one and were left out" * bool(repeated)


def later_turns_sentence(left_out: int) -> str:
    """Return the sentence that so many turns after the first were left out; empty for none."""
    words = f"later turns of conversations left out: {left_out}, since only a chat request carries messages"
    return words * bool(left_out)


def conversations_sentence(prompts: Mapping[str, Any]) -> str:
    """Return the sentence on the conversations of a stored provenance; empty where it has none."""
    if prompts.get("separate_turns"):
        return (
            f"later turns of conversations sent separately, with their messages: {prompts['separate_turns']}"
        )
    left_out = later_turns_sentence(prompts.get("later_turns_left_out", 0))
    count = prompts.get("count", 0)
    sessions = prompts.get("sessions", count)
    return left_out or f"{count} turns of {sessions} conversations" * (sessions < count)


class _Wrong(Exception):
    """An error in one item; the caller adds where."""


def items_of(path: Path, text: str) -> list[tuple[str, Any]]:
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
    for number, line in enumerate(text.split("\n"), start=1):  # a string may hold other ends of lines
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


def _format(path: Path, where: str, first: Any) -> tuple[Format, Callable[[Any, int], list[Prompt]]]:
    if isinstance(first, dict):
        if "body" in first:
            return "openai-batch", _openai_batch
        if "conversations" in first:
            return "sharegpt", _sharegpt
        if "turns" in first:
            objects = isinstance(first["turns"], list) and any(isinstance(t, dict) for t in first["turns"])
            return ("playbook", _playbook) if objects else ("spec-bench", _spec_bench)
        if "text" in first:
            return "playbook", _playbook
    raise PromptsError(
        f"{path}, {where}: unknown prompt format: expected text (JSON list), body (OpenAI), "
        "conversations (ShareGPT) or turns (Spec-Bench)",
        hint=beginning(path),
    )


def _playbook(item: Any, number: int) -> list[Prompt]:
    fields = _object(item)
    name = str(fields.get("id", number))
    traffic_class = _text(fields, "class") if "class" in fields else DEFAULT_CLASS
    if "turns" not in fields:
        return [Prompt(name, traffic_class, _text(fields, "text"), _max_tokens(fields))]
    listed = fields["turns"]
    if not isinstance(listed, list) or not listed:
        raise _Wrong("turns must be a list of objects that is not empty")
    turns = [_object(turn) for turn in listed]
    pairs = [(_text(turn, "text"), _text(turn, "answer") if "answer" in turn else None) for turn in turns]
    contents = _contents(pairs, _text(fields, "system") if "system" in fields else None)
    limits = [_max_tokens(turn) or _max_tokens(fields) for turn in turns]
    pauses = [0.0, *(_seconds(turn, "think_s") for turn in turns[1:])]
    return _session(str(fields.get("session", name)), traffic_class, list(contents), limits, pauses)


def _openai_batch(item: Any, number: int) -> list[Prompt]:
    fields = _object(item)
    body = fields.get("body")
    if not isinstance(body, dict):
        raise _Wrong("body must be an object")
    contents: Sequence[Content]
    match body:
        case {"messages": [_, *_] as messages}:
            if not all(isinstance(m, dict) and isinstance(m.get("role"), str) for m in messages):
                raise _Wrong("each of body.messages must be an object with a role")
            contents = _requests_of(messages)
        case {"prompt": str(text)} if text:
            contents = [text]
        case {"prompt": [_, *_] as tokens} if all(type(token) is int and token >= 0 for token in tokens):
            contents = [tuple(tokens)]
        case _:
            raise _Wrong("body needs messages, or a prompt of text or token ids")
    limit = _max_tokens(body, "max_completion_tokens") or _max_tokens(body)
    return _session(str(fields.get("custom_id", number)), DEFAULT_CLASS, contents, [limit] * len(contents))


_SPEAKERS = {
    **dict.fromkeys(("human", "user"), "user"),
    **dict.fromkeys(("gpt", "chatgpt", "bing", "bard", "model", "assistant", "function_call"), "assistant"),
    **dict.fromkeys(("observation", "tool", "function_response"), "tool"),
    "system": "system",
}
"""The role of each speaker of a ShareGPT file."""


def _sharegpt(item: Any, number: int) -> list[Prompt]:
    fields = _object(item)
    entries = fields.get("conversations")
    if not isinstance(entries, list):
        raise _Wrong("conversations must be a list")
    messages: list[Message] = []
    for entry in entries:
        speaker = str(_object(entry).get("from"))
        role = _SPEAKERS.get(speaker)
        if role is None:
            raise _Wrong(f"unknown speaker {speaker!r}: expected {', '.join(_SPEAKERS)}")
        if not isinstance(entry.get("value"), str):
            raise _Wrong("value must be text")
        has_question = any(message["role"] == "user" for message in messages)
        if entry["value"] and (
            has_question or role in ("user", "system")
        ):  # what answers nothing is left out
            messages.append({"role": role, "content": entry["value"]})
    if not any(message["role"] == "user" for message in messages):
        raise _Wrong("conversations has no human turn")
    contents = [_lone_text(content) for content in _requests_of(messages)]
    return _session(str(fields.get("id", number)), DEFAULT_CLASS, contents, [None] * len(contents))


def _spec_bench(item: Any, number: int) -> list[Prompt]:
    fields = _object(item)
    match fields.get("turns"):
        case [_, *_] as turns if all(isinstance(text, str) and text for text in turns):
            category = _text(fields, "category") if "category" in fields else DEFAULT_CLASS
            reference = fields.get("reference")
            recorded = reference[: len(turns)] if isinstance(reference, list) else []
            answers = [text if isinstance(text, str) else None for text in recorded]
            pairs = list(zip_longest(turns, answers))
            name = str(fields.get("question_id", number))
            return _session(name, category, list(_contents(pairs)), [None] * len(turns))
    raise _Wrong("turns must be a list of text that is not empty")


def _contents(turns: Iterable[tuple[str, str | None]], system: str | None = None) -> Iterator[Content]:
    """Yield the content of each turn from its text and its recorded answer. Where no answer was recorded, the
    next text follows in the same message: chat templates refuse two messages of the user in a row."""
    messages: list[Message] = [{"role": "system", "content": system}] if system else []
    for text, answer in turns:
        if messages and messages[-1]["role"] == "user":
            text = f"{messages.pop()['content']}\n\n{text}"
        messages.append({"role": "user", "content": text})
        yield _lone_text(tuple(messages))
        if answer:
            messages.append({"role": "assistant", "content": answer})


def _requests_of(messages: Sequence[Message]) -> list[tuple[Message, ...]]:
    """Return the messages of each request: all up to one of the user or a tool, as far as no answer follows.
    All of `messages` where neither has any."""
    requests = []
    due = False
    for number, message in enumerate(messages):
        if message["role"] == "assistant" and due:
            requests.append(tuple(messages[:number]))
            due = False
        due = due or message["role"] in ("user", "tool", "function")
    return [*requests, tuple(messages)] if due or not requests else requests


def _lone_text(content: tuple[Message, ...]) -> Content:
    """Return the text of a lone message, which any endpoint can be sent; else the messages."""
    match content:
        case ({"role": "user", "content": str(text)},):
            return text
    return content


def _session(
    name: str,
    traffic_class: str,
    contents: Sequence[Content],
    limits: Sequence[int | None],
    pauses: Sequence[float] | None = None,
) -> list[Prompt]:
    """Return the turns of a conversation with these contents, limits of tokens and pauses before each."""
    if len(contents) == 1:
        return [Prompt(name, traffic_class, contents[0], limits[0])]
    return [
        Prompt(
            name if turn == 1 else f"{name}#{turn}",
            traffic_class,
            content,
            limit,
            session=name,
            turn=turn,
            think_s=pause,
        )
        for turn, (content, limit, pause) in enumerate(
            zip(contents, limits, pauses or [0.0] * len(contents), strict=True), start=1
        )
    ]


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


def _seconds(fields: dict[str, Any], key: str) -> float:
    value = fields.get(key, 0.0)
    if type(value) not in (int, float) or not 0 <= value < math.inf:
        raise _Wrong(f"{key} must be a number of seconds, 0 or more")
    return float(value)


def _ignored_fields(items: Sequence[Any]) -> tuple[str, ...]:
    sent = {"model", "messages", "prompt", "max_tokens", "max_completion_tokens"}
    return tuple(sorted({key for item in items for key in item["body"]} - sent))
