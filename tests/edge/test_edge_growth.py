"""The tree of one sequence: what is sent, and what a verdict leaves of it."""

from __future__ import annotations

import math
import random

from drawn_nodes import parted
from hypothesis import given
from hypothesis import strategies as st

from specops.edge.growth import SPARE, Growth, Retained
from specops.edge.link import Branch, Proposal
from specops.edge.quantisation import WHOLE, Quantised
from specops.engine.request import Sampling
from specops.engine.rng import Dice
from specops.engine.sequence import Sequence
from specops.engine.tree import Draw

SEQUENCE = Sequence(0, [1], Sampling(), room=9, chunk=9, eos=frozenset(), tokenizer=None)
Q = Quantised((0, 1, 2, 3, 4, 5, 6), (WHOLE // 2, WHOLE // 4, WHOLE // 8, WHOLE // 16, 512, 256, 256))


def grow(growth: Growth, nodes: list[int], rng: random.Random, *, width: int | None) -> None:
    """Run `nodes` through a draft that says anything."""
    if nodes != [0]:
        growth.levels_of(SEQUENCE, nodes)
    for node in growth.run[-len(nodes) :]:
        if width is None:
            logs = sorted((-rng.expovariate(1.0) for _ in range(3)), reverse=True)
            growth.branch([node], [rng.sample(range(9), 3)], [logs])
        else:
            growth.branch_drawn(node, Q, width, Dice(rng.randrange(10**9)))


def grown(rng: random.Random, *, nodes: int, passes: int, width: int | None) -> Growth:
    growth = Growth(7, 64, frozenset())
    grow(growth, [0], rng, width=width)
    for _ in range(passes):
        frontier, promise = growth.next_here(3, nodes, 9, width=width)
        assert (promise > 0) == bool(frontier)
        if frontier:
            grow(growth, frontier, rng, width=width)
    return growth


@given(st.integers(0, 10**6), st.integers(1, 12), st.integers(0, 5))
def test_the_best_are_sent_and_each_after_its_parent(seed: int, nodes: int, passes: int) -> None:
    growth = grown(random.Random(seed), nodes=nodes, passes=passes, width=None)
    proposal = growth.propose(nodes, 9, sampled=False)
    assert proposal.draw is Draw.DETERMINISTIC
    assert len(proposal.tokens) == min(nodes, len(growth) - 1)
    assert all(parent <= number for number, parent in enumerate(proposal.parents))
    assert [growth.tokens[node] for node in growth.order] == list(proposal.tokens)
    least = min(growth.scores[node] for node in growth.order)
    left = [growth.scores[node] for node in range(1, len(growth)) if node not in growth.order]
    assert all(score <= least for score in left)


@given(st.integers(0, 10**6), st.integers(1, 12), st.integers(0, 5), st.integers(1, 4))
def test_what_was_drawn_at_a_node_is_sent_whole_and_in_its_order(
    seed: int, nodes: int, passes: int, width: int
) -> None:
    growth = grown(random.Random(seed), nodes=nodes, passes=passes, width=width)
    proposal = growth.propose(nodes, 9, sampled=True)
    assert len(proposal.tokens) <= nodes
    by_node = parted(proposal.drawn)
    for node in (0, *growth.order):
        sent = [growth.tokens[child] for child in growth.children(node) if child in growth.order]
        drawn = [growth.tokens[child] for child in growth.children(node) if growth.offered[child]]
        assert sent in ([], drawn)
        number = growth.sent[node]  # type: ignore[index]
        below = [t for t, p in zip(proposal.tokens, proposal.parents, strict=True) if p == number]
        assert below == sent
        assert (number in by_node) == bool(sent)
        if sent:
            assert by_node[number] == (Q.tokens, Q.weights)


@given(st.integers(0, 10**6), st.booleans())
def test_nodes_ahead_see_their_ancestors_and_no_others(seed: int, sampled: bool) -> None:
    rng, width = random.Random(seed), 2 if sampled else None
    growth = grown(rng, nodes=6, passes=2, width=width)
    for _ in range(3):
        growth.propose(6, 9, sampled=sampled)
        for _ in range(3):
            if ahead := growth.next_ahead(4, 3, 9):
                grow(growth, ahead, rng, width=width)
        guesses = [n for n in growth.run if n not in growth.sent and growth.parents[n] in growth.sent]  # type: ignore[operator]
        if not guesses:
            return
        guess = rng.choice(guesses)
        path, node = [], growth.parents[guess]
        while node > 0:
            path.append(growth.sent[node])  # type: ignore[index]
            node = growth.parents[node]
        kept = growth.follow(path[::-1], growth.tokens[guess])
        assert kept.hit
        assert len(kept.accepted) == len(path) + 1
        assert kept.accepted + kept.ahead == sorted(kept.accepted + kept.ahead)
        assert len(kept.ahead) == len(growth.run) - 1
        for place, node in enumerate(growth.run):
            seen = {place}
            while growth.parents[node] >= 0:
                node = growth.parents[node]
                seen.add(growth.places[node])
            row = growth._sees[place, : len(growth.run)]
            assert set(row.nonzero()[0].tolist()) == seen


def two_levels() -> Growth:
    """Root 7; below it 1 and 2, which are sent, and 3; below 1, run but not sent, 4."""
    growth = Growth(7, 8, frozenset())
    growth.branch([0], [[1, 2, 3]], [[math.log(0.5), math.log(0.3), math.log(0.1)]])
    growth.levels_of(SEQUENCE, [1])
    growth.branch([1], [[4]], [[math.log(0.15)]])
    growth.propose(2, 9, sampled=False)
    return growth


def test_a_miss_keeps_the_kv_of_what_was_accepted() -> None:
    assert two_levels().follow([1], 8) == Retained([1], [], hit=False)  # nobody guessed 8
    assert two_levels().follow([1], 4) == Retained([1], [], hit=False)  # guessed, and not run
    assert two_levels().follow([2], 1) == Retained([], [], hit=False)  # the leaf was never run


def test_a_hit_goes_on_from_the_guess() -> None:
    growth = two_levels()
    growth.levels_of(SEQUENCE, [4, 3])  # token 4 below token 1, and token 3
    growth.branch([4], [[5]], [[-1.0]])
    assert growth.follow([1], 4) == Retained([1, 3], [], hit=True)
    assert (growth.tokens.tolist(), growth.parents.tolist()) == ([4, 5], [-1, 0])
    assert (growth.sent, growth.levels) == (None, 1)
    assert growth.scores.tolist() == [0.0, -1.0]


def test_a_walk_ends_at_a_guess_or_begins_anew() -> None:
    def walked(tokens: list[int]) -> tuple[Retained, list[int]]:
        growth = two_levels()
        growth.levels_of(SEQUENCE, [4])
        growth.branch([4], [[5]], [[-1.0]])
        return growth.walk(tokens), growth.tokens.tolist()

    assert walked([1, 4]) == (Retained([1, 2], [], hit=True), [4, 5])
    # it was sent: what is below it may have been rejected
    assert walked([1])[0] == Retained([], [], hit=False)
    assert walked([1, 8])[0] == Retained([1], [], hit=False)
    assert walked([1, 4, 9])[0] == Retained([1, 2], [], hit=False)
    assert walked([2, 4])[0] == Retained([], [], hit=False)


def test_nothing_is_drafted_below_what_ends_a_sequence() -> None:
    growth = Growth(7, 8, frozenset({1}))
    growth.branch([0], [[1, 2]], [[-0.1, -3.0]])
    assert growth.next_here(4, 4, 9, width=None)[0] == [2]
    growth.send_bare()
    assert growth.next_ahead(4, 1, 9) == [2]
    assert growth.next_ahead(4, 5, 9) == [2]


def test_where_nothing_more_can_be_sent_the_likeliest_are_guessed() -> None:
    growth = Growth(7, 8, frozenset())
    growth.send_bare()
    growth.branch_drawn(0, Q, 2, Dice(0))
    assert growth.tokens[1:6].tolist() == [0, 1, 2, 3, 4]
    assert len(growth) <= 1 + SPARE
    assert not growth.offered[1:].any()
    assert growth.drawn == {}


def always(levels: int, promise: float) -> bool:
    return True


@given(st.integers(0, 10**6), st.booleans(), st.integers(1, 4))
def test_what_was_sent_ahead_is_what_is_away_once_it_is_taken(
    seed: int, sampled: bool, versions: int
) -> None:
    rng, width = random.Random(seed), 2 if sampled else None
    growth = grown(rng, nodes=6, passes=2, width=width)
    growth.propose(6, 9, sampled=sampled)
    sent = []
    for _ in range(versions):
        if ahead := growth.next_ahead(4, 3, 9):
            grow(growth, ahead, rng, width=width)
        sent.append(growth.branch_off(3, 4, 9, always, sampled=sampled))
    if not any(sent):
        return
    version = rng.choice([number for number, found in enumerate(sent, start=1) if found])
    branch, promise = rng.choice(sent[version - 1])
    assert len({(each.end, each.bonus) for each, _ in sent[version - 1]}) == len(sent[version - 1])
    assert 0 < len(branch.proposal.tokens) <= 4
    path, node = [], growth.order[branch.end - 1] if branch.end else 0
    while node > 0:
        path.append(growth.sent[node])  # type: ignore[index]
        node = int(growth.parents[node])
    assert growth.follow(path[::-1], branch.bonus, version).hit
    assert growth.tokens[0] == branch.bonus
    assert growth.promised >= promise - 1e-9  # more of it may have been run since
    assert growth._proposal(0, growth.order, sampled=sampled) == branch.proposal
    ahead = growth.next_ahead(4, 3, 9)  # and it grows on below that, as below any tree that is away
    assert all(node in growth.sent or growth._guesses[node] > 0 for node in ahead)  # type: ignore[operator]


def test_what_is_not_worth_it_is_not_sent_ahead() -> None:
    growth = two_levels()
    growth.levels_of(SEQUENCE, [4, 3])
    growth.branch([4, 3], [[5], [6]], [[-1.0], [-2.0]])
    asked = []
    assert growth.branch_off(9, 9, 9, lambda *of: bool(asked.append(of)), sampled=False) == []
    assert asked == [(1, 1.0), (1, 1.0)]  # each has one level below it, whose nodes were not run
    ((branch, _),) = growth.branch_off(1, 9, 9, always, sampled=False)
    assert branch == Branch(0, 3, Proposal((6,), (0,))), "3 after the root is likelier than 4 after 1"
