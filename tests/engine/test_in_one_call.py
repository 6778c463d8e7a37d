"""Verification in one compiled call: in every cell of its random numbers what the rule's own file decides."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial

import pytest
import torch
from cells import cells
from hypothesis import given, settings
from hypothesis import strategies as st
from joint import drafted, target_rows
from shapes import parents
from tables import TableModel, random_table
from torch import Tensor

from specops.engine import compiled
from specops.engine.chance import FEW, Dice, Distributions
from specops.engine.drafters import make_drafter
from specops.engine.drafters.draft_model import DraftModel
from specops.engine.request import Sampling
from specops.engine.tree import Draw, TokenTree, Topology
from specops.engine.verifiers import Verified, make_verifier
from specops.engine.verifiers.in_one_call import in_one_call
from specops.engine.verifiers.mss import MultiStep
from specops.engine.verifiers.ranked import Ranked
from specops.engine.verifiers.traversal import Traversal

PLAIN = Sampling(temperature=1.0)
RULES = [
    pytest.param(MultiStep(), compiled.multi_step, id="mss"),
    pytest.param(Traversal(), compiled.traverse, id="traversal"),
]
DRAWN = [Draw.IID, Draw.WITHOUT_REPLACEMENT]


class Told(Dice):
    """Dice whose numbers are known beforehand."""

    def __init__(self, numbers: list[float]) -> None:
        super().__init__(0)
        self._numbers = numbers

    def several(self, count: int) -> list[float]:
        assert len(self._numbers) <= count
        return [*self._numbers, *[0.5] * (count - len(self._numbers))]


def in_float32(tree: TokenTree) -> TokenTree:
    assert tree.q is not None
    return replace(tree, q=tuple(tuple(q.float() for q in tree.q[node]) for node in range(len(tree))))


def decided(rule: compiled.Rule, tree: TokenTree, p: Tensor, chance: Dice) -> Verified:
    with torch.inference_mode():
        compiled._left._room.fill_(torch.nan)  # whatever an earlier call left there
    found = in_one_call(rule, tree, Distributions(p.log().float(), PLAIN), chance)
    assert found is not None
    return found


@pytest.mark.parametrize(("verifier", "rule"), RULES)
@pytest.mark.parametrize("draw", DRAWN, ids=lambda draw: draw.name.lower())
@pytest.mark.parametrize("spec", ["chain:2", "expand:3", "expand:2,1", "shape:0,0,2"])
@pytest.mark.parametrize("support", [3, 2, 1])
def test_in_every_cell(
    spec: str, support: int, draw: Draw, verifier: MultiStep | Traversal, rule: compiled.Rule
) -> None:
    """With fewer tokens than children there are fewer children, and a draft that leaves nothing."""
    draft = partial(DraftModel, TableModel(random_table(1, support=support)))
    drafter = make_drafter(spec, draw, [draft], rows=1, length=12)
    for target in (random_table(0), random_table(1, support=support)):  # another, and the draft's own
        for tree, _ in drafted(drafter, PLAIN):
            p = target_rows(tree, target)
            for cell, path, bonus in cells(tree, verifier, p):
                found = decided(rule, in_float32(tree), p, Told(cell.uniforms))
                assert (found.path, found.bonus) == (path, bonus)


@pytest.mark.parametrize(("verifier", "rule"), RULES)
@given(st.data())
@settings(max_examples=60)
def test_any_small_tree(verifier: MultiStep | Traversal, rule: compiled.Rule, data: st.DataObject) -> None:
    """Drawn from anything; the walk's own Dice of the same seed."""
    topology = Topology.of(tuple(data.draw(parents(FEW))))
    rng = torch.Generator().manual_seed(seed := data.draw(st.integers(0, 10**6)))
    vocab, n = data.draw(st.integers(3, 70)), len(topology)
    p = torch.randn(n, vocab, generator=rng).mul(1.5).softmax(-1)
    q = (p.log() + torch.randn(n, vocab, generator=rng)).softmax(-1)
    draw, dice, tokens = data.draw(st.sampled_from(DRAWN)), Dice(seed), [0] * n
    for node, children in enumerate(topology.children):
        drawn = dice.draw(q[node], len(children), replace=draw is Draw.IID)
        for child, token in zip(children, drawn, strict=False):
            tokens[child] = token
        if len(drawn) < len(children):
            return  # more children than tokens, drawn without replacement
    tree = TokenTree(topology, tokens, draw, tuple((row,) for row in q))
    for number in range(20):
        walked = verifier.walk(tree, Distributions(p.log(), PLAIN), Dice(number))
        found = decided(rule, tree, p, Dice(number))
        assert (found.path, found.bonus) == (walked.path, walked.bonus)


def test_children_that_are_sure() -> None:
    """As top tokens and copies are, each as if drawn from a one-hot distribution."""
    p = random_table(0)
    tree = TokenTree(Topology.of((-1, 0, 0, 1)), [1, 2, 0, 1], Draw.DETERMINISTIC)
    rows = target_rows(tree, p)
    for verifier, rule in ((MultiStep(), compiled.multi_step), (Traversal(), compiled.traverse)):
        for cell, path, bonus in cells(tree, verifier, rows):
            found = decided(rule, tree, rows, Told(cell.uniforms))
            assert (found.path, found.bonus) == (path, bonus)


def chain(nodes: int) -> TokenTree:
    q = torch.full((nodes, 5), 0.2)
    shape = Topology.expansion((1,) * (nodes - 1))
    return TokenTree(shape, [0] * nodes, Draw.IID, tuple((row,) for row in q))


def test_what_cannot_be_one_call() -> None:
    def asked(tree: TokenTree, p: object = None, chance: object = None) -> Verified | None:
        rows = Distributions(torch.zeros(len(tree), 5), PLAIN) if p is None else p
        return in_one_call(compiled.traverse, tree, rows, chance or Dice(0))  # type: ignore[arg-type]

    assert asked(chain(FEW)) is not None
    assert asked(chain(FEW + 1)) is None
    assert asked(chain(3), p=torch.full((3, 5), 0.2)) is None
    assert asked(chain(3), p=Distributions(torch.zeros(3, 5, dtype=torch.float64), PLAIN)) is None
    assert asked(replace(chain(3), q=tuple((row.double(),) for row in torch.full((3, 5), 0.2)))) is None
    assert asked(replace(chain(3), merged=(((1, 0),), ((2, 0),), ()))) is None
    bare = replace(chain(3), q=None)
    assert asked(bare) is None
    with pytest.raises(ValueError, match="no draft distribution"):
        Traversal().verify(bare, Distributions(torch.zeros(3, 5), PLAIN), Dice(0))


def test_ranked_is_traversal_where_nothing_has_siblings() -> None:
    rng = random.Random(0)
    for seed in range(50):
        tree = chain(1 + rng.randrange(FEW))
        p = torch.randn(len(tree), 5, generator=torch.Generator().manual_seed(seed))
        found = [
            verifier.verify(tree, Distributions(p, PLAIN), Dice(seed))
            for verifier in (Ranked(), make_verifier("block"))
        ]
        assert found[0] == found[1]
