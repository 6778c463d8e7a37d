"""`specops sweep` with servers that it starts: one at a time, and none of them left, whatever happens."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from specops.errors import Exit

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc"),
    pytest.mark.timeout(300),  # three starts of a server with torch, on a machine that may be busy
]

DIES, HANGS = 4, 7
"""Of the fake server: with this K its first request is its end; with that, no measured one is answered."""

FAKE_SERVER = """
import http.server, json, os, pathlib, subprocess, sys, time
port, k, folder = int(sys.argv[1]), int(sys.argv[2]), pathlib.Path(sys.argv[3])
worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
with (folder / "pids").open("a") as pids:
    print(os.getpid(), worker.pid, file=pids)

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.answer(json.dumps({"data": [{"id": "fake"}]}))
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if k == DIES:
            print("CUDA out of memory", file=sys.stderr, flush=True)
            os._exit(137)
        if k == HANGS and body["max_tokens"] > 8:
            (folder / "hangs").touch()
            time.sleep(60)
        chunks = [{"choices": [{"index": 0, "text": "word "}]}] * 3
        chunks.append({"choices": [{"index": 0, "text": "", "finish_reason": "length"}]})
        chunks.append({"choices": [], "usage": {"completion_tokens": 3}})
        self.answer("".join(f"data: {json.dumps(chunk)}\\n\\n" for chunk in chunks) + "data: [DONE]\\n\\n")
    def answer(self, text):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(text.encode())
    def log_message(self, *args):
        pass

http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


def write_rollout(
    folder: Path, standard: dict[str, Any], speculative: dict[str, Any], **sections: Any
) -> Path:
    prompts = [
        {"id": f"{name}-{n}", "class": name, "text": f"the server measures {name} {n}", "max_tokens": 16}
        for name in ("short", "long")
        for n in range(5)
    ]
    (folder / "prompts.json").write_text(json.dumps(prompts))
    path = folder / "rollout.yaml"
    fields = {
        "rollout": "small",
        "prompts": "prompts.json",
        "pools": {"standard": standard, "speculative": speculative},
        "measure": {"endpoint": "completions", "concurrency": [1, 2], "repeats": 1, "warmup": 0},
        "ab": {"requests": 16},
    }
    path.write_text(yaml.safe_dump(fields | sections))
    return path


def fake_rollout(folder: Path, *ks: int) -> Path:
    script = folder / "server.py"
    script.write_text(f"{DIES=}; {HANGS=}\n{FAKE_SERVER}")

    def pool(k: str) -> dict[str, Any]:
        return {"engine": "command", "command": f"{sys.executable} {script} {{port}} {k} {folder}"}

    return write_rollout(folder, pool("0"), pool("{k}"), sweep={"k": list(ks)})


def specops(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "specops", *words], capture_output=True, text=True)


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def wait_for(condition, what: str, seconds: float = 80.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen within {seconds} s"
        time.sleep(0.02)


def pids(folder: Path) -> list[int]:
    return [int(pid) for pid in (folder / "pids").read_text().split()]


def none_left(folder: Path) -> None:
    for pid in pids(folder):
        wait_for(lambda pid=pid: not alive(pid), f"the end of {pid}")


@pytest.fixture(scope="module")
def embedded(tiny_pair: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A rollout of the tiny pair, and the result of its sweep."""
    folder = tmp_path_factory.mktemp("embedded")
    pool = {"engine": "embedded", "target": str(tiny_pair[0]), "threads": 1}
    speculation = {"draft": str(tiny_pair[1]), "tree": "chain:3"}
    path = write_rollout(folder, pool, pool | {"speculation": speculation}, sweep={"k": [2]})
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("EMBEDDED_FORK_SERVER", raising=False)  # forked servers share memory
        done = specops("sweep", path, "--out", folder, "--plot", folder / "sweep.svg", "--json", "--quiet")
    assert done.returncode in (Exit.YES, Exit.NO, Exit.UNDECIDED), done.stderr
    assert json.loads(done.stdout) == json.loads((folder / "sweep.json").read_text())
    assert (folder / "sweep.svg").stat().st_size > 1000
    return path, folder / "sweep.json"


@pytest.mark.slow
def test_the_embedded_engine_is_started_for_each_setting(embedded: tuple[Path, Path]) -> None:
    result = json.loads(embedded[1].read_text())
    cells = result["data"]["stored"]["cells"]
    assert [(cell["setting"], cell["turn"], cell["cell"]["concurrency"]) for cell in cells] == [
        ("standard", 0, 1),
        ("standard", 0, 2),
        ("k=2", 0, 1),
        ("k=2", 0, 2),
        ("k=2", 1, 1),
        ("k=2", 1, 2),
        ("standard", 1, 1),
        ("standard", 1, 2),
    ]
    for cell in cells:
        assert [row["error"] for row in cell["cell"]["rows"]] == [None] * 10
        assert cell["up_s"] > 0.1
        assert 0.05 < cell["memory"]["resident_gib"] < 8  # a process with torch, and no more than that
        drafted = cell["cell"]["drafts"]
        assert (drafted is not None) == (cell["setting"] == "k=2")
        if drafted:
            assert len(drafted["accepted_per_position"]) == 2
    assert result["recommendation"]["k"] in (0, 2, None)
    assert (result["verdict"] == "yes") == (result["recommendation"]["k"] == 2)


@pytest.mark.slow
def test_what_is_whole_starts_no_server_again(embedded: tuple[Path, Path]) -> None:
    path, out = embedded
    logs = sorted((out.parent / "logs" / "sweep").iterdir())
    assert [log.name for log in logs] == [
        "0-k=2-0.log",
        "0-k=2-1.log",
        "0-standard-0.log",
        "0-standard-1.log",
    ]
    written = [log.stat().st_mtime_ns for log in logs]
    again = specops("sweep", path, "--out", out)
    assert again.returncode in (Exit.YES, Exit.NO, Exit.UNDECIDED), again.stderr
    assert "8 cells were measured before" in again.stderr
    assert [log.stat().st_mtime_ns for log in logs] == written


@pytest.mark.slow
def test_a_server_that_is_healthy_and_dies_of_its_first_request_is_a_failed_cell(tmp_path: Path) -> None:
    done = specops("sweep", fake_rollout(tmp_path, 3, DIES, 5), "--out", tmp_path, "--json")
    result = json.loads(done.stdout)
    (failed,) = result["data"]["stored"]["failed"]
    assert (failed["setting"], failed["turn"]) == ("k=4", 0)
    assert failed["why"] == "the k=4 server ended while it was measured, with exit code 137"
    assert failed["log"].strip() == "CUDA out of memory"
    measured = [cell["setting"] for cell in result["data"]["stored"]["cells"]]
    assert measured[:8] == ["standard"] * 2 + ["k=3"] * 2 + ["k=5"] * 2 + ["standard"] * 2
    assert "k=4" not in measured  # nor is it confirmed
    assert "k=4 failed: " in done.stderr
    none_left(tmp_path)


@pytest.mark.quick(1)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_nothing_is_left_of_a_sweep_that_is_ended_and_what_it_measured_is(
    tmp_path: Path, number: int
) -> None:
    path = fake_rollout(tmp_path, HANGS)
    words = [sys.executable, "-m", "specops", "sweep", str(path), "--out", str(tmp_path), "--quiet"]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as running:
        wait_for((tmp_path / "hangs").exists, "a measured request")
        running.send_signal(number)
        running.wait(60)
        assert running.stderr is not None
        told = running.stderr.read().decode()
    none_left(tmp_path)
    assert "Traceback" not in told
    assert running.returncode == 128 + number
    assert f"resume with: {shlex.join(['specops', *words[3:]])}\n" in told
    result = json.loads((tmp_path / "sweep.json").read_text())
    assert result["verdict"] == "partial"
    whole = [cell for cell in result["data"]["stored"]["cells"] if cell["cell"]["complete"]]
    assert [cell["setting"] for cell in whole] == ["standard", "standard"]


@pytest.mark.slow
def test_a_child_that_is_killed_takes_its_workers_along_and_the_sweep_goes_on(tmp_path: Path) -> None:
    path = fake_rollout(tmp_path, HANGS)
    words = [sys.executable, "-m", "specops", "sweep", str(path), "--out", str(tmp_path), "--json"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as running:
        wait_for((tmp_path / "hangs").exists, "a measured request")
        os.kill(pids(tmp_path)[2], signal.SIGKILL)  # the second server; each has a worker
        assert running.stdout is not None
        kept = json.loads(running.stdout.read())["data"]["stored"]
    none_left(tmp_path)
    assert [one["setting"] for one in kept["failed"]] == [f"k={HANGS}"]
    assert len(pids(tmp_path)) == 3 * 2  # the standard twice, and what failed is not started again
    (killed,) = [cell["cell"] for cell in kept["cells"] if cell["setting"] != "standard"]
    assert not killed["complete"]
    assert len(killed["rows"]) < 5  # of 10: the rest is not sent to a server that is not there
    assert [(c["setting"], c["turn"]) for c in kept["cells"] if c["cell"]["complete"]][-1] == ("standard", 1)
