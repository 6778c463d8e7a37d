"""The KV cache, and tree attention over it: compiled loops for trees, SDPA with a mask for prompts.

A forward pass takes the tokens of many sequences packed in one row of n tokens, without padding. Linear
layers get [n, hidden], and only attention needs to know the sequence of a token. The compiled loops take a
table of the sequences. For SDPA, adjacent cache rows that feed equally many tokens under one mask form a
group, which is one call over a view of the cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import accumulate, pairwise
from typing import Literal

import torch
import torch.nn.functional as F
from specops_kernels.ragged import Ragged, pack
from torch import Tensor

from specops.engine.cpu import ops


class Mask:
    """The slots that n new tokens see among the last m. All slots before those are visible to every token.

    The additive form of a repeated mask lies in the middle of a wide buffer, with zeros to its left and -inf
    to its right. So the mask for any prefix length, padded to any width, is a view of that buffer.
    """

    def __init__(self, sees: Tensor, line: int = 0) -> None:
        """line: of the n tokens, the first ones that follow each other, so that each sees all before it."""
        self.sees = sees.contiguous()  # [n, m] bool
        self.line = line
        self.everything = bool(sees.all())
        self._wide: dict[tuple[int, torch.dtype], Tensor] = {}
        self._used = False

    @cached_property
    def words(self) -> Tensor:
        """`sees` as the Triton kernel reads it: [n, ceil(m / 64)] int64, one bit a slot."""
        return pack(self.sees)

    def over(self, prefix: int, width: int, tile: int, dtype: torch.dtype) -> Tensor:
        """The additive mask, [tile * n, width], for `prefix` slots before the m and padding after them."""
        if not self._used or prefix > LONGEST_WIDE:
            self._used = True  # most shapes of dynamic trees and prompts are observed once
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
"""Slots of a prefix. A wider buffer would cost more memory than building each mask costs time."""


@lru_cache(maxsize=64)
def causal(n: int) -> Mask:
    """The mask of n tokens in a line."""
    return Mask(torch.ones(n, n, dtype=torch.bool).tril(), line=n)


def causal_then(n: int, tail: Tensor) -> Mask:
    """The mask of n tokens in a line, of which the last t see each other as `tail`, [t, t] bool, says."""
    sees = torch.ones(n, n, dtype=torch.bool).tril()
    sees[n - len(tail) :, n - len(tail) :] = tail
    return Mask(sees, line=n - len(tail) + 1)


BLOCK = 64
"""Tokens of a block of a sequence. The attention of a long prompt is computed block by block, which takes no
longer than all at once. So it does not depend on where reading began (prefix_cache.py)."""


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
        """The slot after the last token."""
        return self.start + self.count

    def pieces(self) -> list[Span]:
        """Its tokens, divided where a block ends within those that follow each other."""
        first = self.start + BLOCK - self.start % BLOCK
        bounds = [0, *range(first - self.start, self.mask.line, BLOCK), self.count]
        return [self] if len(bounds) == 2 else [self._piece(*part) for part in pairwise(bounds)]

    def _piece(self, first: int, end: int) -> Span:
        in_line, sees = end <= self.mask.line, self.mask.sees[first:, first:]
        mask = causal(end - first) if in_line else Mask(sees, self.mask.line - first)
        return Span(self.row, self.start + first, end - first, self.positions[first:end], mask)


@dataclass(frozen=True)
class Limit:
    """The tokens on its path that a token sees in some layers, by their positions: those of a sliding window
    that ends with the token, or those in its own chunk."""

    form: Literal["window", "chunk"]
    size: int  # tokens

    def sees(self, token: Tensor, earlier: Tensor) -> Tensor:
        """Return whether `token` sees `earlier`: positions, int64, the second not after the first."""
        if self.form == "window":
            return earlier > token - self.size
        return earlier // self.size == token // self.size

    def mask(self, mask: Mask, stop: int) -> Mask:
        """The part of `mask`, which ends at slot `stop`, that is within the limit: [n, stop] over all slots.

        A token sees the nodes of its own path and no others, so the k-th slot that it sees is at position k.
        """
        before = stop - mask.sees.shape[1]
        sees = F.pad(mask.sees, (before, 0), value=True)
        positions = sees.cumsum(1) - 1
        return Mask(sees & self.sees(positions[:, -1:], positions))


@dataclass(frozen=True)
class Scores:
    """Changes of attention scores before their softmax, in float32."""

    cap: float | None = None
    """c: a score s becomes c tanh(s / c)."""

    sinks: Tensor | None = None
    """[heads]: the score of a token without a value, which all tokens of a head see."""

    def attend(
        self, q: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, scale: float | None
    ) -> Tensor:
        """As SDPA. q: [rows, kv_heads, tile * n, head_dim], the tokens of one head after those of another."""
        scores = (q @ keys.mT).float() * (q.size(-1) ** -0.5 if scale is None else scale)
        if self.cap is not None:
            scores = torch.tanh(scores / self.cap) * self.cap
        if mask is not None:
            scores = scores + mask
        if self.sinks is None:
            return scores.softmax(-1).to(values.dtype) @ values
        sinks = self.sinks.float().view(scores.size(1), -1)
        sinks = sinks.repeat_interleave(scores.size(2) // sinks.size(1), 1)[None, :, :, None]
        weights = torch.cat((scores, sinks.expand(len(scores), -1, -1, -1)), -1).softmax(-1)
        return weights[..., :-1].to(values.dtype) @ values


@dataclass(frozen=True)
class Group:
    """Adjacent rows that feed equally many tokens under one mask: one SDPA call a layer."""

    rows: int
    count: int  # tokens a row
    mask: Tensor | None  # [rows or 1, 1, tile * count, width] additive
    keys: tuple[Tensor, ...]  # for each layer: [rows, kv_heads, width, head_dim], a view of the cache
    values: tuple[Tensor, ...]


SHORT = 32
"""Number of a sequence's tokens up to which compiled loops are faster than SDPA's matrix products."""


@dataclass(frozen=True)
class Addresses:
    """Tensors that the Triton kernel reads in place of the spans of a pass."""

    positions: Tensor  # [n] int64
    slots: Tensor  # [n] int64, of the rows laid end to end, where new keys and values go
    ragged: Ragged


class Layout:
    """Destination of each token of a packed forward pass in the cache, and the slots that it sees."""

    def __init__(
        self, spans: Sequence[Span], cache: KVCache, tile: int, addresses: Addresses | None = None
    ) -> None:
        """spans: in the order of their rows. tile: query heads that share a KV head. addresses: for the
        kernel, tensors to read in place of the spans; their values may change from pass to pass."""
        self.cache, self._tile = cache, tile
        compiled = cache.data.device.type == "cpu" and cache.data.dtype == torch.float32 and not cache.kernel
        self.short = compiled and all(span.count <= SHORT for span in spans)
        self._by_group = compiled and not self.short
        self.spans = [piece for span in spans for piece in span.pieces()] if self._by_group else spans
        self._recorded = addresses is not None
        self._within: dict[Limit, Layout] = {}
        if addresses is not None:
            self.positions, self._slots, self.ragged = addresses.positions, addresses.slots, addresses.ragged

    @cached_property
    def positions(self) -> Tensor:
        """The position of each token, [n] int64, on the cache's device."""
        positions = [span.positions for span in self.spans]
        joined = positions[0] if len(positions) == 1 else torch.cat(positions)
        return joined.contiguous().to(self.cache.data.device)

    def layer(self, index: int) -> Tensor:
        """The cache of one layer, [rows, capacity, 2 * kv_heads, head_dim]."""
        return self.cache.layers[index]

    @cached_property
    def table(self) -> ops.SpanTable:
        """The spans as the compiled loops read them."""
        return ops.SpanTable([ops.SpanRow(s.row, s.start, s.count, s.mask.sees) for s in self.spans])

    @cached_property
    def parts(self) -> list[tuple[slice, Layout]]:
        """The tokens of each sequence with a layout of their own, if its attention must not depend on the
        others; else all of them with this one.

        The loops and SDPA differ in the last bits, and so does SDPA with padding. So where a prompt is read
        beside other sequences, each sequence has the form that it has alone.
        """
        return self.alone if self._by_group else [(slice(None), self)]

    @cached_property
    def alone(self) -> list[tuple[slice, Layout]]:
        """The tokens of each sequence with a layout of their own."""
        if len(self.spans) == 1:
            return [(slice(None), self)]
        bounds = pairwise(accumulate((span.count for span in self.spans), initial=0))
        alone = [Layout([span], self.cache, self._tile) for span in self.spans]
        return [(slice(*bound), layout) for bound, layout in zip(bounds, alone, strict=True)]

    def within(self, limit: Limit | None) -> Layout:
        """The layout of the layers that see only what is within `limit`: made once, and this one where the
        limit hides nothing. Raises RuntimeError if the pass is recorded."""
        if limit is None:
            return self
        self._refuse_recorded()
        if all(span.stop <= limit.size for span in self.spans):
            return self
        if limit not in self._within:
            masks: dict[tuple[Mask, int], Mask] = {}  # rows that share a mask are batched
            for key in dict.fromkeys((span.mask, span.stop) for span in self.spans):
                masks[key] = limit.mask(*key)
            spans = [replace(span, mask=masks[span.mask, span.stop]) for span in self.spans]
            self._within[limit] = Layout(spans, self.cache, self._tile)
        return self._within[limit]

    def _refuse_recorded(self) -> None:
        if self._recorded:
            raise RuntimeError("its masks depend on the positions of a pass")

    @cached_property
    def groups(self) -> list[Group]:
        """The SDPA calls of each layer. They are made for all layers at once, since views of the cache, made
        layer by layer, cost as much as the attention. Raises RuntimeError if the pass is recorded."""
        self._refuse_recorded()
        groups, first, spans = [], 0, self.spans
        for index in range(1, len(spans) + 1):
            if index == len(spans) or not _share_group(spans[index - 1], spans[index]):
                groups.append(_group(spans[first:index], self.cache, self._tile))
                first = index
        return groups

    @cached_property
    def _slots(self) -> Tensor | slice:
        """Destination of new keys and values, in the rows laid end to end: [n] int64, or a slice."""
        starts = [span.row * self.cache.capacity + span.start for span in self.spans]
        if len(starts) == 1:
            return slice(starts[0], starts[0] + self.spans[0].count)
        return torch.tensor(
            [s for a, span in zip(starts, self.spans, strict=True) for s in range(a, a + span.count)],
            device=self.cache.data.device,
        )

    @cached_property
    def ragged(self) -> Ragged:
        """The spans as the Triton kernel reads them."""
        device = self.cache.data.device
        reaches = [span.mask.sees.shape[1] for span in self.spans]
        return Ragged.of(
            torch.tensor([span.row for span in self.spans], device=device),
            [span.stop - reach for span, reach in zip(self.spans, reaches, strict=True)],
            [span.mask.words for span in self.spans],
            reaches,
        )

    @property
    def kernel(self) -> bool:
        """Return whether attention is the Triton kernel's."""
        return self.cache.kernel

    def write(self, layer: int, kv: Tensor) -> None:
        """Write keys and values of a layer to the cache. kv: [n, 2 * kv_heads, head_dim], keys first."""
        self.layer(layer).flatten(0, 1)[self._slots] = kv


def _share_group(span: Span, following: Span) -> bool:
    return following.row == span.row + 1 and following.count == span.count and following.mask is span.mask


def _group(spans: Sequence[Span], cache: KVCache, tile: int) -> Group:
    width = max(span.stop for span in spans)
    rows = slice(spans[0].row, spans[-1].row + 1)
    past = cache.data[:, rows, :width].transpose(2, 3)  # [layers, rows, 2 * kv_heads, width, dim]
    half = past.shape[2] // 2
    mask = _mask(spans, width, tile, cache.data.dtype)
    return Group(
        len(spans),
        spans[0].count,
        None if mask is None else mask.to(cache.data.device),
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


def attend(
    layout: Layout,
    layer: int,
    q: Tensor,
    kv: Tensor,
    scale: float | None = None,
    *,
    limit: Limit | None = None,
    scores: Scores | None = None,
) -> Tensor:
    """Write the new keys and values of a layer, then let every token attend to what it sees.

    q: [n, heads, head_dim]. kv: [n, 2 * kv_heads, head_dim], keys before values. scale: of the scores; None
    for head_dim ** -0.5. limit: of what a token sees in this layer. scores: None: the softmax is of the
    scores themselves. Returns [n, heads * head_dim].
    """
    layout.write(layer, kv)
    within = layout.within(limit)
    parts = within.parts if scores is None else within.alone
    attended = [_attended(own, layer, q[rows], q.size(1), scale, scores) for rows, own in parts]
    return attended[0] if len(attended) == 1 else torch.cat(attended)


def attend_rotated(layout: Layout, layer: int, qkv: Tensor, factor: float, rope: Tensor) -> Tensor:
    """Attend as `attend` does, of factor * qkv, with queries and keys rotated by `rope` at their positions.

    qkv: [n, heads + 2 * kv_heads, head_dim] float32, queries first; overwritten. rope: [positions, 1,
    head_dim / 2] complex.
    """
    cache = layout.layer(layer)
    ops.store(qkv, factor, rope, layout.positions, cache, layout.table)
    heads = qkv.size(1) - cache.size(2)
    if layout.short:
        return _attended(layout, layer, qkv, heads, None)
    attended = [_attended(own, layer, qkv[rows, :heads], heads, None) for rows, own in layout.parts]
    return attended[0] if len(attended) == 1 else torch.cat(attended)


def _attended(
    layout: Layout, layer: int, q: Tensor, heads: int, scale: float | None, scores: Scores | None = None
) -> Tensor:
    """Attention without the write. q: [n, heads or more, head_dim], the queries first; exactly `heads` if the
    layout is not short. scores: neither the loops nor the kernel change them."""
    dim = q.size(2)
    if layout.short and scores is None:
        scale = dim**-0.5 if scale is None else scale
        return ops.attend(q.contiguous(), heads, layout.layer(layer), layout.table, scale)
    if layout.kernel and scores is None:
        from specops_kernels.tree_attention import tree_attention  # Triton is not part of the engine extra

        return tree_attention(q.contiguous(), layout.layer(layer), layout.ragged, scale).flatten(1)
    outputs, start = [], 0
    for group in layout.groups:
        rows, count = group.rows, group.count
        stop = start + rows * count
        queries = q[start:stop] if len(layout.groups) > 1 else q
        start = stop
        kv_heads = group.keys[layer].size(1)
        if count == 1:
            queries = queries.view(rows, kv_heads, -1, dim)
        else:
            # The heads of a group ride along as further queries, so that each key is read once.
            queries = queries.view(rows, count, kv_heads, -1, dim).permute(0, 2, 3, 1, 4)
            queries = queries.reshape(rows, kv_heads, -1, dim)
        keys, values = group.keys[layer], group.values[layer]
        if scores is None:
            attended = F.scaled_dot_product_attention(
                queries, keys, values, attn_mask=group.mask, scale=scale
            )
        else:
            attended = scores.attend(queries, keys, values, group.mask, scale)
        if count > 1:
            attended = attended.view(rows, kv_heads, -1, count, dim).permute(0, 3, 1, 2, 4)
        outputs.append(attended.reshape(rows * count, -1))
    return outputs[0] if len(outputs) == 1 else torch.cat(outputs)


CPU = torch.device("cpu")


class KVCache:
    """The KV cache: one tensor, [layers, rows, capacity, 2 * kv_heads, head_dim], keys before values.

    It has `rows` sequences of up to `capacity` slots, which must leave room for a tree behind the longest
    sequence. Rows are dense, so that a batch is a view. Its owner knows how much of a row is in use.
    """

    def __init__(
        self,
        layers: int,
        rows: int,
        capacity: int,
        kv_heads: int,
        head_dim: int,
        dtype: torch.dtype,
        device: torch.device = CPU,
        *,
        kernel: bool = False,
    ) -> None:
        """kernel: whether attention over it is the Triton kernel's."""
        self.capacity, self.kernel = capacity, kernel
        self.data = torch.zeros(layers, rows, capacity, 2 * kv_heads, head_dim, dtype=dtype, device=device)
        self.layers = self.data.unbind()

    def compact(self, row: int, start: int, slots: Sequence[int]) -> None:
        """Move `slots` of a row to `start`, start + 1, …: commit by gather. Each slot is at or behind its
        destination, and they ascend."""
        first = 0
        while first < len(slots) and slots[first] == start + first:
            first += 1  # already in place: all of a chain, and the first children of a tree
        if first < len(slots):
            copied = self.data[:, row, list(slots[first:])]
            self.data[:, row, start + first : start + len(slots)] = copied

    def clear(self, row: int) -> None:
        """Set a row to zeros, for keys or values that are not finite: a mask hides them from the scores of
        another sequence, but 0 times NaN is NaN."""
        self.data[:, row].zero_()

    def move(self, source: int, target: int, length: int) -> None:
        """Copy the first `length` slots of row `source` over row `target`."""
        self.data[:, target, :length] = self.data[:, source, :length]
