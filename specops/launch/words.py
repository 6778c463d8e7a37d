"""A command line of a serving engine, taken apart as argparse does, and put together again."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, Self

Engine = Literal["vllm", "sglang"]

ALIASES = {
    "-sc": "--speculative-config",
    "-tp": "--tensor-parallel-size",
    "-pp": "--pipeline-parallel-size",
    "-dp": "--data-parallel-size",
    "-q": "--quantization",
    "-spec-draft-tp": "--speculative-draft-tensor-parallel-size",
}
"""vLLM's; SGLang has none."""
MODULES: tuple[tuple[str, Engine], ...] = (("vllm.entrypoints", "vllm"), ("sglang.launch_server", "sglang"))
CONTAINERS = ("docker", "podman", "nerdctl")
IMAGE = re.compile(r"(?:^|/)(?P<engine>vllm|sglang)[\w-]*:v?(?P<version>\d[\d.]*\d)?[\w.+-]*$")
"""Such as vllm/vllm-openai:v0.10.1; the tag is the version."""
_NUMBER = re.compile(r"-\d+(\.\d*)?")


@dataclass(frozen=True)
class Option:
    """A flag with its dashes, underscores made dashes and short forms made long, and the words after it."""

    flag: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True)
class Words:
    """`program`: the words before the first flag, the model's among them where it has no flag."""

    program: tuple[str, ...]
    options: tuple[Option, ...]

    @classmethod
    def parse(cls, words: Sequence[str]) -> Self:
        start = program_of(words)[1]
        while start < len(words) and not _is_flag(words[start]):
            start += 1
        options: list[Option] = []
        for word in words[start:]:
            if _is_flag(word):
                flag, equals, value = word.partition("=")
                options.append(Option(_canonical(flag), (value,) if equals else ()))
            else:
                options[-1] = replace(options[-1], values=(*options[-1].values, word))
        return cls(tuple(words[:start]), tuple(options))

    def has(self, flag: str) -> bool:
        return any(option.flag == flag for option in self.options)

    def value(self, flag: str) -> str | None:
        """The last one counts, as for argparse."""
        found = [option.values[0] for option in self.options if option.flag == flag and option.values]
        return found[-1] if found else None

    def number(self, flag: str, otherwise: int) -> int:
        value = self.value(flag)
        return int(value) if value is not None and value.isdigit() else otherwise

    def without(self, flag: str) -> Self:
        return replace(self, options=tuple(option for option in self.options if option.flag != flag))

    def renamed(self, flag: str, new: str) -> Self:
        changed = tuple(replace(o, flag=new) if o.flag == flag else o for o in self.options)
        return replace(self, options=changed)

    def with_option(self, flag: str, *values: str) -> Self:
        return replace(self, options=(*self.without(flag).options, Option(flag, values)))

    def without_value(self, assignment: str) -> Self:
        """Without a NAME=VALUE of the program; after -e the name stays, and the value comes from outside."""
        at = self.program.index(assignment)
        passed = at > 0 and self.program[at - 1] in ("-e", "--env")
        name = (assignment.partition("=")[0],) if passed else ()
        return replace(self, program=self.program[:at] + name + self.program[at + 1 :])

    def words(self) -> list[str]:
        words = list(self.program)
        for option in self.options:
            words += [option.flag, *option.values]
        return words


def program_of(words: Sequence[str]) -> tuple[Engine | None, int]:
    """Which engine `words` call, and how many of them call it; (None, 0): none that is known.

    `vllm serve`, `python -m vllm.entrypoints…`, `docker run … IMAGE` and their like.
    """
    for index, word in enumerate(words):
        name: str = words[index - 1].rsplit("/", 1)[-1] if index else ""
        if word == "serve" and name in ("vllm", "sglang"):
            return ("vllm" if name == "vllm" else "sglang"), index + 1
        for module, engine in MODULES:
            if word.startswith(module):
                return engine, index + (2 if words[index + 1 : index + 2] == ["serve"] else 1)
    if any(word in CONTAINERS for word in words[:2]):  # the second: after sudo
        for index, word in enumerate(words):
            image = engine_of_image(word)
            if image is not None:
                return image[0], index + 1
    return None, 0


def engine_of_image(image: str) -> tuple[Engine, str | None] | None:
    """The engine of a container's image, and the version that its tag says."""
    found = IMAGE.search(image)
    if found is None:
        return None
    return ("vllm" if found["engine"] == "vllm" else "sglang"), found["version"]


def _is_flag(word: str) -> bool:
    return len(word) > 1 and word.startswith("-") and not _NUMBER.fullmatch(word)


def _canonical(flag: str) -> str:
    if flag.startswith("--"):
        name, dot, key = flag.partition(".")
        return name.replace("_", "-") + dot + key
    return ALIASES.get(flag, flag)
