"""Builds of llama.cpp: which flags each of them knows, and which one a program is.

The table is read from the sources of builds on PyPI, not from running them: tools/llamacpp_table.py. A build
between two of the table is judged by the earlier one.
"""

from __future__ import annotations

import functools
import json
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from specops.errors import ConfigError
from specops.hints import with_value

WHEEL = "xllamacpp"
"""The package on PyPI that has the server inside."""
VERSION_TIMEOUT_S = 30.0
_NUMBER = re.compile(r"(?:b|20\d\d\.\d+\.)?(\d{3,6})(?:\.\d+)?")
_SAID = re.compile(r"^version: (\d+) ", re.MULTILINE)


def parse(text: str) -> int:
    """Return 11549 of 11549, b11549, or 2026.10.11549 as the wheel has it. Raises ConfigError for an
    invalid build."""
    match = _NUMBER.fullmatch(text.strip())
    if match is None:
        newest = f"b{table().newest}"
        raise ConfigError(
            f"invalid build '{text}' of llama.cpp: expected a number, such as {newest}",
            hint=with_value(text, newest),
        )
    return int(match[1])


@dataclass(frozen=True)
class Build:
    """The flags and types that one build knows. `requested` is the build that was requested, where the table
    lacks it."""

    number: int
    requested: int
    flags: Mapping[str, int]
    """How many words follow a flag, by its name."""

    gone: Mapping[str, str]
    """Flags that it only refuses, and what it says to write instead."""

    types: frozenset[str]
    """Values of --spec-type."""

    numbers: frozenset[str]
    """Flags whose value is a number."""

    variables: Mapping[str, str]
    """The flag that a variable of the environment sets, and behind a space the one that turns it off."""

    def __str__(self) -> str:
        return f"b{self.requested}"

    @property
    def judged(self) -> str:
        """The build of the table that it is judged as."""
        return f"b{self.number}"


class LlamacppBuilds:
    def __init__(self, path: Path) -> None:
        raw = json.loads(path.read_text(encoding="utf-8"))
        self.builds: list[int] = raw["builds"]
        self._flags: Mapping[str, Mapping[str, str]] = raw["flags"]
        self._gone: Mapping[str, Mapping[str, str]] = raw["gone"]
        self._types: Mapping[str, str] = raw["types"]
        self._aliases: list[list[str]] = raw["aliases"]
        self._numbers: Mapping[str, str] = raw["numbers"]
        self._variables: Mapping[str, Mapping[str, str]] = raw["variables"]

    @property
    def newest(self) -> int:
        return self.builds[-1]

    def build(self, requested: int) -> Build:
        """Return the build of a number. Raises ConfigError for one from before the table's first."""
        earlier = [candidate for candidate in self.builds if candidate <= requested]
        if not earlier:
            raise ConfigError(
                f"llama.cpp b{requested} is older than the first known build: expected b{self.builds[0]} to "
                f"b{self.newest}",
                hint=with_value(f"b{requested}", f"b{self.newest}"),
            )
        number = earlier[-1]
        return Build(
            number,
            requested,
            flags={
                name: int(values)
                for name, by_arity in self._flags.items()
                for values, ranges in by_arity.items()
                if _within(number, ranges)
            },
            gone={
                name: message
                for name, messages in self._gone.items()
                for ranges, message in messages.items()
                if _within(number, ranges)
            },
            types=frozenset(name for name, ranges in self._types.items() if _within(number, ranges)),
            numbers=frozenset(name for name, ranges in self._numbers.items() if _within(number, ranges)),
            variables={
                name: flags
                for name, spans in self._variables.items()
                for ranges, flags in spans.items()
                if _within(number, ranges)
            },
        )

    def around(self, requested: int) -> Build:
        """Return the build as `build` does; for one between two of the table, also with what only the later
        has: it may be there.

        Raises ConfigError for a build before the table's first.
        """
        earlier = self.build(requested)
        later = next((self.build(candidate) for candidate in self.builds if candidate > requested), None)
        if earlier.number == requested or later is None:
            return earlier
        return replace(
            earlier,
            flags={**later.flags, **earlier.flags},
            types=earlier.types | later.types,
            variables={**later.variables, **earlier.variables},
        )

    def history(self, flag: str) -> str | None:
        """Return in which builds there is `flag`: "b8672 to b8929", "b9093 and newer"; None where in none."""
        return self._describe(
            [part for ranges in self._flags.get(flag, {}).values() for part in _pairs(ranges)]
        )

    def type_history(self, name: str) -> str | None:
        """Return the builds that have the --spec-type `name`, as text; None if there are none."""
        return self._describe(_pairs(self._types[name]) if name in self._types else [])

    def _describe(self, ranges: Sequence[tuple[int, int]]) -> str | None:
        spans = (
            f"b{first} and newer" if last == self.newest else f"b{first} to b{last}" for first, last in ranges
        )
        return " and ".join(spans) or None

    def is_switch(self, flag: str) -> bool:
        """Return whether the newest build that has `flag` takes no word after it."""
        spans = [(_pairs(ranges)[-1][1], int(values)) for values, ranges in self._flags.get(flag, {}).items()]
        return bool(spans) and max(spans)[1] == 0

    def variable_history(self, name: str) -> str | None:
        """Return the builds that read a variable of the environment, as text; None if there are none."""
        return self._describe([pair for ranges in self._variables.get(name, ()) for pair in _pairs(ranges)])

    def same(self, flag: str) -> set[str]:
        """Names that some build has for the same option, `flag` among them."""
        return {flag} | {name for names in self._aliases if flag in names for name in names}


def _pairs(ranges: str) -> list[tuple[int, int]]:
    parts = (part.split("-") for part in ranges.split(", "))
    return [(int(first), int(last)) for first, last in parts]


def _within(number: int, ranges: str) -> bool:
    return any(first <= number <= last for first, last in _pairs(ranges))


@functools.cache
def table() -> LlamacppBuilds:
    return LlamacppBuilds(Path(__file__).with_name("builds.json"))


def packaged() -> int | None:
    """The build inside the wheel; None: it is not installed here, or its version names none."""
    try:
        return parse(version(WHEEL))
    except (PackageNotFoundError, ConfigError):
        return None


@functools.cache
def _says(program: str) -> int | None:
    if shutil.which(program) is None:
        return None
    try:
        done = subprocess.run(
            [program, "--version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=VERSION_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _SAID.search(done.stdout + done.stderr)  # it says so on standard error
    return int(match[1]) if match else None


def installed(words: Sequence[str]) -> int | None:
    """The build that a command's program is; None: it is not here, or does not say."""
    if any(word == WHEEL or word.startswith("specops.serving.llamacpp") for word in words):
        return packaged()
    program = next((word for word in words if word.rsplit("/", 1)[-1] == "llama-server"), None)
    return _says(program) if program else None
