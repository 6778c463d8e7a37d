"""A sweep on a real Ray: several nodes of a cluster, one of which dies, and a Ray that is started for it."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml
from ray_cluster import SETTINGS, Cluster, processes_of, running_cluster, wait_for_the_end_of
from walking import walk

from specops.assets import asset
from specops.errors import EnvironmentFailure, UsageError
from specops.load.settings import BaselineSettings
from specops.load.workload import Prompt
from specops.phases.sweep.plan import (
    ANY_LENGTH,
    STANDARD,
    FailedJob,
    Job,
    Load,
    PlannedCell,
    Rung,
    SweptCell,
    measurements_of,
)
from specops.phases.sweep.ray_executor import RayExecutor
from specops.progress import SilentProgress
from specops.serving import Setting
from specops.serving.command import CommandPool
from specops.serving.endpoint import EndpointPool

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc"),
    pytest.mark.filterwarnings("ignore::ResourceWarning:ray"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),  # sockets of Ray's own
]
if find_spec("ray") is None and not os.environ.get("CI"):  # not importorskip: Ray reads settings at import
    pytest.skip("needs the ray extra", allow_module_level=True)

STUB = Path(__file__).parents[1] / "load" / "stub.py"
ASKED = BaselineSettings(base_url="http://127.0.0.1:9/v1", model="stub", warmup=0)
PROMPTS = [Prompt(f"p{number}", "all", f"Prompt {number}", 8) for number in range(60)]
GAP_S = 0.1
"""Between the four chunks of an answer."""


class Notes(SilentProgress):
    def __init__(self) -> None:
        self.told: list[str] = []
        self.done = 0

    def advance(self, done: int = 1) -> None:
        self.done += done

    def note(self, text: str) -> None:
        self.told.append(text)


def setting(name: str, mark: Path, program: str = sys.executable) -> Setting:
    """Its server has `mark` among its words, so that it is known from others."""
    command = f"{program} {STUB} {{port}} {GAP_S} {mark}"
    return Setting(name, CommandPool(engine="command", command=command), 0)


def rung_of(settings: Sequence[Setting], prompts: tuple[int, int] = (3, 3)) -> Rung:
    """Of two cells each, with so many prompts."""
    cells = tuple(
        PlannedCell(Load(streams, 0.0, ANY_LENGTH), 0, tuple(prompt.id for prompt in PROMPTS[:count]))
        for streams, count in zip((1, 2), prompts, strict=True)
    )
    standard, *others = [Job(0, setting, cells) for setting in settings]
    return Rung(standard, tuple(others))


def sweep_of(mark: Path, jobs: int) -> list[Setting]:
    return [setting(name, mark) for name in (STANDARD, *(f"k={number}" for number in range(jobs)))]


def whole(kept: list[SweptCell | FailedJob]) -> list[SweptCell]:
    """The last record of each cell, which has the server's counters, in the order of measuring."""
    cells = [record for record in kept if isinstance(record, SweptCell) and record.cell.complete]
    return list({(c.setting, c.turn, c.machine, c.cell.concurrency): c for c in cells}.values())


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with pytest.MonkeyPatch.context() as environment, running_cluster(["a", "b", "c"]) as running:
        for name, value in SETTINGS.items():
            environment.setenv(name, value)
        yield running


def rollout_of_this_machine(folder: Path, address: str) -> Path:
    """playbooks/ray-sweep.yaml as it ships, with a stub for vLLM, two loads and no budget."""
    file: dict[str, Any] = yaml.safe_load(asset("playbooks", "ray-sweep.yaml").read_text())
    for name, mark in (("standard", "0"), ("speculative", "{k}")):
        command = f"{sys.executable} {STUB} {{port}} 0.001 {mark}"
        file["pools"][name] = {"engine": "command", "command": command}
    file["measure"] |= {"endpoint": "completions", "repeats": 1, "warmup": 0}
    file["sweep"] |= {"cluster": address, "k": [2, 3], "concurrency": [1, 2], "temperature": [0.0]}
    del file["sweep"]["budget_min"]
    file["ab"] = {"requests": 16}
    prompts = [{"id": f"p{n}", "class": "all", "text": f"say {n}", "max_tokens": 8} for n in range(4)]
    (folder / "prompts.json").write_text(json.dumps(prompts))
    (folder / "rollout.yaml").write_text(yaml.safe_dump(file | {"prompts": "prompts.json"}))
    return folder / "rollout.yaml"


def test_a_walk_sweeps_on_the_cluster_that_its_rollout_file_names(cluster, tmp_path) -> None:
    path = rollout_of_this_machine(tmp_path, cluster.client)
    done, _ = walk(path, only="sweep")
    (step,) = done.steps
    kept = measurements_of(step.result, str(step.path))
    assert kept.failed == []
    assert {cell.setting for cell in kept.cells} == {STANDARD, "k=2", "k=3"}
    assert {cell.machine.split()[-1] for cell in kept.cells} <= {"a", "b", "c"}
    again, notes = walk(path, only="sweep")
    assert [step.reused for step in again.steps] == [True]
    assert notes.said("sweep: reused")


@pytest.mark.slow  # a walk sweeps on a cluster in any case
def test_what_a_lost_node_did_not_measure_is_measured_by_another(cluster, tmp_path) -> None:
    settings, notes, kept = sweep_of(tmp_path, jobs=4), Notes(), []
    dead: list[str] = []

    def keep(record: SweptCell | FailedJob) -> None:
        """The first node, but for the head, that measured a cell of a job does not measure another."""
        kept.append(record)
        if not dead and record.setting != STANDARD and not record.machine.endswith(" a"):
            dead.append(record.machine)
            cluster.kill(record.machine.split()[-1])

    with RayExecutor(cluster.client, settings, ASKED, PROMPTS, notes) as machines:
        machines.run(rung_of(settings, (3, 12)), keep)
    assert dead, "only the head measured"
    wait_for_the_end_of(str(tmp_path))
    cells = whole(kept)
    jobs = [cell for cell in cells if cell.setting != STANDARD]
    times = Counter((cell.setting, cell.cell.concurrency) for cell in jobs)
    assert times == {(f"k={number}", streams): 1 for number in range(4) for streams in (1, 2)}
    assert notes.done == len(jobs)
    (lost,) = [cell.setting for cell in jobs if cell.machine == dead[0]]
    assert len({cell.machine for cell in jobs if cell.setting == lost}) == 2
    for machine in {cell.machine for cell in jobs}:
        own = [(cell.setting, cell.turn) for cell in cells if cell.machine == machine]
        assert own[:2] == [(STANDARD, 0)] * 2
        assert machine in dead or own[-2:] == [(STANDARD, 1)] * 2
    (failure,) = [record for record in kept if isinstance(record, FailedJob)]
    assert (failure.setting, failure.turn, failure.machine) == (STANDARD, 1, dead[0])
    assert f"{dead[0]} was lost on the way: Ray does not reach it any more" in notes.told


@pytest.mark.slow  # a walk sweeps on a cluster in any case
def test_ctrl_c_stops_the_servers_and_keeps_what_was_measured(cluster, tmp_path) -> None:
    settings, kept = sweep_of(tmp_path, jobs=1), []

    def keep(record: SweptCell | FailedJob) -> None:
        kept.append(record)
        if len(kept) == 2:  # with its counters; the next cell takes three times as long as this waits
            threading.Timer(3.0, os.kill, (os.getpid(), signal.SIGINT)).start()

    with (
        pytest.raises(KeyboardInterrupt),
        RayExecutor(cluster.client, settings, ASKED, PROMPTS, Notes()) as machines,
    ):
        machines.run(rung_of(settings, (3, 60)), keep)
    assert processes_of(str(tmp_path)) == []
    assert kept[0].cell.complete
    assert not kept[-1].cell.complete, "the rows of the cell that was cut short"


def test_nodes_that_cannot_serve_are_told_with_the_reason(cluster, tmp_path) -> None:
    settings, notes = [setting(STANDARD, tmp_path, "no-such-program"), setting("k=0", tmp_path)], Notes()
    ray = RayExecutor(cluster.gcs, settings, ASKED, PROMPTS, notes)
    with pytest.raises(EnvironmentFailure, match="has no program no-such-program") as caught, ray as machines:
        machines.run(rung_of(settings), lambda record: None)
    assert "no machine of the Ray cluster can go on" in caught.value.message
    assert caught.value.hint
    assert [told for told in notes.told if "left out: it has no program no-such-program" in told]


OF_ITS_OWN = {"RAY_raylet_start_wait_time_s": SETTINGS["RAY_raylet_start_wait_time_s"]}
KILLED = """
import pickle, sys
from specops.phases.sweep.ray_executor import RayExecutor
from specops.progress import SilentProgress
settings, asked, prompts, rung = pickle.load(sys.stdin.buffer)
with RayExecutor("local", settings, asked, prompts, SilentProgress()) as machines:
    machines.run(rung, lambda record: print(record.setting, record.cell.complete, flush=True))
"""


@pytest.mark.slow
def test_a_ray_that_specops_started_does_not_outlive_it(tmp_path) -> None:
    settings = sweep_of(tmp_path, jobs=1)
    folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")  # sockets' paths must be short
    home = tmp_path / "home"
    try:
        with subprocess.Popen(
            [sys.executable, "-c", KILLED],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | OF_ITS_OWN | {"RAY_TMPDIR": folder, "HOME": str(home)},
        ) as specops:
            assert specops.stdin is not None
            assert specops.stdout is not None
            pickle.dump((settings, ASKED, PROMPTS, rung_of(settings)), specops.stdin)
            specops.stdin.close()
            assert specops.stdout.readline() == b"standard True\n", "nothing else may be on standard output"
            assert processes_of(folder)
            assert processes_of(str(tmp_path))
            specops.kill()
        wait_for_the_end_of(folder)
        wait_for_the_end_of(str(tmp_path))
        assert not (home / ".ray").exists(), "Ray left a token in the user's home"
    finally:
        shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("address", "error", "told"),
    [
        ("somewhere", UsageError, "invalid address of Ray"),
        ("ray://127.0.0.1:9", EnvironmentFailure, "could not reach Ray at ray://127.0.0.1:9"),
    ],
)
def test_an_address_where_no_ray_is(tmp_path, address, error, told) -> None:
    ray = RayExecutor(address, sweep_of(tmp_path, jobs=1), ASKED, PROMPTS, Notes())
    with pytest.raises(error, match=told) as caught, ray:
        pass
    assert caught.value.hint


def test_endpoints_that_run_already_are_not_started_on_ray() -> None:
    endpoint = EndpointPool(engine="endpoint", base_url="http://127.0.0.1:9/v1", model="stub")
    with pytest.raises(UsageError, match="runs already") as caught:
        RayExecutor("local", [Setting(STANDARD, endpoint, 0)], ASKED, PROMPTS, Notes())
    assert "--on" not in str(caught.value.hint)


def test_without_ray_it_says_what_to_install(tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(EnvironmentFailure, match="Ray is not installed") as caught:
        RayExecutor("local", sweep_of(tmp_path, jobs=1), ASKED, PROMPTS, Notes()).__enter__()
    assert caught.value.hint is not None
    assert "[ray]" in caught.value.hint
