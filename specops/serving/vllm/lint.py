"""The lint of a command line of vLLM for a version, and the command line as it should be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import yaml

from specops.errors import ConfigError
from specops.serving import known_issues
from specops.serving.argv import (
    Command,
    CommandLine,
    ConfigFile,
    Finding,
    LintResult,
    Unknown,
    Words,
    configured,
    error_flags,
    setting_words,
    settled,
    unknown_values,
)
from specops.serving.vllm.arguments import CALL, CONFIG, ParsedCommand, as_json
from specops.serving.vllm.rules import RULES
from specops.serving.vllm.versions import OLDEST, PACKAGES, Release, Version, installed, table

OMNI = "--omni"
"""Flag of vLLM-Omni, a package that takes over `vllm serve` where it has this flag."""

DECIDING = (
    "--speculative",
    "--spec-",
    "--config",
    "--tensor-parallel-size",
    "--pipeline-parallel-size",
    "--data-parallel-size",
    "--compilation-config",
    "--attention-config",
    "--attention-backend",
    "--optimization-level",
    "-O",
    "-ac",
)
"""Beginnings of the flags by whose values a rule finds an error."""


def config_words(settings: Mapping[str, object]) -> list[str]:
    """Return a file of --config as words, as vLLM reads it: the model is a word without a flag."""
    named = {str(key).replace("_", "-"): value for key, value in settings.items() if value is not None}
    words = [str(named.pop("model"))] if "model" in named else []
    return words + [word for key, value in named.items() for word in setting_words(key, value)]


CONFIG_FILE = ConfigFile(("--config",), config_words)


def lint(
    words: Sequence[str], version: Version | None, around: Mapping[str, str] | None = None
) -> list[Finding]:
    """Return the findings, errors first. `version`: None is the newest known. A command without findings may
    still be refused: vLLM decides.

    `around`: variables that are set outside the words. Raises ConfigError for a version older than `OLDEST`.
    """
    command, release = ParsedCommand.parse(words, around), table().release(version)
    if command.has(OMNI):
        return []
    findings, _ = settled(command, release, RULES, partial(_objections, release=release))

    def refused(words: Words) -> list[str]:
        return error_flags(ParsedCommand.parse(words.words(), around), release, RULES)

    issues = known_issues.findings("vllm", str(release.requested), command.as_words(), CALL, refused, around)
    return known_issues.joined(findings, issues)


def _objections(before: ParsedCommand, after: ParsedCommand, release: Release) -> list[str]:
    settings = [known_issues.settings_of(command.as_words(), CALL) for command in (before, after)]
    return known_issues.objections("vllm", str(release.requested), *settings)


def corrected(
    words: Sequence[str], version: Version | None, around: Mapping[str, str] | None = None
) -> list[str] | None:
    """The words with everything fixed that a rule can fix; None where there was nothing to fix."""
    command = ParsedCommand.parse(words, around)
    if command.has(OMNI):
        return None
    release = table().release(version)
    _, fixed = settled(command, release, RULES, partial(_objections, release=release))
    return None if fixed.words() == command.words() else fixed.words()


def judge(command: Command, requested: str | None) -> LintResult:
    """Judge a command. `requested`: a version that the operator names. Raises ConfigError for an invalid
    one."""
    version, because = _version(command, requested)
    release = table().release(version)
    words, unread = configured(command, CONFIG_FILE, CALL)
    around = command.environment
    parsed = ParsedCommand.parse(words, around)
    if parsed.has(OMNI):
        why = "vLLM-Omni has flags of its own, which were not judged"
        unread.append(Unknown(OMNI, why, "vllm serve --omni --help  # on the server's machine"))
    fixed = corrected(words, version, around)
    left = [finding for finding in lint(fixed or words, version, around) if finding.level == "error"]
    return LintResult(
        where=command.where,
        engine="vLLM",
        version=str(release.version),
        because=because,
        findings=lint(words, version, around),
        corrected=_text(fixed, command.flags_file) if fixed else None,
        left=left,
        unknown=[*command.unread, *unread, *unknown_values(parsed.as_words(), CALL, DECIDING)],
    )


def _version(command: Command, requested: str | None) -> tuple[Version, str]:
    """The release that the command is judged as, and why."""
    installed_version = None if requested or command.version else installed(command.words)
    if requested is None and command.version is None and installed_version is None:
        newest = "the newest known: no version was given, and the program is not on this machine"
        return table().newest, newest
    if requested is None and command.version is not None and not _is_release(command.version):
        because = f"the newest known: the image's tag, {command.version}, is not a release of vLLM"
        return table().newest, because
    version = installed_version or Version.parse(requested or command.version or "")
    read = command.version_source if command.version else "as the program says"
    source = "as requested" if requested else read
    if version < OLDEST:
        return table().newest, f"into which the command is translated; for {version}, {source}"
    judged = table().release(version).version
    if judged != version:
        last = table().newest
        unknown = "newer than any known" if version > last else f"not in the table of {OLDEST} to {last}"
        return judged, f"the nearest known before {version}, {source}, which is {unknown}"
    return version, source


def _is_release(tag: str) -> bool:
    """Builds of others have numbers of their own: lmcache/vllm-openai:v0.3.9, a year, a driver's version."""
    try:
        version = Version.parse(tag)
    except ConfigError:
        return False
    return version.numbers[0] == 0 and version >= table().versions[0]


def _text(words: Sequence[str], flags_file: bool) -> str:
    """Return the text to paste: for a shell, a flag a line; for `--config FILE`, as YAML."""
    command = ParsedCommand.parse(words)
    if not flags_file:
        return command.as_words().text()
    keys: dict[str, object] = {}
    for option in command.options:
        name = option.flag.removeprefix("--")
        values = [as_json(value) for value in option.values]
        if not values and name.startswith("no-"):
            keys[name.removeprefix("no-")] = False
        else:
            keys[name] = (values[0] if len(values) == 1 else values) if values else True
    if command.keys is not None:
        keys[CONFIG.removeprefix("--")] = command.as_words().value(CONFIG)
    return yaml.safe_dump(keys, sort_keys=False, width=1000)


COMMAND_LINE = CommandLine(
    call=CALL,
    example="vllm serve MODEL …",
    judge=judge,
    flag=lambda flag: table().history("flags", flag) is not None,
    packages=PACKAGES,
    usual_in=("production-stack", "llm-d", "KServe", "Ray", "KAITO"),
)
