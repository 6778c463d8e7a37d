"""`specops guard run`, once, status and override as a person and a Prometheus meet them."""

from __future__ import annotations

import json
import signal
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from daemons import Daemon, free_port, prometheus, wait_until
from guarded import DIRECT, Deployment, deployment, guard
from prometheus_client.parser import text_string_to_metric_families
from routers import running

from specops.config import load
from specops.guard.journal import FILE, history
from specops.guard.lock import holder
from specops.prometheus import series


def flagged(folder: Path) -> Deployment:
    """Switched by a file; its Prometheus is down."""
    return deployment(
        folder / "up",
        addresses={"routers": [], "prometheus": f"http://127.0.0.1:{free_port()}"},
        guard={"interval_s": 2, "actions": [{"kind": "flag_file", "path": str(folder / "flag")}]},
    )


@contextmanager
def running_guard(up: Deployment) -> Iterator[Daemon]:
    with guard(up) as process:
        wait_until(lambda: up.status().evaluation, "its first evaluation", 30)
        yield process


@pytest.fixture(scope="module")
def guarded(tmp_path_factory) -> Iterator[tuple[Deployment, Daemon]]:
    """One for the tests that leave it as they found it."""
    up = flagged(tmp_path_factory.mktemp("guarded"))
    with running_guard(up) as process:
        yield up, process


def flag(up: Deployment) -> int:
    path = up.folder.parent / "flag"
    return json.loads(path.read_text())["speculative_percent"] if path.exists() else 100  # type: ignore[no-any-return]


def post(url: str, body: Any, token: str = "") -> tuple[int, str]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Authorization": f"Bearer {token}"})
    try:
        with DIRECT.open(request, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def get(url: str) -> tuple[int, str]:
    try:
        with DIRECT.open(url, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_a_prometheus_that_is_down_is_unknown_and_nothing_is_switched(tmp_path) -> None:
    up = flagged(tmp_path)
    with running_guard(up) as process:
        found = up.status()
        assert found.evaluation is not None
        assert (found.evaluation.verdict, found.state.mode, found.target_percent) == ("unknown", "on", 100)
        assert flag(up) == 100
        assert get(f"{up.guard_url}/health")[0] == 200, "the guard itself is well"
        process.signal(signal.SIGTERM)
        assert process.process.wait(20) == 0
    assert flag(up) == 100, "it leaves traffic as it is"
    assert holder(up.run / "guard") is None
    told = up.specops("status")
    assert "not running" in told.stdout
    assert "unknown: on" in told.stdout.lower()


def test_its_metrics_are_those_that_rules_read(guarded) -> None:
    up, _ = guarded
    text = get(f"{up.guard_url}/metrics")[1]
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    names = {sample.name for sample in samples}
    for name in (
        *(series.GUARD_STATE, series.GUARD_PERCENT, series.GUARD_EVALUATIONS, series.GUARD_BAD_IN_A_ROW),
        *(series.GUARD_FALLBACKS, series.GUARD_UNCONFIRMED, series.GUARD_LAST, series.GUARD_OVERRIDE),
        *(f"{series.GUARD_TOOK}_sum", f"{series.GUARD_TOOK}_count"),
    ):
        assert name in names
    states = {one.labels["state"]: one.value for one in samples if one.name == series.GUARD_STATE}
    assert states == {"on": 1, "fallen": 0, "canary": 0, "held": 0}


def test_a_person_overrides_a_guard_that_runs_and_hands_it_back(guarded) -> None:
    up, _ = guarded
    pinned = up.specops("override", "standard", "--why", "a look", "--by", "ada", "--for", "30", "--json")
    assert pinned.returncode == 0, pinned.stderr
    assert json.loads(pinned.stdout)["state"]["override"]["by"] == "ada"
    assert "capacity undecided" in json.loads(pinned.stdout)["capacity"]
    assert flag(up) == 0
    assert "1.0" in next(
        line
        for line in get(f"{up.guard_url}/metrics")[1].splitlines()
        if line.startswith("specops_guard_override ")
    )
    page = up.specops("status").stdout
    assert "standard, by ada, 30 min left: a look" in page
    back = up.specops("override", "none", "--why", "seen", "--by", "ada")
    assert back.returncode == 0
    assert flag(up) == 100


def test_an_override_over_http_takes_the_token_of_the_lock(guarded) -> None:
    up, _ = guarded
    url = f"{up.guard_url}/override"
    asked = {"pool": "standard", "by": "eve", "why": "so"}
    assert post(url, asked)[0] == 403
    assert post(url, asked, "é")[0] == 403
    held = holder(up.run / "guard")
    assert held is not None
    assert post(url, asked | {"pool": "all"}, held.token)[0] == 400
    assert post(url, b"{", held.token)[0] == 400
    assert post(url, asked, held.token)[0] == 200
    assert flag(up) == 0
    assert post(url, asked | {"pool": "none"}, held.token)[0] == 200
    assert flag(up) == 100


def test_a_second_guard_is_refused_with_the_pid_of_the_first(guarded) -> None:
    up, process = guarded
    for words in (["once"], ["run"]):
        refused = up.specops(*words)
        assert refused.returncode == 3
        assert f"pid {process.process.pid}" in refused.stderr
        assert "Traceback" not in refused.stderr


def test_an_alert_makes_it_look_and_is_kept_as_evidence_and_resolved_is_nothing(tmp_path) -> None:
    slow = {"interval_s": 2, "actions": [{"kind": "flag_file", "path": str(tmp_path / "flag")}]}
    addresses = {"routers": [], "prometheus": f"http://127.0.0.1:{free_port()}"}
    up = deployment(tmp_path / "up", addresses=addresses, guard=slow)
    with guard(up):
        wait_until(lambda: up.status().evaluation, "its first evaluation", 30)
        url = f"{up.guard_url}/alerts"

        def alert(name: str, status: str = "firing", rollout: str = "tiny") -> dict[str, Any]:
            return {"status": status, "labels": {"alertname": name, "specops_rollout": rollout}}

        told = {"version": "4", "alerts": [alert("A"), alert("B", "resolved"), alert("C", rollout="other")]}
        assert json.loads(post(url, told)[1]) == {"noted": ["A"]}
        for nonsense in (b"", b"[]", b'{"alerts": [1, {"labels": 2}]}', b"\xff"):
            assert post(url, nonsense)[0] in (200, 400)
        wait_until(lambda: len(list(history(up.run / "guard" / FILE))) > 2, "it to look again", 30)
    entries = list(history(up.run / "guard" / FILE))
    noted = [entry for entry in entries if entry.evidence.alerts]
    assert [entry.evidence.alerts for entry in noted] == [("A",)]
    assert noted[0].verdict == "unknown", "what it sees decides, not the alert"
    assert all(b.ts - a.ts >= 1 for a, b in pairwise(entries)), "never sooner than half an interval"


def test_once_exits_by_what_it_saw_and_a_dry_run_keeps_apart(tmp_path) -> None:
    up = flagged(tmp_path)
    done = up.specops("once", "--plan", "--json")
    assert done.returncode == 4, done.stderr
    assert json.loads(done.stdout)["dry_run"] is True
    guards = up.run / "guard"
    assert (guards / "dry-run.jsonl").exists()
    assert not (guards / FILE).exists()


def test_a_rollout_without_a_prometheus_is_refused_in_a_sentence(tmp_path) -> None:
    up = deployment(tmp_path / "up")
    done = up.specops("once")
    assert done.returncode == 2
    assert "needs Prometheus, and the rollout file names none" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_empty_prometheus_is_no_data(tmp_path) -> None:
    (tmp_path / "prometheus.yml").write_text("{}")
    with prometheus(tmp_path / "prometheus.yml", tmp_path) as up:
        actions = [{"kind": "flag_file", "path": str(tmp_path / "flag")}]
        addresses = {"routers": [], "prometheus": up.url}
        made = deployment(tmp_path / "up", addresses=addresses, guard={"actions": actions})
        done = made.specops("once")
    assert done.returncode == 4
    assert "no_data" in done.stdout.lower() or "no data" in done.stdout.lower()
    assert flag(made) == 100


def test_a_router_that_is_down_is_switched_once_it_is_up_again(tmp_path) -> None:
    up = deployment(tmp_path / "up")
    down = up.specops("override", "standard", "--why", "so", "--by", "ada")
    assert down.returncode == 3
    assert "nothing listens there" in down.stdout
    with running(up.run, load(up.file)) as router:
        assert router.percent() == 100
        again = up.specops("override", "standard", "--why", "so", "--by", "ada", "--for", "9")
        assert again.returncode == 0, again.stdout
        assert router.percent() == 0
        router.set_percent(100)
        assert up.specops("override", "standard", "--why", "so", "--by", "ada", "--for", "8").returncode == 0
        assert router.percent() == 0, "more than the guard wants is brought down"


def test_a_router_whose_reload_is_refused_is_still_switched(tmp_path) -> None:
    up = deployment(tmp_path / "up")
    with running(up.run, load(up.file)) as router:
        config = router.prefix / "nginx.conf"
        config.write_text(config.read_text() + "\nnonsense;\n")
        router.daemon.signal(signal.SIGHUP)
        wait_until(lambda: _says(router.prefix, 'unknown directive "nonsense"'), "NGINX to refuse it")
        assert up.specops("override", "standard", "--why", "so", "--by", "ada").returncode == 0
        assert router.percent() == 0


def _says(folder: Path, text: str) -> bool:
    return any(text in path.read_text(errors="replace") for path in folder.rglob("*.log"))


@pytest.mark.parametrize("listen", ["taken", "127.0.0.1:99999", "nobody.invalid:1"])
def test_an_address_that_cannot_be_had_is_told(tmp_path, listen) -> None:
    up = flagged(tmp_path)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        here = f"127.0.0.1:{taken.getsockname()[1]}"
        up.sections["guard"] |= {"listen": here if listen == "taken" else listen}
        up.add()
        done = up.specops("run")
    assert done.returncode == 3
    assert "could not listen on" in done.stderr
    assert holder(up.run / "guard") is None


def test_overrides_that_come_during_an_action_are_carried_out_one_after_the_other(tmp_path: Path) -> None:
    """Three at once through a guard whose switch takes a second, and one that ends by itself."""
    log = tmp_path / "log"
    set_, read = (tmp_path / name for name in ("set.sh", "read.sh"))
    set_.write_text(f"echo begin $1 >> {log}; sleep 1; echo end $1 >> {log}\n")
    read.write_text(f"grep end {log} | tail -1 | cut -d' ' -f2 | grep . || echo 100\n")
    action = {"kind": "command", "set": ["sh", str(set_), "{percent}"], "read": ["sh", str(read)]}
    addresses = {"routers": [], "prometheus": f"http://127.0.0.1:{free_port()}"}
    up = deployment(tmp_path / "up", addresses=addresses, guard={"interval_s": 2, "actions": [action]})
    with running_guard(up):
        held = holder(up.run / "guard")
        assert held is not None
        pins = [{"pool": pool, "by": pool, "why": "so"} for pool in ("standard", "speculative", "standard")]
        with ThreadPoolExecutor(3) as threads:
            answers = list(threads.map(lambda pin: post(f"{up.guard_url}/override", pin, held.token), pins))
        assert [code for code, _ in answers] == [200, 200, 200]
        entries = [entry for entry in history(up.run / "guard" / FILE) if entry.state.override is not None]
        last = entries[-1].state
        assert last.override is not None
        wait_until(lambda: up.status().unconfirmed is None, "the last one to be confirmed", 30)
        assert up.status().state.override == last.override
        brief = {"pool": "standard", "by": "ada", "why": "so", "minutes": 0.05}
        assert post(f"{up.guard_url}/override", brief, held.token)[0] == 200
        wait_until(lambda: up.status().state.override is None, "its three seconds to end", 30)
        wait_until(lambda: up.status().unconfirmed is None, "what follows", 30)
    lines = log.read_text().splitlines()
    begun = lines[::2]
    assert lines == [line for one in begun for line in (one, one.replace("begin", "end"))], (
        "never two at once"
    )
    assert lines[-1] == "end 100", "the guard is on, and hands traffic back when an override ends"
