"""`specops canary` finds what a real vLLM does wrong where it speculates, and no more than that.

This build for CPUs emulates a sampling kernel: greedy requests among sampled ones are answered wrongly.
Asked for top_k = 1 its engine ends, which the canary tells too; other tests share these servers, so it is not
asked here.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from real_vllm import MODEL, specops

from specops.config.rollout import CheckName
from specops.errors import Exit

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]


def rollout(folder: Path, standard: str, speculative: str, prompts_file: Path) -> Path:
    """All checks but top_k. 64 samples, not 192: no claim is made here about the checks of distributions."""
    pools = {
        name: {"engine": "endpoint", "base_url": url, "model": MODEL}
        for name, url in (("standard", standard), ("speculative", speculative))
    }
    path = folder / "rollout.yaml"
    canary = {"samples": 64, "skip": ["top_k"]}
    fields = {"rollout": "vllm", "prompts": str(prompts_file), "pools": pools, "canary": canary}
    path.write_text(yaml.safe_dump(fields | {"measure": {"timeout_s": 300.0}}))
    return path


def test_it_passes_parity_and_fails_mixed_temperatures(
    standard: str, speculative: str, prompts_file: Path, tmp_path: Path
) -> None:
    asked = rollout(tmp_path, standard, speculative, prompts_file)
    done = specops("canary", asked, "--out", tmp_path, "--json", "--quiet")
    assert done.stdout, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    found = {check["name"]: check for check in result["data"]["checks"]}
    assert (done.returncode, result["verdict"]) == (Exit.NO, "no")
    assert found.keys() == set(get_args(CheckName)) - {"top_k"}
    assert found["parity"]["status"] == "pass", found["parity"]
    assert found["mixed"]["status"] == "fail", found["mixed"]
    assert found["mixed"]["evidence"]["control"] == "12/12"
    assert found["mixed"]["request"].count("curl") > 1
    entries = result["data"]["unsupported"]
    refused = {entry["parameter"] for entry in entries if entry["pool"] == "speculative"}
    assert {"min_p", "logit_bias"} <= refused
