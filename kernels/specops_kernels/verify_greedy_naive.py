"""Greedy verification, node by node on the host: what the kernel is held against."""

from __future__ import annotations

import torch
from torch import Tensor

from specops_kernels.verify_greedy import Commit
from specops_kernels.verify_trees import PackedTrees, Verified


def verify_greedy(logits: Tensor, trees: PackedTrees, commit: Commit | None = None) -> Verified:
    """Verify as `specops_kernels.verify_greedy.verify_greedy` does."""
    first, _, turns, _, children, tokens, _ = (numbers.tolist() for numbers in trees.nodes)
    verified = Verified.empty(trees)
    verified.path.fill_(-1)
    for sequence in range(trees.sequences):
        root = node = first[sequence]
        path: list[int] = []
        while True:
            here = logits[node].double()
            wanted = int((here == here.max()).nonzero()[0])
            tried = range(turns[node], turns[node + 1])
            found = next((children[turn] for turn in tried if tokens[turn] == wanted), None)
            if found is None:
                break
            node = found
            path.append(node - root)
        verified.path[sequence, : len(path)] = torch.tensor(path, dtype=torch.int32)
        verified.length[sequence] = len(path)
        verified.bonus[sequence] = wanted
        if commit is not None:
            row, start = int(commit.rows[sequence]), int(commit.starts[sequence])
            copied = commit.kv[:, row, [start + node for node in path]]  # a copy
            commit.kv[:, row, start + 1 : start + 1 + len(path)] = copied
    return verified
