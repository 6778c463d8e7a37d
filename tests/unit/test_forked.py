"""tests/forked.py: a program that is forked behaves as one that is not, and nothing is left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import forked
import pytest
from daemons import wait_until

PYTHON = Path(sys.executable)
FORKED = (sys.executable, forked.__file__)
UNFORKED = (sys.executable,)
SAYS = """
import json, os, sys
print(json.dumps([sys.argv[1:], os.environ["COLOUR"], os.getcwd(), sys.stdin.read(), __name__, sys.path[0]]))
print("to stderr", file=sys.stderr)
sys.exit(int(sys.argv[1]))
"""
WAITS = """
import os, signal, subprocess, sys, time
left = subprocess.Popen(["sleep", "60"])
def stop(number, frame):
    print(f"signal {number}", flush=True)
    sys.exit(3)
signal.signal(signal.SIGTERM, stop)
print(os.getpid(), left.pid, flush=True)
time.sleep(60)
"""


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A fork server that has imported `decimal`."""
    monkeypatch.delenv(forked.OFF, raising=False)
    (tmp_path / "imports.py").write_text("import decimal")
    with forked.fork_server(PYTHON, tmp_path / "imports.py", {"GIVEN": "1"}, tmp_path / "log") as variables:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        yield


def script(folder: Path, text: str) -> str:
    (folder / "program.py").write_text(text)
    return str(folder / "program.py")


@contextmanager
def waiting(folder: Path, **variables: str) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """A command that waits, and the processes of its program."""
    words = [*FORKED, script(folder, WAITS)]
    with subprocess.Popen(words, env=os.environ | variables, stdout=subprocess.PIPE, text=True) as command:
        assert command.stdout is not None
        try:
            yield command, [int(number) for number in command.stdout.readline().split()]
        finally:
            command.kill()


def parent(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def ended(process: int) -> bool:
    """It is gone, or a zombie that its new parent has yet to reap."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return True
    return stat.rpartition(")")[2].split()[0] == "Z"


@pytest.mark.parametrize("code", [0, 7])
def test_a_forked_program_sees_and_says_what_an_ordinary_one_does(server, tmp_path: Path, code: int) -> None:
    program = script(tmp_path, SAYS)
    ran = [
        subprocess.run(
            [*python, program, str(code), "two words"],
            input="some input",
            env=os.environ | {"COLOUR": "blue"},
            cwd="/usr",
            capture_output=True,
            text=True,
        )
        for python in (UNFORKED, FORKED)
    ]
    assert (ran[0].stdout, ran[0].stderr, ran[0].returncode) == (
        ran[1].stdout,
        ran[1].stderr,
        ran[1].returncode,
    )
    assert json.loads(ran[1].stdout)[1:3] == ["blue", "/usr"]
    assert ran[1].returncode == code


def test_a_module_is_run_as_python_does(server, tmp_path: Path) -> None:
    (tmp_path / "named.py").write_text("import sys\nprint(sys.argv, __name__, sys.path[0])")
    ran = [
        subprocess.run([*python, "-m", "named", "a"], cwd=tmp_path, capture_output=True, text=True).stdout
        for python in (UNFORKED, FORKED)
    ]
    assert ran[0] == ran[1] == f"['{tmp_path / 'named.py'}', 'a'] __main__ {tmp_path}\n"


def test_what_the_fork_server_imported_is_there_and_its_variables_are_not(server, tmp_path: Path) -> None:
    program = script(tmp_path, "import os, sys\nprint('decimal' in sys.modules, 'GIVEN' in os.environ)")
    assert subprocess.check_output([*FORKED, program], text=True) == "True False\n"
    assert subprocess.check_output([*UNFORKED, program], text=True) == "False False\n"


def test_without_a_fork_server_the_command_runs_the_program_itself(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv(forked.OFF, "1")
    with forked.fork_server(PYTHON, tmp_path / "none.py", {}, tmp_path / "log") as variables:
        assert variables == {}
    program = script(tmp_path, "import os\nprint(os.getpid())")
    with subprocess.Popen([*FORKED, program], stdout=subprocess.PIPE, text=True) as command:
        assert command.communicate()[0] == f"{command.pid}\n"


def test_a_signal_reaches_the_program_and_its_exit_code_the_caller(server, tmp_path: Path) -> None:
    with waiting(tmp_path) as (command, processes):
        command.send_signal(signal.SIGTERM)
        said, _ = command.communicate(timeout=10)
        assert (said, command.returncode) == (f"signal {signal.SIGTERM:d}\n", 3)
        wait_until(lambda: all(map(ended, processes)), "what the program left behind to be killed")


def test_a_program_that_is_killed_ends_the_command_by_that_signal(server, tmp_path: Path) -> None:
    with waiting(tmp_path) as (command, processes):
        os.kill(processes[0], signal.SIGKILL)
        assert command.wait(10) == -signal.SIGKILL
        wait_until(lambda: all(map(ended, processes)), "what the program left behind to be killed")


def test_a_command_that_is_killed_takes_its_program_along_and_no_other(server, tmp_path: Path) -> None:
    with waiting(tmp_path) as (killed, processes), waiting(tmp_path) as (other, others):
        killed.kill()
        wait_until(lambda: all(map(ended, processes)), "the program to be killed")
        assert not any(map(ended, others))
        other.terminate()
        assert other.wait(10) == 3


def test_nothing_is_left_when_the_test_process_is_killed(tmp_path: Path) -> None:
    (tmp_path / "imports.py").write_text("")
    holder = f"""
import forked, pathlib, sys, time
here = pathlib.Path({str(tmp_path)!r})
with forked.fork_server(pathlib.Path(sys.executable), here / "imports.py", {{}}, here / "log") as variables:
    print(variables[forked.VARIABLE], flush=True)
    time.sleep(60)
"""
    environment = {name: value for name, value in os.environ.items() if name != forked.OFF}
    environment["PYTHONPATH"] = str(Path(forked.__file__).parent)
    words = [sys.executable, "-c", holder]
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True) as tests:
        assert tests.stdout is not None
        path = tests.stdout.readline().strip()
        with waiting(tmp_path, **{forked.VARIABLE: path}) as (command, processes):
            tests.kill()
            assert command.wait(10) == forked.LOST
            wait_until(lambda: all(map(ended, processes)), "the programs to be killed")
    wait_until(lambda: not Path(path).parent.exists(), "the socket's folder to be removed")


def test_nothing_is_left_when_the_fork_server_is_killed(server, tmp_path: Path) -> None:
    with waiting(tmp_path) as (command, processes):
        os.kill(parent(processes[0]), signal.SIGKILL)
        assert command.wait(10) == forked.LOST
        wait_until(lambda: ended(processes[0]), "the program to be killed")


def test_a_fork_server_that_cannot_import_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(forked.OFF, raising=False)
    for text, why in (("import nothing_of_this_name", "nothing_of_this_name"), (THREAD, "2 threads")):
        (tmp_path / "imports.py").write_text(text)
        with (
            pytest.raises(RuntimeError, match=why),
            forked.fork_server(PYTHON, tmp_path / "imports.py", {}, tmp_path / "log"),
        ):
            pytest.fail("it is up")


THREAD = "import threading, time\nthreading.Thread(target=time.sleep, args=(9,), daemon=True).start()"
