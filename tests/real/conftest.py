"""A real server of the tiny pair, and rollouts that measure it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from walking import CANARY, MEASURE, PROMPTS, walk

from specops.config import EmbeddedPool
from specops.launch import embedded
from specops.launch.process import Server, running
from specops.phases.playbook import Walk
from specops.progress import Silent

Write = Callable[..., Path]


@pytest.fixture(scope="session")
def server(tiny_pair: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One speculating server for the tests that need no pool of their own."""
    target, draft = tiny_pair
    pool = EmbeddedPool.model_validate(
        {"engine": "embedded", "target": target, "threads": 1, "speculation": {"draft": draft}}
    )
    log = tmp_path_factory.mktemp("server") / "log"
    with running(
        "test", embedded.command(pool, "tiny"), address=embedded.ANNOUNCED, log=log, progress=Silent()
    ) as up:
        yield up


@pytest.fixture
def written(tmp_path: Path, server: Server) -> Write:
    """Writes a rollout file, by default of two pools that are both the running server."""
    return lambda prompts=PROMPTS, **changes: _write(tmp_path, server, prompts, **changes)


@pytest.fixture(scope="session")
def measured(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Walk:
    """A whole walk of the file that `written` writes; its files are nobody's to change."""
    return walk(_write(tmp_path_factory.mktemp("measured"), server, PROMPTS))[0]


@pytest.fixture
def walked(written: Write, measured: Walk) -> Path:
    """The rollout file, with a run folder beside it in which all has been measured."""
    path = written()
    shutil.copytree(measured.steps[0].path.parent, path.parent / "run")
    return path


def _write(folder: Path, server: Server, prompts: object, **changes: object) -> Path:
    endpoint = {"engine": "endpoint", "base_url": server.base_url, "model": server.model}
    rollout = {
        "rollout": "tiny",
        "prompts": "prompts.json",
        "pools": {"standard": endpoint, "speculative": endpoint},
        "measure": MEASURE,
        "canary": CANARY,
    }
    (folder / "prompts.json").write_text(json.dumps(prompts))
    (folder / "rollout.yaml").write_text(yaml.safe_dump(rollout | changes))
    return folder / "rollout.yaml"
