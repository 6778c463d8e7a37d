"""What the commands that drive an endpoint have in common: their options, and text -> checked settings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specops.errors import UsageError

if TYPE_CHECKING:
    from specops.load.settings import BaselineSettings

EndpointOption = Annotated[str, typer.Option(help="chat or completions.")]
TopPOption = Annotated[float, typer.Option(help="Nucleus sampling.")]
IgnoreEosFlag = Annotated[bool, typer.Option("--ignore-eos", help="Generate to max_tokens.")]
MaxTokensOption = Annotated[int | None, typer.Option(help="In place of what each prompt asks for.")]
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


def load_settings(fields: dict[str, Any], command: str) -> BaselineSettings:
    """UsageError where an option of `specops COMMAND` makes no sense, by its name."""
    from pydantic import ValidationError

    from specops.load.settings import BaselineSettings

    try:
        return BaselineSettings(**fields)
    except ValidationError as error:
        raise wrong_option(error, command) from error


def wrong_option(error: Exception, command: str) -> UsageError:
    """For a ValidationError of settings whose fields are called as the options are."""
    first = error.errors()[0]  # type: ignore[attr-defined]
    option = "--" + str(first["loc"][0]).removesuffix("_s").replace("_", "-") if first["loc"] else ""
    return UsageError(f"could not use the options: {option} {first['msg']}", hint=f"specops {command} --help")


def whole_numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(
            f"--concurrency takes whole numbers by commas, not {text!r}", hint="such as --concurrency 1,4,8"
        ) from None


def names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]
