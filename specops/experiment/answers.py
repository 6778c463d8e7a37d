"""Whether the challenger's answers are the standard's, or as good. Pure.

Speculation changes no greedy answer and no distribution. A standard may differ from itself, since sums of
floating point depend on the batch; so requests that come again compare it with itself. In half precision a
verification of several tokens rounds differently from steps of one token: where two tokens are nearly equally
likely, the other one may win. The margin between the two likeliest tokens, where answers differ, shows that.

What a server does not report is unknown, not different: a count of tokens, or the field of hidden reasoning.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from specops.experiment.plan import Kind
from specops.experiment.records import Place, WindowRecord
from specops.load.arrivals import Level
from specops.load.record import Row
from specops.load.validity import is_filtered, is_stock, loops, no_answer
from specops.load.workload import OWN_HISTORY
from specops.section import Frozen

NEAR_TIE = 0.25
"""Nats. In bfloat16 logits of up to 32 are 0.125 apart, and each of two may be rounded by one such step."""

SUREST = 100.0
"""Nats. After the temperature is applied, greedy decoding leaves one token and -9999 or minus infinity to all
others: that says nothing of a near tie."""

_ROUNDED = 0.01

OPENING = 8
"""Characters, about two tokens. Rounding rarely changes the first tokens of several answers."""

LASTING = 4
"""Variants of a prompt in all of which its answer differs, so that it is not rounding."""

STUMP = 2
"""An answer is a stump that has less than a half of the characters of every answer of the other arm to the
same prompt. Lengths that vary by chance make as many of them in both arms."""

OF_TEXT = ("loop", "stock answer")
"""Faults that a text has by itself, whoever sends it."""

OTHER_FIELD = 0.05
"""Share of an answer's text that may stand in another field than in the standard, such as reasoning: parsers
of reasoning cut a line end here or there."""

_EXCERPT = 40

Key = tuple[str, str]
"""A prompt and its variant."""


class Difference(Frozen):
    """Two different greedy answers to one request, with the beginning of the difference in each."""

    prompt: str
    variant: str
    character: int
    standard: str
    challenger: str
    margin: float | None = None
    """Margin between the log-probabilities of the standard's two likeliest tokens there, in nats; None where
    not known."""

    @property
    def place(self) -> Place:
        return self.prompt, self.variant, self.character

    @property
    def near_tie(self) -> bool:
        return self.margin is not None and self.margin < NEAR_TIE


@dataclass(frozen=True)
class Greedy:
    """Greedy answers of an arm, each compared with the standard's to the same request."""

    compared: int
    differences: tuple[Difference, ...]
    of_variant: Mapping[Key, int] = field(default_factory=dict)
    """How many answers to each prompt in each variant were compared."""

    @property
    def equal(self) -> int:
        return self.compared - len(self.differences)

    @property
    def beyond_ties(self) -> tuple[Difference, ...]:
        return tuple(difference for difference in self.differences if not difference.near_tie)

    @property
    def lasting(self) -> set[str]:
        """Prompts whose answers differ each time in several variants. Rounding is the reason where two tokens
        are nearly equally likely, and a variant makes that another place."""
        differing = Counter((difference.prompt, difference.variant) for difference in self.beyond_ties)
        variants: dict[str, list[bool]] = defaultdict(list)
        for key, number in self.of_variant.items():
            variants[key[0]].append(differing[key] == number)
        return {
            prompt for prompt, each_time in variants.items() if len(each_time) >= LASTING and all(each_time)
        }

    @property
    def without_ends(self) -> Greedy:
        """The same, where an answer that goes on after the other one's end counts as equal."""
        return replace(
            self,
            differences=tuple(
                difference for difference in self.differences if difference.standard and difference.challenger
            ),
        )

    def with_margins(self, margins: Mapping[Place, float | None]) -> Greedy:
        differences = tuple(
            difference.model_copy(update={"margin": margins[difference.place]})
            if difference.place in margins
            else difference
            for difference in self.differences
        )
        return replace(self, differences=differences)


Scope = tuple[Kind, Level]


def greedy_answers(windows: Iterable[WindowRecord], arm: str) -> dict[Key, list[tuple[Scope, Row]]]:
    """Answered requests at temperature 0, by prompt and variant, in order of time; fillers and warm-up,
    too."""
    answers: dict[Key, list[tuple[Scope, Row]]] = defaultdict(list)
    for window in sorted(windows, key=lambda window: window.began):
        if window.arm == arm:
            for row in sorted(window.cell.sent, key=lambda row: row.sent_s):
                if row.error is None and row.temperature == 0:
                    answers[row.prompt, row.variant].append(((window.kind, window.level), row))
    return answers


def compare_greedy(
    standard: Mapping[Key, Sequence[tuple[Scope, Row]]],
    challenger: Mapping[Key, Sequence[tuple[Scope, Row]]],
    *,
    scope: Scope | None = None,
) -> Greedy:
    """Compare each greedy answer of the challenger with the standard's first to the same request, as its own
    later ones are: with all of them, a challenger would be equal more often than the standard to itself.
    `scope` takes the answers of one kind of window and load."""
    numbers: dict[Key, int] = {}
    differences = []
    for key, answers in challenger.items():
        original = next((row for _, row in standard.get(key, ())), None)
        rows = [row for where, row in answers if scope in (None, where)]
        if original is None or not rows:
            continue
        numbers[key] = len(rows)
        differences += [_difference(original, row) for row in rows if not _same(original, row)]
    return Greedy(sum(numbers.values()), tuple(differences), numbers)


def compare_with_itself(standard: Mapping[Key, Sequence[tuple[Scope, Row]]]) -> Greedy:
    """Compare the standard's later greedy answers with its first to the same request: the control."""
    repeats = [[row for _, row in answers] for answers in standard.values() if len(answers) > 1]
    differences = [
        _difference(first, later)
        for first, *repeated in repeats
        for later in repeated
        if not _same(first, later)
    ]
    return Greedy(sum(len(rows) - 1 for rows in repeats), tuple(differences))


def _same(standard: Row, challenger: Row) -> bool:
    by_usage = standard.tokens_from == challenger.tokens_from == "usage"
    if by_usage and not as_long(standard, challenger):
        return False
    return standard.text == challenger.text


def as_long(standard: Row, challenger: Row) -> bool:
    """Return whether two answers have as many tokens, by the counts that are known. Of one text, a count may
    have one token more: some engines count the one that ends it."""
    if standard.tokens is None or challenger.tokens is None:
        return True
    return abs(standard.tokens - challenger.tokens) <= (standard.text == challenger.text)


def _difference(standard: Row, challenger: Row) -> Difference:
    shared = 0
    while (
        shared < min(len(standard.text), len(challenger.text))
        and standard.text[shared] == challenger.text[shared]
    ):
        shared += 1
    return Difference(
        prompt=standard.prompt,
        variant=standard.variant,
        character=shared,
        standard=standard.text[shared : shared + _EXCERPT],
        challenger=challenger.text[shared : shared + _EXCERPT],
    )


def margin_at(tokens: Sequence[tuple[str, Sequence[float]]], character: int) -> float | None:
    """The margin where `character` lies, in nats, from an answer's tokens: each its text and the
    log-probabilities of the likeliest there. None beyond the answer's end, where fewer than two are
    reported, and where they are not those of the model: of two tokens that exclude each other the
    probabilities sum to 1 at most, and a token is rarely surer than `SUREST`."""
    end = 0
    for text, likeliest in tokens:
        end += len(text)
        if end > character:
            first, second, *_ = [*sorted(likeliest, reverse=True), None, None]
            if first is None or second is None:
                return None
            impossible = first <= 0 and math.exp(first) + math.exp(second) > 1 + _ROUNDED
            return first - second if first - second < SUREST and not impossible else None
    return None


def unusable(windows: Sequence[WindowRecord], standard: str, arm: str) -> list[tuple[Scope, Row, str]]:
    """Return the answers of `arm` that nobody can use, each with its fault: a loop, the answer to another
    prompt, a stump, what a filter ended, reasoning alone, text in another field than the standard's."""
    sent = [
        ((w.kind, w.level), row) for w in windows if w.arm == arm for row in w.cell.sent if row.error is None
    ]
    originals = [row for w in windows if w.arm == standard for row in w.cell.sent if row.error is None]
    shortest: dict[tuple[str, bool], int] = {}
    for row in originals:
        key = row.prompt, row.temperature == 0
        shortest[key] = min(shortest.get(key, len(row.text)), len(row.text))
    usual = {
        greedy: [_shares_of_fields(row) for row in originals if (row.temperature == 0) == greedy]
        for greedy in (True, False)
    }
    same_text: dict[tuple[str, str, str], list[_Shares]] = defaultdict(list)
    for row in originals:
        same_text[row.prompt, row.variant, row.text].append(_shares_of_fields(row))
    stock = is_stock([row for _, row in sent])
    faults = []
    for (scope, row), same_as_another in zip(sent, stock, strict=True):
        fault = None
        if loops(row.text):
            fault = "loop"
        elif same_as_another:
            fault = "stock answer"
        elif STUMP * len(row.text) < shortest.get((row.prompt, row.temperature == 0), 0):
            fault = "stump"
        elif is_filtered(row):
            fault = "ended by a content filter"
        elif no_answer(row):
            fault = "no answer"
        elif _in_another_field(
            row, same_text.get((row.prompt, row.variant, row.text)) or usual[row.temperature == 0]
        ):
            fault = "other field"
        if fault:
            faults.append((scope, row, fault))
    return faults


_Shares = tuple[float, ...]


def _in_another_field(row: Row, usual: Sequence[_Shares]) -> bool:
    """Whether more or less of an answer came in one of the fields than the standard ever had there."""
    return any(
        not min(of_standard) - OTHER_FIELD <= share <= max(of_standard) + OTHER_FIELD
        for share, of_standard in zip(_shares_of_fields(row), zip(*usual, strict=True), strict=False)
    )


def _shares_of_fields(row: Row) -> _Shares:
    """The shares of the text that came beside the content: a client reads each field elsewhere."""
    characters = max(1, len(row.text))
    return tuple(number / characters for number in (row.reasoning, row.refusal, row.tool_calls))


def sampled_texts(windows: Iterable[WindowRecord], arm: str) -> dict[str, list[str]]:
    """The answers at temperatures above 0 by prompt, in order of time. Without turns on own answers: those of
    a session are one draw, so that an exact test cannot swap them one by one."""
    texts: dict[str, list[str]] = defaultdict(list)
    for window in sorted(windows, key=lambda window: window.began):
        if window.arm == arm:
            for row in sorted(window.cell.sent, key=lambda row: row.sent_s):
                if row.error is None and row.temperature > 0 and OWN_HISTORY not in row.variant:
                    texts[row.prompt].append(row.text)
    return texts


Texts = dict[str, list[str]]
"""Answers by prompt."""


def equally_long(standard: Texts, challenger: Texts) -> tuple[Texts, Texts]:
    """Return the beginnings of all answers: of each prompt as much as its shortest answer has."""
    shortest = {
        prompt: min(map(len, standard[prompt] + challenger[prompt]))
        for prompt in standard.keys() & challenger.keys()
    }
    first, second = (
        {prompt: [text[: shortest[prompt]] for text in texts[prompt]] for prompt in shortest}
        for texts in (standard, challenger)
    )
    return first, second


def greedy_instead(windows: Iterable[WindowRecord], arm: str) -> tuple[int, int]:
    """Return how many sampled answers are the arm's greedy answer to the same request, and of how many."""
    greedy: dict[Key, set[str]] = defaultdict(set)
    sampled: list[tuple[Key, str]] = []
    for window in windows:
        for row in window.cell.sent if window.arm == arm else ():
            if row.error is None:
                key = row.prompt, row.variant
                if row.temperature == 0:
                    greedy[key].add(row.text)
                else:
                    sampled.append((key, row.text))
    tried = [(key, text) for key, text in sampled if key in greedy]
    return sum(text in greedy[key] for key, text in tried), len(tried)


SPECIAL_TOKENS = 2
"""Counts of a prompt's tokens may differ by so many: engines add special tokens of their own."""


def prompts_read_otherwise(
    windows: Iterable[WindowRecord], standard: str, arm: str, margin: float
) -> tuple[int, dict[str, tuple[int, int]]]:
    """Return how many prompts both arms report the tokens of, and both counts of those that differ by
    more than the share `margin`.

    Of a prompt that was sent several times, the largest count is compared: some servers leave out what
    they have in their cache.
    """
    counts: dict[str, dict[Key, int]] = {standard: {}, arm: {}}
    for window in windows:
        for row in window.cell.sent if window.arm in counts else ():
            if row.prompt_tokens is not None:
                key = row.prompt, row.variant
                counts[window.arm][key] = max(counts[window.arm].get(key, 0), row.prompt_tokens)
    counted = {
        key[0]: (number, counts[arm][key]) for key, number in counts[standard].items() if key in counts[arm]
    }
    return len(counted), {
        prompt: pair
        for prompt, pair in counted.items()
        if abs(pair[0] - pair[1]) > max(SPECIAL_TOKENS, margin * pair[0])
    }
