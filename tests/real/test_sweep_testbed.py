"""What a worker of Ray does on its node, here without Ray: whether it can serve, and one errand."""

from __future__ import annotations

import pickle
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from ray_cluster import processes_of, wait_for_the_end_of

from specops import __version__
from specops.errors import EnvironmentFailure
from specops.load.settings import BaselineSettings
from specops.load.workload import Prompt
from specops.phases.sweep.plan import ANY_LENGTH, FailedJob, Job, Load, PlannedCell, SweptCell
from specops.phases.sweep.ray_executor import ServerRun
from specops.phases.sweep.ray_testbed import NodeRequirements, Task, Testbed
from specops.serving import Setting
from specops.serving.command import CommandPool

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")

NEEDS = NodeRequirements(__version__, str(Path.cwd()))
STUB = Path(__file__).parents[1] / "load" / "stub.py"
PROMPTS = [Prompt(f"p{number}", "all", f"Prompt {number}", 8) for number in range(50)]


def task(command: str, prompts: int = 2) -> bytes:
    pool = CommandPool(engine="command", command=command)
    cell = PlannedCell(Load(1, 0.0, ANY_LENGTH), 0, tuple(prompt.id for prompt in PROMPTS[:prompts]))
    asked = BaselineSettings(base_url="http://127.0.0.1:9/v1", model="stub", warmup=0)
    errand = ServerRun(Job(0, Setting("k=1", pool, 1), (cell,)))
    return pickle.dumps(Task(errand, "a", asked, PROMPTS[:prompts]))


def records(testbed: Testbed, what: bytes) -> list[object]:
    """All that an errand says, but for its end, which must be a good one."""
    found = []
    said = testbed.begin(what)
    while said[0] == "record":
        found.append(pickle.loads(said[1]))
        said = testbed.next()
    assert said == ("over", "")
    return found


def test_an_errand_is_measured_and_its_server_stopped(tmp_path) -> None:
    testbed = Testbed(NEEDS)
    assert testbed.introduce()[1] is None
    first, counted = records(testbed, task(f"{sys.executable} {STUB} {{port}} 0 {tmp_path}"))
    assert isinstance(first, SweptCell)
    assert isinstance(counted, SweptCell)
    assert (counted.machine, counted.cell.complete, len(counted.cell.rows)) == ("a", True, 2)
    assert processes_of(str(tmp_path)) == []


@pytest.mark.slow
def test_a_server_that_does_not_come_up_is_a_failed_job_with_its_last_words() -> None:
    words = f"{sys.executable} -c 'import sys; sys.exit(\"no such model\")' {{port}}"
    (failed,) = records(Testbed(NEEDS), task(words))
    assert isinstance(failed, FailedJob)
    assert "no such model" in failed.log


def test_what_cannot_be_begun_comes_back_as_the_error_that_it_is() -> None:
    (error,) = records(Testbed(NEEDS), task("no-such-program {port}"))
    assert isinstance(error, EnvironmentFailure)
    assert error.hint


@pytest.mark.slow
def test_a_process_that_dies_says_of_what() -> None:
    kind, why = Testbed(NEEDS).begin(b"no pickle")
    assert kind == "died"
    assert "UnpicklingError" in str(why)


def test_an_errand_that_is_ended_stops_its_server(tmp_path) -> None:
    testbed = Testbed(NEEDS)
    said: list[object] = []
    words = f"{sys.executable} {STUB} {{port}} 0.2 {tmp_path}"
    waiting = threading.Thread(target=lambda: said.append(testbed.begin(task(words, prompts=50))))
    waiting.start()
    while not processes_of(str(tmp_path)):
        assert waiting.is_alive()
    testbed.end()
    assert processes_of(str(tmp_path)) == []
    waiting.join(30)
    assert said


def test_nothing_is_left_of_an_errand_whose_worker_is_gone(tmp_path) -> None:
    testbed = Testbed(NEEDS)
    words = f"{sys.executable} {STUB} {{port}} 0.2 {tmp_path}"
    waiting = threading.Thread(target=lambda: testbed.begin(task(words, prompts=50)))
    waiting.start()
    while not processes_of(str(tmp_path)):
        assert waiting.is_alive()
    assert testbed._process is not None
    testbed._process.kill()  # as Ray does with a worker's children when it ends
    wait_for_the_end_of(str(tmp_path))
    waiting.join(30)


@pytest.mark.parametrize(
    ("lacking", "told"),
    [
        (replace(NEEDS, specops="0.0.0"), f"has specops {__version__}, and this machine has 0.0.0"),
        (replace(NEEDS, paths=["playbooks", "no/such/model"]), "has no no/such/model"),
        (replace(NEEDS, programs=["sh", "no-such-program"]), "has no program no-such-program"),
        (replace(NEEDS, folder="/no/such/folder", paths=["model"]), "has no model"),
    ],
)
def test_what_a_node_lacks_is_said_in_words(lacking: NodeRequirements, told: str) -> None:
    assert Testbed(lacking).introduce()[1] == told
