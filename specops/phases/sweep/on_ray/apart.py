"""Measures one errand in a process of its own, which a testbed starts on its node.

    python -m specops.phases.sweep.on_ray.apart

Reads a pickled `Task` from standard input and writes what `measure_job` keeps to standard output, each
record pickled behind its length; a SpecopsError that ended it is the last. When standard input closes,
because specops is done with it or because the worker or the node died, it stops its server and ends.

A process of its own, since a worker of Ray that ends kills its children with SIGKILL: the server's keeper,
which stops the server, must not be one of them.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from specops.errors import SpecopsError
from specops.load.settings import BaselineSettings
from specops.load.workload import Prompt
from specops.phases.sweep.measure import measure_job
from specops.phases.sweep.on_ray.sharing import Errand
from specops.phases.sweep.on_ray.testbed import LENGTH_BYTES
from specops.phases.sweep.records import FailedJob, SweptCell

STOP_S = 15.0
"""Longest time to stop a server in; longer than the keeper's grace."""

Record = SweptCell | FailedJob | SpecopsError


@dataclass(frozen=True)
class Task:
    errand: Errand
    machine: str
    asked: BaselineSettings
    prompts: Sequence[Prompt]


def main() -> None:
    # Ray blocks Ctrl-C in its workers, and what they start inherits that.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with os.fdopen(os.dup(1), "wb") as records:
        os.dup2(2, 1)  # what anything prints must not come between the records
        task: Task = pickle.load(sys.stdin.buffer)
        threading.Thread(target=_stop_at_end_of_input, daemon=True).start()
        _measure(task, records)


def _measure(task: Task, records: BinaryIO) -> None:
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
                asked=task.asked,
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
