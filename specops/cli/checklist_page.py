"""The page of `checklist`: a line an item with its evidence, the verdict, and what to do next."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from specops.phases.checklist.checklist import FILE
from specops.phases.checklist.item import Checked, Item
from specops.phases.measurement import checked
from specops.render.figures import NONE, aligned, sentence
from specops.results import Result

HASH_DIGITS = 12


def page(result: Result, folder: Path) -> list[str]:
    """The page's lines. All that is on it is in checklist.json."""
    items = checked(Checked, result.data, f"{FILE} is damaged: data").items
    counts = ", ".join(f"{count} {status}" for status, count in result.summary.items() if count)
    lines = [f"checklist · {result.settings['rollout']} · {folder} · {counts}"]
    told = aligned([[f"  {item.status}", item.name, _age(item), _evidence(item)] for item in items])
    for item, line in zip(items, told, strict=True):
        lines += [line, f"            {item.found}"]
    lines.append(sentence(result.reason))
    lines += _next(items)
    return lines


def _evidence(item: Item) -> str:
    """Each file with the beginning of its hash; a live probe by who answered."""
    told = (
        f"{one.source} {one.sha256[:HASH_DIGITS]}" if one.sha256 else f"{one.source} (live)"
        for one in item.evidence
    )
    return ", ".join(told) or NONE


def _age(item: Item) -> str:
    return age(max(one.age_s for one in item.evidence)) if item.evidence else NONE


def age(seconds: float) -> str:
    """In words, rounded down; of the oldest evidence.

    >>> age(90000.0)
    '1 day'
    """
    for unit, length in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= length:
            number = int(seconds // length)
            return f"{number} {unit}{'s' if number > 1 else ''}"
    return "now"


def _next(items: list[Item]) -> Iterator[str]:
    """What failed before what is open. A command that decides several items is printed once, after what to
    change before it; what follows its # is for people, and no shell reads it."""
    todo: dict[str, list[Item]] = {}
    for status in ("failed", "open"):
        for item in items:
            if item.status == status and item.decide:
                todo.setdefault(item.decide, []).append(item)
    for command, of in todo.items():
        for item in of:
            if item.change:
                yield f"change: {item.change}  ({item.name})"
        yield f"next: {command}  # {', '.join(item.name for item in of)}"
