"""A server that specops starts is up when it says so, and is gone afterwards, whatever happens."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from specops.errors import EndpointError, FileError, ServerError
from specops.launch.servers import FixedAddress, LoggedAddress, Server, running
from specops.progress import SilentProgress
from specops.serving.embedded import ANNOUNCED, EmbeddedPool

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")

FAKE_SERVER = """
import http.server, json, os, pathlib, signal, subprocess, sys
mode, pids = sys.argv[1], pathlib.Path(sys.argv[2])

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if mode == "unhealthy" or (mode == "slow" and not (pids / "ready").exists()):
            return self.send_error(503)
        if self.path == "/v1/models" and mode == "modelless":
            return self.answer({"data": []})
        self.answer({"data": [{"id": "fake"}]} if self.path == "/v1/models" else {})
    def answer(self, body):
        self.send_response(200); self.end_headers(); self.wfile.write(json.dumps(body).encode())
    def log_message(self, *args):
        pass

if mode == "dies":
    sys.exit("error: no such model")
if mode == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if mode == "workers":
    work = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(600)"
    subprocess.Popen([sys.executable, "-c", work, str(pids / "worker")])
(pids / "server").write_text(str(os.getpid()))
server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
if mode != "silent":
    print(f"serving fake on http://127.0.0.1:{server.server_port} (a test)", file=sys.stderr, flush=True)
server.serve_forever()
"""

START = """
import sys, pathlib
from specops.launch.servers import LoggedAddress
from specops.serving.embedded import ANNOUNCED
from specops.launch.servers import running
from specops.progress import SilentProgress
folder = pathlib.Path(sys.argv[3])
with running("fake", [sys.executable, *sys.argv[1:3], str(folder)], address=LoggedAddress(ANNOUNCED),
             log=folder / "log", progress=SilentProgress(), grace_s=0.5):
    print("up", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def fake(tmp_path: Path) -> Callable[..., object]:
    script = tmp_path / "fake_server.py"
    script.write_text(FAKE_SERVER)

    def start(mode: str, *, start_timeout_s: float = 30.0, grace_s: float = 0.5) -> object:
        return running(
            "fake",
            [sys.executable, str(script), mode, str(tmp_path)],
            address=LoggedAddress(ANNOUNCED),
            log=tmp_path / "logs" / "fake.log",
            progress=SilentProgress(),
            start_timeout_s=start_timeout_s,
            grace_s=grace_s,
        )

    return start


def wait_for(condition: Callable[[], object], what: str, seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen within {seconds} s"
        time.sleep(0.01)


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def pid_in(path: Path) -> int:
    wait_for(lambda: path.exists() and path.read_text(), f"a process id in {path.name}")
    return int(path.read_text())


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def kill_server(folder: Path) -> None:
    """Kill the fake server, and wait for its keeper to have noticed."""
    server = pid_in(folder / "server")
    keeper = parent_of(server)
    os.kill(server, signal.SIGKILL)
    ended(keeper)


def kill_keeper(folder: Path) -> list[int]:
    """Kill the keeper of the fake server and its worker; returns these two."""
    left = [pid_in(folder / name) for name in ("server", "worker")]
    keeper = parent_of(left[0])
    os.kill(keeper, signal.SIGKILL)
    ended(keeper)
    return left


def ended(keeper: int) -> None:
    """Wait for our child's end, all its threads', and leave it to be waited for by who started it."""
    os.waitid(os.P_PID, keeper, os.WEXITED | os.WNOWAIT)


def test_it_is_up_inside_the_block_and_gone_after_it(fake, tmp_path) -> None:
    with fake("ok") as server:
        assert server.model == "fake"
        assert server.base_url.startswith("http://127.0.0.1:")
        assert server.base_url.endswith("/v1")
        pid = pid_in(tmp_path / "server")
        assert alive(pid)
    assert not alive(pid)


def test_it_waits_until_the_server_is_healthy(fake, tmp_path) -> None:

    with pytest.raises(ServerError, match="503"), fake("slow", start_timeout_s=2.0):
        pytest.fail("it was taken to be up while it answered 503")
    (tmp_path / "ready").touch()
    with fake("slow") as server:
        assert isinstance(server, Server)


def test_a_server_that_dies_at_once_is_reported_with_its_last_words(fake) -> None:
    with pytest.raises(ServerError, match="ended before it was up, with exit code 1") as caught, fake("dies"):
        pass
    assert caught.value.hint is not None
    assert "error: no such model" in caught.value.log
    assert caught.value.hint.startswith("tail -n 50 ")
    assert caught.value.hint.endswith("fake.log")


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    ("mode", "what"),
    [
        ("silent", "has not reported its address"),
        ("unhealthy", "503"),
        ("modelless", "does not answer properly"),
    ],
)
def test_a_server_that_does_not_come_up_is_stopped(fake, tmp_path, mode, what) -> None:
    with pytest.raises(ServerError, match=what), fake(mode, start_timeout_s=2.0):
        pass
    assert not alive(pid_in(tmp_path / "server"))


def test_a_server_that_ignores_sigterm_is_killed(fake, tmp_path) -> None:
    with fake("stubborn"):
        pid = pid_in(tmp_path / "server")
    assert not alive(pid)


def test_workers_of_the_server_go_with_it(fake, tmp_path) -> None:
    with fake("workers"):
        worker = pid_in(tmp_path / "worker")
        assert alive(worker)
    wait_for(lambda: not alive(worker), "the worker's end")


def test_workers_do_not_outlive_a_server_that_died(fake, tmp_path) -> None:
    workers: list[int] = []

    def die() -> None:
        workers.append(pid_in(tmp_path / "worker"))  # the server may die before it has started one
        kill_server(tmp_path)

    with pytest.raises(ServerError), fake("workers"):
        die()
    wait_for(lambda: not alive(workers[0]), "the worker's end")


def test_an_endpoint_error_of_a_server_that_died_names_the_death(fake, tmp_path) -> None:
    def measure() -> None:
        os.kill(pid_in(tmp_path / "server"), signal.SIGKILL)
        raise EndpointError("the endpoint refuses connections")

    with pytest.raises(ServerError, match="while it was measured") as caught, fake("ok"):
        measure()
    assert "137" in caught.value.message
    assert isinstance(caught.value.__cause__, EndpointError)


def test_a_server_that_died_unnoticed_is_reported_all_the_same(fake, tmp_path) -> None:
    with pytest.raises(ServerError, match="while it was measured"), fake("ok"):
        kill_server(tmp_path)


def test_an_endpoint_error_of_a_living_server_stays_what_it_is(fake) -> None:
    with pytest.raises(EndpointError, match="answered 500"), fake("ok"):
        raise EndpointError("the endpoint answered 500")


def test_nothing_is_left_when_the_keeper_is_killed(fake, tmp_path) -> None:
    left: list[int] = []
    with pytest.raises(ServerError, match="while it was measured"), fake("workers"):
        left += kill_keeper(tmp_path)
    assert len(left) == 2
    for pid in left:
        wait_for(lambda pid=pid: not alive(pid), f"the end of {pid}")


def test_a_log_that_cannot_be_written_is_said_with_a_hint(tmp_path) -> None:
    (tmp_path / "logs").write_text("a file where a folder should be")
    start = running(
        "fake",
        ["true"],
        address=FixedAddress("http://127.0.0.1:9"),
        log=tmp_path / "logs" / "log",
        progress=SilentProgress(),
    )
    with pytest.raises(FileError, match="could not write the fake server's log") as caught, start:
        pass
    assert caught.value.hint


@pytest.mark.quick(2)
@pytest.mark.parametrize("mode", ["ok", "stubborn", "workers"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_is_left_when_specops_itself_is_killed(fake, tmp_path, mode, number) -> None:
    words = [sys.executable, "-c", START, str(tmp_path / "fake_server.py"), mode, str(tmp_path)]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as specops:
        assert specops.stdout is not None
        assert specops.stdout.readline() == "up\n"
        pids = [pid_in(tmp_path / "server")] + ([pid_in(tmp_path / "worker")] if mode == "workers" else [])
        specops.send_signal(number)
        specops.wait(20)
    for pid in pids:
        wait_for(lambda pid=pid: not alive(pid), f"the end of {pid}")


def test_the_command_line_of_an_embedded_pool(tmp_path) -> None:
    standard = EmbeddedPool(engine="embedded", max_batch=4, threads=2)
    words = standard.start(0, "mine").words
    assert words[1:] == [
        *(
            "-m",
            "specops",
            "serve",
            "--port",
            "0",
            "--served-model-name",
            "mine",
            "--max-batch",
            "4",
            "--prefix-cache-mb",
            "0",
            "--no-speculation",
            "--threads",
            "2",
        )
    ]
    speculative = EmbeddedPool.model_validate(
        {
            "engine": "embedded",
            "target": tmp_path,
            "max_length": 99,
            "speculation": {"draft": tmp_path, "tree": "expand:2,1", "verifier": "naive"},
        }
    )
    words = speculative.start(0, "mine").words
    assert "--no-speculation" not in words
    for flag, value in (
        ("--target", str(tmp_path)),
        ("--draft", str(tmp_path)),
        ("--tree", "expand:2,1"),
        ("--verifier", "naive"),
        ("--max-length", "99"),
    ):
        assert words[words.index(flag) + 1] == value
