"""Whether what a tree was drawn from is sound, in one compiled call.

A round may bring thousands of numbers, and all are looked at in the one thread that serves every client:
of the CPU of a drawn round NumPy took a fifth. It says what is wrong (asked.py), where something is.
"""

from __future__ import annotations

from array import array

from specops.edge.proposal import Drawn
from specops.engine.compiling import load

_look = load("specops.edge.soundness_loop", "look")


def is_sound(
    drawn: Drawn, tokens: tuple[int, ...], parents: tuple[int, ...], vocabulary: int, most: int
) -> bool:
    """Whether there is one distribution for every node in `parents`, over 1 to `most` tokens that ascend and
    are below `vocabulary`, with weights of at least 1, and whether each of `tokens` is one of those that the
    node above it was drawn from."""
    distributions = len(drawn.nodes)
    if len(drawn.sizes) != distributions or distributions > len(tokens):
        return False  # the second bounds what is looked through: what a client sends may be long
    numbers = array("q", (0, *drawn.nodes, *drawn.sizes, *parents, *tokens))
    address, _ = numbers.buffer_info()
    sizes = len(drawn.tokens), len(drawn.weights)
    _look(address, distributions, len(tokens), drawn.tokens, drawn.weights, *sizes, vocabulary, most)
    return numbers[0] == 1
