"""Parity: whether the arms give equal answers at temperature 0, prompt by prompt, against a control. Pure.

Speculation may change no greedy answer. A server may also differ from itself, since sums of floating point
depend on the batch; so the standard is compared with itself in the same way. Where it differs too, a
difference between the arms need not be speculation's.

In half precision a verification of several tokens rounds differently from steps of one token. Where two
tokens are nearly equally likely, the other one may win. The control never verifies, so it does not show this.
The margin between the two likeliest tokens, where the answers differ, does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import comb

from specops.load.arrivals import Level
from specops.load.record import Row
from specops.section import Frozen

NEAR_TIE = 0.25
"""Nats. In bfloat16 logits of up to 32 are 0.125 apart, and each of two may be rounded by one such step."""

SURE_WITNESSES = 2
"""For one prompt, rounding may be the reason whatever the margin; for two prompts it does not explain it."""

GREEDY_PROMPTS = 12
"""Prompts of a measurement at a higher temperature that are sent at temperature 0 too, at each load; more
where the load has more streams. Of an arm that answers half of them otherwise, the exact test is sure."""

REFUSALS = ("http_400", "http_422")
"""Errors of a server that does not accept the request's temperature."""

MOST_MIXED_ROUNDS = 4
"""Largest number of rounds of greedy requests among sampled ones. Another round is sent only where the ones
before do not decide."""

LOOKS_ALONE = 2
"""Number of looks at the answers of a level: the first ones of both arms, and those to prompts that come
again."""

POSSIBLE = 0.2
"""A difference that chance makes less often than this is evidence of a fault, if no proof."""

OPENING = 8
"""Characters, about two tokens. Where a standard hardly ever repeats a whole answer, beginnings still reveal
another model: rounding rarely changes the first tokens."""

_SHOWN = 40

Place = tuple[str, int]
"""A prompt, and the character of the standard's answer at which another answer begins to differ."""


class Witness(Frozen):
    """Two different answers to one prompt, with the beginning of the difference in each."""

    prompt: str
    character: int
    standard: str
    other: str
    margin: float | None = None
    """Margin between the log-probabilities of the standard's two likeliest tokens there; None where not
    known."""

    near_tie: bool = False

    @property
    def place(self) -> Place:
        return self.prompt, self.character


@dataclass(frozen=True)
class Matches:
    """The prompts that were answered twice, and a witness for each whose answers differ."""

    prompts: frozenset[str]
    witnesses: tuple[Witness, ...]

    @property
    def unlike(self) -> frozenset[str]:
        return frozenset(witness.prompt for witness in self.witnesses)

    @property
    def surely_unlike(self) -> frozenset[str]:
        """The prompts whose answers differ, without near ties."""
        return frozenset(witness.prompt for witness in self.witnesses if not witness.near_tie)

    @property
    def known_unlike(self) -> frozenset[str]:
        """The prompts whose answers differ where the standard reported that it was sure of its token."""
        return frozenset(w.prompt for w in self.witnesses if w.margin is not None and not w.near_tie)

    @property
    def token_count_differences(self) -> int:
        """Pairs of answers with the same text, of which the servers count different numbers of tokens."""
        return sum(not witness.standard and not witness.other for witness in self.witnesses)

    @property
    def openings(self) -> Matches:
        """The same prompts, with the beginnings of the answers compared only."""
        return Matches(self.prompts, tuple(w for w in self.witnesses if w.character < OPENING))

    @property
    def compared(self) -> int:
        return len(self.prompts)

    @property
    def equal(self) -> int:
        return len(self.prompts) - len(self.witnesses)

    def __str__(self) -> str:
        return f"{self.equal}/{self.compared}"


@dataclass(frozen=True)
class Parity:
    """Greedy answers of one challenger compared with the standard's."""

    challenger: str
    mixed: bool
    """The challenger's greedy answers were given while sampled requests shared its batches."""

    level: Level
    arms: Matches
    control: Matches | None
    """The standard with itself, sent the same again; None where it was sent once."""

    failures: tuple[str, ...] = ()
    """The errors of greedy requests that the challenger failed and the standard answered: a fault of a batch
    may end the server instead of garbling answers. Of mixed batches, and of requests at temperature 0 beside
    a measurement at a higher one."""

    refused: str | None = None
    """The challenger's error where it refuses temperature 0 and the standard does not."""

    repeated: bool = False
    """`arms` are the challenger's first answers and its later ones to the same prompts; `control` is the same
    of the standard. Only prompts whose first answers are the same in both arms are in it."""

    opening: bool = False
    """Whether only the first `OPENING` characters of each answer are compared."""

    @property
    def without_lengths(self) -> Parity:
        """The same comparison, where an answer that goes on after the other one's end counts as equal."""
        ours = [self.arms, self.control] if self.control else [self.arms]
        arms, *control = (
            replace(one, witnesses=tuple(w for w in one.witnesses if w.standard and w.other)) for one in ours
        )
        return replace(self, arms=arms, control=control[0] if control else None)

    @property
    def openings(self) -> Parity:
        """The same comparison, of the answers' beginnings only."""
        control = self.control.openings if self.control else None
        return replace(self, arms=self.arms.openings, control=control, opening=True)

    def is_blind(self, confidence: float) -> bool:
        """Return whether most answers differ between the arms, and the standard repeats itself so seldom that
        no number of differing answers could show a fault: then nothing is known of another model's answers.

        Never of prompts that come again: their first answers have shown that the arms answer the same.
        """
        if self.control is None or self.repeated or self.breaks:
            return False
        if 2 * len(self.arms.surely_unlike) <= self.arms.compared:
            return False
        repeated = len((self.arms.prompts & self.control.prompts) - self.control.unlike)
        return chance(repeated, repeated) >= self._error(confidence)

    @property
    def steady(self) -> frozenset[str]:
        """Prompts on which the standard agrees with itself, and the challenger is known to be unlike it."""
        return self.arms.known_unlike - self.control.unlike if self.control else frozenset()

    def shows_a_fault(self, confidence: float) -> bool:
        """Return whether greedy answers are other ones, by more than chance and rounding.

        A mixed batch is a handful of prompts, and a fault of a batch garbles those that met a sampled
        request, not all: witnesses decide, where the standard reports how sure it was. Otherwise, and of all
        prompts alone, where some may differ for reasons of rounding only, the share decides. Each look has
        its part of the error: mixed batches are looked at after every round, and of answers alone the first
        ones and those to prompts that come again.
        """
        sure = self.mixed and len(self.steady) >= SURE_WITNESSES
        return self.breaks or sure or self.surely_lower(1 - self._error(confidence))

    def _error(self, confidence: float) -> float:
        """The error allowed for one look."""
        return (1 - confidence) / (MOST_MIXED_ROUNDS if self.mixed else LOOKS_ALONE)

    @property
    def breaks(self) -> bool:
        """Return whether greedy requests fail that the standard answers: of one, the network may be the
        reason."""
        return len(self.failures) >= SURE_WITNESSES

    def surely_lower(self, confidence: float) -> bool:
        """Return whether the arms are equal less often than the control, by more than chance (McNemar,
        exact).

        Only prompts on which the two disagree count. Where speculation changed nothing, each would be as
        likely to differ in the control as between the arms. Near ties do not count.
        """
        if self.control is None:
            return False
        lost, gained = self._discordant()
        return chance(lost, lost + gained) < 1 - confidence

    def possibly_lower(self) -> bool:
        """Return whether there is evidence of other answers, though not enough to be sure of it.

        In a mixed batch two more prompts that differ are evidence. Of all prompts alone, where rounding makes
        a few answers differ, it takes a difference that chance makes once in five times. Of answers to
        prompts that come again, which are a second look at the same servers, it is once in ten, unless the
        standard never differs from itself.
        """
        if self.control is None:
            return False
        lost, gained = self._discordant()
        if self.mixed:
            return lost >= SURE_WITNESSES and lost > gained
        second_look = self.repeated and self.control.unlike
        return chance(lost, lost + gained) < (POSSIBLE / 2 if second_look else POSSIBLE)

    def open(self, confidence: float) -> bool:
        """Return whether more requests could show what the differences mean: some differ, and no fault is
        shown."""
        if self.control is None or self.shows_a_fault(confidence):
            return False
        lost, gained = self._discordant()
        return lost > gained

    def _discordant(self) -> tuple[int, int]:
        """Prompts on which only the arms differ, and on which only the standard differs from itself."""
        assert self.control is not None
        both = self.arms.prompts & self.control.prompts
        lost = both & (self.arms.surely_unlike - self.control.unlike)
        gained = both & (self.control.unlike - self.arms.unlike)
        return len(lost), len(gained)


def chance(lost: int, tried: int) -> float:
    """The probability of `lost` or more out of `tried` prompts, where both ways are equally likely."""
    return sum(comb(tried, k) for k in range(lost, tried + 1)) / (1 << tried)


def as_greedy(sampled: Iterable[Mapping[str, Row]], greedy: Mapping[str, Row]) -> dict[str, bool]:
    """Return by prompt whether one of its sampled answers, of several rounds, is its greedy one."""
    found: dict[str, bool] = {}
    for answers in sampled:
        for prompt in sorted(answers.keys() & greedy.keys()):
            found[prompt] = found.get(prompt, False) or answers[prompt].text == greedy[prompt].text
    return found


def greedy_instead(ours: Mapping[str, bool], theirs: Mapping[str, bool], confidence: float) -> str | None:
    """A sentence where `theirs` surely has more answers that are greedy than `ours`, the standard's (McNemar,
    exact); both as by `as_greedy`."""
    shared = ours.keys() & theirs.keys()
    lost = sum(theirs[prompt] and not ours[prompt] for prompt in shared)
    gained = sum(ours[prompt] and not theirs[prompt] for prompt in shared)
    if chance(lost, lost + gained) >= 1 - confidence:
        return None
    count, own = (sum(one[prompt] for prompt in shared) for one in (theirs, ours))
    return (
        f"for {count} of {len(shared)} prompts, an answer at the higher temperature is the greedy answer "
        f"(standard: {own} of {len(shared)}): the temperature is ignored"
    )


def margins_needed(parities: Iterable[Parity]) -> list[Place]:
    """The places at which the standard's margin is needed: each once, in order."""
    places = (witness.place for parity in parities for witness in parity.arms.witnesses)
    return sorted(set(places))


def margin_at(tokens: Sequence[tuple[str, Sequence[float]]], character: int) -> float | None:
    """The margin where `character` lies, from an answer's tokens: each its text and the log-probabilities of
    the likeliest there. None beyond the answer's end, and where fewer than two are reported."""
    end = 0
    for text, likeliest in tokens:
        end += len(text)
        if end > character:
            first, second, *_ = [*sorted(likeliest, reverse=True), None, None]
            return first - second if first is not None and second is not None else None
    return None


def with_margins(parity: Parity, margins: Mapping[Place, float | None]) -> Parity:
    """`parity` with the standard's margins where answers differ."""
    witnesses = tuple(
        witness.model_copy(update={"margin": margin, "near_tie": margin < NEAR_TIE})
        if (margin := margins.get(witness.place)) is not None
        else witness
        for witness in parity.arms.witnesses
    )
    return replace(parity, arms=replace(parity.arms, witnesses=witnesses))


def _unlike(one: Row, other: Row) -> bool:
    return (one.text, one.tokens) != (other.text, other.tokens)


def matches(ours: Mapping[str, Row], theirs: Mapping[str, Row]) -> Matches:
    """The prompts that are in both; witnesses show `ours` as the standard's answer."""
    shared = sorted(ours.keys() & theirs.keys())
    unlike = [p for p in shared if _unlike(ours[p], theirs[p])]
    return Matches(frozenset(shared), tuple(_witness(ours[p], theirs[p]) for p in unlike))


def _witness(ours: Row, theirs: Row) -> Witness:
    same = 0
    while same < min(len(ours.text), len(theirs.text)) and ours.text[same] == theirs.text[same]:
        same += 1
    return Witness(
        prompt=ours.prompt,
        character=same,
        standard=ours.text[same : same + _SHOWN],
        other=theirs.text[same : same + _SHOWN],
    )
