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
        │   ├── NotFinite         a model's logits have a NaN or an infinity
        │   └── HubError          the hub does not answer, or gives no access
        └── FileError             a result is damaged, a disk is full, a file is not there

The message is one sentence that says what was being done and what went wrong; the hint says what to do.
"""

from __future__ import annotations

import errno
import os
import re
import socket
import sys
from enum import IntEnum
from importlib.util import find_spec
from pathlib import Path

WITH_TORCH = ("engine", "serve", "kernels", "edge", "dev")
"""Extras that need PyTorch."""

CPU_TORCH = "pip install torch --index-url https://download.pytorch.org/whl/cpu"
"""The command that installs PyTorch for CPUs. On Linux, PyPI's has gigabytes of CUDA."""

_GPU_DEVICES = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")
"""What the drivers of NVIDIA, of AMD, and of Windows for its Linux show."""


def install_command(extra: str, *more: str) -> str:
    """The command that adds an extra, and `more` packages, to this installation of specops: for a checkout
    that was installed as editable, the checkout's own. On Linux without a GPU it installs PyTorch for CPUs
    first."""
    package = Path(__file__).parent
    packed = (package / "_assets").is_dir()  # as in a wheel
    requirement = f"'specops[{extra}]'" if packed else f"-e '{package.parent}[{extra}]'"
    command = " ".join(["pip install", requirement, *more])
    without_gpu = sys.platform == "linux" and not any(Path(device).exists() for device in _GPU_DEVICES)
    if extra in WITH_TORCH and without_gpu and find_spec("torch") is None:
        return f"{CPU_TORCH} && {command}"
    return command


_ERRNO = re.compile(r"\[Errno (\d+)\]")
_NO_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG")
"""What OpenSSL says of an answer without TLS."""


def reason_of(error: BaseException) -> str:
    """Return why the system or the network refused something: one event has one wording in all messages."""
    causes = _causes(error)
    for cause in causes:
        number = getattr(cause, "errno", None)
        written = _ERRNO.search(str(cause))
        if not isinstance(number, int) or number <= 0:
            number = int(written[1]) if written else None
        if number == errno.ECONNREFUSED:
            return "nothing listens there"
        if getattr(cause, "reason", None) in _NO_TLS:
            return "it does not use TLS: write http:// in place of https://"
        if (refused := getattr(cause, "verify_message", None)) is not None:
            return f"its certificate is not accepted: {refused}"
        if getattr(cause, "library", None) == "SSL":
            return f"TLS failed: {str(getattr(cause, 'reason', '')).replace('_', ' ').lower()}"
        if isinstance(cause, socket.gaierror):
            return "its name is not known"
        if isinstance(cause, UnicodeDecodeError):
            return "it is not text in UTF-8"
        if isinstance(cause, TimeoutError):
            return "it did not answer in time"
        if number is not None:
            return os.strerror(number)
    return str(error) or type(error).__name__


def _causes(error: BaseException) -> list[BaseException]:
    """The exception and what led to it, the innermost first. Libraries wrap an OSError in their own."""
    causes: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in causes:
        causes.append(current)
        inner = (
            getattr(current, "os_error", None),
            getattr(current, "reason", None),
            current.__cause__,
            current.__context__,
        )
        current = next((candidate for candidate in inner if isinstance(candidate, BaseException)), None)
    return causes[::-1]


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


class HubError(ModelError):
    pass


class FileError(EnvironmentFailure):
    pass
