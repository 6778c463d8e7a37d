from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from any_speed import any_speed_passes
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
def any_speed() -> Iterator[None]:
    """A busy machine changes no verdict of this test."""
    with any_speed_passes():
        yield
