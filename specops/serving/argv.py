"""Command lines of serving engines: their words, how they are recognised, what a lint finds in them, and the
version of the Python package that they run.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar, Generic, Literal, Self, TypeVar

import yaml

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


def runs_containers(word: str) -> bool:
    return word.rsplit("/", 1)[-1] in CONTAINERS


@dataclass(frozen=True)
class CallPattern:
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
                candidate = words[index + 1 - len(called) : index + 1] if index + 1 >= len(called) else ()
                if candidate and (candidate[0].rsplit("/", 1)[-1], *candidate[1:]) == called:
                    return index + 1
            if word.startswith(self.modules):
                return index + (2 if words[index + 1 : index + 2] == ["serve"] else 1)
        return None

    def container(self, words: Sequence[str]) -> int | None:
        """Return how many of `words` run its image: docker run … IMAGE."""
        if self.starts_itself and any(map(runs_containers, words[:2])):  # the second: after sudo
            return next((index + 1 for index, word in enumerate(words) if self.tag(word) is not None), None)
        return None

    def start(self, words: Sequence[str]) -> int:
        """Return where its own flags may begin."""
        return self.program(words) or self.container(words) or 0

    def tag(self, image: str) -> str | None:
        """The version in an image's tag, such as 0.10.1 of vllm/vllm-openai:v0.10.1, or no text; None for the
        image of another engine."""
        match = re.search(rf"(?:^|/){self.mark}[\w-]*:v?(\d[\d.]*\d)?[\w.+-]*$", image)
        return None if match is None else match[1] or ""


UNKNOWN = re.compile(
    r"\$(?:\w+|[@*#]|\{(?:[^{}]|\{[^}]*\})*\}|\((?:[^()]|\([^)]*\))*\))|\{\{[^}]*\}\}"
    r"|(?<![$\w])\{[A-Za-z_]\w*\}"
)
"""What a shell or a template still has to fill in: $NAME, ${NAME}, ${A[$B]}, $(NAME), {{ .Values.name }}, and
{name} of a format template."""


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
    variable: str | None = None
    """The variable of the environment that sets it, where no word does."""


@dataclass(frozen=True)
class Words:
    """A command, read as argparse reads it.

    `program`: the words before the first flag, and those after that belong to no flag, such as the model in
    `vllm serve --seed 1 MODEL`.
    """

    CALL: ClassVar[CallPattern] = CallPattern("", (), ())
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
        values = [option.values[0] for option in self.options if option.flag == flag and option.values]
        return values[-1] if values else None

    def number(self, flag: str, otherwise: int) -> int:
        value = self.value(flag)
        return int(value) if value is not None and value.isdigit() else otherwise

    def without(self, flag: str) -> Self:
        return replace(self, options=tuple(option for option in self.options if option.flag != flag))

    def renamed(self, flag: str, new: str) -> Self:
        changed = [replace(o, flag=new) if o.flag == flag else o for o in self.options]
        if self.has(new):  # the last one counts
            last = max(index for index, option in enumerate(changed) if option.flag == new)
            changed = [option for index, option in enumerate(changed) if option.flag != new or index == last]
        return replace(self, options=tuple(changed))

    def with_option(self, flag: str, *values: str) -> Self:
        """Return the command with an option: in its place where it is there already, else at the end."""
        if not self.has(flag):
            return replace(self, options=(*self.options, Option(flag, values)))
        first = next(index for index, option in enumerate(self.options) if option.flag == flag)
        rest = [o for i, o in enumerate(self.options) if i == first or o.flag != flag]
        changed = tuple(replace(o, values=values) if o.flag == flag else o for o in rest)
        return replace(self, options=changed)

    def without_value(self, assignment: str) -> Self:
        """Return the command without a NAME=VALUE of the program; after -e the name stays, and the value
        comes from outside."""
        index = self.program.index(assignment)
        passed = index > 0 and self.program[index - 1] in ("-e", "--env")
        name = (assignment.partition("=")[0],) if passed else ()
        return replace(self, program=self.program[:index] + name + self.program[index + 1 :])

    def without_assignment(self, assignment: str) -> Self:
        """Return the command without a NAME=VALUE of the program, and the -e before it."""
        index = self.program.index(assignment)
        first = index - 1 if index > 0 and self.program[index - 1] in ("-e", "--env") else index
        return replace(self, program=self.program[:first] + self.program[index + 1 :])

    @classmethod
    def _canonical(cls, flag: str) -> str:
        name, dot, key = flag.partition(".")
        if flag.startswith("--"):
            return name.replace("_", "-") + dot + key
        return cls.SHORT.get(name, name) + dot + key

    def words(self) -> list[str]:
        words = list(self.program)
        for option in self.options:
            words += [option.flag, *option.values] if option.variable is None else []
        return words

    def text(self) -> str:
        """Return the text to paste into a shell: a flag a line."""
        lines = [joined(self.program)] if self.program else []
        lines += [joined([option.flag, *option.values]) for option in self.options]
        return " \\\n    ".join(lines) + "\n"


_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)


def assigned(program: Sequence[str]) -> dict[str, str]:
    """Return the variables that words before a program set: NAME=VALUE of a shell, or of docker run -e."""
    return {match[1]: match[2] for word in program if (match := _ASSIGNMENT.fullmatch(word)) is not None}


def joined(words: Sequence[str]) -> str:
    """Return the words joined as by shlex.join, except that variables stay variables: "$MODEL"."""
    return " ".join(
        '"' + re.sub(r'(["\\`])', r"\\\1", word) + '"' if is_unknown(word) else shlex.quote(word)
        for word in words
    )


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
class Unknown:
    """What was not read, or whose value only a shell, a cluster or a machine has; `how` to find it out.
    `decides`: it may hold an error, so that without it there is no yes."""

    what: str
    why: str
    how: str
    decides: bool = True


LARGEST_FILE = 1 << 20
"""Bytes of a file that a command names; a larger one is not one of settings."""


@dataclass(frozen=True)
class Files:
    """The files that a command may name. `texts`: those that the same file holds, by name or path; `folder`:
    where the file of the command stands; `mounts`: paths in a container, by their paths beside the file;
    `contained`: the command runs in a container, so that its absolute paths are not this machine's."""

    texts: Mapping[str, str] = field(default_factory=dict)
    maps: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Texts by the name of the ConfigMap that holds them."""

    folder: Path | None = None
    mounts: Mapping[str, str] = field(default_factory=dict)
    contained: bool = False

    def with_texts(self, texts: Mapping[str, str]) -> Files:
        return replace(self, texts={**self.texts, **texts})

    def text(self, name: str) -> str | None:
        """Return the text of a file: held under that path or its last part (as a ConfigMap has it), or read
        beside the command's file. None: it is not there, or is not text."""
        for path, source in self.mounts.items():
            if name == path or name.startswith(path.rstrip("/") + "/"):
                return replace(self, contained=False).text(source + name.removeprefix(path))
        last = PurePosixPath(name).name
        held = self.texts.get(
            name, next((t for n, t in self.texts.items() if PurePosixPath(n).name == last), None)
        )
        if held is not None or self.folder is None or (self.contained and PurePosixPath(name).is_absolute()):
            return held
        path_here = self.folder / name
        try:
            if not path_here.is_file() or path_here.stat().st_size > LARGEST_FILE:
                return None
            return path_here.read_text(encoding="utf-8")
        except (OSError, ValueError):
            return None


@dataclass(frozen=True)
class Command:
    """A command that starts `engine`. `where` it stands, for people; `version` as an image's tag says it, or
    as `version_source` names it;
    `flags_file`: it is a YAML file of flags and is written as one; `environment`: variables that are set
    around the words, in the same file; `files`: that the words may name; `image`: of the container that they
    run in; `launcher`: words of a program around the engine, which are not the engine's; `unread`: what of
    the command was not read."""

    where: str
    engine: str
    words: tuple[str, ...]
    version: str | None = None
    flags_file: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Files = field(default_factory=Files)
    image: str | None = None
    launcher: tuple[str, ...] = ()
    unread: tuple[Unknown, ...] = ()
    version_source: str = "as the image's tag says"


@dataclass(frozen=True)
class LintResult:
    """`version` is the one that was judged for, and `because` why it; `corrected` the text to paste, where
    something could be fixed, and `left` the errors that it still has: those a person has to fix. `unknown`:
    what the findings do not cover."""

    where: str
    engine: str
    version: str
    because: str
    findings: list[Finding]
    corrected: str | None
    left: list[Finding]
    unknown: list[Unknown] = field(default_factory=list)


@dataclass(frozen=True)
class ConfigFile:
    """A YAML file of flags that a server reads: by which flags it is named, and what words its settings are.
    Words of the command outweigh it."""

    flags: tuple[str, ...]
    words: Callable[[Mapping[str, Any]], list[str]]


def setting_words(key: str, value: object) -> list[str]:
    """Return a setting of a YAML file as a flag and its words; --no-FLAG of a switch that is off."""
    flag = f"--{key.replace('_', '-')}"
    if isinstance(value, bool):
        return [flag if value else f"--no-{flag.removeprefix('--')}"]
    if isinstance(value, dict):
        return [flag, json.dumps(value, default=str)]  # YAML has dates
    if isinstance(value, list):
        return [flag, *(str(part) for part in value)]
    return [flag, str(value)]


def unreadable(name: str, why: str) -> Unknown:
    """Return that a file of settings was not read."""
    how = (
        f"put it beside the file that names it, or: specops launch lint --file {shlex.quote(Path(name).name)}"
    )
    if is_unknown(name):
        how = "write the path of the file in place of the variable"
    return Unknown(name, f"{why}: what it sets was not judged", how)


def configured(
    command: Command, config: ConfigFile, call: CallPattern
) -> tuple[tuple[str, ...], list[Unknown]]:
    """Return the words of a command with those of its configuration files in front, and files not read."""
    words, front, unknown = list(command.words), list[str](), list[Unknown]()
    index = 0
    while index < len(words):
        flag, equals, value = words[index].partition("=")
        if flag.replace("_", "-") not in config.flags or not (equals or index + 1 < len(words)):
            index += 1
            continue
        name = value if equals else words[index + 1]
        text = command.files.text(name)
        settings = None
        if text is not None:
            try:
                settings = yaml.safe_load(text)
            except (yaml.YAMLError, ValueError):
                unknown.append(unreadable(name, "it is not YAML"))
        if isinstance(settings, Mapping):
            front += config.words(settings)
            del words[index : index + (1 if equals else 2)]
            continue
        if text is None:
            unknown.append(unreadable(name, "it is not here"))
        index += 1 if equals else 2
    start = call.start(words)
    while start < len(words) and not _is_flag(words[start]):  # the model stands before the flags
        start += 1
    return (*words[:start], *front, *words[start:]), unknown


def unknown_values(
    command: Words, call: CallPattern, deciding: Sequence[str], *, around: bool = False
) -> list[Unknown]:
    """Return the values that only a shell, a manifest or a template fills in. One decides where it stands for
    flags, or is the value of a flag that begins as one of `deciding`; `around`: also where it stands before
    the program, as options of docker run may set variables."""
    unknown: dict[str, bool] = {}

    def add(word: str, decides: bool) -> None:
        for name in UNKNOWN.findall(word):
            unknown[name] = unknown.get(name, False) or decides

    start = call.start(command.program)
    operands = [word for word in command.program[start:] if not _is_flag(word)]
    first_is_model = command.program[:start][-1:] in (("serve",), ("trtllm-serve",))
    for index, word in enumerate(operands):
        add(word, index > 0 or not first_is_model)
    for word in command.program[:start]:
        add(word, around and UNKNOWN.fullmatch(word) is not None)
    for option in command.options:
        decides = option.flag.startswith(tuple(deciding))
        for index, value in enumerate(option.values):
            more = index > 0 and UNKNOWN.fullmatch(value) is not None  # it may hold the next flags
            add(value, decides or more)
        add(option.flag, True)
    why = "its value is not known here"
    how = "write its value in the command, or lint what the shell or the cluster makes of it"
    return [
        Unknown(name, f"{why}: what it holds was not judged" if decides else why, how, decides)
        for name, decides in unknown.items()
    ]


@dataclass(frozen=True)
class CommandLine:
    """A command of an engine, and what is wrong with one."""

    call: CallPattern
    example: str
    judge: Callable[[Command, str | None], LintResult]
    """The second: a version that the operator names. Raises ConfigError for one that is invalid or too
    old."""

    flag: Callable[[str], bool] | None = None
    """Whether a release has this flag. None: a YAML file of flags cannot start it."""

    settings: Callable[[str, object], list[str]] | None = None
    """A setting of a file of flags as words; None: as YAML files of flags mostly have it."""

    reads_environment: bool = False
    """Whether variables of the environment are flags of it, so that unread ones may hold its speculation."""

    document: Callable[[Mapping[str, object]], bool] | None = None
    """Whether a YAML file is its settings, for a flag of the server."""

    packages: tuple[str, ...] = ()
    """Names of its package on PyPI, by which a file pins its version."""

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

    otherwise: tuple[str, Callable[[W], W] | None] | None = None
    """What to write, and the fix, where `fix` has something against it."""


Rules = Sequence[Callable[[W, C], Iterator[RuleFinding[W]]]]
Objections = Callable[[W, W], list[str]]
"""What a command after a change has against it that it had not before: ids of known issues."""


def settled(
    command: W, context: C, rules: Rules[W, C], objections: Objections[W] | None = None
) -> tuple[list[Finding], W]:
    """Return what the rules find, also where only a fix brought it to light, and the command with all fixes.

    `context`: what the rules hold the command against, such as a release. No fix is applied or proposed that
    the rules or `objections` have something against.
    """
    findings: list[Finding] = []
    for _ in range(ROUNDS):
        entries = [entry for rule in rules for entry in rule(command, context)]
        before = command
        for entry in entries:
            checked = _checked(entry, before, context, rules, objections)
            findings.append(checked.finding)
            command = checked.fix(command) if checked.fix is not None else command
        if command == before:
            break
    return findings, command


def _checked(
    entry: RuleFinding[W],
    command: W,
    context: C,
    rules: Rules[W, C],
    objections: Objections[W] | None,
    chain: int = ROUNDS,
) -> RuleFinding[W]:
    """Return the finding with a proposal that has nothing against it: its own, what takes the place of that,
    `otherwise`, or none."""
    if entry.fix is None:
        return entry
    after = entry.fix(command)
    if objections is not None and objections(command, after):
        text, fix = entry.otherwise or (None, None)
        return RuleFinding(replace(entry.finding, replacement=text), fix)
    known_flags = error_flags(command, context, rules)
    new = [error for error in _errors(after, context, rules) if error.finding.flag not in known_flags]
    if new and chain:
        better = _checked(new[0], after, context, rules, objections, chain - 1)
        return replace(entry, finding=replace(entry.finding, replacement=better.finding.replacement))
    return entry


def _errors(command: W, context: C, rules: Rules[W, C]) -> list[RuleFinding[W]]:
    return [entry for rule in rules for entry in rule(command, context) if entry.finding.level == "error"]


def error_flags(command: W, context: C, rules: Rules[W, C]) -> list[str]:
    """Return what the errors of a command are about: each finding's `flag`."""
    return [entry.finding.flag for entry in _errors(command, context, rules)]


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
