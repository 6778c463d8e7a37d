"""Runs a Python program in a process that has its imports already, because it is forked from one that has.

    python forked.py -m MODULE ARGUMENT…     as `python -m MODULE ARGUMENT…`, quicker to start
    python forked.py SCRIPT ARGUMENT…        as `python SCRIPT ARGUMENT…`, quicker to start
    python forked.py --serve SOCKET SCRIPT   the process to fork from: it runs SCRIPT, which imports, and waits

A test starts the last one with `fork_server`. The first two look for its socket in the variable `FORK_SERVER`;
without it they run the program as usual, in their own process. Only the standard library is used here, so that
any virtual environment's Python can run this file.

What is the same as without a fork: arguments, environment, working folder, standard streams, exit code, and the
signals in `FORWARDED`. What differs:

- The program runs in a session of its own, so its processes are not in the process group of the command. A signal
  to the command is sent to the program's whole group; when the command ends, that whole group is killed.
- Variables that are read while modules are imported keep the values that they had in the process to fork from.

Leftovers: the fork server ends, and kills what it forked, when its standard input closes. That is a pipe which the
test process holds open, so it closes as well when the test process is killed.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import resource
import runpy
import selectors
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

VARIABLE = "FORK_SERVER"
OFF = "NO_FORK_SERVER"
FORWARDED = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
UP_S = 180.0
LOST = 70
"""Exit code of a command whose fork server ended."""
_LENGTH = struct.Struct("!I")
_STATUS = struct.Struct("!i")


@contextlib.contextmanager
def fork_server(
    python: Path, script: Path, environment: Mapping[str, str], log: Path
) -> Iterator[dict[str, str]]:
    """Run a fork server until the block ends; yield the variables with which commands find it.

    The server runs under `python`, imports what `script` imports, and writes its output to `log`. Yields no
    variables, and starts nothing, where the variable `NO_FORK_SERVER` is set or the system lacks pidfd_open.
    Raises RuntimeError when the server does not come up.
    """
    if os.environ.get(OFF) or not hasattr(os, "pidfd_open"):
        yield {}
        return
    folder = Path(tempfile.mkdtemp(prefix="fork-"))  # short: a socket's path has at most 107 bytes
    path = folder / "socket"
    words = [str(python), __file__, "--serve", str(path), str(script)]
    with log.open("wb") as output:
        server = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            env=os.environ | environment,
            start_new_session=True,
        )
    assert server.stdin is not None
    try:
        deadline = time.monotonic() + UP_S
        while not path.exists():
            if server.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the fork server is not up: {log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.05)
        yield {VARIABLE: str(path)}
    finally:
        server.stdin.close()
        server.wait()
        shutil.rmtree(folder)


def main(words: list[str]) -> None:
    if words[0] == "--serve":
        words = _serve(Path(words[1]), words[2])  # returns in forked processes only
    elif path := os.environ.get(VARIABLE):
        _ask(path, words)
    _become(words)


def _become(words: list[str]) -> None:
    """Run the program of `words` in this process, which then ends as the program does."""
    if words[0] == "-m":
        sys.argv = words[1:]
        sys.path[0] = os.getcwd()
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = words
        sys.path[0] = str(Path(words[0]).resolve().parent)
        runpy.run_path(words[0], run_name="__main__")


def _ask(path: str, words: Sequence[str]) -> None:
    """Have the fork server run `words`; end this process as that program ended."""
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(path)
        for number in FORWARDED:
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, lambda number, _: server.send(bytes([number])))
        asked = {"words": list(words), "folder": os.getcwd(), "environment": dict(os.environ)}
        body = json.dumps(asked).encode()
        socket.send_fds(server, [_LENGTH.pack(len(body))], [0, 1, 2])
        server.sendall(body)
        answer = server.recv(_STATUS.size, socket.MSG_WAITALL)
    if len(answer) < _STATUS.size:
        print("the fork server has ended", file=sys.stderr, flush=True)
        os._exit(LOST)
    code = os.waitstatus_to_exitcode(_STATUS.unpack(answer)[0])
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with contextlib.suppress(OSError, ValueError):  # SIGKILL has no handler to reset
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def _serve(path: Path, script: str) -> list[str]:
    """Fork a process for each connection until standard input closes; return the words in the forked process."""
    runpy.run_path(script)
    gc.collect()
    gc.freeze()  # so that collections in forked processes leave shared pages alone
    running: dict[int, tuple[int, socket.socket]] = {}  # by pidfd
    with selectors.DefaultSelector() as selector, socket.socket(socket.AF_UNIX) as listener:
        unfinished = path.with_name("unfinished")
        listener.bind(str(unfinished))
        listener.listen()
        unfinished.rename(path)  # it is there once it accepts
        selector.register(0, selectors.EVENT_READ)
        selector.register(listener, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                source = key.fileobj
                if source == 0:
                    for pid, _ in running.values():
                        _kill(pid, signal.SIGKILL)
                    sys.exit()
                elif source is listener:
                    connection, _ = listener.accept()
                    asked, streams = _received(connection)
                    pid = os.fork()
                    if pid == 0:
                        selector.close()
                        listener.close()
                        connection.close()
                        for other_fd, (_, other) in running.items():
                            os.close(other_fd)
                            other.close()
                        return _adopted(asked, streams)
                    for stream in streams:
                        os.close(stream)
                    pidfd = os.pidfd_open(pid)
                    running[pidfd] = pid, connection
                    selector.register(pidfd, selectors.EVENT_READ)
                    selector.register(connection, selectors.EVENT_READ, pidfd)
                elif source in running:
                    pid, connection = running.pop(source)
                    status = os.waitpid(pid, 0)[1]
                    _kill(pid, signal.SIGKILL)  # what it left behind
                    with contextlib.suppress(BrokenPipeError):
                        connection.sendall(_STATUS.pack(status))
                    selector.unregister(source)
                    os.close(source)
                    with contextlib.suppress(KeyError):
                        selector.unregister(connection)
                    connection.close()
                elif key.data in running:
                    pid, connection = running[key.data]
                    try:
                        numbers = connection.recv(16)
                    except ConnectionResetError:
                        numbers = b""
                    for number in numbers or [signal.SIGKILL]:
                        _kill(pid, number)
                    if not numbers:  # the command was killed
                        selector.unregister(connection)


def _received(connection: socket.socket) -> tuple[dict[str, object], list[int]]:
    head, streams, _, _ = socket.recv_fds(connection, _LENGTH.size, 3)
    body = b""
    while len(body) < _LENGTH.unpack(head)[0]:
        body += connection.recv(2**16)
    return json.loads(body), streams


def _adopted(asked: dict[str, object], streams: list[int]) -> list[str]:
    os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    return asked["words"]


def _kill(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, number)


if __name__ == "__main__":
    main(sys.argv[1:])
