"""The tree attention kernel against its float64 reference, and against the engine's own attention."""

from __future__ import annotations

import math

import pytest
import torch
from batches import Shape, inputs, random_sees
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from specops_kernels import tree_attention_naive
from specops_kernels.configuration import Configuration
from specops_kernels.ragged import Ragged, pack
from specops_kernels.tree_attention import tree_attention

TOLERANCE = {torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 2e-2}
"""Several times what a right kernel was seen to be off: 4e-7, 5e-4 and 8e-3, of outputs around 1."""

SMALL = Configuration(block_m=16, block_n=16, warps=4, stages=1)
"""So that few tokens and slots are several tiles."""


def tiled(block_m: int = 16, block_n: int = 16, splits: int = 1) -> Configuration:
    return Configuration(block_m, block_n, warps=4, stages=1, splits=splits)


def differs(shape: Shape, configuration: Configuration | None, device: torch.device, **made: object) -> float:
    """The largest error, NaN where something was left unwritten or read what nobody may."""
    given = inputs(shape, device, **made)  # type: ignore[arg-type]
    out = torch.full_like(given.q, torch.nan)
    tree_attention(given.q, given.kv, given.batch, configuration=configuration, out=out)
    expected = tree_attention_naive.tree_attention(given.q, given.kv, given.batch)
    return float((out.double() - expected).abs().max())


SHAPES = {
    "no prefix, one node": Shape((0,), (1,)),
    "a prefix that fills its tiles": Shape((32, 16), (1, 5)),
    "ragged": Shape((0, 5, 37, 1), (1, 7, 20, 3)),
    "64 nodes, a full word": Shape((3,), (64,), group=1, kv_heads=1),
    "65 nodes and more": Shape((20, 0), (65, 70), group=1, kv_heads=1),
    "130 nodes beside one": Shape((7, 40), (130, 1), group=1, kv_heads=1),
    "one query head a KV head": Shape((9, 18), (4, 6), group=1),
    "three": Shape((9, 18), (4, 6), group=3, kv_heads=1),
    "four": Shape((9, 18), (4, 6), group=4, kv_heads=1),
    "eight": Shape((9, 18), (4, 6), group=8, kv_heads=1),
    "heads of 24 dimensions": Shape((21,), (6,), dim=24, kv_heads=1),
    "paged": Shape((0, 5, 37), (1, 7, 20), page=8),
    "pages longer than a tile": Shape((50, 33), (2, 9), page=32, kv_heads=1),
    "pages of no power of two": Shape((25,), (9,), page=7, kv_heads=1),
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_as_the_reference(shape: Shape, device: torch.device) -> None:
    assert differs(shape, SMALL, device) < TOLERANCE[shape.dtype]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision(dtype: torch.dtype, device: torch.device) -> None:
    shape = Shape((0, 37), (5, 20), dtype=dtype)
    assert differs(shape, SMALL, device) < TOLERANCE[dtype]


@pytest.mark.quick(2)
@pytest.mark.parametrize("page", [0, 8])
@pytest.mark.parametrize("splits", [2, 3, 4])
def test_splits(splits: int, page: int, device: torch.device) -> None:
    """Of the shorter sequences some splits have nothing, or nothing that every node sees."""
    shape = Shape((0, 5, 60), (1, 33, 4), page=page, kv_heads=1)
    assert differs(shape, tiled(splits=splits), device) < TOLERANCE[shape.dtype]


@pytest.mark.parametrize(("block_m", "block_n"), [(32, 64), (16, 32), (64, 16)])
def test_tiles(block_m: int, block_n: int, device: torch.device) -> None:
    shape = Shape((70, 3), (20, 66), kv_heads=1)
    assert differs(shape, tiled(block_m, block_n), device) < TOLERANCE[shape.dtype]


def test_chosen_configuration(device: torch.device) -> None:
    for dtype in TOLERANCE:
        shape = Shape((40, 3), (9, 2), dim=64, kv_heads=1, dtype=dtype)
        assert differs(shape, None, device) < TOLERANCE[dtype]


@pytest.mark.slow
@given(data=st.data())
@settings(max_examples=12, phases=[Phase.generate])  # shrinking would take minutes, interpreted
def test_any_mask(data: st.DataObject) -> None:
    """More slots than tokens, and any that are seen: level by level growth, and prompts before trees."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    many = data.draw(st.integers(1, 3))
    sees = []
    for _ in range(many):
        fed = data.draw(st.integers(1, 12))
        reach = fed + data.draw(st.sampled_from([0, 1, 50, 62, 70]))
        one = torch.rand(fed, reach) < data.draw(st.floats(0, 1))
        one[:, reach - fed :].fill_diagonal_(True)
        sees.append(one)
    prefixes = data.draw(st.lists(st.integers(0, 40), min_size=many, max_size=many))
    page = data.draw(st.sampled_from([0, 16]))
    shape = Shape(tuple(prefixes), tuple(map(len, sees)), kv_heads=1, page=page)
    configuration = tiled(block_n=data.draw(st.sampled_from([16, 64])), splits=data.draw(st.integers(1, 4)))
    assert differs(shape, configuration, device, sees=sees) < TOLERANCE[shape.dtype]


def test_strides_and_scale(device: torch.device) -> None:
    """Queries cut out of a wider projection, and a layer out of a whole cache."""
    given = inputs(Shape((10, 3), (4, 5)), device)
    wide = torch.randn(len(given.q), 3 * given.q.shape[1], given.q.shape[2], device=device)
    q = wide[:, : given.q.shape[1]]
    cache = torch.stack([given.kv, given.kv], dim=1)
    found = tree_attention(q, cache[:, 1], given.batch, scale=0.5, configuration=SMALL)
    expected = tree_attention_naive.tree_attention(q, given.kv, given.batch, scale=0.5)
    assert (found.double() - expected).abs().max() < 2e-6


def test_who_sees_nothing_gets_nothing(device: torch.device) -> None:
    blind = torch.zeros(2, 2, dtype=torch.bool)
    given = inputs(Shape((0,), (2,)), device, [blind])
    for splits in (1, 2):
        found = tree_attention(given.q, given.kv, given.batch, configuration=tiled(splits=splits))
        assert (found == 0).all()


def test_as_the_engine(device: torch.device) -> None:
    """The engine's SDPA over the very same cache."""
    from specops.engine.attention import KVCache, Layout, Mask, Span, attend

    cache = KVCache(layers=1, rows=3, capacity=64, kv_heads=2, head_dim=16, dtype=torch.float32)
    cache.data.normal_()
    sees = [random_sees(9), torch.ones(5, 5, dtype=torch.bool).tril(), torch.rand(4, 11) < 0.5]
    starts = [20, 0, 13]
    for one in sees:
        one[:, one.shape[1] - len(one) :].fill_diagonal_(True)
    spans = [
        Span(row, start + one.shape[1] - len(one), len(one), torch.arange(len(one)), Mask(one))
        for row, (start, one) in enumerate(zip(starts, sees, strict=True))
    ]
    q, kv = torch.randn(18, 4, 16), torch.randn(18, 4, 16)
    expected = attend(Layout(spans, cache, 2), 0, q, kv)
    batch = Ragged.of(
        torch.arange(3, device=device), starts, [pack(one) for one in sees], [one.shape[1] for one in sees]
    )
    found = tree_attention(q.to(device), cache.data[0].to(device), batch, configuration=SMALL)
    assert (found.cpu().flatten(1) - expected).abs().max() < 2e-6


def test_packed_masks() -> None:
    sees = torch.rand(5, 130) < 0.5
    words = pack(sees).tolist()
    for row in range(5):
        assert [words[row][j // 64] >> (j % 64) & 1 for j in range(130)] == sees[row].int().tolist()
    assert pack(sees).shape == (5, 3)


def _wrong(change: str) -> tuple[object, ...]:
    given = inputs(Shape((4,), (3,)), torch.device("cpu"))
    q, kv, batch = given.q, given.kv, given.batch
    return {
        "dtype": (q.half(), kv, batch),
        "heads": (q[:, :3], kv, batch),
        "tokens": (q[:2], kv, batch),
        "dimension": (q[..., :8], kv, batch),
        "stride": (q.transpose(1, 2).contiguous().transpose(1, 2), kv, batch),
        "room": (q, kv[:, :5], batch),
        "double": (q.double(), kv.double(), batch),
    }[change]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("dtype", "where both must be"),
        ("heads", "no multiple of 2 KV heads"),
        ("tokens", "the batch feeds 3 tokens"),
        ("dimension", "are not [n, heads, head_dim]"),
        ("stride", "must be contiguous"),
        ("room", "has room for 5"),
        ("double", "where both must be"),
    ],
)
def test_refuses(change: str, said: str) -> None:
    with pytest.raises(ValueError, match=said.replace("[", r"\[")):
        tree_attention(*_wrong(change))  # type: ignore[arg-type]


def test_a_batch_must_fit_together() -> None:
    table = torch.arange(2)
    with pytest.raises(ValueError, match="not of the same sequences"):
        Ragged.of(table, [1], [pack(random_sees(2))])
    with pytest.raises(ValueError, match="must feed a token"):
        Ragged.of(table, [1, 2], [pack(random_sees(2)), torch.zeros(0, 1, dtype=torch.int64)])
    assert math.isclose(Ragged.of(table, [1, 2], [pack(random_sees(2))] * 2).longest, 4)
