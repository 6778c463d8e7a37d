"""NGINX, Prometheus and Alertmanager as the system has them, on loopback, stopped whatever happens.

A program that is not installed is a skip with its reason; in CI it is a failure.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

UP_S = 60.0
DOWN_S = 10.0


def program(name: str) -> str:
    """Where `name` is installed: in the virtual environment, or on the machine."""
    folders = (str(Path(sys.executable).parent), os.environ.get("PATH", ""), "/usr/sbin", "/sbin")
    found = shutil.which(name, path=":".join(folders))
    if found is None:
        reason = f"{name} is not installed"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    return found


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@dataclass(frozen=True)
class Daemon:
    url: str
    process: subprocess.Popen[bytes]
    log: Path

    def signal(self, number: int) -> None:
        self.process.send_signal(number)


@contextmanager
def daemon(command: Sequence[str], *, url: str, ready: str, log: Path) -> Iterator[Daemon]:
    """`command` is up once `url` + `ready` answers, whatever the status; its output goes to `log`."""
    with log.open("ab") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
    try:
        wait_until(lambda: answers(url + ready) or _ended(process, log), f"{command[0]} to answer", UP_S)
        yield Daemon(url, process, log)
    finally:
        stop(process)


def stop(process: subprocess.Popen[bytes]) -> None:
    """Its whole group: first asked, then killed."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(DOWN_S)
        except ProcessLookupError:
            break
        except subprocess.TimeoutExpired:
            continue
    process.wait()


def answers(url: str) -> bool:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        opener.open(url, timeout=2).close()
    except urllib.error.HTTPError as error:
        error.close()
        return True
    except OSError:
        return False
    return True


def wait_until(true: Callable[[], object], what: str, timeout_s: float = 10.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < deadline, f"waited {timeout_s:g} s for {what}"
        time.sleep(0.05)


def _ended(process: subprocess.Popen[bytes], log: Path) -> bool:
    assert process.poll() is None, log.read_text(errors="replace")[-2000:]
    return False


@contextmanager
def nginx(config: Path, prefix: Path, *, url: str, ready: str = "/") -> Iterator[Daemon]:
    """`config` as the main configuration; `url` is one of its servers'. SIGHUP reloads it."""
    command = [program("nginx"), "-p", str(prefix), "-c", str(config), "-e", "stderr", "-g", "daemon off;"]
    with daemon(command, url=url, ready=ready, log=prefix / "nginx.log") as up:
        yield up


@contextmanager
def prometheus(config: Path, folder: Path, *arguments: str) -> Iterator[Daemon]:
    """With its data in `folder`/data, where blocks that were made beforehand may lie."""
    port = free_port()
    command = [
        program("prometheus"),
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--web.enable-lifecycle",
        *arguments,
    ]
    url = f"http://127.0.0.1:{port}"
    with daemon(command, url=url, ready="/-/ready", log=folder / "prometheus.log") as up:
        wait_until(lambda: _ready(f"{url}/-/ready"), "Prometheus to be ready", UP_S)
        yield up


@contextmanager
def alertmanager(config: Path, folder: Path) -> Iterator[Daemon]:
    port = free_port()
    command = [
        program("prometheus-alertmanager"),
        f"--config.file={config}",
        f"--storage.path={folder / 'alertmanager'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--cluster.listen-address=",
    ]
    url = f"http://127.0.0.1:{port}"
    with daemon(command, url=url, ready="/-/ready", log=folder / "alertmanager.log") as up:
        wait_until(lambda: _ready(f"{url}/-/ready"), "Alertmanager to be ready", UP_S)
        yield up


def _ready(url: str) -> bool:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        opener.open(url, timeout=2).close()
    except OSError:
        return False
    return True
