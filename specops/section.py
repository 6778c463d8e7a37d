"""The types of a rollout file: strict sections, paths, trees, and words of commands without secrets."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    model_validator,
)
from pydantic import ValidationInfo as Info
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

from specops.errors import UsageError
from specops.trees import VERIFIER_NAMES, exit_layers, known_verifier, parse_tree


@contextmanager
def _invalid(problem_type: str) -> Iterator[None]:
    """Turn a UsageError into a problem of the rollout file, which is reported with its line."""
    try:
        yield
    except UsageError as error:
        raise PydanticCustomError(
            problem_type, "{message}", {"message": error.message, "advice": None}
        ) from None


def _resolve(value: object, info: Info) -> object:
    if not isinstance(value, str | Path):
        raise PydanticCustomError(
            "path", "expected the path of a file or folder", {"advice": "write it as text: prompts.json"}
        )
    folder: Path = (info.context or {}).get("folder", Path())
    path = folder / Path(value).expanduser()
    if not path.exists():
        raise PydanticCustomError("missing_file", "{path} does not exist", {"path": str(path)})
    # A relative path would mean another file in another working directory.
    return path.absolute()


def _draft(value: object, info: Info) -> object:
    with _invalid("draft"):
        early = exit_layers(value) if isinstance(value, str) else None
    return _resolve(value, info) if early is None else Path(str(value))


def _tree(value: str) -> str:
    with _invalid("tree"):
        spec = parse_tree(value)
    if spec.kind == "none":
        raise PydanticCustomError(
            "tree", "invalid tree none: it does not speculate", {"advice": "remove the section speculation"}
        )
    return value


def _verifier(name: str) -> str:
    with _invalid("verifier"):
        known_verifier(name)
    return name


PORT = "{port}"
_KEY_OPTIONS = ("--api-key", "--hf-token")


def _command(value: str) -> str:
    problem = advice = None
    try:
        words = shlex.split(value)
    except ValueError as error:
        words, problem, advice = [], f"invalid command line: {str(error).lower()}", "check the quotes"
    if problem is None and not any(PORT in word for word in words[1:]):
        problem = f"the command does not say {PORT}, where specops puts a free port"
        advice = f"such as: vllm serve MODEL --port {PORT}"
    if any(word.partition("=")[0] in _KEY_OPTIONS for word in words):
        problem = "the command holds a key, and results keep the command"
        advice = "leave the key to the environment: SPECOPS_API_KEY for specops, VLLM_API_KEY for vLLM"
    if problem:
        raise PydanticCustomError("command", "{message}", {"message": problem, "advice": advice})
    return value


SECRET_FLAGS = ("--api-key", "--hf-token", "--admin-api-key", "--ssl-keyfile-password")
"""Flags of serving engines whose value is a secret."""
SECRET_VARIABLE = re.compile(r"(^|_)(KEY|TOKEN|SECRET|PASSWORD|CREDENTIALS)$")
_ADVICE = "leave it to the environment that the server is started in: VLLM_API_KEY, HF_TOKEN"


def _program(value: str) -> str:
    try:
        words = shlex.split(value)
    except ValueError as error:
        raise _refusal(f"invalid command line: {str(error).lower()}", "check the quotes") from None
    if not words:
        raise _refusal("invalid command line: it is empty", "such as: vllm serve")
    _public_words(words)
    return value


def _public_words(words: list[str]) -> list[str]:
    for word in words:
        name, _, value = word.partition("=")
        # Either spelling is taken for a flag's: --api_key.
        if name.replace("_", "-") in SECRET_FLAGS or (value and SECRET_VARIABLE.search(name)):
            raise _refusal(f"{name} is a secret, and results keep the command", _ADVICE)
    return words


def _public_environment(variables: dict[str, str]) -> dict[str, str]:
    for name in variables:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise _refusal(f"invalid name of a variable {name!r}", "write NAME: value")
        if SECRET_VARIABLE.search(name):
            raise _refusal(f"{name} is a secret, and results keep the environment", _ADVICE)
    return variables


def _refusal(message: str, advice: str) -> PydanticCustomError:
    return PydanticCustomError("command", "{message}", {"message": message, "advice": advice})


HostPort = Annotated[
    str, Field(pattern=r"^(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9]([-.A-Za-z0-9_]*[A-Za-z0-9])?):[0-9]{1,5}$")
]
Url = Annotated[str, Field(pattern=r"^https?://[^\s/@]+\S*$")]

ExistingPath = Annotated[Path, BeforeValidator(_resolve)]
Draft = Annotated[Path, BeforeValidator(_draft)]
"""A folder, or the words exit:LAYERS."""

Tree = Annotated[str, AfterValidator(_tree)]

Verifier = Annotated[str, AfterValidator(_verifier), Field(json_schema_extra={"enum": list(VERIFIER_NAMES)})]
Command = Annotated[str, AfterValidator(_command)]

Program = Annotated[str, AfterValidator(_program)]
Arguments = Annotated[list[str], AfterValidator(_public_words)]
Environment = Annotated[dict[str, str], AfterValidator(_public_environment)]


def _as_raised(detail: ErrorDetails) -> InitErrorDetails:
    """An error that pydantic reported, to be reported again beside others."""
    kind = PydanticCustomError(detail["type"], detail["msg"], detail.get("ctx"))
    return InitErrorDetails(type=kind, loc=detail["loc"], input=detail["input"])


class Frozen(BaseModel):
    """A part of a result or of an answer: unknown keys are refused, and it cannot be changed."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Section(Frozen):
    """A mapping of the rollout file."""

    model_config = ConfigDict(strict=True)

    @model_validator(mode="wrap")
    @classmethod
    def _only_known_keys(cls, data: object, handler: ModelWrapValidatorHandler[Self]) -> Self:
        """Report every unknown key with the known ones, beside the errors of the known keys."""
        unknown = [key for key in data if key not in cls.model_fields] if isinstance(data, dict) else []
        if not unknown:
            return handler(data)
        known_keys = sorted(cls.model_fields)
        errors = [
            InitErrorDetails(
                type=PydanticCustomError(
                    "unknown_key", "unknown key", {"key": str(key), "known": known_keys}
                ),
                input=data,
            )
            for key in unknown
        ]
        assert isinstance(data, dict)
        try:
            handler({key: value for key, value in data.items() if key not in unknown})
        except ValidationError as error:
            errors += [_as_raised(detail) for detail in error.errors(include_url=False)]
        raise ValidationError.from_exception_data(cls.__name__, errors)
