"""SGLang's releases: which flags and algorithms each of them knows.

The table is read from the sources of every release on PyPI, not from running them: tools/sglang_table.py. A
release between two of the table, such as 0.5.10.post1, is judged by the earlier one.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from specops.errors import ConfigError
from specops.hints import with_value
from specops.serving.argv import Arity

Kind = Literal["flags", "algorithms"]
Numbers = tuple[int, ...]


def parse(text: str) -> Numbers:
    """Return (0, 5, 10) of v0.5.10.post1. Raises ConfigError for an invalid version."""
    match = re.match(r"v?(\d+(?:\.\d+)+)", text.strip())
    if match is None:
        newest = table().newest.version
        raise ConfigError(
            f"invalid version '{text}' of SGLang: expected numbers and dots, such as {newest}",
            hint=with_value(text, newest),
        )
    return tuple(int(part) for part in match[1].split("."))


@dataclass(frozen=True)
class Release:
    """The flags and algorithms that one release knows."""

    version: str
    flags: frozenset[str]
    algorithms: frozenset[str]
    deprecated: Mapping[str, str]
    """Flags that still work and warn, and what they say."""

    def before(self, version: str) -> bool:
        return parse(self.version) < parse(version)

    def meant(self, flag: str) -> list[str]:
        """The flags that `flag` may stand for: argparse takes the beginning of a name."""
        if flag in self.flags:
            return [flag]
        return sorted(name for name in self.flags if flag.startswith("--") and name.startswith(flag))


class SglangReleases:
    def __init__(self, path: Path) -> None:
        raw: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        self.versions: list[str] = raw["versions"]
        self._names: Mapping[Kind, Mapping[str, str]] = {
            "flags": raw["flags"],
            "algorithms": raw["algorithms"],
        }
        self._arities: Mapping[str, Arity] = raw["arities"]
        self._deprecated: Mapping[str, Mapping[str, str]] = raw["deprecated"]
        self._known: dict[str, Release] = {}

    @property
    def newest(self) -> Release:
        return self._release(self.versions[-1])

    @property
    def oldest(self) -> str:
        return self.versions[0]

    def release(self, requested: str) -> Release:
        """`requested`, or the newest before it that the table has; for one older than the table, the newest.

        Raises ConfigError for an invalid version.
        """
        earlier = [candidate for candidate in self.versions if parse(candidate) <= parse(requested)]
        return self._release(earlier[-1] if earlier else self.versions[-1])

    def history(self, kind: Kind, name: str) -> str | None:
        """Return in which releases `name` is: "up to 0.5.19", "0.5.16 and newer"; None: in none."""
        ranges = self._names[kind].get(name)
        return " and ".join(map(self._describe_span, ranges.split(","))) if ranges else None

    def last_words(self, flag: str) -> str | None:
        """Return what the last release that deprecated `flag` said to write instead."""
        messages = self._deprecated.get(flag)
        return list(messages.values())[-1] if messages else None

    def arity(self, flag: str) -> Arity:
        """Return how many words it takes. An unknown one takes one, if any follows."""
        return self._arities.get(flag, "one" if self.history("flags", flag) else "maybe")

    def spelt(self, flag: str) -> str:
        """The flag that an abbreviation stands for in any release; `flag` where it may be several."""
        if flag in self._names["flags"] or not flag.startswith("--"):
            return flag
        meant = [name for name in self._names["flags"] if name.startswith(flag)]
        return meant[0] if len(meant) == 1 else flag

    def _release(self, version: str) -> Release:
        if version not in self._known:
            self._known[version] = Release(
                version,
                flags=self._names_in(version, "flags"),
                algorithms=self._names_in(version, "algorithms"),
                deprecated={
                    flag: text
                    for flag, messages in self._deprecated.items()
                    for ranges, text in messages.items()
                    if self._within(version, ranges)
                },
            )
        return self._known[version]

    def _names_in(self, version: str, kind: Kind) -> frozenset[str]:
        return frozenset(name for name, ranges in self._names[kind].items() if self._within(version, ranges))

    def _within(self, version: str, ranges: str) -> bool:
        index = self.versions.index(version)
        pairs = (part.split("-") for part in ranges.split(","))
        return any(self.versions.index(first) <= index <= self.versions.index(last) for first, last in pairs)

    def _describe_span(self, span: str) -> str:
        first, _, last = span.partition("-")
        if last == self.versions[-1]:
            return f"{first} and newer"
        if first == last:
            return f"{first} alone"
        return f"up to {last}" if first == self.oldest else f"{first} to {last}"


@functools.cache
def table() -> SglangReleases:
    return SglangReleases(Path(__file__).with_name("releases.json"))
