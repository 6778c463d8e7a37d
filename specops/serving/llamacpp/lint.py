"""The lint of a command line of llama-server for a build, and the command line as it should be.

Which build knows which flag is in the table (builds.json). What a build does with a flag is here, with the
build in whose source it was read (common/arg.cpp, common/speculative.cpp, tools/server/).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar, TypeAlias

from specops.section import SECRET_FLAGS
from specops.serving import argv, known_issues
from specops.serving.argv import (
    CallPattern,
    Command,
    CommandLine,
    Finding,
    Level,
    LintResult,
    Objections,
    Option,
    Unknown,
    Words,
    assigned,
    by_level,
    error_flags,
    is_unknown,
    settled,
    unknown_values,
    unreadable,
)
from specops.serving.argv import joined as joined_words
from specops.serving.llamacpp.builds import Build, installed, parse, table
from specops.serving.llamacpp.settings import K_OF_DRAFTS, K, N

DRAFT = ("-md", "--model-draft", "--spec-draft-model", "-hfd", "-hfrd", "--hf-repo-draft", "--spec-draft-hf")
TYPE = "--spec-type"
TYPE_NEEDED = 9873
"""From this build of the table on, a draft model without a type is loaded and not used."""


class _Image(CallPattern):
    """An image of llama.cpp. Its tags name the kind of image before the build: server-cuda-b11549."""

    def tag(self, image: str) -> str | None:
        kind = r"(?:server|full|light)[\w.-]*?"
        match = re.search(rf"(?:^|/){re.escape(self.mark)}(?::{kind}(?:-b(\d+))?)?$", image)
        return None if match is None else match[1] or ""


CALL = _Image(
    mark="llama.cpp",
    programs=(("llama-server",), ("llama", "serve")),
    modules=("specops.serving.llamacpp",),
)


ENVIRONMENT = "LLAMA_ARG_"
"""How the variables begin that are flags."""
ON, OFF = ("on", "enabled", "true", "1"), ("off", "disabled", "false", "0")
"""Values of a variable that is a switch (common/arg.cpp)."""


@dataclass(frozen=True)
class ParsedCommand(Words):
    CALL: ClassVar[CallPattern] = CALL

    around: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Variables of the environment."""

    @classmethod
    def within(cls, words: Sequence[str], environment: Mapping[str, str], build: Build) -> ParsedCommand:
        """Return the command with the variables that are flags in this build, which words outweigh."""
        command = cls.parse(words)
        around = {**environment, **assigned(command.program)}
        named = {option.flag for option in command.options}
        options = []
        for name, value in around.items():
            flags = build.variables.get(name)
            positive = build.variables.get(name.replace("LLAMA_ARG_NO_", ENVIRONMENT, 1), "")
            if flags is None and " " in positive:
                flags, value = positive, OFF[0]
            if flags is None:
                continue
            flag, _, off = flags.partition(" ")
            if table().same(flag) & named:
                continue
            switch = not build.flags.get(flag, 1)
            if switch and value in OFF:
                options += [Option(off, (), name)] if off else []
            else:
                values = () if switch and value in ON else (value,)
                options.append(Option(flag, values, name))
        return replace(command, options=(*options, *command.options), around=around)

    def written(self, build: Build) -> str:
        """Return the text to paste. What a variable sets stays a variable: where it stands, or before the
        program."""
        variables = {flag: name for name, flags in build.variables.items() for flag in flags.split()}
        program, before, options = list(self.program), list[str](), list[Option]()
        old = assigned(self.program)
        for option in self.options:
            name = next((variables[flag] for flag in table().same(option.flag) if flag in variables), None)
            if option.variable is None or name is None:
                options.append(replace(option, variable=None))
                continue
            positive = option.flag == build.variables[name].split()[0]
            assignment = f"{name}={option.values[0] if option.values else ON[-1] if positive else OFF[-1]}"
            word = f"{option.variable}={old[option.variable]}" if option.variable in old else None
            if word in program:
                program[program.index(word)] = assignment
            else:
                before.append(joined_words([assignment]))
        text = replace(self, program=tuple(program), options=tuple(options)).text()
        return " \\\n    ".join([*before, text]) if text.strip() else " ".join(before) + "\n"

    def types(self) -> list[str]:
        """Return what --spec-type names, without none; it may be there more than once."""
        named = [value for option in self.options if option.flag == TYPE for value in option.values[:1]]
        return [type_ for value in named for type_ in value.split(",") if type_ != "none"]

    def draft(self) -> str | None:
        """The flag that names a draft model."""
        return next((option.flag for option in self.options if option.flag in DRAFT), None)


FORKS = re.compile(r"ik[_-]llama|beellama|llama[\w.-]*(?:turboquant|club3090)")
"""Names of forks within the names of images and folders."""

Fix = Callable[[ParsedCommand], ParsedCommand]


Found: TypeAlias = argv.RuleFinding[ParsedCommand]


def _rule_finding(
    level: Level, flag: str, why: str, replacement: str | None = None, fix: Fix | None = None
) -> Found:
    return Found(Finding(level, flag, why, replacement), fix)


# Flags that the build does not have


OLD = dict([K_OF_DRAFTS, ("--spec-draft-n-min", "--draft-min"), *K.values(), *N.values()])
"""Name up to b8929 of a flag of today."""
NOW = {
    "--draft": "n_max",
    "--draft-n": "n_max",
    "--draft-max": "n_max",
    "--draft-min": "n_min",
    "--draft-n-min": "n_min",
    "--spec-ngram-size-m": "size_m",
    "--spec-ngram-size-n": "size_n",
    "--spec-ngram-min-hits": "min_hits",
}
"""Flags that b9093 refuses, and what they were: since then each type has flags of its own."""


def _today(flag: str, types: Sequence[str]) -> str | None:
    """Return what `flag` of `NOW` is called for the types; None where it says nothing for them."""
    value = NOW[flag]
    ngram = next((type_ for type_ in types if type_ in K), None)
    if value in ("n_max", "n_min"):
        short = value.replace("_", "-")
        return f"--spec-ngram-mod-{short}" if list(types) == ["ngram-mod"] else f"--spec-draft-{short}"
    if ngram is None:
        return None
    if ngram == "ngram-mod":
        return "--spec-ngram-mod-n-match" if value == "size_n" else None
    return f"--spec-{ngram}-{value.replace('_', '-')}"


@dataclass(frozen=True)
class Replacement:
    """The words in place of a flag that is gone, or none."""

    words: tuple[str, ...]
    why: str


OTHERS = {
    "--mlock": Replacement(("--load-mode", "mlock"), "one flag says how the model is loaded"),
    "--mmap": Replacement(("--load-mode", "mmap"), "one flag says how the model is loaded"),
    "--no-mmap": Replacement(("--load-mode", "none"), "one flag says how the model is loaded"),
    "--direct-io": Replacement(("--load-mode", "dio"), "one flag says how the model is loaded"),
    "-dio": Replacement(("--load-mode", "dio"), "one flag says how the model is loaded"),
    "--no-direct-io": Replacement((), "it is not used unless --load-mode dio says so"),
    "-ndio": Replacement((), "it is not used unless --load-mode dio says so"),
    "--ctx-size-draft": Replacement((), "the draft has the target's context"),
    "-cd": Replacement((), "the draft has the target's context"),
    "--spec-draft-ctx-size": Replacement((), "the draft has the target's context"),
    "--spec-replace": Replacement((), "drafts of another vocabulary are not translated any more"),
    "--spec-draft-replace": Replacement((), "drafts of another vocabulary are not translated any more"),
    "--clear-idle": Replacement(("--cache-idle-slots",), "renamed"),
    "--no-clear-idle": Replacement(("--no-cache-idle-slots",), "renamed"),
}


def unknown(command: ParsedCommand, build: Build) -> Iterator[Found]:
    for flag in dict.fromkeys(option.flag for option in command.options):
        if flag in build.flags:
            continue
        history = table().history(flag)
        why = f"llama.cpp {build.judged} does not have it" + (
            f"; it is there in {history}" if history else ""
        )
        new = _today(flag, command.types()) if flag in NOW else OLD.get(flag)
        same = next((name for name in sorted(table().same(flag)) if name in build.flags), None)
        if flag in build.gone:
            why = f"llama.cpp {build.judged} refuses it: {build.gone[flag]}"
        if flag in NOW and (command.value(flag) or "").endswith(".gguf"):  # a model, as forks name it
            why = f"llama.cpp {build.judged} does not take a model by this name"
            new = next(name for name in DRAFT if name in build.flags)
        if new is not None and new in build.flags:
            yield _rule_finding("error", flag, why, new, _renamed(flag, new))
        elif flag in NOW and flag in build.gone:
            yield _rule_finding(
                "error", flag, f"{why}; none of the given types reads it", "leave it out", _without(flag)
            )
        elif same is not None:
            yield _rule_finding("error", flag, why, same, _renamed(flag, same))
        elif flag in OTHERS and all(w in build.flags for w in OTHERS[flag].words[:1]):
            words = OTHERS[flag].words
            fix = _without(flag) if not words else _replaced(flag, words)
            yield _rule_finding(
                "error", flag, f"{why}: {OTHERS[flag].why}", " ".join(words) or "leave it out", fix
            )
        else:
            near = difflib.get_close_matches(flag, build.flags, n=1, cutoff=0.75)
            yield _rule_finding("error", flag, why, near[0] if near and not history else None)


def _renamed(flag: str, new: str) -> Fix:
    """Write `new` for `flag`; where the command sets it too, under any name, that counts."""
    same = table().same(new) - {flag}
    return lambda command: (
        command.without(flag) if any(map(command.has, same)) else command.renamed(flag, new)
    )


def _without(flag: str) -> Fix:
    return lambda command: command.without(flag)


def _replaced(flag: str, words: tuple[str, ...]) -> Fix:
    return lambda command: command.without(flag).with_option(words[0], *words[1:])


# Words that it reads otherwise than they look


def values(command: ParsedCommand, build: Build) -> Iterator[Found]:
    """A flag takes its number of words, whatever they look like; a word too many is an unknown argument."""
    for option in command.options:
        arity = build.flags.get(option.flag)
        if arity is None:
            continue
        if len(option.values) < arity:
            on = option.flag in ("-fa", "--flash-attn")
            why = "it takes a value, and would take the flag after it"
            fix = _replaced(option.flag, (option.flag, "on")) if on else None
            yield _rule_finding("error", option.flag, why, f"{option.flag} on" if on else None, fix)
        elif len(option.values) > arity:
            stray = next((word for word in option.values[arity:] if not is_unknown(word)), None)
            if stray is None:  # a variable, which may hold flags
                continue
            values = f"{arity or 'no'} value{'s' if arity > 1 else ''}"
            why = f"it takes {values}, and '{stray}' is not an argument"
            yield _rule_finding("error", option.flag, why)


def numbers(command: ParsedCommand, build: Build) -> Iterator[Found]:
    for option in command.options:
        value = option.values[0] if option.values else None
        if option.flag not in build.numbers or value is None or is_unknown(value):
            continue
        if re.fullmatch(r"\s*[+-]?(\d|\.\d).*", value, re.DOTALL) is None:
            why = f"its value {value!r} is not a number: the server does not start"
            yield _rule_finding("error", option.flag, why, "a number, or leave it out")


def variables(command: ParsedCommand, build: Build) -> Iterator[Found]:
    """Variables that look like flags, and that the build does not read."""
    for name in command.around:
        positive = build.variables.get(name.replace("LLAMA_ARG_NO_", ENVIRONMENT, 1), "")
        if not name.startswith(ENVIRONMENT) or name in build.variables or " " in positive:
            continue
        history = table().variable_history(name)
        why = (
            f"llama.cpp {build.judged} does not read it"
            + (f" ({history} do)" if history else "")
            + ": it does nothing"
        )
        near = difflib.get_close_matches(name, build.variables, n=1, cutoff=0.85)
        yield _rule_finding("warning", name, why, near[0] if near else "leave it out, or give the flag")


def joined(words: Sequence[str]) -> Iterator[Finding]:
    """--port=8080: one unknown argument. Written apart in what is corrected."""
    for word in words[CALL.start(words) :]:
        if re.match(r"--?[a-z][\w-]*=", word):
            flag, _, value = word.partition("=")
            yield Finding("error", flag, "llama-server takes no =", f"{flag} {value}")


# Speculation


def types(command: ParsedCommand, build: Build) -> Iterator[Found]:
    for type_ in command.types():
        if type_ in build.types or is_unknown(type_):
            continue
        history = table().type_history(type_)
        near = next(
            (name for name in sorted(build.types) if name in (f"draft-{type_}", f"ngram-{type_}")), None
        )
        if type_ == "draft":  # its name inside, up to b9093
            near = "draft-simple" if "draft-simple" in build.types else None
        why = f"llama.cpp {build.judged} has no such type" + (
            f"; it is there in {history}" if history else ""
        )
        if type_ in ("draft", "draft-simple") and near is None:  # a draft alone is enough, and has no name
            yield _rule_finding("error", f"{TYPE} {type_}", why, "leave it out", _of_types(type_, None))
        else:
            yield _rule_finding(
                "error", f"{TYPE} {type_}", why, near, _of_types(type_, near) if near else None
            )


def _of_types(old: str, new: str | None) -> Fix:
    def fix(command: ParsedCommand) -> ParsedCommand:
        left = [new if type_ == old else type_ for type_ in command.types()]
        names = [type_ for type_ in left if type_ is not None]
        return command.with_option(TYPE, ",".join(names)) if names else command.without(TYPE)

    return fix


def draft_without_type(command: ParsedCommand, build: Build) -> Iterator[Found]:
    draft = command.draft()
    if draft is None or build.number < TYPE_NEEDED:
        return
    if any(type_.startswith("draft-") or type_ not in build.types for type_ in command.types()):
        return  # a type that the build does not have is another rule's
    why = (
        f"since b{TYPE_NEEDED} the server loads a plain draft without --spec-type and does not use it; "
        "only of MTP, DFlash and DSpark does it find the type in the file"
    )
    named = ",".join([*command.types(), "draft-simple"])
    yield _rule_finding("error", draft, why, f"{TYPE} {named}", lambda g: g.with_option(TYPE, named))


def type_without_draft(command: ParsedCommand, build: Build) -> Iterator[Found]:
    hub = any(command.has(flag) for flag in ("-hf", "-hfr", "--hf-repo"))
    for type_ in command.types():
        if not type_.startswith("draft-") or type_ == "draft-mtp" or command.draft() is not None:
            continue
        if hub and type_ != "draft-simple":  # arg.cpp looks for a file of this type beside the model
            why = "its file is looked for in the model's repository; without one it does not speculate"
            yield _rule_finding("note", f"{TYPE} {type_}", why)
            continue
        why = "without a draft model the server serves all the same, and does not speculate"
        yield _rule_finding("error", f"{TYPE} {type_}", why, "add -md FILE.gguf")


def unread(command: ParsedCommand, build: Build) -> Iterator[Found]:
    """Settings of a type that is not named."""
    if build.number < 9093:  # until then the types shared their flags
        return
    named = command.types()
    if any(type_ not in build.types for type_ in named):
        return  # what it should be is another rule's to find first
    drafts = command.draft() is not None or any(type_.startswith("draft-") for type_ in named)
    for option in command.options:
        flag = option.flag
        type_ = next((name for name in K if flag.startswith(f"--spec-{name}-")), None)
        if flag in ("--spec-draft-p-split", "--draft-p-split"):
            yield _rule_finding(
                "warning", flag, "the server does not read it", "leave it out", _without(flag)
            )
        elif type_ is not None and type_ not in named:
            why = f"only {type_} reads it, and it is not among the types"
            yield _rule_finding("warning", flag, why, "leave it out", _without(flag))
        elif type_ is None and flag.startswith("--spec-draft-") and not drafts:
            yield _rule_finding(
                "warning",
                flag,
                "only drafts read it, and the command has no draft",
                "leave it out",
                _without(flag),
            )


def synthetic(command: ParsedCommand, build: Build) -> Iterator[Found]:
    for flag in ("--spec-synth-len", "--spec-synth-rates"):
        if command.has(flag):
            why = "drafts are accepted by chance: what is answered is not the model's; for load tests only"
            yield _rule_finding("error", flag, why, "leave it out", _without(flag))


# What specops needs, and what differs between two pools


def measured(command: ParsedCommand, build: Build) -> Iterator[Found]:
    if not command.has("--metrics"):
        why = "without it /metrics answers 501, and nothing is known of acceptance"
        yield _rule_finding(
            "warning", "--metrics", why, "add --metrics", lambda g: g.with_option("--metrics")
        )
    if not any(command.has(flag) for flag in ("-np", "--parallel")):
        why = "left out, the build chooses: today 4 requests at a time that share one context"
        yield _rule_finding("warning", "--parallel", why, "--parallel 4 on both pools")


def context(command: ParsedCommand, build: Build) -> Iterator[Found]:
    size = next((command.value(flag) for flag in ("-c", "--ctx-size") if command.has(flag)), None)
    slots = next((command.value(flag) for flag in ("-np", "--parallel") if command.has(flag)), None)
    shared = any(command.has(flag) for flag in ("-kvu", "--kv-unified"))
    if size and slots and size.isdigit() and slots.isdigit() and int(slots) > 1 and int(size) and not shared:
        why = f"it is divided: each of {slots} requests has {int(size) // int(slots)} tokens"
        yield _rule_finding("note", "--ctx-size", why)


SECRETS = (*SECRET_FLAGS, "-hft")


def secrets(command: ParsedCommand, build: Build) -> Iterator[Found]:
    for option in command.options:
        if option.flag in SECRETS and not is_unknown(option.values[0] if option.values else None):
            variable = "LLAMA_API_KEY" if "api" in option.flag else "HF_TOKEN"
            why = "the secret is visible in the process list, the manifest and the shell history"
            yield _rule_finding("warning", option.flag, why, f"{variable} in the server's environment")


RULES: tuple[Callable[[ParsedCommand, Build], Iterator[Found]], ...] = (
    unknown,
    values,
    numbers,
    variables,
    types,
    draft_without_type,
    type_without_draft,
    unread,
    synthetic,
    measured,
    context,
    secrets,
)


DECIDING = (
    "--spec",
    "--draft",
    "-md",
    "--model-draft",
    "-hfd",
    "-hfrd",
    "--hf-repo-draft",
    "--models-preset",
)
"""Beginnings of the flags by whose values a rule finds an error."""


def lint(words: Sequence[str], build: Build, environment: Mapping[str, str] | None = None) -> list[Finding]:
    """Return the findings, errors first. A command without findings may still be refused: llama-server
    decides. `environment`: variables around the words, of which LLAMA_ARG_* are flags."""
    command = ParsedCommand.within(words, environment or {}, build)
    findings, _ = settled(command, build, RULES, _objections(build))

    def refused(words: Words) -> list[str]:
        return error_flags(ParsedCommand.parse(words.words()), build, RULES)

    issues = known_issues.findings("llamacpp", str(build.requested), command, CALL, refused, environment)
    findings = known_issues.joined(findings, issues)
    return by_level([*joined(words), *(_by_variable(finding, command, build) for finding in findings)])


def _objections(build: Build) -> Objections[ParsedCommand]:
    return partial(known_issues.command_objections, "llamacpp", str(build.requested), CALL)


def _by_variable(finding: Finding, command: ParsedCommand, build: Build) -> Finding:
    """Return a finding about a flag that a variable sets under the variable's name."""
    flag, space, more = finding.flag.partition(" ")
    option = next((o for o in command.options if o.flag == flag and o.variable is not None), None)
    if option is None:
        return finding
    names = {flag: name for name, flags in build.variables.items() for flag in flags.split()}
    words = (finding.replacement or "").split(" ")
    words = [next((names[n] for n in table().same(word) if n in names), word) for word in words]
    return replace(
        finding,
        flag=f"{option.variable}{space}{more}",
        replacement=" ".join(words) if finding.replacement else None,
    )


def corrected(
    words: Sequence[str], build: Build, environment: Mapping[str, str] | None = None
) -> ParsedCommand | None:
    """The command with all that a rule can fix; None where there was nothing."""
    command = ParsedCommand.within(words, environment or {}, build)
    _, fixed = settled(command, build, RULES, _objections(build))
    return None if fixed == command and not list(joined(words)) else fixed


def judge(command: Command, requested: str | None) -> LintResult:
    """Judge a command. `requested`: a build that the operator names. Raises ConfigError for one that is
    invalid or too old."""
    number, because = _build(command, requested)
    build = table().around(number)
    if build.number != build.requested:
        later = next((candidate for candidate in table().builds if candidate > number), None)
        around = f"and what b{later} has too is not reported" if later else "which is newer than any known"
        because = f"the nearest known before b{number}, {because}, {around}"
    parsed = ParsedCommand.within(command.words, command.environment, build)
    fork, presets = _fork(command), parsed.value("--models-preset")
    fixed = None if fork else corrected(command.words, build, command.environment)
    last = fixed or parsed
    findings = [] if fork else settled(last, build, RULES)[0]
    left = by_level([_by_variable(entry, last, build) for entry in findings if entry.level == "error"])
    unknown = [
        *command.unread,
        *unknown_values(parsed, CALL, DECIDING, around=True),
        *_from_outside(parsed, build),
    ]
    if presets is not None:
        unknown.append(unreadable(presets, "it is not here"))
    return LintResult(
        where=command.where,
        engine="llama.cpp",
        version=build.judged,
        because=because,
        findings=[] if fork else lint(command.words, build, command.environment),
        corrected=fixed.written(build) if fixed else None,
        left=left,
        unknown=[*unknown, *([fork] if fork else [])],
    )


def _from_outside(command: ParsedCommand, build: Build) -> Iterator[Unknown]:
    """Yield variables that are flags, and that a container is given by name, without their values."""
    for option, name in zip(command.program, command.program[1:], strict=False):
        if option in ("-e", "--env") and name in build.variables:
            decides = build.variables[name].startswith(DECIDING)
            why = f"it sets {build.variables[name].split()[0]}, and its value comes from outside"
            yield Unknown(name, why, f"echo ${name}  # on the machine that starts it", decides)


def _fork(command: Command) -> Unknown | None:
    """Return what is not judged where the image or the program is a known fork's, else None."""
    start = CALL.start(command.words)
    named = (FORKS.search(text) for text in (command.image or "", *command.words[:start][-1:]))
    match = next(filter(None, named), None)
    if match is None:
        return None
    why = "a fork of llama.cpp has flags of its own, which were not judged"
    return Unknown(match[0], why, "llama-server --help  # of the fork")


def _build(command: Command, requested: str | None) -> tuple[int, str]:
    if requested is not None:
        return parse(requested), "as requested"
    if command.version:
        number, oldest = parse(command.version), table().builds[0]
        if number < oldest:
            return oldest, f"the oldest known; for b{number}, as the image's tag says, it was not checked"
        return number, "as the image's tag says"
    build = installed(command.words)
    if build is not None:
        return build, "as the program says"
    newest = "the newest known: no build was given, and the program is not on this machine"
    return table().newest, newest


def preset_words(key: str, value: object) -> list[str]:
    """Return a setting of a preset, whose key is a flag of some build without its dashes, as words."""
    text, builds = str(value), table()
    flag = next((dashes + key for dashes in ("--", "-") if builds.history(dashes + key)), f"--{key}")
    if not builds.is_switch(flag):
        return [flag, text]
    if text.lower() in OFF:
        negative = (name for name in sorted(builds.same(flag)) if name.startswith("--no-"))
        return list(negative)[:1]
    return [flag]


COMMAND_LINE = CommandLine(
    call=CALL,
    example="llama-server -m FILE.gguf …",
    judge=judge,
    settings=preset_words,
    usual_in=("LLMKube",),
    reads_environment=True,
)
