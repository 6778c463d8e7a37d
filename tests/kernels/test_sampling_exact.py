"""Lossless, exactly: what the kernels emit has the target's distribution, over all that chance can answer.

For a given tree the cube of uniforms falls into cells, within each of which everything is decided alike. The
engine's verifier is enumerated, which gives the cells, their volumes and what is emitted in each; the kernel
is asked once in each cell. So the sum of the volumes by output is the kernel's own output distribution, but
for what rounding does at the walls.
"""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch

if not os.environ.get("CI"):
    pytest.importorskip("triton", reason="needs the kernels extra")

sys.path.append(str(Path(__file__).parents[1] / "engine"))  # the engine's oracles

from cells import cells
from enumeration import total_variation
from joint import PROMPT, continuations, drafted, target_rows
from sampling_cases import DEVICE, Case, poisoned
from specops_kernels import sampling, sampling_naive
from specops_kernels.verify_trees import Verified
from tables import Prefix, TableModel, random_table
from torch import Tensor

from specops.engine.drafters import make_drafter
from specops.engine.heads.draft_model import ModelGrower
from specops.engine.request import Sampling
from specops.engine.tree import Draw, TokenTree
from specops.engine.verifiers.mss import MultiStep
from specops.engine.verifiers.traversal import Traversal
from specops.engine.verifiers.verifier import Verifier

Rule = Callable[..., Verified]
TABLE = random_table(0)


def emitted(rule: Rule, verifier: Verifier, spec: str, draw: Draw, tile: int | None) -> dict[Prefix, float]:
    """The distribution of what a rule emits, token by token beside the engine."""
    drafter = make_drafter(spec, draw, [partial(ModelGrower, TableModel(random_table(1)))], rows=1, length=12)
    trees: list[TokenTree] = []
    rows: list[Tensor] = []
    volumes: list[float] = []
    uniforms: list[list[float]] = []
    expected: list[tuple[list[int], int]] = []
    for tree, weight in drafted(drafter, Sampling(temperature=1.0)):
        p = target_rows(tree, TABLE)
        for cell, path, bonus in cells(tree, verifier, p):
            trees.append(tree)
            rows.append(p)
            volumes.append(weight * cell.weight)
            uniforms.append(cell.uniforms)
            expected.append((path, bonus))
    case = Case(trees, rows, replace=draw is Draw.IID)
    width = sampling.questions(case.packed)
    padded = [[*of, *[0.5] * (width - len(of))] for of in uniforms]
    found = rule(
        case.target(tile),
        case.draft(tile),
        case.packed,
        torch.tensor(padded, dtype=torch.float64, device=DEVICE),
    )
    joint: dict[Prefix, float] = defaultdict(float)
    for index, (tree, volume) in enumerate(zip(trees, volumes, strict=True)):
        path, bonus = found.path[index, : found.length[index]].tolist(), int(found.bonus[index])
        assert (path, bonus) == expected[index]
        joint[*(tree.tokens[node] for node in path), bonus] += volume
    return dict(joint)


def error(joint: dict[Prefix, float], count: int) -> float:
    """Total variation to the target over `count` tokens; what is shorter goes on by sampling from it."""
    whole: dict[Prefix, float] = defaultdict(float)
    for tokens, volume in joint.items():
        for further, weight in continuations(TABLE, (*PROMPT, *tokens), count - len(tokens)).items():
            whole[*tokens, *further] += volume * weight
    return total_variation(whole, continuations(TABLE, PROMPT, count))


@pytest.mark.parametrize("verifier", [MultiStep(), Traversal()], ids=lambda verifier: verifier.name)
@pytest.mark.parametrize(
    ("spec", "depth", "draw"),
    [
        pytest.param("expand:3", 1, Draw.WITHOUT_REPLACEMENT, id="three without replacement"),
        pytest.param("expand:2", 1, Draw.IID, id="two independent"),
        pytest.param("chain:2", 2, Draw.IID, id="chain"),
        pytest.param("expand:2,1", 2, Draw.WITHOUT_REPLACEMENT, id="two levels"),
    ],
)
def test_the_reference(spec: str, depth: int, draw: Draw, verifier: Verifier) -> None:
    naive = getattr(sampling_naive, "traversal" if verifier.name == "traversal" else "multi_step")
    replace = draw is Draw.IID
    assert error(emitted(partial(naive, replace=replace), verifier, spec, draw, None), depth + 1) < 1e-8


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("verifier", "spec", "depth", "draw"),
    [
        pytest.param(MultiStep(), "expand:2", 1, Draw.IID, id="mss-iid"),
        pytest.param(MultiStep(), "expand:2", 1, Draw.WITHOUT_REPLACEMENT, id="mss-wor"),
        pytest.param(Traversal(), "expand:2", 1, Draw.WITHOUT_REPLACEMENT, id="traversal-wor"),
        pytest.param(Traversal(), "chain:2", 2, Draw.IID, id="traversal-chain"),
    ],
)
def test_the_kernel(verifier: Verifier, spec: str, depth: int, draw: Draw) -> None:
    rule = sampling.traversal if verifier.name == "traversal" else sampling.multi_step
    with poisoned():
        joint = emitted(partial(rule, replace=draw is Draw.IID), verifier, spec, draw, 4)
    assert error(joint, depth + 1) < 1e-8
