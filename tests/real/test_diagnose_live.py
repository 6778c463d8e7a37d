"""`specops diagnose` of servers that run: a draft of random weights is found to be the cause, a good one is
ruled out; by their /metrics, and by a Prometheus that scrapes them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from calling import specops
from daemons import prometheus, wait_until
from safetensors.torch import load_file, save_file

from specops import results
from specops.assets import asset
from specops.errors import Exit
from specops.launch.servers import serving
from specops.phases.diagnose import FILE
from specops.phases.diagnose.document import document
from specops.progress import SilentProgress
from specops.prometheus.api import Api
from specops.render.report.terminal import terminal
from specops.serving.embedded import EmbeddedPool

Findings = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def random_draft(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shipped draft's shape, and none of what it learnt."""
    folder = tmp_path_factory.mktemp("models") / "draft"
    shutil.copytree(asset("playbooks", "embedded", "draft"), folder)
    weights = load_file(folder / "model.safetensors")
    generator = torch.Generator().manual_seed(0)
    for name, value in weights.items():
        if value.ndim > 1:
            weights[name] = torch.randn(value.shape, generator=generator).mul(0.02).to(value.dtype)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.fixture(scope="module")
def pools(random_draft: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Base URLs of two servers of the same target, by their drafts."""
    logs = tmp_path_factory.mktemp("logs")
    target = asset("playbooks", "embedded", "target")
    drafts = {"good": target, "bad": random_draft}  # a target guesses itself
    with ExitStack() as up:
        found = {}
        for name, draft in drafts.items():
            speculation = {"tree": "chain:3", "draft": str(draft)}
            pool = EmbeddedPool.model_validate(
                {"engine": "embedded", "target": str(target), "speculation": speculation}
            )
            server = up.enter_context(
                serving(pool, name, model="tiny", log=logs / f"{name}.log", progress=SilentProgress())
            )
            found[name] = server.base_url
        yield found


@pytest.fixture(scope="module")
def watching(pools: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Prometheus that scrapes both, as two rollouts' speculative pools. No rules are loaded."""
    folder = tmp_path_factory.mktemp("prometheus")
    jobs = [
        {
            "job_name": name,
            "scrape_interval": "1s",
            "static_configs": [
                {
                    "targets": [url.removeprefix("http://").removesuffix("/v1")],
                    "labels": {"specops_rollout": name, "specops_pool": "speculative"},
                }
            ],
        }
        for name, url in pools.items()
    ]
    (folder / "prometheus.yml").write_text(yaml.safe_dump({"scrape_configs": jobs}))
    with prometheus(folder / "prometheus.yml", folder) as up:
        wait_until(lambda: asked(up.url, "up == 1") == len(pools), "both servers to be scraped")
        yield up.url


@dataclass(frozen=True)
class Diagnosed:
    code: int
    findings: Findings
    reason: str
    page: list[str]


def diagnose(folder: Path, name: str, base_url: str, *words: str, **more: Any) -> Diagnosed:
    path = folder / f"{name}.yaml"
    endpoint = {"engine": "endpoint", "base_url": base_url, "model": "tiny"}
    made = {
        "rollout": name,
        "pools": {"standard": {"engine": "embedded"}, "speculative": endpoint},
        "measure": {"max_tokens": 40},
    }
    path.write_text(yaml.safe_dump(made | more))
    done = specops("diagnose", str(path), "--out", str(folder / name), "--quiet", "--json", *words)
    assert done.stdout, done.stderr
    told = json.loads(done.stdout)
    lines = list(terminal(document(results.read(folder / name / FILE), Path(FILE))))
    findings = {one["id"]: one for one in told["data"]["findings"]}
    return Diagnosed(done.returncode, findings, told["reason"], lines)


@pytest.fixture(scope="module")
def seen(
    pools: dict[str, str], watching: str, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Diagnosed]:
    """Of each server alone, by a few requests and its own /metrics; while the Prometheus watches."""
    folder = tmp_path_factory.mktemp("seen")
    return {name: diagnose(folder, name, url) for name, url in pools.items()}


def asked(url: str, expr: str) -> int:
    """How many series `expr` has."""
    api = Api(url)
    try:
        return len(api.instant(expr))
    finally:
        api.close()


def test_a_bad_draft_is_named_by_the_servers_own_metrics(seen: dict[str, Diagnosed]) -> None:
    bad = seen["bad"]
    assert bad.code == 1
    assert bad.findings["draft-quality"]["severity"] == "cause"
    assert "(default" in bad.findings["draft-quality"]["message"]
    assert "acceptance is too low" in bad.reason
    assert bad.findings["bursts-in-streams"]["severity"] == "ruled_out"  # nothing is accepted: nothing bursts
    assert bad.findings["kv-cache-full"]["severity"] == "ruled_out"


def test_a_good_draft_is_ruled_out_and_said_to_be(seen: dict[str, Diagnosed]) -> None:
    good = seen["good"]
    quality, bursts = good.findings["draft-quality"], good.findings["bursts-in-streams"]
    assert quality["severity"] == "ruled_out", quality["message"]
    assert quality["message"].endswith("is not below 0.50 (default)")
    assert quality["evidence"][0]["threshold"] == 0.5
    assert any(line.startswith("  draft-quality") and "  ruled out  " in line for line in good.page)
    assert bursts["severity"] in ("contributing", "symptom")  # by how long the gaps were on this machine
    unseen = [one["id"] for one in good.findings.values() if one["severity"] == "unknown"]
    assert unseen, "without a Prometheus and a run, much is unknown"
    assert good.code == (Exit.NO if bursts["severity"] == "symptom" else Exit.UNDECIDED)
    assert "tokens_per_second" in bursts["paste"]


@pytest.mark.parametrize(("name", "severity"), [("good", "ruled_out"), ("bad", "cause")])
def test_a_prometheus_tells_the_same_of_its_window(
    name: str, severity: str, pools: dict[str, str], watching: str, seen: dict[str, Diagnosed], tmp_path: Path
) -> None:
    drafted = f'increase(vllm:spec_decode_num_draft_tokens_total{{specops_rollout="{name}"}}[1h]) > 200'
    wait_until(lambda: asked(watching, drafted), "the drafts to be scraped")
    watched = {"addresses": {"prometheus": watching}, "monitor": {"scrape_interval_s": 1}}
    found = diagnose(tmp_path, name, pools[name], "--no-requests", **watched).findings
    assert found["draft-quality"]["severity"] == severity
    assert found["draft-quality"]["evidence"][0]["source"].startswith(watching)
    # No rules are loaded there, and no standard pool is scraped: panels would be blank.
    assert found["series-missing"]["severity"] == "cause"
