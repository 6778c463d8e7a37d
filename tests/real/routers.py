"""A router that runs: what `route render` writes, in a real NGINX, on loopback; and pools that do as they are
told, to put behind it."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from daemons import Daemon, daemon, free_port, nginx, wait_until

from specops.config import Rollout
from specops.phases.route import render
from specops.router.nginx import CONF

DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
POOL = {"engine": "endpoint", "base_url": "http://127.0.0.1:1/v1", "model": "tiny"}


NGINX = "rendered/nginx"
"""The folder that it runs from, below the run folder."""
CHAT = "/v1/chat/completions"
LONG = {"messages": [{"role": "user", "content": "say it"}], "max_tokens": 300}


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    """By name in lower case."""

    body: bytes

    @property
    def json(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)
        return found

    @property
    def route(self) -> tuple[str, str]:
        """The pool that the answer says it is from, and why."""
        return self.headers.get("x-specops-route", ""), self.headers.get("x-specops-reason", "")


def ask(url: str, body: object = None, method: str | None = None, **headers: str) -> Answer:
    """A body that is no bytes is sent as JSON; names of headers with _ for -."""
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"} | named, method=method)
    try:
        with DIRECT.open(request, timeout=30) as answer:
            return Answer(answer.status, _lower(answer.headers), answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return Answer(error.code, _lower(error.headers), error.read())


def _lower(headers: Any) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


@dataclass(frozen=True)
class Pool:
    """scripted_pool.py, in a process of its own."""

    address: str
    daemon: Daemon
    log: Path

    def seen(self, path: str = CHAT) -> int:
        found: int = ask(f"http://{self.address}/seen").json.get(path, 0)
        return found

    def kill(self) -> None:
        self.daemon.signal(signal.SIGKILL)
        self.daemon.process.wait()

    def begun(self) -> list[tuple[float, str]]:
        """When each request came in, and its id; also of a server that is gone."""
        rows = (line.split() for line in self.log.read_text().splitlines())
        return [(float(when), name) for when, name in rows]


@contextmanager
def pool(folder: Path, name: str, port: int | None = None) -> Iterator[Pool]:
    port = port or free_port()
    log = folder / f"{name}-{port}.requests"
    script = Path(__file__).with_name("scripted_pool.py")
    command = [sys.executable, str(script), name, str(port), str(log)]
    with daemon(command, url=f"http://127.0.0.1:{port}", ready="/seen", log=folder / f"{name}.log") as up:
        yield Pool(f"127.0.0.1:{port}", up, log)


@dataclass(frozen=True)
class Router:
    url: str
    """Of the public listener."""

    admin: str
    daemon: Daemon
    prefix: Path

    def percent(self) -> float:
        with DIRECT.open(f"{self.admin}/specops/switch", timeout=5) as answer:
            found: float = json.load(answer)["speculative_percent"]
            return found

    def set_percent(self, percent: float) -> float:
        body = json.dumps({"speculative_percent": percent}).encode()
        request = urllib.request.Request(f"{self.admin}/specops/switch", body, method="PUT")
        with DIRECT.open(request, timeout=5) as answer:
            found: float = json.load(answer)["speculative_percent"]
            return found

    def ask(self, body: object = None, path: str = CHAT, **options: Any) -> Answer:
        return ask(f"{self.url}{path}", body, **options)

    def value(self, series: str) -> float:
        """Of one series, name and labels as they are exposed; 0 where there is none."""
        found = re.search(rf"^{re.escape(series)} (\S+)$", self.metrics(), re.MULTILINE)
        return float(found[1]) if found else 0.0

    def metrics(self) -> str:
        with DIRECT.open(f"{self.admin}/metrics", timeout=5) as answer:
            text: str = answer.read().decode()
            return text


def rollout(
    *,
    standard: Sequence[str],
    speculative: Sequence[str],
    nginx: dict[str, object] | None = None,
    holdout: float = 0.0,
    effect: dict[str, object] | None = None,
    **changes: object,
) -> Rollout:
    """Of pools that answer at HOST:PORT each; `changes` are of the section `route`, `nginx` of that in it.
    Without a holdout, chance decides nothing."""
    route: dict[str, Any] = {"listen": f"127.0.0.1:{free_port()}", "admin": f"127.0.0.1:{free_port()}"}
    route["nginx"] = {"workers": 2} | (nginx or {})
    if os.geteuid() == 0:
        # Workers write the switch's file into a folder of the test's own.
        route["nginx"] = {"user": "root"} | route["nginx"]
    return Rollout.model_validate(
        {
            "rollout": "tiny",
            "pools": {"standard": POOL, "speculative": POOL},
            "addresses": {"standard": list(standard), "speculative": list(speculative)},
            "route": route | changes,
            "effect": {"holdout": holdout} | (effect or {}),
        }
    )


@contextmanager
def router(
    folder: Path,
    *,
    standard: Sequence[str],
    speculative: Sequence[str],
    holdout: float = 0.0,
    **changes: object,
) -> Iterator[Router]:
    """Rendered into `folder`, and up."""
    settings = rollout(standard=standard, speculative=speculative, holdout=holdout, **changes)
    with running(folder, settings) as up:
        yield up


@contextmanager
def running(folder: Path, settings: Rollout) -> Iterator[Router]:
    """What is rendered of `settings`; `folder` may hold the switch of an earlier run."""
    render(settings, folder)
    prefix = folder / NGINX
    admin = f"http://{settings.route.admin}"
    with nginx(prefix / CONF, prefix, url=f"http://{settings.route.listen}", ready="/nowhere") as daemon:
        yield Router(daemon.url, admin, daemon, prefix)


def reload(up: Router) -> None:
    """Until the new workers have taken over."""
    before = workers(up)
    up.daemon.signal(signal.SIGHUP)
    wait_until(lambda: workers(up) and not before & workers(up), "the old workers to end")


def workers(up: Router) -> set[int]:
    """Process ids of its workers."""
    path = Path(f"/proc/{up.daemon.process.pid}/task/{up.daemon.process.pid}/children")
    return {int(pid) for pid in path.read_text().split()}
