"""How exact the load driver is, and what it costs: `python benchmarks/driver.py`.

A stub process streams chunks at 50 a second; each chunk carries the instants at which its request had
arrived in the stub's kernel and at which it was written. The driver measures the stub as it measures any
endpoint, and its figures are held against those instants: the error of TTFT (against the stub's own time to
its first chunk) and of each chunk gap, and the driver's CPU time for a chunk, parsing included.

Three cases: 64 streams out of step with each other, and 16 and 64 streams in step: all start in the same
instant, and their chunks come in the same instants. In step the whole client is late at once, or not at all.

With `--guidellm PYTHON`, the interpreter of a venv that has GuideLLM 0.8.1, that tool drives the same stub
in the same run. Its start-up is taken out of its CPU time, the slope between a short and a long run.

What the machine did is said too: how late the stub itself wrote its chunks, how long what had arrived waited
to be read, and the share of the CPUs' time that others took.

Both processes read CLOCK_MONOTONIC through `time.perf_counter`, which is one clock on Linux only.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import random
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar
from urllib.request import urlopen

import numpy as np

from specops.load.arrivals import Level, Pace
from specops.load.client import Client
from specops.load.connection import StampedSocket
from specops.load.request_times import Observation
from specops.load.runner import run_cell, warm_up
from specops.load.settings import Decoding, Endpoint
from specops.load.workload import Prompt
from specops.progress import SilentProgress

FIRST_CHUNK_S = 0.032
CHUNKS_PER_S, CHUNKS, WAVES = 50, 100, 4
GAP_S = 1 / CHUNKS_PER_S


@dataclass(frozen=True)
class Case:
    name: str
    streams: int
    in_step: bool


CASES = (Case("out of step", 64, False), Case("in step", 16, True), Case("in step", 64, True))


# the stub process


class Emitter(asyncio.BufferedProtocol):
    """One connection of the stub. Without a framework, so that it is rarely late."""

    requests = 0
    chunks = 0
    late: ClassVar[list[float]] = []

    def __init__(self, sock: StampedSocket, in_step: bool) -> None:
        self._socket = sock
        self._in_step = in_step
        self._buffer = memoryview(bytearray(64 * 1024))
        self._request = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._request += bytes(self._buffer[:nbytes])
        head, end, body = self._request.partition(b"\r\n\r\n")
        fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:] if b": " in line)
        if not end or len(body) < int(fields.get(b"content-length", 0)):
            return
        self._request = b""
        self._answer(head.split(b" ")[1], body, self._socket.arrived)

    def _answer(self, path: bytes, body: bytes, received: float) -> None:
        if path == b"/v1/chat/completions":
            asked = json.loads(body)
            self._stream(asked.get("max_tokens") or asked.get("max_completion_tokens") or CHUNKS, received)
        elif path == b"/count":
            self._whole([Emitter.chunks, sorted(Emitter.late)])
            Emitter.late = []
        elif path == b"/v1/models":
            model = {"id": "stub", "object": "model", "created": 0, "owned_by": "stub"}
            self._whole({"object": "list", "data": [model]})
        else:
            self._whole({})

    def _whole(self, value: Any) -> None:
        text = json.dumps(value).encode()
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n"
        self._transport.write(head.encode() + text)

    def _stream(self, count: int, received: float) -> None:
        Emitter.requests += 1
        if self._in_step:  # on a grid that all streams share
            first = (received + FIRST_CHUNK_S) // GAP_S * GAP_S
        else:  # the n-th stream lags by a step of the golden ratio, so that chunks do not coincide
            first = received + FIRST_CHUNK_S + Emitter.requests * 0.618034 % 1 * GAP_S
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        loop = asyncio.get_running_loop()

        def emit(number: int) -> None:
            now = time.perf_counter()
            Emitter.late.append(now - first - number * GAP_S)
            choice = {"index": 0, "delta": {"content": f"{received!r} {now!r}\n"}, "finish_reason": None}
            last = number == count - 1
            event = _event([choice | {"finish_reason": "length" if last else None}], None)
            if last:
                event += _event(
                    [], {"prompt_tokens": 8, "completion_tokens": count, "total_tokens": count + 8}
                )
                event += _chunk(b"data: [DONE]\n\n") + _chunk(b"")
                Emitter.chunks += count
            else:
                loop.call_later(first + (number + 1) * GAP_S - now, emit, number + 1)
            self._transport.write(event if number else head + event)

        loop.call_later(first - time.perf_counter(), emit, 0)


def _chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def _event(choices: list[dict[str, Any]], usage: dict[str, int] | None) -> bytes:
    shell = {"id": "stub", "object": "chat.completion.chunk", "created": 0, "model": "stub"}
    event = shell | {"choices": choices} | ({"usage": usage} if usage else {})
    return _chunk(b"data: " + json.dumps(event).encode() + b"\n\n")


async def serve(in_step: bool) -> None:
    gc.disable()  # a collection between a chunk's stamp and its write would look like the driver's error
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0), backlog=256) as listener:
        listener.setblocking(False)
        print(listener.getsockname()[1], flush=True)
        while True:
            accepted, _ = await loop.sock_accept(listener)
            sock = StampedSocket(fileno=accepted.detach())
            sock.setblocking(False)
            sock.stamp()
            await loop.connect_accepted_socket(lambda sock=sock: Emitter(sock, in_step), sock)


@contextmanager
def stub_process(in_step: bool) -> Iterator[int]:
    command = [sys.executable, __file__, "--stub", *(["--in-step"] if in_step else [])]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline())
    finally:
        process.terminate()
        process.wait()


# the drivers


def prompts(case: Case, waves: int) -> list[Prompt]:
    """`waves` for every stream; of unlike length where streams are out of step, as real ones are."""
    lengths = random.Random(0)
    span = (CHUNKS, CHUNKS) if case.in_step else (CHUNKS // 2, CHUNKS * 3 // 2)
    return [Prompt(str(i), "all", "Go", lengths.randint(*span)) for i in range(case.streams * waves)]


async def drive(port: int, case: Case) -> dict[str, float]:
    level, pace = Level(concurrency=case.streams), Pace(None)
    _stub_counts(port)
    async with Client(Endpoint(f"http://127.0.0.1:{port}/v1", "stub"), Decoding()) as client:
        short = [Prompt("w", "all", "Go", 5)]
        await warm_up(client, short, case.streams, level, pace)
        before, jiffies = time.process_time(), _jiffies()
        cell = await run_cell(
            client, prompts(case, WAVES), level, 0, seed=0, pace=pace, progress=SilentProgress()
        )
        cpu, passed = time.process_time() - before, _jiffies() - jiffies
    failed = [o.answer.failure for o in cell.observations if o.answer.failure]
    if failed:
        raise SystemExit(f"{len(failed)} of {len(cell.observations)} requests failed: {failed[0]}")
    _, late = _stub_counts(port)
    delays = [delay for o in cell.observations for delay in o.delays]
    lags = [o.first_sent - o.scheduled for o in cell.observations]
    machine = {
        **_quantiles("stub_late", late, (0.5, 0.95)),
        **_quantiles("read_delay", delays, (0.5, 0.95)),
        **_quantiles("client_lag", lags, (0.5, 0.95)),
        "cpu_idle_share": passed[0] / passed[1],
        "cpu_stolen_share": passed[2] / passed[1],
    }
    cost = _cost(cpu, sum(len(o.answer.chunks) for o in cell.observations))
    return _errors(cell.observations, case) | cost | machine


def _errors(observations: Sequence[Observation], case: Case) -> dict[str, float]:
    """Absolute errors in milliseconds. Out of step, of what came after the first streams had all opened."""
    by_start = sorted(observations, key=lambda o: o.sent)
    opened = 0.0 if case.in_step else by_start[case.streams - 1].answer.chunks[0].time_s
    true, ttft, gaps = [], [], []
    for observation in observations:
        stamps = [[float(word) for word in line.split()] for line in observation.answer.text.splitlines()]
        arrived = [chunk.time_s for chunk in observation.answer.chunks]
        written = [stamp for _, stamp in stamps]
        if observation.sent > opened:
            true.append(written[0] - stamps[0][0])
            ttft.append(abs((arrived[0] - observation.sent) - true[-1]))
        for (a, b), (c, d) in zip(pairwise(arrived), pairwise(written), strict=True):
            if a > opened:
                gaps.append(abs((b - a) - (d - c)))
    return {
        **_quantiles("ttft_true", true, (0.5,)),
        **_quantiles("ttft_error", ttft, (0.5, 0.95, 0.99)),
        **_quantiles("gap_error", gaps, (0.5, 0.95, 0.99)),
    }


def _quantiles(name: str, seconds: Sequence[float], quantiles: Sequence[float]) -> dict[str, float]:
    return {f"{name}_p{q * 100:g}_ms": float(np.quantile(seconds, q)) * 1000 for q in quantiles}


def _cost(cpu_s: float, chunks: int) -> dict[str, float]:
    return {"chunks": chunks, "cpu_per_chunk_ms": cpu_s / chunks * 1000}


def _jiffies() -> np.ndarray[Any, np.dtype[np.int64]]:
    """Of all CPUs since the start: idle, whatever it was, and stolen by other guests."""
    fields = np.array(Path("/proc/stat").read_text().splitlines()[0].split()[1:9], dtype=np.int64)
    return np.array([fields[3] + fields[4], fields.sum(), fields[7]])


def guidellm(python: str, port: int, case: Case) -> dict[str, float]:
    """CPU time for a chunk, from two runs that differ in their number of requests alone, and its own TTFT."""
    short_cpu, short_chunks, _ = _guidellm_run(python, port, case, prompts(case, 1))
    long_cpu, long_chunks, ttft = _guidellm_run(python, port, case, prompts(case, 1 + WAVES))
    return ttft | _cost(long_cpu - short_cpu, long_chunks - short_chunks)


def _guidellm_run(
    python: str, port: int, case: Case, sent: Sequence[Prompt]
) -> tuple[float, int, dict[str, float]]:
    """CPU seconds of GuideLLM and its workers, the chunks that the stub wrote to it, and the TTFT it read."""
    written, _ = _stub_counts(port)
    before = _children_cpu()
    with TemporaryDirectory() as folder:
        data = Path(folder) / "data.jsonl"
        lines = [{"prompt": prompt.content, "output_tokens_count": prompt.max_tokens} for prompt in sent]
        data.write_text("".join(json.dumps(line) + "\n" for line in lines))
        done = subprocess.run(
            [
                *(python, "-m", "guidellm", "run", "--disable-console"),
                *("--backend", f"kind=openai_http,target=http://127.0.0.1:{port},model=stub"),
                *("--profile", f"kind=concurrent,streams={case.streams}"),
                *("--constraint", f"kind=max_requests,count={len(sent)}"),
                *("--data", f"kind=json_file,path={data}"),
                *("--output", f"kind=json,path={folder}/report.json"),
            ],
            capture_output=True,
            text=True,
            cwd=folder,
        )
        if done.returncode:
            raise SystemExit(f"GuideLLM failed:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
        metrics = json.loads((Path(folder) / "report.json").read_text())["benchmarks"][0]["metrics"]
    read = metrics["time_to_first_token_ms"]["successful"]["percentiles"]
    ttft = {f"ttft_read_{label}_ms": float(read[label]) for label in ("p50", "p95", "p99")}
    return _children_cpu() - before, _stub_counts(port)[0] - written, ttft


def _stub_counts(port: int) -> tuple[int, list[float]]:
    """The chunks that the stub has written, and how late it wrote each since the last call."""
    with urlopen(f"http://127.0.0.1:{port}/count") as response:
        chunks, late = json.load(response)
    return chunks, late


def _children_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--stub", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--in-step", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument(
        "--guidellm", type=Path, metavar="PYTHON", help="interpreter of a venv with GuideLLM 0.8.1"
    )
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.stub:
        asyncio.run(serve(options.in_step))
        return
    found: dict[str, dict[str, dict[str, float]]] = {}
    for case in CASES:
        with stub_process(case.in_step) as port:
            tools = found.setdefault(f"{case.streams} streams {case.name}", {})
            tools["specops"] = asyncio.run(drive(port, case))
            if options.guidellm:
                tools["guidellm"] = guidellm(str(options.guidellm.absolute()), port, case)
                ratio = tools["specops"]["cpu_per_chunk_ms"] / tools["guidellm"]["cpu_per_chunk_ms"]
                tools["specops"]["cpu_of_guidellm"] = ratio
    if options.json:
        print(json.dumps(found, indent=1))
        return
    for name, tools in found.items():
        print(f"{name} x {CHUNKS_PER_S} chunks/s")
        for tool, figures in tools.items():
            for figure, value in figures.items():
                print(f"  {tool:10} {figure:24} {value:12,.3f}")


if __name__ == "__main__":
    main()
