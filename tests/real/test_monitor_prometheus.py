"""In a real Prometheus that scrapes a real server: rules have data, and renamed series are repaired."""

from __future__ import annotations

import json
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import prometheus_client
import pytest
import yaml
from calling import specops
from daemons import Daemon, program, prometheus, wait_until
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from specops.config import Rollout
from specops.launch.servers import Server
from specops.phases.monitor.render import texts
from specops.phases.monitor.thresholds import Figure, Measurements, limits
from specops.prometheus import series
from specops.prometheus.api import Api
from specops.render.prometheus.rules import Load
from specops.serving.vllm.pool import SERIES as VLLM

SLOW = {("ttft", "mean"): 0.5, ("tpot", "mean"): 0.05, ("e2e", "p95"): 3.0}
BEFORE = Measurements(
    loads=(Load(1, SLOW, 0.05), Load(4, SLOW, 0.05), Load(64, SLOW, 0.05)),
    baseline="made up",
    break_even=None,
    acceptance=Figure(0.7, "made up"),
    branches=False,
    read={},
    missing={},
)
"""Slower than anything could be, so that the speed-up is known to be above 1."""


def rollout(name: str, address: str, **monitor: Any) -> dict[str, Any]:
    endpoint = {"engine": "endpoint", "base_url": f"http://{address}/v1", "model": "tiny"}
    return {
        "rollout": name,
        "pools": {"standard": endpoint, "speculative": endpoint},
        "monitor": {"scrape_interval_s": 1, "window_s": 20} | monitor,
    }


def write(folder: Path, name: str, said: dict[str, Any]) -> dict[str, Any]:
    """The rollout file, and rules as NAME-rules.yml; the rendered configuration for Prometheus."""
    (folder / f"{name}.yaml").write_text(yaml.safe_dump(said))
    made = Rollout.model_validate(said)
    files = texts(made, BEFORE, limits(made, BEFORE))
    for kind in ("rules", "alerts"):
        (folder / f"{name}-{kind}.yml").write_text(files[f"{kind}.yml"])
    config: dict[str, Any] = yaml.safe_load(files["prometheus.yml"])
    return config | {"rule_files": [f"{name}-rules.yml", f"{name}-alerts.yml"]}


@pytest.fixture(scope="module")
def renaming() -> Iterator[str]:
    """HOST:PORT of what exposes vLLM's names as vLLM does: with prometheus_client, which renames them."""
    registry = CollectorRegistry()
    for name in (VLLM.running, VLLM.waiting, VLLM.kv_usage):
        Gauge(name, "Made.", ["model_name"], registry=registry).labels("m").set(1)
    (shown,) = VLLM.acceptance
    drafts = (shown.drafts, shown.draft_tokens, shown.accepted_tokens)
    for name in (VLLM.generated, VLLM.preemptions, *drafts):
        Counter(name, "Made.", ["model_name"], registry=registry).labels("m").inc()
    Counter(shown.per_position, "Made.", ["model_name", "position"], registry=registry).labels("m", "0").inc()
    Counter(VLLM.finished, "Made.", ["model_name", "finished_reason"], registry=registry).labels(
        "m", "stop"
    ).inc()
    assert VLLM.http is not None
    Counter(VLLM.http.counter, "Made.", ["handler", "method", "status"], registry=registry).labels(
        "/v1/completions", "POST", "2xx"
    ).inc()
    for name in (VLLM.ttft, VLLM.tpot, VLLM.e2e):
        Histogram(name, "Made.", ["model_name"], registry=registry).labels("m").observe(0.1)
    server, thread = prometheus_client.start_http_server(0, "127.0.0.1", registry)
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(scope="module")
def watching(
    server: Server, renaming: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Daemon, Path]]:
    """A Prometheus with three rollouts: the server's; one that was renamed, with the fix and without."""
    folder = tmp_path_factory.mktemp("watching")
    address = server.base_url.removeprefix("http://").removesuffix("/v1")
    config = write(folder, "served", rollout("served", address))
    for name in ("repaired", "bare"):
        also = write(folder, name, rollout(name, renaming))
        config["scrape_configs"] += also["scrape_configs"]
        config["rule_files"] += also["rule_files"]
    for job in config["scrape_configs"]:
        if "bare" in job["job_name"]:
            del job["metric_relabel_configs"]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    with prometheus(folder / "prometheus.yml", folder) as up, traffic(server):
        yield up, folder


@contextmanager
def traffic(server: Server) -> Iterator[None]:
    """Two requests at a time, until the end."""
    over = threading.Event()
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    body = {"model": server.model, "prompt": "the server", "max_tokens": 24, "ignore_eos": True}

    def ask() -> None:
        while not over.wait(0.05):
            asked = urllib.request.Request(
                f"{server.base_url}/completions",
                json.dumps(body).encode(),
                {"Content-Type": "application/json"},
            )
            opener.open(asked, timeout=30).close()

    with ThreadPoolExecutor(2) as users:
        asking = [users.submit(ask) for _ in range(2)]
        try:
            yield
        finally:
            over.set()
    for each in asking:
        each.result()


def value(api: Api, expr: str) -> float | None:
    found = api.instant(expr)
    return found[0].value if found else None


@pytest.mark.slow
def test_the_playbooks_names_have_data(watching: tuple[Daemon, Path]) -> None:
    up, _ = watching
    api = Api(up.url)
    ours = '{specops_rollout="served",specops_pool="speculative"}'
    speedup = f'{series.SPEEDUP}{ours[:-1]},latency="e2e"}}'
    wait_until(lambda: value(api, speedup) is not None, "the last of the rules to have data", 40)
    rate, length = (value(api, f"{name}{ours}") for name in (series.ACCEPTANCE, series.ACCEPTED_LENGTH))
    assert rate is not None
    assert 0 <= rate <= 1
    assert length is not None
    assert 1 <= length <= 4
    positions = api.instant(f"{series.PER_POSITION}{ours}")
    assert [sample.labels["position"] for sample in positions] == ["0", "1", "2"]
    per_step = value(api, f"{series.TOKENS_PER_STEP}{ours}")
    assert per_step is not None
    assert 1 <= per_step <= 4
    faster = value(api, speedup)
    assert faster is not None
    assert faster > 1
    assert value(api, f'{series.BASELINE_E2E_P95}{{specops_rollout="served",concurrency="4"}}') == 3.0
    assert value(api, f"{series.CONCURRENCY}{ours}") == pytest.approx(2, abs=1)


def test_every_rule_that_has_data_keeps_the_labels(watching: tuple[Daemon, Path]) -> None:
    up, _ = watching
    api = Api(up.url)
    for name in (series.MEAN["tpot"], series.ANSWER_TOKENS, series.KV_USAGE, series.TOKENS_PER_S):
        ours = f'{name}{{specops_rollout="served"}}'
        wait_until(lambda ours=ours: len(api.instant(ours)) == 2, f"{name} of both pools", 40)
        labels = [sample.labels for sample in api.instant(ours)]
        assert {tuple(sorted(each)) for each in labels} == {
            ("__name__", "model_name", "specops_pool", "specops_rollout")
        }
        assert {each["specops_pool"] for each in labels} == {"standard", "speculative"}


def test_the_runbooks_queries_run_as_they_are_printed(watching: tuple[Daemon, Path]) -> None:
    up, folder = watching
    said = rollout("served", "127.0.0.1:9") | {"addresses": {"prometheus": up.url}}
    made = Rollout.model_validate(said)
    page = texts(made, BEFORE, limits(made, BEFORE), str(folder / "served.yaml"))["runbook.md"]
    lines = {line for line in page.splitlines() if line.startswith("curl") and up.url in line}
    assert len(lines) > 10
    script = "\n".join(f"{line} || exit 1; echo" for line in sorted(lines))
    program("curl")
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60, check=False)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [each["status"] for each in answers] == ["success"] * len(lines), done.stderr


def test_check_finds_everything_of_a_server(watching: tuple[Daemon, Path]) -> None:
    up, folder = watching
    wait_until(lambda: _check(up, folder, "served").returncode == 0, "all names to be there", 40)
    done = _check(up, folder, "served")
    assert "last value" in done.stdout
    assert json.loads(_check(up, folder, "served", "--json").stdout)["verdict"] == "yes"


def test_check_finds_renamed_series_and_the_mend_mends_them(watching: tuple[Daemon, Path]) -> None:
    up, folder = watching
    renamed = "vllm_num_requests_running"
    wait_until(lambda: renamed in _check(up, folder, "bare").stdout, "the renamed series", 20)
    done = _check(up, folder, "bare")
    assert done.returncode == 1
    assert "metric_relabel_configs" in done.stdout
    repaired = json.loads(_check(up, folder, "repaired", "--json").stdout)
    pools = [found for found in repaired["data"]["names"] if "pool" in found["where"]]
    assert {found["status"] for found in pools} == {"there"}


def test_check_without_a_rollout_asks_for_any_servers_names(watching: tuple[Daemon, Path]) -> None:
    up, _ = watching
    done = specops("monitor", "check", "--prometheus", up.url)
    assert done.returncode == 0, done.stdout
    assert "any server" in done.stdout


def test_check_that_cannot_ask_is_the_environments_failure(tmp_path: Path) -> None:
    done = specops("monitor", "check", "--prometheus", "http://127.0.0.1:9")
    assert done.returncode == 3
    assert done.stderr.startswith("error: could not ask Prometheus")
    assert specops("monitor", "check").returncode == 2


def _check(up: Daemon, folder: Path, name: str, *words: str) -> Any:
    return specops(
        "monitor", "check", str(folder / f"{name}.yaml"), "--prometheus", up.url, "--quiet", *words
    )
