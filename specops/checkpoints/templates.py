"""Chat templates, rendered as transformers renders them (5.x, utils/chat_template_utils.py).

A template is a program of whoever published the model: it runs in jinja2's sandbox.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

NOW = datetime(2026, 1, 2, 3, 4, 5)
"""What `strftime_now` tells every template, so that two of them can be compared."""

Message = Mapping[str, Any]
Render = Callable[[Sequence[Message], bool], str]


def compiled(template: str, special: Mapping[str, str]) -> Render:
    """A function (messages, add_generation_prompt) -> text.

    special: what the template may use beside the messages, such as bos_token.
    What goes wrong in a template, its own refusals too, is its answer, in angle brackets.
    """
    from jinja2 import TemplateError, nodes
    from jinja2.ext import Extension, loopcontrols
    from jinja2.parser import Parser
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """`{% generation %}` marks what the assistant said; the text is the block's."""

        tags = {"generation"}  # noqa: RUF012

        def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    def raise_exception(message: str) -> None:
        raise TemplateError(message)

    def tojson(
        value: Any,
        ensure_ascii: bool = False,
        indent: int | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,
    ) -> str:
        return json.dumps(
            value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
        )

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = NOW.strftime
    try:
        program = environment.from_string(template)
    except TemplateError as error:
        refusal = f"<{type(error).__name__}: {error}>"
        return lambda messages, add_generation_prompt: refusal

    def render(messages: Sequence[Message], add_generation_prompt: bool) -> str:
        try:
            return program.render(
                **special,
                messages=[dict(message) for message in messages],
                tools=None,
                documents=None,
                add_generation_prompt=add_generation_prompt,
            )
        except Exception as error:  # a stranger's program may raise anything
            return f"<{type(error).__name__}: {error}>"

    return render
