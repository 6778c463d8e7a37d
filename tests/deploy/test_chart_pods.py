"""The chart's own containers, with their volumes, users and roots, beside a real NGINX and Prometheus."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from backfilled import Pool as Scraped
from backfilled import remembering, routed
from calling import specops
from charts import ROOT, Manifests, inline, pod_specs, render, rollout, values
from daemons import Daemon, daemon, program, prometheus, wait_until
from pods import ENTRYPOINT as SPECOPS
from pods import Node, own_network, require_mounts
from routers import ask, pool

from specops.guard.guard import Status

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

TOKEN = "a-token-of-the-test"
SECRETS = {"mine-specops": {"SPECOPS_ROUTER_TOKEN": TOKEN}}
ADMIN = "http://127.0.0.1:8081"
GUARD = "http://127.0.0.1:9469"
HOSTS = ("mine-standard", "mine-speculative", "mine-router-0.mine-router-pods")
ADDRESSES = {"prometheus": "http://127.0.0.1:1", "routers": [f"{HOSTS[2]}:8081"]}
DATA = ("/etc/specops/rollout.yaml", "--out", "/var/lib/specops/run")
REQUEST = {"messages": [{"role": "user", "content": "say it"}], "max_tokens": 300}


@pytest.fixture(autouse=True)
def _mounts() -> None:
    require_mounts()
    for name in ("helm", "kubectl"):
        program(name)


def router_config_map(file: Path, run: Path) -> dict[str, Any]:
    """The ConfigMap as docs/kubernetes.md makes it."""
    done = specops("route", "render", str(file), "--out", str(run))
    assert done.returncode == 0, done.stderr
    folder = run / "rendered" / "nginx"
    command = [program("kubectl"), "create", "configmap", "mine-router", "--dry-run=client", "-o", "yaml"]
    command += [f"--from-file={folder / 'nginx.conf'}", f"--from-file={folder / 'lua' / 'specops'}"]
    config_map: dict[str, Any] = yaml.safe_load(
        subprocess.run(command, capture_output=True, check=True).stdout
    )
    return config_map


def node(folder: Path, file: Mapping[str, Any], prompts: str = "") -> Node:
    """A node with a release of the chart for this rollout, with one router."""
    path = folder / "rollout.yaml"
    files = {"prompts.json": prompts} if prompts else {}
    for name, text in (files | {"rollout.yaml": yaml.safe_dump(dict(file))}).items():
        (folder / name).write_text(text, encoding="utf-8")
    router = {"existingConfigMap": "mine-router", "replicas": 1}
    chart: Manifests = render(values(rollout=inline(file, files), router=router, run={"enabled": True}))
    router_files = {("ConfigMap", "mine-router"): router_config_map(path, folder / "render")}
    return Node(folder, {**chart, **router_files}, SECRETS, HOSTS)


@contextmanager
def container(up: Node, name: str, ready: str, pod: int = 0) -> Iterator[Daemon]:
    log = up.folder / f"{name}.log"
    log.touch()
    os.chown(log, 10001, 10001)  # a container's output belongs to its user
    url, _, path = ready.rpartition("/")
    with daemon(up.command(name, pod=pod), url=url, ready=f"/{path}", log=log) as process:
        yield process


def once(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def switch(percent: float | None = None, **headers: str) -> tuple[int, float | None]:
    body = None if percent is None else {"speculative_percent": percent}
    answer = ask(f"{ADMIN}/specops/switch", body, method="PUT" if body else None, **headers)
    return answer.status, answer.json.get("speculative_percent")


def status() -> Status:
    return Status.model_validate_json(ask(f"{GUARD}/status").body)


PROMPTS = [{"id": f"p{number}", "text": f"say {number}", "max_tokens": 8} for number in range(12)]
"""As many tokens as the scripted servers send."""

RULES = {"interval_s": 1, "hold_evaluations": 300}


@own_network
def test_guard_and_router_run_and_go_on_after_a_restart(tmp_path: Path) -> None:
    (tmp_path / "prometheus.yml").write_text("scrape_configs: []\n")
    with (
        pool(tmp_path, "standard", 8000),
        pool(tmp_path, "speculative", 8001),
        prometheus(tmp_path / "prometheus.yml", tmp_path) as watching,
    ):
        file = rollout(addresses=ADDRESSES | {"prometheus": watching.url}, guard=RULES)
        release = node(tmp_path, file)
        switch_folder = tmp_path / "claims" / "switch-mine-router-0"
        with container(release, "mine-router", f"{ADMIN}/health") as router:
            answer = ask("http://127.0.0.1:8080/v1/chat/completions", REQUEST)
            assert answer.route[0] == "speculative"
            assert switch(0) == (401, None), "without the token"
            with container(release, "mine-guard", f"{GUARD}/status") as guard:
                wait_until(lambda: ask(f"{GUARD}/health").status == 200, "a first turn of the guard", 30)
                override = [*SPECOPS, "guard", "override", *DATA, "standard", "--by", "ana", "--why", "test"]
                done = once(release.command("mine-guard", words=override))
                assert done.returncode == 0, done.stderr
                assert switch() == (200, 0)
                assert ask("http://127.0.0.1:8080/v1/chat/completions", REQUEST).route[0] == "standard"

                # Another pod, as of `kubectl scale`: the same volume.
                second = once(release.command("mine-guard", pod=1))
                assert second.returncode == 3, second.stderr
                assert "another guard of /var/lib/specops/run/guard is running" in second.stderr

                guard.signal(signal.SIGTERM)
                assert guard.process.wait(60) == 0
            journal = tmp_path / "claims" / "mine-data" / "run" / "guard" / "journal.jsonl"
            assert journal.stat().st_uid == 10001
            router.signal(signal.SIGQUIT)
            assert router.process.wait(30) == 0
        assert json.loads((switch_folder / "switch.json").read_text())["speculative_percent"] == 0
        assert '"reason":"switch"' in (tmp_path / "mine-router.log").read_text()

        # New pods get the same volumes: the switch and the override go on.
        with container(release, "mine-router", f"{ADMIN}/health"):
            wait_until(lambda: switch() == (200, 0), "the switch of the volume", 10)
            assert ask("http://127.0.0.1:8080/v1/chat/completions", REQUEST).route[0] == "standard"
            with container(release, "mine-guard", f"{GUARD}/status"):
                pinned = status().state.override
                assert pinned is not None
                assert pinned.by == "ana"


@own_network
def test_a_stopped_router_finishes_the_request_that_it_has(tmp_path: Path) -> None:
    with pool(tmp_path, "standard", 8000), pool(tmp_path, "speculative", 8001) as speculative:
        release = node(tmp_path, rollout(addresses=ADDRESSES))
        with container(release, "mine-router", f"{ADMIN}/health") as router:
            body = json.dumps(REQUEST | {"script": {"speculative": {"wait_s": 2}}})
            command = ["curl", "-s", "-d", body, "http://127.0.0.1:8080/v1/chat/completions"]
            with subprocess.Popen(command, stdout=subprocess.PIPE) as client:
                wait_until(lambda: speculative.seen() == 1, "the request to reach the pool")
                router.signal(signal.SIGQUIT)
                answer, _ = client.communicate(timeout=30)
            assert json.loads(answer)["pool"] == "speculative"
            assert router.process.wait(30) == 0


@own_network
def test_with_another_policy_the_guard_would_refuse_its_own_journal(tmp_path: Path) -> None:
    """Why the chart sets fsGroupChangePolicy: by default, a second start of the pod makes the journal one
    that a group may write."""
    release = node(tmp_path, rollout(addresses=ADDRESSES))
    spec = release.manifests["StatefulSet", "mine-guard"]["spec"]["template"]["spec"]
    command = [*SPECOPS, "guard", "once", *DATA]
    for _ in range(2):
        done = once(release.command("mine-guard", words=command))
        assert done.returncode == 4, done.stderr  # Prometheus does not answer: unknown
    spec["securityContext"]["fsGroupChangePolicy"] = "Always"
    assert "others may write to it" in once(release.command("mine-guard", words=command)).stderr


@own_network
def test_the_report_is_written_into_the_volume(tmp_path: Path) -> None:
    now = time.time()
    pools = [Scraped("mine", past_s=4 * 3600), Scraped("mine", pool="standard", port=8100, speculates=False)]
    rates = {("default", "speculative", "speculative", "200"): 2.0}
    with remembering(pools, tmp_path, *routed("mine", rates, now)) as watching:
        file = rollout(addresses=ADDRESSES | {"prometheus": watching.url}, report={"window": "2h"})
        release = node(tmp_path, file)
        done = once(release.command("mine-report"))
        assert done.returncode == 0, done.stderr
    reports = tmp_path / "claims" / "mine-data" / "run" / "reports"
    assert {path.suffix for path in reports.iterdir()} == {".json", ".md", ".html"}
    assert "Traceback" not in done.stderr
    assert "Warning" not in done.stderr, "such as of a folder for caches that cannot be written"


@contextmanager
def scripted(port: int, gap_s: float, log: Path) -> Iterator[None]:
    """A server that sends each of its answers in chunks, `gap_s` seconds apart."""
    command = [sys.executable, str(ROOT / "tests" / "load" / "stub.py"), str(port), str(gap_s)]
    with daemon(command, url=f"http://127.0.0.1:{port}", ready="/health", log=log):
        yield


@own_network
def test_a_run_measures_into_the_volume_and_the_guard_reads_it(tmp_path: Path) -> None:
    baseline = tmp_path / "claims" / "mine-data" / "run" / "baseline.json"
    (tmp_path / "prometheus.yml").write_text("scrape_configs: []\n")
    with (
        scripted(8000, 0.004, tmp_path / "standard.log"),
        scripted(8001, 0.002, tmp_path / "speculative.log"),
        prometheus(tmp_path / "prometheus.yml", tmp_path) as watching,
    ):
        file = rollout(
            addresses=ADDRESSES | {"prometheus": watching.url},
            pools={name: settings | {"model": "stub"} for name, settings in rollout()["pools"].items()},
            prompts="prompts.json",
            measure={"concurrency": [1], "repeats": 2, "warmup": 1},
        )
        release = node(tmp_path, file, json.dumps(PROMPTS))
        # Of the walk, the phase that the guard judges by; all of it takes minutes.
        args = pod_specs(release.manifests)["mine-run"]["containers"][0]["args"]
        done = once(release.command("mine-run", words=[*SPECOPS, *args, "--only", "baseline"]))
        assert done.returncode in (0, 4), done.stderr  # 4: the figures are too noisy, on a busy machine
        assert baseline.exists(), done.stderr
        command = [*SPECOPS, "guard", "once", *DATA]
        done = once(release.command("mine-guard", words=command))
        assert done.returncode == 4, done.stderr  # Prometheus scrapes nothing
        assert "there is no baseline.json" not in done.stderr
        assert "changed since" not in done.stderr
        if json.loads(baseline.read_text())["verdict"] == "yes":  # on a busy machine it may be undecided
            assert "not judged" not in done.stderr
        baseline.unlink()
        assert "there is no baseline.json" in once(release.command("mine-guard", words=command)).stderr


@own_network
def test_a_container_writes_to_its_volumes_alone(tmp_path: Path) -> None:
    """The runner of these tests is as strict as a node."""
    release = node(tmp_path, rollout(addresses=ADDRESSES))
    tried = "for folder in / /etc /etc/specops /usr /var /var/lib/specops /tmp; do"
    tried += ' touch "$folder/x" 2>/dev/null && echo "$folder"; done; id -u; id -G'
    done = once(release.command("mine-guard", words=["sh", "-c", tried]))
    assert done.stdout.split() == ["/var/lib/specops", "/tmp", "10001", "10001"], done.stderr
