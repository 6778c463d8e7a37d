"""What a walk would do: starts and requests as the phases make them, times by what was measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from calling import specops

from specops.assets import asset
from specops.cli.run import plan_page
from specops.config import load
from specops.phases.inputs import settings_of
from specops.phases.phase import PhaseInput, PlannedPhase
from specops.phases.playbook.walk import WalkForecast, forecast
from specops.progress import SilentProgress

EMBEDDED = asset("playbooks") / "embedded" / "rollout.yaml"
ENDPOINT = {"engine": "endpoint", "model": "m"}


def given(folder: Path, **changes: Any) -> PhaseInput:
    rollout = yaml.safe_load(EMBEDDED.read_text(encoding="utf-8"))
    path = folder / "rollout.yaml"
    rollout["prompts"] = str(EMBEDDED.parent / rollout["prompts"])
    speculation = rollout["pools"]["speculative"]["speculation"]
    speculation["draft"] = str(EMBEDDED.parent / speculation["draft"])
    for pool in rollout["pools"].values():
        pool["target"] = str(EMBEDDED.parent / pool["target"])
    path.write_text(yaml.safe_dump(rollout | changes), encoding="utf-8")
    return PhaseInput(load(path), path, folder / "run", SilentProgress())


def of(plan: WalkForecast, phase: str) -> PlannedPhase:
    return next(one for one in plan.phases if one.phase == phase)


def test_requests_and_starts_are_those_of_the_phases(tmp_path: Path) -> None:
    at = given(tmp_path)
    plan = forecast(at)
    requested = settings_of(at.rollout, at.rollout.pools.standard)
    prompts = requested.prompt_set().prompts
    cells = len(requested.levels()) * requested.repeats
    assert of(plan, "baseline").requests == cells * (len(prompts) + requested.warmup)
    assert of(plan, "baseline").starts == 1
    most = at.rollout.ab.requests
    # Of both arms, with what keeps streams full, arrivals in an open loop and sampled requests.
    assert 2 * most <= of(plan, "ab").requests <= 8 * most
    assert (of(plan, "ab").starts, of(plan, "canary").starts, of(plan, "guard-drill").starts) == (2, 2, 2)


def test_pools_that_run_are_not_started_and_their_traffic_is_not_moved(tmp_path: Path) -> None:
    pools = {
        "standard": ENDPOINT | {"base_url": "http://127.0.0.1:1/v1"},
        "speculative": ENDPOINT | {"base_url": "http://127.0.0.1:2/v1"},
    }
    plan = forecast(given(tmp_path, pools=pools))
    assert sum(one.starts for one in plan.phases) == 0
    assert "not run" in of(plan, "sweep").note
    assert "not run" in of(plan, "guard-drill").note


def test_a_comparison_by_restarts_starts_each_turn(tmp_path: Path) -> None:
    interleaved = of(forecast(given(tmp_path)), "ab")
    at = given(tmp_path, ab={"design": "abba-restart"})
    assert of(forecast(at), "ab").starts > interleaved.starts


def test_without_a_measurement_no_time_left_is_shown_but_the_plan_has_one(tmp_path: Path) -> None:
    plan = forecast(given(tmp_path))
    assert plan.assumed
    assert plan.known_s["baseline"] is None
    assert plan.known_s["launch"] is not None
    assert plan.total_s > 60


def test_the_next_command_of_a_plan_runs_what_was_planned(tmp_path: Path) -> None:
    path = given(tmp_path).file
    done = specops("run", str(path), "--plan", "--only", "monitor", "--fresh")
    assert done.stdout.splitlines()[-1] == f"next: specops run {path} --only monitor --fresh"


def test_only_one_phase(tmp_path: Path) -> None:
    assert [one.phase for one in forecast(given(tmp_path), only="ab").phases] == ["ab"]


@pytest.mark.parametrize("assumed", [True, False])
def test_the_page_fits_80_columns_and_says_what_is_assumed(assumed: bool) -> None:
    plan = WalkForecast(
        (PlannedPhase("ab", 2, 512, 90.0, note="at most"), PlannedPhase("sweep", reused=True)), assumed
    )
    lines = list(plan_page(plan, "specops run rollout.yaml"))
    assert all(len(line) <= 80 for line in lines)
    assert ("assumed" in "\n".join(lines)) == assumed
    assert "Plan: 1 phase to run, 1 to reuse, 0 not to run." in lines
    assert "In all 2 server starts, at most 512 requests, about 1 min 30 s." in lines
    assert lines[-1] == "next: specops run rollout.yaml"
