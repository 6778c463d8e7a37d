"""The compiled loops as functions over PyTorch's tensors on a CPU.

Of a small model's step, half the time went to small operators between its matrix products. Here each group of
them is one call of a few microseconds over PyTorch's own buffers. A draft head's whole pass over one token is
one call too, with an int8 for a weight: its time is that of reading the weights, and a draft may be slightly
off. reference.py defines what each function computes. A call reads and writes addresses, so each function
holds every tensor that it hands over until it returns.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from specops.engine.cpu.compiler import ROWS, load
from specops.errors import NotFinite

_LOOPS = "specops.engine.cpu.loops"
_norm, _add_norm, _gate = load(_LOOPS, "norm"), load(_LOOPS, "add_norm"), load(_LOOPS, "gate")
_sample, _recurrent = load(_LOOPS, "sample"), load(_LOOPS, "recurrent")
_nothing_of, _nothing_of_rows = load(_LOOPS, "nothing_of"), load(_LOOPS, "nothing_of_rows")
_draws_are_sound = load(_LOOPS, "draws_are_sound")


@lru_cache
def _store_of(heads: int, kv_heads: int, dim: int) -> Callable[..., None]:
    return load(_LOOPS, "store_of", heads, kv_heads, dim)


@lru_cache
def _attend_of(heads: int, kv_heads: int, dim: int) -> Callable[..., None]:
    return load(_LOOPS, "attend_of", heads, kv_heads, dim)


@lru_cache
def _eagle_of(heads: int, kv_heads: int, dim: int) -> Callable[..., None]:
    return load(_LOOPS, "eagle_of", heads, kv_heads, dim)


def norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """RMSNorm of x, [n, width] float32: x / sqrt(mean(x^2) + eps) * weight."""
    h = torch.empty_like(x)
    _norm(x.data_ptr(), weight.data_ptr(), h.data_ptr(), x.size(0), x.size(1), eps)
    return h


def add_norm(x: Tensor, y: Tensor, scale: float, weight: Tensor, eps: float) -> Tensor:
    """x += scale * y, in place, and then RMSNorm of x; x and y: [n, width] float32."""
    h = torch.empty_like(x)
    n, width = x.shape
    _add_norm(x.data_ptr(), y.data_ptr(), scale, weight.data_ptr(), h.data_ptr(), n, width, eps)
    return h


def gate(y: Tensor, scale: float) -> Tensor:
    """SiLU of the first half of scale * y, times the second half: [n, 2 * width] -> [n, width]."""
    n, width = y.size(0), y.size(1) // 2
    h = y.new_empty(n, width)
    _gate(y.data_ptr(), scale, h.data_ptr(), n, width)
    return h


@dataclass(frozen=True)
class SpanRow:
    """The tokens that one sequence feeds: cache row, first slot, count, and what they see.

    sees: [count, m] bool, of the last m slots up to the last token's own; all earlier slots are visible.
    """

    row: int
    start: int
    count: int
    sees: Tensor


class SpanTable:
    """The spans of one pass, as the loops read them."""

    def __init__(self, rows: Sequence[SpanRow]) -> None:
        """`rows` in the order of their tokens in the pass."""
        self.rows = rows  # which also keeps the masks alive
        self.table = torch.tensor(
            [(r.row, r.start, r.count, r.sees.size(1), r.sees.data_ptr()) for r in rows]
        )
        """[spans, 5] int64."""
        self._scores = torch.empty(0)

    def scores(self, tile: int) -> Tensor:
        """Room for the attention scores of any span, for `tile` query heads."""
        needed = max(r.count * (r.start + r.count) for r in self.rows) * tile
        if self._scores.size(0) < needed:
            self._scores = torch.empty(needed)
        return self._scores


def store(
    qkv: Tensor, scale: float, rope: Tensor, positions: Tensor, cache: Tensor, spans: SpanTable
) -> None:
    """Rotate the queries and keys of scale * qkv, in place, and write keys and values to the cache.

    qkv: [n, heads + 2 * kv_heads, dim] float32; its values stay unscaled, only the cache's copy is scaled.
    rope: [positions, 1, dim / 2] complex, over adjacent pairs. positions: [n] int64.
    cache: [rows, capacity, 2 * kv_heads, dim], keys before values.
    """
    _, capacity, kv, dim = cache.shape
    call = _store_of(qkv.size(1) - kv, kv // 2, dim)
    addresses = rope.data_ptr(), positions.data_ptr(), cache.data_ptr()
    call(qkv.data_ptr(), scale, *addresses, capacity, spans.table.data_ptr(), len(spans.table))


def attend(q: Tensor, heads: int, cache: Tensor, spans: SpanTable, scale: float) -> Tensor:
    """Attention of every token to the slots of its span that it sees -> [n, heads * dim].

    q: [n, heads or more, dim] float32, the queries first. cache: as in `store`.
    """
    _, capacity, kv, dim = cache.shape
    out = q.new_empty(q.size(0), heads * dim)
    call, scores = _attend_of(heads, kv // 2, dim), spans.scores(heads // (kv // 2))
    to = scale, scores.data_ptr(), out.data_ptr()
    call(q.data_ptr(), q.size(1), cache.data_ptr(), capacity, spans.table.data_ptr(), len(spans.table), *to)
    return out


_nothing = ctypes.c_float()
_nothing_at = ctypes.addressof(_nothing)


def all_finite(values: Tensor) -> bool:
    """Return whether no value of a contiguous float32 tensor is a NaN or an infinity."""
    _nothing_of(values.data_ptr(), _nothing_at, values.numel())
    return _nothing.value == 0


def are_distributions(logits: Tensor) -> bool:
    """Return whether softmax is defined for each row of [n, V] contiguous float32 logits: none is NaN or
    +inf, and one is above -inf, which is the probability 0."""
    _nothing_of_rows(logits.data_ptr(), _nothing_at, *logits.shape)
    return _nothing.value == 0


def sample(weights: Tensor, chance: float) -> int:
    """The index of [V] float32 weights at which their running sum first exceeds `chance` of their sum.

    Raises NotFinite if the sum is not finite and above 0.
    """
    index = ctypes.c_int64()
    _sample(weights.data_ptr(), chance, ctypes.addressof(index), weights.size(0))
    if index.value < 0:
        raise NotFinite("could not sample: the sum of the weights is not finite and above 0")
    return index.value


def draws_are_sound(
    nodes: tuple[int, ...],
    sizes: tuple[int, ...],
    support: bytes,
    weights: bytes,
    tokens: tuple[int, ...],
    parents: tuple[int, ...],
    *,
    vocabulary: int,
    most: int,
) -> bool:
    """Return whether a drawn tree and the distributions that it was drawn from fit together.

    nodes, sizes: of each distribution, its node and its number of tokens. support: the tokens of all, uint32;
    weights: theirs, uint16. tokens, parents: of each drawn node, its token and the node above it. True if
    there is one distribution for every node in `parents`, over 1 to `most` ascending tokens below
    `vocabulary` with weights of at least 1, and each of `tokens` is in the distribution of the node above it.
    """
    distributions = len(nodes)
    if len(sizes) != distributions or distributions > len(tokens):
        return False  # the second limits the time, since a client may send a long list
    numbers = array("q", (0, *nodes, *sizes, *parents, *tokens))
    address, _ = numbers.buffer_info()
    lengths = len(support), len(weights)
    _draws_are_sound(address, distributions, len(tokens), support, weights, *lengths, vocabulary, most)
    return numbers[0] == 1


SMALL = 2**23
"""Weights of a pass up to which it is one call. Products of more take so long that calls between them do not
matter, and would gain from threads."""


class Quantised:
    """The matrices of a pass that is one call: an int8 a weight, a float32 scale a row."""

    def __init__(self, *matrices: Tensor) -> None:
        """matrices: [out, in] float32 each."""
        self.shapes = [tuple(matrix.shape) for matrix in matrices]
        scales = [matrix.abs().amax(1) / 127 for matrix in matrices]
        self._scales = [torch.where(scale == 0, 1.0, scale).float() for scale in scales]
        rounded = [(m / scale[:, None]).round() for m, scale in zip(matrices, self._scales, strict=True)]
        self._packed = [_in_pairs(m.to(torch.int8)) for m in rounded]
        matrices_and_scales = zip(self._packed, self._scales, strict=True)
        self.addresses = torch.tensor(
            [[packed.data_ptr(), scale.data_ptr()] for packed, scale in matrices_and_scales]
        )
        """[matrices, 2] int64: of the packed weights, and of the scales."""
        self.short = torch.empty(max(count for _, count in self.shapes) + 1, dtype=torch.int16)
        """Room for a vector in int16, to multiply with."""
        self.scratch = Scratch()

    @classmethod
    def of_small(cls, *matrices: Tensor) -> Quantised | None:
        """The matrices, quantised; None if they have more than `SMALL` weights together."""
        return cls(*matrices) if sum(matrix.numel() for matrix in matrices) <= SMALL else None

    def plain(self) -> list[Tensor]:
        """The rounded matrices, [out, in] float64 each."""
        matrices = []
        for (out, count), packed, scale in zip(self.shapes, self._packed, self._scales, strict=True):
            rows = packed.transpose(1, 2).flatten(2).flatten(0, 1)  # of [blocks, pairs, ROWS, 2]
            matrices.append(rows[:out, :count].double() * scale.double()[:, None])
        return matrices


def _in_pairs(matrix: Tensor) -> Tensor:
    """[out, in] -> [blocks, pairs, ROWS, 2], padded with zeros: as loops.py reads it."""
    out, count = matrix.shape
    filled = F.pad(matrix, (0, count % 2, 0, -out % ROWS))
    return filled.view(len(filled) // ROWS, ROWS, -1, 2).transpose(1, 2).contiguous()


class Scratch:
    """Room for intermediate results of a call; one for all calls, since each holds the interpreter's lock."""

    def __init__(self) -> None:
        self._room = torch.empty(0)

    def address(self, floats: int) -> int:
        """The address of room for so many floats, until the next call of this method."""
        if self._room.size(0) < floats:
            self._room = torch.empty(2 * floats)
        return self._room.data_ptr()


def recurrent(state: Tensor, token: Tensor, weights: Quantised) -> tuple[Tensor, Tensor]:
    """A recurrent head's pass over one token (heads/recurrent.py) -> next state [1, width], [1, V] logits.

    state: [1, width]. token: [1, width + 2 * inter], T times the token. `weights`: R, D and the output layer.
    """
    (width, inter), (vocab, _) = weights.shapes[1:]
    after, logits = state.new_empty(1, width), state.new_empty(1, vocab)
    scratch = weights.scratch.address(ROWS + width + 3 * inter)
    _recurrent(
        *(state.data_ptr(), token.data_ptr(), weights.addresses.data_ptr(), scratch),
        weights.short.data_ptr(),
        *(after.data_ptr(), logits.data_ptr(), width, inter, vocab),
    )
    return after, logits


@dataclass(frozen=True)
class EagleInput:
    """n tokens of one sequence, as an EAGLE head reads them."""

    entered: Tensor  # [n, width + queries + keys + values], the head's table row of each; overwritten
    features: Tensor  # [n, width], of the positions before the tokens
    positions: Tensor  # [n] int64
    cache: Tensor  # [capacity, 2 * kv_heads, dim], the sequence's
    start: int  # slot of the first token; the others follow
    sees: Tensor  # [n, m] bool, of the last m slots


class EaglePasses:
    """An EAGLE head's passes (heads/eagle.py): a guess after the last of the tokens that it reads.

    Of the tokens before the last, only keys and values are computed.
    """

    def __init__(
        self,
        weights: Quantised,
        norm: Tensor,
        eps: float,
        rope: Tensor,
        kv_heads: int,
        head_dim: int,
        table: Tensor | None,
    ) -> None:
        """Compiling takes seconds the first time, so a head makes this when it is loaded.

        weights: the head's matrices on features (to width and queries; to keys and values), its output
        projection, gate and up, down, and the target's output layer. norm: [width]. rope: [positions, 1,
        head_dim / 2] complex. table: [V, width + queries + keys + values], the `entered` row of every token;
        None if there is no such table, and so no `chain`.
        """
        (self.width, queries), (_, self.inter), (self.vocab, _) = (
            weights.shapes[2],
            weights.shapes[4],
            weights.shapes[5],
        )
        self.weights, self.norm, self.eps, self.rope, self.table = weights, norm, eps, rope, table
        self.heads, self.kv_heads, self.head_dim = queries // head_dim, kv_heads, head_dim
        entered = self.width + queries + 2 * kv_heads * head_dim
        self._scratch = ROWS + entered + 2 * queries + self.width + 3 * self.inter
        self._call = _eagle_of(self.heads, kv_heads, head_dim)

    def guess(self, fed: EagleInput) -> tuple[Tensor, Tensor]:
        """The guess at the last token's feature, [1, width], and [1, V] logits from it."""
        return self._run(fed, 1, (0, None, 0, 0.0, 0.0, None, None, None))

    def chain(
        self, fed: EagleInput, dice: list[float], *, temperature: float, worth: float
    ) -> tuple[list[int], Tensor]:
        """Draw a chain: a token by the first of the `dice` after a pass, the next after a pass over it, and
        so on.

        dice: random numbers in [0, 1), one a token at most. temperature: 0 is greedy, and leaves the returned
        distributions undefined. worth: when the estimated probability that all tokens so far are accepted
        (drafters/expansion.py) falls below it, no further one is drawn; 0 draws all. Needs a `table`.
        Returns the tokens, and [tokens, V], the distribution that each was drawn from. Raises NotFinite if
        the logits of a pass are not.
        """
        assert self.table is not None
        most = len(dice)
        q, drawn = fed.features.new_empty(most, self.vocab), (ctypes.c_int64 * (1 + most))()
        chances, final = (ctypes.c_double * most)(*dice), len(self.rope) - 1
        table, into = self.table.data_ptr(), q.data_ptr()
        self._run(fed, most, (most, table, final, temperature, worth, chances, into, drawn))
        if drawn[0] < 0:
            raise NotFinite("could not draw a chain: the draft's logits are not finite")
        return drawn[1 : 1 + drawn[0]], q[: drawn[0]]

    def _run(self, fed: EagleInput, passes: int, drawing: tuple[Any, ...]) -> tuple[Tensor, Tensor]:
        weights, features = self.weights, fed.features
        n, last = fed.sees.shape
        guess, logits = features.new_empty(1, self.width), features.new_empty(1, self.vocab)
        tile = self.heads // self.kv_heads
        scratch = weights.scratch.address(self._scratch + (tile + 1) * (fed.start + n + passes - 1))
        self._call(
            *(fed.entered.data_ptr(), features.data_ptr(), weights.addresses.data_ptr()),
            *(self.norm.data_ptr(), self.eps, self.rope.data_ptr(), fed.positions.data_ptr()),
            *(fed.cache.data_ptr(), fed.sees.data_ptr(), scratch, weights.short.data_ptr()),
            *(guess.data_ptr(), logits.data_ptr(), fed.start, n, last),
            *(self.width, self.inter, self.vocab, *drawing),
        )
        return guess, logits
