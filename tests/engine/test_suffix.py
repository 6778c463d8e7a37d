"""Suffix drafts against a naive scan of all that was seen, and what they forget."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specops.engine.drafters.ngram import LONGEST_MATCH, MatchLengths, alike
from specops.engine.drafters.suffix import MOST_PLACES, WORTH, Match, Suffix, Texts, likeliest
from specops.engine.request import Sampling
from specops.engine.sequence import Sequence
from specops.engine.verifiers.naive import verify_greedy

TEXT = st.lists(st.integers(0, 2), min_size=2, max_size=30)
Path = tuple[int, ...]


def sequence_of(id: int, prompt: list[int], room: int = 200) -> Sequence:
    sampling = Sampling(max_tokens=room)
    sequence = Sequence(id, prompt, sampling, room=room, chunk=room, eos=frozenset(), tokenizer=None)
    sequence.row = 0
    return sequence


def scan(texts: list[list[int]], tokens: list[int]) -> list[tuple[list[int], int]]:
    """Every place after two tokens that are the last two, as (text, what follows), the oldest first."""
    return [
        (text, place)
        for text in texts
        for place in range(2, len(text))
        if text[place - 2 : place] == tokens[-2:]
    ]


def odds_by_scan(
    places: list[tuple[list[int], int]], tokens: list[int], holding: MatchLengths, depth: int
) -> dict[Path, float]:
    """By path, of every continuation: by definition, level by level, from all places anew."""
    found: dict[Path, float] = {(): 1.0}
    waiting: list[Path] = [()]
    while waiting:
        path = waiting.pop()
        if len(path) == depth:
            continue
        here = [
            (text[place + len(path)], min(alike(text, place, tokens, len(tokens)) + len(path), LONGEST_MATCH))
            for text, place in places
            if place + len(path) < len(text) and tuple(text[place : place + len(path)]) == path
        ]
        left = 1.0
        chances: dict[int, float] = {}
        for length in sorted({length for _, length in here}, reverse=True):
            going = [token for token, other in here if other >= length]
            for token in set(going):
                share = going.count(token) / len(going)
                chances[token] = chances.get(token, 0.0) + left * holding.chance(length) * share
            left *= 1 - holding.chance(length)
        for token, chance in chances.items():
            found[*path, token] = found[path] * chance
            waiting.append((*path, token))
    return found


@settings(deadline=None)
@given(st.lists(TEXT, min_size=1, max_size=4), st.integers(1, 12), st.integers(1, 6))
def test_the_likeliest_continuations_of_all_that_was_seen(
    texts: list[list[int]], count: int, depth: int
) -> None:
    index, tokens = Texts(), texts[-1]
    for id, text in enumerate(texts):
        index.extend(id, text)
    places = scan(texts, tokens)
    if len(places) > MOST_PLACES:
        return  # the next test is about these
    holding = MatchLengths()
    found = likeliest(index.matches(tokens), holding, count, depth)
    expected = odds_by_scan(places, tokens, holding, depth)
    paths: list[Path] = [()]
    for parent, token in zip(found.parents[1:], found.tokens, strict=True):
        paths.append((*paths[parent], token))
    assert len(set(paths)) == len(paths)
    for path, odds in zip(paths, found.odds, strict=True):
        assert odds == pytest.approx(expected[path])
        assert len(path) <= depth
    worth = sorted((odds for path, odds in expected.items() if path and odds >= WORTH), reverse=True)
    assert found.odds[1:] == pytest.approx(worth[:count])


@given(st.lists(TEXT, min_size=1, max_size=12))
def test_matches_are_the_newest_places(texts: list[list[int]]) -> None:
    index = Texts()
    for id, text in enumerate(texts):
        index.extend(id, text)
    found = index.matches(texts[-1])
    expected = scan(texts, texts[-1])[::-1][:MOST_PLACES]
    assert [(match.text, match.next) for match in found] == expected
    for match in found:
        assert match.length == alike(match.text, match.next, texts[-1], len(texts[-1])) >= 2


@given(TEXT, st.sets(st.integers(1, 29)))
def test_a_text_may_come_in_pieces(text: list[int], stops: set[int]) -> None:
    at_once, by_pieces, growing = Texts(), Texts(), []
    at_once.extend(0, text)
    for stop in [*sorted(stops), len(text)]:
        growing += text[len(growing) : stop]
        by_pieces.extend(0, growing)
    assert by_pieces._after == at_once._after


@given(st.lists(st.tuples(TEXT, st.booleans()), max_size=12))
def test_the_oldest_that_ended_are_forgotten(texts: list[tuple[list[int], bool]]) -> None:
    index = Texts(most_tokens=40)
    for id, (text, ends) in enumerate(texts):
        index.extend(id, text)
        if ends:
            index.end(id)
    ended = [(id, text) for id, (text, ends) in enumerate(texts) if ends]
    kept, total = [], 0
    for id, text in reversed(ended):
        total += len(text)
        if total > 40:
            break
        kept.append(id)
    kept += [id for id, (_, ends) in enumerate(texts) if not ends]
    assert {id for places in index._after.values() for id, _ in places} <= set(kept)
    assert len(index) == sum(len(texts[id][0]) for id in kept)
    for (one, other), places in index._after.items():
        for id, place in places:
            assert texts[id][0][place - 2 : place] == [one, other]


def test_earlier_outputs_are_drafted_from_and_unlike_ones_are_not() -> None:
    drafter = Suffix(8)
    first = sequence_of(0, [1, 2, 3, 4, 5, 6, 7])
    assert len(drafter.draft([first])[0]) == 1  # nothing in it occurred before
    drafter.release(first)
    tree = drafter.draft([sequence_of(1, [9, 2, 3])])[0]
    assert tree.tokens[:4] == [3, 4, 5, 6]
    assert len(drafter.draft([sequence_of(2, [9, 2, 9])])[0]) == 1


def test_a_tree_where_texts_go_on_differently() -> None:
    drafter = Suffix(6)
    for id, text in enumerate(([1, 2, 3, 4], [1, 2, 3, 4], [1, 2, 5, 6])):
        drafter.draft([sequence_of(id, text)])
        drafter.release(sequence_of(id, text))
    tree = drafter.draft([sequence_of(9, [0, 1, 2])])[0]
    below = [tree.tokens[child] for child in tree.topology.children[0]]
    assert below == [3, 5]  # what followed twice first
    assert tree.odds is not None
    first, second = (tree.odds[child] for child in tree.topology.children[0])
    assert first == pytest.approx(2 * second)


def test_what_held_is_learned_by_length() -> None:
    """A text that goes on as another did is believed more and more, and one that does not, less."""
    text = [*range(10, 60)]
    drafter = Suffix(4)
    drafter.draft([sequence_of(0, text)])
    alike_, unlike = sequence_of(1, text[:2]), sequence_of(2, text[:2])
    odds = []
    for sequence in (alike_, unlike):
        for step in range(2, 30, 2):
            drafter.draft([sequence])
            sequence.tokens += (
                text[step : step + 2] if sequence is alike_ else [1000 + step, *text[step + 1 : step + 3]]
            )
        odds.append(drafter._followed[sequence.id].holding)
    trusting, doubting = odds
    assert trusting.chance(LONGEST_MATCH) > MatchLengths().chance(LONGEST_MATCH)
    assert doubting.chance(2) < MatchLengths().chance(2) / 2


def test_a_copy_of_the_target_is_accepted_whole() -> None:
    drafter, text = Suffix(5), [*range(20)]
    drafter.draft([sequence_of(0, text)])
    tree = drafter.draft([sequence_of(1, text[:6])])[0]
    verified = verify_greedy(tree, [tree.tokens[node] + 1 for node in range(len(tree))])
    assert len(verified.path) == len(tree) - 1 > 0


def test_a_match_follows_only_its_own_text() -> None:
    match = Match([1, 2, 3], 2, 2)
    assert match.follow(4) is None
    after = match.follow(3)
    assert after is not None
    assert after.follow(3) is None  # its text ends there
