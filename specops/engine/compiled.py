"""The compiled loops (loops.py), called with PyTorch's tensors on a CPU."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor

from specops.engine.compiling import load

_LOOPS = "specops.engine.loops"
_norm, _add_norm, _gate = load(_LOOPS, "norm"), load(_LOOPS, "add_norm"), load(_LOOPS, "gate")
_sample = load(_LOOPS, "sample")
recurrent = load(_LOOPS, "recurrent")
"""What one_call.py calls."""


@lru_cache
def _store_of(heads: int, kv_heads: int, dim: int) -> Callable[..., None]:
    return load(_LOOPS, "store_of", heads, kv_heads, dim)


@lru_cache
def _attend_of(heads: int, kv_heads: int, dim: int) -> Callable[..., None]:
    return load(_LOOPS, "attend_of", heads, kv_heads, dim)


@lru_cache
def eagle_of(heads: int, kv_heads: int, dim: int) -> Callable[..., None]:
    """What one_call.py calls. Compiling it takes seconds the first time: better when a head is loaded than in
    a request."""
    return load(_LOOPS, "eagle_of", heads, kv_heads, dim)


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
    of = _store_of(qkv.size(1) - kv, kv // 2, dim)
    at = rope.data_ptr(), positions.data_ptr(), cache.data_ptr()
    of(qkv.data_ptr(), scale, *at, capacity, spans.data_ptr(), len(spans))


def attend(q: Tensor, heads: int, cache: Tensor, spans: Tensor, scores: Tensor, scale: float) -> Tensor:
    """q: [n, >= heads, dim], the queries first -> [n, heads * dim].

    cache, spans: as in `store`; scores: room for nodes * heads / kv_heads * slots of any span.
    """
    _, capacity, kv, dim = cache.shape
    seen = q.new_empty(q.size(0), heads * dim)
    of = _attend_of(heads, kv // 2, dim)
    to = scale, scores.data_ptr(), seen.data_ptr()
    of(q.data_ptr(), q.size(1), cache.data_ptr(), capacity, spans.data_ptr(), len(spans), *to)
    return seen


def sample(weights: Tensor, chance: float) -> int:
    """The index of [V] float32 weights at which, cumulated, they first exceed `chance` of their sum."""
    found = ctypes.c_int64()
    _sample(weights.data_ptr(), chance, ctypes.addressof(found), weights.size(0))
    return found.value


class Scratch:
    """Room for what a call computes on the way: one for all, since each keeps the interpreter's lock."""

    def __init__(self) -> None:
        self._room = torch.empty(0)

    def address(self, floats: int) -> int:
        if self._room.size(0) < floats:
            self._room = torch.empty(2 * floats)
        return self._room.data_ptr()
