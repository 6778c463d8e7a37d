"""Explains keys of the rollout file. Everything comes from their fields: meaning and default from the
description, type and range from the JSON schema, the unit from the kind of number, and the example from the
commented rollout file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, get_origin

import yaml
from pydantic import Field

from specops.assets import asset
from specops.config.keys import NAME, Key, at_place, by_path, keys, nearest
from specops.config.rollout import Rollout
from specops.errors import UsageError
from specops.quantities import DURATION
from specops.section import Frozen, Section


class KeyExplanation(Frozen):
    """One key of the rollout file."""

    path: str
    member: str | None
    """The engine of a pool or the kind of an action that has the key; None: all have it."""

    meaning: str
    type: str
    unit: str | None
    """The kind of number with its unit; None: it is not a number."""

    allowed: str | None
    """The allowed range or values; None: any value of the type."""

    default: str
    used_by: list[str]
    """Commands that read its section."""

    example: str
    """A line of a rollout file."""


class Explanation(Frozen):
    """A key, or a section with its keys."""

    path: str
    meaning: str
    keys: list[KeyExplanation]
    """The keys of a section; the key itself, once for each engine or kind that has it."""

    is_section: bool
    members: dict[str, str] = Field(default={})
    """For a section that an engine or a kind selects: what to explain, with its meaning."""


def explain(path: str) -> Explanation:
    """Explain the key or the section at `path`; "": the whole file. Raises UsageError for another one."""
    if not path:
        return Explanation(path="", meaning=_summary(Rollout), keys=_below(()), is_section=True)
    path_keys = by_path(path)
    if path_keys and not path_keys[0].inner:
        return Explanation(
            path=path, meaning=_meaning(path_keys[0]), keys=_alike(path_keys), is_section=False
        )
    if path_keys:
        members = {
            f"{path}.{tag}": _summary(section) for tag, section in path_keys[0].inner if tag is not None
        }
        if len(path_keys) > 1:
            members = {".".join(key.place): _summary(key.inner[0][1]) for key in path_keys}
        below = [] if members else _below(path_keys[0].place)
        return Explanation(
            path=path, meaning=_meaning(path_keys[0]), keys=below, is_section=True, members=members
        )
    place = tuple(path.split("."))
    if below := _below(place):  # of one engine or kind
        section = next(key.section for key in keys() if key.place[:-1] == place)
        return Explanation(path=path, meaning=_summary(section), keys=below, is_section=True)
    guess = nearest(path)
    raise UsageError(
        f"the rollout file has no key {path!r}" + (f": did you mean {guess}?" if guess else ""),
        hint=f"specops explain {guess}" if guess else "specops explain  # lists all sections",
    )


def _alike(path_keys: list[Key]) -> list[KeyExplanation]:
    """The explanations of keys of one path. The key that selects the engine or kind has one, with all
    values."""
    explained = [_explained(key) for key in path_keys]
    if path_keys[0].selects_member:
        values = ", ".join(str(key.member) for key in path_keys)
        return [explained[0].model_copy(update={"member": None, "allowed": f"one of {values}"})]
    return explained


def _below(place: tuple[str, ...]) -> list[KeyExplanation]:
    """The keys directly in the section at `place`, of all its engines or kinds."""
    parts = len(place)
    return [
        _explained(key)
        for key in keys()
        if key.place[:parts] == place
        and len(key.place) > parts
        and all(
            index in key.members or key.place[index] == NAME for index in range(parts, len(key.place) - 1)
        )
    ]


def _explained(key: Key) -> KeyExplanation:
    schema = _schema(key.section)
    types, ranges = _type_and_range(schema["properties"][key.name], schema.get("$defs", {}))
    quantity = key.quantity
    return KeyExplanation(
        path=key.path,
        member=key.member,
        meaning=_meaning(key),
        type=types,
        unit=None if quantity is None else quantity.text,
        allowed=ranges,
        default=_default(key),
        used_by=re.findall(r"`(specops [a-z -]+)`", _summary(_top(key))),
        example=_example(key),
    )


@cache
def _schema(section: type[Section]) -> dict[str, Any]:
    return section.model_json_schema()


def _top(key: Key) -> type[Section]:
    """The section of the file in which a key is; the whole file, for its name and prompts."""
    first = next(candidate for candidate in keys() if candidate.place == key.place[:1])
    return first.inner[0][1] if first.inner else Rollout


def _summary(section: type[Section]) -> str:
    return " ".join((section.__doc__ or "").split())


def _meaning(key: Key) -> str:
    text = key.field.description or " ".join(dict.fromkeys(_summary(section) for _, section in key.inner))
    return re.sub(r"; default: .*\.$", ".", text) or f"Name of the {key.name}, which selects the other keys."


def _default(key: Key) -> str:
    field = key.field
    if field.is_required():
        return "none (required)"
    if field.default is None:
        named = re.search(r"; default: (.*)\.$", field.description or "")
        return named[1] if named else "none"
    if isinstance(field.default, Section):
        return "those of its keys"
    return _line(field.default)


_TYPES = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "true or false",
    "object": "mapping",
}
_RANGES = {
    "exclusiveMinimum": "above {:g}",
    "minimum": "at least {:g}",
    "exclusiveMaximum": "below {:g}",
    "maximum": "at most {:g}",
}


def _type_and_range(schema: Mapping[str, Any], parts: Mapping[str, Any]) -> tuple[str, str | None]:
    """The type of a JSON schema in words, and what is allowed; None: any value of the type."""
    options = [
        option for option in schema.get("anyOf", schema.get("oneOf", [])) if option.get("type") != "null"
    ]
    if options:
        pairs = [_type_and_range(option, parts) for option in options]
        allowed = ", or ".join(dict.fromkeys(limit for _, limit in pairs if limit))
        return " or ".join(dict.fromkeys(type_name for type_name, _ in pairs)), allowed or None
    if "$ref" in schema:
        part = parts[schema["$ref"].rpartition("/")[2]]
        return ("section", None) if part.get("type") == "object" else _type_and_range(part, parts)
    kind = schema.get("type", "any value")
    if "enum" in schema or "const" in schema:
        return "text", "one of " + ", ".join(map(str, schema.get("enum", [schema.get("const")])))
    ranges = [words.format(schema[name]) for name, words in _RANGES.items() if name in schema]
    if kind == "array":
        inner, of_items = _type_and_range(schema.get("items", {}), parts)
        inner = inner.replace("list", "lists", 1) if inner.startswith("list") else f"{inner}s"
        at_least = f"{schema['minItems']} or more items" if "minItems" in schema else None
        return f"list of {inner}", ", ".join(
            filter(None, (at_least, of_items and f"each {of_items}"))
        ) or None
    if kind == "object":
        values = schema.get(
            "additionalProperties", next(iter(schema.get("patternProperties", {}).values()), {})
        )
        inner, of_values = _type_and_range(values if isinstance(values, dict) else {}, parts)
        return f"mapping of names to {inner}", of_values
    if schema.get("pattern") == DURATION:
        name = next((_TYPES[type_name] for type_name in kind if type_name != "string"), "text")
        return f"{name}, or a text such as 30s, 5m, 1h30m", ", ".join(ranges) or None
    if "pattern" in schema:
        ranges.append(f"text that matches {schema['pattern']}")
    if schema.get("format") == "path":
        return "path", None
    return _TYPES.get(kind, kind), ", ".join(ranges) or None


def _example(key: Key) -> str:
    """A line of a rollout file that sets a key, by the commented rollout file, else by its default."""
    default = None if key.inner or key.field.is_required() else key.field.get_default()
    place, value = _examples().get(_without_pool(key.place), (key.place, default))
    for index in reversed(range(len(key.place))):
        part = key.place[index]
        if index in key.members:
            value = {"engine" if key.place[0] == "pools" else "kind": part} | value
            continue
        above = at_place(key.place[: index + 1])
        is_list = above is not None and index < len(key.place) - 1 and get_origin(above.annotation) is list
        value = {place[index] if part == NAME else part: [value] if is_list else value}
    return _line(value)[1:-1]


def _without_pool(place: tuple[str, ...]) -> tuple[str, ...]:
    """A place that is the same for both pools, whose sections have the same keys."""
    return ("pools", *place[2:]) if place[0] == "pools" else place


def _line(value: object) -> str:
    """A value as YAML has it in one line."""
    text: str = yaml.safe_dump(value, default_flow_style=True, width=10_000, sort_keys=False)
    return text.removesuffix("...\n").rstrip()


@cache
def _examples() -> dict[tuple[str, ...], tuple[tuple[str, ...], Any]]:
    """The values in the commented rollout file, also of keys that are comments there, by the places of keys.
    Beside each is its own place, which has the names of the example where a key's place has NAME."""
    examples: dict[tuple[str, ...], tuple[tuple[str, ...], Any]] = {}
    for place, value in _lines():
        key = at_place(place)
        if key is not None and len(key.place) == len(place):
            examples.setdefault(_without_pool(key.place), (place, value))
    return examples


def _lines() -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the place and the value of each key of the commented rollout file."""
    opened: list[tuple[int, str]] = []
    member = ""
    for line in asset("playbooks", "rollout.template.yaml").read_text(encoding="utf-8").splitlines():
        while (bare := re.sub(r"^(\s*)# ", r"\1", line)) != line:
            line = bare
        match = re.match(r"(\s*)(?:(- )?([a-z0-9_]+):(?: (.*))?|- ({.*}))$", re.sub(r"\s{2,}#.*$", "", line))
        if match is None:
            continue
        spaces, dash, name, text, item = match.groups()
        indent = len(spaces) + 2 * bool(dash)
        while opened and opened[-1][0] >= indent + bool(item):
            opened.pop()
        above = tuple(part for _, part in opened)
        if item is not None:
            values = yaml.safe_load(item)
            yield from _values((*above, values["kind"]) if "kind" in values else above, values)
            continue
        value = None if not text or text[0] in "&*" else yaml.safe_load(text)
        if name == "engine" and above[:1] == ("pools",):
            member = str(value)
        if name == "kind":
            opened.append((indent - 1, str(value)))
            above = (*above, str(value))
        within = (*above[:2], member, *above[2:]) if above[:1] == ("pools",) and len(above) > 1 else above
        yield from _values(within, {name: value})
        opened.append((indent, name))


def _values(above: tuple[str, ...], values: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, value in values.items():
        if value is not None:
            yield (*above, name), value
        if isinstance(value, dict):
            yield from _values((*above, name), value)
