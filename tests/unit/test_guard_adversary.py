"""What goes wrong around the guard: partial answers, duplicates, full and read-only disks, two at once."""

from __future__ import annotations

import errno
import json
import os
import re
import resource
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import cast

import pytest

from specops.actions import flag_file
from specops.actions.action import Target
from specops.actions.flag_file import FlagFile
from specops.errors import EnvironmentFailure, FileError
from specops.guard import journal as journal_module
from specops.guard import switch as switch_module
from specops.guard.guard import CapacityGate, Guard
from specops.guard.journal import FILE, Journal
from specops.guard.lock import locked
from specops.guard.policy import GuardRules
from specops.guard.signals.criteria import Criteria, Missing
from specops.guard.signals.observation import observe
from specops.guard.signals.query import SIGNAL, LiveQuery, read
from specops.guard.signals.replicas import BY_REPLICA
from specops.guard.state import Evaluation, Threshold
from specops.guard.switch import Switch
from specops.prometheus.api import Api, Sample
from specops.router.nginx.listener import NginxListener
from specops.serving import USUAL

CRITERIA = Criteria(
    query=LiveQuery("r", USUAL, USUAL, {}, scrape_s=15.0, routed=False),
    window_s=300.0,
    min_acceptance=Threshold(value=0.4, source="default"),
    baseline=Missing("none"),
    regression=Threshold(value=1.2, source="the rollout file"),
    max_error_share=Threshold(value=0.05, source="the rollout file"),
    min_requests=None,
)


def guard_over(target: Target, journal: Journal) -> Guard:
    ticks = iter(range(60, 6000, 60))
    return Guard(
        rules=GuardRules(),
        observe=lambda now, *_: Evaluation(ts=now, verdict="bad", reason="slow"),
        switch=Switch([target]),
        journal=journal,
        gate=lambda: CapacityGate(reason="capacity suffices"),
        clock=lambda: float(next(ticks)),
    )


@pytest.fixture(autouse=True)
def without_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(switch_module, "WAIT_S", 0.0)


@pytest.fixture
def partial() -> Iterator[str]:
    """A Prometheus that could read a part of the data only: all figures are bad, with a warning."""
    figures = {"acceptance": "0.01", "drafted": "100000", "finished": "1000", "covered": "1", "sampled": "1"}
    result = [{"metric": {SIGNAL: name}, "value": [1000.0, value]} for name, value in figures.items()]
    body = {"status": "success", "data": {"resultType": "vector", "result": result}}

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            text = json.dumps(body | {"warnings": ["store 10.0.0.1: timeout"]}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_an_answer_with_a_warning_is_unknown_and_never_bad(partial: str) -> None:
    found = observe(Api(partial), CRITERIA, 1000.0)
    assert found.verdict == "unknown"
    assert "its answer may be incomplete: store 10.0.0.1: timeout" in found.reason


class Quiet:
    """A Prometheus whose pool has a request now and then; `windows` are the seconds that were asked for."""

    def __init__(self) -> None:
        self.windows: list[int] = []

    def instant(self, query: str, end: float | None = None) -> list[Sample]:
        self.windows.append(int(re.findall(r"_sum\{[^}]*\}\[(\d+)s\]", query)[0]))
        figures = {"finished": 20.0, "drafted": 900.0, "accepted": 630.0, "covered": 1.0, "sampled": 1.0}
        return [of_replica(name, value, 10_000.0) for name, value in figures.items()]


def of_replica(name: str, value: float, ts: float) -> Sample:
    return Sample({SIGNAL: f"{BY_REPLICA}{name}", "instance": "a:1"}, value, ts)


@pytest.mark.parametrize(("ago_s", "windows"), [(700.0, [300, 700]), (90_000.0, [300, 2400]), (200.0, [300])])
def test_a_longer_window_ends_at_the_last_change(ago_s: float, windows: list[int]) -> None:
    """What was before it is of another share of the traffic."""
    api = Quiet()
    observe(cast(Api, api), CRITERIA, 10_000.0, 10_000.0 - ago_s)
    assert api.windows == windows


@pytest.mark.parametrize("values", [(0.9, 0.01), (0.01, 0.9), (float("nan"),), (float("inf"),)])
def test_two_answers_to_one_expression_and_what_is_no_number_are_no_data(values: tuple[float, ...]) -> None:
    figures = {"covered": 1.0, "sampled": 1.0, "e2e_n": 20.0}
    samples = [of_replica(name, value, 1000.0) for name, value in figures.items()]
    samples += [of_replica("e2e_s", value, 1000.0) for value in values]
    live = read(samples, CRITERIA.query, 300.0)
    assert live.e2e != live.e2e, "not a number"
    assert live.e2e_n == 20.0


def test_a_flag_on_a_read_only_file_system_is_not_confirmed_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(path: Path) -> int:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    guard = guard_over(FlagFile(str(tmp_path / "flag")), Journal(tmp_path / FILE))
    monkeypatch.setattr(flag_file, "created", refused)
    for _ in range(3):
        entry = guard.turn()
    assert entry.result is not None
    assert entry.result.outcome == "failed"
    assert guard.state.target_percent == 0
    assert "Read-only file system" in (guard.unconfirmed or "")
    monkeypatch.undo()
    assert guard.turn().result is not None, "it is tried again at the next turn"
    assert guard.unconfirmed is None
    assert FlagFile(str(tmp_path / "flag")).read() == 0


def test_a_disk_that_fills_up_after_the_switch_leaves_an_intent_that_is_carried_out_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flag = FlagFile(str(tmp_path / "flag"))
    journal = Journal(tmp_path / FILE)
    guard = guard_over(flag, journal)
    guard.turn()
    guard.turn()
    switched = flag.set

    def then_full(percent: int) -> None:
        switched(percent)
        monkeypatch.setattr(journal_module.os, "fsync", full)

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(flag, "set", then_full)
    with pytest.raises(FileError, match="No space left on device"):
        guard.turn()
    assert flag.read() == 0
    assert guard.unconfirmed == "0% is not confirmed yet"
    monkeypatch.undo()
    assert Journal(tmp_path / FILE).standing.confirmed is None, "as a guard that begins now reads it"
    done = guard_over(flag, Journal(tmp_path / FILE)).resume()
    assert done is not None
    assert done.result is not None
    assert done.result.outcome == "done"


class Liar(BaseHTTPRequestHandler):
    """A router that says what was put, and goes on as before."""

    protocol_version = "HTTP/1.1"
    percent, began = 100.0, 0

    def do_GET(self) -> None:
        type(self).began += 1
        counted = f'specops_route_decisions_total{{pool="speculative"}} {self.began}\n'
        self._answer(
            counted if self.path == "/metrics" else json.dumps({"speculative_percent": self.percent})
        )

    def do_PUT(self) -> None:
        said = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        type(self).percent = said["speculative_percent"]
        self._answer(json.dumps(said))

    def _answer(self, text: str) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def liar(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(switch_module, "SETTLE_S", 0.01)
    monkeypatch.setattr(switch_module, "STILL_S", 0.05)
    monkeypatch.setattr(Liar, "percent", 100.0)
    with ThreadingHTTPServer(("127.0.0.1", 0), Liar) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_a_router_that_acknowledges_and_does_not_switch_is_not_confirmed(liar: str, tmp_path: Path) -> None:
    result = Switch([NginxListener(liar)], [NginxListener(liar)]).to(0)
    assert [(one.after, one.error) for one in result.targets] == [(0, None)]
    assert result.outcome == "failed"
    assert "requests still begin on the speculative pool" in (result.traffic or "")


@pytest.mark.parametrize(("percent", "lowered"), [(0.4, True), (0.0, False)])
def test_a_share_below_one_per_cent_is_not_0(
    liar: str, tmp_path: Path, percent: float, lowered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever put it there by hand: where the guard has decided on 0, it is lowered."""
    guard = guard_over(NginxListener(liar), Journal(tmp_path / FILE))
    for _ in range(3):
        guard.turn()
    assert Liar.percent == 0
    monkeypatch.setattr(Liar, "percent", percent)
    entry = guard.turn()
    assert (entry.action is not None, Liar.percent) == (lowered, 0)


def test_a_flag_on_a_disk_that_is_full_stays_whole_and_is_written_later(tmp_path: Path) -> None:
    """A limit on the size of files fails a write as a full disk does: what is buffered is lost."""
    flag = FlagFile(str(tmp_path / "flag"))
    flag.set(40)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5, hard))
    try:
        with pytest.raises(FileError, match="File too large"):
            flag.set(0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert flag.read() == 40
    flag.set(0)
    assert flag.read() == 0
    assert [path.name for path in tmp_path.iterdir()] == ["flag"]


def test_of_guards_that_start_at_the_same_moment_one_runs(tmp_path: Path) -> None:
    barrier, results = threading.Barrier(4), []
    over = threading.Event()

    def start() -> None:
        barrier.wait()
        try:
            with locked(tmp_path):
                results.append("runs")
                over.wait(10)
        except EnvironmentFailure as error:
            results.append(error.message)

    threads = [threading.Thread(target=start) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        while len(results) < 4 and thread.is_alive() and not over.wait(0.01):
            pass
    over.set()
    for thread in threads:
        thread.join()
    assert results.count("runs") == 1
    assert sum(f"another guard of {tmp_path} is running (pid {os.getpid()})" in one for one in results) == 3
