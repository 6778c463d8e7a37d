"""Runs a Python program in a process that has its imports already, because it is forked from one that has.

    python forked.py -m MODULE ARGUMENT…     does what `python -m MODULE ARGUMENT…` does, and starts sooner
    python forked.py SCRIPT ARGUMENT…        does what `python SCRIPT ARGUMENT…` does, and starts sooner
    python forked.py --serve SOCKET SCRIPT   is the fork server: runs SCRIPT for its imports, and waits

`fork_server` starts the last one for a test. The first two find its socket in the variable `FORK_SERVER`.
Without that variable they run the program in their own process, as usual. This file uses the standard library
only, so that the Python of any virtual environment can run it.

The program gets the command's arguments, environment, working folder and standard streams. The command gets
the program's exit code, or the signal that ended it. Two things differ from a program that is not forked:

- The program runs in a process group of its own, not in the command's. The fork server passes the signals in
  `FORWARDED` on to that group. It kills the group when the program ends or when the command is killed.
- A variable that a module reads while it is imported keeps the value that the fork server has.

The fork server kills what it has forked, and ends, when its standard input closes. The test process holds
that pipe open, so this happens too when the test process is killed.
"""

from __future__ import annotations

import contextlib
import ctypes
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
from typing import NamedTuple

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
LOST = 70
"""Exit code of a command whose fork server has ended."""
UP_S = 300.0
_DIE_WITH_PARENT = 1
"""PR_SET_PDEATHSIG of prctl(2): the program must not survive a fork server that is killed."""
_LENGTH = struct.Struct("!I")
_STATUS = struct.Struct("!i")


@contextlib.contextmanager
def fork_server(
    python: Path, script: Path, environment: Mapping[str, str], log: Path
) -> Iterator[dict[str, str]]:
    """Run a fork server until the block ends. Yields the variables by which commands find it.

    The server runs `script` under `python`, with `environment` added to the variables of this process. Its
    output goes to `log`. Yields no variables and starts nothing where `NO_FORK_SERVER` is set, or where the
    system has no pidfd_open (it is Linux's). Raises RuntimeError when the server does not come up.
    """
    if os.environ.get(OFF) or not hasattr(os, "pidfd_open"):
        yield {}
        return
    folder = Path(tempfile.mkdtemp(prefix="fork-"))  # not pytest's: a socket's path has at most 107 bytes
    path = folder / "socket"
    with log.open("wb") as output:
        server = subprocess.Popen(
            [str(python), __file__, "--serve", str(path), str(script)],
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
        shutil.rmtree(folder, ignore_errors=True)  # the server removes it, unless it did not come up


def main(words: list[str]) -> None:
    if words[0] == "--serve":
        words = _serve(Path(words[1]), words[2])  # returns in forked processes only
    elif path := os.environ.get(VARIABLE):
        request(path, words)
    _run(words)


def _run(words: list[str]) -> None:
    """Run the program of `words` in this process."""
    if words[0] == "-m":
        sys.argv = words[1:]
        sys.path[0] = str(Path.cwd())
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = words
        sys.path[0] = str(Path(words[0]).resolve().parent)
        runpy.run_path(words[0], run_name="__main__")


class Program(NamedTuple):
    """A program to run, as a command requests it."""

    words: list[str]
    folder: str
    environment: dict[str, str]


def request(path: str, words: Sequence[str]) -> None:
    """Have the fork server run `words`, and end this process as that program ends."""
    with socket.socket(socket.AF_UNIX) as server:
        try:
            server.connect(path)
            body = json.dumps(Program(list(words), str(Path.cwd()), dict(os.environ))).encode()
            socket.send_fds(server, [_LENGTH.pack(len(body))], [0, 1, 2])
            server.sendall(body)
            for number in FORWARDED:
                if signal.getsignal(number) != signal.SIG_IGN:
                    signal.signal(number, lambda number, _: server.send(bytes([number])))
            answer = server.recv(_STATUS.size, socket.MSG_WAITALL)
        except OSError:
            answer = b""
    if len(answer) < _STATUS.size:
        print("the fork server has ended", file=sys.stderr, flush=True)
        os._exit(LOST)
    code = os.waitstatus_to_exitcode(_STATUS.unpack(answer)[0])
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


class Child(NamedTuple):
    """A forked program: its process, which leads its group, and the connection of its command."""

    pid: int
    command: socket.socket


def _serve(path: Path, script: str) -> list[str]:
    """Fork a process for each connection until standard input closes. Returns, in that process, its words."""
    runpy.run_path(script)
    threads = len(os.listdir("/proc/self/task"))  # noqa: PTH208 (those of libraries too)
    assert threads == 1, f"{threads} threads: a forked process would have one of them, and the locks of all"
    gc.collect()
    gc.freeze()  # a collection in a forked process would write to pages that are shared otherwise
    children: dict[int, Child] = {}  # by pidfd
    with selectors.DefaultSelector() as selector, socket.socket(socket.AF_UNIX) as listener:
        early = path.with_name("early")
        listener.bind(str(early))
        listener.listen()
        early.rename(path)  # so that a socket which is there accepts
        selector.register(0, selectors.EVENT_READ)
        selector.register(listener, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj == 0:
                    for child in children.values():
                        _kill(child, signal.SIGKILL)
                    shutil.rmtree(path.parent)
                    os._exit(0)
                elif key.fileobj is listener:
                    command = listener.accept()[0]
                    received = _received(command)
                    if received is None:
                        command.close()
                        continue
                    program, streams = received
                    pid = os.fork()
                    if pid == 0:
                        os.setpgid(0, 0)
                        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
                        for child_fd, child in children.items():
                            os.close(child_fd)
                            child.command.close()
                        command.close()
                        _adopt(program, streams)
                        return program.words
                    with contextlib.suppress(ProcessLookupError, PermissionError):  # it has done so itself
                        os.setpgid(pid, pid)  # here too: a signal may come before it has
                    for stream in streams:
                        os.close(stream)
                    pidfd = os.pidfd_open(pid)
                    children[pidfd] = Child(pid, command)
                    selector.register(pidfd, selectors.EVENT_READ)
                    selector.register(command, selectors.EVENT_READ, pidfd)
                elif key.fileobj in children:
                    child = children.pop(key.fd)
                    selector.unregister(key.fd)
                    with contextlib.suppress(KeyError):
                        selector.unregister(child.command)
                    _kill(child, signal.SIGKILL)  # processes that it left behind; itself waits to be reaped
                    status = os.waitpid(child.pid, 0)[1]
                    with contextlib.suppress(OSError), child.command:
                        child.command.sendall(_STATUS.pack(status))
                    os.close(key.fd)
                elif (child := children.get(key.data)) and child.command is key.fileobj:
                    numbers = _signals(child.command)
                    for number in numbers:
                        _kill(child, number)
                    if not numbers:  # the command was killed
                        _kill(child, signal.SIGKILL)
                        selector.unregister(child.command)


def _received(command: socket.socket) -> tuple[Program, list[int]] | None:
    """The program and the standard streams that `command` sends; None when it ends before that."""
    head, streams, _, _ = socket.recv_fds(command, _LENGTH.size, 3)
    body = b""
    if len(head) == _LENGTH.size:
        body = command.recv(_LENGTH.unpack(head)[0], socket.MSG_WAITALL)
    if not body or len(body) < _LENGTH.unpack(head)[0]:
        for stream in streams:
            os.close(stream)
        return None
    return Program(*json.loads(body)), streams


def _signals(command: socket.socket) -> bytes:
    """The numbers of the signals that `command` got; none when it has ended."""
    try:
        return command.recv(16)
    except ConnectionResetError:
        return b""


def _adopt(program: Program, streams: Sequence[int]) -> None:
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(program.folder)
    os.environ.clear()
    os.environ.update(program.environment)


def _kill(child: Child, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, number)


if __name__ == "__main__":
    main(sys.argv[1:])
