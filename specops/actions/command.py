"""Commands of one's own: one sets, one prints what is set."""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from specops.actions import locked_command
from specops.actions.action import ENABLED, PERCENT, Action, Site, Target, Words
from specops.errors import EnvironmentFailure
from specops.hints import in_rollout
from specops.quantities import Seconds

LOCK = "commands.lock"
POLL_S = 0.05
GRACE_S = 5.0


class Commands:
    def __init__(self, folder: Path) -> None:
        """`folder`: the guard's."""
        self._path = folder / LOCK

    def run(self, words: Sequence[str], timeout_s: float) -> str:
        """Return what it prints on standard output. Raises EnvironmentFailure where it fails, cannot be
        started, or is not done in time; then it and what it started are ended."""
        command = shlex.join(words)
        try:
            return self._run(words, command, timeout_s)
        except (OSError, ValueError) as error:  # ValueError: a word with a zero byte
            why = getattr(error, "strerror", None) or error
            raise EnvironmentFailure(
                f"could not run {command}: {why}; it needs {self._path.parent} and room for its output",
                hint=f"df -h {shlex.quote(str(self._path.parent))} /tmp",
            ) from error

    def _run(self, words: Sequence[str], command: str, timeout_s: float) -> str:
        deadline = time.monotonic() + timeout_s
        # Files take its output: a pipe would end the command when the guard is killed.
        with (
            self._lock(command, deadline) as lock,
            tempfile.TemporaryFile() as out,
            tempfile.TemporaryFile() as errors,
        ):
            process = subprocess.Popen(
                [sys.executable, "-I", locked_command.__file__, str(lock.fileno()), *words],
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
                    f"the command {command} timed out after {timeout_s:g} s and was ended",
                    hint=in_rollout("timeout_s", "raise it, in this action"),
                ) from None
            printed = _text(out)
            if code:
                last = (_text(errors) or printed).strip().splitlines()[-3:]
                raise EnvironmentFailure(
                    f"the command {command} failed with exit code {code}"
                    + (f": {'; '.join(last)}" if last else "")
                )
            return printed

    @contextmanager
    def _lock(self, command: str, deadline: float) -> Iterator[IO[str]]:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a") as lock:
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        raise EnvironmentFailure(
                            f"could not run {command}: a command of an earlier guard is still running; wait "
                            "for it, "
                            "or end it",
                            hint=f"ps -eo pid,etime,args | grep -e {shlex.quote(shlex.split(command)[0])}",
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


SWITCHED = {"true": 100, "on": 100, "false": 0, "off": 0}


class CommandAction(Action):
    """Your own commands, run without a shell."""

    kind: Literal["command"]
    set: Words = Field(
        description="Command that sets the percentage; one argument "
        "contains {percent} or {enabled} (true or false)."
    )
    read: Words = Field(
        description="Command whose last line is the current setting: 0 to 100, or true or false."
    )
    timeout_s: Seconds = Field(default=60.0, gt=0.0, description="Timeout of one command, in seconds.")

    @model_validator(mode="after")
    def _has_a_placeholder(self) -> CommandAction:
        if not any(PERCENT in word or ENABLED in word for word in self.set):
            raise PydanticCustomError(
                "action",
                "no word of set contains {percent} or {enabled}",
                {"advice": 'such as set: [switch, --speculative, "{percent}"]'},
            )
        return self

    @property
    def stepwise(self) -> bool:
        return any(PERCENT in word for word in self.set)

    @property
    def longest_s(self) -> float:
        return self.timeout_s

    def targets(self, site: Site) -> list[Target]:
        return [Command(self, site.commands)]


class Command(Target):
    tries = 1

    def __init__(self, action: CommandAction, commands: Commands) -> None:
        self.name = f"command {action.set[0]}"
        self._action = action
        self._commands = commands

    @property
    def identity(self) -> str:
        program, *words = self._action.set
        path = shutil.which(program)
        program = str(Path(path).resolve()) if path else program
        # os.path, since a word may be a script that is too long for a name.
        files = (os.path.realpath(word) if os.path.exists(word) else word for word in words)  # noqa: PTH110
        return f"command {shlex.join([program, *files])}"

    def read(self) -> int:
        return printed(self._commands, self._action.read, self._action.timeout_s)

    def set(self, percent: int) -> None:
        filled = {PERCENT: str(percent), ENABLED: "true" if percent else "false"}
        words = self._action.set
        for placeholder, value in filled.items():
            words = [word.replace(placeholder, value) for word in words]
        self._commands.run(words, self._action.timeout_s)


def printed(commands: Commands, words: Sequence[str], timeout_s: float) -> int:
    """The percentage that a command prints in its last line."""
    lines = commands.run(words, timeout_s).strip().splitlines()
    last = lines[-1].strip().lower() if lines else ""
    if last in SWITCHED:
        return SWITCHED[last]
    if last.isascii() and last.isdecimal() and int(last) <= 100:
        return int(last)
    raise EnvironmentFailure(
        f"could not read what is set: {words[0]} printed {last[:80]!r}: expected a whole number from 0 to "
        "100, "
        "or true or false, in the last line",
        hint=shlex.join(words),
    )
