"""A command of trtllm-serve with the YAML file that it names, as the lint reads and changes it."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import yaml

from specops.serving.argv import UNKNOWN, Arity, CallPattern, Files, Words, is_unknown
from specops.serving.trtllm.releases import table

SPECULATIVE = "speculative_config"
CONFIGS = ("--config", "--extra_llm_api_options")
SUBCOMMANDS = ("disaggregated", "disaggregated_mpi_worker", "mm_embedding_serve")
"""Subcommands of trtllm-serve, besides serve; what they start is not judged."""


class _Call(CallPattern):
    """TensorRT-LLM's images, which are tensorrt-llm/release:VERSION, and start no server by themselves."""

    def tag(self, image: str) -> str | None:
        match = re.search(r"(?:^|/)tensorrt-llm(?:/[\w.-]+)?:v?(\d[\w.]*)?[\w.-]*$", image)
        return None if match is None else match[1] or ""


CALL = _Call(
    mark="tensorrt-llm", programs=(("trtllm-serve",),), modules=("dynamo.trtllm",), starts_itself=False
)


@dataclass(frozen=True)
class ParsedCommand(Words):
    CALL: ClassVar[CallPattern] = CALL

    config: Mapping[str, Any] | None = field(default=None, hash=False)
    """The YAML file's content; None without a file, or where its content was not given."""

    broken: str | None = None
    """Why the YAML file cannot be read."""

    @classmethod
    def arity(cls, flag: str) -> Arity:
        flags = {name: number for v in table().versions for name, number in table().release(v).flags.items()}
        return "none" if flags.get(flag) == 0 else "one"

    @classmethod
    def _canonical(cls, flag: str) -> str:
        return flag  # click takes names as they are written: --tp-size is not --tp_size

    @classmethod
    def read(cls, words: Sequence[str], files: Files) -> Self:
        """Return the command with the file among `files` that the words name."""
        command = cls.parse(words)
        text = files.text(command.config_file) if command.config_file is not None else None
        if text is None:
            return command
        try:
            content = _loaded(text)
        except yaml.YAMLError as error:
            if is_unknown(text):  # a script writes it, and a variable may hold a piece of the YAML
                return command
            return replace(command, broken=str(error).splitlines()[0])
        if not isinstance(content, dict):
            return replace(command, broken="it is not a mapping")
        return replace(command, config=content)

    @property
    def config_file(self) -> str | None:
        """The name of the YAML file, as the words have it."""
        return next((value for flag in CONFIGS if (value := self.value(flag)) is not None), None)

    @property
    def model(self) -> str | None:
        after = self.program[CALL.start(self.program) :]
        return next((word for word in after if word != "serve"), None)

    @property
    def subcommand(self) -> str | None:
        after = self.program[CALL.start(self.program) :]
        return after[0] if after and after[0] in SUBCOMMANDS else None

    @property
    def speculation(self) -> Mapping[str, Any] | None:
        """Return speculative_config, where it is a mapping."""
        speculation = (self.config or {}).get(SPECULATIVE)
        return speculation if isinstance(speculation, dict) else None

    def moved(self, old: tuple[str, ...], new: tuple[str, ...] | None) -> Self:
        """Return the command with the key at path `old` of the YAML file at path `new`; None: without it. A
        path has keys as text; a file may have others, such as an empty one, which YAML reads as null."""
        content = copy.deepcopy(dict(self.config or {}))
        parent: Any = content
        for name in old[:-1]:
            parent = parent[name]
        value = parent.pop(next(key for key in parent if str(key) == old[-1]))
        return replace(self, config=content) if new is None else replace(self, config=content).put(new, value)

    def put(self, path: tuple[str, ...], value: object) -> Self:
        """Return the command with `value` at `path` of the YAML file, unless something is there."""
        content = copy.deepcopy(dict(self.config or {}))
        parent: Any = content
        for name in path[:-1]:
            if not isinstance(parent.get(name), dict):
                parent[name] = {}
            parent = parent[name]
        parent.setdefault(path[-1], value)
        return replace(self, config=content)

    def typed(self, name: str) -> Self:
        """Return the command with `name` as the decoding type."""
        return self.moved((SPECULATIVE, "decoding_type"), None).put((SPECULATIVE, "decoding_type"), name)

    def yaml(self) -> str:
        return yaml.safe_dump(dict(self.config or {}), sort_keys=False, width=1000)


def _loaded(text: str) -> Any:
    """YAML. A variable whose braces or colons are not YAML syntax is a string."""
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return yaml.safe_load(UNKNOWN.sub(lambda match: json.dumps(match[0]), text))
