"""What pools of a serving engine say alike: how its program is called, further words, its variables."""

from __future__ import annotations

import re
import shlex
from typing import Annotated

from pydantic import AfterValidator
from pydantic_core import PydanticCustomError

SECRET_FLAGS = ("--api-key", "--hf-token", "--admin-api-key", "--ssl-keyfile-password")
"""Flags of vLLM and SGLang whose value is a secret."""
SECRET_VARIABLE = re.compile(r"(^|_)(KEY|TOKEN|SECRET|PASSWORD|CREDENTIALS)$")
_HINT = "leave it to the environment that the server is started in: VLLM_API_KEY, HF_TOKEN"


def _program(value: str) -> str:
    try:
        words = shlex.split(value)
    except ValueError as error:
        raise _refusal(f"this is no command line: {str(error).lower()}", "check the quotes") from None
    if not words:
        raise _refusal("this is no command line: it is empty", "such as: vllm serve")
    _public_words(words)
    return value


def _public_words(words: list[str]) -> list[str]:
    for word in words:
        name, _, value = word.partition("=")
        # Either spelling is taken for a flag's: --api_key.
        if name.replace("_", "-") in SECRET_FLAGS or (value and SECRET_VARIABLE.search(name)):
            raise _refusal(f"{name} is a secret, and results keep the command", _HINT)
    return words


def _public_environment(variables: dict[str, str]) -> dict[str, str]:
    for name in variables:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise _refusal(f"{name!r} is no name of a variable", "write NAME: value")
        if SECRET_VARIABLE.search(name):
            raise _refusal(f"{name} is a secret, and results keep the environment", _HINT)
    return variables


def _refusal(message: str, hint: str) -> PydanticCustomError:
    return PydanticCustomError("command", "{message}", {"message": message, "hint": hint})


Program = Annotated[str, AfterValidator(_program)]
Arguments = Annotated[list[str], AfterValidator(_public_words)]
Environment = Annotated[dict[str, str], AfterValidator(_public_environment)]
