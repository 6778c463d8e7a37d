"""The rollout files that ship: read, linted clean, and rendered as far as it says where things are."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
import yaml

from specops.assets import asset
from specops.config import Rollout, load
from specops.phases.launch import LaunchData
from specops.phases.launch import render as render_launch
from specops.phases.monitor.render import render as render_monitor
from specops.phases.route import render as render_route
from specops.phases.sweep.spec import spec_of
from specops.phases.verify_draft.pair import settings_for
from specops.progress import SilentProgress

PLAYBOOKS = asset("playbooks")
FILES = ["embedded/rollout.yaml", "edge.yaml", "vllm-local.yaml", "vllm-pools.yaml", "ray-sweep.yaml"]
SWEPT = [name for name in FILES if name != "vllm-pools.yaml"]
DEPLOYED = [name for name in FILES if name != "ray-sweep.yaml"]


def rollout(name: str) -> Rollout:
    return load(PLAYBOOKS / name)


def test_these_are_all_that_ship() -> None:
    shipped = {path.relative_to(PLAYBOOKS).as_posix() for path in PLAYBOOKS.rglob("*.yaml")}
    assert shipped == {*FILES, "rollout.template.yaml"}


@pytest.mark.parametrize("name", [*FILES, "rollout.template.yaml"])
def test_an_editor_finds_nothing_wrong_by_the_schema_that_the_file_names(name) -> None:
    path = PLAYBOOKS / name
    assert path.read_text(encoding="utf-8").startswith("# yaml-language-server: $schema=")
    first = path.read_text(encoding="utf-8").splitlines()[0]
    schema = json.loads((path.parent / first.rpartition("=")[2]).read_text(encoding="utf-8"))
    jsonschema.validate(yaml.safe_load(path.read_text(encoding="utf-8")), schema)


@pytest.mark.parametrize("name", FILES)
def test_the_lint_has_nothing_against_how_the_pools_are_started(name, tmp_path) -> None:
    data = LaunchData.model_validate(render_launch(rollout(name), tmp_path, SilentProgress()).data)
    found = [finding for pool in data.pools.values() for finding in pool.findings]
    assert [finding for finding in found if finding.level != "note"] == []
    assert data.capacity.verdict == "undecided", "nothing was measured"


@pytest.mark.parametrize("name", DEPLOYED)
def test_monitoring_and_router_are_rendered(name, tmp_path) -> None:
    assert render_monitor(rollout(name), tmp_path, SilentProgress()).verdict == "yes"
    assert render_route(rollout(name), tmp_path).verdict == "yes"


@pytest.mark.parametrize("name", SWEPT)
def test_what_is_swept_includes_what_is_deployed(name) -> None:
    """Else the checklist could not say whether the best is deployed."""
    file = rollout(name)
    settings = spec_of(file, (PLAYBOOKS / name).parent).settings
    deployed = file.pools.speculative.model_dump()
    assert deployed in [setting.pool.model_dump() for setting in settings]


@pytest.mark.parametrize("name", SWEPT)
def test_the_pair_that_is_judged_is_the_pools_own(name) -> None:
    pool = rollout(name).pools.speculative
    asked = settings_for(pool)
    assert asked is not None
    assert asked.engine == pool.engine
    assert Path(asked.draft).name in ("head", "draft", "EAGLE3-LLaMA3.1-Instruct-8B", "Llama-3.1-8B-Instruct")


def test_the_sweep_of_many_machines_says_where(tmp_path) -> None:
    assert rollout("ray-sweep.yaml").sweep.cluster == "ray://10.0.1.30:10001"
