"""`specops schema`: the JSON schema of what a command prints with --json, or writes as a result.

`document` makes it from the types that the registry of commands names.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib import import_module
from types import GenericAlias
from typing import Annotated, Any

import typer
from pydantic import TypeAdapter
from typing_extensions import TypedDict

from specops.cli.call import Answer, Call, extra, shared_options
from specops.cli.registry import PHASES_OF, SHAPES, Shape, shape_named
from specops.errors import UsageError
from specops.phases import phase_of_result
from specops.results import HASH, Content, Result, Types

DIALECT = "https://json-schema.org/draft/2020-12/schema"
REFERENCE = "#/$defs/{model}"


def document(name: str) -> dict[str, Any]:
    """The JSON schema (draft 2020-12) of the document called `name`. Raises UsageError for an unknown name,
    EnvironmentFailure where its types need an extra that is not installed."""
    shape = shape_named(name)
    if shape is None:
        raise UsageError(f"no schema {name!r}: expected {', '.join(SHAPES)}", hint="specops schema")
    with extra("edge", f"print the schema {name}"):
        phase = phase_of_result(name) if shape.holds is None else None
        content = shape.holds if phase is None else phase.content
        body = _result(name, content) if isinstance(content, Content) else _printed(shape)
    head = {"$schema": DIALECT, "title": name, "description": shape.about}
    return head | body | head


def types_of(types: Types) -> tuple[Any, ...]:
    """Import the types that are given as references."""
    return tuple(map(_imported, types if isinstance(types, tuple) else (types,)))


def _imported(named: Any) -> Any:
    if not isinstance(named, str):
        return named
    module, _, name = named.partition(":")
    return getattr(import_module(f"specops.{module}"), name)


def _printed(shape: Shape) -> dict[str, Any]:
    kinds, parts = types_of(shape.holds), dict[str, Any]()
    if len(kinds) > 1:
        return _merged(kinds, parts) | {"$defs": parts}
    return _schema_of(GenericAlias(list, kinds[:1]) if shape.many else kinds[0])


def _schema_of(kind: Any) -> dict[str, Any]:
    schema = TypeAdapter(kind).json_schema(mode="serialization", ref_template=REFERENCE)
    _close(schema)
    return schema


def _close(schema: Any) -> None:
    """Close each object of a schema: no key beside those that are named, since what is printed is made from
    its type alone."""
    if isinstance(schema, dict):
        if schema.get("type") == "object" and "properties" in schema:
            schema.setdefault("additionalProperties", False)
        for part in schema.values():
            _close(part)
    elif isinstance(schema, list):
        for part in schema:
            _close(part)


def _result(name: str, content: Content) -> dict[str, Any]:
    """The frame of every result, with `data` in it. It is closed: another key is an error."""
    frame = Result.model_json_schema(ref_template=REFERENCE)  # to write it, a function leaves fields out
    fields = frame["properties"] | {HASH: {"type": "string", "pattern": "^[0-9a-f]{64}$"}}
    parts: dict[str, Any] = {}
    always = types_of(content.always)
    data = _merged((*always, *types_of(content.finished)), parts)
    required = {key for kind in always for key in _schema_of(kind).get("required", [])}
    fields |= {"phase": {"const": PHASES_OF.get(name, name)}, "data": data | {"required": sorted(required)}}
    summary: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
    for kind in types_of(content.summary):
        summary = _schema_of(kind)
        _add(parts, summary)
    summary_needs = summary.pop("required", [])
    fields["summary"] = summary
    schema: dict[str, Any] = {
        "type": "object",
        "properties": fields,
        "required": sorted(set(fields) - {"recommendation"}),
        "additionalProperties": False,
    }
    later: dict[str, Any] = {
        "properties": {
            "data": {"required": sorted(data.get("required", []))},
            "summary": {"required": sorted(summary_needs)},
        }
    }
    if content.recommendation:
        fields["recommendation"] = _merged(types_of(content.recommendation), parts)
        later["required"] = ["recommendation"]
    else:
        del fields["recommendation"]
    if content.finished or summary_needs:
        schema |= {"if": {"properties": {"verdict": {"const": "partial"}}}, "else": later}
    return schema | {"$defs": parts}


def _merged(kinds: Sequence[Any], parts: dict[str, Any]) -> dict[str, Any]:
    """Return one object with the keys of all `kinds`; what they refer to is added to `parts`."""
    merged: dict[str, Any] = {"type": "object", "properties": {}, "required": []}
    for kind in kinds:
        schema = _schema_of(kind)
        _add(parts, schema)
        merged["properties"] |= schema["properties"]
        merged["required"] += schema.get("required", [])
        closed = schema.get("additionalProperties") is False
        merged["additionalProperties"] = merged.get("additionalProperties", False) or not closed
    return merged


def _add(parts: dict[str, Any], schema: dict[str, Any]) -> None:
    """Move the parts of `schema` to `parts`."""
    for name, part in schema.pop("$defs", {}).items():
        if parts.setdefault(name, part) != part:
            raise ValueError(f"two parts of one schema are called {name}")


class SchemaEntry(TypedDict):
    name: str
    commands: list[str]
    about: str


def _completed(incomplete: str) -> list[tuple[str, str]]:
    return [(name, shape.about) for name, shape in SHAPES.items() if name.startswith(incomplete)]


@shared_options()
def schema(
    call: Call,
    name: Annotated[
        str | None,
        typer.Argument(help="Document; without it, all are listed.", autocompletion=_completed),
    ] = None,
) -> Answer:
    """A schema is JSON Schema, draft 2020-12. A result's name is the `phase` in it.

    `error` is what every command prints with --json where it fails.
    """
    if name is not None:
        json_schema = document(name)
        return Answer(json_schema, [json.dumps(json_schema, indent=1, ensure_ascii=False)])
    every = [
        SchemaEntry(
            name=name, commands=[f"specops {command} --json" for command in shape.commands], about=shape.about
        )
        for name, shape in SHAPES.items()
    ]
    return Answer(every, [f"{entry['name']:19} {entry['about']}" for entry in every])
