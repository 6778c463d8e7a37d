"""Files that decide where traffic goes: only the guard's own user may have written them."""

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
    found = os.fstat(descriptor)
    if found.st_uid != os.geteuid():
        raise FileError(
            f"{path} belongs to user {found.st_uid}, expected {os.geteuid()}, the user of this process",
            hint=f"sudo chown {os.geteuid()} {shlex.quote(str(path))}  # after a look at who wrote it",
        )
    if found.st_mode & WRITABLE:
        raise FileError(
            f"{path} has mode {stat.S_IMODE(found.st_mode):04o}: others may write to it, expected {MODE:04o}",
            hint=f"chmod {MODE:o} {shlex.quote(str(path))}  # after a look at what it says",
        )


def created(path: Path) -> int:
    """A descriptor of a new, empty file at `path`, with `MODE`. A file that was there before is removed."""
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, MODE)
    os.fchmod(descriptor, MODE)
    return descriptor
