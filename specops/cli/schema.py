"""`specops schema`."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from typing_extensions import TypedDict

from specops.cli.call import Answer, Call, shared_options
from specops.cli.schema_table import SHAPES, document


class Named(TypedDict):
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
        found = document(name)
        return Answer(found, [json.dumps(found, indent=1, ensure_ascii=False)])
    every = [
        Named(name=name, commands=[f"specops {one} --json" for one in shape.commands], about=shape.about)
        for name, shape in SHAPES.items()
    ]
    return Answer(every, [f"{one['name']:19} {one['about']}" for one in every])
