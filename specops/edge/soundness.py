"""Whether what a tree was drawn from is sound, in one compiled call.

A round may bring thousands of numbers, and all are looked at in the one thread that serves every client:
of the CPU of a drawn round NumPy took a fifth. It says what is wrong (asked.py), where something is.
"""

from __future__ import annotations

from array import array
from typing import Any

from numba import types

from specops.edge.proposal import Drawn
from specops.engine.compiling import compiled

_COUNTS, _COUNT = types.CPointer(types.int64), types.int64
_TOKENS, _WEIGHTS = types.CPointer(types.uint32), types.CPointer(types.uint16)


def is_sound(drawn: Drawn, tokens: tuple[int, ...], parents: tuple[int, ...], vocabulary: int) -> bool:
    """Whether the tokens of each distribution ascend and are below `vocabulary`, its weights are at least 1,
    and each of `tokens` is one of those that the node above it, in `parents`, was drawn from.

    As many tokens and weights as the sizes say, and a distribution for every parent, there must be.
    """
    numbers = array("q", (0, *drawn.nodes, *drawn.sizes, *parents, *tokens))
    address, _ = numbers.buffer_info()
    _look(address, len(drawn.nodes), len(tokens), drawn.tokens, drawn.weights, vocabulary)
    return numbers[0] == 1


@compiled(_COUNTS, _COUNT, _COUNT, _TOKENS, _WEIGHTS, _COUNT)
def _look(
    numbers: Any, distributions: Any, children: Any, support: Any, weights: Any, vocabulary: Any
) -> None:
    """numbers: room for the answer, [distributions] nodes and sizes, [children] parents and tokens."""
    nodes = 1
    sizes = nodes + distributions
    parents = sizes + distributions
    tokens = parents + children
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
    for child in range(children):
        begin = place = 0
        while numbers[nodes + place] != numbers[parents + child]:
            begin += numbers[sizes + place]
            place += 1
        end = begin + numbers[sizes + place]
        while begin < end and support[begin] < numbers[tokens + child]:
            begin += 1
        if begin == end or support[begin] != numbers[tokens + child]:
            return
    numbers[0] = 1
