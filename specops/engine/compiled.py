"""What lies between the matrix products of a forward pass on a CPU, compiled once (Numba).

Of a small model's step on a few tokens, half the time went to small operators: four for a norm, five for a
rotation, and an attention over a view of the cache that had to be laid out first. Here each is one call of
a few microseconds, over the very buffers of PyTorch. The arithmetic is float32's, in another order.

A call keeps the interpreter's lock: it is over before another thread could have had it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache
from pickle import UnpicklingError
from typing import Any

import numpy as np
import torch
from numba import carray, cfunc, njit, types
from numba.extending import intrinsic
from torch import Tensor

_FLOATS, _COUNT, _FLOAT = types.CPointer(types.float32), types.int64, types.float32
_COUNTS = types.CPointer(types.int64)
_CTYPES = {_FLOATS: ctypes.c_void_p, _COUNTS: ctypes.c_void_p, _COUNT: ctypes.c_int64, _FLOAT: ctypes.c_float}
# Sums may be reordered, which lets them be vectorised; infinities and NaN keep their meaning.
_ARITHMETIC = {"contract", "reassoc", "nsz", "arcp", "afn"}
f32 = np.float32


def _compiled(*arguments: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Compile to a C function. What is compiled is kept on disk, where there is a place to write to."""

    def of(function: Callable[..., None]) -> Callable[..., None]:
        # error_model: a division is not looked at, which would keep loops from being vectorised.
        options = {"fastmath": _ARITHMETIC, "error_model": "numpy"}
        signature = types.void(*arguments)
        try:
            made = cfunc(signature, cache=True, **options)(function)
        # No place, neither beside this file nor in a home; none left on it; or what lies there is torn.
        except (RuntimeError, OSError, EOFError, UnpicklingError):
            made = cfunc(signature, **options)(function)
        call: Callable[..., None] = ctypes.PYFUNCTYPE(None, *(_CTYPES[a] for a in arguments))(made.address)
        _kept.append(made)  # its code lives as long as it does
        return call

    return of


_kept: list[Any] = []


@intrinsic  # type: ignore[untyped-decorator]
def _bytes_at(context: Any, address: Any) -> Any:
    """The pointer that an integer holds."""
    pointer = types.CPointer(types.uint8)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(pointer))

    return pointer(types.int64), generate


@njit(fastmath=_ARITHMETIC, inline="always")  # type: ignore[untyped-decorator]
def _exp(x: Any) -> Any:
    """e^x, to a few roundings of x, for x up to 88; 0 below -80, before what is computed with it gets
    denormal, which takes ten times as long. The library's is called for one number at a time."""
    t = min(max(x, f32(-80.0)), f32(88.0)) * f32(1.4426950408889634)
    whole = np.floor(t + f32(0.5))
    f = t - whole  # 2^f by its Taylor series, |f| <= 1/2
    p = f32(1.5403530e-4)
    p = p * f + f32(1.3333558e-3)
    p = p * f + f32(9.6181291e-3)
    p = p * f + f32(5.5504109e-2)
    p = p * f + f32(2.4022651e-1)
    p = p * f + f32(6.9314718e-1)
    p = p * f + f32(1.0)
    power = np.int32((np.int32(whole) + np.int32(127)) << np.int32(23)).view(np.float32)
    return p * power if x > f32(-80.0) else f32(0)


@_compiled(_FLOATS, _FLOATS, _FLOAT, _FLOATS, _FLOATS, _COUNT, _COUNT, _FLOAT)
def _add_norm(x_: Any, y_: Any, scale: Any, weight_: Any, h_: Any, n: Any, width: Any, eps: Any) -> None:
    x, y, h = carray(x_, (n, width)), carray(y_, (n, width)), carray(h_, (n, width))
    weight = carray(weight_, (width,))
    for i in range(n):
        total = f32(0)
        for j in range(width):
            v = x[i, j] + scale * y[i, j]
            x[i, j] = v
            total += v * v
        r = f32(1) / np.sqrt(total / f32(width) + eps)
        for j in range(width):
            h[i, j] = x[i, j] * r * weight[j]


@_compiled(_FLOATS, _FLOATS, _FLOATS, _COUNT, _COUNT, _FLOAT)
def _norm(x_: Any, weight_: Any, h_: Any, n: Any, width: Any, eps: Any) -> None:
    x, h, weight = carray(x_, (n, width)), carray(h_, (n, width)), carray(weight_, (width,))
    for i in range(n):
        total = f32(0)
        for j in range(width):
            total += x[i, j] * x[i, j]
        r = f32(1) / np.sqrt(total / f32(width) + eps)
        for j in range(width):
            h[i, j] = x[i, j] * r * weight[j]


@_compiled(_FLOATS, _FLOAT, _FLOATS, _COUNT, _COUNT)
def _gate(y_: Any, scale: Any, h_: Any, n: Any, width: Any) -> None:
    y, h = carray(y_, (n, 2, width)), carray(h_, (n, width))
    for i in range(n):
        for j in range(width):
            v = y[i, 0, j] * scale
            h[i, j] = v / (f32(1) + _exp(-v)) * (y[i, 1, j] * scale)


@lru_cache
def _of_heads(heads: int, kv_heads: int, dim: int) -> tuple[Callable[..., None], Callable[..., None]]:
    """Loops over counts that are known are unrolled and held in registers: a third of the time."""
    tile, turned = heads // kv_heads, heads + kv_heads

    @_compiled(_FLOATS, _FLOAT, _FLOATS, _COUNTS, _FLOATS, _COUNT, _COUNTS, _COUNT)
    def store(
        qkv_: Any,
        scale: Any,
        rope_: Any,
        positions_: Any,
        cache_: Any,
        capacity: Any,
        spans_: Any,
        count: Any,
    ) -> None:
        spans = carray(spans_, (count, SPAN))
        first = 0
        for s in range(count):
            row, start, n = spans[s, 0], spans[s, 1], spans[s, 2]
            qkv = carray(qkv_, (first + n, turned + kv_heads, dim))
            rope, positions = carray(rope_, (1 << 40, dim)), carray(positions_, (first + n,))
            cache = carray(cache_, ((row + 1) * capacity, 2 * kv_heads, dim))
            for i in range(first, first + n):
                at, slot = positions[i], row * capacity + start + i - first
                for h in range(turned):
                    for d in range(dim // 2):
                        a, b = qkv[i, h, 2 * d] * scale, qkv[i, h, 2 * d + 1] * scale
                        cos, sin = rope[at, 2 * d], rope[at, 2 * d + 1]
                        qkv[i, h, 2 * d] = a * cos - b * sin
                        qkv[i, h, 2 * d + 1] = a * sin + b * cos
                for h in range(kv_heads):
                    for d in range(dim):
                        cache[slot, h, d] = qkv[i, heads + h, d]
                        cache[slot, kv_heads + h, d] = qkv[i, turned + h, d] * scale
            first += n

    @_compiled(_FLOATS, _COUNT, _FLOATS, _COUNT, _COUNTS, _COUNT, _FLOAT, _FLOATS, _FLOATS)
    def attend(
        q_: Any,
        stride: Any,
        cache_: Any,
        capacity: Any,
        spans_: Any,
        count: Any,
        scale: Any,
        scores_: Any,
        seen_: Any,
    ) -> None:
        spans = carray(spans_, (count, SPAN))
        first = 0
        for s in range(count):
            row, start, n, last = spans[s, 0], spans[s, 1], spans[s, 2], spans[s, 3]
            width, slot = start + n, row * capacity
            # Cut out, so that loops index from 0: a sum could be negative, and each would be looked at.
            q = carray(q_, (first + n, stride, dim))[first:]
            seen = carray(seen_, (first + n, heads, dim))[first:]
            cache = carray(cache_, (slot + width, 2 * kv_heads, dim))[slot:]
            sees = carray(_bytes_at(spans[s, 4]), (n, last))
            scores = carray(scores_, (n * tile, width))
            for k in range(kv_heads):
                # Every key is read once, for all nodes and all heads of its group.
                for j in range(width):
                    for i in range(n):
                        for u in range(tile):
                            total = f32(0)
                            for d in range(dim):
                                total += q[i, k * tile + u, d] * cache[j, k, d]
                            scores[i * tile + u, j] = total * scale
                for i in range(n):
                    for j in range(last):
                        if sees[i, j] == 0:
                            for u in range(tile):
                                scores[i * tile + u, width - last + j] = f32(-np.inf)
                    for u in range(tile):
                        r = i * tile + u
                        most = scores[r, 0]
                        for j in range(width):
                            most = max(most, scores[r, j])
                        total = f32(0)
                        for j in range(width):
                            e = _exp(scores[r, j] - most)
                            scores[r, j] = e
                            total += e
                        share = f32(1) / total
                        for j in range(width):
                            scores[r, j] *= share
                        for d in range(dim):
                            seen[i, k * tile + u, d] = f32(0)
                for j in range(width):
                    for i in range(n):
                        for u in range(tile):
                            share = scores[i * tile + u, j]
                            for d in range(dim):
                                seen[i, k * tile + u, d] += share * cache[j, kv_heads + k, d]
            first += n

    return store, attend


SPAN = 5
"""Of each span: row, first slot, tokens, how many of the last slots its mask is over, and where that is."""


def norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """RMSNorm of x, [n, width] float32: x / sqrt(mean(x^2) + eps) * weight."""
    h = torch.empty_like(x)
    _norm(x.data_ptr(), weight.data_ptr(), h.data_ptr(), x.size(0), x.size(1), eps)
    return h


def add_norm(x: Tensor, y: Tensor, scale: float, weight: Tensor, eps: float) -> Tensor:
    """x += scale * y, in place, and then `norm` of it."""
    h = torch.empty_like(x)
    n, width = x.shape
    _add_norm(x.data_ptr(), y.data_ptr(), scale, weight.data_ptr(), h.data_ptr(), n, width, eps)
    return h


def gate(y: Tensor, scale: float) -> Tensor:
    """[n, 2 * width] -> [n, width]: SiLU of the first half of scale * y, times the second."""
    n, width = y.size(0), y.size(1) // 2
    h = y.new_empty(n, width)
    _gate(y.data_ptr(), scale, h.data_ptr(), n, width)
    return h


def store(qkv: Tensor, scale: float, rope: Tensor, positions: Tensor, cache: Tensor, spans: Tensor) -> None:
    """qkv = scale * qkv with the queries and keys rotated, and of each token the keys and values to its slot.

    qkv: [n, heads + 2 * kv_heads, dim]; of the values only the cache's copy is scaled. rope: [positions, 1,
    dim / 2] complex, over adjacent pairs. cache: [rows, capacity, 2 * kv_heads, dim]. spans: [s, SPAN] int64.
    """
    _, capacity, kv, dim = cache.shape
    of = _of_heads(qkv.size(1) - kv, kv // 2, dim)[0]
    at = rope.data_ptr(), positions.data_ptr(), cache.data_ptr()
    of(qkv.data_ptr(), scale, *at, capacity, spans.data_ptr(), len(spans))


def attend(q: Tensor, heads: int, cache: Tensor, spans: Tensor, scores: Tensor, scale: float) -> Tensor:
    """q: [n, >= heads, dim], the queries first -> [n, heads * dim].

    cache, spans: as in `store`; scores: room for nodes * heads / kv_heads * slots of any span.
    """
    _, capacity, kv, dim = cache.shape
    seen = q.new_empty(q.size(0), heads * dim)
    of = _of_heads(heads, kv // 2, dim)[1]
    to = scale, scores.data_ptr(), seen.data_ptr()
    of(q.data_ptr(), q.size(1), cache.data_ptr(), capacity, spans.data_ptr(), len(spans), *to)
    return seen
