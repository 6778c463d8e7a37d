from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path

import pytest
from stub import Stub, running_stub


@pytest.fixture
def stub() -> Iterator[Stub]:
    with running_stub() as server:
        yield server


@pytest.fixture
def other() -> Iterator[Stub]:
    """A second endpoint, to be compared with the first."""
    with running_stub() as server:
        yield server


@pytest.fixture
def prompts_file(tmp_path: Path) -> Path:
    """Twelve prompts in two classes, in the playbook's format."""
    path = tmp_path / "prompts.json"
    items = [
        {"id": f"p{i}", "class": "long" if i % 2 else "short", "text": f"Prompt {i}", "max_tokens": 16}
        for i in range(12)
    ]
    path.write_text(json.dumps(items))
    return path


@pytest.fixture
def any_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    """No speed is called a drift or a cache, and no client a bottleneck: for tests of other things, whose
    servers answer within a millisecond, so that a busy machine shows all of these."""
    monkeypatch.setattr("specops.load.validity.DRIFT", math.inf)
    monkeypatch.setattr("specops.load.validity.CACHED", math.inf)
    monkeypatch.setattr("specops.load.record.client_bound", lambda _: None)
