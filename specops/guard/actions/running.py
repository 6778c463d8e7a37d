"""Commands of the rollout file: no shell, a time limit, and never two of one guard at a time, also where the
guard that started the first was killed and the command went on."""

from __future__ import annotations

import fcntl
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from specops.errors import EnvironmentFailure
from specops.guard.actions import holding

LOCK = "commands.lock"
POLL_S = 0.05
GRACE_S = 5.0


class Commands:
    def __init__(self, folder: Path) -> None:
        """`folder`: the guard's."""
        self._path = folder / LOCK

    def run(self, words: Sequence[str], timeout_s: float) -> str:
        """What it prints on standard output. Raises EnvironmentFailure where it fails, cannot be started, or
        is not done in time; then it and what it started are ended."""
        said = shlex.join(words)
        try:
            return self._run(words, said, timeout_s)
        except (OSError, ValueError) as error:  # ValueError: a word with a zero byte
            why = getattr(error, "strerror", None) or error
            raise EnvironmentFailure(
                f"could not run {said}: {why}", hint=f"it takes {self._path.parent} and room for its output"
            ) from error

    def _run(self, words: Sequence[str], said: str, timeout_s: float) -> str:
        deadline = time.monotonic() + timeout_s
        # Files take its output: a pipe would end the command when the guard is killed.
        with (
            self._lock(said, deadline) as lock,
            tempfile.TemporaryFile() as out,
            tempfile.TemporaryFile() as errors,
        ):
            process = subprocess.Popen(
                [sys.executable, "-I", holding.__file__, str(lock.fileno()), *words],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=errors,
                pass_fds=(lock.fileno(),),
                start_new_session=True,
            )
            try:
                code = process.wait(max(deadline - time.monotonic(), POLL_S))
            except subprocess.TimeoutExpired:
                _end(process)
                raise EnvironmentFailure(
                    f"the command {said} was not done after {timeout_s:g} s, and was ended",
                    hint="allow it more with the action's timeout_s",
                ) from None
            printed = _text(out)
            if code:
                last = (_text(errors) or printed).strip().splitlines()[-3:]
                raise EnvironmentFailure(
                    f"the command {said} failed with exit code {code}", hint="; ".join(last) or None
                )
            return printed

    @contextmanager
    def _lock(self, said: str, deadline: float) -> Iterator[IO[str]]:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a") as lock:
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        raise EnvironmentFailure(
                            f"could not run {said}: a command of an earlier guard is still running",
                            hint="wait for it, or end it",
                        ) from None
                    time.sleep(POLL_S)
            yield lock


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


def _end(process: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_S)
            return
