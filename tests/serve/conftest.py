from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the engine extra")
pytest.importorskip("aiohttp", reason="needs the serve extra")

from live import Live
from scripted import ScriptedEngine


@pytest.fixture(scope="session")
def tiny(tiny_pair: tuple[Path, Path]) -> Iterator[Live]:
    """The tiny random model behind a real server: its own draft, so that a step yields several tokens."""
    from specops.engine import load_engine

    target, _ = tiny_pair
    live = Live(load_engine(target, target, tree="chain:3", max_batch=4, max_length=256, threads=1))
    yield live
    live.close()


@pytest.fixture
def serve_scripted(tiny_pair: tuple[Path, Path]) -> Iterator[Callable[..., Live]]:
    """Starts servers over a ScriptedEngine; `max_batch` goes to the engine, the rest to the settings."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny_pair[0])
    started: list[Live] = []

    def start(max_batch: int = 2, **settings: Any) -> Live:
        started.append(Live(ScriptedEngine(tokenizer, max_batch), **settings))
        return started[-1]

    yield start
    for live in started:
        live.engine.release()
        live.close()
