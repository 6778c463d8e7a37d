"""Three servers that tests share, and the fork server that they and all other servers start from."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from forked import fork_server
from real_vllm import ENVIRONMENT, PAIR, PREFIX_BLOCK, PYTHON, VENV, command, speculating

from specops.launch.servers import serving
from specops.progress import SilentProgress
from specops.serving.command import CommandPool


@pytest.fixture(scope="session")
def vllm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The venv is there, and with it a process that has imported vLLM, from which test servers are forked.

    Without the venv these tests are skipped, except in CI, where that is a failure.
    """
    if not (VENV / ".vllm").exists():
        reason = "there is no .venv-vllm: make vllm-venv"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    log = tmp_path_factory.mktemp("fork-server") / "log"
    with (
        fork_server(Path(PYTHON), Path(__file__).with_name("preloaded.py"), ENVIRONMENT, log) as variables,
        pytest.MonkeyPatch.context() as patch,
    ):
        for name, value in variables.items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="session")
def standard(vllm: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The base URL of a server that does not speculate."""
    with _up("standard", command(), tmp_path_factory.mktemp("logs")) as base_url:
        yield base_url


@pytest.fixture(scope="session")
def ngram(vllm: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The base URL of a server of the same model that drafts by n-grams of the prompt."""
    with _up("ngram", speculating("ngram"), tmp_path_factory.mktemp("logs")) as base_url:
        yield base_url


@pytest.fixture(scope="session")
def draft_model(vllm: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The base URL of a server of the same model that drafts with a smaller one."""
    with _up("draft_model", speculating("draft_model"), tmp_path_factory.mktemp("logs")) as base_url:
        yield base_url


@pytest.fixture(scope="session")
def reporting(vllm: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The base URL of a server whose answers report their drafts."""
    words = f"{speculating('draft_model')} --per-request-spec-decode-metrics summary"
    with _up("reporting", words, tmp_path_factory.mktemp("logs")) as base_url:
        yield base_url


@pytest.fixture
def prefix_caches(vllm: None, tmp_path: Path) -> Iterator[dict[str, str]]:
    """The base URLs of a server without a prefix cache (plain) and of one with it (cached)."""
    # On a CPU the default is 128 tokens, more than a first turn has.
    words = command("--enable-prompt-tokens-details", "--block-size", str(PREFIX_BLOCK))
    with (
        _up("plain", f"{words} --no-enable-prefix-caching", tmp_path) as plain,
        _up("cached", f"{words} --enable-prefix-caching", tmp_path) as cached,
    ):
        yield {"plain": plain, "cached": cached}


@pytest.fixture(params=["ngram", "draft_model"])
def speculative(request: pytest.FixtureRequest) -> str:
    """The base URL of each of the two, one after the other."""
    base_url: str = request.getfixturevalue(request.param)
    return base_url


@contextmanager
def _up(name: str, words: str, logs: Path) -> Iterator[str]:
    pool = CommandPool(engine="command", command=words)
    with serving(pool, name, model="", log=logs / f"{name}.log", progress=SilentProgress()) as server:
        yield server.base_url


@pytest.fixture(scope="session")
def prompts() -> list[dict[str, Any]]:
    """Four of each class of the shipped set."""
    shipped = json.loads((PAIR / "prompts.json").read_text(encoding="utf-8"))
    classes = sorted({prompt["class"] for prompt in shipped})
    chosen = [[prompt for prompt in shipped if prompt["class"] == name][:4] for name in classes]
    return [prompt for prompts in chosen for prompt in prompts]


@pytest.fixture
def prompts_file(prompts: list[dict[str, Any]], tmp_path: Path) -> Path:
    path = tmp_path / "prompts.json"
    path.write_text(json.dumps(prompts), encoding="utf-8")
    return path
