"""What was drawn, node by node: read and written as verification.proto says it lies, by nothing of ours."""

from __future__ import annotations

import struct
from itertools import accumulate, pairwise

from specops.edge.link import DrawDistributions

Nodes = dict[int, tuple[tuple[int, ...], tuple[int, ...]]]
"""By node, the tokens and the weights of its distribution."""


def parted(drawn: DrawDistributions) -> Nodes:
    count = sum(drawn.sizes)
    tokens = struct.unpack(f"<{count}I", drawn.tokens)
    weights = struct.unpack(f"<{count}H", drawn.weights)
    places = pairwise(accumulate(drawn.sizes, initial=0))
    return {
        node: (tokens[start:stop], weights[start:stop])
        for node, (start, stop) in zip(drawn.nodes, places, strict=True)
    }


def put_together(nodes: Nodes) -> DrawDistributions:
    tokens = [token for some, _ in nodes.values() for token in some]
    weights = [weight for _, some in nodes.values() for weight in some]
    return DrawDistributions(
        tuple(nodes),
        tuple(len(some) for some, _ in nodes.values()),
        struct.pack(f"<{len(tokens)}I", *tokens),
        struct.pack(f"<{len(weights)}H", *weights),
    )
