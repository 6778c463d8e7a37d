"""Tree attention over a slotted KV cache, through SDPA with the topology's mask.

A forward pass takes the tokens of many sequences packed in one row of n tokens, without padding: linear
layers see [n, hidden], and only attention looks at which sequence a token is of. Adjacent cache rows that
feed equally many tokens under one mask form a group, which is one SDPA call over a view of the cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


class Mask:
    """What n new tokens see of the last m slots; all slots before those are seen by every token.

    The additive form lies in the middle of a wide buffer, zeros to its left and -inf to its right, so that
    the mask for any prefix length, padded to any width, is a view: nothing is rebuilt from step to step.
    """

    def __init__(self, sees: Tensor) -> None:
        self.sees = sees  # [n, m] bool
        self._wide: dict[tuple[int, torch.dtype], Tensor] = {}
        self.everything = bool(sees.all())

    def over(self, prefix: int, width: int, tile: int, dtype: torch.dtype) -> Tensor:
        """[tile * n, width] additive, for `prefix` slots before the m and padding after them."""
        wide = self._wide.get((tile, dtype))
        n, m = self.sees.shape
        reach = 0 if wide is None else (wide.shape[1] - m) // 2
        if wide is None or reach < max(prefix, width):
            reach = max(256, 2 * reach, prefix, width)
            wide = torch.zeros(tile * n, reach + m + reach, dtype=dtype)
            wide[:, reach : reach + m].masked_fill_(~self.sees.repeat(tile, 1), float("-inf"))
            wide[:, reach + m :] = float("-inf")
            self._wide[tile, dtype] = wide
        return wide[:, reach - prefix : reach - prefix + width]


def causal(n: int, tail: Tensor | None = None) -> Mask:
    """n tokens in a line; where `tail` is given, its [t, t] bool takes the place of the last t of them."""
    sees = torch.ones(n, n, dtype=torch.bool).tril()
    if tail is not None:
        t = len(tail)
        sees[n - t :, n - t :] = tail
    return Mask(sees)


@dataclass(frozen=True)
class Span:
    """The tokens that one sequence feeds in one forward pass."""

    row: int  # of the cache
    start: int  # slot of the first token fed; the others follow
    count: int
    positions: Tensor  # [count] int64
    mask: Mask | None  # over the last slots before start + count; None: all of them are seen

    @property
    def stop(self) -> int:
        return self.start + self.count


@dataclass(frozen=True)
class Group:
    """Adjacent rows that feed equally many tokens under one mask: one SDPA call."""

    rows: slice
    tokens: slice
    count: int  # tokens a row
    width: int  # slots looked at
    mask: Tensor | None  # [rows or 1, 1, tile * count, width] additive


@dataclass(frozen=True)
class Layout:
    """Where every token of a packed forward pass goes and what it sees."""

    positions: Tensor  # [n] int64
    slots: Tensor | None  # [n] int64 into the flattened (row, slot) axis; None: one contiguous run
    groups: tuple[Group, ...]

    @staticmethod
    def of(spans: Sequence[Span], capacity: int, tile: int, dtype: torch.dtype) -> Layout:
        """`spans` in order of their rows; `tile`: query heads that share a KV head."""
        if len(spans) == 1:
            span = spans[0]
            group = Group(
                slice(span.row, span.row + 1), slice(0, span.count), span.count, span.stop, _mask(spans, tile, dtype)
            )
            return Layout(span.positions, None, (group,))
        groups, first, token = [], 0, 0
        for index in range(1, len(spans) + 1):
            head = spans[first]
            if index < len(spans):
                span = spans[index]
                if span.count == head.count and span.mask is head.mask and span.row == spans[index - 1].row + 1:
                    continue
            members = spans[first:index]
            stop = token + len(members) * head.count
            groups.append(
                Group(
                    slice(head.row, head.row + len(members)),
                    slice(token, stop),
                    head.count,
                    max(span.stop for span in members),
                    _mask(members, tile, dtype),
                )
            )
            first, token = index, stop
        slots = [slot for s in spans for slot in range(s.row * capacity + s.start, s.row * capacity + s.stop)]
        return Layout(torch.cat([s.positions for s in spans]), torch.tensor(slots), tuple(groups))


_LAST = Mask(torch.ones(1, 1, dtype=torch.bool))


def _mask(spans: Sequence[Span], tile: int, dtype: torch.dtype) -> Tensor | None:
    width = max(span.stop for span in spans)
    mask = spans[0].mask
    if mask is None or mask.everything:
        if all(span.stop == width for span in spans):
            return None
        # Shorter rows must not see what lies behind them.
        count = spans[0].count
        rows = [_LAST.over(span.stop - 1, width, 1, dtype).expand(tile * count, -1) for span in spans]
        return torch.stack(rows)[:, None]
    m = mask.sees.shape[1]
    if len(spans) == 1:
        return mask.over(width - m, width, tile, dtype)[None, None]
    return torch.stack([mask.over(span.stop - m, width, tile, dtype) for span in spans])[:, None]


def attend(layer: Tensor, layout: Layout, q: Tensor, kv: Tensor, scale: float | None = None) -> Tensor:
    """Write the new keys and values, then let every token attend to what it sees.

    layer: [rows, capacity, 2 * kv_heads, head_dim], one layer's cache, keys before values; written to
    q:     [n, heads, head_dim]
    kv:    [n, 2 * kv_heads, head_dim]
    returns [n, heads * head_dim]
    """
    n, heads, dim = q.shape
    kv_heads = layer.shape[2] // 2
    if layout.slots is None:
        group = layout.groups[0]
        layer[group.rows.start, group.width - n : group.width] = kv
    else:
        layer.flatten(0, 1).index_copy_(0, layout.slots, kv)
    outputs = []
    for group in layout.groups:
        rows, count = group.rows.stop - group.rows.start, group.count
        past = layer[group.rows, : group.width].transpose(1, 2)  # [rows, 2 * kv_heads, width, dim]
        # The heads of a group ride along as further queries, so that each key is read once.
        queries = (
            q[group.tokens]
            .view(rows, count, kv_heads, heads // kv_heads, dim)
            .permute(0, 2, 3, 1, 4)
            .reshape(rows, kv_heads, -1, dim)
        )
        seen = F.scaled_dot_product_attention(
            queries, past[:, :kv_heads], past[:, kv_heads:], attn_mask=group.mask, scale=scale
        )
        outputs.append(
            seen.view(rows, kv_heads, heads // kv_heads, count, dim).permute(0, 3, 1, 2, 4).reshape(-1, heads * dim)
        )
    return outputs[0] if len(outputs) == 1 else torch.cat(outputs)
