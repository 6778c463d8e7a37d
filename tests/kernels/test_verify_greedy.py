"""Greedy verification with the commit of the cache, held against the reference and the engine's own walk."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import pairwise

import pytest
import torch

if not os.environ.get("CI"):
    pytest.importorskip("triton", reason="needs the kernels extra")

from sampling_cases import DEVICE, poisoned
from specops_kernels import verify_greedy_naive
from specops_kernels.verify_greedy import Commit, verify_greedy
from specops_kernels.verify_trees import PackedTrees, Verified
from torch import Tensor

from specops.engine.attention import KVCache
from specops.engine.drafters.compound import merge
from specops.engine.tree import Draw, TokenTree, Topology
from specops.engine.verifiers.naive import verify_greedy as engine_walk

VOCAB = 21


@pytest.fixture(autouse=True)
def _poison() -> Iterator[None]:
    with poisoned():
        yield


def tree(parents: tuple[int, ...], seed: int, *, duplicates: bool = False) -> TokenTree:
    """Siblings differ, unless there are to be duplicates."""
    generator = torch.Generator().manual_seed(seed)
    topology = Topology.from_parents((-1, *parents))
    tokens = [0] * len(topology)
    for children in topology.children:
        chosen = torch.randperm(VOCAB, generator=generator)[: len(children)].tolist()
        for child, token in zip(children, chosen, strict=True):
            tokens[child] = chosen[0] if duplicates else token
    return TokenTree(topology, tokens, Draw.DETERMINISTIC)


def logits_along(trees: list[TokenTree], ends: list[int], dtype: torch.dtype = torch.float32) -> Tensor:
    """[N, VOCAB] random logits whose greatest lead down to node ends[b] of tree b, and then out of it."""
    rows = []
    for each, end in zip(trees, ends, strict=True):
        logits = torch.randn(len(each), VOCAB)
        path = [0, *each.path_to(end)]
        for node, child in pairwise(path):
            logits[node, each.tokens[child]] = 9
        taken = {each.tokens[child] for child in each.topology.children[end]}
        logits[end, next(token for token in reversed(range(VOCAB)) if token not in taken)] = 9
        rows.append(logits)
    return torch.cat(rows).to(DEVICE, dtype)


BUSHY = (0, 0, 0, 1, 1, 2, 4, 4, 7)
CHAIN = tuple(range(12))
BATCHES = {
    "bushy": ([tree(BUSHY, 1), tree(BUSHY, 2)], [8, 5]),
    "a chain is in place": ([tree(CHAIN, 3)], [12]),
    "last children only": ([tree((0, 0, 2, 2, 4, 4, 6, 6), 4)], [8]),
    "ragged, bare ones too": (
        [TokenTree.bare(3), tree(BUSHY, 5), tree(CHAIN, 6), tree((0,), 7)],
        [0, 9, 4, 0],
    ),
    "nothing but roots": ([TokenTree.bare(3), TokenTree.bare(4)], [0, 0]),
    "duplicates": ([tree((0, 0, 0, 1, 2), 8, duplicates=True)], [4]),
    "merged": ([merge([tree((0, 1, 2), 9), tree((0, 0, 1), 9)])[0]], [3]),
}


def cache(trees: list[TokenTree], layers: int, kv_heads: int, dim: int, dtype: torch.dtype) -> Commit:
    """Rows in another order than the sequences, with one that nobody has; slots of unlike prefixes."""
    rows = list(reversed(range(1, len(trees) + 1)))
    starts = [3 * index for index in range(len(trees))]
    capacity = max(start + len(each) for start, each in zip(starts, trees, strict=True))
    kv = torch.randn(layers, len(trees) + 1, capacity, 2 * kv_heads, dim).to(DEVICE, dtype)
    return Commit(
        kv, *(torch.tensor(numbers, dtype=torch.int32, device=DEVICE) for numbers in (rows, starts))
    )


@pytest.mark.parametrize("name", BATCHES)
def test_path_bonus_and_cache(name: str) -> None:
    trees, ends = BATCHES[name]
    logits, packed = logits_along(trees, ends), PackedTrees.of(trees, DEVICE)
    commit = cache(trees, layers=2, kv_heads=1, dim=6, dtype=torch.float32)
    other = Commit(commit.kv.clone(), commit.rows, commit.starts)
    expected = verify_greedy_naive.verify_greedy(logits, packed, other)
    found = verify_greedy(logits, packed, commit, tile=8)
    for one, two in zip(found, expected, strict=True):
        assert torch.equal(one, two)
    assert torch.equal(commit.kv, other.kv)
    _as_the_engine(found, trees, logits)
    for index, end in enumerate(ends):
        assert trees[index].path_to(end) == found.path[index, : found.length[index]].tolist()


def _as_the_engine(found: Verified, trees: list[TokenTree], logits: Tensor) -> None:
    choices, first = logits.argmax(-1).tolist(), 0
    for index, each in enumerate(trees):
        walked = engine_walk(each, choices[first : first + len(each)])
        first += len(each)
        assert found.path[index].tolist() == walked.path + [-1] * (found.path.shape[1] - len(walked.path))
        assert int(found.bonus[index]) == walked.bonus


def test_the_cache_is_committed_as_the_engine_does() -> None:
    trees, ends = BATCHES["bushy"]
    commit = cache(trees, layers=3, kv_heads=2, dim=4, dtype=torch.bfloat16)
    engine = KVCache(3, len(trees) + 1, commit.kv.shape[2], 2, 4, torch.bfloat16)
    engine.data.copy_(commit.kv)
    found = verify_greedy(logits_along(trees, ends, torch.bfloat16), PackedTrees.of(trees, DEVICE), commit)
    for index in range(len(trees)):
        start, path = int(commit.starts[index]), found.path[index, : found.length[index]].tolist()
        engine.compact(int(commit.rows[index]), start + 1, [start + node for node in path])
    assert torch.equal(commit.kv.cpu(), engine.data)


def test_a_slot_in_parts() -> None:
    """A slot of more elements than one program moves, and no multiple of them."""
    trees, ends = [tree((0, 0, 2, 2), 4)], [4]
    commit = cache(trees, layers=2, kv_heads=3, dim=400, dtype=torch.float16)
    other = Commit(commit.kv.clone(), commit.rows, commit.starts)
    logits, packed = logits_along(trees, ends), PackedTrees.of(trees, DEVICE)
    verify_greedy_naive.verify_greedy(logits, packed, other)
    verify_greedy(logits, packed, commit)
    assert torch.equal(commit.kv, other.kv)


def test_without_a_cache() -> None:
    trees, ends = BATCHES["bushy"]
    logits, packed = logits_along(trees, ends), PackedTrees.of(trees, DEVICE)
    found, expected = verify_greedy(logits, packed), verify_greedy_naive.verify_greedy(logits, packed)
    for one, two in zip(found, expected, strict=True):
        assert torch.equal(one, two)


@pytest.mark.parametrize(
    ("row", "token"),
    [
        pytest.param([1.0, 7.0, 7.0, 0.0, 7.0, 7.0], 1, id="the first of equal ones, across tiles"),
        pytest.param([float("-inf")] * 5 + [-3.0], 5, id="all but the last cut away"),
        pytest.param([float("-inf")] * 6, 0, id="nothing left"),
        pytest.param([float("nan")] * 6, 0, id="a NaN names no token that is none"),
        pytest.param([1.0, float("nan"), 2.0, 0.0, 0.0, 0.0], 2, id="a NaN beside others"),
    ],
)
def test_ties_and_cuts(row: list[float], token: int) -> None:
    found = verify_greedy(
        torch.tensor([row], device=DEVICE), PackedTrees.of([TokenTree.bare(0)], DEVICE), tile=4
    )
    assert found.bonus.tolist() == [token]


def test_what_cannot_be_verified_is_refused() -> None:
    trees, ends = BATCHES["bushy"]
    packed, logits = PackedTrees.of(trees, DEVICE), logits_along(trees, ends)
    commit = cache(trees, layers=1, kv_heads=1, dim=4, dtype=torch.float32)
    with pytest.raises(ValueError, match="one row a node"):
        verify_greedy(logits[1:], packed)
    with pytest.raises(ValueError, match="one row a node"):
        verify_greedy(logits.T.contiguous().T, packed)
    with pytest.raises(ValueError, match="contiguous slots"):
        verify_greedy(logits, packed, Commit(commit.kv.transpose(3, 4), commit.rows, commit.starts))
    with pytest.raises(ValueError, match="rows must be"):
        verify_greedy(logits, packed, Commit(commit.kv, commit.rows.long(), commit.starts))
