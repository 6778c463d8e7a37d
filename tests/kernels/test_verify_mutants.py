"""A greedy kernel that is wrong in one place leaves another path, token or cache than the reference."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

if not os.environ.get("CI"):
    pytest.importorskip("triton", reason="needs the kernels extra")

from mutants import mutant
from sampling_cases import DEVICE, poisoned
from specops_kernels import verify_greedy as wrapper
from specops_kernels import verify_greedy_kernel, verify_greedy_naive
from specops_kernels.verify_greedy import Commit
from specops_kernels.verify_trees import PackedTrees
from test_verify_greedy import BATCHES, cache, logits_along

# None that reads or writes where nothing is: the interpreter would do it.
MISTAKES = {
    "columns beyond the vocabulary": (
        'mask=inside, other=float("-inf"))\n    values = values.to',
        'mask=inside, other=float("inf"))\n    values = values.to',
    ),
    "a tile's first column whatever it holds": ("inside & (values == top)", "inside"),
    "a tile's column as if it were the first tile": ("columns = tile * BLOCK +", "columns ="),
    "only the first tile": ("mask=tile < tiles, other=float", "mask=tile < 1, other=float"),
    "any child": ("tl.where(tokens == wanted,", "tl.where(tokens >= 0,"),
    "numbers of another tree": ("+ accepted, node - root)", "+ accepted, node)"),
    "a path that does not end": ("while accepted < depth", "while accepted > depth"),
    "the root's slot overwritten": ("(start + accepted).to", "(start + accepted - 1).to"),
    "nothing moves": ("if source != goal", "if source < goal"),
    "the first layer only": ("(part // parts).to(tl.int64)", "(part * 0).to(tl.int64)"),
    "the first part of a slot only": ("(part % parts) * BLOCK", "(part * 0) * BLOCK"),
    "the row by the sequence's number": ("tl.load(kv_rows + sequence).to", "sequence.to"),
}


def right() -> bool:
    """Of two tiles, two layers and two parts of a slot, and of trees that are not alike."""
    trees, ends = BATCHES["ragged, bare ones too"]
    torch.manual_seed(0)
    logits, packed = logits_along(trees, ends), PackedTrees.of(trees, DEVICE)
    commit = cache(trees, layers=2, kv_heads=1, dim=5, dtype=torch.float32)
    other = Commit(commit.kv.clone(), commit.rows, commit.starts)
    expected = verify_greedy_naive.verify_greedy(logits, packed, other)
    with poisoned():
        found = wrapper.verify_greedy(logits, packed, commit, tile=16)
    outputs = zip((*found, commit.kv), (*expected, other.kv), strict=True)
    return all(torch.equal(one, two) for one, two in outputs)


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wrapper, "MOVED", 8)  # of a slot's ten elements


def test_the_kernel_itself_is_right() -> None:
    assert right()


@pytest.mark.quick(3)
@pytest.mark.parametrize("what", MISTAKES)
def test_a_mistake_is_found_out(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = mutant(verify_greedy_kernel, *MISTAKES[what], tmp_path)
    for name in ("tile_argmax", "verify_and_compact"):
        monkeypatch.setattr(wrapper, name, getattr(made, name))
    assert not right()
