"""The loop of soundness.py, imported only to compile it (engine/compiling.py)."""

from __future__ import annotations

from typing import Any

from numba import types

from specops.engine.compiling import loop

_COUNTS, _COUNT = types.CPointer(types.int64), types.int64
_TOKENS, _WEIGHTS = types.CPointer(types.uint32), types.CPointer(types.uint16)


@loop(_COUNTS, _COUNT, _COUNT, _TOKENS, _WEIGHTS, _COUNT, _COUNT, _COUNT, _COUNT)
def look(
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
    """numbers: room for the answer, [distributions] nodes and sizes, [children] parents and tokens. What
    `support` and `weights` take is in bytes."""
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
        for other in range(place):
            if numbers[nodes + other] == numbers[nodes + place]:
                return
    if tokens_size != 4 * total or weights_size != 2 * total:
        return

    begin = 0
    for place in range(distributions):
        end = begin + numbers[sizes + place]
        least = 0
        for at in range(begin, end):
            token = types.int64(support[at])
            if token < least or token >= vocabulary or weights[at] == 0:
                return
            least = token + 1
        begin = end

    followed = 0  # nodes: each by its first child
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
