"""`launch lint`: commands and files that start a serving engine, held against the version they are for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from specops import results
from specops.launch.command_files import command_of, commands_in, judge
from specops.results import Result
from specops.serving import Judged

SOURCE = "by the flags and keys in the engine's released sources; nothing was run"
"""How commands are judged."""


class Linted(BaseModel):
    """`data` of the result."""

    commands: list[Judged]


def lint_words(words: Sequence[str], version: str | None = None) -> tuple[list[Judged], Result]:
    """UsageError for words that call no engine, ConfigError for a version that is none."""
    judged = [judge(command_of(words), version)]
    return judged, _result(judged, {}, version)


def lint_file(path: Path, version: str | None = None) -> tuple[list[Judged], Result]:
    """Every command in it. FileError where there is no file, UsageError where there is no command in it."""
    judged = [judge(command, version) for command in commands_in(path)]
    return judged, _result(judged, {path.name: results.sha256(path)}, version)


def _result(judged: list[Judged], inputs: dict[str, str], version: str | None) -> Result:
    """No where there is an error; a warning is none. The command is not stored: it may hold a key."""
    levels = [finding.level for one in judged for finding in one.findings]
    errors, warnings = levels.count("error"), levels.count("warning")
    settings: dict[str, Any] = {"engine_version": version}
    return Result(
        phase="lint",
        inputs=inputs,
        settings=settings,
        environment=results.environment(),
        verdict="no" if errors else "yes",
        reason=f"{_count(errors, 'error')}, {_count(warnings, 'warning')}" if errors or warnings else "clean",
        summary={"commands": len(judged), "errors": errors, "warnings": warnings, "judged": SOURCE},
        data=Linted(commands=judged).model_dump(mode="json"),
    )


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
