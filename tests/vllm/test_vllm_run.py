"""playbooks/vllm-local.yaml walked on a real vLLM, with the tiny pair in place of Llama: every phase, from
measuring to the go-live verdict.

No speed is claimed of a build for CPUs, and no test here looks at one. This build answers greedy requests
wrongly where sampled ones share the batch, so the walk must say no, and say why.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from real_vllm import ENVIRONMENT, FORKED, MODEL, PAIR, K, specops

from specops import results
from specops.assets import asset
from specops.errors import Exit
from specops.phases import ON_REQUEST, PHASES

WALKED = [phase for phase in PHASES if phase not in ON_REQUEST]

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(2400)]
CPU = {
    "program": shlex.join(FORKED),
    "model": str(PAIR / "target"),
    "served_model_name": MODEL,
    "dtype": "float32",
    "enforce_eager": True,
    "max_model_len": 512,
    "max_num_seqs": 16,
    "environment": ENVIRONMENT,
}


def of_this_machine(folder: Path, prompts: list[dict[str, Any]]) -> Path:
    """The file as it ships, with a pair and sizes for a CPU, and less to measure."""
    file: dict[str, Any] = yaml.safe_load(asset("playbooks", "vllm-local.yaml").read_text())
    drafted = {"method": "draft_model", "model": str(PAIR / "draft"), "num_speculative_tokens": K}
    for pool in file["pools"].values():
        pool |= CPU
        del pool["gpu_memory_utilization"]
    file["pools"]["speculative"]["speculation"] = drafted
    asked = {"endpoint": "completions", "concurrency": [1, 4], "repeats": 1, "warmup": 0, "max_tokens": 64}
    file["measure"] |= asked | {"timeout_s": 300.0}
    file["ab"] |= {"looks": 1, "requests": 80, "min_duration_s": 0.0}
    file["ab"] |= {"mixed_prompts": len(prompts)}  # more that meet a sampled one, and for longer
    file["sweep"] = {"k": [K], "concurrency": [4]}
    del file["addresses"]["prometheus"], file["addresses"]["alertmanagers"]
    file |= {"prompts": "prompts.json", "canary": {"prompts": 12, "samples": 64}}
    (folder / "prompts.json").write_text(json.dumps(prompts))
    (folder / "rollout.yaml").write_text(yaml.safe_dump(file))
    return folder / "rollout.yaml"


def test_every_phase_and_the_fault_of_this_build_is_found_on_the_way(
    vllm: None, prompts: list[dict[str, Any]], tmp_path: Path
) -> None:
    path, run = of_this_machine(tmp_path, prompts), tmp_path / "run"
    done = specops("run", path, "--out", run, "--continue", "--json")
    assert done.returncode == Exit.NO, done.stderr
    told = json.loads(done.stdout)
    assert [one["phase"] for one in told["phases"]] == WALKED, told["skipped"]
    found = {phase: results.read(run / f"{phase}.json") for phase in WALKED}
    assert found["baseline"].verdict == "yes", found["baseline"].reason
    assert found["drafts"].summary["verdict"] == "compatible"
    assert found["drafts"].settings["engine_version"] == "0.32.0"
    assert found["sweep"].data["stored"]["failed"] == []
    assert found["ab"].verdict == "no", found["ab"].reason
    findings = found["ab"].data["challengers"]["speculative"]["findings"]
    assert {"answers", "sampled answers"} & {one["claim"] for one in findings if one["verdict"] == "against"}
    # It garbles them, or its engine ends: whichever row of the batch its sampling goes wrong at first.
    assert found["canary"].verdict == "no", found["canary"].reason
    assert "mixed" in found["canary"].summary["failed"]
    assert "parity" not in found["canary"].summary["failed"]
    assert {"min_p", "logit_bias"} <= set(found["canary"].summary["unsupported"])
    assert found["guard-drill"].verdict == "yes", found["guard-drill"].reason
    assert found["checklist"].verdict == "no", found["checklist"].reason
    again = specops("run", path, "--out", run)
    assert again.returncode == Exit.NO
    refused = next(phase for phase in WALKED if found[phase].verdict == "no")  # the sweep's is about speed
    assert f"Stopped at {refused}; " in again.stdout
    assert "server is up" not in again.stderr, "nothing is measured twice"
