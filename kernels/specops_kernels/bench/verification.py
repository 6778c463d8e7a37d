"""Greedy verification beside an argmax and a walk on the host."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from specops_kernels import verify_greedy_naive
from specops_kernels.bench.contest import OURS, Contest
from specops_kernels.verify_greedy import verify_greedy
from specops_kernels.verify_trees import PackedTrees, Verified

AGREES = 0.7
"""Share of nodes of which a child has the target's token."""


@dataclass(frozen=True)
class Case:
    sequences: int
    nodes: int
    vocabulary: int = 128256

    @property
    def name(self) -> str:
        return f"greedy verification, {self.sequences} × {self.nodes} nodes, {self.vocabulary} tokens"

    def bytes(self, size: int) -> int:
        """The logits once. size: bytes of a number"""
        return size * self.sequences * self.nodes * self.vocabulary


CASES = (Case(1, 64), Case(32, 16), Case(32, 64))
QUICK = (Case(32, 64),)


@dataclass(frozen=True)
class _Tree:
    tokens: list[int]
    children: list[list[int]]

    def turns(self, node: int, /) -> list[tuple[int, int | None]]:
        return [(child, None) for child in self.children[node]]


def contests(cases: tuple[Case, ...], dtype: torch.dtype, device: torch.device) -> Iterator[Contest]:
    for case in cases:
        yield _contest(case, dtype, device)


def _contest(case: Case, dtype: torch.dtype, device: torch.device) -> Contest:
    random = torch.Generator().manual_seed(case.nodes)
    many = case.sequences * case.nodes
    wanted = torch.randint(case.vocabulary, (many,), generator=random)
    logits = torch.randn(many, case.vocabulary, device=device, dtype=dtype)
    logits[torch.arange(many, device=device), wanted.to(device)] = 20.0  # no ties, which argmax breaks anyhow
    trees = [
        _tree(wanted[first : first + case.nodes].tolist(), case.vocabulary, random)
        for first in range(0, many, case.nodes)
    ]
    packed = PackedTrees.of(trees, device)

    def ours() -> Callable[[], Tensor]:
        return lambda: _flat(verify_greedy(logits, packed))

    def on_the_host() -> Callable[[], Tensor]:
        def work() -> Tensor:
            best = logits.argmax(-1).tolist()
            found = Verified.empty(packed)
            paths = [_walk(tree, best[b * case.nodes :][: case.nodes]) for b, tree in enumerate(trees)]
            padded = [path + [-1] * (packed.depth - len(path)) for path, _ in paths]
            found.path.copy_(torch.tensor(padded, dtype=torch.int32))
            found.length.copy_(torch.tensor([len(path) for path, _ in paths], dtype=torch.int32))
            found.bonus.copy_(torch.tensor([bonus for _, bonus in paths], dtype=torch.int32))
            return _flat(found)

        return work

    return Contest(
        name=case.name,
        bytes=case.bytes(logits.element_size()),
        operations=0,
        reference=lambda: _flat(verify_greedy_naive.verify_greedy(logits, packed)).to(torch.float64),
        tolerance=0.0,
        arms={OURS: ours, "argmax, walked on the host": on_the_host},
    )


def _tree(wanted: list[int], vocabulary: int, random: torch.Generator) -> _Tree:
    """Any shape; a node's first child often is what the target wants there, its siblings are not."""
    children: list[list[int]] = [[] for _ in wanted]
    tokens = [0]
    for node in range(1, len(wanted)):
        parent = int(torch.randint(node, (), generator=random))
        agrees = not children[parent] and float(torch.rand((), generator=random)) < AGREES
        tokens.append(wanted[parent] if agrees else (wanted[parent] + 1 + node) % vocabulary)
        children[parent].append(node)
    return _Tree(tokens, children)


def _walk(tree: _Tree, best: list[int]) -> tuple[list[int], int]:
    """The accepted path, and the token after it."""
    node, path = 0, list[int]()
    while True:
        found = next((child for child in tree.children[node] if tree.tokens[child] == best[node]), None)
        if found is None:
            return path, best[node]
        path.append(found)
        node = found


def _flat(found: Verified) -> Tensor:
    return torch.cat([found.path.flatten(), found.length, found.bonus])
