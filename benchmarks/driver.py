"""How exact the load driver is, and what it costs: `python benchmarks/driver.py`.

A stub process streams chunks at 50 a second on 64 streams; each chunk carries the instant at which it was
written. The driver measures the stub as it measures any endpoint, and its figures are held against those
instants: the error of TTFT (against the server's own time to its first chunk) and of each chunk gap, once
all streams are open, and the driver's CPU time for a chunk, parsing included.

With `--guidellm PYTHON`, the interpreter of a venv that has GuideLLM 0.8.1, that tool drives the same stub
in the same run. Its start-up is taken out: its CPU time is the slope between a short and a long run.

Both processes read CLOCK_MONOTONIC through `time.perf_counter`, which is one clock on Linux only.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import random
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from aiohttp import ClientSession, web

from specops.load.arrivals import Level
from specops.load.client import Client
from specops.load.endpoint import Decoding, Endpoint
from specops.load.observation import Observation
from specops.load.pace import Pace
from specops.load.runner import run_cell, warm_up
from specops.load.workload import Prompt
from specops.progress import Silent

FIRST_CHUNK_S = 0.02
STREAMS, CHUNKS_PER_S, CHUNKS, WAVES = 64, 50, 100, 4


# the stub process


class Emitter:
    """Answers with chunks at even instants; streams are out of step with each other by design."""

    def __init__(self) -> None:
        self.requests = 0
        self.chunks = 0

    async def complete(self, request: web.Request) -> web.StreamResponse:
        received = time.perf_counter()
        body = await request.json()
        # the n-th stream lags by a step of the golden ratio, so that chunks of many streams do not coincide
        self.requests += 1
        phase = self.requests * 0.618034 % 1 / CHUNKS_PER_S
        response = web.StreamResponse()
        response.content_type = "text/event-stream"
        await response.prepare(request)
        count = body.get("max_tokens") or body.get("max_completion_tokens") or CHUNKS
        for number in range(count):
            due = received + FIRST_CHUNK_S + phase + number / CHUNKS_PER_S
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            text = f"{received!r} {time.perf_counter()!r}\n"
            await response.write(self._event(text, "length" if number == count - 1 else None))
        self.chunks += count
        usage = {"prompt_tokens": 8, "completion_tokens": count, "total_tokens": count + 8}
        await response.write(b"data: " + json.dumps(_shell([], usage)).encode() + b"\n\ndata: [DONE]\n\n")
        return response

    @staticmethod
    def _event(text: str, finish: str | None) -> bytes:
        choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish}
        return b"data: " + json.dumps(_shell([choice], None)).encode() + b"\n\n"

    async def count(self, _: web.Request) -> web.Response:
        return web.json_response(self.chunks)

    async def models(self, _: web.Request) -> web.Response:
        model = {"id": "stub", "object": "model", "created": 0, "owned_by": "stub"}
        return web.json_response({"object": "list", "data": [model]})

    async def health(self, _: web.Request) -> web.Response:
        return web.Response()

    async def serve(self) -> None:
        gc.disable()  # a collection between a chunk's stamp and its write would look like the driver's error
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self.complete)
        app.router.add_get("/v1/models", self.models)
        app.router.add_get("/health", self.health)
        app.router.add_get("/count", self.count)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        print(runner.addresses[0][1], flush=True)
        await asyncio.Event().wait()


def _shell(choices: list[dict[str, Any]], usage: dict[str, int] | None) -> dict[str, Any]:
    head = {"id": "stub", "object": "chat.completion.chunk", "created": 0, "model": "stub"}
    return head | {"choices": choices} | ({"usage": usage} if usage else {})


@contextmanager
def stub_process() -> Iterator[int]:
    process = subprocess.Popen([sys.executable, __file__, "--stub"], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline())
    finally:
        process.terminate()
        process.wait()


# the drivers


def prompts(waves: int) -> list[Prompt]:
    """`waves` for every stream, of unlike length: so streams keep out of step, as real ones do."""
    lengths = random.Random(0)
    return [
        Prompt(str(i), "all", "Go", lengths.randint(CHUNKS // 2, CHUNKS * 3 // 2))
        for i in range(STREAMS * waves)
    ]


async def drive(port: int) -> dict[str, float]:
    level, pace = Level(concurrency=STREAMS), Pace(None)
    async with Client(Endpoint(f"http://127.0.0.1:{port}/v1", "stub"), Decoding()) as client:
        short = [Prompt("w", "all", "Go", 5)]
        await warm_up(client, short, STREAMS, level, pace)
        before = time.process_time()
        cell = await run_cell(client, prompts(WAVES), level, 0, seed=0, pace=pace, progress=Silent())
        cpu = time.process_time() - before
    failed = [o.answer.failure for o in cell.observations if o.answer.failure]
    if failed:
        raise SystemExit(f"{len(failed)} of {len(cell.observations)} requests failed: {failed[0]}")
    return _errors(cell.observations) | _cost(cpu, sum(len(o.answer.chunks) for o in cell.observations))


def _errors(observations: tuple[Observation, ...]) -> dict[str, float]:
    """Absolute errors in milliseconds, of what came after the last of the first streams had opened."""
    by_start = sorted(observations, key=lambda o: o.sent)
    opened = by_start[STREAMS - 1].answer.chunks[0].at
    ttft, gaps = [], []
    for observation in observations:
        stamps = [[float(word) for word in line.split()] for line in observation.answer.text.splitlines()]
        arrived = [chunk.at for chunk in observation.answer.chunks]
        written = [stamp for _, stamp in stamps]
        if observation.sent > opened:
            ttft.append(abs((arrived[0] - observation.sent) - (written[0] - stamps[0][0])) * 1000)
        for (a, b), (c, d) in zip(pairwise(arrived), pairwise(written), strict=True):
            if a > opened:
                gaps.append(abs((b - a) - (d - c)) * 1000)
    return {
        f"{name}_error_{label}_ms": float(np.quantile(errors, q))
        for name, errors in (("ttft", ttft), ("gap", gaps))
        for label, q in (("p50", 0.5), ("p99", 0.99))
    }


def _cost(cpu_s: float, chunks: int) -> dict[str, float]:
    return {"chunks": chunks, "cpu_per_chunk_ms": cpu_s / chunks * 1000}


def guidellm(python: str, port: int) -> dict[str, float]:
    """CPU time for a chunk, from two runs that differ in their number of requests alone."""
    (short_cpu, short_chunks), (long_cpu, long_chunks) = (
        _guidellm_run(python, port, prompts(waves)) for waves in (1, 1 + WAVES)
    )
    return _cost(long_cpu - short_cpu, long_chunks - short_chunks)


def _guidellm_run(python: str, port: int, sent: Sequence[Prompt]) -> tuple[float, int]:
    """CPU seconds of GuideLLM and its workers, and the chunks that the stub wrote to it."""
    written = asyncio.run(_written(port))
    before = _children_cpu()
    with TemporaryDirectory() as folder:
        data = Path(folder) / "data.jsonl"
        lines = [{"prompt": prompt.content, "output_tokens_count": prompt.max_tokens} for prompt in sent]
        data.write_text("".join(json.dumps(line) + "\n" for line in lines))
        done = subprocess.run(
            [
                *(python, "-m", "guidellm", "run", "--disable-console"),
                *("--backend", f"kind=openai_http,target=http://127.0.0.1:{port},model=stub"),
                *("--profile", f"kind=concurrent,streams={STREAMS}"),
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
    return _children_cpu() - before, asyncio.run(_written(port)) - written


async def _written(port: int) -> int:
    async with ClientSession() as session, session.get(f"http://127.0.0.1:{port}/count") as response:
        return int(await response.json())


def _children_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--stub", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument(
        "--guidellm", type=Path, metavar="PYTHON", help="interpreter of a venv with GuideLLM 0.8.1"
    )
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.stub:
        asyncio.run(Emitter().serve())
        return
    with stub_process() as port:
        found: dict[str, dict[str, float]] = {"specops": asyncio.run(drive(port))}
        if options.guidellm:
            found["guidellm"] = guidellm(str(options.guidellm.absolute()), port)
            ratio = found["specops"]["cpu_per_chunk_ms"] / found["guidellm"]["cpu_per_chunk_ms"]
            found["specops"]["cpu_of_guidellm"] = ratio
    if options.json:
        print(json.dumps(found, indent=1))
        return
    print(f"{STREAMS} streams x {CHUNKS_PER_S} chunks/s")
    for tool, figures in found.items():
        for name, value in figures.items():
            print(f"  {tool:10} {name:24} {value:12,.3f}")


if __name__ == "__main__":
    main()
