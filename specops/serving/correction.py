"""Rules of a lint: what one finds, and how it changes the command so that it is not found again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from specops.serving.argv import Finding, Words

W = TypeVar("W", bound=Words)
C = TypeVar("C")

ROUNDS = 4
"""A fix may bring something else to light: a flag made a key, which this version does not have."""
ORDER = ("error", "warning", "note")


@dataclass(frozen=True)
class Found(Generic[W]):
    finding: Finding
    fix: Callable[[W], W] | None = None
    """None: a person has to."""


def settled(
    given: W, context: C, rules: Iterable[Callable[[W, C], Iterator[Found[W]]]]
) -> tuple[list[Finding], W]:
    """What the rules find, also where only a fix brought it to light, and the command with all fixes.

    `context`: what the rules hold the command against, such as a release.
    """
    rules = list(rules)
    findings: list[Finding] = []
    for _ in range(ROUNDS):
        found = [entry for rule in rules for entry in rule(given, context)]
        findings += [entry.finding for entry in found]
        before = given
        for entry in found:
            given = entry.fix(given) if entry.fix is not None else given
        if given == before:
            break
    return findings, given


def by_level(findings: Sequence[Finding]) -> list[Finding]:
    """Each once, errors first."""
    return sorted(dict.fromkeys(findings), key=lambda finding: ORDER.index(finding.level))
