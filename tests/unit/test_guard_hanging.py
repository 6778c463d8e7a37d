"""A router that takes connections and never answers: what it costs a turn, and what is said of it."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import pytest
from aiohttp import web

from specops.actions.action import Target
from specops.errors import EndpointError
from specops.guard.guard import CapacityGate, Guard
from specops.guard.journal import FILE, Journal
from specops.guard.lock import Lock
from specops.guard.policy import GuardRules
from specops.guard.service import Settings, _Service
from specops.guard.state import Evaluation
from specops.guard.switch import Switch
from specops.router.nginx.listener import NginxListener

MOST_S = 3.0


class SlowToRead(Target):
    """On a busy machine, reading alone may take as long as all of its tries may."""

    name = "slow"
    patience_s = 0.01
    percent = 0

    def read(self) -> int:
        time.sleep(2 * self.patience_s)
        return self.percent

    def set(self, percent: int) -> None:
        self.percent = percent


class Unreadable(SlowToRead):
    """One that hangs, which costs a turn no third request."""

    name = "unreadable"

    def read(self) -> int:
        time.sleep(2 * self.patience_s)
        raise EndpointError("it does not answer")


def test_a_target_that_is_slow_to_read_is_set_once() -> None:
    done = Switch([SlowToRead()]).to(100)
    assert (done.outcome, done.targets[0].tries, done.targets[0].after) == ("done", 1, 100)
    (hung,) = Switch([Unreadable()]).to(100).targets
    assert (hung.tries, hung.error) == (0, "it does not answer")


@contextmanager
def hanging(answer: bytes = b"") -> Iterator[str]:
    """Takes every connection; sends `answer` and then a byte every 0.2 s without end."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        stop = threading.Event()

        def serve() -> None:
            taken: list[socket.socket] = []
            listening.settimeout(0.05)
            while not stop.is_set():
                try:
                    one, _ = listening.accept()
                    one.sendall(answer)
                    taken.append(one)
                except TimeoutError:
                    for one in taken if answer else ():
                        try:
                            one.sendall(b" ")
                        except OSError:
                            continue
            for one in taken:
                one.close()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{listening.getsockname()[1]}"
        finally:
            stop.set()
            thread.join()


def guard(folder: Path, router: str, verdict: str) -> Guard:
    return Guard(
        rules=GuardRules(consecutive=1),
        observe=lambda now, *_: Evaluation.model_validate({"ts": now, "verdict": verdict, "reason": "r"}),
        switch=Switch([NginxListener(router)], [NginxListener(router)]),
        journal=Journal(folder / FILE),
        gate=lambda: CapacityGate(reason="it carries it"),
    )


@pytest.mark.parametrize(
    "answer", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n{"], ids=["mute", "slow"]
)
@pytest.mark.parametrize("verdict", ["healthy", "bad"])
def test_a_hanging_router_costs_a_turn_three_seconds_at_most(
    tmp_path: Path, answer: bytes, verdict: str
) -> None:
    with hanging(answer) as router:
        one = guard(tmp_path, router, verdict)
        began = time.monotonic()
        entry = one.turn()
        took = time.monotonic() - began
    assert took < MOST_S
    assert (entry.result is not None) == (verdict == "bad")
    assert f"router {router}" in (one.unconfirmed or "")


def test_health_is_not_well_while_an_action_is_not_confirmed(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        nobody = f"127.0.0.1:{taken.getsockname()[1]}"
    one = guard(tmp_path, nobody, "bad")

    async def asked() -> tuple[int, str]:
        service = _Service(one, Settings(rollout="r", interval_s=60), cast(Lock, None), lambda _: None)
        answer = await service._on_health(cast(web.Request, None))
        return answer.status, answer.text or ""

    assert asyncio.run(asked())[0] == 200
    one.turn()
    status, text = asyncio.run(asked())
    assert status == 503
    assert "not confirmed: " in text
    assert nobody in text
