"""What a walk would do: starts and requests as the phases make them, times by what was measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from calling import specops

from specops.assets import asset
from specops.cli.progress import between
from specops.cli.run import plan_page
from specops.config import load
from specops.phases import phase_named
from specops.phases.inputs import settings_of
from specops.phases.phase import (
    ASSUMED_START_S,
    ASSUMED_TOKEN_S,
    OWN_START_S,
    PhaseInput,
    PlannedPhase,
    Span,
    Timing,
)
from specops.phases.playbook.walk import WalkForecast, forecast
from specops.phases.sweep.plan import Sample
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
    assert 0 < plan.span.least < plan.span.most / 4
    assert plan.start_s == OWN_START_S


def test_a_time_that_was_measured_is_no_range_but_a_comparison_may_end_early(tmp_path: Path) -> None:
    at = given(tmp_path)
    timing = Timing([Sample(1, 0.5, up_s=4.0)], settings_of(at.rollout, at.rollout.pools.standard))
    assert (timing.request_s(1), timing.start_s()) == (Span(0.5, 0.5), Span(4.0, 4.0))
    baseline, ab = (phase_named(name).forecast(at, timing).span for name in ("baseline", "ab"))
    assert baseline.least == baseline.most
    assert ab.least < ab.most


def test_a_limit_on_requests_makes_a_run_longer(tmp_path: Path) -> None:
    at = given(tmp_path, measure={"max_rps": 0.01, "concurrency": [1]})
    baseline = of(forecast(at), "baseline")
    assert baseline.span.least >= 100.0 * baseline.requests


def vllm(**changes: Any) -> dict[str, Any]:
    pool = {"engine": "vllm", "model": "org/m", "version": "0.33.0", "tensor_parallel_size": 4}
    speculation = {"method": "ngram", "num_speculative_tokens": 3}
    return {"standard": pool | changes, "speculative": pool | changes | {"speculation": speculation}}


def test_gpus_and_gpu_hours_are_of_the_servers_that_are_up_at_a_time(tmp_path: Path) -> None:
    plan = forecast(given(tmp_path, pools=vllm()))
    by_phase = {phase.phase: phase.gpus for phase in plan.phases}
    assert (by_phase["baseline"], by_phase["sweep"], by_phase["ab"], by_phase["canary"]) == (4, 4, 8, 8)
    assert plan.gpus == 8
    hours = plan.gpu_hours
    assert hours is not None
    started = [phase for phase in plan.phases if phase.starts]
    assert hours.most == pytest.approx(sum(phase.seconds * (phase.gpus or 0) for phase in started) / 3600)
    assert hours.least < hours.most
    lines = list(plan_page(plan, "next"))
    assert any(line.startswith("It holds up to 8 GPUs at a time, for ") for line in lines)
    in_turn = forecast(given(tmp_path, pools=vllm(), ab={"design": "abba-restart"}), only="ab")
    assert in_turn.gpus == 4


def test_gpus_of_a_command_are_not_known_and_those_of_endpoints_are_not_ours(tmp_path: Path) -> None:
    command = {"engine": "command", "command": "serve --port {port}"}
    plan = forecast(given(tmp_path, pools={"standard": command, "speculative": command}), only="baseline")
    assert (plan.gpus, plan.gpu_hours) == (None, None)
    assert "How many GPUs it holds is not known: a pool is a command." in list(plan_page(plan, "next"))
    pools = {
        "standard": ENDPOINT | {"base_url": "http://127.0.0.1:1/v1"},
        "speculative": ENDPOINT | {"base_url": "http://127.0.0.1:2/v1"},
    }
    lines = list(plan_page(forecast(given(tmp_path, pools=pools)), "next"))
    assert not any("GPU" in line for line in lines)


@pytest.mark.parametrize(
    ("least_s", "most_s", "text"),
    [
        (90.0, 90.0, "1 min 30 s"),
        (30.0, 600.0, "30 s–10 min"),
        (180.0, 1500.0, "3–25 min"),
        (900.0, 20880.0, "15 min–5.8 h"),
        (119.4, 7200.0, "119 s–2.0 h"),
    ],
)
def test_a_span_of_time_is_short(least_s: float, most_s: float, text: str) -> None:
    assert between(least_s, most_s) == text


def test_the_next_command_of_a_plan_runs_what_was_planned(tmp_path: Path) -> None:
    path = given(tmp_path).file
    done = specops("run", str(path), "--plan", "--only", "monitor", "--fresh")
    assert done.stdout.splitlines()[-1] == f"next: specops run {path} --only monitor --fresh"


def test_only_one_phase(tmp_path: Path) -> None:
    assert [one.phase for one in forecast(given(tmp_path), only="ab").phases] == ["ab"]


@pytest.mark.parametrize("assumed", [True, False])
def test_the_page_fits_80_columns_and_says_what_is_assumed(assumed: bool) -> None:
    plan = WalkForecast(
        (PlannedPhase("ab", 2, 512, 90.0, note="at most"), PlannedPhase("sweep", reused=True)),
        assumed,
        ASSUMED_TOKEN_S if assumed else None,
        ASSUMED_START_S if assumed else None,
    )
    lines = list(plan_page(plan, "specops run rollout.yaml"))
    assert all(len(line) <= 80 for line in lines)
    assumption = "Not measured yet, so assumed: 2–50 ms a token, 30 s–10 min a server start."
    assert (assumption in lines) == assumed
    assert "Plan: 1 phase to run, 1 to reuse, 0 not to run." in lines
    assert "In all 2 server starts, at most 512 requests, about 1 min 30 s." in lines
    assert lines[-1] == "next: specops run rollout.yaml"
