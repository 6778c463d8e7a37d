"""Copied drafts: from places that are alike, as far as they are likely to hold, however steps fall."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specops.engine.drafters.ngram import DOUBT, LONGEST_MATCH, WORTH, MatchLengths, NGram, alike
from specops.engine.request import Sampling
from specops.engine.sequence import Sequence

TEXTS = st.lists(st.integers(0, 2), min_size=1, max_size=60)


def sequence_of(tokens: list[int], *, prompt: int, room: int = 500) -> Sequence:
    sequence = Sequence(
        0,
        tokens[:prompt],
        Sampling(max_tokens=room),
        room=room,
        chunk=room,
        eos=frozenset(),
        tokenizer=None,
    )
    sequence.tokens += tokens[prompt:]
    return sequence


@given(TEXTS, st.integers(0, 60), st.integers(0, 60))
def test_alike_counts_equal_tokens_backwards(text: list[int], one: int, other: int) -> None:
    one, other = min(one, len(text)), min(other, len(text))
    expected = 0
    for back in range(1, min(one, other, LONGEST_MATCH) + 1):
        if text[one - back : one] == text[other - back : other]:
            expected = back
    assert alike(text, one, text, other) == expected


def test_a_match_is_as_likely_to_go_on_as_it_was() -> None:
    holding = MatchLengths()
    assert holding.chance(3) == pytest.approx(3 / 4)
    for _ in range(100):
        holding.learn(3, False)
    assert holding.chance(3) == pytest.approx(3 / 4 * DOUBT / (DOUBT + 100))
    assert holding.chance(4) == pytest.approx(4 / 5)
    holding.learn(LONGEST_MATCH + 50, True)
    assert (
        holding.chance(LONGEST_MATCH)
        == holding.chance(LONGEST_MATCH + 9)
        > LONGEST_MATCH / (LONGEST_MATCH + 1)
    )


@given(TEXTS, st.integers(1, 12), st.integers(1, 60))
def test_what_is_copied_followed_a_place_like_this(text: list[int], count: int, prompt: int) -> None:
    prompt = min(prompt, len(text))
    tree = NGram(count).draft([sequence_of(text, prompt=prompt)])[0]
    copied = tree.tokens[1:]
    pairs = [place for place in range(2, len(text)) if text[place - 2 : place] == text[-2:]]
    assert pairs or not copied
    if prompt == len(text):  # nothing was learned yet that would make a match worth nothing
        assert bool(copied) == bool(pairs)
    going_on = [
        place
        for place in pairs
        if all((text + copied)[place + offset] == token for offset, token in enumerate(copied))
    ]
    assert going_on or not copied
    assert tree.odds is not None
    assert len(tree.odds) == len(tree)
    assert all(WORTH <= after <= before for before, after in zip(tree.odds, tree.odds[1:], strict=False))
    assert len(copied) <= count


@given(TEXTS, st.integers(1, 60), st.sets(st.integers(1, 59)))
def test_how_tokens_came_does_not_matter(text: list[int], prompt: int, stops: set[int]) -> None:
    """One by one, in pieces or all at once: the copy and its odds follow from the tokens."""
    prompt = min(prompt, len(text))
    at_once = NGram(8).draft([sequence_of(text, prompt=prompt)])[0]
    drafter = NGram(8)
    sequence = sequence_of(text[:prompt], prompt=prompt)
    for stop in [*sorted(stop for stop in stops if prompt < stop < len(text)), len(text)]:
        drafter.draft([sequence])
        sequence.tokens += text[len(sequence.tokens) : stop]
    by_pieces = drafter.draft([sequence])[0]
    assert (by_pieces.tokens, by_pieces.odds) == (at_once.tokens, at_once.odds)


def test_what_repeats_is_copied_beyond_its_end() -> None:
    text = [9, *[1, 2] * 5]
    tree = NGram(8).draft([sequence_of(text, prompt=len(text))])[0]
    assert tree.tokens == [2, 1, 2, 1, 2, 1, 2, 1, 2][: len(tree)]
    assert len(tree) > 3


def test_a_place_is_kept_while_it_goes_on() -> None:
    """3 follows 1 2 at the place that is copied from; 4 followed 1 2 more recently, but elsewhere."""
    repeated = [*range(20, 24), 5, 6]
    text = [*repeated, 7, 1, 2, 3, 8, 1, 2, 4, *repeated]
    sequence = sequence_of(text, prompt=len(text))
    drafter = NGram(3)
    assert drafter.draft([sequence])[0].tokens[1:] == [7, 1, 2]
    sequence.tokens += [7, 1, 2]
    assert drafter.draft([sequence])[0].tokens[1] == 3


def test_nothing_is_drafted_beyond_the_end() -> None:
    sequence = sequence_of([1, 2, 1, 2], prompt=4, room=6)
    assert len(NGram(8).draft([sequence])[0]) == 2  # one token and the target's own
    sequence.tokens += [1]
    assert len(NGram(8).draft([sequence])[0]) == 1
