"""The shipped pair as GGUF files, and pools of llama.cpp's server out of the package xllamacpp."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from specops.assets import asset
from specops.launch.servers import Server, serving
from specops.progress import SilentProgress
from specops.serving import pool_of

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
import to_gguf

Serve = Callable[[Mapping[str, Any]], AbstractContextManager[Server]]


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """target and draft, float32: what they answer is compared with the embedded engine's float32."""
    folder = tmp_path_factory.mktemp("gguf")
    for role in ("target", "draft"):
        to_gguf.convert(asset("playbooks", "embedded", role), folder / f"{role}.gguf", "f32")
    return {role: folder / f"{role}.gguf" for role in ("target", "draft")}


@pytest.fixture(scope="session")
def standard(pair: dict[str, Path]) -> dict[str, Any]:
    """The settings of a pool that does not speculate."""
    return {
        "engine": "llamacpp",
        "program": "xllamacpp",
        "model": str(pair["target"]),
        "alias": "shipped",
        "parallel": 4,
        "ctx_size": 4 * 512,
        "threads": 1,
        "cache_prompt": False,
    }


@pytest.fixture(scope="session")
def drafting(pair: dict[str, Path]) -> dict[str, Any]:
    return {"type": "draft-simple", "model": str(pair["draft"]), "n_max": 3}


@pytest.fixture
def serve(tmp_path: Path) -> Serve:
    @contextmanager
    def up(settings: Mapping[str, Any]) -> Iterator[Server]:
        log = tmp_path / f"server-{len(list(tmp_path.iterdir()))}.log"
        with serving(pool_of(settings), "tested", model="", log=log, progress=SilentProgress()) as server:
            yield server

    return up
