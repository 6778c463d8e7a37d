"""A program of test_device.py's: the engine with attention by the Triton kernel, in Triton's interpreter.

    TRITON_INTERPRET=1 kernel_arm.py TARGET DRAFT PROMPTS   (a JSON list of token ids)

Prints what each arm wrote for each tree, as JSON. A process of its own, since Triton decides when it is
imported whether it interprets.
"""

from __future__ import annotations

import json
import sys
import warnings

import torch
from tiny_models import drain, tokens_of

from specops.engine import Sampling, load_engine

TREES = ("expand:3,2", "dynamic:5:3")
COUNT = 3


def main() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", DeprecationWarning)  # the interpreter's, with NumPy 2.4
    target, draft, prompts = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    written = {}
    for tree in TREES:
        for attention in ("reference", "kernel"):
            engine = load_engine(target, draft, tree=tree, attention=attention, max_batch=2, prefill_chunk=9)
            requests = [(prompt, Sampling(max_tokens=COUNT)) for prompt in prompts]
            written[f"{tree} {attention}"] = [tokens_of(emissions) for emissions in drain(engine, requests)]
    print(json.dumps(written))


if __name__ == "__main__":
    main()
