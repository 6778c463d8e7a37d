"""Any command of a serving engine: for which version it is judged, what is wrong, and how it should be."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

import yaml

from specops.config.starting import SECRET_FLAGS
from specops.launch import sglang
from specops.launch.findings import Finding
from specops.launch.reading import Command
from specops.launch.vllm import lint as vllm
from specops.launch.vllm.given import CONFIG, Given, as_json
from specops.launch.vllm.installed import installed
from specops.launch.vllm.versions import Version, table
from specops.launch.words import Words


@dataclass(frozen=True)
class Judged:
    """`version` is the one that was judged for, and `because` why it; `corrected` the text to paste, where
    something could be mended, and `left` the errors that it still has: those a person has to mend."""

    where: str
    engine: str
    version: str
    because: str
    findings: list[Finding]
    corrected: str | None
    left: list[Finding]


def judge(command: Command, asked: str | None = None) -> Judged:
    """`asked`: a version that the operator names. ConfigError for one that is none, or is too old."""
    return _sglang(command, asked) if command.engine == "sglang" else _vllm(command, asked)


def _vllm(command: Command, asked: str | None) -> Judged:
    version, because = _version(command, asked)
    release = table().release(version)
    if release.asked != release.version:
        because += (
            f"; the table of {table().versions[0]} to {table().newest} lacks it: judged as {release.version}"
        )
    words = vllm.corrected(command.words, version)
    return Judged(
        where=command.where,
        engine="vLLM",
        version=str(version),
        because=because,
        findings=vllm.lint(command.words, version),
        corrected=_text(words, command.flags_file) if words else None,
        left=[f for f in vllm.lint(words or command.words, version) if f.level == "error"],
    )


def _sglang(command: Command, asked: str | None) -> Judged:
    version = asked or command.version or sglang.VERSION
    because = f"its flags are known of {sglang.VERSION}"
    findings = sglang.lint(command.words)
    given = Words.parse(command.words)
    for flag in SECRET_FLAGS:
        if given.has(flag):
            why = "whoever lists processes, reads the manifest or the shell's history has the secret"
            findings.append(Finding("warning", flag, why, "a file that only the server can read"))
    errors = [finding for finding in findings if finding.level == "error"]
    return Judged(command.where, "SGLang", version, because, findings, None, errors)


def _version(command: Command, asked: str | None) -> tuple[Version, str]:
    if asked is not None:
        return Version.parse(asked), "as asked"
    if command.version is not None:
        return Version.parse(command.version), "as the image's tag says"
    found = installed(command.words)
    if found is not None:
        return found, "as the program says"
    return (
        table().newest,
        "the newest known, for no version was given and the program is not here to be asked",
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
