"""The loops that ops.py calls, for Numba.

They are what lies between the matrix products of a forward pass on a CPU, whole passes of draft heads over
one token, and the check of drawn trees that come over a network.

The arithmetic is float32's, in another order than PyTorch's. A draft head's pass over one token is so short
that the calls between its products take longer than the products. So it is one call, and so is a chain of
such passes with the draws between them.

This module is imported only to compile. compiler.py says what a loop may do, and stores its machine code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, njit, types
from numba.core.cgutils import get_or_insert_function
from numba.extending import intrinsic

from specops.engine.cpu.compiler import ARITHMETIC, ROWS, SPAN, Loop, loop

_FLOATS, _COUNT, _FLOAT, _DOUBLE = types.CPointer(types.float32), types.int64, types.float32, types.float64
_COUNTS, _BYTES, _SHORTS = (types.CPointer(t) for t in (types.int64, types.uint8, types.int16))
_DOUBLES = types.CPointer(types.float64)
_TOKENS, _WEIGHTS = types.CPointer(types.uint32), types.CPointer(types.uint16)
f32, i32 = np.float32, np.int32


def _pointer(element: Any) -> Any:
    """A function that makes the pointer to `element` whose address an integer holds."""

    @intrinsic  # type: ignore[untyped-decorator]
    def cast_address(context: Any, address: Any) -> Any:
        pointer = types.CPointer(element)

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.inttoptr(arguments[0], context.get_value_type(pointer))

        return pointer(types.int64), generate

    return cast_address


_bytes_at, _weights_at, _floats_at = _pointer(types.uint8), _pointer(types.int8), _pointer(types.float32)

_part = njit(fastmath=ARITHMETIC, error_model="numpy")
_inlined = njit(fastmath=ARITHMETIC, error_model="numpy", inline="always")


# Where Numba's loops come out slow, they are written here in LLVM's vectors, which every processor has in
# some width. LLVM makes a loop over several types as narrow as its widest type. And it cannot rule out that a
# loop writes what it reads next, so that a running sum goes to memory and back each time.

_I32, _I64 = ir.IntType(32), ir.IntType(64)
_REORDERED = ("reassoc", "contract")


def _arrays(context: Any, builder: Any, signature: Any, arguments: Any) -> list[Any]:
    typed_arguments = zip(signature.args, arguments, strict=True)
    return [
        context.make_array(t)(context, builder, a) for t, a in typed_arguments if isinstance(t, types.Array)
    ]


def _in_every_lane(builder: Any, value: Any, lanes: int) -> Any:
    unset = ir.Constant(ir.VectorType(value.type, lanes), ir.Undefined)
    first = ir.Constant(ir.VectorType(_I32, lanes), [0] * lanes)
    return builder.shuffle_vector(builder.insert_element(unset, value, _I32(0)), unset, first)


def _repeated(
    builder: Any, count: Any, first: list[Any], body: Callable[[Any, list[Any]], list[Any]]
) -> list[Any]:
    """Emit a loop that holds its values in registers: body(i, values) for i from 0 to `count` - 1, `count` >
    0."""
    before = builder.block
    loop_block, after = builder.append_basic_block(), builder.append_basic_block()
    builder.branch(loop_block)
    builder.position_at_end(loop_block)
    i, held = builder.phi(_I64), [builder.phi(value.type) for value in first]
    updated, following = body(i, held), builder.add(i, _I64(1))
    for phi, start, then in zip((i, *held), (_I64(0), *first), (following, *updated), strict=True):
        phi.add_incoming(start, before)
        phi.add_incoming(then, loop_block)
    builder.cbranch(builder.icmp_unsigned("<", following, count), loop_block, after)
    builder.position_at_end(after)
    return updated


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator]
def _dot(context: Any, a: Any, b: Any, dim: Any) -> Any:
    """The dot product of two arrays of `dim` floats; `dim` is a constant."""
    lanes = ir.VectorType(ir.FloatType(), dim.literal_value)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        x, y = (
            builder.load(builder.bitcast(array.data, lanes.as_pointer()), align=4)
            for array in _arrays(context, builder, signature, arguments)
        )
        reduction = ir.FunctionType(ir.FloatType(), (ir.FloatType(), lanes))
        summed = get_or_insert_function(
            builder.module, reduction, f"llvm.vector.reduce.fadd.v{lanes.count}f32"
        )
        products = builder.fmul(x, y, flags=_REORDERED)
        return builder.call(summed, (ir.FloatType()(0.0), products), fastmath=_REORDERED)

    return types.float32(a, b, dim), generate


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator]
def _add_weighted(context: Any, rows: Any, weights: Any, sums: Any, dim: Any) -> Any:
    """sums [dim] += weights [n] times rows [n, dim], n > 0; `dim` is a constant."""
    lanes = ir.VectorType(ir.FloatType(), dim.literal_value)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        read, weight, written = _arrays(context, builder, signature, arguments)
        stride, pointer = (
            builder.extract_value(read.strides, 0),
            builder.bitcast(written.data, lanes.as_pointer()),
        )

        def add(i: Any, total: list[Any]) -> list[Any]:
            place = builder.add(builder.ptrtoint(read.data, _I64), builder.mul(i, stride))
            row = builder.load(builder.inttoptr(place, lanes.as_pointer()), align=4)
            share = _in_every_lane(builder, builder.load(builder.gep(weight.data, [i])), lanes.count)
            return [builder.fadd(*total, builder.fmul(share, row, flags=_REORDERED), flags=_REORDERED)]

        n, first = builder.extract_value(weight.shape, 0), builder.load(pointer, align=4)
        builder.store(*_repeated(builder, n, [first], add), pointer, align=4)
        return context.get_dummy_value()

    return types.void(rows, weights, sums, dim), generate


_LANES = 16
"""Rows of a matrix in one vector, of the ROWS that are multiplied at once."""


@intrinsic  # type: ignore[untyped-decorator]
def _multiply_rows(context: Any, weights: Any, short: Any, sums: Any) -> Any:
    """sums [ROWS] float32 = weights [pairs, ROWS, 2] int8 times short [2 * pairs] int16.

    Two products of neighbours and their sum are one instruction of the processor; with AVX-512's VNNI the
    running sum is included. LLVM recognises it in this form, with all products before any sum.
    """
    narrow, int16_lanes = ir.VectorType(ir.IntType(8), 2 * _LANES), ir.VectorType(ir.IntType(16), 2 * _LANES)
    wide, floats = ir.VectorType(_I32, 2 * _LANES), ir.VectorType(ir.FloatType(), _LANES)
    even, odd = (ir.Constant(ir.VectorType(_I32, _LANES), [2 * i + o for i in range(_LANES)]) for o in (0, 1))
    none = ir.Constant(ir.VectorType(_I32, _LANES), [0] * _LANES)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        arrays = _arrays(context, builder, signature, arguments)
        w, x, y = (
            builder.bitcast(array.data, element.as_pointer())
            for array, element in zip(arrays, (narrow, _I32, floats), strict=True)
        )

        def add(pair: Any, totals: list[Any]) -> list[Any]:
            two = _in_every_lane(builder, builder.load(builder.gep(x, [pair])), _LANES)
            two = builder.sext(builder.bitcast(two, int16_lanes), wide)
            sums, first = [], builder.mul(pair, _I64(len(totals)))
            for vector, total in enumerate(totals):
                read = builder.load(builder.gep(w, [builder.add(first, _I64(vector))]), align=1)
                products = builder.mul(builder.sext(read, wide), two)
                halves = (builder.shuffle_vector(products, products, half) for half in (even, odd))
                sums.append(builder.add(total, builder.add(*halves)))
            return sums

        pairs = builder.extract_value(arrays[0].shape, 0)
        for vector, total in enumerate(_repeated(builder, pairs, [none] * (ROWS // _LANES), add)):
            builder.store(builder.sitofp(total, floats), builder.gep(y, [_I64(vector)]), align=4)
        return context.get_dummy_value()

    return types.void(weights, short, sums), generate


@_part  # type: ignore[untyped-decorator]
def _exp(x: Any) -> Any:
    """e^x to a few roundings of x, for x up to 88. Returns 0 below -80, since computing with denormal numbers
    takes ten times as long. The library's function handles one number at a time. NaN stays NaN, which `min`
    and `max` would not do."""
    t = f32(-80.0) if x < f32(-80.0) else x
    t = (f32(88.0) if t > f32(88.0) else t) * f32(1.4426950408889634)
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
    return f32(0) if x <= f32(-80.0) else p * power


@loop(_FLOATS, _FLOATS, _FLOAT, _FLOATS, _FLOATS, _COUNT, _COUNT, _FLOAT)
def add_norm(x_: Any, y_: Any, scale: Any, weight_: Any, h_: Any, n: Any, width: Any, eps: Any) -> None:
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


@loop(_FLOATS, _FLOATS, _FLOATS, _COUNT, _COUNT, _FLOAT)
def norm(x_: Any, weight_: Any, h_: Any, n: Any, width: Any, eps: Any) -> None:
    x, h, weight = carray(x_, (n, width)), carray(h_, (n, width)), carray(weight_, (width,))
    for i in range(n):
        total = f32(0)
        for j in range(width):
            total += x[i, j] * x[i, j]
        r = f32(1) / np.sqrt(total / f32(width) + eps)
        for j in range(width):
            h[i, j] = x[i, j] * r * weight[j]


@_part  # type: ignore[untyped-decorator]
def _gate_row(y: Any, scale: Any, h: Any, width: Any) -> None:
    for j in range(width):
        v = y[j] * scale
        h[j] = v / (f32(1) + _exp(-v)) * (y[width + j] * scale)


@loop(_FLOATS, _FLOAT, _FLOATS, _COUNT, _COUNT)
def gate(y_: Any, scale: Any, h_: Any, n: Any, width: Any) -> None:
    y, h = carray(y_, (n, 2 * width)), carray(h_, (n, width))
    for i in range(n):
        _gate_row(y[i], scale, h[i], width)


@_part  # type: ignore[untyped-decorator]
def _rotate(pairs: Any, scale: Any, rope: Any, position: Any, dim: Any) -> None:
    for d in range(dim // 2):
        a, b = pairs[2 * d] * scale, pairs[2 * d + 1] * scale
        cos, sin = rope[position, 2 * d], rope[position, 2 * d + 1]
        pairs[2 * d] = a * cos - b * sin
        pairs[2 * d + 1] = a * sin + b * cos


SLOTS = 32
"""Slots whose values are summed for one head after another: few enough to stay in the nearest cache."""


# Loops over known counts are unrolled and held in registers. So this is inlined into code that is compiled
# for given numbers of heads, with these as constants.
@_inlined  # type: ignore[untyped-decorator]
def _attend_span(
    q: Any, cache: Any, sees: Any, scale: Any, scores: Any, attended: Any, kv_heads: Any, tile: Any, dim: Any
) -> None:
    """Attention of one sequence's tokens.

    q: [n, heads or more, dim]. cache: [width, 2 * kv_heads, dim], up to the last visible slot. sees: [n,
    last], of the last slots. scores: [n * tile, width]. attended: [n, heads, dim], the result.
    """
    n, last = sees.shape
    width = cache.shape[0]
    for k in range(kv_heads):
        # Every key is read once, for all nodes and all heads of its group.
        for j in range(width):
            for i in range(n):
                for u in range(tile):
                    scores[i * tile + u, j] = _dot(q[i, k * tile + u], cache[j, k], dim) * scale
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
                    attended[i, k * tile + u, d] = f32(0)
        for begun in range(0, width, SLOTS):
            end = min(begun + SLOTS, width)
            for i in range(n):
                for u in range(tile):
                    shares = scores[i * tile + u, begun:end]
                    _add_weighted(cache[begun:end, kv_heads + k], shares, attended[i, k * tile + u], dim)


def store_of(heads: int, kv_heads: int, dim: int) -> Loop:
    turned = heads + kv_heads

    @loop(_FLOATS, _FLOAT, _FLOATS, _COUNTS, _FLOATS, _COUNT, _COUNTS, _COUNT)
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
                slot = row * capacity + start + i - first
                for h in range(turned):
                    _rotate(qkv[i, h], scale, rope, positions[i], dim)
                for h in range(kv_heads):
                    for d in range(dim):
                        cache[slot, h, d] = qkv[i, heads + h, d]
                        cache[slot, kv_heads + h, d] = qkv[i, turned + h, d] * scale
            first += n

    return store


def attend_of(heads: int, kv_heads: int, dim: int) -> Loop:
    tile = heads // kv_heads

    @loop(_FLOATS, _COUNT, _FLOATS, _COUNT, _COUNTS, _COUNT, _FLOAT, _FLOATS, _FLOATS)
    def attend(
        q_: Any,
        stride: Any,
        cache_: Any,
        capacity: Any,
        spans_: Any,
        count: Any,
        scale: Any,
        scores_: Any,
        attended_: Any,
    ) -> None:
        spans = carray(spans_, (count, SPAN))
        first = 0
        for s in range(count):
            row, start, n, last = spans[s, 0], spans[s, 1], spans[s, 2], spans[s, 3]
            width, slot = start + n, row * capacity
            # Slices, so that loops index from 0: Numba checks each index that could be negative.
            q = carray(q_, (first + n, stride, dim))[first:]
            attended = carray(attended_, (first + n, heads, dim))[first:]
            cache = carray(cache_, (slot + width, 2 * kv_heads, dim))[slot:]
            sees = carray(_bytes_at(spans[s, 4]), (n, last))
            scores = carray(scores_, (n * tile, width))
            _attend_span(q, cache, sees, scale, scores, attended, kv_heads, tile, dim)
            first += n

    return attend


@_part  # type: ignore[untyped-decorator]
def _quantise(x: Any, short: Any) -> Any:
    """short = x / step, rounded; returns the step, as fine as the int32 sum of products with int8 allows. It
    is not finite if x is not, since integers cannot carry that on."""
    most, nothing = f32(0), f32(0)
    for j in range(x.shape[0]):
        most = max(most, abs(x[j]))
        nothing += x[j] * f32(0)  # NaN, of a NaN or an infinity
    step = most / min(f32(32767), f32(1.6e7) / f32(x.shape[0]))
    per = f32(1) / step if step > 0 else f32(0)
    for j in range(x.shape[0]):
        short[j] = np.int16(np.floor(x[j] * per + f32(0.5)))
    if x.shape[0] % 2:
        short[x.shape[0]] = 0  # weights come in pairs
    return step + nothing


@_part  # type: ignore[untyped-decorator]
def _add_product(matrix: Any, short: Any, step: Any, width: Any, sums: Any, y: Any) -> None:
    """y += W x. matrix: addresses of the quantised weights of W and of their scales. short, step: x, of
    `width`."""
    pairs, rows = (width + 1) // 2, y.shape[0]
    blocks = (rows + ROWS - 1) // ROWS
    weights = carray(_weights_at(matrix[0]), (blocks, pairs, ROWS, 2))
    scales = carray(_floats_at(matrix[1]), (rows,))
    for block in range(blocks):
        _multiply_rows(weights[block], short, sums)
        begun = block * ROWS
        for row in range(min(ROWS, rows - begun)):
            y[begun + row] += sums[row] * scales[begun + row] * step


@_part  # type: ignore[untyped-decorator]
def _product(matrix: Any, x: Any, short: Any, sums: Any, y: Any) -> None:
    """y = W x, as `_add_product`."""
    for j in range(y.shape[0]):
        y[j] = f32(0)
    _add_product(matrix, short, _quantise(x, short), x.shape[0], sums, y)


@loop(_FLOATS, _FLOATS, _COUNTS, _FLOATS, _SHORTS, _FLOATS, _FLOATS, _COUNT, _COUNT, _COUNT)
def recurrent(
    state_: Any,
    token_: Any,
    matrices_: Any,
    scratch_: Any,
    short_: Any,
    after_: Any,
    logits_: Any,
    width: Any,
    inter: Any,
    vocab: Any,
) -> None:
    matrices, short = carray(matrices_, (3, 2)), carray(short_, (1 << 40,))
    entered = width + 2 * inter
    scratch = carray(scratch_, (ROWS + entered + inter,))
    sums, y, h = scratch[:ROWS], scratch[ROWS : ROWS + entered], scratch[ROWS + entered :]
    token, state, after = carray(token_, (entered,)), carray(state_, (width,)), carray(after_, (width,))
    for j in range(entered):
        y[j] = token[j]
    _add_product(matrices[0], short, _quantise(state, short), width, sums, y)
    _gate_row(y[width:], f32(1), h, inter)
    for j in range(width):
        after[j] = y[j]
    _add_product(matrices[1], short, _quantise(h, short), inter, sums, after)
    _product(matrices[2], after, short, sums, carray(logits_, (vocab,)))


@_part  # type: ignore[untyped-decorator]
def _sample_index(weights: Any, chance: Any) -> Any:
    # Computed in float64: otherwise a token far out in the tail would fall between two steps.
    total = types.float64(0)
    for j in range(weights.shape[0]):
        total += types.float64(weights[j])
    if not (total > 0 and total < np.inf):
        return -1
    aimed, last = chance * total, 0
    total = types.float64(0)
    for j in range(weights.shape[0]):
        total += types.float64(weights[j])
        if weights[j] > f32(0):
            last = j
            if total > aimed:
                break
    return last  # where the product was rounded up: the last that has any weight


@_part  # type: ignore[untyped-decorator]
def _greatest(logits: Any) -> Any:
    """The greatest logit if the logits are a distribution's, where -inf is the probability 0; else NaN."""
    most, nothing = f32(-np.inf), f32(0)
    for j in range(logits.shape[0]):
        most = max(most, logits[j])
        nothing += (f32(0) if logits[j] < f32(0) else logits[j]) * f32(0)  # NaN, of a NaN or infinity
    return most + nothing if most > f32(-np.inf) else f32(np.nan)


@_part  # type: ignore[untyped-decorator]
def _drawn(logits: Any, heat: Any, chance: Any, q: Any) -> Any:
    """A token drawn from q = softmax(logits / heat), and the probability that it is accepted (Adaptive, in
    drafters/expansion.py). At heat 0 it is the most likely token, and q is left unchanged. The token is -1 if
    the logits are no distribution's."""
    most, total, agree = _greatest(logits), f32(0), f32(0)
    if not most < f32(np.inf):
        return -1, f32(0)
    if heat == f32(0):
        for j in range(logits.shape[0]):
            total += _exp(logits[j] - most)
        likeliest = 0
        for j in range(logits.shape[0]):
            if logits[j] > logits[likeliest]:
                likeliest = j
        return likeliest, np.sqrt(f32(1) / total)
    per = f32(1) / heat
    for j in range(logits.shape[0]):
        e = _exp((logits[j] - most) * per)
        q[j] = e
        total += e
    share = f32(1) / total
    for j in range(logits.shape[0]):
        q[j] *= share
        agree += q[j] * q[j]
    return _sample_index(q, chance), (f32(1) + agree) / f32(2)


def eagle_of(heads: int, kv_heads: int, dim: int) -> Loop:
    """The passes of an EAGLE head with these constants (EaglePasses in ops.py)."""
    tile, queries, keys = heads // kv_heads, heads * dim, kv_heads * dim

    @loop(
        *(_FLOATS, _FLOATS, _COUNTS, _FLOATS, _FLOAT, _FLOATS, _COUNTS, _FLOATS, _BYTES),
        *(_COUNT, _SHORTS, _FLOATS, _FLOATS, _COUNT, _COUNT, _COUNT, _COUNT, _COUNT, _COUNT),
        *(_COUNT, _FLOATS, _COUNT, _FLOAT, _FLOAT, _DOUBLES, _FLOATS, _COUNTS),
    )
    def eagle(
        entered_: Any,
        features_: Any,
        matrices_: Any,
        norm_: Any,
        eps: Any,
        rope_: Any,
        positions_: Any,
        cache_: Any,
        sees_: Any,
        room: Any,  # an address
        short_: Any,
        guess_: Any,
        logits_: Any,
        start: Any,
        n: Any,
        last: Any,
        width: Any,
        inter: Any,
        vocab: Any,
        draws: Any,  # 0: a pass, and nothing is drawn; the rest is of those that draw
        table_: Any,
        final: Any,
        heat: Any,
        worth: Any,
        dice_: Any,
        q_: Any,
        drawn_: Any,
    ) -> None:
        matrices, short = carray(matrices_, (6, 2)), carray(short_, (1 << 40,))
        out, passes = width + queries + 2 * keys, max(draws, 1)
        entered, features = carray(entered_, (n, out)), carray(features_, (n, width))
        whole = start + n + passes - 1
        sums, room = carray(_floats_at(room), (ROWS,)), room + 4 * ROWS
        later, room = carray(_floats_at(room), (1, out)), room + 4 * out
        q, room = carray(_floats_at(room), (1, heads, dim)), room + 4 * queries
        attended_at, room = room, room + 4 * queries
        h_, room = carray(_floats_at(room), (width,)), room + 4 * width
        gate_up, room = carray(_floats_at(room), (2 * inter,)), room + 8 * inter
        gated, room = carray(_floats_at(room), (inter,)), room + 4 * inter
        scores_at, sees = room, carray(_bytes_at(room + 4 * tile * whole), (1, last))
        sees_first = carray(sees_, (n, last))
        for j in range(last):
            sees[0, j] = sees_first[n - 1, j]
        rope, positions = carray(rope_, (1 << 40, dim)), carray(positions_, (n,))
        guess, norm = carray(guess_, (width,)), carray(norm_, (width,))
        logits, drawn, odds = carray(logits_, (vocab,)), carray(drawn_, (1 + passes,)), f32(1)
        base = positions[n - 1]
        for done in range(passes):
            if done > 0:  # of the token that was drawn, beside the guess at its feature
                start, n, features, entered = start + n, 1, carray(guess_, (1, width)), later
                row = carray(table_, (vocab, out))[drawn[done]]
                for j in range(out):
                    entered[0, j] = row[j]
                for j in range(last):
                    sees[0, j] = 1
            end, stop, position = n - 1, start + n, min(base + done, final)
            for i in range(n):
                step = _quantise(features[i], short)
                _add_product(matrices[1], short, step, width, sums, entered[i, width + queries :])
                if i == end:  # what stands before the keys is wanted of the last token alone
                    _add_product(matrices[0], short, step, width, sums, entered[i, : width + queries])
            cache = carray(cache_, (stop, 2 * kv_heads, dim))
            for i in range(n):
                new = entered[i, width + queries :]
                if done == 0:
                    position = positions[i]
                for h in range(kv_heads):
                    _rotate(new[h * dim :], f32(1), rope, position, dim)
                    for d in range(dim):
                        cache[start + i, h, d] = new[h * dim + d]
                        cache[start + i, kv_heads + h, d] = new[keys + h * dim + d]
            for u in range(heads):
                for d in range(dim):
                    q[0, u, d] = entered[end, width + u * dim + d]
                _rotate(q[0, u], f32(1), rope, position, dim)
            scores, attended = carray(_floats_at(scores_at), (tile, stop)), _floats_at(attended_at)
            by_head = carray(attended, (1, heads, dim))
            _attend_span(q, cache, sees, f32(dim**-0.5), scores, by_head, kv_heads, tile, dim)
            _product(matrices[2], carray(attended, (queries,)), short, sums, guess)
            total = f32(0)
            for j in range(width):
                guess[j] += entered[end, j]
                total += guess[j] * guess[j]
            share = f32(1) / np.sqrt(total / f32(width) + eps)
            for j in range(width):
                h_[j] = guess[j] * share * norm[j]
            _product(matrices[3], h_, short, sums, gate_up)
            _gate_row(gate_up, f32(1), gated, inter)
            _add_product(matrices[4], short, _quantise(gated, short), inter, sums, guess)
            _product(matrices[5], guess, short, sums, logits)
            if draws > 0:
                q_here = carray(q_, (draws, vocab))[done]
                token, likely = _drawn(logits, heat, carray(dice_, (draws,))[done], q_here)
                if token < 0:
                    drawn[0] = -1
                    break
                drawn[0], drawn[1 + done], odds = 1 + done, token, odds * likely
                if odds < worth:
                    break

    return eagle


@loop(_FLOATS, _DOUBLE, _COUNTS, _COUNT)
def sample(weights_: Any, chance: Any, index_: Any, width: Any) -> None:
    carray(index_, (1,))[0] = _sample_index(carray(weights_, (width,)), chance)


@loop(_FLOATS, _FLOATS, _COUNT)
def nothing_of(values_: Any, nothing_: Any, count: Any) -> None:
    values, nothing = carray(values_, (count,)), f32(0)
    for j in range(count):
        nothing += values[j] * f32(0)  # NaN, of a NaN or an infinity
    carray(nothing_, (1,))[0] = nothing


@loop(_FLOATS, _FLOATS, _COUNT, _COUNT)
def nothing_of_rows(logits_: Any, nothing_: Any, n: Any, width: Any) -> None:
    logits, nothing = carray(logits_, (n, width)), f32(0)
    for i in range(n):
        nothing += _greatest(logits[i]) * f32(0)
    carray(nothing_, (1,))[0] = nothing


@loop(_COUNTS, _COUNT, _COUNT, _TOKENS, _WEIGHTS, _COUNT, _COUNT, _COUNT, _COUNT)
def draws_are_sound(
    numbers: Any,
    distributions: Any,
    children: Any,
    support: Any,
    weights: Any,
    tokens_size: Any,
    weights_size: Any,
    vocabulary: Any,
    most: Any,
) -> None:
    """numbers: the answer, [distributions] nodes, their sizes, [children] parents and tokens.

    tokens_size, weights_size: bytes of `support` and `weights`. The answer is set to 1 if all is sound.
    """
    nodes = 1
    sizes = nodes + distributions
    parents = sizes + distributions
    tokens = parents + children

    total = 0
    for place in range(distributions):
        size = numbers[sizes + place]
        if size < 1 or size > most:
            return
        total += size
        for earlier in range(place):
            if numbers[nodes + earlier] == numbers[nodes + place]:
                return
    if tokens_size != 4 * total or weights_size != 2 * total:
        return

    begin = 0
    for place in range(distributions):
        end = begin + numbers[sizes + place]
        least = 0
        for index in range(begin, end):
            token = types.int64(support[index])
            if token < least or token >= vocabulary or weights[index] == 0:
                return
            least = token + 1
        begin = end

    followed = 0  # nodes that have a child, each counted at its first
    for child in range(children):
        parent = numbers[parents + child]
        place = begin = 0
        while place < distributions and numbers[nodes + place] != parent:
            begin += numbers[sizes + place]
            place += 1
        if place == distributions:
            return
        end = begin + numbers[sizes + place]
        while begin < end and support[begin] < numbers[tokens + child]:
            begin += 1
        if begin == end or support[begin] != numbers[tokens + child]:
            return
        earlier = 0
        while numbers[parents + earlier] != parent:
            earlier += 1
        followed += earlier == child
    if followed == distributions:
        numbers[0] = 1
