"""How near the verifiers come to the best that is lossless, and that none of them comes past it."""

from __future__ import annotations

from functools import partial
from itertools import chain, combinations

import pytest
from joint import PROMPT, WeighedTrees, drafted, expected_accepted
from optimum import optimum
from tables import VOCABULARY, Table, TableModel, random_table

from specops.engine.drafters import make_drafter
from specops.engine.heads.draft_model import ModelGrower
from specops.engine.request import Sampling
from specops.engine.tree import Draw
from specops.engine.verifiers import make_verifier

VERIFIERS = ("naive", "mss", "traversal", "ranked")
MODELS = [(random_table(seed), random_table(500 + seed)) for seed in range(3)]


def trees_of(spec: str, draw: Draw, q: Table) -> WeighedTrees:
    draft = partial(ModelGrower, TableModel(q))
    return drafted(make_drafter(spec, draw, [draft], rows=1, length=12), Sampling(temperature=1.0))


def efficiency(spec: str, draw: Draw) -> dict[str, float]:
    """Tokens a step over the optimum's, over all models together."""
    reached, best = dict.fromkeys(VERIFIERS, 0.0), 0.0
    for p, q in MODELS:
        trees = trees_of(spec, draw, q)
        found = {name: expected_accepted(trees, make_verifier(name), p) for name in VERIFIERS}
        most = optimum(trees, p)
        assert max(found.values()) < most + 1e-9
        best += 1 + most
        for name, accepted in found.items():
            reached[name] += 1 + accepted
    return {name: tokens / best for name, tokens in reached.items()}


@pytest.mark.parametrize("draw", [Draw.IID, Draw.WITHOUT_REPLACEMENT], ids=lambda draw: draw.name.lower())
@pytest.mark.parametrize("spec", ["expand:2", "expand:2,1"])
def test_ranked_is_nearest_to_the_optimum(spec: str, draw: Draw) -> None:
    found = efficiency(spec, draw)
    assert found["naive"] < found["mss"] < found["traversal"] + 1e-12
    assert found["traversal"] + 0.001 < found["ranked"]
    assert found["ranked"] > 0.95


@pytest.mark.parametrize("draw", [Draw.IID, Draw.WITHOUT_REPLACEMENT], ids=lambda draw: draw.name.lower())
def test_on_a_chain_block_verification_is_the_optimum(draw: Draw) -> None:
    """Which is traversal, and ranked as well: nothing is to be ranked there."""
    found = efficiency("chain:2", draw)
    assert found["traversal"] == pytest.approx(1.0, abs=1e-9)
    assert found["ranked"] == pytest.approx(1.0, abs=1e-9)
    assert found["mss"] < 0.99


@pytest.mark.parametrize("width", [1, 2, 3])
def test_of_one_level_the_optimum_is_known(width: int) -> None:
    """Of independent draws it is 1 + min over sets H of p(H) - q(H)^k (arXiv 2502.18779)."""
    for p, q in MODELS:
        here, drawn = p(PROMPT).tolist(), q(PROMPT).tolist()
        sets = chain.from_iterable(combinations(range(VOCABULARY), size) for size in range(VOCABULARY + 1))
        known = 1 + min(sum(here[x] for x in h) - sum(drawn[x] for x in h) ** width for h in sets)
        assert optimum(trees_of(f"expand:{width}", Draw.IID, q), p) == pytest.approx(known, abs=1e-9)
