"""What must not be: rules that look like multi-step sampling and change the output's distribution.

Each is refused where it can be asked for. Here each is forced as well, by mislabelling a tree, to show that
the exactness tests would see it: next to every wrong rule stands the right one, on the same models.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from itertools import permutations, product
from math import factorial
from pathlib import Path

import pytest
import torch
from enumeration import Script, distribution_of, total_variation
from joint import PROMPT, WeighedTrees, continuations, drafted, expected_accepted, verified
from tables import Table, TableModel, random_table
from torch import Tensor

from specops.engine import load_engine
from specops.engine.drafters import make_drafter
from specops.engine.heads.draft_model import ModelGrower
from specops.engine.request import Sampling
from specops.engine.tree import Draw, TokenTree, Topology
from specops.engine.verifiers import best_verifier, make_verifier
from specops.engine.verifiers.mss import MultiStep
from specops.engine.verifiers.naive import Naive
from specops.engine.verifiers.ranked import Ranked
from specops.engine.verifiers.traversal import Traversal
from specops.engine.verifiers.verifier import Verifier, check
from specops.errors import LosslessError

PLAIN = Sampling(temperature=1.0)
MODELS = [(random_table(seed), random_table(100 + seed)) for seed in range(8)]


@cache
def trees_of(spec: str, draw: Draw, q: Table) -> WeighedTrees:
    return drafted(make_drafter(spec, draw, [partial(ModelGrower, TableModel(q))], rows=1, length=12), PLAIN)


def star(tokens: list[int], draw: Draw, q: Table) -> TokenTree:
    """A root with the given children, claimed to be drawn from q in the given way."""
    topology = Topology.expansion((len(tokens),))
    return TokenTree(topology, [PROMPT[-1], *tokens], draw, ((q(PROMPT),), *[()] * len(tokens)))


def top_k_as_draws(width: int, q: Table) -> WeighedTrees:
    """The draft's most likely tokens, verified by the q-ratio as if they had been drawn from q."""
    ((tree, _),) = trees_of(f"expand:{width}", Draw.DETERMINISTIC, q)
    return [(star(tree.tokens[1:], Draw.IID, q), 1.0)]


def without_replacement_as_iid(width: int, q: Table) -> WeighedTrees:
    """Draws without replacement, verified with a q that is not renormalised."""
    trees = trees_of(f"expand:{width}", Draw.WITHOUT_REPLACEMENT, q)
    return [(replace(tree, draw=Draw.IID), weight) for tree, weight in trees]


def shuffled(width: int, q: Table) -> WeighedTrees:
    """Draws without replacement, verified in random order."""
    return [
        (star(list(order), Draw.WITHOUT_REPLACEMENT, q), weight / factorial(width))
        for tree, weight in trees_of(f"expand:{width}", Draw.WITHOUT_REPLACEMENT, q)
        for order in permutations(tree.tokens[1:])
    ]


def without_duplicates(width: int, q: Table) -> WeighedTrees:
    """Independent draws of which only the first of equal ones is kept."""
    trees = trees_of(f"expand:{width}", Draw.IID, q)
    return [(star(list(dict.fromkeys(tree.tokens[1:])), Draw.IID, q), weight) for tree, weight in trees]


def errors(trees: Callable[[Table], WeighedTrees], rule: Verifier | None = None) -> list[float]:
    """Total variation over the next two tokens, for each of the models; of multi-step sampling."""
    rule = rule or MultiStep()
    return [total_variation(verified(trees(q), rule, p, 2), continuations(p, PROMPT, 2)) for p, q in MODELS]


@pytest.mark.parametrize(
    ("wrong", "width", "right", "least"),
    [
        pytest.param(top_k_as_draws, 1, Draw.IID, 0.1, id="top-1-by-the-q-ratio"),
        pytest.param(top_k_as_draws, 2, Draw.IID, 0.3, id="top-2-by-the-q-ratio"),
        pytest.param(
            without_replacement_as_iid, 2, Draw.WITHOUT_REPLACEMENT, 0.1, id="2-wor-by-the-iid-rule"
        ),
        pytest.param(
            without_replacement_as_iid, 3, Draw.WITHOUT_REPLACEMENT, 0.1, id="3-wor-by-the-iid-rule"
        ),
        pytest.param(shuffled, 2, Draw.WITHOUT_REPLACEMENT, 0.05, id="2-wor-in-random-order"),
        pytest.param(shuffled, 3, Draw.WITHOUT_REPLACEMENT, 0.05, id="3-wor-in-random-order"),
        pytest.param(without_duplicates, 2, Draw.IID, 0.01, id="2-iid-without-duplicates"),
        pytest.param(without_duplicates, 3, Draw.IID, 0.01, id="3-iid-without-duplicates"),
    ],
)
def test_a_mislabelled_tree_changes_the_output(
    wrong: Callable[[int, Table], WeighedTrees], width: int, right: Draw, least: float
) -> None:
    assert max(errors(lambda q: wrong(width, q))) > least
    assert max(errors(lambda q: trees_of(f"expand:{width}", right, q))) < 1e-12


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        pytest.param(without_replacement_as_iid, Draw.WITHOUT_REPLACEMENT, id="wor-by-the-iid-law"),
        pytest.param(without_duplicates, Draw.IID, id="iid-without-duplicates"),
    ],
)
def test_ranked_needs_the_law_of_the_draws(wrong: Callable[[int, Table], WeighedTrees], right: Draw) -> None:
    """It claims by how likely a token is met in its place; in which order two were drawn says nothing."""
    assert max(errors(lambda q: wrong(2, q), Ranked())) > 0.01
    assert max(errors(lambda q: trees_of("expand:2", right, q), Ranked())) < 1e-12
    assert max(errors(lambda q: shuffled(2, q), Ranked())) < 1e-12
    assert max(errors(lambda q: shuffled(3, q), Ranked())) > 0.01


def test_a_deterministic_tree_is_refused_by_multi_step() -> None:
    with pytest.raises(LosslessError, match="mss verifier would change the output's distribution") as caught:
        check(MultiStep(), Draw.DETERMINISTIC)
    assert "naive" in str(caught.value.hint)


@pytest.mark.parametrize("tree", ["dynamic:8:3", "ngram:4"])
def test_an_engine_that_would_be_wrong_does_not_load(tree: str, tiny_pair: tuple[Path, Path]) -> None:
    with pytest.raises(LosslessError, match="drawn deterministic"):
        load_engine(*tiny_pair, tree=tree, verifier="mss")


@pytest.mark.parametrize("spec", ["expand:2,1", "chain:2"])
@pytest.mark.parametrize("draw", [Draw.IID, Draw.WITHOUT_REPLACEMENT])
def test_a_sampled_tree_says_how_it_was_drawn_and_from_what(spec: str, draw: Draw) -> None:
    """The label decides the rule, so the two cannot be told apart wrongly after the draft."""
    q = random_table(1)
    for tree, _ in trees_of(spec, draw, q):
        assert tree.draw is draw
        assert tree.q is not None
        for node, children in enumerate(tree.topology.children):
            assert len(tree.q[node]) == bool(children)
            for row in tree.q[node]:
                prefix = (*PROMPT, *(tree.tokens[step] for step in tree.path_to(node)))
                assert row.tolist() == pytest.approx(q(prefix).tolist(), abs=1e-15)


def test_the_best_verifier_is_traversal_where_it_is_lossless() -> None:
    best: dict[Draw, type[Verifier]] = {draw: type(best_verifier(draw)) for draw in Draw}
    assert best == {
        Draw.IID: Traversal,
        Draw.WITHOUT_REPLACEMENT: Traversal,
        Draw.DETERMINISTIC: Naive,
    }


@pytest.mark.parametrize(
    ("spec", "draw"),
    [
        ("chain:1", Draw.IID),
        ("chain:2", Draw.IID),
        ("expand:2", Draw.IID),
        ("expand:3", Draw.IID),
        ("expand:2,1", Draw.IID),
        ("expand:2", Draw.WITHOUT_REPLACEMENT),  # three of three would always hold the target's token
        ("expand:2,1", Draw.WITHOUT_REPLACEMENT),
    ],
)
def test_multi_step_accepts_at_least_as_much_as_naive(spec: str, draw: Draw) -> None:
    """SpecInfer's theorem 4.3, on identical trees, by exact enumeration."""
    gains = []
    for seed in range(6):
        p = random_table(seed)
        trees = trees_of(spec, draw, random_table(500 + seed))
        gains.append(expected_accepted(trees, MultiStep(), p) - expected_accepted(trees, Naive(), p))
    assert min(gains) > -1e-12
    assert max(gains) > 0.1


@pytest.mark.parametrize("draw", [Draw.IID, Draw.WITHOUT_REPLACEMENT])
@pytest.mark.parametrize("spec", ["expand:2", "expand:3", "chain:2", "expand:2,1", "expand:1,2"])
def test_traversal_accepts_at_least_as_much_as_multi_step(spec: str, draw: Draw) -> None:
    """On identical trees, by exact enumeration; on one level it is the same rule."""
    gains = []
    for seed in range(6):
        p = random_table(seed)
        trees = trees_of(spec, draw, random_table(500 + seed))
        gains.append(expected_accepted(trees, Traversal(), p) - expected_accepted(trees, MultiStep(), p))
    assert min(gains) > -1e-12
    one_level = "," not in spec and spec.startswith("expand")
    assert max(gains) < 1e-12 if one_level else max(gains) > 0.001


def test_on_a_chain_traversal_is_block_verification() -> None:
    """arXiv 2403.10444: of two drafted tokens 11/9 are accepted, where token by token 10/9 are."""
    assert type(make_verifier("block")) is Traversal
    p = torch.tensor([1 / 3, 2 / 3], dtype=torch.float64)
    q = torch.tensor([2 / 3, 1 / 3], dtype=torch.float64)
    chain = Topology.expansion((1, 1))
    accepted = dict.fromkeys((Traversal, MultiStep), 0.0)
    for first, second in product(range(2), repeat=2):
        tree = TokenTree(chain, [0, first, second], Draw.IID, ((q,), (q,), ()))
        drawn = float(q[first] * q[second])
        for rule in accepted:
            run = partial(_accepted, rule(), tree, p.expand(3, -1))
            accepted[rule] += drawn * sum(count * w for count, w in distribution_of(run).items())
    assert accepted[Traversal] == pytest.approx(11 / 9, abs=1e-12)
    assert accepted[MultiStep] == pytest.approx(10 / 9, abs=1e-12)


def _accepted(rule: Verifier, tree: TokenTree, p: Tensor, chance: Script) -> int:
    return len(rule.verify(tree, p, chance).path)
