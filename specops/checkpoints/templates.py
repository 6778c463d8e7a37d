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
    """A function (messages, add_generation_prompt) -> text, for a comparison of templates.

    special: what the template may use beside the messages, such as bos_token.
    An error of the template, its own refusals included, is the text, in angle brackets.
    """
    try:
        renderer: Render | None = rendering(template, special, lambda: NOW)
        refusal = ""
    except Exception as error:
        renderer, refusal = None, f"<{type(error).__name__}: {error}>"

    def render(messages: Sequence[Message], add_generation_prompt: bool) -> str:
        if renderer is None:
            return refusal
        try:
            return renderer(messages, add_generation_prompt)
        except Exception as error:  # a stranger's program may raise anything
            return f"<{type(error).__name__}: {error}>"

    return render


def rendering(
    template: str, special: Mapping[str, str], now: Callable[[], datetime] = datetime.now
) -> Render:
    """A function (messages, add_generation_prompt) -> text. It raises what the template raises.

    special: what the template may use beside the messages, such as bos_token. now: for `strftime_now`.
    Raises jinja2.TemplateError for a template with a wrong syntax.
    """
    from jinja2 import TemplateError, nodes
    from jinja2.exceptions import SecurityError
    from jinja2.ext import Extension, loopcontrols
    from jinja2.parser import Parser
    from jinja2.sandbox import ImmutableSandboxedEnvironment
    from jinja2.utils import Namespace

    class Generation(Extension):
        """`{% generation %}` marks what the assistant said; its text is the block's, in its own scope."""

        tags = {"generation"}  # noqa: RUF012

        def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.CallBlock(self.call_method("text_of"), [], [], body).set_lineno(line)

        def text_of(self, caller: Callable[[], str]) -> str:
            return caller()

    class PlainNamespace(Namespace):
        """A namespace without attributes of Python's own."""

        def __init__(*args: Any, **named: Any) -> None:  # `self` may be one of the names
            self, *rest = args
            found = dict(*rest, **named)
            for name in found:
                refuse_hidden(name)
            Namespace.__init__(self, found)

        def __setitem__(self, name: str, value: Any) -> None:
            refuse_hidden(name)
            super().__setitem__(name, value)

    def refuse_hidden(name: Any) -> None:
        if isinstance(name, str) and name.startswith("_"):
            raise SecurityError(f"a namespace in a chat template cannot hold the name {name!r}")

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
    environment.globals["strftime_now"] = lambda form: now().strftime(form)
    environment.globals["namespace"] = PlainNamespace
    program = environment.from_string(template)

    def render(messages: Sequence[Message], add_generation_prompt: bool) -> str:
        return program.render(
            **special,
            messages=[dict(message) for message in messages],
            tools=None,
            documents=None,
            add_generation_prompt=add_generation_prompt,
        )

    return render
