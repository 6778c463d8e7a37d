"""Stands between specops and a server that it started, so that the server never outlives specops.

    python -m specops.launch.keeper GRACE_S COMMAND …

The server gets a process group of its own. Standard input is a pipe that specops holds open and never
writes to: when it closes, because specops is done or because specops was killed, with -9 too, the whole
group gets SIGTERM, and SIGKILL after GRACE_S seconds. Exits as the server did (128 + signal).

Standard output gets one line, the number of the server's group, for specops to end it should the keeper
itself be killed; what the server prints goes to standard error.

A parent-death signal would reach only the one process that was started, not the workers of its group.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading


def main() -> int:
    grace_s, command = float(sys.argv[1]), sys.argv[2:]
    server = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=sys.stderr, stderr=sys.stderr, start_new_session=True
    )
    with contextlib.suppress(BrokenPipeError):  # killed already; standard input says so too
        os.write(1, f"{server.pid}\n".encode())
    threading.Thread(target=_stop_at_end_of_input, args=(server, grace_s), daemon=True).start()
    code = server.wait()
    _signal_group(server.pid, signal.SIGKILL)  # workers that it left behind
    return code if code >= 0 else 128 - code


def _stop_at_end_of_input(server: subprocess.Popen[bytes], grace_s: float) -> None:
    while os.read(0, 4096):
        pass
    _signal_group(server.pid, signal.SIGTERM)
    try:
        server.wait(grace_s)
    except subprocess.TimeoutExpired:
        _signal_group(server.pid, signal.SIGKILL)


def _signal_group(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):  # it has ended by itself
        os.killpg(group, number)


if __name__ == "__main__":
    sys.exit(main())
