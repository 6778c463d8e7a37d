"""Command lines of serving engines: their words, how they are recognised, what a lint finds in them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Self

Level = Literal["error", "warning", "note"]

CONTAINERS = ("docker", "podman", "nerdctl")
_NUMBER = re.compile(r"-\d+(\.\d*)?")


@dataclass(frozen=True)
class Call:
    """How a command of an engine is recognised."""

    mark: str
    """How its images begin, such as vllm of vllm/vllm-openai; in a command, a sign that it is this engine."""

    programs: tuple[tuple[str, ...], ...]
    """The words that call it, the first by its base name: vllm serve."""

    modules: tuple[str, ...]
    """Beginnings of what follows python -m."""

    def program(self, words: Sequence[str]) -> int | None:
        """How many of `words` call it, as a program or a module; None: they do not."""
        for index, word in enumerate(words):
            for called in self.programs:
                found = words[index + 1 - len(called) : index + 1] if index + 1 >= len(called) else ()
                if found and (found[0].rsplit("/", 1)[-1], *found[1:]) == called:
                    return index + 1
            if word.startswith(self.modules):
                return index + (2 if words[index + 1 : index + 2] == ["serve"] else 1)
        return None

    def container(self, words: Sequence[str]) -> int | None:
        """How many of `words` run its image: docker run … IMAGE."""
        if any(word in CONTAINERS for word in words[:2]):  # the second: after sudo
            return next((at + 1 for at, word in enumerate(words) if self.tag(word) is not None), None)
        return None

    def start(self, words: Sequence[str]) -> int:
        """Where its own flags may begin."""
        return self.program(words) or self.container(words) or 0

    def tag(self, image: str) -> str | None:
        """The version in an image's tag, such as 0.10.1 of vllm/vllm-openai:v0.10.1, or no text; None for the
        image of another engine."""
        found = re.search(rf"(?:^|/){self.mark}[\w-]*:v?(\d[\d.]*\d)?[\w.+-]*$", image)
        return None if found is None else found[1] or ""


@dataclass(frozen=True)
class Option:
    """A flag with its dashes, underscores made dashes and short forms made long, and the words after it."""

    flag: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True)
class Words:
    """`program`: the words before the first flag, the model's among them where it has no flag."""

    CALL: ClassVar[Call] = Call("", (), ())
    SHORT: ClassVar[Mapping[str, str]] = {}
    """Short forms of flags."""

    program: tuple[str, ...]
    options: tuple[Option, ...]

    @classmethod
    def parse(cls, words: Sequence[str]) -> Self:
        start = cls.CALL.start(words)
        while start < len(words) and not _is_flag(words[start]):
            start += 1
        options: list[Option] = []
        for word in words[start:]:
            if _is_flag(word):
                flag, equals, value = word.partition("=")
                options.append(Option(cls._canonical(flag), (value,) if equals else ()))
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

    @classmethod
    def _canonical(cls, flag: str) -> str:
        if flag.startswith("--"):
            name, dot, key = flag.partition(".")
            return name.replace("_", "-") + dot + key
        return cls.SHORT.get(flag, flag)

    def words(self) -> list[str]:
        words = list(self.program)
        for option in self.options:
            words += [option.flag, *option.values]
        return words


def _is_flag(word: str) -> bool:
    return len(word) > 1 and word.startswith("-") and not _NUMBER.fullmatch(word)


@dataclass(frozen=True)
class Finding:
    """error: it does not start, or does something else than it says. warning: it may. note: good to know.

    `flag` is what it is about, such as --speculative-config disable_by_batch_size; `why` says what happens
    and in which versions; `replacement` what to write instead, where there is something.
    """

    level: Level
    flag: str
    why: str
    replacement: str | None = None


@dataclass(frozen=True)
class Command:
    """A command that starts `engine`. `where` it stands, for people; `version` as an image's tag says it;
    `flags_file`: it is a YAML file of flags and is written as one."""

    where: str
    engine: str
    words: tuple[str, ...]
    version: str | None = None
    flags_file: bool = False


@dataclass(frozen=True)
class Judged:
    """`version` is the one that was judged for, and `because` why it; `corrected` the text to paste, where
    something could be fixed, and `left` the errors that it still has: those a person has to fix."""

    where: str
    engine: str
    version: str
    because: str
    findings: list[Finding]
    corrected: str | None
    left: list[Finding]


@dataclass(frozen=True)
class CommandLine:
    """A command of an engine, and what is wrong with one."""

    call: Call
    example: str
    judge: Callable[[Command, str | None], Judged]
    """The second: a version that the operator names. ConfigError for one that is none, or is too old."""

    flag: Callable[[str], bool] | None = None
    """Whether a release has this flag. None: a YAML file of flags cannot start it."""
