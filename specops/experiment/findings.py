"""Findings: what was looked for, what was observed, its bound, its margin, and what that means. Plain
data."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, PlainSerializer

from specops.load.arrivals import Level
from specops.load.record import positive
from specops.results import Verdict
from specops.section import Frozen
from specops.stats import Interval

ClaimName = Literal[
    "wait", "open-loop wait", "sampled wait", "failures", "answers", "sampled answers", "length",
    "first token", "speculation", "cached tokens",
]  # fmt: skip
"""What must hold for a deployment; claims.py has what each means."""

Ternary = Literal["shown", "open", "against", "unknown"]
"""shown: the bound is inside the margin. against: it is surely outside. open: neither yet. unknown:
nothing was observed that could show it."""

Cause = Literal[
    "time", "drift", "order", "place", "connection", "repeat", "pause", "client", "late", "always fails",
    "other answers", "turn", "context", "cache", "unmatched",
    "few windows", "temperature", "blind", "standard", "starts", "other prompts", "not decoding", "accepted",
    "known prompt", "incomparable",
]  # fmt: skip
"""What stands between the observations and a yes: a factor (factors.py), or a condition.

drift: an even change of one server would have made the gain, and is not excluded. client: this program
limited the load. late: requests that fail or hang cost more than the others gain. always fails: one prompt
fails each time. other answers: greedy answers differ beyond near ties. few windows: too few for an interval.
temperature: sampled answers are the greedy ones. blind: the standard repeats too few of its own answers to
compare with. standard: it varies itself as much. starts: starts of servers differ by more than is gained.
other prompts: the arms count different numbers of tokens in a prompt. not decoding: the gain is not in the
time per output token. accepted: the operator accepts it. cache: one arm had surely more of its prompt tokens
in its cache; of a wait, a factor: what of a prompt a cache may know. unmatched: too many turns on own answers
have no turn of the other arm with a prompt of like length. incomparable: no request has a time to compare in
both arms.
"""

StoredInterval = Annotated[
    Interval,
    PlainSerializer(lambda interval: {name: round(value, 6) for name, value in vars(interval).items()}),
]
"""An interval as it is stored: six digits are more than any measurement has."""


def _usable(interval: Interval | None) -> Interval | None:
    return interval if interval is not None and positive(interval.low) is not None else None


Ratio = Annotated[StoredInterval | None, AfterValidator(_usable)]
"""A ratio of latencies or rates; None where it is unknown: a ratio that reaches 0 is not evidence."""

Basis = Literal["e2e", "tpot", "per_character"]
"""What a load was decided on: the end-to-end time, the time per output token, or, where tokens are not known,
the time per character."""


class Part(Frozen):
    """One side of a factor that divides the samples."""

    name: str
    ratio: Ratio


class Counts(Frozen):
    """How often something happened in each arm."""

    standard: int
    standard_n: int
    challenger: int
    challenger_n: int


class Finding(Frozen):
    """One line of the table on which a decision rests."""

    claim: ClaimName
    traffic_class: str | None = None
    """None: all classes."""

    load: Level | None = None
    """None: all loads together."""

    scope: Literal["measured", "open", "mixed", "warm-up"] = "measured"
    verdict: Ternary
    ratio: Ratio = None
    """Of a claim on a ratio: the observed value with its interval."""

    counts: Counts | None = None
    """Of a claim on a share."""

    bound: float | None = None
    """The end of the interval, or the one-sided bound, that is held against the margin."""

    margin: float | None = None
    unit: Literal["", "ms"] = ""
    """Of the bound and the margin: those of a ratio and of a share have none."""

    n: int = 0
    """Requests to the challenger, or pairs of requests."""

    basis: Basis = "e2e"
    cause: Cause | None = None
    parts: list[Part] = Field(default_factory=list)
    needs: int | None = None
    """Further requests that would settle it, at the present estimate; None where no number would, or none is
    needed."""

    examples: list[str] = Field(default_factory=list)
    """What was observed, such as the error of a failed request: quoted, never read by a program."""

    @property
    def decides(self) -> bool:
        """Return whether a page shows it: counts of rare events at one load only where they are against."""
        return self.load is None or self.claim not in ("failures", "answers") or self.verdict == "against"


class Decision(Frozen):
    """The decision on a traffic class, a load, a challenger, or all."""

    verdict: Verdict
    reason: str
    speedup: Ratio = None
    """Speed-up in `basis`; None where something else decided."""

    basis: Basis = "e2e"
    more_prompts: int | None = None
    """Number of further requests of each class that would decide what is undecided; None where none would."""

    findings: list[Finding] = Field(default_factory=list)
    """What decided: of a yes all that was shown, of a no what speaks against it, else what is open."""
