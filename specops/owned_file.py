"""Files that decide something: which only this user may have written, and which others may have put there."""

from __future__ import annotations

import os
import shlex
import stat
from pathlib import Path

from specops.errors import FileError

MODE = 0o640
"""Whatever the umask is: a daemon often has none."""

WRITABLE = stat.S_IWGRP | stat.S_IWOTH


def check_owned(path: Path, descriptor: int) -> None:
    """Raises FileError where the open file belongs to another user, or where others may write to it."""
    info = os.fstat(descriptor)
    if info.st_uid != os.geteuid():
        raise FileError(
            f"{path} belongs to user {info.st_uid}, expected {os.geteuid()}, the user of this process",
            hint=f"sudo chown {os.geteuid()} {shlex.quote(str(path))}  # after a look at who wrote it",
        )
    if info.st_mode & WRITABLE:
        raise FileError(
            f"{path} has mode {stat.S_IMODE(info.st_mode):04o}: others may write to it, expected {MODE:04o}",
            hint=f"chmod {MODE:o} {shlex.quote(str(path))}  # after a look at what it says",
        )


def read_file(path: Path) -> bytes:
    """The bytes of a regular file. A FIFO or a device is not waited for. Raises FileError; FileNotFoundError
    where there is none."""
    try:
        # Without O_NONBLOCK, opening a FIFO waits for whoever writes to it.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise FileError(f"could not read {path}: {error.strerror}", hint=_look(path)) from error
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        kind = "a folder" if stat.S_ISDIR(mode) else "a FIFO or a device"
        raise FileError(f"{path} is {kind}: expected a file", hint=_look(path))
    with os.fdopen(descriptor, "rb") as file:
        return file.read()


def check_evidence(path: Path) -> None:
    """Raises FileError where the file at `path` may be anybody's: it belongs to neither this user, nor root,
    nor the owner of its folder; or all may write to it, or replace it."""
    file, folder = path.stat(), path.parent.stat()
    if file.st_uid not in (os.geteuid(), 0, folder.st_uid):
        raise FileError(
            f"{path} belongs to user {file.st_uid}: expected you, root, or the owner of its folder",
            hint=f"sudo chown {os.geteuid()} {shlex.quote(str(path))}  # after a look at who wrote it",
        )
    for place, mode in ((path, file.st_mode), (path.parent, folder.st_mode)):
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            raise FileError(
                f"{place} has mode {stat.S_IMODE(mode):04o}: all users may write to it, so what it says"
                " proves nothing",
                hint=f"chmod o-w {shlex.quote(str(place))}  # after a look at what it says",
            )


def _look(path: Path) -> str:
    return f"ls -ld {shlex.quote(str(path))}"


def created(path: Path) -> int:
    """A descriptor of a new, empty file at `path`, with `MODE`. A file that was there before is removed."""
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, MODE)
    os.fchmod(descriptor, MODE)
    return descriptor
