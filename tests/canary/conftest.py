from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs the engine extra")
pytest.importorskip("aiohttp", reason="needs the serve extra")

sys.path.append(str(Path(__file__).parents[1] / "serve"))  # live.py

from faulty import Servers


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    """The shipped pair, without and with speculation."""
    started = Servers()
    yield started
    started.close()
