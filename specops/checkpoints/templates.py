"""Chat templates, rendered as transformers renders them (5.x, utils/chat_template_utils.py).

A template is a program by the model's publisher, so it runs in jinja2's sandbox.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any

NOW = datetime(2026, 1, 2, 3, 4, 5)
"""The result of `strftime_now` in `compiled` templates, so that two of them can be compared."""

SECONDS = 2
BYTES = 1 << 30
LONGEST = 10_000_000
"""Characters that the conversations of one template may have in all."""

Message = Mapping[str, Any]
Render = Callable[[Sequence[Message], bool], str]


@dataclass(frozen=True)
class RenderedTexts:
    texts: tuple[str, ...]
    """The text of each conversation, with and without the prompt for an answer."""

    failure: str | None = None
    """Why there are no texts."""


@cache
def rendered(template: str, special: tuple[tuple[str, str], ...], conversations: str) -> RenderedTexts:
    """The texts of conversations, for a comparison of templates.

    special: what the template may use beside the messages, such as ("bos_token", "<s>").
    conversations: JSON, a list of lists of messages, each rendered with and without the prompt for an answer.
    An error of the template, its own refusals included, is the text, in angle brackets.

    A template is a stranger's program: it can loop without end, or ask for a terabyte. So it runs in a
    process of its own with `SECONDS` of CPU and `BYTES` of memory.
    """
    job = json.dumps([template, dict(special), conversations, SECONDS])
    command = [sys.executable, "-c", "from specops.checkpoints.templates import work; work()"]
    try:
        done = subprocess.run(command, input=job, capture_output=True, text=True, timeout=4 * SECONDS)
    except subprocess.TimeoutExpired:
        done = None
    if done is None or done.returncode or not done.stdout.startswith("["):
        return RenderedTexts((), f"it does not end within {SECONDS} s and {BYTES >> 20} MiB")
    return RenderedTexts(tuple(json.loads(done.stdout)))


def work() -> None:
    """The process of `rendered`: reads the job from stdin, writes the texts to stdout as JSON."""
    template, special, conversations, seconds = json.load(sys.stdin)
    with suppress(ValueError, OSError):  # where a system does not limit memory, the caller's timeout holds
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
    texts = []
    for messages in json.loads(conversations):
        for prompted in (True, False):
            try:
                texts.append(rendering(template, special, lambda: NOW)(messages, prompted))
            except MemoryError:
                sys.exit(1)
            except Exception as error:  # a stranger's program may raise anything
                texts.append(f"<{type(error).__name__}: {error}>")
            if sum(map(len, texts)) > LONGEST:
                sys.exit(1)
    json.dump(texts, sys.stdout)


def rendering(
    template: str, special: Mapping[str, str], now: Callable[[], datetime] = datetime.now
) -> Render:
    """Compile a template to a function (messages, add_generation_prompt) -> text. It raises what the template
    raises.

    special: variables of the template beside the messages, such as bos_token. now: for `strftime_now`.
    Raises jinja2.TemplateError for a template with a wrong syntax.
    """
    from jinja2 import TemplateError, nodes
    from jinja2.exceptions import SecurityError
    from jinja2.ext import Extension, loopcontrols
    from jinja2.parser import Parser
    from jinja2.sandbox import ImmutableSandboxedEnvironment
    from jinja2.utils import Namespace

    class Generation(Extension):
        """`{% generation %}` marks the assistant's text. The block renders as its own content, in its
        scope."""

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
            values = dict(*rest, **named)
            for name in values:
                refuse_hidden(name)
            Namespace.__init__(self, values)

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
