"""`specops guard drill`: a fallback and a return rehearsed on a real NGINX under load."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from daemons import free_port, wait_until
from guarded import Deployment, Load, deployment, guard, stub_pool
from routers import Router, running

from specops.config import load
from specops.guard.journal import FILE, history
from specops.phases import guard_drill


@pytest.fixture(autouse=True)
def watched_for_less(monkeypatch) -> None:
    monkeypatch.setattr(guard_drill, "WATCH_S", 0.5)


@contextmanager
def routed(tmp_path, answer_s: float = 0.0) -> Iterator[tuple[Deployment, Router]]:
    with stub_pool(answer_s) as standard, stub_pool(answer_s) as speculative:
        nobody = f"http://127.0.0.1:{free_port()}"
        pools = {"standard": [standard], "speculative": [speculative]}
        up = deployment(tmp_path / "up", guard={"interval_s": 1}, addresses={"prometheus": nobody, **pools})
        with running(up.run, load(up.file)) as router:
            yield up, router


def test_there_and_back_under_load_with_a_guard_that_runs(tmp_path) -> None:
    with routed(tmp_path) as (up, router), guard(up), Load(router.url, clients=2) as load_:
        wait_until(lambda: up.status().evaluation, "its first evaluation", 30)
        done = up.specops("drill", "--json")
        assert router.percent() == 100
        assert up.status().state.override is None
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(done.stdout)
    assert json.loads((up.run / "guard-drill.json").read_text()) == result
    assert (result["phase"], result["verdict"]) == ("guard-drill", "yes")
    assert result["data"]["fallback"]["begun"]["standard"] > 0
    assert result["data"]["restoration"]["begun"]["speculative"] > 0
    assert result["summary"]["lost"] == 0
    assert load_.failures == []


@pytest.mark.slow
def test_answers_that_end_after_the_switch_are_no_requests_begun_after_it(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(guard_drill, "WATCH_S", 3.0)  # in which every client begins another request
    with routed(tmp_path, answer_s=2.5) as (up, router), Load(router.url, clients=8) as load_:
        wait_until(lambda: router.value('specops_route_in_flight{pool="speculative"}') > 0, "requests")
        done = up.specops("drill", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(done.stdout)["data"]
    assert result["fallback"]["begun"].get("speculative", 0) == 0
    assert result["fallback"]["begun"]["standard"] > 0
    assert load_.failures == []


def test_without_traffic_it_is_undecided_and_without_a_guard_it_makes_one(tmp_path) -> None:
    with routed(tmp_path) as (up, router):
        done = up.specops("drill")
        assert router.percent() == 100
    assert done.returncode == 4, done.stdout + done.stderr
    assert "too few eligible requests" in done.stdout


def test_it_does_not_begin_where_speculation_is_off_already(tmp_path) -> None:
    with routed(tmp_path) as (up, router):
        router.set_percent(0)
        done = up.specops("drill")
        assert router.percent() == 0
    assert done.returncode == 2
    assert "has 0%" in done.stderr


def fallen_back(journal: Path) -> bool:
    """Traffic is then watched for two seconds, before it is handed back."""
    last = list(history(journal))[-1]
    return last.state.override is not None and last.result is not None


@pytest.mark.slow
def test_ctrl_c_in_the_middle_hands_traffic_back(tmp_path) -> None:
    with routed(tmp_path) as (up, router):
        words = [sys.executable, "-m", "specops", "guard", "drill", str(up.file), "--out", str(up.run)]
        with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as rehearsing:
            wait_until(lambda: router.percent() == 0, "the fallback", 30)
            wait_until(lambda: fallen_back(up.run / "guard" / FILE), "the fallback to be recorded", 30)
            rehearsing.send_signal(signal.SIGINT)
            assert rehearsing.wait(30) != 0
        assert router.percent() == 100
        last = list(history(up.run / "guard" / FILE))[-1]
        assert last.state.override is None
        assert last.result is not None
        assert last.result.outcome == "done"
