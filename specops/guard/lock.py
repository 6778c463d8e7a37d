"""One guard at a time for each run folder and for each thing that is switched, and how to reach the one that
runs.

The lock is the kernel's and ends with its process, however that ends. Its file says who holds it: the
process, and where that takes a person's override. The file is its owner's alone, since the token in it lets
one override.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import secrets
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from specops.errors import EnvironmentFailure, FileError
from specops.hints import ROLLOUT, listing
from specops.owned_file import check_owned

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
            f"could not open the guard's lock {path}: {error.strerror}; this user must be able to write it",
            hint=listing(folder),
        ) from error
    try:
        check_owned(path, descriptor)
        if not _acquire(descriptor):
            holder = _read(path)
            who = f"pid {holder.pid}" if holder else "its pid is not known"
            raise EnvironmentFailure(
                f"another guard of {folder} is running ({who}); stop it first, or override through it",
                hint=f"specops guard status {ROLLOUT}",
            )
        _write(descriptor, Holder(os.getpid()))
        yield Lock(descriptor)
    finally:
        os.close(descriptor)  # not removed: another may be waiting for this very file


@contextmanager
def alone(switched: Sequence[str]) -> Iterator[None]:
    """Hold the right to switch each of these, on this machine. Raises EnvironmentFailure where another guard
    has it, whatever folder or user it runs from.

    Each is a socket in Linux's abstract namespace: not a file, whose folder and owner could differ, and it
    ends with its process.
    """
    with ExitStack() as held:
        for name in sorted(set(switched)):
            lock_socket = held.enter_context(socket.socket(socket.AF_UNIX))
            address = f"\0specops-guard-{hashlib.sha256(name.encode()).hexdigest()[:32]}"
            if not _bound(lock_socket, address):
                raise EnvironmentFailure(
                    f"another guard on this machine switches {name} ({_peer(address)}); stop it first, or "
                    "override through it, with the --out that it was started with",
                    hint="ps -eo pid,user,args | grep 'specops [g]uard'",
                )
        yield


def _bound(lock_socket: socket.socket, address: str) -> bool:
    deadline = time.monotonic() + LOOK_S
    while True:
        try:
            lock_socket.bind(address)
            lock_socket.listen(1)
            return True
        except OSError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() > deadline:
                return False
            time.sleep(LOOK_S / 10)


def _peer(address: str) -> str:
    """Whoever listens at `address`, as the kernel knows it."""
    try:
        with socket.socket(socket.AF_UNIX) as asking:
            asking.settimeout(LOOK_S)
            asking.connect(address)
            credentials = asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    except OSError:
        return "its pid is not known"
    pid, uid, _ = struct.unpack("3i", credentials)
    return f"pid {pid}, user {uid}"


def holder(folder: Path, name: str = LOCK) -> Holder | None:
    """Return who holds the lock; None where nobody does."""
    path = folder / name
    try:
        descriptor = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise FileError(
            f"could not read the guard's lock {path}: {error.strerror}; run this as the guard's user",
            hint=listing(path),
        ) from error
    try:
        # A shared lock: two processes that ask at once must not take each other for a guard.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read(path)
    finally:
        os.close(descriptor)
    return None


def _acquire(descriptor: int) -> bool:
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
