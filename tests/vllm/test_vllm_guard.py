"""The guard looks at a real vLLM through a real Prometheus: no traffic, then acceptance."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from daemons import prometheus, wait_until
from real_vllm import MODEL, complete

from specops.config import Rollout
from specops.guard.signals.observation import observe
from specops.guard.state import Evaluation
from specops.phases.guard import criteria_of
from specops.phases.monitor.render import FOLDER, render
from specops.phases.run_folder import RunFolder
from specops.progress import SilentProgress
from specops.prometheus.api import Api

pytestmark = pytest.mark.vllm
ASKED = 20


@pytest.mark.timeout(900)
def test_no_traffic_and_then_acceptance_of_a_vllm(speculative, prompts, tmp_path: Path) -> None:
    rollout = Rollout.model_validate(
        {
            "rollout": "vllm",
            "pools": {
                name: {"engine": "endpoint", "base_url": speculative, "model": MODEL}
                for name in ("standard", "speculative")
            },
            "monitor": {"scrape_interval_s": 1, "window_s": 60},
            "guard": {"min_acceptance": 0.01, "min_requests": 5},
        }
    )
    render(rollout, tmp_path, SilentProgress())
    plan = criteria_of(rollout, RunFolder(tmp_path))
    with prometheus(tmp_path / FOLDER / "prometheus.yml", tmp_path) as up:
        api = Api(up.url)

        def seen() -> Evaluation:
            return observe(api, plan, time.time())

        wait_until(lambda: seen().verdict == "no_traffic", "a whole window without traffic", 120)
        for number in range(ASKED):
            complete(speculative, prompts[number % len(prompts)]["text"], 32)
        wait_until(lambda: _acceptance(seen()) is not None, "its acceptance", 60)
        found = seen()
    assert {finding.signal for finding in found.findings} >= {"acceptance", "tpot", "e2e", "errors"}
    value = _acceptance(found)
    assert value is not None
    assert 0 <= value <= 1
    latencies = {
        finding.signal: finding.verdict for finding in found.findings if finding.signal in ("tpot", "e2e")
    }
    assert set(latencies.values()) <= {"unknown", "no_traffic"}, "there is no baseline to compare with"


def _acceptance(found: Evaluation) -> float | None:
    return next(
        (
            finding.value
            for finding in found.findings
            if finding.signal == "acceptance" and finding.verdict in ("healthy", "bad")
        ),
        None,
    )
