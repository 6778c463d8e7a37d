"""Ragged tree attention over the slotted cache equals attention written out in float64, by the compiled
loops (of up to SHORT tokens a sequence) and by SDPA."""

from __future__ import annotations

from dataclasses import dataclass
from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from shapes import ancestors, parents
from torch import Tensor

from specops.engine.attention import KVCache, Layout, Mask, Span, attend, causal, causal_then
from specops.engine.tree import Topology


@given(
    st.integers(1, 5),
    st.integers(1, 5),
    st.integers(0, 300),
    st.integers(0, 300),
    st.integers(1, 3),
    st.data(),
)
def test_a_mask_over_a_prefix_and_padding(
    n: int, m: int, prefix: int, padding: int, tile: int, data: st.DataObject
) -> None:
    flat = data.draw(st.lists(st.booleans(), min_size=n * m, max_size=n * m))
    sees = torch.tensor(flat).view(n, m)
    mask = Mask(sees)
    for before, after in ((0, 0), (prefix, padding), (padding, prefix)):  # a mask serves many steps
        found = mask.over(before, before + m + after, tile, torch.float32)
        assert found.shape == (tile * n, before + m + after)
        visible = torch.cat((torch.ones(n, before), sees.float(), torch.zeros(n, after)), -1).bool()
        assert torch.equal(found == 0, visible.repeat(tile, 1))
        assert bool((found[~visible.repeat(tile, 1)] == float("-inf")).all())


def test_causal_with_a_tree_at_its_end() -> None:
    tail = Topology.expansion((2,)).sees
    assert causal_then(5, tail).sees.int().tolist() == [
        [1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [1, 1, 1, 0, 0],
        [1, 1, 1, 1, 0],
        [1, 1, 1, 0, 1],
    ]
    assert torch.equal(causal(4).sees, torch.ones(4, 4).tril().bool())


@dataclass(frozen=True)
class Row:
    """One sequence of a batch: slots that are filled already, and the new tokens that it feeds."""

    row: int
    before: int
    parents: tuple[int, ...]  # of the new tokens; -1 sees all slots before


@st.composite
def batches(draw: st.DrawFn) -> list[Row]:
    """Rows with gaps between them; shapes repeat, so that some adjacent rows can share one call."""
    shapes = draw(st.lists(parents(max_nodes=8), min_size=1, max_size=2))
    used = draw(st.lists(st.integers(0, 5), min_size=1, max_size=5, unique=True))
    return [Row(row, draw(st.integers(0, 9)), draw(st.sampled_from(shapes))) for row in sorted(used)]


def naive(q: Tensor, keys: Tensor, values: Tensor, sees: Tensor, scale: float) -> Tensor:
    """q: [n, heads, dim]; keys, values: [m, kv_heads, dim]; sees: [n, m] -> [n, heads * dim], in float64."""
    outputs = []
    for head in range(q.shape[1]):
        kv_head = head // (q.shape[1] // keys.shape[1])
        scores = q[:, head].double() @ keys[:, kv_head].double().T * scale
        outputs.append(scores.masked_fill(~sees, float("-inf")).softmax(1) @ values[:, kv_head].double())
    return torch.cat(outputs, 1)


@pytest.mark.quick(3)
@pytest.mark.parametrize(("heads", "kv_heads"), [(2, 2), (4, 2), (3, 1)])
@pytest.mark.parametrize("short", [0, 7, 32])
@given(scale=st.sampled_from([None, 0.7]), batch=batches(), seed=st.integers(0, 100))
@settings(max_examples=50)  # of each of nine
def test_attend(
    heads: int, kv_heads: int, short: int, scale: float | None, batch: list[Row], seed: int
) -> None:
    dim, layers = 4, 2
    generator = torch.Generator().manual_seed(seed)
    cache = KVCache(layers, rows=6, capacity=20, kv_heads=kv_heads, head_dim=dim, dtype=torch.float32)
    cache.data.normal_(generator=generator)  # slots that nobody may see hold garbage
    untouched = cache.data.clone()
    spans = [
        Span(
            r.row,
            r.before,
            len(r.parents),
            torch.zeros(len(r.parents)),
            Topology.from_parents(r.parents).mask,
        )
        for r in batch
    ]
    n = sum(span.count for span in spans)
    with mock.patch("specops.engine.attention.SHORT", short):
        layout = Layout(spans, cache, heads // kv_heads)
    for layer in range(layers):
        q = torch.randn(n, heads, dim, generator=generator)
        kv = torch.randn(n, 2 * kv_heads, dim, generator=generator)
        found = attend(layout, layer, q, kv, scale)
        assert found.shape == (n, heads * dim)
        start = 0
        for row in batch:
            slots = torch.cat((untouched[layer, row.row, : row.before], kv[start : start + len(row.parents)]))
            assert torch.equal(cache.data[layer, row.row, : len(slots)], slots)
            assert torch.equal(
                cache.data[layer, row.row, len(slots) :], untouched[layer, row.row, len(slots) :]
            )
            sees = torch.zeros(len(row.parents), len(slots), dtype=torch.bool)
            for node in range(len(row.parents)):
                sees[node, : row.before] = True
                sees[node, [row.before + above for above in ancestors(row.parents, node)]] = True
            own = slice(start, start + len(row.parents))
            expected = naive(q[own], slots[:, :kv_heads], slots[:, kv_heads:], sees, scale or dim**-0.5)
            assert torch.allclose(found[own].double(), expected, atol=1e-5)
            start = own.stop
    others = [row for row in range(6) if row not in {r.row for r in batch}]
    assert torch.equal(cache.data[:, others], untouched[:, others])


def test_adjacent_rows_of_one_shape_are_one_call() -> None:
    cache = KVCache(1, rows=4, capacity=8, kv_heads=1, head_dim=2, dtype=torch.float32)
    mask = Topology.expansion((2,)).mask

    def groups(rows: list[int]) -> list[int]:
        spans = [Span(row, row, 3, torch.zeros(3), mask) for row in rows]
        return [group.rows for group in Layout(spans, cache, 1).groups]

    assert groups([0, 1, 2, 3]) == [4]
    assert groups([0, 1, 3]) == [2, 1]


@given(parents(max_nodes=12), st.integers(0, 5), st.data())
def test_compaction_gathers_the_path(shape: tuple[int, ...], root: int, data: st.DataObject) -> None:
    cache = KVCache(2, rows=2, capacity=20, kv_heads=1, head_dim=3, dtype=torch.float32)
    cache.data.normal_(generator=torch.Generator().manual_seed(0))
    before = cache.data.clone()
    node = data.draw(st.integers(0, len(shape) - 1))
    path = ancestors(shape, node)[::-1][1:]
    cache.compact(1, root + 1, [root + step for step in path])
    assert torch.equal(cache.data[:, 0], before[:, 0])
    assert torch.equal(cache.data[:, 1, : root + 1], before[:, 1, : root + 1])
    for place, step in enumerate(path):
        assert torch.equal(cache.data[:, 1, root + 1 + place], before[:, 1, root + step])


def test_moving_a_row_copies_what_is_in_use() -> None:
    cache = KVCache(1, rows=3, capacity=4, kv_heads=1, head_dim=2, dtype=torch.float32)
    cache.data.normal_(generator=torch.Generator().manual_seed(0))
    before = cache.data.clone()
    cache.move(2, 0, 3)
    assert torch.equal(cache.data[:, 0, :3], before[:, 2, :3])
    assert torch.equal(cache.data[:, 0, 3], before[:, 0, 3])
    assert torch.equal(cache.data[:, 1:], before[:, 1:])
