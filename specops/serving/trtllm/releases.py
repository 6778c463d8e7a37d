"""Releases of TensorRT-LLM: which flags of trtllm-serve and keys of its YAML file each of them knows.

The table (releases.json) says under `sources` what each release was read from. A release between two of the
table is judged by the earlier one; a name that only one of both has is not known of it. `single_keys` has
keys of releases of which nothing else was read. tools/trtllm_table.py adds a release from its sources.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specops.errors import ConfigError
from specops.hints import with_value
from specops.serving.argv import version_behind

PACKAGES = ("tensorrt_llm", "tensorrt-llm")
FINAL = 10**6
"""Sorts a release behind its candidates."""
_VERSION = re.compile(r"v?(\d+)\.(\d+)(?:\.(\d+))?(?:\.?rc(\d+))?(?:\.?post\d+)?(?:\.dev\w*)?")


@dataclass(frozen=True, order=True)
class Version:
    """1.3.0rc27: (1, 3, 0) and candidate 27. Builds after a release (post) count as it."""

    numbers: tuple[int, int, int]
    candidate: int = FINAL

    @classmethod
    def parse(cls, text: str) -> Version:
        """Return the version that `text` names. Raises ConfigError for an invalid version."""
        match = _VERSION.fullmatch(text.strip())
        if match is None:
            newest = table().newest
            raise ConfigError(
                f"invalid version '{text}' of TensorRT-LLM: expected numbers and dots, such as {newest}",
                hint=with_value(text, newest),
            )
        major, minor, patch, candidate = match.groups()
        return cls((int(major), int(minor), int(patch or 0)), FINAL if candidate is None else int(candidate))

    def __str__(self) -> str:
        candidate = "" if self.candidate == FINAL else f"rc{self.candidate}"
        return ".".join(map(str, self.numbers)) + candidate


@dataclass(frozen=True)
class Release:
    """The flags and keys that one release of the table knows. `requested` is the version that it stands
    for."""

    version: Version
    requested: Version
    flags: Mapping[str, int]
    """How many words follow a flag. Where a release's flags were not read, those of the next that were."""

    keys: frozenset[str]
    """Keys of the YAML file's top level."""

    complete: bool
    """Whether `keys` are all of them; else an unknown key may be a newer one."""

    base: frozenset[str]
    """Keys of speculative_config for every decoding type."""

    types: Mapping[str, frozenset[str]]
    """Decoding types, and the keys that each has besides."""

    unread: frozenset[str] = frozenset()
    """Types of the release before, of which this one's sources were not read."""

    ignores: bool = False
    """Whether speculative_config ignores a key that it does not have; else the server does not start."""

    def __str__(self) -> str:
        return str(self.version)

    def has(self, key: str) -> bool:
        """Return whether speculative_config has `key` for some decoding type."""
        return key in self.base or any(key in own for own in self.types.values())

    def reads(self, type_: str, key: str) -> bool | None:
        """Return whether speculative_config of a type has `key`; None: that was not read."""
        if key in self.base or key in self.types.get(type_, ()):
            return True
        return None if type_ in self.unread else False


class TrtllmReleases:
    def __init__(self, path: Path) -> None:
        raw = json.loads(path.read_text(encoding="utf-8"))
        self.sources: Mapping[str, str] = raw["sources"]
        self._single_keys = {
            Version.parse(name): frozenset(entry["keys"]) for name, entry in raw["single_keys"].items()
        }
        self._releases: dict[Version, Mapping[str, Any]] = {
            Version.parse(name): release for name, release in raw["releases"].items()
        }

    @property
    def versions(self) -> list[Version]:
        return sorted(self._releases)

    @property
    def newest(self) -> Version:
        """The newest release of which every type was read."""
        return max(version for version in self.versions if not self.release(version).unread)

    def release(self, requested: Version | None = None) -> Release:
        """Return the last of the table that is not newer than `requested`, else the oldest. None: the newest.

        A candidate before the first known one of its release is judged as that one, since it is nearer to it
        than to the release before.
        """
        requested = requested or self.newest
        before = [candidate for candidate in self.versions if candidate <= requested]
        own = [candidate for candidate in self.versions if candidate.numbers == requested.numbers]
        first = own and own[0] not in before
        version = own[0] if first else next(reversed(before), self.versions[0])
        raw = self._releases[version]
        speculative = raw["speculative"]
        later = (self._releases[v]["flags"] for v in self.versions if v >= version)
        return Release(
            version,
            requested,
            flags=next(flags for flags in later if flags),
            keys=frozenset(raw["keys"]),
            complete=raw["complete"],
            base=frozenset(speculative["base"]),
            types={name: frozenset(own) for name, own in speculative["types"].items()},
            unread=frozenset(speculative.get("unread", ())),
            ignores=raw.get("ignores", False),
        )

    def has_flag(self, requested: Version, flag: str) -> bool | None:
        """Return whether trtllm-serve of a release has `flag`; None: not known."""
        answers = {
            version: True if flag in raw["flags"] else None if raw.get("all_flags") is False else False
            for version, raw in self._releases.items()
            if raw["flags"]
        }
        return self._between(requested, answers)

    def has_key(self, requested: Version, key: str) -> bool | None:
        """Return whether a release has `key` at the top level of the YAML file; None: not known."""
        answers = {version: key in raw["keys"] for version, raw in self._releases.items()}
        single = {version: True for version, keys in self._single_keys.items() if key in keys}
        return self._between(requested, answers | single)

    def _between(self, requested: Version, answers: Mapping[Version, bool | None]) -> bool | None:
        """Return what the releases before and after `requested` agree on. The newest stands for newer ones,
        and the oldest says of older ones only what it has."""
        before = [version for version in sorted(answers) if version <= requested][-1:]
        after = [version for version in sorted(answers) if version >= requested][:1]
        either = {answers[version] for version in (*before, *after)}
        if not before:
            either.discard(False)
        return either.pop() if len(either) == 1 else None

    def reads(self, requested: Version, type_: str, key: str) -> bool | None:
        """Return whether a release reads `key` in speculative_config of a type; None: not known. A release
        that is not in the table is known by those before and after it, as far as they agree."""
        return self._agreed(requested, lambda release: release.reads(type_, key))

    def has_type(self, requested: Version, type_: str) -> bool | None:
        """Return whether a release has a decoding type; None: not known."""
        return self._agreed(
            requested, lambda release: None if type_ in release.unread else type_ in release.types
        )

    def _agreed(self, requested: Version, answer: Callable[[Release], bool | None]) -> bool | None:
        before = [candidate for candidate in self.versions if candidate <= requested]
        after = [candidate for candidate in self.versions if candidate >= requested]
        if not before or not after:
            return None
        first, second = (answer(self.release(version)) for version in (before[-1], after[0]))
        return first if first == second else None

    def having(self, flag: str) -> list[Version]:
        """The releases whose trtllm-serve has `flag`."""
        return [version for version in self.versions if flag in self.release(version).flags]


OF_TODAY = Version((1, 3, 0), 0)
"""From here on speculative_config is read as today; the table has nothing between 1.2.1 and 1.3.0rc26."""

FIRST_ON_PYTORCH = Version((1, 0, 0), 0)
"""Before it, trtllm-serve builds a TensorRT engine unless --backend pytorch is there."""


@functools.cache
def table() -> TrtllmReleases:
    return TrtllmReleases(Path(__file__).with_name("releases.json"))


def installed(words: Sequence[str]) -> Version | None:
    """The version of the trtllm-serve that `words` call; None: it is not here, or no Python knows it."""
    program = next((word for word in words if word.rsplit("/", 1)[-1] == "trtllm-serve"), None)
    answer = version_behind([program], PACKAGES) if program else None
    try:
        return Version.parse(answer) if answer else None
    except ConfigError:
        return None
