"""KV compaction beside the indexed copies that it replaces."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from specops_kernels import gather_naive
from specops_kernels.bench.contest import OURS, Contest
from specops_kernels.gather import Moves, compact


@dataclass(frozen=True)
class Case:
    sequences: int
    layers: int = 32
    kv_heads: int = 8
    dim: int = 128
    start: int = 40  # slots of a sequence before its tree
    accepted: tuple[int, ...] = (2, 5, 9, 12)  # nodes; none is in place

    @property
    def name(self) -> str:
        return f"KV compaction, {self.sequences} × {len(self.accepted)} slots in {self.layers} layers"

    def bytes(self, size: int) -> int:
        """Read and written. size: bytes of a number"""
        return 4 * size * self.layers * self.sequences * len(self.accepted) * self.kv_heads * self.dim


CASES = (Case(1), Case(32))
QUICK = (Case(32),)


def contests(cases: tuple[Case, ...], dtype: torch.dtype, device: torch.device) -> Iterator[Contest]:
    for case in cases:
        room = case.start + max(case.accepted) + 1
        cache = torch.randn(case.layers, case.sequences, room, 2 * case.kv_heads, case.dim, device=device)
        yield _contest(case, cache.to(dtype))


def _contest(case: Case, cache: Tensor) -> Contest:
    table = torch.arange(case.sequences, dtype=torch.int32, device=cache.device)
    starts = [case.start] * case.sequences
    slots = [[case.start + node for node in case.accepted]] * case.sequences

    def ours() -> Callable[[], Tensor]:
        own, moves = cache.clone(), Moves.of(table, starts, slots)

        def work() -> Tensor:
            compact(own, moves)
            return own

        return work

    def indexed() -> Callable[[], Tensor]:
        own = cache.clone()
        source = torch.tensor(slots[0], device=cache.device)
        target = slice(case.start, case.start + len(case.accepted))

        def work() -> Tensor:
            for row in range(case.sequences):
                own[:, row, target] = own[:, row].index_select(1, source)
            return own

        return work

    return Contest(
        name=case.name,
        bytes=case.bytes(cache.element_size()),
        operations=0,
        reference=lambda: gather_naive.compact(cache, table, starts, slots).to(torch.float64),
        tolerance=0.0,
        arms={OURS: ours, "an indexed copy a sequence": indexed},
    )
