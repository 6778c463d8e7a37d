"""The form of a rule of vLLM's lint: it looks at one subject and yields what it finds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias, TypeGuard

from specops.serving import argv
from specops.serving.argv import Finding, Level
from specops.serving.vllm.arguments import CONFIG, ParsedCommand
from specops.serving.vllm.versions import Release

Found: TypeAlias = argv.RuleFinding[ParsedCommand]
Fix = Callable[[ParsedCommand], ParsedCommand]
Rule = Callable[[ParsedCommand, Release], Iterator[Found]]


def of_flag(
    level: Level, flag: str, why: str, replacement: str | None = None, fix: Fix | None = None
) -> Found:
    return Found(Finding(level, flag, why, replacement), fix)


def of_key(level: Level, key: str, why: str, replacement: str | None = None, fix: Fix | None = None) -> Found:
    """Return a finding about a key of the JSON of --speculative-config."""
    return Found(Finding(level, f"{CONFIG} {key}", why, replacement), fix)


def is_whole(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)
