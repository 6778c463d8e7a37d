"""`specops explain`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from specops.cli.call import Answer, Call, completing, shared_options

if TYPE_CHECKING:
    from specops.config.explanation import Explanation, KeyExplanation


def _paths() -> Iterable[str]:
    from specops.config.keys import keys

    return dict.fromkeys(key.path for key in keys())


@shared_options()
def explain(
    call: Call,
    key: Annotated[
        str,
        typer.Argument(
            help="Key or section, such as guard.max_regression; without it, all sections.",
            autocompletion=completing(_paths),
        ),
    ] = "",
) -> Answer:
    """Prints meaning, type, unit, allowed values, default and an example of a key.

    A pool's engine and an action's kind are parts of a key: pools.standard.vllm, guard.actions.http.
    """
    from specops.config.explanation import explain as explained

    explanation = explained(key)
    return Answer(explanation, _of_section(explanation) if explanation.is_section else _of_keys(explanation))


def _of_keys(explanation: Explanation) -> Iterator[str]:
    for key in explanation.keys:
        yield key.path + (f"  ({key.member})" if key.member else "")
        yield f"  {key.meaning}"
        yield from (f"  {label:9}{text}" for label, text in _facts(key) if text)


def _facts(key: KeyExplanation) -> list[tuple[str, str | None]]:
    return [
        ("type", key.type),
        ("unit", key.unit),
        ("allowed", key.allowed),
        ("default", key.default),
        ("used by", ", ".join(key.used_by)),
        ("example", key.example),
    ]


def _of_section(explanation: Explanation) -> Iterator[str]:
    yield explanation.path or "The rollout file"
    yield f"  {explanation.meaning}"
    for key in explanation.keys:
        member = f" ({key.member})" if key.member and f".{key.member}" not in explanation.path else ""
        yield f"  {key.path.rpartition('.')[2]}{member}  {key.type}; default: {key.default}"
        yield f"      {key.meaning}"
    for path, meaning in explanation.members.items():
        yield f"  {path}"
        yield f"      {meaning}"
    if explanation.keys:
        name = explanation.keys[0].path.rpartition(".")[2]
        yield f"explain a key: specops explain {explanation.path}{'.' if explanation.path else ''}{name}"
