"""Every error that a user can cause or meet, in one tree.

    SpecopsError
    ├── UsageError                exit 2: a command, a rollout file or prompts that are wrong
    │   ├── ConfigError           a rollout file
    │   ├── PromptsError          a prompt set
    │   └── LosslessError         a verifier got a tree that it would verify wrongly
    └── EnvironmentFailure        exit 3: the world outside did not do its part
        ├── EndpointError         an endpoint is down, refuses, or speaks nonsense
        ├── ServerError           a server that specops started did not come up, or died
        ├── ModelError            a model folder that cannot be loaded
        │   └── NotFinite         a model's logits have a NaN or an infinity
        └── FileError             a result is damaged, a disk is full, a file is not there

The message is one sentence that says what was being done and what went wrong; the hint says what to do.
"""

from __future__ import annotations

from enum import IntEnum
from pathlib import Path


def install_command(extra: str, *more: str) -> str:
    """The command that adds an extra, and `more` packages, to this installation of specops: for a checkout
    that was installed as editable, the checkout's own."""
    package = Path(__file__).parent
    packed = (package / "_assets").is_dir()  # as in a wheel
    what = f"'specops[{extra}]'" if packed else f"-e '{package.parent}[{extra}]'"
    return " ".join(["pip install", what, *more])


class Exit(IntEnum):
    """Exit codes of every command."""

    YES = 0
    NO = 1
    USAGE = 2
    ENVIRONMENT = 3
    UNDECIDED = 4


class Stopped(KeyboardInterrupt):
    """Ctrl-C or SIGTERM ended work of which something is saved.

    path: the file of partial results; None: the phase that was running saved none.
    finished: phases of a walk that ended before, with their results in `folder`.
    printed: partial results are on stdout, too; the command does not resume, and begins anew.
    """

    def __init__(
        self,
        path: Path | None,
        finished: tuple[str, ...] = (),
        folder: Path | None = None,
        *,
        printed: bool = False,
    ) -> None:
        super().__init__(str(path or folder))
        self.path = path
        self.finished = finished
        self.folder = folder
        self.printed = printed


class SpecopsError(Exception):
    exit_code: Exit = Exit.ENVIRONMENT

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(SpecopsError):
    exit_code = Exit.USAGE


class ConfigError(UsageError):
    pass


class PromptsError(UsageError):
    pass


class LosslessError(UsageError):
    pass


class EnvironmentFailure(SpecopsError):
    exit_code = Exit.ENVIRONMENT


class EndpointError(EnvironmentFailure):
    pass


class ServerError(EnvironmentFailure):
    """log: the last lines of the server's log, indented; "" where specops has none. They are printed below
    the message. A result keeps the message alone."""

    def __init__(self, message: str, hint: str | None = None, *, log: str = "") -> None:
        super().__init__(message, hint)
        self.log = log

    def __str__(self) -> str:
        return f"{self.message}; its log ends with:\n{self.log}" if self.log else self.message


class ModelError(EnvironmentFailure):
    pass


class NotFinite(ModelError):
    pass


class FileError(EnvironmentFailure):
    pass
