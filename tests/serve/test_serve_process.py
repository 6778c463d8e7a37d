"""`specops serve` as a process: its one line, its signals, its exit codes."""

from __future__ import annotations

import http.client
import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from live import events_of

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(tiny_pair: tuple[Path, Path]) -> Iterator[Start]:
    """Starts `specops serve` on the tiny pair; kills what a test leaves running."""
    started: list[subprocess.Popen[str]] = []
    target, draft = tiny_pair

    def run(*arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "specops", "serve", "--target", str(target), "--draft", str(draft)]
        command += ["--tree", "chain:2", "--max-batch", "1", *arguments]
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


def ask(address: str, max_tokens: int) -> http.client.HTTPConnection:
    """A client that has asked for a stream."""
    connection = http.client.HTTPConnection(address, timeout=60)
    body = {"prompt": "a", "max_tokens": max_tokens, "ignore_eos": True, "stream": True}
    connection.request("POST", "/v1/completions", json.dumps(body))
    return connection


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_running_requests_finish(start: Start, number: signal.Signals) -> None:
    process = start("--port", "0")
    address = address_of(process)
    with closing(ask(address, 400)) as client:
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


def test_a_taken_port_is_one_sentence_and_exit_3(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = start("--port", str(port))
        _, complaint = process.communicate()
    assert process.returncode == 3
    error, hint = complaint.splitlines()
    assert error == f"error: could not listen on 127.0.0.1 port {port}: Address already in use"
    assert hint.startswith("hint: ")


def test_settings_that_exclude_each_other_exit_2(start: Start) -> None:
    process = start("--no-speculation")
    _, complaint = process.communicate()
    assert process.returncode == 2
    assert "--draft" in complaint


def test_the_key_in_the_environment_is_asked_for(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECOPS_API_KEY", "s3cret")
    process = start("--port", "0")
    with closing(ask(address_of(process), 5)) as client:
        assert client.getresponse().status == 401
