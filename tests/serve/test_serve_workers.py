"""`specops serve --workers 2`: real processes behind one API."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from calling import specops
from live import events_of, until

from specops.engine import Sampling, load_engine

pytestmark = pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs Linux's /proc")

PROGRAM = """
from specops.cli.app import main
from specops.serve import engine_loop
engine_loop.WATCH_S = 0.2
main()
"""
SEEDED = {"temperature": 0.9, "max_tokens": 24, "ignore_eos": True, "return_token_ids": True}


class Served:
    """The server of a test, and its workers."""

    def __init__(self, target: Path, draft: Path) -> None:
        command = [
            sys.executable,
            "-c",
            PROGRAM,
            "serve",
            "--port",
            "0",
            "--workers",
            "2",
            "--max-batch",
            "1",
        ]
        command += ["--target", str(target), "--draft", str(draft), "--tree", "chain:2"]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        line = self.process.stderr.readline()
        found = re.search(r"on http://(127\.0\.0\.1:\d+) \(chain:2, batch 1, 2 workers\)$", line)
        assert found, line
        self.address = found[1]

    def workers(self) -> list[int]:
        """The processes of the engines: children of the fork server."""
        servers = [pid for pid in children(self.process.pid) if "forkserver" in command_of(pid)]
        return [worker for pid in servers for worker in children(pid)]

    def post(self, body: dict[str, Any]) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection(self.address, timeout=60)
        connection.request("POST", "/v1/completions", json.dumps(body))
        return connection

    def complete(self, prompt: Any, **fields: Any) -> tuple[int, Any]:
        with closing(self.post({"prompt": prompt, **fields})) as client:
            response = client.getresponse()
            return response.status, json.load(response)

    def get(self, path: str) -> tuple[int, str]:
        with closing(http.client.HTTPConnection(self.address, timeout=60)) as client:
            client.request("GET", path)
            response = client.getresponse()
            return response.status, response.read().decode()

    def series(self, name: str, **labels: str) -> float:
        wanted = {"engine": "0", "model_name": "target", **labels}
        inside = ",".join(f'{key}="{wanted[key]}"' for key in sorted(wanted))
        (line,) = [
            line for line in self.get("/metrics")[1].splitlines() if line.startswith(f"{name}{{{inside}}} ")
        ]
        return float(line.rsplit(" ", 1)[1])

    def ends(self) -> int:
        """Send SIGTERM; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


def children(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except FileNotFoundError:
        return ""


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.fixture
def served(tiny_pair: tuple[Path, Path]) -> Iterator[Served]:
    server = Served(*tiny_pair)
    yield server
    workers = server.workers()
    server.process.kill()
    server.process.wait()
    assert server.process.stderr is not None
    server.process.stderr.close()
    until(lambda: not any(map(alive, workers)), "no worker outlives its server")


def test_seeds_cancellation_metrics_and_the_end(served: Served, tiny_pair: tuple[Path, Path]) -> None:
    target, draft = tiny_pair
    engine = load_engine(target, draft, tree="chain:2", max_batch=1, threads=1)
    prompts = [[7 + i, 20, 30, 40 + i] for i in range(6)]
    sampling = Sampling(temperature=0.9, max_tokens=24, ignore_eos=True)
    expected = [
        engine.generate(prompt, Sampling(**{**vars(sampling), "seed": i})).tokens
        for i, prompt in enumerate(prompts)
    ]

    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda i: served.complete(prompts[i], seed=i, **SEEDED), range(6)))
    assert [body["choices"][0]["token_ids"] for _, body in answers] == expected
    assert served.series("vllm:generation_tokens_total") == 6 * 24
    assert served.series("vllm:prompt_tokens_total") == 6 * 4
    assert served.series("vllm:request_success_total", finished_reason="length") == 6
    assert served.series("vllm:time_to_first_token_seconds_count") == 6

    endless = {"prompt": "a", "max_tokens": 500, "ignore_eos": True, "stream": True}
    first, second = served.post(endless), served.post(endless)
    until(lambda: served.series("vllm:num_requests_running") == 2, "one runs on each, with a batch of 1")
    first.close()
    until(lambda: served.series("vllm:request_success_total", finished_reason="abort") == 1, "it is dropped")
    with closing(second):
        events = events_of(second.getresponse())
        next(events)
        served.process.send_signal(signal.SIGTERM)
        *_, last, done = events
    assert done == "[DONE]"
    assert json.loads(last)["choices"][0]["finish_reason"] == "length"
    assert served.process.wait(60) == 0


def test_a_worker_that_dies_is_started_again_and_its_requests_fail(served: Served) -> None:
    endless = {"prompt": "a", "max_tokens": 500, "ignore_eos": True, "stream": True}
    before = served.workers()
    assert len(before) == 2
    with closing(served.post(endless)) as first, closing(served.post(endless)) as second:
        streams = [events_of(client.getresponse()) for client in (first, second)]
        for events in streams:
            next(events)
        for pid in before:  # so that none ends before the other dies
            os.kill(pid, signal.SIGSTOP)
        os.kill(before[0], signal.SIGKILL)
        os.kill(before[1], signal.SIGCONT)
        ends = [list(events)[-2] for events in streams]
    failed = [json.loads(end)["error"] for end in ends if "error" in json.loads(end)]
    assert [error["code"] for error in failed] == ["engine_failed"]
    assert served.get("/health")[0] == 200
    until(lambda: served.series("specops:serve_worker_restarts_total") == 1, "it is started again")
    assert served.series("specops:serve_workers") == 2
    assert served.series("vllm:generation_tokens_total") >= 500  # also of the one that died
    after = served.workers()
    assert len(after) == 2
    assert before[0] not in after
    with ThreadPoolExecutor(4) as pool:
        assert {status for status, _ in pool.map(lambda _: served.complete("b", max_tokens=9), range(4))} == {
            200
        }
    assert served.ends() == 0


@pytest.mark.slow
def test_a_worker_that_hangs_is_started_again(served: Served) -> None:
    stopped = served.workers()[0]
    os.kill(stopped, signal.SIGSTOP)
    until(lambda: served.series("specops:serve_worker_restarts_total") == 1, "it is started again")
    assert not alive(stopped)
    assert served.complete("b", max_tokens=3)[0] == 200


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (["--workers", "0"], "invalid number of workers"),
        (["--workers", "many"], "invalid number of workers"),
        (["--workers", "2", "--device", "cuda"], "several workers need CPUs"),
        (["--workers", "2", "--parallel", "tensor:2"], "several workers need CPUs"),
    ],
)
def test_wrong_numbers_of_workers(options: list[str], part: str) -> None:
    done = specops("serve", *options)
    assert done.returncode == 2
    assert part in done.stderr


def test_workers_that_do_not_load_are_one_sentence(tmp_path: Path) -> None:
    done = specops("serve", "--port", "0", "--workers", "2", "--target", str(tmp_path))
    assert done.returncode == 3
    error, hint = done.stderr.splitlines()
    assert error.startswith(f"error: could not load a model from {tmp_path}: there is no config.json")
    assert hint.startswith("hint: ")


@pytest.mark.slow
def test_each_turn_of_a_conversation_finds_what_was_read_of_it(served: Served) -> None:
    """Conversations take turns; each goes on with the worker that has its beginning."""
    conversations = [[7 + i, *range(30, 120)] for i in range(4)]
    cached: list[list[int]] = [[] for _ in conversations]
    for turn in range(3):
        for turns, tokens in zip(cached, conversations, strict=True):
            status, body = served.complete(tokens, max_tokens=4, ignore_eos=True, return_token_ids=True)
            assert status == 200
            turns.append(body["usage"]["prompt_tokens_details"]["cached_tokens"])
            tokens += body["choices"][0]["token_ids"] + [20 + turn] * 40
    assert cached == [[0, 64, 128]] * 4
    assert served.series("vllm:prefix_cache_hits_total") == 4 * (64 + 128)
