"""The rollout file: what is served, what is measured, and what it is held against.

Read strictly. Whatever is wrong is one ConfigError that names the line, the key and what was expected; an
unknown key names the nearest known one. Relative paths are relative to the rollout file.
"""

from __future__ import annotations

import difflib
import shlex
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)
from pydantic import ValidationInfo as Info
from pydantic_core import ErrorDetails, PydanticCustomError

from specops.errors import ConfigError, UsageError
from specops.trees import parse_tree


def _resolve(value: object, info: Info) -> object:
    if not isinstance(value, str | Path):
        raise PydanticCustomError(
            "path", "expected the path of a file or folder", {"hint": "write it as text: prompts.json"}
        )
    folder: Path = (info.context or {}).get("folder", Path())
    path = folder / Path(value).expanduser()
    if not path.exists():
        raise PydanticCustomError("missing_file", "{path} does not exist", {"path": str(path)})
    return path


def _tree(value: str) -> str:
    try:
        spec = parse_tree(value)
    except UsageError as error:
        raise PydanticCustomError(
            "tree", "{message}", {"message": error.message, "hint": error.hint}
        ) from None
    if spec.kind == "none":
        raise PydanticCustomError(
            "tree", "none is no speculation", {"hint": "leave the section speculation out instead"}
        )
    return value


PORT = "{port}"
_KEY_OPTIONS = ("--api-key", "--hf-token")


def _command(value: str) -> str:
    problem = hint = None
    try:
        words = shlex.split(value)
    except ValueError as error:
        words, problem, hint = [], f"this is no command line: {str(error).lower()}", "check the quotes"
    if problem is None and not any(PORT in word for word in words[1:]):
        problem = f"the command does not say {PORT}, where specops puts a free port"
        hint = f"such as: vllm serve MODEL --port {PORT}"
    if any(word.partition("=")[0] in _KEY_OPTIONS for word in words):
        problem = "the command holds a key, and results keep the command"
        hint = "leave the key to the environment: SPECOPS_API_KEY for specops, VLLM_API_KEY for vLLM"
    if problem:
        raise PydanticCustomError("command", "{message}", {"message": problem, "hint": hint})
    return value


ExistingPath = Annotated[Path, BeforeValidator(_resolve)]


class Section(BaseModel):
    """A mapping of the rollout file."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _only_known_keys(cls, data: object) -> object:
        # Before pydantic's own check, which knows the unknown key but not the known ones.
        if isinstance(data, dict):
            for key in data:
                if key not in cls.model_fields:
                    context = {"key": str(key), "known": sorted(cls.model_fields)}
                    raise PydanticCustomError("unknown_key", "unknown key '{key}'", context)
        return data


class Speculation(Section):
    draft: ExistingPath | None = Field(
        default=None,
        description="Folder of the draft model; the shipped one where the target is. n-gram trees need none.",
    )
    tree: Annotated[str, AfterValidator(_tree)] = Field(
        default="chain:3", description="chain:K, expand:K1,K2,…, dynamic:NODES:DEPTH or ngram:K."
    )
    verifier: Literal["naive", "mss"] | None = Field(
        default=None, description="How drafts are accepted; left out: the best that is lossless for the tree."
    )


class EmbeddedPool(Section):
    """A pool that specops starts and stops itself: `specops serve`."""

    engine: Literal["embedded"]
    target: ExistingPath | None = Field(
        default=None, description="Folder of the target model; left out: the pair that ships with specops."
    )
    speculation: Speculation | None = Field(default=None, description="Left out: one token a step.")
    max_batch: int = Field(default=8, ge=1, le=256, description="Sequences decoded at a time.")
    max_length: int | None = Field(
        default=None, ge=2, description="Prompt and output tokens of one sequence."
    )
    threads: int | None = Field(default=None, ge=1, description="CPU threads; left out: PyTorch's choice.")

    @model_validator(mode="after")
    def _a_draft_for_the_target(self) -> EmbeddedPool:
        speculation = self.speculation
        if self.target and speculation and not speculation.draft and parse_tree(speculation.tree).needs_draft:
            raise PydanticCustomError(
                "pools",
                "a target of your own has no draft",
                {"hint": "add speculation.draft, or take a tree that needs none, such as ngram:8"},
            )
        return self


class EndpointPool(Section):
    """An OpenAI-compatible server that is already running. Its key comes from the environment."""

    engine: Literal["endpoint"]
    base_url: str = Field(pattern=r"^https?://", description="Such as http://127.0.0.1:8000/v1.")
    model: str = Field(min_length=1, description="What the endpoint calls the model.")


class CommandPool(Section):
    """A server that specops starts with a command of yours, and stops: vLLM, SGLang and their like."""

    engine: Literal["command"]
    command: Annotated[str, AfterValidator(_command)] = Field(
        description="Such as: vllm serve MODEL --port {port}. No shell reads it; it must listen on 127.0.0.1."
    )
    model: str | None = Field(
        default=None, min_length=1, description="What it calls the model; left out: the first that it lists."
    )
    start_timeout_s: float = Field(default=600.0, gt=0.0, description="Longest time for it to come up.")


Pool = Annotated[EmbeddedPool | EndpointPool | CommandPool, Field(discriminator="engine")]


class Pools(Section):
    standard: Pool = Field(description="Without speculation: what the other is compared with.")
    speculative: Pool = Field(description="With speculation.")

    @model_validator(mode="after")
    def _one_speculates(self) -> Pools:
        if isinstance(self.standard, EmbeddedPool) and self.standard.speculation is not None:
            raise PydanticCustomError(
                "pools",
                "the standard pool must not have speculation",
                {"hint": "remove pools.standard.speculation: it is what the other pool is compared with"},
            )
        if isinstance(self.speculative, EmbeddedPool) and self.speculative.speculation is None:
            raise PydanticCustomError(
                "pools",
                "the speculative pool has no speculation",
                {"hint": "add pools.speculative.speculation, such as tree: chain:3"},
            )
        return self


class Measure(Section):
    endpoint: Literal["chat", "completions"] = Field(
        default="chat", description="The OpenAI route that is measured."
    )
    concurrency: list[Annotated[int, Field(ge=1, le=1000)]] = Field(
        default=[1, 4], min_length=1, description="Streams at a time, one level after the other."
    )
    repeats: int = Field(default=2, ge=1, description="Times that each prompt is sent at each level.")
    warmup: int = Field(default=4, ge=0, description="Requests before each level that are not counted.")
    temperature: float = Field(default=0.0, ge=0.0)
    top_p: float = Field(default=1.0, gt=0.0, le=1.0)
    seed: int = Field(default=0, description="Order of the prompts, and sampling where temperature is not 0.")
    max_tokens: int | None = Field(default=None, ge=1, description="In place of what each prompt asks for.")
    ignore_eos: bool = Field(default=False, description="Decode to max_tokens whatever the model says.")
    tokenizer: ExistingPath | None = Field(
        default=None, description="A tokenizer.json, to count tokens where the server reports no usage."
    )
    timeout_s: float = Field(default=60.0, gt=0.0, description="Longest time for one request.")
    max_error_share: float = Field(
        default=0.05, ge=0.0, lt=1.0, description="More failed requests than this: the verdict is no."
    )
    max_rps: float | None = Field(
        default=None, gt=0.0, description="A cap on requests per second, for production."
    )
    classes: list[str] | None = Field(default=None, min_length=1, description="Only these traffic classes.")


class Ab(Section):
    """How the pools are compared; the requests are those of `measure`."""

    design: Literal["interleaved", "abba-restart"] = Field(
        default="interleaved",
        description="interleaved: both pools are up and asked in turn; abba-restart: only one is ever up.",
    )
    looks: int = Field(default=4, ge=1, le=20, description="Times that it may end early, once decided.")
    confidence: float = Field(
        default=0.95, gt=0.5, lt=0.999, description="Of all its intervals of a kind together."
    )
    mixed_prompts: int = Field(
        default=8, ge=0, description="Greedy requests asked again among sampled ones; 0 leaves it out."
    )


class Slo(Section):
    """What a request must meet, all of it, to count as goodput."""

    ttft_ms: float | None = Field(default=None, gt=0.0)
    tpot_ms: float | None = Field(default=None, gt=0.0)
    e2e_ms: float | None = Field(default=None, gt=0.0)


class Rollout(Section):
    rollout: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", description="Its name; results go to runs/NAME."
    )
    prompts: ExistingPath | None = Field(
        default=None, description="The prompt set; left out: the one that ships."
    )
    pools: Pools
    measure: Measure = Measure()
    ab: Ab = Ab()
    slo: Slo | None = None


def load(path: Path) -> Rollout:
    """Read and check a rollout file. Raises ConfigError."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(
            f"there is no rollout file {path}", hint="`specops init` writes one to start from"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"could not read the rollout file {path}: {error}",
            hint="give a text file in UTF-8 that this user may read",
        ) from error
    root, data = _parse(path, text)
    try:
        return Rollout.model_validate(data, context={"folder": path.parent})
    except ValidationError as error:
        raise _explain(path, root, error) from None


def _parse(path: Path, text: str) -> tuple[yaml.Node, dict[str, Any]]:
    try:
        loader = yaml.SafeLoader(text)
        root = loader.get_single_node()
        if not isinstance(root, yaml.MappingNode):
            raise ConfigError(
                f"{path} is no rollout file: it holds no keys", hint="`specops init` writes one to start from"
            )
        _check_keys(path, root)
        return root, loader.construct_document(root)
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date such as 2026-99-99
        mark = getattr(error, "problem_mark", None)
        where = f"{path}, line {mark.line + 1}" if mark else str(path)
        problem = getattr(error, "problem", None) or " ".join(str(error).split())
        raise ConfigError(
            f"{where}: this is no YAML: {problem}", hint="check indentation and quotes"
        ) from None


def _check_keys(path: Path, root: yaml.Node) -> None:
    """Refuse a key given twice, of which YAML would silently take the last, and a key that is no text."""
    pending, visited = [root], set()
    while pending:
        node = pending.pop()
        if id(node) in visited:  # an alias
            continue
        visited.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            pending += node.value
        elif isinstance(node, yaml.MappingNode):
            keys: set[str] = set()
            for key, value in node.value:
                where = f"{path}, line {key.start_mark.line + 1}"
                if not isinstance(key, yaml.ScalarNode):
                    raise ConfigError(f"{where}: a key must be plain text", hint="write it as key: value")
                if key.value in keys:
                    raise ConfigError(f"{where}: the key '{key.value}' is given twice", hint="remove one")
                keys.add(key.value)
                pending.append(value)


def _explain(path: Path, root: yaml.Node, error: ValidationError) -> ConfigError:
    """The first of the errors in the order of the file, as a sentence."""
    located = [(*_locate(root, detail), detail) for detail in error.errors(include_url=False)]
    line, keys, detail = min(located, key=lambda entry: entry[0])
    where = ".".join(keys) or "the rollout file"
    message, hint = _describe(where, detail)
    more = f" (and {len(located) - 1} more)" if len(located) > 1 else ""
    return ConfigError(f"{path}, line {line}: {message}{more}", hint=hint)


def _locate(root: yaml.Node, detail: ErrorDetails) -> tuple[int, list[str]]:
    """The line of what an error speaks of, and the keys that lead there as the file has them."""
    parts = list(detail["loc"])
    if detail["type"] == "unknown_key":
        parts.append(detail["ctx"]["key"])
    elif detail["type"] == "union_tag_invalid":
        parts.append("engine")
    node, line, keys = root, root.start_mark.line + 1, []
    for part in parts:
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                if key.value == str(part):
                    node, line = value, key.start_mark.line + 1
                    keys.append(str(part))
                    break
            # else: not in the file; pydantic names a missing key, or the member of a union
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
            line = node.start_mark.line + 1
            keys.append(str(part))
    return line, keys


_EXPECTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "model_type": "a mapping of keys",
    "model_attributes_type": "a mapping of keys",
    "too_short": "a list of at least {min_length}",
    "string_pattern_mismatch": "text that matches {pattern}",
}


_HINTS = {
    "string_type": "put it in quotes",
    "bool_type": "write true or false, without quotes",
    "int_type": "write digits, without quotes",
    "float_type": "write digits, without quotes",
    "list_type": "write it as [a, b]",
    "model_type": "write its keys below it, further to the right",
    "model_attributes_type": "write its keys below it, further to the right",
}


def _describe(where: str, detail: ErrorDetails) -> tuple[str, str | None]:
    if detail["type"] == "unknown_key":
        known: list[str] = detail["ctx"]["known"]
        nearest = difflib.get_close_matches(detail["ctx"]["key"], known, n=1)
        guess = f"did you mean '{nearest[0]}'? " if nearest else ""
        return f"unknown key '{where}'", f"{guess}known here: {', '.join(known)}"
    if detail["type"] == "missing":
        return f"{where} lacks the key '{detail['loc'][-1]}'", "`specops init` writes a file with every key"
    if detail["type"] == "union_tag_not_found":
        return f"{where} lacks the key 'engine'", "it is embedded, endpoint or command"
    if detail["type"] == "union_tag_invalid":
        return f"{where} is '{detail['ctx']['tag']}', and should be embedded, endpoint or command", (
            "embedded: specops serves a model folder; endpoint: a server that is already running; "
            "command: a server that specops starts"
        )
    if detail["type"] == "missing_file":
        return f"{where}: {detail['msg']}", "paths are relative to the rollout file"
    if detail["type"] in ("path", "pools", "tree", "command"):
        return f"{where}: {detail['msg']}", detail["ctx"]["hint"]
    expected = _EXPECTED.get(detail["type"]) or detail["msg"].removeprefix("Input should be ")
    expected = expected.format_map(detail.get("ctx", {}))
    return f"{where} is {_shown(detail['input'])}, and should be {expected}", _HINTS.get(
        detail["type"], "`specops init` writes a file in which every key is explained"
    )


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return "a mapping"
    return "empty" if value in (None, []) else repr(value)
