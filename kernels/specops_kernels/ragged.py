"""The batch of one forward pass, in the form that the kernels read: the same for every layer, made once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from specops_kernels.transfer import to_device

WORD = 64
"""Bits of a mask word."""


@dataclass(frozen=True)
class Ragged:
    """B sequences that feed n tokens between them, packed without padding.

    A token of sequence b sees all slots before starts[b], and of those in [starts[b], stops[b]) the ones
    whose bits are set in its row of `ancestors`: bit j of word w stands for slot starts[b] + 64 * w + j.
    Bits of slots from stops[b] on must be 0. The tokens' own keys and values are in the cache already.
    """

    table: Tensor
    """[B] int32, each sequence's row of a slotted cache; or [B, p] int32, its pages of a paged one."""

    offsets: Tensor  # [B + 1] int32: the tokens of sequence b are offsets[b]:offsets[b + 1] of the n
    starts: Tensor  # [B] int32
    stops: Tensor  # [B] int32
    ancestors: Tensor  # [n, words] int64
    most: int  # tokens of one sequence, at most
    longest: int  # slots of one sequence, at most

    @staticmethod
    def of(
        table: Tensor,
        starts: Sequence[int],
        ancestors: Sequence[Tensor],
        reaches: Sequence[int] | None = None,
    ) -> Ragged:
        """Return the batch on the table's device, from what the host knows.

        ancestors: of each sequence, [tokens, words] int64 (`pack`, or `Topology.ancestors`)
        reaches: slots from the start that are in use; None: as many as the sequence feeds tokens
        """
        counts = [len(words) for words in ancestors]
        reaches = counts if reaches is None else reaches
        if not len(starts) == len(counts) == len(reaches) == len(table):
            raise ValueError(
                f"{len(table)} rows of the table, {len(starts)} starts, {len(counts)} masks and"
                f" {len(reaches)} reaches are not of the same sequences"
            )
        if not counts or min(counts) < 1:
            raise ValueError("every sequence must feed a token")
        stops = [start + reach for start, reach in zip(starts, reaches, strict=True)]
        offsets = [0, *accumulate(counts)]
        on_device = to_device(table.device, offsets, starts, stops)
        words = max(one.shape[1] for one in ancestors)
        packed = torch.zeros(offsets[-1], words, dtype=torch.int64)
        for first, one in zip(offsets, ancestors, strict=False):
            packed[first : first + len(one), : one.shape[1]] = one
        return Ragged(
            table=table.to(torch.int32).contiguous(),
            offsets=on_device[0],
            starts=on_device[1],
            stops=on_device[2],
            ancestors=packed.to(table.device),
            most=max(counts),
            longest=max(stops),
        )

    @property
    def sequences(self) -> int:
        return self.table.shape[0]

    @property
    def tokens(self) -> int:
        return self.ancestors.shape[0]

    @property
    def paged(self) -> bool:
        return self.table.dim() == 2


def pack(sees: Tensor) -> Tensor:
    """[n, m] bool -> [n, ceil(m / 64)] int64, bit j of word w standing for column 64 * w + j."""
    n, m = sees.shape
    words = -(-m // WORD)
    bits = torch.zeros(n, words * WORD, dtype=torch.int64, device=sees.device)
    bits[:, :m] = sees
    # Bit 63 is the sign: shifting, unlike multiplying, knows it.
    return (bits.view(n, words, WORD) << torch.arange(WORD, device=sees.device)).sum(-1)
