"""Tree attention beside its peers, on one layer of a cache as a serving engine has it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from specops_kernels import tree_attention_naive
from specops_kernels.bench import peers
from specops_kernels.bench.contest import OURS, Contest
from specops_kernels.ragged import Ragged, pack
from specops_kernels.tree_attention import tree_attention

TOLERANCE = {torch.float16: 5e-3, torch.bfloat16: 4e-2, torch.float32: 1e-4}
"""Tolerance of outputs that are means of standard normal values; a wrong mask is off by more on short
prefixes, and the kernel's tests look at those."""


@dataclass(frozen=True)
class Case:
    sequences: int
    nodes: int  # of each tree, the root included
    prefix: int  # slots before the tree
    heads: int = 32
    kv_heads: int = 8
    dim: int = 128

    @property
    def name(self) -> str:
        return f"tree attention, {self.sequences} × {self.nodes} nodes after {self.prefix}"

    def bytes(self, size: int) -> int:
        """Every key and value once, queries and outputs once. size: bytes of a number"""
        slots = self.sequences * (self.prefix + self.nodes)
        tokens = self.sequences * self.nodes
        return size * self.dim * (2 * self.kv_heads * slots + 2 * self.heads * tokens)

    @property
    def operations(self) -> int:
        """Return the operations of both products, over all of the tree's slots: what a tile computes, visible
        or not."""
        return 4 * self.sequences * self.nodes * (self.prefix + self.nodes) * self.heads * self.dim


CASES = (
    Case(1, 16, 4096),
    Case(1, 64, 4096),
    Case(8, 32, 1024),
    Case(16, 16, 4096),
    Case(16, 32, 4096),
    Case(16, 64, 4096),
    Case(32, 64, 4096),
)
QUICK = (Case(16, 16, 4096), Case(16, 64, 4096))


@dataclass(frozen=True)
class Inputs:
    """All sequences equally long: peers that pad would otherwise pay for the padding, not for the mask."""

    case: Case
    q: Tensor  # [sequences * nodes, heads, dim]
    kv: Tensor  # [sequences, prefix + nodes, 2 * kv_heads, dim]
    sees: Tensor  # [sequences, nodes, nodes] bool
    batch: Ragged

    @staticmethod
    def of(case: Case, dtype: torch.dtype, device: torch.device) -> Inputs:
        """Random trees, each of another shape."""
        random = torch.Generator().manual_seed(case.nodes)
        sees = torch.eye(case.nodes, dtype=torch.bool).repeat(case.sequences, 1, 1)
        for tree in sees:
            for node in range(1, case.nodes):
                tree[node] |= tree[int(torch.randint(node, (), generator=random))]
        q = torch.randn(case.sequences * case.nodes, case.heads, case.dim, device=device).to(dtype)
        slots = case.prefix + case.nodes
        kv = torch.randn(case.sequences, slots, 2 * case.kv_heads, case.dim, device=device).to(dtype)
        table = torch.arange(case.sequences, dtype=torch.int32, device=device)
        batch = Ragged.of(table, [case.prefix] * case.sequences, [pack(tree) for tree in sees])
        return Inputs(case, q, kv, sees.to(device), batch)


def contests(cases: tuple[Case, ...], dtype: torch.dtype, device: torch.device) -> Iterator[Contest]:
    for case in cases:
        yield _contest(Inputs.of(case, dtype, device))


def _contest(made: Inputs) -> Contest:
    def ours() -> Callable[[], Tensor]:
        return lambda: tree_attention(made.q, made.kv, made.batch)

    return Contest(
        name=made.case.name,
        bytes=made.case.bytes(made.kv.element_size()),
        operations=made.case.operations,
        reference=lambda: tree_attention_naive.tree_attention(made.q, made.kv, made.batch),
        tolerance=TOLERANCE[made.q.dtype],
        arms={
            OURS: ours,
            "a launch a sequence": lambda: peers.launches(made),
            "SDPA with a mask": lambda: peers.sdpa(made),
            "flex_attention": lambda: peers.flex(made),
            "FlashInfer": peers.absent("flashinfer") or (lambda: peers.flashinfer(made)),
        },
    )
