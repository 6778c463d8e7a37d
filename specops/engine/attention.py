"""Tree attention over a slotted KV cache, through SDPA with the topology's mask.

A forward pass takes the tokens of many sequences packed in one row of n tokens, without padding: linear
layers see [n, hidden], and only attention looks at which sequence a token is of. Adjacent cache rows that
feed equally many tokens under one mask form a group, which is one SDPA call over a view of the cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

from specops.engine.cache import KVCache


class Mask:
    """What n new tokens see of the last m slots; all slots before those are seen by every token.

    The additive form of a mask that comes again lies in the middle of a wide buffer, zeros to its left and
    -inf to its right, so that the mask for any prefix length, padded to any width, is a view of it.
    """

    def __init__(self, sees: Tensor) -> None:
        self.sees = sees  # [n, m] bool
        self.everything = bool(sees.all())
        self._wide: dict[tuple[int, torch.dtype], Tensor] = {}
        self._used = False

    def over(self, prefix: int, width: int, tile: int, dtype: torch.dtype) -> Tensor:
        """[tile * n, width] additive, for `prefix` slots before the m and padding after them."""
        if not self._used or prefix > LONGEST_WIDE:
            self._used = True  # most shapes of dynamic trees and prompts are seen once
            return self._buffer(prefix, width - prefix - self.sees.shape[1], tile, dtype)
        wide = self._wide.get((tile, dtype))
        m = self.sees.shape[1]
        reach = 0 if wide is None else (wide.shape[1] - m) // 2
        if wide is None or reach < max(prefix, width):
            reach = max(256, 2 * reach, prefix, width)
            wide = self._wide[tile, dtype] = self._buffer(reach, reach, tile, dtype)
        return wide[:, reach - prefix : reach - prefix + width]

    def _buffer(self, left: int, right: int, tile: int, dtype: torch.dtype) -> Tensor:
        n, m = self.sees.shape
        buffer = torch.zeros(tile * n, left + m + right, dtype=dtype)
        buffer[:, left : left + m].masked_fill_(~self.sees.repeat(tile, 1), float("-inf"))
        buffer[:, left + m :] = float("-inf")
        return buffer


LONGEST_WIDE = 4096
"""Slots; a wide buffer beyond this would cost more memory than building each mask costs time."""


@lru_cache(maxsize=64)
def causal(n: int) -> Mask:
    """n tokens in a line."""
    return Mask(torch.ones(n, n, dtype=torch.bool).tril())


def causal_then(n: int, tail: Tensor) -> Mask:
    """n tokens in a line, whose last t see each other as `tail`, [t, t] bool, says."""
    sees = torch.ones(n, n, dtype=torch.bool).tril()
    sees[n - len(tail) :, n - len(tail) :] = tail
    return Mask(sees)


@dataclass(frozen=True)
class Span:
    """The tokens that one sequence feeds in one forward pass."""

    row: int  # of the cache
    start: int  # slot of the first token fed; the others follow
    count: int
    positions: Tensor  # [count] int64
    mask: Mask  # [count, m] over the last m slots up to its own

    @property
    def stop(self) -> int:
        return self.start + self.count


@dataclass(frozen=True)
class Group:
    """Adjacent rows that feed equally many tokens under one mask: one SDPA call a layer."""

    rows: int
    count: int  # tokens a row
    mask: Tensor | None  # [rows or 1, 1, tile * count, width] additive
    keys: tuple[Tensor, ...]  # for each layer: [rows, kv_heads, width, head_dim], a view of the cache
    values: tuple[Tensor, ...]


class Layout:
    """Where the tokens of one packed forward pass go, and what each of them sees.

    All views of the cache are made here, for all layers at once: making them layer by layer costs as much
    as the attention itself when a step is one token.
    """

    def __init__(self, spans: Sequence[Span], cache: KVCache, tile: int) -> None:
        """`spans` in the order of their rows; `tile`: query heads that share a KV head."""
        self.groups: list[Group] = []
        first = 0
        for index in range(1, len(spans) + 1):
            if index == len(spans) or not _together(spans[index - 1], spans[index]):
                self.groups.append(_group(spans[first:index], cache, tile))
                first = index
        self.positions: Tensor  # [n]
        self._destination: tuple[Tensor, ...]  # for each layer, where new keys and values go
        self._slots: Tensor | None = None  # [n] which of the destination's; None: all of them
        if len(spans) == 1:
            span = spans[0]
            self.positions = span.positions
            self._destination = cache.data[:, span.row, span.start : span.stop].unbind()
        else:
            self.positions = torch.cat([span.positions for span in spans])
            self._destination = cache.data.flatten(1, 2).unbind()
            starts = [span.row * cache.capacity + span.start for span in spans]
            slots = [
                s for start, span in zip(starts, spans, strict=True) for s in range(start, start + span.count)
            ]
            self._slots = torch.tensor(slots)

    def write(self, layer: int, kv: Tensor) -> None:
        """kv: [n, 2 * kv_heads, head_dim]."""
        if self._slots is None:
            self._destination[layer].copy_(kv)
        else:
            self._destination[layer].index_copy_(0, self._slots, kv)


def _together(one: Span, other: Span) -> bool:
    return other.row == one.row + 1 and other.count == one.count and other.mask is one.mask


def _group(spans: Sequence[Span], cache: KVCache, tile: int) -> Group:
    width = max(span.stop for span in spans)
    rows = slice(spans[0].row, spans[-1].row + 1)
    past = cache.data[:, rows, :width].transpose(2, 3)  # [layers, rows, 2 * kv_heads, width, dim]
    half = past.shape[2] // 2
    return Group(
        len(spans),
        spans[0].count,
        _mask(spans, width, tile, cache.data.dtype),
        past[:, :, :half].unbind(),
        past[:, :, half:].unbind(),
    )


def _mask(spans: Sequence[Span], width: int, tile: int, dtype: torch.dtype) -> Tensor | None:
    mask = spans[0].mask
    reach = mask.sees.shape[1]
    if mask.everything and all(span.stop == width for span in spans):
        return None
    if len(spans) == 1:
        return mask.over(width - reach, width, tile, dtype)[None, None]
    return torch.stack([mask.over(span.stop - reach, width, tile, dtype) for span in spans])[:, None]


def attend(layout: Layout, layer: int, q: Tensor, kv: Tensor, scale: float | None = None) -> Tensor:
    """Write the new keys and values of a layer, then let every token attend to what it sees.

    q:  [n, heads, head_dim]
    kv: [n, 2 * kv_heads, head_dim], keys before values
    returns [n, heads * head_dim]
    """
    layout.write(layer, kv)
    kv_heads, dim = kv.shape[1] // 2, kv.shape[2]
    outputs, start = [], 0
    for group in layout.groups:
        rows, count = group.rows, group.count
        stop = start + rows * count
        queries = q[start:stop] if len(layout.groups) > 1 else q
        start = stop
        if count == 1:
            queries = queries.view(rows, kv_heads, -1, dim)
        else:
            # The heads of a group ride along as further queries, so that each key is read once.
            queries = queries.view(rows, count, kv_heads, -1, dim).permute(0, 2, 3, 1, 4)
            queries = queries.reshape(rows, kv_heads, -1, dim)
        seen = F.scaled_dot_product_attention(
            queries, group.keys[layer], group.values[layer], attn_mask=group.mask, scale=scale
        )
        if count > 1:
            seen = seen.view(rows, kv_heads, -1, count, dim).permute(0, 3, 1, 2, 4)
        outputs.append(seen.reshape(rows * count, -1))
    return outputs[0] if len(outputs) == 1 else torch.cat(outputs)
