"""Random ragged batches over a cache in which everything that nobody may read is NaN."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from specops_kernels.ragged import Ragged, pack
from torch import Tensor


@dataclass(frozen=True)
class Shape:
    """Of a batch: a prefix and a tree for each sequence."""

    prefixes: tuple[int, ...]
    nodes: tuple[int, ...]
    group: int = 2  # query heads of a KV head
    kv_heads: int = 2
    dim: int = 16
    page: int = 0  # slots; 0: slotted
    dtype: torch.dtype = torch.float32


@dataclass(frozen=True)
class Inputs:
    q: Tensor
    kv: Tensor  # one layer
    batch: Ragged


def random_sees(nodes: int) -> Tensor:
    """[nodes, nodes] bool: each node and its ancestors, in a tree drawn at random."""
    sees = torch.eye(nodes, dtype=torch.bool)
    for node in range(1, nodes):
        sees[node] |= sees[int(torch.randint(node, ()))]
    return sees


def inputs(shape: Shape, device: torch.device, sees: Sequence[Tensor] | None = None) -> Inputs:
    """Fresh random queries, keys and values. `sees`: [fed, slots after the prefix] bool, of each sequence."""
    sees = [random_sees(nodes) for nodes in shape.nodes] if sees is None else sees
    stops = [prefix + one.shape[1] for prefix, one in zip(shape.prefixes, sees, strict=True)]
    kv, table = poisoned(stops, shape, device)
    for sequence, stop in enumerate(stops):
        kv[at(table, sequence, stop, kv.shape[1])] = torch.randn(
            stop, 2 * shape.kv_heads, shape.dim, device=device
        ).to(shape.dtype)
    q = torch.randn(sum(map(len, sees)), shape.group * shape.kv_heads, shape.dim, device=device)
    batch = Ragged.of(table, shape.prefixes, [pack(one) for one in sees], [one.shape[1] for one in sees])
    return Inputs(q.to(shape.dtype), kv, batch)


def poisoned(stops: Sequence[int], shape: Shape, device: torch.device) -> tuple[Tensor, Tensor]:
    """A cache of NaN with room to spare, and a table whose rows or pages lie in it in no order."""
    many, longest = len(stops), max(stops) + 3
    size = (2 * shape.kv_heads, shape.dim)
    if shape.page:
        pages = -(-longest // shape.page)
        table = torch.randperm(many * pages + 2, device=device)[: many * pages].view(many, pages)
        kv = torch.full((many * pages + 2, shape.page, *size), torch.nan, dtype=shape.dtype, device=device)
    else:
        table = torch.randperm(many + 1, device=device)[:many]
        kv = torch.full((many + 1, longest, *size), torch.nan, dtype=shape.dtype, device=device)
    return kv, table.int()


def at(table: Tensor, sequence: int, stop: int, page: int) -> tuple[Tensor, Tensor]:
    """Indices of a sequence's first `stop` slots in a layer."""
    slots = torch.arange(stop, device=table.device)
    if table.dim() == 1:
        return table[sequence].long().expand(stop), slots
    return table[sequence].long()[slots // page], slots % page
