"""Multi-step sampling and traversal, of trees drawn from a draft that is nearly right."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from specops_kernels import sampling, sampling_naive
from specops_kernels.bench.contest import OURS, Contest
from specops_kernels.sampling_rows import Rows
from specops_kernels.verify_trees import PackedTrees, Verified

OFF = 0.5
"""Standard deviation of the target's logits around the draft's."""

SPREAD = 3.0
"""Spread of the draft's logits."""


@dataclass(frozen=True)
class Case:
    sequences: int
    nodes: int
    vocabulary: int = 128256


CASES = (Case(1, 64), Case(32, 16), Case(32, 64))
QUICK = (Case(32, 64),)


@dataclass(frozen=True)
class _Tree:
    tokens: list[int]
    children: list[list[int]]

    def turns(self, node: int, /) -> list[tuple[int, int | None]]:
        return [(child, 0) for child in self.children[node]]


def contests(cases: tuple[Case, ...], dtype: torch.dtype, device: torch.device) -> Iterator[Contest]:
    for case in cases:
        yield from _contests(case, dtype, device)


def _contests(case: Case, dtype: torch.dtype, device: torch.device) -> Iterator[Contest]:
    random = torch.Generator().manual_seed(case.nodes)
    many = case.sequences * case.nodes
    draft = SPREAD * torch.randn(many, case.vocabulary, device=device)
    target = (draft + OFF * torch.randn_like(draft)).to(dtype)
    draft = draft.to(dtype)
    trees, drawn_from = [], list[int]()
    for first in range(0, many, case.nodes):
        tree = _tree(draft[first : first + case.nodes], random)
        drawn_from += [first + node for node, below in enumerate(tree.children) if below]
        trees.append(tree)
    draft = draft[drawn_from]
    packed = PackedTrees.of(trees, device)
    uniforms = torch.rand(case.sequences, sampling.questions(packed), dtype=torch.float64, device=device)
    one = torch.ones(many, device=device)

    def verified(verify: Callable[..., Verified]) -> Tensor:
        rows = Rows.of(target, one), Rows.of(draft, one[: len(draft)])
        return _path(verify(*rows, packed, uniforms, replace=True))

    def contest(name: str, ours: Callable[..., Verified], naive: Callable[..., Verified]) -> Contest:
        return Contest(
            name=f"{name}, {case.sequences} × {case.nodes} nodes, {case.vocabulary} tokens",
            bytes=target.element_size() * case.vocabulary * (many + len(draft)),
            operations=0,
            reference=lambda: verified(naive).to(torch.float64),
            tolerance=0.0,
            arms={OURS: lambda: lambda: verified(ours)},
        )

    yield contest("multi-step sampling", sampling.multi_step, sampling_naive.multi_step)
    yield contest("traversal", sampling.traversal, sampling_naive.traversal)


def _tree(logits: Tensor, random: torch.Generator) -> _Tree:
    """Any shape; the children of a node drawn independently from its row of the draft's logits."""
    children: list[list[int]] = [[] for _ in range(len(logits))]
    for node in range(1, len(logits)):
        children[int(torch.randint(node, (), generator=random))].append(node)
    tokens = [0] * len(logits)
    for node, below in enumerate(children):
        if below:
            drawn = torch.multinomial(logits[node].float().softmax(-1), len(below), replacement=True)
            for child, token in zip(below, drawn.tolist(), strict=True):
                tokens[child] = token
    return _Tree(tokens, children)


def _path(found: Verified) -> Tensor:
    """Return the path, without the token after it: among so many, float32 and float64 may disagree in whose
    interval it is."""
    return torch.cat([found.path.flatten(), found.length])
