"""The embedded engine: tree speculation, lossless, on any decoder-only pair that transformers loads.

from specops.engine import Sampling, load_engine

engine = load_engine("playbooks/embedded/target", "playbooks/embedded/draft", tree="chain:3")
for emission in engine.stream("def main(", Sampling(max_tokens=64)):
    print(emission.text, end="")

Names are imported when they are first used: a process that only talks to an engine does without torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specops.engine.load import load_engine
    from specops.engine.request import Completion, Counters, Emission, FinishReason, Sampling, TokenLogprob
    from specops.engine.step import Engine

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

_MODULES = {"load_engine": "load", "Engine": "step", "Completion": "streaming"}
"""Module of each name above; names that are not listed here are in request.py."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES.get(name, 'request')}"), name)
