"""The engine's process and the connection to it: what goes wrong before the first request, and just after."""

from __future__ import annotations

import asyncio
import multiprocessing
import signal
import subprocess
import sys
import time

import pytest

from specops.engine import Sampling
from specops.serve.admission import Refusal
from specops.serve.engine_loop import EngineLoop, Job
from specops.serve.engine_worker import EngineLoad, Ready
from specops.serve.metrics import ServerMetrics
from specops.serve.worker_process import Worker

LOADING = """
import os, time
from specops.serve.engine_worker import in_process

def break_off():
    raise LookupError("no such layer")

def die():
    os._exit(1)

def load_for_long():
    try:
        print("loading", flush=True)
        time.sleep(600)
    finally:
        print("cleaned up", flush=True)

for make in (break_off, die):
    try:
        with in_process(make, []):
            print("ready")
    except Exception as error:
        print(type(error).__name__, error, flush=True)
for _ in range(2):
    try:
        with in_process(load_for_long, []):
            print("ready")
    except SystemExit as left:
        print("left with", left.code, flush=True)
"""


def test_an_engine_that_does_not_load() -> None:
    """An error that nobody foresaw, a process that dies, SIGTERM and Ctrl-C: in a program of its own, which
    forks before it has threads."""
    command = [sys.executable, "-c", LOADING]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "RuntimeError LookupError: no such layer\n"
        died = (
            "ServerError could not load the engine: its process ended without a message; "
            "the kernel may have killed it for its memory\n"
        )
        assert process.stdout.readline() == died
        assert process.stdout.readline() == "loading\n"
        process.send_signal(signal.SIGTERM)
        assert [process.stdout.readline() for _ in range(2)] == ["cleaned up\n", "left with 143\n"]
        assert process.stdout.readline() == "loading\n"
        time.sleep(0.5)  # so that it waits for the engine's process, which was the quicker one
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert out == "cleaned up\n"
    assert err.splitlines()[-1] == "KeyboardInterrupt"
    assert "LookupError" not in err


def test_a_request_to_a_worker_that_has_just_died_is_told_so() -> None:
    """Before the event loop has heard of it."""

    async def ask() -> None:
        ours, theirs = multiprocessing.Pipe()
        worker = Worker(ours, Ready(16, EngineLoad()), join=lambda: None)
        loop = EngineLoop([worker], ServerMetrics("tiny", speculative=False), capacity=1)
        loop.start()
        theirs.close()
        with pytest.raises(Refusal) as refused, loop.generation([Job([1], Sampling())]) as generation:
            await generation.next()
        assert refused.value.status == 500
        assert loop.failure == "its process has ended"
        with pytest.raises(Refusal) as refused, loop.generation([Job([1], Sampling())]):
            pass
        assert refused.value.status == 503
        await loop.stop()

    asyncio.run(ask())
