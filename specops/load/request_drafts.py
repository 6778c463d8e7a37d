"""Acceptance by request: what answers report of their drafts, pooled over all rows, a class, or a prompt
length.

Tokens are pooled, never rates: an answer of a few tokens must not count as much as one of a thousand. Rows
whose answer reports nothing are left out and counted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from specops.load.workload import stage

SHORT = 128
"""Prompt tokens of the shortest class of length; each further class ends at four times the one before."""


class Reporting(Protocol):
    """A request with its drafts, such as a row of a cell."""

    @property
    def traffic_class(self) -> str: ...
    @property
    def turn(self) -> int: ...
    @property
    def prompt_tokens(self) -> int | None: ...
    @property
    def drafted(self) -> int | None: ...
    @property
    def accepted(self) -> int | None: ...
    @property
    def draft_steps(self) -> int | None: ...
    @property
    def accepted_per_position(self) -> tuple[int, ...] | None: ...


@dataclass(frozen=True)
class PooledDrafts:
    requests: int
    """Requests that report their drafts."""

    silent: int
    """Requests that do not."""

    drafted: int
    accepted: int
    steps: int | None
    """None where some of the requests do not report it."""

    per_position: tuple[int, ...]

    @property
    def rate(self) -> float | None:
        return self.accepted / self.drafted if self.drafted else None

    @property
    def length(self) -> float | None:
        """Tokens a verification yields, the target's own included."""
        return 1 + self.accepted / self.steps if self.steps else None


def pooled(rows: Iterable[Reporting]) -> PooledDrafts | None:
    """Return the drafts of all `rows` together; None where none reports any."""
    requests = silent = drafted = accepted = 0
    steps: int | None = 0
    positions: dict[int, int] = defaultdict(int)
    for row in rows:
        if row.drafted is None or row.accepted is None:
            silent += 1
            continue
        requests += 1
        drafted += row.drafted
        accepted += row.accepted
        steps = None if steps is None or row.draft_steps is None else steps + row.draft_steps
        for position, count in enumerate(row.accepted_per_position or ()):
            positions[position] += count
    if not requests:
        return None
    per_position = tuple(positions[position] for position in sorted(positions))
    return PooledDrafts(requests, silent, drafted, accepted, steps, per_position)


def by_class(rows: Iterable[Reporting]) -> dict[str, PooledDrafts]:
    """Return the drafts of each traffic class that reports any."""
    return _grouped((row.traffic_class, row) for row in rows)


def by_turn(rows: Iterable[Reporting]) -> dict[str, PooledDrafts]:
    """Return the drafts by the turn of a conversation, from the first; late turns several together."""
    in_turn = sorted(rows, key=lambda row: row.turn)
    return _grouped((f"turn {stage(row.turn)}{'+' if row.turn > 4 else ''}", row) for row in in_turn)


def by_prompt_length(rows: Iterable[Reporting]) -> dict[str, PooledDrafts]:
    """Return the drafts by the length of the prompt, from short to long, where both are reported."""
    sized = [(row.prompt_tokens, row) for row in rows if row.prompt_tokens is not None]
    sized.sort(key=lambda pair: pair[0])
    return _grouped((length_class(tokens), row) for tokens, row in sized)


def length_class(tokens: int) -> str:
    """Return the class of a prompt's length: "1-128 tokens", "129-512 tokens", …"""
    lower, upper = length_bounds(tokens)
    return f"{lower}-{upper} tokens"


def length_bounds(tokens: int) -> tuple[int, int]:
    """Return the fewest and the most prompt tokens of the class of a prompt's length."""
    lower, upper = 1, SHORT
    while tokens > upper:
        lower, upper = upper + 1, upper * 4
    return lower, upper


def _grouped(pairs: Iterable[tuple[str, Reporting]]) -> dict[str, PooledDrafts]:
    groups: dict[str, list[Reporting]] = defaultdict(list)
    for name, row in pairs:
        groups[name].append(row)
    return {name: drafts for name, rows in groups.items() if (drafts := pooled(rows)) is not None}
