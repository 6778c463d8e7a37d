"""What the commands that drive an endpoint have in common: their options, and text -> checked settings."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specops.errors import EnvironmentFailure, UsageError, install_command

if TYPE_CHECKING:
    pass

EndpointOption = Annotated[str, typer.Option(help="chat or completions.")]
TopPOption = Annotated[float, typer.Option(help="Nucleus sampling.")]
IgnoreEosFlag = Annotated[bool, typer.Option("--ignore-eos", help="Generate to max_tokens.")]
MaxTokensOption = Annotated[int | None, typer.Option(help="Tokens at most; default: each prompt's own.")]
TimeoutOption = Annotated[float, typer.Option(help="Seconds for one request.")]
MaxRpsOption = Annotated[float | None, typer.Option(help="Never send more requests a second.")]
ApiKeyOption = Annotated[
    str | None, typer.Option(help="Variable with the API key; SPECOPS_API_KEY or OPENAI_API_KEY.")
]
PromptsOption = Annotated[
    Path | None, typer.Option(help="Prompt set: playbook, OpenAI batch, ShareGPT or Spec-Bench.")
]
TokenizerOption = Annotated[
    Path | None, typer.Option(help="tokenizer.json, to count tokens where no usage is reported.")
]


def whole_numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(
            f"--concurrency takes whole numbers by commas, not {text!r}", hint="such as --concurrency 1,4,8"
        ) from None


def names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


HostOption = Annotated[str, typer.Option(help="Address to listen on.")]
PortOption = Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")]
MaxQueueOption = Annotated[
    int, typer.Option(min=0, help="Sequences that may wait; above it the answer is 429.")
]
GraceOption = Annotated[
    float, typer.Option(min=0, help="Seconds that running requests have to finish in at the end.")
]
ThreadsOption = Annotated[int | None, typer.Option(min=1, help="Threads that PyTorch computes with.")]


def log_to_stderr(*, quiet: bool) -> None:
    logging.basicConfig(
        level=logging.WARNING if quiet else logging.INFO,
        format="%(levelname)s: %(message)s",
        stream=sys.stderr,
    )


@contextmanager
def extra(name: str, what: str) -> Iterator[None]:
    """Around imports. EnvironmentFailure, that `what` could not be done, where one of them is not there."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise EnvironmentFailure(
            f"could not {what}: {error.name} is not installed",
            hint=f"install the {name} extra: {install_command(name)}",
        ) from error
