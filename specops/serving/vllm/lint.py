"""What is wrong with a command line of vLLM for a version, and the command line as it should be."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import yaml

from specops.serving import known_issues
from specops.serving.argv import Command, CommandLine, Finding, Judged
from specops.serving.vllm import rules
from specops.serving.vllm.given import CALL, CONFIG, Given, as_json
from specops.serving.vllm.versions import Release, Version, installed, table

RULES: tuple[rules.Rule, ...] = (
    rules.unknown_flags,
    rules.old_way,
    rules.deprecated_flags,
    rules.secrets,
    rules.unread,
    rules.unknown_keys,
    rules.unknown_choices,
    rules.twice,
    rules.trees,
    rules.missing_method,
    rules.unknown_method,
    rules.missing_parts,
    rules.path_names,
    rules.ngrams,
    rules.lengths,
    rules.sampling,
    rules.vocabularies,
    rules.disable_by_batch_size,
    rules.schedule,
    rules.pipeline_parallel,
    rules.draft_tensor_parallel,
    rules.per_request_metrics,
    rules.module,
)
ROUNDS = 4
"""A fix may bring something else to light: a flag made a key, which this version does not have."""


def lint(words: Sequence[str], version: Version | None) -> list[Finding]:
    """Errors first. `version`: None is the newest known. What it does not say is no error: vLLM decides.

    ConfigError for a version from before the table's first.
    """
    given, release = Given.parse(words), table().release(version)
    found, _ = _corrected(given, release)
    found += known_issues.findings("vllm", str(release.asked), given.as_words(), CALL)
    order = ("error", "warning", "note")
    return sorted(dict.fromkeys(found), key=lambda finding: order.index(finding.level))


def corrected(words: Sequence[str], version: Version | None) -> list[str] | None:
    """The words with everything fixed that a rule can fix; None where there was nothing to fix."""
    given = Given.parse(words)
    _, fixed = _corrected(given, table().release(version))
    return None if fixed == given else fixed.words()


def _corrected(given: Given, release: Release) -> tuple[list[Finding], Given]:
    """What was found on the way, also where only a fix brought it to light, and where the way ends."""
    findings: list[Finding] = []
    for _ in range(ROUNDS):
        found = [entry for rule in RULES for entry in rule(given, release)]
        findings += [entry.finding for entry in found]
        before = given
        for entry in found:
            given = entry.fix(given) if entry.fix is not None else given
        if given == before:
            break
    return findings, given


def judge(command: Command, asked: str | None) -> Judged:
    """`asked`: a version that the operator names. ConfigError for one that is none, or is too old."""
    version, because = _version(command, asked)
    release = table().release(version)
    if release.asked != release.version:
        because += (
            f"; the table of {table().versions[0]} to {table().newest} lacks it: judged as {release.version}"
        )
    words = corrected(command.words, version)
    return Judged(
        where=command.where,
        engine="vLLM",
        version=str(version),
        because=because,
        findings=lint(command.words, version),
        corrected=_text(words, command.flags_file) if words else None,
        left=[found for found in lint(words or command.words, version) if found.level == "error"],
    )


def _version(command: Command, asked: str | None) -> tuple[Version, str]:
    if asked is not None:
        return Version.parse(asked), "as requested"
    if command.version is not None:
        return Version.parse(command.version), "as the image's tag says"
    found = installed(command.words)
    if found is not None:
        return found, "as the program says"
    return (
        table().newest,
        "the newest known: no version was given, and the program is not installed here",
    )


def _text(words: Sequence[str], flags_file: bool) -> str:
    """For a shell, a flag a line; for `--config FILE`, as YAML."""
    given = Given.parse(words)
    if flags_file:
        keys: dict[str, object] = {}
        for option in given.options:
            name = option.flag.removeprefix("--")
            values = [as_json(value) for value in option.values]
            keys[name] = (values[0] if len(values) == 1 else values) if values else True
        if given.keys is not None:
            keys[CONFIG.removeprefix("--")] = given.as_words().value(CONFIG)
        return yaml.safe_dump(keys, sort_keys=False, width=1000)
    parsed = given.as_words()
    lines = [shlex.join(parsed.program)] if parsed.program else []
    lines += [shlex.join([option.flag, *option.values]) for option in parsed.options]
    return " \\\n    ".join(lines) + "\n"


COMMAND_LINE = CommandLine(
    call=CALL,
    example="vllm serve MODEL …",
    judge=judge,
    flag=lambda flag: table().history("flags", flag) is not None,
)
