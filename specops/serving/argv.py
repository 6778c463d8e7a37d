"""Command lines of serving engines: their words, how they are recognised, what a lint finds in them, and the
version of the Python package that they run.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, Generic, Literal, Self, TypeVar

Level = Literal["error", "warning", "note"]

CONTAINERS = ("docker", "podman", "nerdctl")
_NUMBER = re.compile(r"-\d+(\.\d*)?")
PYTHON_ANSWER_S = 30.0
_QUESTION = """\
import sys
from importlib.metadata import distributions
found = {d.metadata["Name"].lower(): d.version for d in distributions() if d.metadata["Name"]}
print(next((found[name] for name in sys.argv[1:] if name in found), ""))
"""


@dataclass(frozen=True)
class Call:
    """The words by which a command of an engine is recognised."""

    mark: str
    """How its images begin, such as vllm of vllm/vllm-openai; in a command, a sign that it is this engine."""

    programs: tuple[tuple[str, ...], ...]
    """The words that call it, the first by its base name: vllm serve."""

    modules: tuple[str, ...]
    """Beginnings of what follows python -m."""

    starts_itself: bool = True
    """Whether its images start the server; else their words have to call it."""

    def program(self, words: Sequence[str]) -> int | None:
        """Return how many of `words` call it, as a program or a module; None: they do not."""
        first = self.container(words) or 0  # of docker run, only what is behind the image is called
        for index, word in enumerate(words):
            if index < first or words[index - 1 : index] == ["--name"]:
                continue
            for called in self.programs:
                found = words[index + 1 - len(called) : index + 1] if index + 1 >= len(called) else ()
                if found and (found[0].rsplit("/", 1)[-1], *found[1:]) == called:
                    return index + 1
            if word.startswith(self.modules):
                return index + (2 if words[index + 1 : index + 2] == ["serve"] else 1)
        return None

    def container(self, words: Sequence[str]) -> int | None:
        """Return how many of `words` run its image: docker run … IMAGE."""
        if self.starts_itself and any(word in CONTAINERS for word in words[:2]):  # the second: after sudo
            return next((at + 1 for at, word in enumerate(words) if self.tag(word) is not None), None)
        return None

    def start(self, words: Sequence[str]) -> int:
        """Return where its own flags may begin."""
        return self.program(words) or self.container(words) or 0

    def tag(self, image: str) -> str | None:
        """The version in an image's tag, such as 0.10.1 of vllm/vllm-openai:v0.10.1, or no text; None for the
        image of another engine."""
        found = re.search(rf"(?:^|/){self.mark}[\w-]*:v?(\d[\d.]*\d)?[\w.+-]*$", image)
        return None if found is None else found[1] or ""


UNKNOWN = re.compile(r"\$(?:\w+|[@*#]|\{(?:[^{}]|\{[^}]*\})*\}|\((?:[^()]|\([^)]*\))*\))|\{\{[^}]*\}\}")
"""What a shell or a template still has to fill in: $NAME, ${NAME}, ${A[$B]}, $(NAME), {{ .Values.name }}."""


def is_unknown(value: object) -> bool:
    """Return whether it holds a variable whose value was not found."""
    return isinstance(value, str) and UNKNOWN.search(value) is not None


Arity = Literal["none", "one", "maybe", "many"]
"""How many words a flag takes: none, one, none or one, one or more."""


@dataclass(frozen=True)
class Option:
    """A flag with its dashes, underscores made dashes and short forms made long, and the words after it."""

    flag: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True)
class Words:
    """A command, read as argparse reads it.

    `program`: the words before the first flag, and those after that belong to no flag, such as the model in
    `vllm serve --seed 1 MODEL`.
    """

    CALL: ClassVar[Call] = Call("", (), ())
    SHORT: ClassVar[Mapping[str, str]] = {}
    """Short forms of flags."""

    program: tuple[str, ...]
    options: tuple[Option, ...]

    @classmethod
    def arity(cls, flag: str) -> Arity:
        """Return how many words an unknown flag takes: all up to the next flag."""
        return "many"

    @classmethod
    def parse(cls, words: Sequence[str]) -> Self:
        start = cls.CALL.start(words)
        while start < len(words) and not _is_flag(words[start]):
            start += 1
        options: list[Option] = []
        operands: list[str] = []
        for word in words[start:]:
            if _is_flag(word):
                flag, equals, value = word.partition("=")
                options.append(Option(cls._canonical(flag), (value,) if equals else ()))
            elif options and cls._takes(options[-1], word):
                options[-1] = replace(options[-1], values=(*options[-1].values, word))
            else:
                operands.append(word)
        return cls((*words[:start], *operands), tuple(options))

    @classmethod
    def _takes(cls, option: Option, word: str) -> bool:
        match cls.arity(option.flag):
            case "none":  # people write true after a switch, and older releases took it
                return not option.values and word.lower() in ("true", "false")
            case "many":
                return True
            case "one" | "maybe":
                # JSON that a shell has split at its spaces is one value still.
                text = " ".join(option.values)
                return not option.values or (text.startswith("{") and text.count("{") > text.count("}"))

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
        """Return the command with an option: in its place where it is there already, else at the end."""
        if not self.has(flag):
            return replace(self, options=(*self.options, Option(flag, values)))
        first = next(index for index, option in enumerate(self.options) if option.flag == flag)
        rest = [o for i, o in enumerate(self.options) if i == first or o.flag != flag]
        changed = tuple(Option(flag, values) if option.flag == flag else option for option in rest)
        return replace(self, options=changed)

    def without_value(self, assignment: str) -> Self:
        """Return the command without a NAME=VALUE of the program; after -e the name stays, and the value
        comes from outside."""
        at = self.program.index(assignment)
        passed = at > 0 and self.program[at - 1] in ("-e", "--env")
        name = (assignment.partition("=")[0],) if passed else ()
        return replace(self, program=self.program[:at] + name + self.program[at + 1 :])

    def without_assignment(self, assignment: str) -> Self:
        """Return the command without a NAME=VALUE of the program, and the -e before it."""
        at = self.program.index(assignment)
        first = at - 1 if at > 0 and self.program[at - 1] in ("-e", "--env") else at
        return replace(self, program=self.program[:first] + self.program[at + 1 :])

    @classmethod
    def _canonical(cls, flag: str) -> str:
        name, dot, key = flag.partition(".")
        if flag.startswith("--"):
            return name.replace("_", "-") + dot + key
        return cls.SHORT.get(name, name) + dot + key

    def words(self) -> list[str]:
        words = list(self.program)
        for option in self.options:
            words += [option.flag, *option.values]
        return words

    def text(self) -> str:
        """Return the text to paste into a shell: a flag a line."""
        lines = [joined(self.program)] if self.program else []
        lines += [joined([option.flag, *option.values]) for option in self.options]
        return " \\\n    ".join(lines) + "\n"


def joined(words: Sequence[str]) -> str:
    """Return the words joined as by shlex.join, except that variables stay variables: "$MODEL"."""
    return " ".join(_quoted(word) if is_unknown(word) else shlex.quote(word) for word in words)


def _quoted(word: str) -> str:
    return '"' + re.sub(r'(["\\`])', r"\\\1", word) + '"'


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
    `flags_file`: it is a YAML file of flags and is written as one; `environment`: variables that are set
    around the words, in the same file; `files`: texts of files that the words may name; `image`: of the
    container that they run in."""

    where: str
    engine: str
    words: tuple[str, ...]
    version: str | None = None
    flags_file: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    image: str | None = None


UNJUDGED = "has flags of its own, which specops does not judge"
"""The end of the only finding about a program that takes an engine's place."""


@dataclass(frozen=True)
class LintResult:
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
    judge: Callable[[Command, str | None], LintResult]
    """The second: a version that the operator names. Raises ConfigError for one that is invalid or too
    old."""

    flag: Callable[[str], bool] | None = None
    """Whether a release has this flag. None: a YAML file of flags cannot start it."""

    document: Callable[[Mapping[str, object]], bool] | None = None
    """Whether a YAML file is its settings, for a flag of the server."""

    usual_in: tuple[str, ...] = ()
    """Kinds of files in which it is the engine where they name none: production-stack, llm-d, KServe, Ray."""


W = TypeVar("W", bound=Words)
C = TypeVar("C")

ROUNDS = 4
"""A fix may bring something else to light: a flag made a key, which this version does not have."""
ORDER = ("error", "warning", "note")


@dataclass(frozen=True)
class RuleFinding(Generic[W]):
    finding: Finding
    fix: Callable[[W], W] | None = None
    """None: a person has to."""


def settled(
    given: W, context: C, rules: Iterable[Callable[[W, C], Iterator[RuleFinding[W]]]]
) -> tuple[list[Finding], W]:
    """Return what the rules find, also where only a fix brought it to light, and the command with all fixes.

    `context`: what the rules hold the command against, such as a release.
    """
    rules = list(rules)
    findings: list[Finding] = []
    for _ in range(ROUNDS):
        found = [entry for rule in rules for entry in rule(given, context)]
        findings += [entry.finding for entry in found]
        before = given
        for entry in found:
            given = entry.fix(given) if entry.fix is not None else given
        if given == before:
            break
    return findings, given


def by_level(findings: Sequence[Finding]) -> list[Finding]:
    """Return each finding once, errors first."""
    return sorted(dict.fromkeys(findings), key=lambda finding: ORDER.index(finding.level))


def flag_of(setting: str) -> str:
    """The flag of a setting of the same name: --max-model-len of max_model_len."""
    return "--" + setting.replace("_", "-")


def version_behind(words: Sequence[str], packages: Sequence[str]) -> str | None:
    """The version of the first of `packages` that is there, as the command's own Python says it, without an
    import; None where `words` do not lead to a Python that has one."""
    python = _interpreter(words)
    if python is None:
        return None
    try:
        # -I: neither this folder nor PYTHONPATH may stand in for what is installed there.
        answer = subprocess.run(
            [python, "-I", "-c", _QUESTION, *packages],
            capture_output=True,
            text=True,
            timeout=PYTHON_ANSWER_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() or None


def _interpreter(words: Sequence[str]) -> str | None:
    rest = list(words)
    while rest and (rest[0] == "env" or "=" in rest[0]):
        rest.pop(0)
    program = shutil.which(rest[0]) if rest else None
    if program is None:
        return None
    if Path(program).name.startswith("python"):
        return program
    try:
        with Path(program).open("rb") as script:
            first = script.readline(256).decode(errors="replace")
    except OSError:
        return None
    shebang = first.removeprefix("#!").split() if first.startswith("#!") else []
    if not shebang or "python" not in first:
        return None
    return shutil.which(shebang[-1])
