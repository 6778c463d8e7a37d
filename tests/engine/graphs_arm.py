"""A program of test_graphs.py's: passes by graphs' stand-in and the kernel, in Triton's interpreter.

    TRITON_INTERPRET=1 graphs_arm.py TARGET

Prints how many passes were replayed, and how far their logits were at most from the model's own, as JSON.
"""

from __future__ import annotations

import json
import random
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from recorder import Recorder, recorded
from tiny_models import VOCABULARY
from torch import Tensor

from specops.engine.attention import Layout, Span, causal
from specops.engine.models import load_model
from specops.engine.models.graphs import Graphed
from specops.engine.tree import Topology


def grow(model: Any, passes: int, sizes: tuple[int, ...] = (2, 3, 4)) -> tuple[list[Tensor], Tensor]:
    """Trees of many shapes, three of four rows at a time: each pass's logits, and what the cache holds."""
    generator = random.Random(0)
    cache = model.shape.cache(4, 10 + passes)
    logits, read = [], [1, 4, 6, 9]
    tokens = [generator.randrange(VOCABULARY) for _ in range(max(read))]
    for row, length in enumerate(read):
        span = Span(row, 0, length, torch.arange(length), causal(length))
        model.forward(torch.tensor(tokens[:length]), Layout([span], cache, model.shape.tile))
    for _ in range(passes):
        spans = []
        for row in sorted(generator.sample(range(4), 3)):
            size = generator.choice(sizes)
            tree = Topology.from_parents((-1, *(generator.randrange(node) for node in range(1, size))))
            spans.append(Span(row, read[row], size, read[row] + tree.depths, tree.mask))
            read[row] += 1  # the root alone was right
        fed = [generator.randrange(VOCABULARY) for span in spans for _ in range(span.count)]
        logits.append(model.forward(torch.tensor(fed), Layout(spans, cache, model.shape.tile)))
    return logits, cache.data


def main() -> None:
    from specops_kernels import tree_attention

    torch.set_num_threads(1)
    warnings.simplefilter("ignore", DeprecationWarning)  # the interpreter's, with NumPy 2.4
    tree_attention.tree_attention = recorded(tree_attention.tree_attention)
    model = load_model(Path(sys.argv[1]), kernel=True)
    graphed = Graphed(model, Recorder())
    found, own = (grow(one, passes=5, sizes=(3,))[0] for one in (graphed, model))  # 9 tokens: padding
    apart = max(float((one - other).abs().max()) for one, other in zip(found, own, strict=True))
    print(json.dumps({"replays": graphed.replays, "apart": apart}))


if __name__ == "__main__":
    main()
