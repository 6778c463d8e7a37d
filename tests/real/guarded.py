"""A deployment that is guarded, on loopback: pools of the embedded engine behind a real NGINX, watched by a
real Prometheus and Alertmanager as `monitor render` and `route render` configure them, and the guard."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml
from calling import specops
from daemons import Daemon, daemon, free_port

from specops.guard.guard import Status

DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
PROMPT = "the server measures what it serves, and the draft"


@dataclass
class Deployment:
    """A rollout file, its run folder, and where everything is."""

    folder: Path
    sections: dict[str, Any]

    @property
    def file(self) -> Path:
        return self.folder / "rollout.yaml"

    @property
    def run(self) -> Path:
        return self.folder / "run"

    @property
    def guard_url(self) -> str:
        return f"http://{self.sections['guard']['listen']}"

    @property
    def pools(self) -> dict[str, str]:
        """HOST:PORT by pool."""
        return {name: urlsplit(pool["base_url"]).netloc for name, pool in self.sections["pools"].items()}

    def add(self, **addresses: Any) -> None:
        self.sections["addresses"] |= addresses
        self.file.write_text(yaml.safe_dump(self.sections))

    def specops(self, *words: str) -> subprocess.CompletedProcess[str]:
        """`specops guard WORDS…` of this rollout."""
        return specops("guard", words[0], str(self.file), *words[1:], "--out", str(self.run))

    def status(self) -> Status:
        with DIRECT.open(f"{self.guard_url}/status", timeout=10) as answer:
            return Status.model_validate_json(answer.read())


def deployment(folder: Path, **sections: Any) -> Deployment:
    """With addresses that are free; `sections` add to those of the rollout file, and replace them."""
    ports = {
        name: f"127.0.0.1:{free_port()}" for name in ("standard", "speculative", "router", "admin", "guard")
    }
    pools = {
        name: {"engine": "endpoint", "base_url": f"http://{ports[name]}/v1", "model": "tiny"}
        for name in ("standard", "speculative")
    }
    route: dict[str, Any] = {"listen": ports["router"], "admin": ports["admin"], "nginx": {"workers": 1}}
    if os.geteuid() == 0:
        route["nginx"]["user"] = "root"
    made: dict[str, Any] = {
        "rollout": "tiny",
        "pools": pools,
        "addresses": {"routers": [ports["admin"]], "guard": ports["guard"]},
        "route": route,
        "guard": {"listen": ports["guard"], "hold_evaluations": 300},  # a window, at an interval of 1 s
    }
    for name, section in sections.items():
        made[name] = made.get(name, {}) | section
    (folder / "run").mkdir(parents=True)
    up = Deployment(folder, made)
    up.add()
    return up


@contextmanager
def engine(where: str, target: Path, draft: Path | None, log: Path) -> Iterator[Daemon]:
    """The embedded engine at HOST:PORT; with `draft` it speculates."""
    port = where.rpartition(":")[2]
    how = ["--no-speculation"] if draft is None else ["--draft", str(draft), "--tree", "chain:3"]
    command = [sys.executable, "-m", "specops", "serve", "--port", port, "--target", str(target), *how]
    command += ["--threads", "1", "--served-model-name", "tiny"]
    with daemon(command, url=f"http://{where}", ready="/health", log=log) as up:
        yield up


@contextmanager
def stub_pool(answer_s: float = 0.0) -> Iterator[str]:
    """A server that answers every request after `answer_s` seconds."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            time.sleep(answer_s)
            self.send_response(200)
            self.send_header("Content-Length", "12")
            self.end_headers()
            self.wfile.write(b"data: [DONE]")

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def guard(up: Deployment, *options: str) -> Iterator[Daemon]:
    """`specops guard run`."""
    command = [sys.executable, "-m", "specops", "guard", "run", str(up.file), "--out", str(up.run), *options]
    with daemon(command, url=up.guard_url, ready="/health", log=up.folder / "guard.log") as running:
        yield running


@dataclass
class Load:
    """Clients that ask the router one request after the other, each caller by a key of its own."""

    url: str
    clients: int = 4
    pause_s: float = 0.02
    ended: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=(one,)) for one in range(self.clients)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _ask(self, client: int) -> None:
        asked = 0
        while not self._stop.is_set():
            asked += 1
            self._one(f"{client}-{asked}")
            time.sleep(self.pause_s)

    def _one(self, key: str) -> None:
        body = {"model": "tiny", "prompt": PROMPT, "max_tokens": 32, "stream": True, "temperature": 0}
        request = urllib.request.Request(
            f"{self.url}/v1/completions",
            json.dumps(body).encode(),
            {"Authorization": f"Bearer {key}", "Content-Type": "application/json"},
        )
        route = None
        try:
            with DIRECT.open(request, timeout=30) as answer:
                route = answer.headers["X-Specops-Route"]
                whole = answer.read().rstrip().endswith(b"data: [DONE]")
        except (OSError, HTTPException, ValueError) as error:  # ValueError: a chunk without its length
            self.failures.append(f"cut short on {route}" if route else f"not answered: {error}")
            return
        if whole:
            self.ended[route] += 1
        else:
            self.failures.append(f"cut short on {route}")
