"""The compiled loops between matrix products, against their plain definitions; and how loops are stored."""

from __future__ import annotations

import errno
import importlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from specops.engine.cpu import compiler, ops, reference
from specops.engine.cpu.compiler import load

EPS = 1e-6


def random(*shape: int, seed: int = 0, size: float = 1.0) -> Tensor:
    return size * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def near(found: Tensor, exact: Tensor, rtol: float = 2e-6) -> None:
    """To a few roundings of float32."""
    assert torch.allclose(found.double(), exact, rtol=rtol, atol=1e-30 + 1e-6 * float(exact.abs().max()))


@given(st.integers(1, 40), st.integers(1, 70), st.floats(1e-3, 1e3), st.integers(0, 99))
def test_norm(n: int, width: int, size: float, seed: int) -> None:
    x, weight = random(n, width, seed=seed, size=size), random(width, seed=seed + 1)
    before = x.clone()
    near(ops.norm(x, weight, EPS), reference.norm(x, weight, EPS))
    assert torch.equal(x, before)


@given(st.integers(1, 40), st.integers(1, 70), st.sampled_from([1.0, 2.0**-15, 2.0**7]), st.integers(0, 99))
def test_the_norm_of_a_sum(n: int, width: int, scale: float, seed: int) -> None:
    x, y, weight = random(n, width, seed=seed), random(n, width, seed=seed + 1), random(width, seed=seed + 2)
    total = x.double()
    exact = reference.add_norm(total, y, scale, weight, EPS)
    found = ops.add_norm(x, y, scale, weight, EPS)
    near(x, total)
    near(found, exact)


@given(st.integers(1, 40), st.integers(1, 70), st.floats(1e-3, 300), st.integers(0, 99))
def test_the_gate(n: int, width: int, size: float, seed: int) -> None:
    y = random(n, 2 * width, seed=seed, size=size)
    near(ops.gate(y, 0.5), reference.gate(y, 0.5), rtol=2e-5)  # an exponent of 80 is known to a millionth


def test_the_gate_far_out() -> None:
    y = torch.tensor([[-1e30, -200.0, -88.0, -81.0, 0.0, 88.0, 200.0, 1e15] + [1.0] * 8])
    near(ops.gate(y, 1.0), reference.gate(y, 1.0), rtol=2e-5)


@st.composite
def tables(draw: st.DrawFn, rows: int, capacity: int) -> ops.SpanTable:
    """Spans of some rows; each token sees itself, and any of the slots before it."""
    spans = []
    for row in sorted(draw(st.lists(st.integers(0, rows - 1), min_size=1, unique=True))):
        start = draw(st.integers(0, capacity - 1))
        count = draw(st.integers(1, min(capacity - start, 6)))
        m = draw(st.integers(count, start + count))
        sees = torch.tensor(draw(st.lists(st.booleans(), min_size=count * m, max_size=count * m)))
        sees = sees.view(count, m) | torch.eye(m, dtype=torch.bool)[-count:]
        spans.append(ops.SpanRow(row, start, count, sees))
    return ops.SpanTable(spans)


HEADS = pytest.mark.parametrize(("heads", "kv_heads", "dim"), [(4, 2, 8), (3, 1, 6), (2, 2, 2)])
ROWS, CAPACITY = 3, 12


@pytest.mark.quick(1)
@HEADS
@given(spans=tables(ROWS, CAPACITY), data=st.data())
def test_rotated_and_stored(
    heads: int, kv_heads: int, dim: int, spans: ops.SpanTable, data: st.DataObject
) -> None:
    n, scale = sum(span.count for span in spans.rows), 0.25
    positions = torch.tensor(data.draw(st.lists(st.integers(0, 30), min_size=n, max_size=n)))
    cache, qkv = (
        random(ROWS, CAPACITY, 2 * kv_heads, dim, seed=1),
        random(n, heads + 2 * kv_heads, dim, seed=2),
    )
    rope = torch.polar(torch.ones(31, 1, dim // 2), random(31, 1, dim // 2, seed=3))
    exact_qkv, exact_cache = qkv.double(), cache.double()
    reference.store(exact_qkv, scale, rope, positions, exact_cache, spans)
    ops.store(qkv, scale, rope, positions, cache, spans)
    near(qkv, exact_qkv)
    near(cache, exact_cache)


@pytest.mark.quick(1)
@HEADS
@given(spans=tables(ROWS, CAPACITY), extra=st.integers(0, 3), scale=st.sampled_from([0.3, 1.0, 40.0]))
def test_attention(
    heads: int, kv_heads: int, dim: int, spans: ops.SpanTable, extra: int, scale: float
) -> None:
    """A slot that is not seen has no weight, whatever it holds; `extra` heads behind the queries are
    ignored."""
    n = sum(span.count for span in spans.rows)
    cache, q = random(ROWS, CAPACITY, 2 * kv_heads, dim, seed=1), random(n, heads + extra, dim, seed=2)
    near(
        ops.attend(q, heads, cache, spans, scale), reference.attend(q, heads, cache, spans, scale), rtol=2e-5
    )


ONE_MORE = """
import numpy as np
from numba import carray, types
from specops.engine.cpu.compiler import Loop, loop

POINTER = types.CPointer(types.float32)

@loop(POINTER, types.int64)
def double(x_, n):
    x = carray(x_, (n,))
    for i in range(n):
        x[i] *= 2

def times(factor):
    @loop(POINTER, types.int64, types.float64)
    def scale(x_, n, by):
        x = carray(x_, (n,))
        for i in range(n):
            x[i] *= factor * by

    return scale

@loop(POINTER, types.int64)
def allocating(x_, n):
    carray(x_, (n,))[:] = np.zeros(n, np.float32)
"""
USE = """
import sys
from ctypes import c_float
from specops.engine.cpu.compiler import load

x = (c_float * 3)(1, 1, 1)
load("one_more", "double")(x, 3)
load("one_more", "times", 5)(x, 3, 0.5)
load("one_more", "times", 3)(x, 3, 1.0)
print(list(x), "numba" in sys.modules)
"""


@pytest.fixture
def one_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A module of loops in a folder of its own, and a home in another."""
    (tmp_path / "source").mkdir()
    path = tmp_path / "source" / "one_more.py"
    path.write_text(ONE_MORE)
    monkeypatch.syspath_prepend(str(path.parent))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    yield path
    forget()


def forget() -> None:
    """As a process that begins."""
    sys.modules.pop("one_more", None)
    compiler._key.cache_clear()
    importlib.invalidate_caches()


def doubled() -> bool:
    """Whether it was compiled for that."""
    forget()
    x = torch.ones(3)
    with mock.patch.object(compiler, "_compiled", wraps=compiler._compiled) as made:
        load("one_more", "double")(x.data_ptr(), 3)
    assert x.tolist() == [2.0, 2.0, 2.0]
    return made.called


def stored_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if "loop" in path.name]


def test_a_second_process_does_without_numba(one_more: Path) -> None:
    command = [sys.executable, "-B", "-c", USE]
    said = [
        subprocess.run(command, env=environment(one_more), capture_output=True, text=True) for _ in range(2)
    ]
    assert [each.stderr for each in said] == ["", ""]
    assert [each.stdout for each in said] == ["[15.0, 15.0, 15.0] True\n", "[15.0, 15.0, 15.0] False\n"]
    assert len(stored_in(one_more.parent)) == 3


def environment(source: Path) -> dict[str, str]:
    return {"HOME": str(source.parents[1]), "PYTHONPATH": str(source.parent)}


def test_what_is_stored_of_another_source_is_compiled_again(one_more: Path) -> None:
    assert doubled()
    assert not doubled()
    one_more.write_text(ONE_MORE + "# changed\n")
    assert doubled()
    assert not doubled()
    assert len(stored_in(one_more.parent)) == 1  # in the place of the other


@pytest.mark.parametrize(
    "spoil",
    [lambda whole: whole[:-9], lambda whole: b"", lambda whole: whole[9:] + whole, lambda whole: b"{}\n"],
    ids=["cut short", "empty", "no head", "an empty head"],
)
def test_torn_machine_code_is_compiled_again(spoil: Callable[[bytes], bytes], one_more: Path) -> None:
    assert doubled()
    (path,) = stored_in(one_more.parent)
    path.write_bytes(spoil(path.read_bytes()))
    assert doubled()
    assert not doubled()


def test_where_the_sources_cannot_be_written_beside_the_home_is_taken(one_more: Path, tmp_path: Path) -> None:
    """As where an administrator installed it. A file stands where the folder would be: root may write all."""
    (one_more.parent / "__pycache__").write_text("")
    with mock.patch.object(sys, "dont_write_bytecode", True):
        assert doubled()
        assert not doubled()
    assert len(stored_in(tmp_path / "home" / "specops")) == 1


def test_without_any_place_it_is_compiled_each_time(one_more: Path, tmp_path: Path) -> None:
    """As in a container whose file system is read-only."""
    (one_more.parent / "__pycache__").write_text("")
    (tmp_path / "home").write_text("")
    assert doubled()
    assert doubled()
    assert stored_in(tmp_path) == []


def test_a_full_disk_leaves_nothing_behind(
    one_more: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(path: Path, content: bytes) -> int:
        path.open("wb").close()
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(Path, "write_bytes", write)
    assert doubled()
    assert stored_in(tmp_path) == []


def test_a_loop_that_needs_python_is_refused(one_more: Path) -> None:
    """Its machine code would call what is not there without Numba."""
    with pytest.raises(ValueError, match=r"the loop allocating needs .*NRT_"):
        load("one_more", "allocating")


@given(
    st.lists(st.sampled_from([0.0, 1e-30, 1e-9, 0.25, 1.0, 3e7]), min_size=1, max_size=60).filter(any),
    st.floats(0, 1, exclude_max=True),
)
def test_a_sample_is_where_the_running_sum_exceeds_it(weights: list[float], chance: float) -> None:
    values = torch.tensor(weights)
    found, exact = ops.sample(values, chance), reference.sample(values, chance)
    assert weights[found] > 0
    sums = values.double().cumsum(0)  # the two may differ where the sum is the aim, but for rounding
    assert (
        found == exact or abs(float(sums[min(found, exact)]) - chance * float(sums[-1])) <= 1e-12 * sums[-1]
    )


def test_a_sample_at_the_edges() -> None:
    weights = torch.tensor([0.0, 0.5, 0.0, 0.5, 0.0])
    samples = [ops.sample(weights, chance) for chance in (0.0, 0.5 - 1e-16, 0.5, 1 - 1e-16, 1.0)]
    assert samples == [1, 1, 3, 3, 3]  # and 1.0, which is no chance, takes the last that has any weight
