"""Confounders, which make an arm look faster than it is: failures, slow requests, other lengths, other
prompts, and caches. Pure.

Failures and slow requests are counted in both arms and compared exactly. Every request that was sent counts;
a pair is one prompt in one round, sent to both arms.

An arm that stops early is done early. Where answers differ in length, the end-to-end ratio compares different
work and does not show the speed; the time per output token does. An arm that cuts prompts has less to read.

Each prompt is sent several times. In production few requests are repeats, so where an arm surely answers
repeats faster, only its first requests say how fast it is; pairing requires the same of the other arm.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from specops import stats
from specops.experiment.findings import StoredInterval
from specops.load.record import SLOW, Row
from specops.load.validity import is_filtered, is_stock, loops, no_answer
from specops.phases.sweep.pairs import Pair
from specops.section import Frozen
from specops.stats import Interval, Times

LATE = 3
"""More requests over `LATE` times the median put a gain in doubt only if they are surely more. A
request over `SLOW` times counts like one that failed."""

STUMP = 3
"""An answer is a stump where it has less than a third of the characters of each answer that the other arm
gives to the same prompt. Lengths that vary by chance make as many of them in both arms."""

Kind = Literal["failed", "refused", "slow", "late", "stock", "stump", "looped", "unanswered", "filtered"]
"""refused: the first attempt was, and a later one was not. stock: the answer is, to the letter, the arm's
answer to another prompt. looped: most of it is one passage over and over. unanswered: it is reasoning and
nothing else. filtered: a content filter ended it."""


class RequestCounts(Frozen):
    """Requests of one kind at one load, all classes together."""

    kind: Kind
    pairs: int
    """One prompt in one round, sent to both arms."""

    prompts: int
    standard: int
    challenger: int
    only_standard: int
    only_challenger: int
    """Pairs in which it happened to the challenger's request alone."""

    difference: StoredInterval
    """The challenger's share less the standard's, with an exact interval."""

    def surely_more(self, margin: float) -> bool:
        """Return whether the challenger's share is surely higher by more than `margin`."""
        return self.difference.low > margin

    def possibly_more(self, margin: float) -> bool:
        """Return whether there is evidence of a higher share, and it may be higher by more than `margin`.

        It takes evidence: where it never happened to the challenger alone, the interval is a point at or
        below 0, and any number of requests could be too few to exclude a rare fault.
        """
        return self.only_challenger > self.only_standard and self.difference.high > margin

    def more_prompts(self, margin: float) -> int:
        """Return the number of further prompts that would bring the upper end down to `margin`, if it
        happened to none of them."""
        needed = self.difference.high * self.pairs / margin
        return max(1, math.ceil((needed / self.pairs - 1) * self.prompts - 1e-9))

    def __str__(self) -> str:
        more = [
            f"{100 * end:+.1f}"
            for end in (self.difference.estimate, self.difference.low, self.difference.high)
        ]
        share = f"{more[0]} [{more[1]}, {more[2]}] percentage points"
        return (
            f"{self.challenger} of {self.pairs} requests {_WORDS[self.kind]} (standard: {self.standard} of "
            f"{self.pairs}; difference {share})"
        )


_WORDS: dict[Kind, str] = {
    "failed": "failed",
    "refused": "were refused at first",
    "slow": f"took over {SLOW:g}× the standard's median",
    "late": f"took over {LATE}× the standard's median",
    "stock": "got the same answer as another prompt",
    "looped": "got an answer that repeats one passage",
    "unanswered": "got reasoning and no answer",
    "filtered": "got an answer that a content filter ended",
    "stump": "got less than a third of the other arm's answer",
}


@dataclass(frozen=True)
class Requests:
    """Requests that both arms were sent at one load: the standard's request and the challenger's, pair by
    pair."""

    pairs: tuple[tuple[Row, Row], ...]

    def counted(self, kind: Kind, confidence: float) -> RequestCounts | None:
        """The requests of one kind, counted in both arms; None where nothing was sent to both."""
        if not self.pairs:
            return None
        if kind == "stock":
            found = list(zip(*(is_stock([pair[arm] for pair in self.pairs]) for arm in (0, 1)), strict=True))
        elif kind == "stump":
            found = list(zip(self._stumps(0), self._stumps(1), strict=True))
        else:
            happened = _HAPPENED.get(kind) or self._over(SLOW if kind == "slow" else LATE)
            found = [(happened(ours), happened(theirs)) for ours, theirs in self.pairs]
        only_standard = sum(ours and not theirs for ours, theirs in found)
        only_challenger = sum(theirs and not ours for ours, theirs in found)
        return RequestCounts(
            kind=kind,
            pairs=len(found),
            prompts=len({ours.prompt for ours, _ in self.pairs}),
            standard=sum(ours for ours, _ in found),
            challenger=sum(theirs for _, theirs in found),
            only_standard=only_standard,
            only_challenger=only_challenger,
            difference=stats.paired_difference(only_standard, only_challenger, len(found), confidence),
        )

    def _stumps(self, arm: Literal[0, 1]) -> list[bool]:
        """Return for each request of an arm whether it was answered by a stump."""
        least: dict[str, float] = {}
        for pair in self.pairs:
            other = pair[1 - arm]
            if other.error is None:
                least[other.prompt] = min(least.get(other.prompt, math.inf), len(other.text))
        ours = [pair[arm] for pair in self.pairs]
        return [row.error is None and STUMP * len(row.text) < least.get(row.prompt, 0.0) for row in ours]

    def _over(self, times: float) -> Callable[[Row], bool]:
        """A test of whether a request took over `times` the usual time. That is the standard's median of the
        class, or its fastest answer to the same prompt where that is longer."""
        answers: dict[str, list[float]] = defaultdict(list)
        fastest: dict[str, float] = {}
        for row, _ in self.pairs:
            if row.error is None and waited(row) > 0:
                answers[row.traffic_class].append(waited(row))
                fastest[row.prompt] = min(fastest.get(row.prompt, math.inf), waited(row))
        usual = {name: median(times) for name, times in answers.items()}

        def over(row: Row) -> bool:
            longest = max(usual.get(row.traffic_class, math.inf), fastest.get(row.prompt, 0.0))
            return waited(row) > times * longest

        return over


def waited(row: Row) -> float:
    """Milliseconds from the first attempt to the end: users wait for attempts that were refused, too."""
    return max(row.e2e_ms, row.e2e_with_retries_ms)


def _failed(row: Row) -> bool:
    return row.error is not None


def _refused(row: Row) -> bool:
    return row.error is None and row.retries > 0


def _looped(row: Row) -> bool:
    return row.error is None and loops(row.text)


_HAPPENED: dict[Kind, Callable[[Row], bool]] = {
    "failed": _failed,
    "refused": _refused,
    "looped": _looped,
    "unanswered": no_answer,
    "filtered": is_filtered,
}


MOST_TIMES = 100
"""More than so many times the prompts are not advised."""

LARGEST_UNKNOWN = 1.15
"""Nothing is deployed before a larger difference of lengths, either way, is excluded."""

Finding = Literal["equal", "shorter", "longer", "open"]
"""equal: the interval lies within the margin. shorter, longer: the challenger's answers surely are, by more
than the margin. open: neither."""

Unit = Literal["tokens", "characters"]


class Lengths(Frozen):
    """The challenger's answers compared with the standard's, paired by prompt."""

    unit: Unit
    prompts: int
    ratio: StoredInterval | None
    """The challenger's length over the standard's; None with too few prompts for an interval."""

    finding: Finding
    standard_cut: int
    """Answers of the standard that ended at the length limit although the challenger's went on."""

    more_prompts: int | None = None
    """Number of prompts that would exclude a difference above `LARGEST_UNKNOWN`, at the present estimate; 0
    where it is excluded, None where no number is known."""

    @property
    def differ(self) -> bool:
        return self.finding in ("shorter", "longer")

    def __str__(self) -> str:
        """Return the finding in words, such as `answers are 48% [45, 51] shorter`."""
        if self.ratio is None:
            return f"answers: too few prompts to compare their {self.unit}"
        of = "" if self.unit == "tokens" else ", in characters"
        change = [100 * (end - 1) for end in (self.ratio.estimate, self.ratio.low, self.ratio.high)]
        if change[0] < 0:
            estimate, low, high = -change[0], -change[2], -change[1]
            return f"answers are {estimate:.0f}% [{low:.0f}, {high:.0f}] shorter{of}"
        return f"answers are {change[0]:.0f}% [{change[1]:.0f}, {change[2]:.0f}] longer{of}"


def compare_lengths(pairs: Sequence[Pair], margin: float, confidence: float) -> Lengths | None:
    """The lengths of the answers in `pairs`, in tokens; in characters where tokens are not known, or where
    only the characters surely differ: a server may count tokens that it did not send. None without pairs."""
    if not any(pair.characters or pair.tokens for pair in pairs):
        return None
    tokens, characters = (_compare_unit(pairs, unit, margin, confidence) for unit in ("tokens", "characters"))
    if tokens is None or (characters is not None and characters.differ and not tokens.differ):
        return characters
    return tokens


def _compare_unit(pairs: Sequence[Pair], unit: Unit, margin: float, confidence: float) -> Lengths | None:
    rounds: list[tuple[Times, ...]] = [pair.tokens if unit == "tokens" else pair.characters for pair in pairs]
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
        more_prompts=_prompts_to_exclude(ratio),
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


def _prompts_to_exclude(ratio: Interval | None) -> int | None:
    if ratio is None:
        return None
    bound = math.log(LARGEST_UNKNOWN)
    half = math.log(ratio.high / ratio.low) / 2
    room = bound - abs(math.log(ratio.estimate))
    if half <= room:
        return 0
    if room <= 0:
        return None
    more = math.ceil(ratio.n * ((half / room) ** 2 - 1))
    return more if more <= MOST_TIMES * ratio.n else None


_LEAST = 0.5

SPECIAL_TOKENS = 2
"""Counts of a prompt's tokens may differ by so many: engines add special tokens of their own."""


@dataclass(frozen=True)
class OtherPrompts:
    """Prompts of which both arms report the number of tokens, and not the same one."""

    of: int
    """All prompts of which both report it."""

    counts: tuple[tuple[int, int], ...]
    """The standard's count and the challenger's."""

    def __str__(self) -> str:
        ours, theirs = (sum(pair[arm] for pair in self.counts) for arm in (0, 1))
        return (
            f"the challenger counts {theirs:,} tokens in {len(self.counts)} of {self.of} prompts, and the "
            f"standard {ours:,}: one of them cuts prompts, or has another tokenizer or chat template"
        )


def other_prompts(standard: Iterable[Row], challenger: Iterable[Row], margin: float) -> OtherPrompts | None:
    """The prompts whose numbers of tokens differ by more than the share `margin`; None without any.

    Of a prompt that was sent several times, the largest number counts: some servers leave out what they have
    in their cache.
    """
    found: tuple[dict[str, int], dict[str, int]] = ({}, {})
    for counts, rows in zip(found, (standard, challenger), strict=True):
        for row in rows:
            if row.prompt_tokens is not None:
                counts[row.prompt] = max(counts.get(row.prompt, 0), row.prompt_tokens)
    both = [(ours, found[1][prompt]) for prompt, ours in found[0].items() if prompt in found[1]]
    unlike = tuple(pair for pair in both if abs(pair[0] - pair[1]) > max(SPECIAL_TOKENS, margin * pair[0]))
    return OtherPrompts(len(both), unlike) if unlike else None
