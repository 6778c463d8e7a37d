"""The compiled loops between matrix products, against float64."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from runpy import run_path

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from numba.core import caching
from torch import Tensor

from specops.engine import compiled

EPS = 1e-6


def random(*shape: int, seed: int = 0, size: float = 1.0) -> Tensor:
    return size * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    x = x.double()
    return x * (x.square().mean(-1, keepdim=True) + EPS).rsqrt() * weight.double()


def near(found: Tensor, exact: Tensor, rtol: float = 2e-6) -> None:
    assert torch.allclose(found.double(), exact, rtol=rtol, atol=1e-30 + 1e-6 * float(exact.abs().max()))


@given(st.integers(1, 40), st.integers(1, 70), st.floats(1e-3, 1e3), st.integers(0, 99))
def test_norm(n: int, width: int, size: float, seed: int) -> None:
    x, weight = random(n, width, seed=seed, size=size), random(width, seed=seed + 1)
    before = x.clone()
    near(compiled.norm(x, weight, EPS), rms_norm(x, weight))
    assert torch.equal(x, before)


@given(st.integers(1, 40), st.integers(1, 70), st.sampled_from([1.0, 2.0**-15, 2.0**7]), st.integers(0, 99))
def test_the_norm_of_a_sum(n: int, width: int, scale: float, seed: int) -> None:
    x, y, weight = random(n, width, seed=seed), random(n, width, seed=seed + 1), random(width, seed=seed + 2)
    total = x.double() + scale * y.double()
    found = compiled.add_norm(x, y, scale, weight, EPS)
    near(x, total)
    near(found, rms_norm(total, weight))


@given(st.integers(1, 40), st.integers(1, 70), st.floats(1e-3, 300), st.integers(0, 99))
def test_the_gate(n: int, width: int, size: float, seed: int) -> None:
    y = random(n, 2 * width, seed=seed, size=size)
    exact = F.silu(0.5 * y.double()[:, :width]) * 0.5 * y.double()[:, width:]
    near(compiled.gate(y, 0.5), exact, rtol=2e-5)  # an exponent of 80 is known to a millionth


def test_the_gate_far_out() -> None:
    y = torch.tensor([[-1e30, -200.0, -88.0, -81.0, 0.0, 88.0, 200.0, 1e15] + [1.0] * 8])
    near(compiled.gate(y, 1.0), F.silu(y.double()[:, :8]), rtol=2e-5)


@pytest.mark.quick(1)
@pytest.mark.parametrize(("heads", "kv_heads", "dim"), [(4, 2, 8), (3, 1, 6), (2, 2, 2)])
@given(data=st.data())
def test_rotated_and_stored(heads: int, kv_heads: int, dim: int, data: st.DataObject) -> None:
    capacity, rows = 12, 3
    cache = random(rows, capacity, 2 * kv_heads, dim, seed=1)
    expected = cache.clone()
    used = sorted(data.draw(st.lists(st.integers(0, rows - 1), min_size=1, unique=True)))
    spans, positions, slots = [], [], []
    for row in used:
        start = data.draw(st.integers(0, capacity - 1))
        count = data.draw(st.integers(1, capacity - start))
        spans.append((row, start, count, 0, 0))
        positions += data.draw(st.lists(st.integers(0, 30), min_size=count, max_size=count))
        slots += [(row, start + i) for i in range(count)]
    n, scale = len(positions), 0.25
    qkv = random(n, heads + 2 * kv_heads, dim, seed=2)
    rope = torch.polar(torch.ones(31, 1, dim // 2), random(31, 1, dim // 2, seed=3))
    exact = qkv.double() * scale
    turned = torch.view_as_complex(exact[:, : heads + kv_heads].reshape(n, -1, dim // 2, 2).contiguous())
    turned = torch.view_as_real(turned * rope[positions].to(torch.complex128)).flatten(-2)
    for token, (row, slot) in enumerate(slots):
        expected[row, slot, :kv_heads] = turned[token, heads:]
        expected[row, slot, kv_heads:] = exact[token, heads + kv_heads :]
    compiled.store(qkv, scale, rope, torch.tensor(positions), cache, torch.tensor(spans))
    near(qkv[:, : heads + kv_heads], turned)
    near(cache, expected.double())


ONE_MORE = """
from numba import carray, types
from specops.engine.compiling import compiled

@compiled(types.CPointer(types.float32), types.int64)
def double(x_, n):
    x = carray(x_, (n,))
    for i in range(n):
        x[i] *= 2
"""


def no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container whose file system is read-only."""
    monkeypatch.setattr(caching.CacheImpl, "_locator_classes", [])


def full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    def save(*_: object) -> None:
        with Path("/dev/full").open("wb", buffering=0) as disk:
            disk.write(b"x")

    monkeypatch.setattr(caching.IndexDataCacheFile, "save", save)


@pytest.mark.parametrize("lacking", [None, no_place, full_disk], ids=["a place", "no place", "disk full"])
def test_without_a_place_for_what_is_compiled(
    lacking: Callable[[pytest.MonkeyPatch], None] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "one_more.py"
    source.write_text(ONE_MORE)
    if lacking is not None:
        lacking(monkeypatch)
    x = torch.ones(3)
    run_path(str(source))["double"](x.data_ptr(), 3)
    assert x.tolist() == [2.0, 2.0, 2.0]
    kept = [path for path in tmp_path.rglob("*") if path.suffix in (".nbi", ".nbc")]
    assert bool(kept) == (lacking is None)


@given(
    st.lists(st.sampled_from([0.0, 1e-30, 1e-9, 0.25, 1.0, 3e7]), min_size=1, max_size=60).filter(any),
    st.floats(0, 1, exclude_max=True),
)
def test_a_sample_is_where_the_cumulated_weights_exceed_it(weights: list[float], chance: float) -> None:
    found = compiled.sample(torch.tensor(weights), chance)
    exact = torch.tensor(weights).double()  # each is a float32
    sums, total = exact.cumsum(0), float(exact.sum())
    assert weights[found] > 0
    rounding = 1e-12 * total
    assert float(sums[found]) >= chance * total - rounding
    assert float(sums[found] - exact[found]) <= chance * total + rounding


def test_a_sample_at_the_edges() -> None:
    weights = torch.tensor([0.0, 0.5, 0.0, 0.5, 0.0])
    samples = [compiled.sample(weights, chance) for chance in (0.0, 0.5 - 1e-16, 0.5, 1 - 1e-16, 1.0)]
    assert samples == [1, 1, 3, 3, 3]  # and 1.0, which is no chance, takes the last that has any weight
