"""The embedded engine: tree speculation, lossless, on any decoder-only pair that transformers loads.

from specops.engine import Sampling, load_engine

engine = load_engine("playbooks/embedded/target", "playbooks/embedded/draft", tree="chain:3")
for emission in engine.stream("def main(", Sampling(max_tokens=64)):
    print(emission.text, end="")
"""

from specops.engine.load import load_engine
from specops.engine.request import Counters, Emission, FinishReason, Sampling, TokenLogprob
from specops.engine.step import Engine
from specops.engine.streaming import Completion

__all__ = [
    "Completion",
    "Counters",
    "Emission",
    "Engine",
    "FinishReason",
    "Sampling",
    "TokenLogprob",
    "load_engine",
]
