"""Rules and kernels that are wrong in one place decide otherwise: the cases would find it out.

A mutant is the kernel's own source with one expression exchanged.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest
import torch

if not os.environ.get("CI"):
    pytest.importorskip("triton", reason="needs the kernels extra")

from mutants import mutant
from sampling_cases import Case, decided, poisoned, same
from specops_kernels import (
    sampling,
    sampling_multi_step_kernel,
    sampling_residual_kernel,
    sampling_rows_kernel,
    sampling_traversal_kernel,
)
from specops_kernels.sampling_rows import Rows
from specops_kernels.verify_trees import PackedTrees, Turns, Verified
from test_sampling_kernels import CASES, TILE
from torch import Tensor
from triton.runtime.interpreter import InterpretedFunction

from specops.engine.verifiers.mss import MultiStep
from specops.engine.verifiers.traversal import Traversal

VERIFIERS = {"multi_step": MultiStep(), "traversal": Traversal()}

pytestmark = pytest.mark.skipif(
    torch.cuda.is_available(), reason="a compiled kernel does not look up its parts at every call"
)


@pytest.fixture(autouse=True)
def _poison() -> Iterator[None]:
    with poisoned():
        yield


class Known(NamedTuple):
    target: Rows
    draft: Rows
    trees: PackedTrees
    uniforms: Tensor
    expected: Verified
    replace: bool


@cache
def known(rule: str, name: str) -> Known:
    case = CASES[name]
    expected, uniforms = decided(case, VERIFIERS[rule], name)
    return Known(case.target(TILE), case.draft(TILE), case.packed, uniforms, expected, case.replace)


def right(rule: str, name: str, **other: object) -> bool:
    """Whether a rule as it is now decides as the engine's."""
    here = known(rule, name)
    arguments = {"trees": here.trees, "replace": here.replace, **other}
    found = getattr(sampling, rule)(here.target, here.draft, uniforms=here.uniforms, tile=TILE, **arguments)
    return same(found, here.expected)


@dataclass(frozen=True)
class Mistake:
    module: ModuleType
    right: str
    wrong: str
    what: str
    case: str  # of test_sampling_kernels, which finds it out


RESIDUAL, ROWS = sampling_residual_kernel, sampling_rows_kernel
STEPS, TRAVERSAL = sampling_multi_step_kernel, sampling_traversal_kernel
# None that asks for ever: uniforms have an end, and the interpreter reads on behind it.
OF_BOTH = [
    Mistake(
        RESIDUAL,
        "before + mass / (weight",
        "before + 1 / (weight",
        "a second rejection as if the first",
        "two drafts",
    ),
    Mistake(
        RESIDUAL, "before + mass / (weight", "mass / (weight", "the first rejection forgotten", "two drafts"
    ),
    Mistake(
        RESIDUAL,
        "weight * tl.load(drafts.left + source)",
        "weight",
        "no renormalised draft taken away",
        "a draft that is nearly sure",
    ),
    Mistake(
        RESIDUAL,
        "logits) / tl.load(drafts.left + source)",
        "logits)",
        "no renormalised draft compared",
        "a draft that is nearly sure",
    ),
    Mistake(
        RESIDUAL,
        "first = tl.load(nodes.turns + node)",
        "first = turn",
        "only the last draw left out",
        "a draft that is nearly sure",
    ),
    Mistake(
        RESIDUAL,
        "nodes.sources + earlier) < 0",
        "nodes.sources + earlier) < -1",
        "sure tokens kept",
        "merged",
    ),
    Mistake(RESIDUAL, "spent += taken", "spent = taken", "of several drafts only one", "two drafts"),
    Mistake(RESIDUAL, "logits) - spent, 0.0)", "logits) - spent, -1.0)", "a negative residual", "two drafts"),
    Mistake(
        RESIDUAL,
        "node, turn + 1, VOCAB, BLOCK)\n    if",
        "node, turn, VOCAB, BLOCK)\n    if",
        "one turn late",
        "merged",
    ),
    Mistake(
        RESIDUAL,
        "wanted = uniform * mass",
        "wanted = uniform",
        "the last token from a residual that does not add up",
        "two drafts",
    ),
    Mistake(
        RESIDUAL, "before += within", "before += 0.0", "a sum that forgets the tiles before", "two drafts"
    ),
    Mistake(
        RESIDUAL,
        "positive & (tl.cumsum(weights, 0) > short)",
        "positive",
        "the first token of a tile",
        "two drafts",
    ),
    Mistake(
        ROWS,
        'vocab, other=float("-inf")).to(tl.float32)\n\n',
        "vocab, other=0.0)\n\n",
        "tokens beyond the vocabulary",
        "merged",
    ),
]
OF_ONE = [
    Mistake(STEPS, "token, VOCAB) / mass", "token, VOCAB)", "a residual that is not normalised", "wor"),
    Mistake(
        STEPS, "turn, VOCAB) < claimed", "turn, VOCAB) * 0.5 < claimed", "too much accepted", "two drafts"
    ),
    Mistake(STEPS, "mass = rest", "mass = mass", "a residual as if nothing was rejected", "two drafts"),
    Mistake(
        TRAVERSAL,
        "claim / (claim + (1 - weight))",
        "claim / (claim + 1)",
        "a weight that is too small",
        "two drafts",
    ),
    Mistake(
        TRAVERSAL, "claim / (claim + (1 - weight))", "weight", "a weight that no rejection changes", "merged"
    ),
    Mistake(
        TRAVERSAL,
        "claimed < chance, claimed / chance",
        "claimed < 0, claimed / chance",
        "weight one",
        "two drafts",
    ),
    Mistake(TRAVERSAL, "mass = tl.load(open_nodes.mass + node)", "mass = mass", "the child's mass", "merged"),
]


def put_in(mistake: Mistake, folder: Path, patch: pytest.MonkeyPatch) -> None:
    """The mutant in the place of every function of its module, wherever that is used."""
    made = mutant(mistake.module, mistake.right, mistake.wrong, folder)
    kernels = {name: value.fn for name, value in vars(made).items() if isinstance(value, InterpretedFunction)}
    own = {name for name, function in kernels.items() if function.__module__ == made.__name__}
    for user in (RESIDUAL, STEPS, TRAVERSAL):
        for name in own & vars(user).keys():
            patch.setattr(user, name, getattr(made, name))
    for kernel in ("multi_step", "traversal"):
        if hasattr(made, kernel):
            patch.setattr(sampling, f"{kernel}_kernel", getattr(made, kernel))


@pytest.mark.quick(2)
@pytest.mark.parametrize("mistake", OF_BOTH, ids=lambda mistake: mistake.what)
def test_a_wrong_residual_is_found_out_by_either_rule(
    mistake: Mistake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_in(mistake, tmp_path, monkeypatch)
    for rule in VERIFIERS:
        assert not right(rule, mistake.case)


@pytest.mark.quick(2)
@pytest.mark.parametrize("mistake", OF_ONE, ids=lambda mistake: mistake.what)
def test_a_wrong_walk_is_found_out(mistake: Mistake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_in(mistake, tmp_path, monkeypatch)
    rule = "multi_step" if mistake.module is STEPS else "traversal"
    assert not right(rule, mistake.case)


@pytest.mark.slow
@pytest.mark.parametrize("rule", VERIFIERS)
def test_the_rule_for_another_draw_is_wrong(rule: str) -> None:
    assert not right(rule, "wor", replace=True)
    assert not right(rule, "iid", replace=False)


class Reversed:
    """A tree whose children are tried last first."""

    def __init__(self, case: Case, index: int) -> None:
        self._tree = case.trees[index]
        self.tokens = self._tree.tokens

    def turns(self, node: int) -> Turns:
        return self._tree.turns(node)[::-1]


@pytest.mark.quick(1)
@pytest.mark.parametrize("rule", VERIFIERS)
def test_siblings_in_another_order_are_decided_otherwise(rule: str) -> None:
    case = CASES["wor"]
    trees = PackedTrees.of([Reversed(case, index) for index in range(len(case.trees))])
    assert not right(rule, "wor", trees=trees)
