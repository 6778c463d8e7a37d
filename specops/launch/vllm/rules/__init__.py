"""What can be wrong with a command line of vLLM. A rule looks at one subject and yields what it finds.

What a version knows is in the table (versions.json), from the released sources. What a version does with
what it knows is said here, with the release in whose source it was read, or the thread where it is told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from specops.launch.findings import Finding, Level
from specops.launch.vllm.given import CONFIG, Given
from specops.launch.vllm.versions import Release

Mend = Callable[[Given], Given]


class Found(NamedTuple):
    finding: Finding
    mend: Mend | None = None
    """Changes the command line so that it is not found again; None: a person has to."""


Rule = Callable[[Given, Release], Iterator[Found]]


def of_flag(
    level: Level, flag: str, why: str, replacement: str | None = None, mend: Mend | None = None
) -> Found:
    return Found(Finding(level, flag, why, replacement), mend)


def of_key(
    level: Level, key: str, why: str, replacement: str | None = None, mend: Mend | None = None
) -> Found:
    """About a key of the JSON of --speculative-config."""
    return Found(Finding(level, f"{CONFIG} {key}", why, replacement), mend)
