"""A real server of the tiny pair, and rollouts that measure it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from any_speed import any_speed_passes
from walking import CANARY, MEASURE, PROMPTS, walk

from specops.launch.servers import LoggedAddress, Server, running
from specops.phases.playbook import Walk
from specops.progress import SilentProgress
from specops.serving.embedded import ANNOUNCED, EmbeddedPool

Write = Callable[..., Path]


@pytest.fixture(scope="session", autouse=True)
def _forked(forked_servers: None) -> None:
    """Here the claims are about what servers do, and what specops does with them."""


@pytest.fixture(scope="session")
def server(tiny_pair: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One speculating server for the tests that need no pool of their own."""
    _, draft = tiny_pair
    yield from _up(tiny_pair, tmp_path_factory, {"speculation": {"draft": draft}})


@pytest.fixture(scope="session")
def standard(tiny_pair: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The same without speculation."""
    yield from _up(tiny_pair, tmp_path_factory, {})


def _up(
    tiny_pair: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory, settings: dict[str, object]
) -> Iterator[Server]:
    pool = EmbeddedPool.model_validate(
        {"engine": "embedded", "target": tiny_pair[0], "threads": 1} | settings
    )
    log = tmp_path_factory.mktemp("server") / "log"
    with running(
        "test",
        pool.start(0, "tiny").words,
        address=LoggedAddress(ANNOUNCED),
        log=log,
        progress=SilentProgress(),
    ) as up:
        yield up


@pytest.fixture
def written(tmp_path: Path, standard: Server, server: Server) -> Write:
    """Writes a rollout file, by default of the two running servers."""
    return lambda prompts=PROMPTS, **changes: _write(tmp_path, standard, server, prompts, **changes)


@pytest.fixture(scope="session")
def measured(standard: Server, server: Server, tmp_path_factory: pytest.TempPathFactory) -> Walk:
    """A whole walk of the file that `written` writes; its files are nobody's to change."""
    with any_speed_passes():  # an undecided baseline is measured again
        # The comparison says no: a random draft is slower than none.
        done, _ = walk(_write(tmp_path_factory.mktemp("measured"), standard, server, PROMPTS), go_on=True)
    assert done.steps[0].result.verdict == "yes", done.steps[0].result.reason
    return done


@pytest.fixture
def walked(written: Write, measured: Walk) -> Path:
    """The rollout file, with a run folder beside it in which all has been measured."""
    path = written()
    shutil.copytree(measured.steps[0].path.parent, path.parent / "run")
    return path


def _write(folder: Path, standard: Server, server: Server, prompts: object, **changes: object) -> Path:
    pools = {
        name: {"engine": "endpoint", "base_url": up.base_url, "model": up.model}
        for name, up in (("standard", standard), ("speculative", server))
    }
    rollout = {
        "rollout": "tiny",
        "prompts": "prompts.json",
        "pools": pools,
        "measure": MEASURE,
        "ab": {"requests": 40, "min_duration_s": 0.0},  # how little is enough for what is stored and told
        "canary": CANARY,
    }
    (folder / "prompts.json").write_text(json.dumps(prompts))
    (folder / "rollout.yaml").write_text(yaml.safe_dump(rollout | changes))
    return folder / "rollout.yaml"
