"""In a real Prometheus that scrapes a real vLLM every name is there, and rules have data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from calling import specops
from daemons import prometheus, wait_until
from real_vllm import MODEL, K, complete

from specops.prometheus import series
from specops.prometheus.api import Api

pytestmark = pytest.mark.vllm
PROMPT = "def main(self):\n    return self.main()\n\ndef main(self):\n"
OURS = '{specops_pool="speculative"}'


@pytest.mark.timeout(600)
def test_rules_and_panels_find_every_name_of_a_real_vllm(
    standard: str, speculative: str, tmp_path: Path
) -> None:
    pools = {
        name: {"engine": "endpoint", "base_url": url, "model": MODEL}
        for name, url in (("standard", standard), ("speculative", speculative))
    }
    rollout = {"rollout": "real", "pools": pools, "monitor": {"scrape_interval_s": 1, "window_s": 20}}
    path = tmp_path / "rollout.yaml"
    path.write_text(yaml.safe_dump(rollout))
    assert specops("monitor", "render", str(path), "--out", str(tmp_path)).returncode == 0
    config = tmp_path / "rendered" / "monitor" / "prometheus.yml"
    with prometheus(config, tmp_path) as up:
        api = Api(up.url)

        def checked() -> Any:
            for url in (standard, speculative):
                complete(url, PROMPT, 24)
            words = ("monitor", "check", str(path), "--prometheus", up.url, "--quiet", "--json")
            return json.loads(specops(*words).stdout)

        def recorded_all() -> bool:
            found = checked()
            return found["verdict"] == "yes" and not found["summary"]["no traffic"] and _has(api)

        wait_until(recorded_all, f"every name, and the rules: {checked()['reason']}", 60)
        [rate] = api.instant(f"{series.ACCEPTANCE}{OURS}")
        assert 0 <= rate.value <= 1
        assert rate.labels["model_name"] == MODEL
        positions = [sample.labels["position"] for sample in api.instant(f"{series.PER_POSITION}{OURS}")]
        assert positions == [str(position) for position in range(K)]
        api.close()


def _has(api: Api) -> bool:
    return all(api.instant(f"{name}{OURS}") for name in (series.ACCEPTANCE, series.MEAN["tpot"]))
