"""Rules of engines for each kind of draft, by version, as data: what `verify-draft` decides by."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from specops.checkpoints.draft_kind import HEAD_FORMS, Kind

Version = tuple[int, int, int]
Does = Literal["works", "needs_setting", "refused"]
FIRST: Version = (0, 0, 0)


@dataclass(frozen=True)
class DraftRule:
    kinds: tuple[Kind, ...]
    since: Version
    does: Does
    why: str = ""
    """Why it is refused, or which setting it needs."""


OURS = DraftRule(
    tuple(kind for kind, form in HEAD_FORMS.items() if form.ours),
    FIRST,
    "refused",
    "the form is the embedded engine's own",
)
"""A rule of all other engines."""


@dataclass(frozen=True)
class KindByName:
    """Text in a draft's path, the kind that the engine takes such a draft for, and since when."""

    text: str
    kind: Kind
    since: Version


@dataclass(frozen=True)
class Format:
    """A property of a draft's files that the engine refuses before a release."""

    of: Literal["speculators", "parallel", "assistant"]
    since: Version
    why: str


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
class MaskedDrafts:
    """The way in which a whole model that drafts in one pass (PARD) is served."""

    since: Version
    why: str
    settings: Mapping[str, bool | int | str]
    method: str | None = None
    """None: as other draft models."""


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

    served: Callable[[ServedPair], str]
    """How to serve a pair, as words to paste."""

    oldest: Version = FIRST
    too_old: str = ""
    """Said of a version before the oldest."""

    versions: Literal["all", "newest", "own"] = "all"
    """newest: one release is known, and others are judged by it. own: this specops is the version."""

    formats: tuple[Format, ...] = ()
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
    masked: MaskedDrafts | None = None
    """None: it drafts with such a model token by token, as with any other."""
