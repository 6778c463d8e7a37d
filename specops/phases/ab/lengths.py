"""Whether the challenger's answers are as long as the standard's. Pure.

An arm that stops early is done early. Where answers differ in length, the end-to-end ratio compares different
work and is no evidence of speed; the time per output token is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict

from specops import stats
from specops.phases.ab.speedups import Pair, Shown, Taken
from specops.stats import Interval

LARGEST_UNKNOWN = 1.15
"""Nothing is deployed before a larger difference of lengths, either way, is excluded."""

Finding = Literal["equal", "shorter", "longer", "open"]
"""equal: the interval lies within the margin. shorter, longer: the challenger's answers surely are, by more
than the margin. open: neither."""

Unit = Literal["tokens", "characters"]


class Lengths(BaseModel):
    """The challenger's answers compared with the standard's, paired by prompt."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    unit: Unit
    prompts: int
    ratio: Shown | None
    """The challenger's length over the standard's; None with too few prompts for an interval."""

    finding: Finding
    standard_cut: int
    """Answers of the standard that ended at the length limit although the challenger's went on."""

    more_prompts: int | None = None
    """That would exclude a difference above `LARGEST_UNKNOWN`, at the present estimate; 0 where it is
    excluded, None where no number is known."""

    @property
    def differ(self) -> bool:
        return self.finding in ("shorter", "longer")

    def __str__(self) -> str:
        """Such as `answers are 48% [45, 51] shorter`."""
        if self.ratio is None:
            return f"answers: too few prompts to compare their {self.unit}"
        of = "" if self.unit == "tokens" else ", in characters"
        change = [100 * (end - 1) for end in (self.ratio.estimate, self.ratio.low, self.ratio.high)]
        if change[0] < 0:
            estimate, low, high = -change[0], -change[2], -change[1]
            return f"answers are {estimate:.0f}% [{low:.0f}, {high:.0f}] shorter{of}"
        return f"answers are {change[0]:.0f}% [{change[1]:.0f}, {change[2]:.0f}] longer{of}"


def compare(pairs: Sequence[Pair], margin: float, confidence: float) -> Lengths | None:
    """The lengths of the answers in `pairs`, in tokens; in characters where tokens are not known, or where
    only the characters surely differ: a server may count tokens that it did not send. None without pairs."""
    if not any(pair.characters or pair.tokens for pair in pairs):
        return None
    tokens, characters = (_compare(pairs, unit, margin, confidence) for unit in ("tokens", "characters"))
    if tokens is None or (characters is not None and characters.differ and not tokens.differ):
        return characters
    return tokens


def _compare(pairs: Sequence[Pair], unit: Unit, margin: float, confidence: float) -> Lengths | None:
    rounds: list[tuple[Taken, ...]] = [pair.tokens if unit == "tokens" else pair.characters for pair in pairs]
    known = [(sum(one for one, _ in each), sum(other for _, other in each)) for each in rounds if each]
    if not known or (unit == "tokens" and 2 * len(known) < len(pairs)):
        return None
    # A prompt whose answer is empty in one arm still counts; a length of nothing has no ratio by itself.
    ours, theirs = [max(one, _LEAST) for one, _ in known], [max(other, _LEAST) for _, other in known]
    ratio = stats.paired_ratio(theirs, ours, level=confidence)
    finding = _finding(ratio, margin)
    return Lengths(
        unit=unit,
        prompts=len(known),
        ratio=ratio,
        finding=finding,
        standard_cut=sum(pair.standard_cut for pair in pairs) if finding == "longer" else 0,
        more_prompts=_more(ratio),
    )


def _finding(ratio: Interval | None, margin: float) -> Finding:
    if ratio is None:
        return "open"
    if ratio.high < 1 / (1 + margin):
        return "shorter"
    if ratio.low > 1 + margin:
        return "longer"
    within = 1 / (1 + margin) <= ratio.low and ratio.high <= 1 + margin
    return "equal" if within else "open"


def _more(ratio: Interval | None) -> int | None:
    if ratio is None:
        return None
    bound = math.log(LARGEST_UNKNOWN)
    half = math.log(ratio.high / ratio.low) / 2
    room = bound - abs(math.log(ratio.estimate))
    if half <= room:
        return 0
    if room <= 0:
        return None
    return math.ceil(ratio.n * ((half / room) ** 2 - 1))


_LEAST = 0.5
