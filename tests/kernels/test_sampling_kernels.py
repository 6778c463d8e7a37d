"""Multi-step sampling and traversal on logits decide what the engine's own verifiers decide in float64."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch

if not os.environ.get("CI"):
    pytest.importorskip("triton", reason="needs the kernels extra")

from sampling_cases import DEVICE, Case, case, cut, decided, grown, nearly_sure, poisoned, same
from specops_kernels import sampling, sampling_naive
from specops_kernels.sampling_rows import Rows
from specops_kernels.verify_trees import PackedTrees, Turns

from specops.engine.drafters.compound import merge
from specops.engine.tree import Draw, TokenTree
from specops.engine.verifiers.mss import MultiStep
from specops.engine.verifiers.traversal import Traversal
from specops.engine.verifiers.verifier import Verifier

VOCAB = 23
TILE = 16  # two tiles, the second of which is ragged
WOR, IID, SURE = Draw.WITHOUT_REPLACEMENT, Draw.IID, Draw.DETERMINISTIC
RULES = [pytest.param(MultiStep(), id="mss"), pytest.param(Traversal(), id="traversal")]


@pytest.fixture(autouse=True)
def _poison() -> Iterator[None]:
    with poisoned():
        yield


def merged(seed: str) -> TokenTree:
    """What an n-gram and two drafts proposed: sure children first, then two draws at one node."""
    parts = [((1, 1), SURE), ((2, 1), WOR), ((1, 2), WOR)]
    return merge([grown(widths, draw, VOCAB, f"{seed} {widths}") for widths, draw in parts])[0]


def two_drafts(seed: str) -> TokenTree:
    return merge([grown((2,), WOR, VOCAB, f"{seed} {draft}") for draft in range(2)])[0]


def equal_to_draft(seed: str) -> Case:
    """p is q at every node that has children: the residual is zero, and a child is accepted surely."""
    trees = [grown((2, 2), draw, VOCAB, f"{seed} {draw}") for draw in (WOR, WOR)]
    made = case(trees, VOCAB, seed)
    for tree, p in zip(trees, made.p, strict=True):
        for node, drawn in enumerate(tree.q or ()):
            if drawn:
                p[node] = drawn[0]
    return made


CASES: dict[str, Case] = {
    "iid": case([grown((4, 2)[: 1 + i % 2], IID, VOCAB, f"iid {i}") for i in range(6)], VOCAB, "iid"),
    "wor": case([grown((4, 2)[: 1 + i % 2], WOR, VOCAB, f"wor {i}") for i in range(12)], VOCAB, "wor"),
    "two drafts": case([two_drafts(f"{i}") for i in range(6)], VOCAB, "two"),
    "duplicates": case([grown((4,), IID, VOCAB, f"dup {i}", cut(2)) for i in range(3)], VOCAB, "dup"),
    "deep": case(
        [grown((1,) * 9, IID, VOCAB, f"deep {i}") for i in range(2)], VOCAB, "deep", temperature=0.7
    ),
    "ragged": case(
        [TokenTree.bare(5), *(grown(w, WOR, VOCAB, f"{w}") for w in ((2,), (1, 1, 2))), TokenTree.bare(0)],
        VOCAB,
        "ragged",
    ),
    "bare": case([TokenTree.bare(3)] * 2, VOCAB, "bare"),
    "sure": case([grown((2, 1), SURE, VOCAB, f"sure {i}") for i in range(3)], VOCAB, "sure"),
    "merged": case([merged(f"{i}") for i in range(3)], VOCAB, "merged"),
    "hot": case([grown((2, 2), WOR, VOCAB, f"hot {i}") for i in range(2)], VOCAB, "hot", temperature=1.7),
    "top-k of both": case(
        [grown((3, 2), WOR, VOCAB, f"cut {i}", cut(5)) for i in range(3)], VOCAB, "cut", cut(5)
    ),
    "fewer than the width": case(
        [grown((4,), WOR, VOCAB, f"few {i}", cut(2)) for i in range(2)], VOCAB, "few"
    ),
    "p is q": equal_to_draft("equal"),
    "a draft that is nearly sure": case(
        [grown((3,), WOR, VOCAB, f"sure of it {i}", nearly_sure) for i in range(3)], VOCAB, "peaked"
    ),
}


@pytest.mark.quick(6)
@pytest.mark.parametrize("verifier", RULES)
@pytest.mark.parametrize("name", CASES)
def test_the_kernel_decides_as_the_engine(name: str, verifier: Verifier) -> None:
    made = CASES[name]
    expected, uniforms = decided(made, verifier, name)
    rule = "multi_step" if isinstance(verifier, MultiStep) else "traversal"
    target, draft = made.target(TILE), made.draft(TILE)
    naive = getattr(sampling_naive, rule)(target, draft, made.packed, uniforms, replace=made.replace)
    assert same(naive, expected)
    found = getattr(sampling, rule)(target, draft, made.packed, uniforms, replace=made.replace, tile=TILE)
    assert same(found, expected)


def test_what_cannot_be_verified_is_refused() -> None:
    made = CASES["ragged"]
    target, draft, trees = made.target(TILE), made.draft(TILE), made.packed
    enough = torch.zeros(trees.sequences, sampling.questions(trees), dtype=torch.float64)
    with pytest.raises(ValueError, match="the draft has rows"):
        sampling.multi_step(target, target, trees, enough, replace=False)
    with pytest.raises(ValueError, match="the target has rows"):
        sampling.traversal(draft, draft, trees, enough, replace=False)
    with pytest.raises(ValueError, match="are fewer than"):
        sampling.traversal(target, draft, trees, enough[:, 1:].contiguous(), replace=False)
    with pytest.raises(ValueError, match="float64"):
        sampling.multi_step(target, draft, trees, enough.float(), replace=False)
    with pytest.raises(ValueError, match="one for each row"):
        Rows.of(target.logits, target.temperature[1:])
    with pytest.raises(ValueError, match="contiguous rows"):
        Rows.of(target.logits.T, target.temperature)


class Listed:
    """Two tokens below a root, tried as told."""

    tokens = (0, 1, 2)

    def __init__(self, *turns: tuple[int, int | None]) -> None:
        self._turns = turns

    def turns(self, node: int) -> Turns:
        return self._turns if node == 0 else ()


def test_trees_that_cannot_be_packed_are_refused() -> None:
    PackedTrees.of([Listed((1, 0), (2, 0), (1, 1), (2, None))])
    with pytest.raises(ValueError, match="not in the order of their distributions"):
        PackedTrees.of([Listed((1, 0), (2, 1), (1, 0))])
    with pytest.raises(ValueError, match="cannot have the child 3"):
        PackedTrees.of([Listed((3, 0))])
    with pytest.raises(ValueError, match="cannot have the child 0"):
        PackedTrees.of([Listed((0, None))])


def test_a_uniform_of_zero_and_one_that_is_nearly_one() -> None:
    """The first and the last token that have any probability, and never one that has none."""
    p = torch.tensor([[0.0, 0.3, 0.3, 0.4, 0.0]], dtype=torch.float64)
    bare = Case([TokenTree.bare(0)] * 3, [p] * 3, replace=True)
    uniforms = torch.tensor(
        [[0.5, u] for u in (0.0, 0.3 + 1e-6, 1 - 2**-53)], dtype=torch.float64, device=DEVICE
    )
    for rule in (sampling.multi_step, sampling.traversal):
        asked = uniforms[:, 1:].repeat(1, 2) if rule is sampling.multi_step else uniforms
        found = rule(bare.target(2), bare.draft(2), bare.packed, asked.contiguous(), replace=True, tile=2)
        assert found.bonus.tolist() == [1, 2, 3]
