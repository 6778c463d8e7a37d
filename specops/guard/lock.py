"""One guard at a time for each run folder, and how to reach the one that runs.

The lock is the kernel's and ends with its process, however that ends. Its file says who holds it: the
process, and where that takes a person's override. The file is its owner's alone, since the token in it lets
one override.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from specops.errors import EnvironmentFailure, FileError

LOCK = "lock"
LOOK_S = 0.5
"""How long `locked` tries: whoever asks for the holder has the lock for a moment."""


@dataclass(frozen=True)
class Holder:
    pid: int
    url: str | None = None
    """Where it serves; None of one that does not, such as `guard once`."""

    token: str = ""


class Lock:
    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def announce(self, url: str) -> Holder:
        """Say where the guard that holds it serves."""
        holder = Holder(os.getpid(), url, secrets.token_urlsafe(16))
        _write(self._descriptor, holder)
        return holder


@contextmanager
def locked(folder: Path, name: str = LOCK) -> Iterator[Lock]:
    """Hold the lock of the guard's `folder`. Raises EnvironmentFailure, with its pid, where another does."""
    path = folder / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise FileError(
            f"could not open the guard's lock {path}: {error.strerror}",
            hint="let this user write to the run folder",
        ) from error
    try:
        if not _taken(descriptor):
            holder = _read(path)
            who = f"pid {holder.pid}" if holder else "its pid is not known"
            raise EnvironmentFailure(
                f"another guard of {folder} is running ({who})",
                hint="`specops guard status ROLLOUT` shows it; stop it first, or override through it",
            )
        _write(descriptor, Holder(os.getpid()))
        yield Lock(descriptor)
    finally:
        os.close(descriptor)  # not removed: another may be waiting for this very file


def holder(folder: Path, name: str = LOCK) -> Holder | None:
    """Who holds the lock; None where nobody does."""
    path = folder / name
    try:
        descriptor = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise FileError(
            f"could not look at the guard's lock {path}: {error.strerror}",
            hint="run it as the user that runs the guard",
        ) from error
    try:
        # Shared: two who ask at once must not take each other for a guard.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read(path)
    finally:
        os.close(descriptor)
    return None


def _taken(descriptor: int) -> bool:
    deadline = time.monotonic() + LOOK_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
            time.sleep(LOOK_S / 10)


def _write(descriptor: int, held: Holder) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps(asdict(held)).encode(), 0)


def _read(path: Path) -> Holder | None:
    try:
        return Holder(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):  # it is being written
        return None
