"""An actor of Ray on one node, and the process that it starts there for each errand.

The actor holds the node's devices, or some of its GPUs, and runs errands one by one. Ray carries this module
to the node by value, so that it can report a node without specops. So the module itself imports the standard
library alone, and the actor receives and returns bytes.

    python -m specops.phases.sweep.ray_testbed

measures one errand. It reads a pickled `Task` from standard input and writes what `measure_job` returns to
standard output, each record pickled behind its length; a SpecopsError that ended it is the last. When
standard input closes, because specops is done with it or because the worker or the node died, it stops its
server and ends. It is a process of its own because a worker of Ray that ends kills its children with SIGKILL.
The process that stops the server must not be one of them.
"""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, BinaryIO, Literal

if TYPE_CHECKING:
    from specops.load.settings import BaselineSettings
    from specops.load.workload import Prompt
    from specops.phases.sweep.ray_executor import Record, ServerRun

MODULE = "specops.phases.sweep.ray_testbed"
LENGTH_BYTES = 4
"""Number of bytes of a record's length, big-endian, before it."""

TAIL_BYTES = 2000
END_S = 20.0
"""Longer than `STOP_S`."""

STOP_S = 15.0
"""Longest time to stop a server in; longer than its keeper's grace."""

NodeMessage = tuple[Literal["record"], bytes] | tuple[Literal["over", "died"], str]


@dataclass(frozen=True)
class NodeRequirements:
    """Requirements on a node that serves any of the settings. Relative paths are meant from `folder`."""

    specops: str
    """The version that specops has here."""

    folder: str
    paths: Sequence[str] = ()
    programs: Sequence[str] = ()


class Testbed:
    __test__ = False  # pytest takes the name for a test's

    def __init__(self, needs: NodeRequirements) -> None:
        self._needs = needs
        self._folder = needs.folder if Path(needs.folder).is_dir() else None
        self._process: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes] | None = None

    def introduce(self) -> tuple[str, str | None]:
        """The GPUs that Ray gave it, such as 0,1, and why no errand can be run here, in words that follow the
        machine's name; None where one can."""
        return os.environ.get("CUDA_VISIBLE_DEVICES", ""), self._lacks()

    def _lacks(self) -> str | None:
        ask = [sys.executable, "-c", "from specops import __version__; print(__version__)"]
        completed = subprocess.run(
            ask, cwd=self._folder, env=environment(), capture_output=True, text=True, check=False
        )
        version = completed.stdout.strip()
        if version != self._needs.specops:
            has = f"has specops {version}" if version else f"has no specops that {sys.executable} imports"
            return f"{has}, and this machine has {self._needs.specops}"
        missing = [path for path in self._needs.paths if not Path(self._needs.folder, path).exists()]
        missing += [f"program {name}" for name in self._needs.programs if shutil.which(name) is None]
        return f"has no {', no '.join(missing)}" if missing else None

    def begin(self, task: bytes) -> NodeMessage:
        """Starts on an errand, and waits for the first that it says."""
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  until the errand is over
        self._process = subprocess.Popen(
            [sys.executable, "-m", MODULE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            cwd=self._folder,
            env=environment(),
            start_new_session=True,
        )
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it ended at once; `next` says of what
            self._process.stdin.write(task)
            self._process.stdin.flush()
        return self.next()

    def next(self) -> NodeMessage:
        """Waits for the errand's next record, pickled, or for its end."""
        assert self._process is not None
        assert self._process.stdout is not None
        length = self._process.stdout.read(LENGTH_BYTES)
        if len(length) == LENGTH_BYTES:
            size = int.from_bytes(length)
            body = self._process.stdout.read(size)
            if len(body) == size:
                return "record", body
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(END_S)  # it is on its way out, and to be left alone
        self.end()
        self._process.stdout.close()
        code, last = self._process.returncode, self._last_words()
        return ("died", f"the measuring process ended with {code}: {last}") if code else ("over", "")

    def end(self) -> None:
        """Has the errand stop its server, if there is one, and waits for that."""
        if self._process is None:
            return
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _last_words(self) -> str:
        assert self._errors is not None
        with self._errors as errors:
            errors.seek(0)
            lines = errors.read()[-TAIL_BYTES:].decode(errors="replace").split("\n")
        return next((line for line in reversed(lines) if line.strip()), "it printed nothing")


def environment() -> dict[str, str]:
    """The node's, without the OMP_NUM_THREADS that Ray sets in its workers: a server on Ray computes with as
    many threads as it does elsewhere. One that the node's owner set is the raylet's too, and stays."""
    try:
        owners = Path(f"/proc/{os.getppid()}/environ").read_bytes().split(b"\0")
    except OSError:
        return dict(os.environ)
    retained = any(entry.startswith(b"OMP_NUM_THREADS=") for entry in owners)
    return {name: value for name, value in os.environ.items() if retained or name != "OMP_NUM_THREADS"}


@dataclass(frozen=True)
class Task:
    """One errand, and all that its process needs."""

    errand: ServerRun
    machine: str
    requests: BaselineSettings
    prompts: Sequence[Prompt]


def main() -> None:
    """Measure the errand on standard input."""
    # Ray blocks Ctrl-C in its workers, and what they start inherits that.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with os.fdopen(os.dup(1), "wb") as records:
        os.dup2(2, 1)  # what anything prints must not come between the records
        task: Task = pickle.load(sys.stdin.buffer)
        threading.Thread(target=_stop_at_end_of_input, daemon=True).start()
        _measure(task, records)


def _measure(task: Task, records: BinaryIO) -> None:
    from specops.errors import SpecopsError
    from specops.phases.sweep.measure import measure_job

    def send(record: Record) -> None:
        body = pickle.dumps(record)
        records.write(len(body).to_bytes(LENGTH_BYTES) + body)
        records.flush()

    with tempfile.TemporaryDirectory(prefix="specops-") as logs:
        try:
            measure_job(
                task.errand.job,
                task.errand.turn,
                machine=task.machine,
                requests=task.requests,
                prompts=task.prompts,
                logs=Path(logs),
                keep=send,
            )
        except SpecopsError as error:
            send(error)


def _stop_at_end_of_input() -> None:
    while os.read(0, 4096):
        pass
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
    time.sleep(STOP_S)
    os._exit(1)


if __name__ == "__main__":
    main()
