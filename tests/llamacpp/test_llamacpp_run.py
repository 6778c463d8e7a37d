"""The whole playbook over two pools of llama.cpp: from measuring to the go-live verdict, and nothing lost.

No speed is claimed here, and none is looked at: the shipped draft does not pay on llama.cpp.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from calling import specops
from daemons import program

from specops import results
from specops.assets import asset
from specops.errors import Exit
from specops.phases import ON_REQUEST, PHASES
from specops.results import Result

WALKED = [phase for phase in PHASES if phase not in ON_REQUEST]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
EACH = 3
"""Prompts of a class."""


@pytest.fixture(scope="module")
def walked(standard, drafting, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The rollout file, and what `run` said."""
    program("nginx")
    folder = tmp_path_factory.mktemp("walk")
    shipped = json.loads(asset("playbooks", "embedded", "prompts.json").read_text(encoding="utf-8"))
    classes = sorted({prompt["class"] for prompt in shipped})
    chosen = [[one for one in shipped if one["class"] == name][:EACH] for name in classes]
    (folder / "prompts.json").write_text(json.dumps([one for prompts in chosen for one in prompts]))
    file = {
        "rollout": "llamacpp",
        "prompts": "prompts.json",
        "pools": {"standard": standard, "speculative": standard | {"speculation": drafting}},
        "measure": {
            "endpoint": "completions",
            "concurrency": [1, 4],
            "repeats": 1,
            "warmup": 1,
            "max_tokens": 32,
        },
        "ab": {"looks": 1, "requests": 120, "min_duration_s": 0.0},
        "sweep": {"k": [2, 4], "concurrency": [1]},
        "canary": {"prompts": 6, "samples": 64},
        "addresses": {
            "standard": ["127.0.0.1:1"],
            "speculative": ["127.0.0.1:2"],
            "routers": ["127.0.0.1:3"],
        },
    }
    path = folder / "rollout.yaml"
    path.write_text(yaml.safe_dump(file))
    done = specops("run", str(path), "--out", str(folder / "run"), "--continue", "--json")
    assert done.returncode in (Exit.YES, Exit.NO, Exit.UNDECIDED), done.stderr
    said: dict[str, Any] = json.loads(done.stdout)
    return path, said


@pytest.fixture(scope="module")
def found(walked) -> dict[str, Result]:
    path, _ = walked
    return {phase: results.read(path.parent / "run" / f"{phase}.json") for phase in WALKED}


def test_every_phase_is_walked(walked) -> None:
    _, said = walked
    assert [one["phase"] for one in said["phases"]] == WALKED, said["skipped"]


def test_no_request_is_lost_though_the_server_closes_each_connection(found) -> None:
    cells = found["baseline"].data["cells"]
    assert [len(cell["rows"]) for cell in cells] == [3 * EACH] * 2
    assert {row["error"] for cell in cells for row in cell["rows"]} == {None}
    for levels in found["ab"].data["arms"].values():
        assert {level["failed"] for level in levels} == {0}
    assert {cell["failed"] for cell in found["sweep"].data["cells"]} == {0}


def test_the_pair_is_read_from_its_gguf_files(found) -> None:
    drafts = found["drafts"]
    assert drafts.verdict == "yes", drafts.reason
    assert drafts.settings["engine"] == "llamacpp"
    assert drafts.settings["engine_version"].startswith("b")
    assert drafts.summary["method"] == "draft-simple"


def test_acceptance_by_k_comes_from_llama_cpps_own_counters(found) -> None:
    cells = {cell["setting"]: cell for cell in found["sweep"].data["cells"]}
    assert cells["standard"]["accept_ratio"] is None
    for k in (2, 4):
        cell = cells[f"k={k}"]
        assert 0 < cell["accept_ratio"] < 1
        assert 1 < cell["accept_length"] <= 1 + k
    assert cells["k=4"]["accept_ratio"] < cells["k=2"]["accept_ratio"]


def test_the_canary_finds_what_is_wrong_with_this_server_and_nothing_else(found) -> None:
    canary = found["canary"]
    # With a draft, its answers end some tokens before the limit of the context.
    assert set(canary.summary["failed"]) - {"near_limit"} == {"logprobs"}, canary.reason
    [near_limit] = [one for one in canary.data["checks"] if one["name"] == "near_limit"]
    assert near_limit["status"] != "fail" or "it ends after" in near_limit["message"]
    [logprobs] = [one for one in canary.data["checks"] if one["name"] == "logprobs"]
    assert "tokens have no top log-probabilities" in logprobs["message"]
    assert '"logprobs": 2' in logprobs["request"], "a request to paste"
    passed = {one["name"] for one in canary.data["checks"] if one["status"] == "pass"}
    assert passed >= {"distribution", "usage", "stream", "repetition_penalty", "json_schema", "too_long"}


def test_what_is_rendered_runs_llama_server(walked, found) -> None:
    path, _ = walked
    rendered = path.parent / "run" / "rendered"
    script = (rendered / "speculative.sh").read_text()
    assert "--spec-type draft-simple" in script
    assert "--spec-draft-n-max" in script
    [config] = rendered.glob("monitor/prometheus.yml")
    assert "target_label: specops_pool" in config.read_text(), "the router's series are the pool's"
    rules = (rendered / "monitor" / "rules.yml").read_text()
    assert "llamacpp:spec_decode_num_accepted_tokens_total" in rules
    assert "kv_usage" not in rules


def test_the_drill_moves_traffic_and_brings_it_back(found) -> None:
    assert found["guard-drill"].verdict == "yes", found["guard-drill"].reason
