"""Traces and ramps against servers: `baseline` and `ab` send each request when it is due."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Queue
from typing import Any

import pytest
from calling import specops
from comparing import SHORT, arms, asked, windows
from measuring import run
from pydantic import ValidationError
from stub import CHUNKS, Body, Reply, Stub, stream

from specops import results
from specops.load.answer import Answer, Failure
from specops.load.arrivals import Level
from specops.load.record import Cell, CellRecord
from specops.load.request_times import Objectives, Observation, behind_schedule
from specops.load.settings import BaselineSettings
from specops.phases.ab.document import document
from specops.phases.ab.measure import compare
from specops.phases.ab.settings import AbSettings
from specops.phases.baseline import measure
from specops.phases.baseline_document import document as baseline_document
from specops.progress import SilentProgress
from specops.render.report.document import Document
from specops.results import Result

FAST = SHORT.model_copy(update={"requests": 16})


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Twelve requests within 1.1 s, in bursts; their answers have 3 to 14 tokens."""
    path = tmp_path / "requests.jsonl"
    stamps = [0, 0, 0, 0, 500, 500, 500, 700, 900, 1000, 1000, 1100]
    rows = [{"timestamp": t, "input_length": 2 + n, "output_length": 3 + n} for n, t in enumerate(stamps)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def comparison(stubs: tuple[Stub, Stub], prompts: Path, settings: AbSettings = FAST, **chosen: Any) -> Result:
    requests = asked(prompts, same_prompts=False, **chosen)
    return compare(arms(*stubs), requests, settings, SilentProgress(), logs=prompts.parent / "logs")


def text_of(page: Document, title: str) -> str:
    return " ".join(next(section for section in page.sections if section.title == title).text)


def test_a_baseline_sends_each_request_when_it_is_due(stub: Stub, prompts_file: Path, trace: Path) -> None:
    result = run(stub, prompts_file, arrivals=f"trace:{trace}", trace_speed=2.0)
    (cell,) = (CellRecord.model_validate(cell) for cell in result.data["cells"])
    due = sorted(row.due_s for row in cell.rows)
    expected = [0, 0, 0, 0, 0.25, 0.25, 0.25, 0.35, 0.45, 0.5, 0.5, 0.55]
    assert [instant - due[0] for instant in due] == pytest.approx(expected, abs=1e-6)
    assert all(row.sent_s >= row.due_s for row in cell.rows)
    counted = [request["max_tokens"] for request in stub.requests if request["max_tokens"] != 8]
    assert sorted([*counted, 8]) == list(range(3, 15))  # a probe has 8 as well
    assert len({request["messages"][0]["content"] for request in stub.requests}) == len(stub.requests)
    assert cell.level == Level(rate=12.0, replay="the load of requests.jsonl at speed 2")
    assert result.data["replay"]["requests"] == 12
    assert result.data["by_concurrency"][0]["replay"] == cell.replay


def test_latencies_begin_when_a_request_was_due(stub: Stub, prompts_file: Path, trace: Path) -> None:
    """Of a client that is busy for 0.4 s: what users would have waited is not hidden."""
    blocked = []

    class Busy(SilentProgress):
        def request(self, *figures: Any) -> None:
            if not blocked:
                blocked.append(time.sleep(0.4))

    fields = {"base_url": stub.base_url, "model": "stub", "prompts": prompts_file, "warmup": 0, "repeats": 1}
    settings = BaselineSettings(**fields, arrivals=f"trace:{trace}", trace_speed=4.0)
    result = measure(settings, Busy())
    (cell,) = (CellRecord.model_validate(cell) for cell in result.data["cells"])
    late = [row for row in cell.rows if row.sent_s - row.due_s > 0.1]
    assert late
    for row in cell.rows:
        lag_ms = 1000 * (row.sent_s - row.due_s)
        assert row.e2e_ms == pytest.approx(row.e2e_with_retries_ms + lag_ms, abs=0.01)
        assert row.ttft_ms is None or row.ttft_ms >= lag_ms
    assert result.verdict == "undecided"
    assert "the client was late" in result.reason
    assert "limit: 1%, or one" in result.reason
    assert "the client was late" in text_of(baseline_document(result, Path("baseline.json")), "Replay")


def observed(lags: list[float], failure: str | None = None) -> list[Observation]:
    answer = Answer(failure=Failure(failure, "") if failure else None)
    return [Observation("p", "all", 10.0, 10.0 + lag, 10.0, 11.0, answer) for lag in lags]


@pytest.mark.parametrize(
    ("observations", "late"),
    [
        (observed([0.049] * 20), False),
        (observed([0.0] * 19 + [5.0]), False),
        (observed([0.0] * 18 + [0.051] * 2), True),
        (observed([0.0] * 298 + [0.051] * 2), False),
        (observed([0.0] * 296 + [0.051] * 4), True),
        (observed([0.0] * 18) + observed([0.0] * 2, "overrun"), True),
        (observed([0.0] * 18) + observed([0.0] * 2, "timeout"), False),
    ],
)
def test_a_window_with_late_requests_is_marked(observations: list[Observation], late: bool) -> None:
    assert (behind_schedule(observations) is not None) == late
    for replay, marked in (("a ramp", late), ("", False)):
        cell = Cell(Level(rate=1.0, replay=replay), 0, tuple(observations), True)
        assert (CellRecord.from_cell(cell, Objectives()).client_bound is not None) == marked


def test_both_arms_replay_the_same_windows(stub: Stub, other: Stub, prompts_file: Path, trace: Path) -> None:
    result = comparison((stub, other), prompts_file, arrivals=f"trace:{trace}")
    measured = windows(result)
    assert {window.kind for window in measured} == {"measured"}
    assert {window.level.replay for window in measured} == {"the load of requests.jsonl"}
    for first, second in zip(measured[::2], measured[1::2], strict=True):
        assert {first.arm, second.arm} == {"a", "b"}
        requests = [
            [
                (row.prompt, row.variant)
                for row in sorted(w.cell.rows, key=lambda row: (row.due_s, row.variant))
            ]
            for w in (first, second)
        ]
        assert requests[0] == requests[1]
        assert len(requests[0]) == 12
    sent = [
        Counter((request["messages"][0]["content"], request["max_tokens"]) for request in server.requests)
        for server in (stub, other)
    ]
    assert sent[0] == sent[1]
    page = document(result, Path("ab.json"))
    assert "12 requests in 1 s" in text_of(page, "Replay")


def test_a_replay_is_sent_whole_and_looked_at_once(stub: Stub, other: Stub, prompts_file: Path) -> None:
    """A part of a ramp is a lighter load: a yes after it would not be of the ramp."""
    settings = FAST.model_copy(update={"min_duration_s": 7.0, "looks": 4})
    result = comparison((stub, other), prompts_file, settings, arrivals="ramp:2-20/1s", seed=1)
    assert result.data["looks"] == {"done": 1, "planned": 1}
    assert len(windows(result)) == 2 * 4  # four times 1 s to each of two arms are over 7 s
    assert {len(window.cell.rows) for window in windows(result)} == {result.data["replay"]["requests"]}


def test_a_comparison_of_late_requests_gives_no_yes(
    stub: Stub, other: Stub, prompts_file: Path, trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The challenger is five times as fast; but the client did not send what the trace has."""
    monkeypatch.setattr("specops.load.record.client_bound", lambda _: None)  # of a busy machine

    def slow(body: Body) -> Reply:
        return Reply(stream(body, CHUNKS), first_s=0.05, gap_s=0.05)

    def fast(body: Body) -> Reply:
        return Reply(stream(body, CHUNKS), first_s=0.01, gap_s=0.01)

    stub.answer, other.answer = slow, fast
    settings = FAST.model_copy(update={"requests": 90, "failure_margin": 0.5, "answer_margin": 0.5})

    def judged() -> Result:
        replayed = {"arrivals": f"trace:{trace}", "trace_speed": 4.0}
        return comparison((stub, other), prompts_file, settings, **replayed)

    def wait_of(result: Result) -> dict[str, Any]:
        findings = result.data["challengers"]["b"]["findings"]
        return next(f for f in findings if f["claim"] == "wait" and f["traffic_class"] is None)

    monkeypatch.setattr("specops.load.request_times.REPLAY_LAG_S", 10.0)
    assert wait_of(judged())["cause"] != "client"
    monkeypatch.setattr("specops.load.request_times.REPLAY_LAG_S", 0.0)
    result = judged()
    assert wait_of(result)["verdict"] != "shown"
    assert result.verdict != "yes"
    page = document(result, Path("ab.json"))
    assert "such as: a: the client was late" in text_of(page, "Replay")


@pytest.mark.parametrize(
    "chosen",
    [
        {"arrivals": "ramp:1-2"},
        {"arrivals": "trace:x", "rate": 1.0},
        {"arrivals": "trace:x", "max_rps": 5.0},
        {"arrivals": "trace:x", "same_prompts": True},
        {"arrivals": "trace:x", "concurrency": [4]},
        {"arrivals": "ramp:1-2/1m", "trace_speed": 2.0},
        {"arrivals": "ramp:1-2/1m", "burstiness": 2.0},
        {"trace_for_s": 2.0},
    ],
)
def test_options_that_do_not_fit_a_replay_are_refused(chosen: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        BaselineSettings(**{"base_url": "http://h/v1", "model": "m"} | chosen)


def test_the_commands_take_a_trace(stub: Stub, prompts_file: Path, trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "baseline.json"
    words = [
        "baseline",
        "--base-url",
        stub.base_url,
        "--prompts",
        prompts_file,
        "--out",
        out,
        "--warmup",
        "0",
    ]
    words += ["--arrivals", f"trace:{trace}", "--trace-for", "0.8s"]
    words += ["--trace-speed", "4", "--repeats", "1"]
    done = specops(*map(str, words))
    assert "8 requests in 0 s" in done.stdout
    assert results.read(out).data["replay"]["speed"] == 4
    trace.write_text("no trace")
    refused = specops(*map(str, words))
    assert refused.returncode == 2
    assert "is not a trace: its first line is 'no trace'" in refused.stderr


def test_another_trace_at_the_same_path_is_another_measurement(
    stub: Stub, prompts_file: Path, trace: Path
) -> None:
    settings = BaselineSettings(
        base_url=stub.base_url, model="stub", prompts=prompts_file, arrivals=f"trace:{trace}"
    )
    before = settings.inputs(settings.prompt_set()), settings.plan()
    moved = trace.rename(trace.with_name("other.jsonl"))
    same = settings.model_copy(update={"arrivals": f"trace:{moved}"})
    assert (same.inputs(same.prompt_set()), same.plan()) == before
    moved.write_text(moved.read_text().replace("1100", "1200"))
    assert same.inputs(same.prompt_set()) != before[0]
    assert same.plan() != before[1]


REPLAYING = """
import asyncio, gc, resource, sys
from pathlib import Path
from specops.load import replay as replays
from specops.load.arrivals import Pace, Watch
from specops.load.settings import BaselineSettings
from specops.load.target_server import TargetServer
from specops.progress import SilentProgress

base_url, prompts, trace = sys.argv[1:]
settings = BaselineSettings(
    base_url=base_url, model="m", prompts=Path(prompts), arrivals=f"trace:{trace}", warmup=0
)
replays.MOST_REQUESTS = 500
replay = settings.replay(settings.prompt_set())

async def main():
    watch, progress = Watch(settings.abort_rule()), SilentProgress()
    async with TargetServer(settings, Pace(None), watch, progress, None) as server:
        for index in range(len(replay)):
            requests = enumerate(replay.window(index))
            prompts = [replay.prompt(request, "run", f"{index}.{n}", 0) for n, request in requests]
            cells = []
            await server.visit(prompts, replay.level, index, warm_up_with=[], keep=cells.append)
            answered = sum(row.error is None for row in cells[-1].rows)
            del cells, prompts
            gc.collect()
            print(answered, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, flush=True)

asyncio.run(main())
"""


class _Fast(asyncio.Protocol):
    """Answers every POST with the same short stream, and everything else with 404."""

    body = b"".join(stream({"messages": []}, CHUNKS))
    answer = (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    )
    missing = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"

    def connection_made(self, transport: Any) -> None:
        self.transport, self.received = transport, b""

    def data_received(self, data: bytes) -> None:
        self.received += data
        head, separator, body = self.received.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)
        if separator and len(body) >= int(length[1] if length else 0):
            self.received = b""
            self.transport.write(self.answer if head.startswith(b"POST") else self.missing)


@contextmanager
def fast_server() -> Iterator[str]:
    ports: Queue[int] = Queue()
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        server = await loop.create_server(_Fast, "127.0.0.1", 0)
        ports.put(server.sockets[0].getsockname()[1])
        await stop.wait()
        server.close()

    stop = asyncio.Event()
    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{ports.get(timeout=10)}/v1"
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)


@pytest.mark.slow
def test_a_replay_holds_one_window_of_answers(prompts_file: Path, tmp_path: Path) -> None:
    """Of 5,000 requests in windows of 500: from the second window on, memory does not grow. Rows are dropped
    here; a result keeps them."""
    path = tmp_path / "long.jsonl"
    with path.open("w") as file:
        for number in range(5000):
            row = {"timestamp": 1000 * number / 700, "input_length": 3, "output_length": 9}
            file.write(json.dumps(row) + "\n")
    with fast_server() as base_url:
        words = [sys.executable, "-c", REPLAYING, base_url, str(prompts_file), str(path)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    answered, memory_kb = zip(*(map(int, line.split()) for line in done.stdout.splitlines()), strict=True)
    assert len(answered) == 10
    assert sum(answered) > 4000
    assert (memory_kb[-1] - memory_kb[1]) * 1024 / sum(answered[2:]) < 1000  # bytes a request
