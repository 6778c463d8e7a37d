"""The computed means are what the production verifiers do, over every answer of chance."""

from __future__ import annotations

from functools import cache, partial

import pytest
from enumeration import Script, distribution_of
from joint import drafted, target_rows
from tables import TableModel, random_table
from torch import Tensor

from specops.engine.drafters import make_drafter
from specops.engine.heads.draft_model import ModelGrower
from specops.engine.request import Sampling
from specops.engine.tree import Draw, TokenTree
from specops.engine.verifiers import VERIFIERS
from specops.engine.verifiers.verifier import Verifier

REPEATS = (0, 1, 2, 0, 1)
SPECS = ["chain:2", "expand:2", "expand:3", "expand:2,2", "expand:2,1+ngram:2", "chain:2+expand:2"]


@cache
def trees_of(spec: str, draw: Draw) -> list[TokenTree]:
    """Some of those that may be drawn."""
    drafts = [partial(ModelGrower, TableModel(random_table(seed))) for seed in (1, 2)]
    alone = "+" not in spec or "ngram" in spec
    drafter = make_drafter(spec, draw, drafts[:1] if alone else drafts, rows=1, length=12)
    return [tree for tree, _ in drafted(drafter, Sampling(temperature=1.0), REPEATS)[::7]]


@pytest.mark.parametrize("rule", VERIFIERS)
@pytest.mark.parametrize("draw", [Draw.IID, Draw.WITHOUT_REPLACEMENT], ids=lambda draw: draw.name.lower())
@pytest.mark.parametrize("spec", SPECS)
def test_tree_by_tree(spec: str, draw: Draw, rule: str) -> None:
    verifier = VERIFIERS[rule]
    p = random_table(0)
    for tree in trees_of(spec, draw):
        rows = target_rows(tree, p, REPEATS)
        counts = distribution_of(partial(_accepted, verifier, tree, rows))
        mean = sum(count * weight for count, weight in counts.items())
        assert verifier.expected(tree, rows) == pytest.approx(mean, abs=1e-12)


def _accepted(verifier: Verifier, tree: TokenTree, rows: Tensor, chance: Script) -> int:
    return len(verifier.verify(tree, rows, chance).path)


@pytest.mark.parametrize("support", [1, 2])
def test_distributions_with_zeros(support: int) -> None:
    drafts = [partial(ModelGrower, TableModel(random_table(1, support=support)))]
    drafter = make_drafter("expand:2,2", Draw.WITHOUT_REPLACEMENT, drafts, rows=1, length=12)
    p = random_table(0, support=3 - support)
    for tree, _ in drafted(drafter, Sampling(temperature=1.0)):
        rows = target_rows(tree, p)
        for verifier in VERIFIERS.values():
            counts = distribution_of(partial(_accepted, verifier, tree, rows))
            assert verifier.expected(tree, rows) == pytest.approx(
                sum(n * w for n, w in counts.items()), abs=1e-12
            )
