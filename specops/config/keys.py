"""The keys of the rollout file: each with its field, found by its path or by the place of an error.

A path is the keys that lead to a value, joined by dots: measure.concurrency. NAME stands for a key of the
user's choice. A place is what pydantic reports: it also has indices, and the member of a union, such as the
engine of a pool.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, get_args, get_origin

from pydantic.fields import FieldInfo

from specops.config.rollout import Rollout
from specops.quantities import Quantity, field_types, kind_of_field
from specops.section import Section

NAME = "NAME"
SELECTORS = ("engine", "kind")
"""Keys that select which section a mapping is."""


@dataclass(frozen=True)
class Key:
    """A key, or a section of keys."""

    place: tuple[str, ...]
    """The path, with the member of each union."""

    members: frozenset[int]
    """Indices in `place` of members of unions, which are no keys."""

    section: type[Section]
    """The section that has the key."""

    inner: tuple[tuple[str | None, type[Section]], ...]
    """Sections that are its value: by engine or kind where there are several; (): it has a value."""

    @cached_property
    def path(self) -> str:
        return ".".join(part for index, part in enumerate(self.place) if index not in self.members)

    @property
    def name(self) -> str:
        return self.place[-1]

    @property
    def member(self) -> str | None:
        """The engine of a pool or the kind of an action that has the key; None: all have it."""
        return next((self.place[index] for index in sorted(self.members)), None)

    @property
    def selects_member(self) -> bool:
        """Whether it names the engine of a pool or the kind of an action."""
        return self.name in SELECTORS

    @property
    def field(self) -> FieldInfo:
        return self.section.model_fields[self.name]

    @property
    def quantity(self) -> Quantity | None:
        """The kind of its number; None: it is not a number, or in another way as well."""
        return kind_of_field(self.section, self.name)

    @property
    def annotation(self) -> Any:
        return field_types(self.section)[self.name]


@cache
def keys() -> tuple[Key, ...]:
    """Every key, in the order of the sections."""
    return tuple(_keys(Rollout, (), frozenset()))


def _keys(section: type[Section], place: tuple[str, ...], members: frozenset[int]) -> Iterator[Key]:
    for name, field in section.model_fields.items():
        key_place = (*place, name)
        inner, named = tuple(_sections(field.annotation)), get_origin(field.annotation) is dict
        tagged = len(inner) > 1
        kinds = tuple((_tag(member_section) if tagged else None, member_section) for member_section in inner)
        yield Key(key_place, members, section, kinds)
        for tag, member_section in kinds:
            below = (*key_place, NAME) if named else key_place
            if tag is None:
                yield from _keys(member_section, below, members)
            else:
                yield from _keys(member_section, (*below, tag), members | {len(below)})


def _sections(annotation: Any) -> Iterator[type[Section]]:
    """The sections in the type of a field."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        yield annotation
    for part in get_args(annotation):
        yield from _sections(part)


def _tag(section: type[Section]) -> str:
    """The engine or kind that selects a section of a union."""
    name = next(name for name in SELECTORS if name in section.model_fields)
    return str(get_args(section.model_fields[name].annotation)[0])


def at_place(place: Sequence[str | int]) -> Key | None:
    """The key in whose value an error is, by the place that pydantic reports; None: it is in no key."""
    parts = tuple(str(part) for part in place if not isinstance(part, int))
    for end in range(len(parts), 0, -1):
        innermost = next((key for key in keys() if _fits(key.place, parts[:end])), None)
        if innermost is not None:
            return innermost
    return None


def by_path(path: str) -> list[Key]:
    """The keys that a user means with `path`: those of several engines or kinds where it does not name one.
    Empty: there is no such key."""
    parts = tuple(path.split("."))
    return [key for key in keys() if _fits(tuple(key.path.split(".")), parts) or _fits(key.place, parts)]


def _fits(place: Sequence[str], parts: Sequence[str]) -> bool:
    if len(place) == len(parts):
        return all(key in (NAME, part) for key, part in zip(place, parts, strict=True))
    # The name of the user's choice may be left out: monitor.alerts.for_s.
    return (
        NAME in place and len(place) == len(parts) + 1 and [key for key in place if key != NAME] == [*parts]
    )


def nearest(path: str) -> str | None:
    """The path that is most like an unknown one: of the same last key, or of a similar one."""
    paths = list(dict.fromkeys(key.path for key in keys()))
    last = path.rpartition(".")[2]
    same = [candidate for candidate in paths if candidate.rpartition(".")[2] == last]
    return next(iter(difflib.get_close_matches(path, same or paths, 1, 0.0 if same else 0.6)), None)
