"""Rules of engines for each kind of draft, by version, as data: what `verify-draft` decides by."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from specops.checkpoints.draft_kind import HEAD_FORMS, Kind

Version = tuple[int, int, int]
Does = Literal["works", "needs_setting", "refused", "unknown"]
FileFormat = Literal["safetensors", "gguf"]
FIRST: Version = (0, 0, 0)


@dataclass(frozen=True)
class DraftRule:
    kinds: tuple[Kind, ...]
    since: Version
    does: Does
    why: str = ""
    """Why it is refused, or which setting it needs, or what is not known of it."""

    method: str | None = None
    """Its method, where it is not that of `DraftSupport.methods`."""

    settings: Mapping[str, bool | int | str] = field(default_factory=dict)
    """What must be set beside the method, by the engine's own names."""


OURS = DraftRule(
    tuple(kind for kind, form in HEAD_FORMS.items() if form.embedded_only),
    FIRST,
    "refused",
    "the form is the embedded engine's own",
)
"""A rule of all other engines."""


@dataclass(frozen=True)
class KindByName:
    """Text in a draft's path, the kinds that the engine takes such a draft for, and since when."""

    text: str
    kinds: tuple[Kind, ...]
    since: Version


@dataclass(frozen=True)
class OtherVocabulary:
    """The way in which a draft model whose vocabulary is not the target's is served."""

    since: Version
    settings: Mapping[str, bool | int | str]
    before: str
    """What follows the refusal of an earlier release."""

    needed: str
    """What follows the refusal of a release that has it."""

    way: str
    """What it could do for ids that differ."""


@dataclass(frozen=True)
class PositionRule:
    """What happens at prompts that are longer than a head's max_position_embeddings. The first rule that fits
    the kind and the version holds."""

    kinds: tuple[Kind, ...]
    since: Version
    does: Literal["extends", "needs_setting", "fails", "unknown"]
    why: str
    settings: Mapping[str, bool | int | str] = field(default_factory=dict)


@dataclass(frozen=True)
class PlainLayer:
    """A layer of a head that an engine holds without quantisation."""

    kinds: tuple[Kind, ...]
    layer: str
    """A pattern for the name of its tensors, without prefix and suffix."""

    before: Version | None
    """The release that can hold it quantised; None: no known release."""

    effect: str
    """What it does with quantised tensors."""

    source: str


@dataclass(frozen=True)
class Inheritance:
    """By which quantisation an engine builds the layers of a draft of `kinds`; it takes its dtype from the
    target."""

    kinds: tuple[Kind, ...]
    quantised_by: Literal["target", "flag", "draft"]
    """target: the target's config. flag: the target's flag where one is given, else the draft's own config.
    draft: the draft's own config."""

    source: str
    flag: str = ""
    """What keeps the target's flag from the draft."""


class HeadTable:
    """Which release knows which head, and reads which keys of its config: heads.json of an engine's package,
    made by tools/heads_table.py."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @cached_property
    def _raw(self) -> dict[str, Any]:
        raw: dict[str, Any] = json.loads(self._path.read_text(encoding="utf-8"))
        return raw

    @cached_property
    def _versions(self) -> list[Version]:
        return [_number(version) for version in self._raw["versions"]]

    def knows(self, architecture: str, version: Version) -> bool:
        return self._within(self._raw["architectures"].get(architecture), version)

    def reads_format(self, name: str, version: Version) -> bool:
        """Return whether a release reads the speculators format of that type."""
        return self._within(self._raw["formats"].get(name), version)

    def since(self, section: Literal["architectures", "formats"], name: str) -> str | None:
        """Return the first release that has it; None: none has."""
        ranges = self._raw[section].get(name)
        return str(ranges).partition("-")[0] if ranges else None

    def keys(self, family: str, version: Version) -> frozenset[str] | None:
        """Return the keys of a head's config that a release reads. None: the table has no such family."""
        table = self._raw["keys"].get(family)
        if table is None:
            return None
        return frozenset(key for key, ranges in table.items() if self._within(ranges, version))

    def first_to_read(self, family: str, key: str) -> str | None:
        ranges = self._raw["keys"].get(family, {}).get(key)
        return str(ranges).partition("-")[0] if ranges else None

    def all_keys(self, family: str) -> Collection[str]:
        """Return the keys that any release reads."""
        keys: Collection[str] = self._raw["keys"].get(family, {}).keys()
        return keys

    def _within(self, ranges: str | None, version: Version) -> bool:
        earlier = [number for number in self._versions if number <= version]
        judged = earlier[-1] if earlier else self._versions[0]
        if ranges is None or version < self._versions[0]:
            return False
        pairs = (part.split("-") for part in ranges.split(","))
        return any(_number(first) <= judged <= _number(last) for first, last in pairs)


def _number(text: str) -> Version:
    parts = [int(part) for part in re.findall(r"\d+", text)[:3]]
    major, minor, patch = [*parts, 0, 0, 0][:3]
    return major, minor, patch


@dataclass(frozen=True)
class ServedPair:
    """A pair that passed, for the line that says how to serve it."""

    target: str
    draft: str | None
    """None: it needs no model of its own."""

    method: str
    tokens: int
    settings: Mapping[str, bool | int | str]
    tree: str | None = None
    """The tree that `--measure` chose on the embedded engine."""


@dataclass(frozen=True)
class DraftSupport:
    """The kinds of drafts that an engine serves. Of the rules, the first that fits holds."""

    newest: str
    rules: tuple[DraftRule, ...]
    methods: Mapping[Kind, str]
    method_key: str
    """Where the method is named."""

    describe_serving: Callable[[ServedPair], str]
    """How to serve a pair, as words to paste."""

    reads: tuple[FileFormat, ...] = ("safetensors",)
    """Formats that its reading of checkpoints is known for."""

    oldest: Version = FIRST
    too_old: str = ""
    """Said of a version before the oldest."""

    versions: Literal["all", "own"] = "all"
    """own: this specops is the version."""

    has_method: Callable[[str, str], bool | None] | None = None
    """Whether a release, by its version, has a method; its answer None: not known. None: `rules` say it for
    each version."""

    guesses: tuple[KindByName, ...] | None = None
    """What it reads from a draft's path. None: nothing."""

    named_for_good: tuple[Kind, ...] = ()
    """Methods that, once named, it does not change by the path's text."""

    divides: bool = False
    """Whether it divides a draft model among GPUs as it does the target."""

    spare_tokens: int = 0
    """So many tokens may one of two vocabularies have behind the other's last."""

    refuses: str = "does not start with them"
    """What it does with vocabularies of sizes that differ by more."""

    same_tokens: str | None = None
    """Why draft models need the target's very tokens. None: equal sizes are enough."""

    heads_compared: bool = False
    """The vocabulary sizes of heads are compared, too, and their forms are checked against its own."""

    other_vocabulary: OtherVocabulary | None = None
    heads: HeadTable | None = None
    """None: which keys of a head's config it reads is not known, or `switches` says all of it."""

    switches: Collection[str] = ()
    """Keys of EAGLE-3.1 that every release reads, where there is no table of heads."""

    strict: bool = False
    """Whether it ends at a tensor that it has no place for; else it skips it without a word."""

    positions: tuple[PositionRule, ...] = ()
    plain: tuple[PlainLayer, ...] = ()
    inherits: tuple[Inheritance, ...] = ()
    feature_keys: tuple[tuple[str, ...], ...] | None = None
    """Paths in a head's config that give the number of features of EAGLE-3; without any of them it takes 3.
    Empty: it always takes 3. None: which it reads is not known."""

    shares_output: Literal["always", "without draft_vocab_size", "unknown"] = "unknown"
    """Whether a head without an output head of its own uses the target's."""

    architecture: Callable[[Kind, str, str | None, str], str | None] | None = None
    """The class that it loads a head as: from its kind, the architecture and `speculators_model_type` of its
    config, and its model_type. None: not decided by the architecture."""

    speculators: bool | None = None
    """Whether it reads the speculators format, where `heads` does not say since when."""
