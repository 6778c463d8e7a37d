"""A message after a change: what it says, when it is sent, and that its failure holds nothing up."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from specops.actions import Target, notifications
from specops.config import Guard as Section
from specops.errors import EndpointError
from specops.guard import switch as switching
from specops.guard.guard import CapacityGate, Guard
from specops.guard.journal import FILE, Entry, Journal, history
from specops.guard.policy import GuardRules
from specops.guard.state import Evaluation, Override
from specops.guard.switch import Switch

SECRET = "T000-B000-secret"
VARIABLE = "SPECOPS_GUARD_WEBHOOK"


class Chat(ThreadingHTTPServer):
    """Takes webhooks as Slack does; answers with `status` once `released`."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Webhook)
        self.url = f"http://127.0.0.1:{self.server_port}/services/{SECRET}"
        self.messages: list[dict[str, object]] = []
        self.status = 200
        self.released = threading.Event()
        self.released.set()


class Webhook(BaseHTTPRequestHandler):
    server: Chat

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.messages.append(json.loads(body))
        self.server.released.wait()
        self.send_response(self.server.status)
        self.end_headers()
        with suppress(BrokenPipeError):  # nobody waits for it any more
            self.wfile.write(b"ok")

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def chat(monkeypatch: pytest.MonkeyPatch) -> Iterator[Chat]:
    with Chat() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        monkeypatch.setenv(VARIABLE, server.url + "\n")  # as a file that it came from may end
        try:
            yield server
        finally:
            server.released.set()
            server.shutdown()
            thread.join()


class Router(Target):
    name = "router"
    tries = 1

    def __init__(self) -> None:
        self.percent, self.down = 100, False

    def read(self) -> int:
        return self.percent

    def set(self, percent: int) -> None:
        if self.down:
            raise EndpointError("refused")
        self.percent = percent


class World:
    def __init__(self, path: Path, **settings: object) -> None:
        self.router, self.path, self.now, self.verdict = Router(), path, 0.0, "bad"
        section = Section.model_validate({"actions": [{"kind": "notify"} | settings]})
        self.notifications = notifications(section.actions)
        self.guard = self.started()

    def started(self, *, dry_run: bool = False) -> Guard:
        return Guard(
            rules=GuardRules(cooldown_s=3600, hold=1),
            observe=lambda now, *_: Evaluation.model_validate(
                {"ts": now, "verdict": self.verdict, "reason": "TPOT is 1.40 times that without speculation"}
            ),
            switch=Switch([self.router]),
            journal=Journal(self.path),
            gate=lambda: CapacityGate(reason="capacity suffices"),
            dry_run=dry_run,
            rollout="mine",
            notifications=self.notifications,
            clock=lambda: self.now,
        )

    def turns(self, count: int = 1) -> Entry:
        for _ in range(count):
            self.now += 60
            entry = self.guard.turn()
        return entry


@contextmanager
def world(folder: Path, **settings: object) -> Iterator[World]:
    yield World(folder / FILE, **settings)


@pytest.fixture(autouse=True)
def without_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(switching, "WAIT_S", 0.0)


def test_a_fall_back_is_posted_once_after_the_switch(tmp_path: Path, chat: Chat) -> None:
    with world(tmp_path) as it:
        it.turns(2)
        assert chat.messages == [], "nothing has changed yet"
        it.turns(4)
    (message,) = chat.messages
    assert message["specops"] == {"rollout": "mine", "percent": 0, "confirmed": True}
    assert str(message["text"]).startswith("*mine*: 0% speculative. bad: fallback to 0%")
    lines = [entry for entry in history(it.path) if entry.id == 3]
    assert [(line.result is not None, len(line.notified)) for line in lines] == [
        (False, 0),
        (True, 0),
        (True, 1),
    ]
    assert lines[-1].notified[0].error is None


def test_a_person_s_override_is_posted_too(tmp_path: Path, chat: Chat) -> None:
    with world(tmp_path) as it:
        it.guard.pin(Override(pool="standard", by="ada", why="a test", left_s=None))
        it.guard.release("ada", "done")
    assert [message["specops"]["percent"] for message in chat.messages] == [0, 100]  # type: ignore[index]
    assert "ada pinned standard" in str(chat.messages[0]["text"])


def test_a_switch_that_failed_is_posted_and_that_it_came_true_not_each_try(
    tmp_path: Path, chat: Chat
) -> None:
    with world(tmp_path) as it:
        it.router.down = True
        it.turns(6)
        assert [message["specops"]["confirmed"] for message in chat.messages] == [False]  # type: ignore[index]
        assert "not confirmed" in str(chat.messages[0]["text"])
        it.router.down = False
        it.turns(2)
    assert [message["specops"]["confirmed"] for message in chat.messages] == [False, True]  # type: ignore[index]


@pytest.mark.parametrize("how", ["refuses", "hangs", "is away", "no address", "not an address"])
def test_a_failure_is_recorded_without_the_address_and_holds_nothing_up(
    tmp_path: Path, chat: Chat, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    said = {
        "refuses": f"could not notify webhook {VARIABLE}: the address in {VARIABLE} answered 404 ok",
        "hangs": f"the address in {VARIABLE}: it did not answer within 0.1 s",
        "is away": "nothing listens there",
        "no address": f"{VARIABLE} is not set",
        "not an address": f"{VARIABLE} is not an http address",
    }
    match how:
        case "refuses":
            chat.status = 404
        case "hangs":
            chat.released.clear()
        case "is away":
            monkeypatch.setenv(VARIABLE, f"http://127.0.0.1:1/{SECRET}")
        case "no address":
            monkeypatch.delenv(VARIABLE)
        case _:
            monkeypatch.setenv(VARIABLE, f"http://[{SECRET}")
    with world(tmp_path, timeout_s=0.1) as it:
        started = time.monotonic()
        entry = it.turns(3)
        assert time.monotonic() - started < 5
        assert it.router.percent == 0
        assert entry.result is not None
        assert entry.result.outcome == "done"
        assert it.guard.unconfirmed is None
        assert said[how] in (entry.notified[0].error or "")
    assert SECRET not in it.path.read_text()


def test_a_guard_that_was_killed_before_it_notified_does_so_and_a_dry_run_never_does(
    tmp_path: Path, chat: Chat
) -> None:
    with world(tmp_path) as it:
        it.notifications = []
        it.guard = it.started()
        it.turns(3)
        lines = it.path.read_text().splitlines()
        it.path.write_text("\n".join(lines[:-1]) + "\n")  # killed before the result was recorded
        it.notifications = notifications(Section.model_validate({"actions": [{"kind": "notify"}]}).actions)
        it.started().resume()
        assert [message["specops"]["percent"] for message in chat.messages] == [0]  # type: ignore[index]
        assert it.started().resume() is None, "it is sent once"
    with world(tmp_path / "dry") as it:
        it.guard = it.started(dry_run=True)
        it.turns(3)
    assert len(chat.messages) == 1


def test_another_variable_holds_the_address(
    tmp_path: Path, chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ON_CALL_CHAT", chat.url)
    monkeypatch.delenv(VARIABLE)
    with world(tmp_path, url_variable="ON_CALL_CHAT") as it:
        it.turns(3)
    assert len(chat.messages) == 1
