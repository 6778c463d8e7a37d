"""Acceptance: what an engine's series count, and what a request's own answer says of its drafts.

Every engine names these in its package (`Series.acceptance`, `Engine.answer_drafts`); docs/acceptance.md
compares their meanings. The measured length is tokens a verification yields, the target's own token
included; the rate is accepted over drafted tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Self

from specops.foreign_json import object_at

MOST = 2**31
"""A count above it is no count of one answer."""


@dataclass(frozen=True)
class Drafts:
    """What an engine shows of its drafts: counters, and gauges where it has no counter.

    A gauge is a mean over the engine's last iterations, and 0 while it decodes nothing. Its samples that show
    something are averaged; it never grows, so it is never summed or differenced. What follows from a gauge is
    an estimate. Every generated token that was not accepted is a verification's own: without a counter,
    accepted tokens are generated tokens less verifications, drafted tokens are accepted tokens over the rate,
    and verifications follow from the length.
    """

    drafts: str | None = None
    """Counter of verifications; with `of_first`, of drafted tokens by position: every draft has a first."""
    draft_tokens: str | None = None
    accepted_tokens: str | None = None
    per_position: str | None = None
    """Accepted tokens by the label that `position` names, from 0."""
    position: str = "position"
    of_first: bool = False
    rate: str | None = None
    """Gauge of accepted over drafted tokens."""
    length: str | None = None
    """Gauge of the tokens that a verification yields. It stands in where the counter of verifications is
    missing."""

    @property
    def counted(self) -> bool:
        """Return whether counters show all of it, so that nothing is estimated."""
        return None not in (self.drafts, self.draft_tokens, self.accepted_tokens)

    @property
    def counters(self) -> tuple[str, ...]:
        names = (self.drafts, self.draft_tokens, self.accepted_tokens, self.per_position)
        return tuple(dict.fromkeys(name for name in names if name is not None))

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.counters, *(name for name in (self.rate, self.length) if name is not None))

    @property
    def which(self) -> dict[str, str]:
        """The labels of `drafts` whose series count."""
        return {self.position: "0"} if self.of_first else {}


@dataclass(frozen=True, slots=True)
class RequestDrafts:
    """The drafts of one request, as its answer reports them. None is not reported, never zero."""

    drafted: int
    """Tokens that were proposed for it."""

    accepted: int
    """Those of them that the target accepted."""

    steps: int | None = None
    """Verifications that had a draft."""

    per_position: tuple[int, ...] | None = None
    """Accepted tokens by position, from 0."""

    @classmethod
    def read(cls, drafted: Any, accepted: Any, steps: Any = None, histogram: Any = None) -> Self | None:
        """Return the drafts from an answer's JSON; None where these are no counts. `histogram[j]` is the
        number of steps that accepted exactly j tokens."""
        if not (_is_count(drafted) and _is_count(accepted) and accepted <= drafted):
            return None
        positions = None
        if isinstance(histogram, list) and histogram and all(map(_is_count, histogram)):
            # A step that accepted j tokens accepted those at the positions 0 to j - 1.
            reached = list(accumulate(reversed(histogram)))[::-1]
            positions = tuple(reached[1:]) if sum(reached[1:]) == accepted else None
        return cls(drafted, accepted, steps if _is_count(steps) else None, positions)


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= MOST


def read_speculative_decoding(body: Mapping[str, Any]) -> RequestDrafts | None:
    """The drafts in vLLM's `metrics.speculative_decoding` (PR 48915), which comes once, beside the usage."""
    reported = object_at(body, "metrics", "speculative_decoding")
    return RequestDrafts.read(
        reported.get("num_draft_tokens"),
        reported.get("num_accepted_draft_tokens"),
        reported.get("num_spec_steps"),
        reported.get("acceptance_histogram"),
    )
