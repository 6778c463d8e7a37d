"""`specops serve` as a process: its one line, its signals, its exit codes."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from calling import specops
from live import events_of, until

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(tiny_pair: tuple[Path, Path]) -> Iterator[Start]:
    """Starts `specops serve` on the tiny pair; kills what a test leaves running."""
    started: list[subprocess.Popen[str]] = []
    target, draft = tiny_pair

    def run(*arguments: str, patience: float | None = None) -> subprocess.Popen[str]:
        program = "from specops.cli.app import main; from specops.serve import worker_process\n"
        if patience is not None:
            program += f"worker_process._END_WITHIN_S = {patience}\n"
        program += "main()"
        command = [sys.executable, "-c", program, "serve", "--target", str(target), "--draft", str(draft)]
        command += ["--tree", "chain:2", "--max-batch", "1", "--threads", "1", *arguments]
        started.append(subprocess.Popen(command, stderr=subprocess.PIPE, text=True))
        return started[-1]

    yield run
    for process in started:
        process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()


def address_of(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    line = process.stderr.readline()
    found = re.match(r"serving target on http://(127\.0\.0\.1:\d+) \(chain:2, batch 1\)$", line)
    assert found, line + process.stderr.read()
    return found[1]


def ask(address: str, max_tokens: int, key: str | None = None) -> http.client.HTTPConnection:
    """A client that has asked for a stream."""
    connection = http.client.HTTPConnection(address, timeout=60)
    body = {"prompt": "a", "max_tokens": max_tokens, "ignore_eos": True, "stream": True}
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    connection.request("POST", "/v1/completions", json.dumps(body), headers)
    return connection


@pytest.mark.quick(1)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_key_in_the_environment_is_asked_for_and_a_signal_lets_running_requests_finish(
    start: Start, number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECOPS_API_KEY", "s3cret")
    process = start("--port", "0")
    address = address_of(process)
    with closing(ask(address, 5)) as stranger:
        assert stranger.getresponse().status == 401
    with closing(ask(address, 400, "s3cret")) as client:
        events = events_of(client.getresponse())
        first = next(events)
        process.send_signal(number)
        *rest, done = events
    assert done == "[DONE]"
    assert json.loads(rest[-1])["choices"][0]["finish_reason"] == "length"
    assert len(rest) > 10, first
    assert process.wait(30) == 0
    with pytest.raises(ConnectionRefusedError):
        ask(address, 1)


@pytest.mark.quick(1)
@pytest.mark.parametrize(("grace", "signals"), [("0", 1), ("600", 2)])
def test_the_end_of_the_grace_or_a_second_signal_ends_at_once(start: Start, grace: str, signals: int) -> None:
    process = start("--port", "0", "--grace", grace)
    address = address_of(process)
    assert process.stderr is not None
    with ExitStack() as stack:
        clients = [stack.enter_context(closing(ask(address, 500))) for _ in range(12)]
        events = events_of(clients[0].getresponse())
        next(events)  # it runs; the batch has one place, so the others wait
        process.send_signal(signal.SIGTERM)
        assert "no new requests" in process.stderr.readline()
        for _ in range(signals - 1):
            process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        *_, error, done = events
        assert json.loads(error)["error"]["type"] == "service_unavailable"
        assert done == "[DONE]"
        last = clients[-1].getresponse()
        assert last.status == 503
        assert json.load(last)["error"]["code"] == "shut_down"
    assert "ended before" in process.stderr.read()


def test_a_taken_port_is_one_sentence_and_exit_3() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = specops("serve", "--port", str(port))
    assert done.returncode == 3
    error, hint = done.stderr.splitlines()
    assert error == f"error: could not listen on 127.0.0.1 port {port}: Address already in use"
    assert hint.startswith("hint: ")


def test_settings_that_exclude_each_other_exit_2(tiny_pair: tuple[Path, Path]) -> None:
    done = specops("serve", "--draft", str(tiny_pair[1]), "--no-speculation")
    assert done.returncode == 2
    assert "--draft" in done.stderr


def children_of(process: subprocess.Popen[str]) -> list[int]:
    return [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


needs_proc = pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs Linux's /proc")


@needs_proc
def test_an_engine_whose_process_is_killed_fails_its_requests_and_ends_its_server(start: Start) -> None:
    process = start("--port", "0")
    address = address_of(process)
    (engine,) = children_of(process)
    with closing(ask(address, 500)) as client:
        events = events_of(client.getresponse())
        next(events)
        os.kill(engine, signal.SIGKILL)
        *_, error, done = events
    assert json.loads(error)["error"]["type"] == "internal_error"
    assert done == "[DONE]"
    assert process.stderr is not None
    assert process.wait(30) == 3
    error, hint = process.stderr.read().splitlines()
    assert error == "error: the engine failed: its process has ended; the log above has the cause"
    assert hint.startswith("hint: specops serve ")
    assert hint.endswith("# starts it again")


@needs_proc
def test_an_engine_that_dies_while_the_server_drains_is_a_failure_too(start: Start) -> None:
    process = start("--port", "0", "--grace", "600")
    address = address_of(process)
    (engine,) = children_of(process)
    assert process.stderr is not None
    with closing(ask(address, 500)) as client:
        next(events_of(client.getresponse()))
        os.kill(engine, signal.SIGSTOP)  # or the request could end before it
        process.send_signal(signal.SIGTERM)
        assert "no new requests" in process.stderr.readline()
        os.kill(engine, signal.SIGKILL)
        assert process.wait(30) == 3


@pytest.mark.slow
@needs_proc
def test_an_engine_that_hangs_does_not_keep_its_server(start: Start) -> None:
    process = start("--port", "0", patience=0.5)
    with closing(ask(address_of(process), 500)) as client:
        next(events_of(client.getresponse()))
        (engine,) = children_of(process)
        os.kill(engine, signal.SIGSTOP)
        process.send_signal(signal.SIGTERM)
        assert process.stderr is not None
        assert "no new requests" in process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    assert not alive(engine)


def health_of(address: str) -> int:
    with closing(http.client.HTTPConnection(address, timeout=60)) as client:
        client.request("GET", "/health")
        return client.getresponse().status


@needs_proc
def test_health_says_that_an_engine_is_stopped(start: Start) -> None:
    process = start("--port", "0")
    address = address_of(process)
    (engine,) = children_of(process)
    assert health_of(address) == 200
    os.kill(engine, signal.SIGSTOP)
    assert health_of(address) == 503
    os.kill(engine, signal.SIGCONT)
    until(lambda: health_of(address) == 200, "health says that it goes on")


@needs_proc
def test_no_engine_outlives_its_server(start: Start) -> None:
    process = start("--port", "0")
    with closing(ask(address_of(process), 500)):
        (engine,) = children_of(process)
        process.kill()
        process.wait()
    until(lambda: not alive(engine), "the engine's process ends")


def test_what_keeps_the_engine_from_loading_is_one_sentence(tmp_path: Path) -> None:
    done = specops("serve", "--port", "0", "--target", str(tmp_path))
    assert done.returncode == 3
    error, hint = done.stderr.splitlines()
    assert error.startswith(f"error: could not load a model from {tmp_path}: there is no config.json")
    assert hint.startswith("hint: ")
