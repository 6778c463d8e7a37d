"""Servers: started, waited for until they answer, and stopped whatever happens; and any pool as one of them.

`running` is a context manager. Inside it the server is up; after it nothing of the server is left, also
when specops was interrupted or killed (keeper.py). `serving` is the same for a pool, which may run already,
and `contained` describes its container.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from specops.access import OPEN, Access
from specops.config import Deploy, Pool
from specops.errors import EnvironmentFailure, FileError, ServerError
from specops.hints import folder_state
from specops.progress import Progress
from specops.serving import ENGINES, Container, Startable

POLL_S = 0.05
ANSWER_S = 2.0
"""How long one health question may take before it is repeated."""
SETTLE_S = 1.0
"""A client sees a broken connection a moment before the server's end is known."""
TAIL_LINES = 8
NO_ANSWER = (OSError, http.client.HTTPException, ValueError, LookupError, TypeError)
"""What a server can do to the question which model it serves, besides answering it."""
SERVED_AS = "specops"
"""What a model is called wherever settings are compared: the same, so that requests are the same bytes."""


@dataclass(frozen=True)
class Server:
    """A server that answers. `base_url` is the API's root, with /v1."""

    base_url: str
    model: str
    group: int | None = None
    """Its process group; None for one that specops did not start."""

    ended: Callable[[], bool] = lambda: False
    """Whether its process has ended; of one that specops did not start, that is not known."""

    access: Access = OPEN


@contextmanager
def running(
    name: str,
    command: Sequence[str],
    *,
    address: Address,
    log: Path,
    progress: Progress,
    start_timeout_s: float = 180.0,
    grace_s: float = 10.0,
) -> Iterator[Server]:
    """Run `command` until the block ends; its output goes to the file `log`.

    The server is up once GET /health and GET /v1/models have answered at its address. Raises ServerError
    when it ends before the block does, or does not come up within `start_timeout_s` seconds.
    """
    words = [sys.executable, "-m", "specops.launch.keeper", str(grace_s), *command]
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        output = log.open("wb")
    except OSError as error:
        raise FileError(
            f"could not write the {name} server's log {log}: {error.strerror}",
            hint=folder_state(log.parent),
        ) from error
    with output:
        # A session of its own: Ctrl-C on the terminal reaches specops alone, which then ends the server.
        keeper = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=output, start_new_session=True
        )
    group: int | None = None
    try:
        group = _group(keeper)
        server = _wait_until_up(name, keeper, address, log, progress, start_timeout_s)
        yield replace(server, group=group, ended=lambda: keeper.poll() is not None)
        if keeper.poll() is not None:
            raise _ended(name, keeper, log, "while it was measured")
    except EnvironmentFailure as error:
        if not isinstance(error, ServerError) and _has_ended(keeper):
            raise _ended(name, keeper, log, "while it was measured") from error
        raise
    finally:
        _stop(keeper, group)


def _group(keeper: subprocess.Popen[bytes]) -> int | None:
    """The server's process group, in the one line that the keeper ever writes; None where it wrote none."""
    assert keeper.stdout is not None
    line = keeper.stdout.readline()
    return int(line) if line else None


def _wait_until_up(
    name: str,
    keeper: subprocess.Popen[bytes],
    address: Address,
    log: Path,
    progress: Progress,
    timeout_s: float,
) -> Server:
    progress.start(f"starting the {name} server", total=0)
    deadline = time.monotonic() + timeout_s
    missing = "it has not reported its address"
    while time.monotonic() < deadline:
        if keeper.poll() is not None:
            raise _ended(name, keeper, log, "before it was up")
        root = address.find_root(log)
        if root is not None:
            try:
                model = _ask(root)
            except NO_ANSWER as error:
                missing = f"{root} does not answer properly ({error})"
            else:
                progress.note(f"the {name} server is up: {model} on {root}")
                return Server(base_url=f"{root}/v1", model=model)
        time.sleep(POLL_S)
    raise ServerError(
        f"the {name} server was not up after {timeout_s:g} s: {missing}",
        hint=f"tail -n 50 {shlex.quote(str(log))}",
        log=tail(log),
    )


def _ask(root: str) -> str:
    """The first model's name, once /health is good; raises one of NO_ANSWER until then."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # never through a proxy
    key = os.environ.get("SPECOPS_API_KEY")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    with opener.open(f"{root}/health", timeout=ANSWER_S):
        pass
    models = urllib.request.Request(f"{root}/v1/models", headers=headers)
    with opener.open(models, timeout=ANSWER_S) as answer:
        return str(json.load(answer)["data"][0]["id"])


def _stop(keeper: subprocess.Popen[bytes], group: int | None) -> None:
    assert keeper.stdin is not None
    assert keeper.stdout is not None
    keeper.stdin.close()
    while keeper.poll() is None:
        with suppress(KeyboardInterrupt):  # a second Ctrl-C: the keeper's grace is bounded, so the wait is
            keeper.wait()
    with keeper.stdout:
        group = group or _group(keeper)  # it was not read yet where a Ctrl-C came at once
    if keeper.returncode < 0 and group:  # killed, so it could not end the server
        with suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)


def _has_ended(keeper: subprocess.Popen[bytes]) -> bool:
    try:
        keeper.wait(SETTLE_S)
    except subprocess.TimeoutExpired:
        return False
    return True


def _ended(name: str, keeper: subprocess.Popen[bytes], log: Path, when: str) -> ServerError:
    return ServerError(
        f"the {name} server ended {when}, with exit code {keeper.returncode}",
        hint=f"tail -n 50 {shlex.quote(str(log))}",
        log=tail(log),
    )


def tail(log: Path, lines: int = TAIL_LINES) -> str:
    """The last lines of a server's log that are not empty, indented."""
    with log.open(encoding="utf-8", errors="replace") as file:
        last = deque((line.rstrip() for line in file if line.strip()), maxlen=lines)
    return "\n".join(f"  {line}" for line in last) or "  (nothing)"


class Address(Protocol):
    def find_root(self, log: Path) -> str | None:
        """The server's root, such as http://127.0.0.1:8000; None while the log does not say it."""


@dataclass(frozen=True)
class LoggedAddress:
    """The first group of `pattern`, matched in the log line by line."""

    pattern: str

    def find_root(self, log: Path) -> str | None:
        match = re.search(self.pattern, log.read_text(encoding="utf-8", errors="replace"), re.MULTILINE)
        return match[1] if match else None


@dataclass(frozen=True)
class FixedAddress:
    root: str

    @classmethod
    def on(cls, port: int) -> FixedAddress:
        return cls(f"http://127.0.0.1:{port}")

    def find_root(self, log: Path) -> str | None:
        return self.root


def free_port() -> int:
    # Free now; another program may take it before the server does, which then says so in its log and ends.
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def serving(pool: Pool, name: str, *, model: str, log: Path, progress: Progress) -> Iterator[Server]:
    """The server of `pool`, which messages call `name`, for as long as the block lasts.

    An engine that lets specops choose serves its target as `model`. What a started server prints goes to the
    file `log`. Raises as `running` does, ConfigError for a program that is not there, and for settings that
    the engine does not have in the version that is.
    """
    if not isinstance(pool, Startable):
        assert pool.endpoint is not None
        yield Server(pool.endpoint.base_url, pool.endpoint.model, access=pool.endpoint.access)
        return
    port = free_port()
    start = pool.start(port, model)
    address = FixedAddress.on(port) if start.announced is None else LoggedAddress(start.announced)
    with running(
        name,
        start.words,
        address=address,
        log=log,
        progress=progress,
        start_timeout_s=start.timeout_s,
    ) as server:
        yield replace(server, model=start.model or server.model)


def check(pool: Pool, name: str) -> None:
    """Raise ConfigError where `serving` would raise it, without starting anything; UsageError where a secret
    of the pool, which messages call `name`, is not in the environment."""
    if isinstance(pool, Startable):
        pool.start(0, SERVED_AS)
    elif pool.endpoint is not None:
        pool.endpoint.access.credentials(name)


def contained(pool: Pool, deploy: Deploy, *, model: str, version: str | None) -> Container | str:
    """`pool` in a container, its model called `model` where the engine lets specops choose; a sentence where
    it has none.

    `version`: of the engine; None: the newest known. Raises ConfigError for settings that this version lacks.
    """
    if not isinstance(pool, Startable):
        assert pool.endpoint is not None
        return f"it runs already, at {pool.endpoint.base_url}"
    container = pool.container(deploy.port, model, version, deploy.drain_s)
    image = deploy.image or container.image
    if image is None:
        engine = ENGINES[pool.engine].title
        return f"{engine} has no published image; name one that holds it as deploy.image"
    for key, path in pool.models.items():
        if path.startswith(("/", ".", "~")) and not _mounted(path, deploy.model_folder):
            return f"{key} {path} would not be in them; name a folder that holds it as deploy.model_folder"
    return replace(container, image=image, gpus=container.gpus if deploy.gpus is None else deploy.gpus)


def _mounted(path: str, folder: str | None) -> bool:
    return folder is not None and Path(path).is_relative_to(folder) and ".." not in Path(path).parts
