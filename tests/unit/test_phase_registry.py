"""A new phase of the playbook is one folder and one line of the registry: a stub is planned, walked, reused,
checked and shown without a change elsewhere."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from calling import specops

from specops import results
from specops.cli.schema import document as document_of
from specops.config import load
from specops.phases import PHASES, REGISTRY, phase_named, phase_of_result
from specops.phases.inputs import left_out
from specops.phases.phase import PhaseInput
from specops.phases.playbook import walk
from specops.phases.run_folder import RunFolder
from specops.phases.run_page.document import document
from specops.progress import SilentProgress
from specops.render.report.formats import html

STUB = """
from pydantic import BaseModel

from specops.phases.phase import MeasuredPhase, PlannedPhase, next_lines
from specops.results import Result, sha256


class Warmth(BaseModel):
    degrees: float


class Warm(MeasuredPhase):
    name = "warm-up"
    result_name = "warmth"
    data = Warmth
    reference = True
    files_use = "nothing"
    change = "heat {file}"
    measured = 0

    def inputs(self, task):
        return {"guard": sha256(task.rollout.guard.model_dump(mode="json"))}

    def unlike(self, rollout, result):
        now = sha256(rollout.guard.model_dump(mode="json"))
        return None if result.inputs["guard"] == now else "the guard"

    def stands(self, task, previous):
        return previous.verdict == "yes"

    def measure(self, task, previous, keep):
        self.measured += 1
        cold = task.rollout.guard.interval_s > 60
        verdict, data = "no" if cold else "yes", {"degrees": 1.5 if cold else 40.0}
        return Result(phase=self.name, verdict=verdict, reason=f"{data['degrees']} degrees", data=data)

    def forecast(self, task, timing):
        return PlannedPhase(self.name, requests=7, seconds=3.0, streams=2, reused=self.reusable(task))

    def following(self, step, commands):
        if step.result.verdict == "yes":
            return next_lines(commands.of("guard status {rollout}"))
        return super().following(step, commands)


PHASE = Warm()
"""
ROLLOUT = """
rollout: demo
guard: {interval_s: INTERVAL}
pools:
  standard: {engine: endpoint, base_url: "http://127.0.0.1:1/v1", model: m}
  speculative: {engine: endpoint, base_url: "http://127.0.0.1:2/v1", model: m}
"""


@pytest.fixture
def registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PhaseInput:
    """The stub in a folder of its own, with its line in the registry; and the input of a walk."""
    package = tmp_path / "warm_up"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "phase.py").write_text(STUB)
    monkeypatch.syspath_prepend(str(tmp_path))
    for module in ("warm_up", "warm_up.phase"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setitem(REGISTRY, "warm-up", "warm_up.phase")
    return rollout_of(tmp_path, interval_s=30)


def rollout_of(folder: Path, interval_s: int) -> PhaseInput:
    file = folder / "rollout.yaml"
    file.write_text(ROLLOUT.replace("INTERVAL", str(interval_s)))
    return PhaseInput(load(file), file, folder / "runs" / "demo", SilentProgress())


def walked(task: PhaseInput, **options: bool) -> walk.Walk:
    return walk.run(task.rollout, task.file, task.folder, task.progress, only="warm-up", **options)


def test_a_registered_phase_is_walked_and_its_result_is_reused(registered: PhaseInput) -> None:
    assert list(PHASES)[-1] == "warm-up"
    first, again = walked(registered), walked(registered)
    (step,), (second) = first.steps, again.steps
    assert (step.result.verdict, step.reused, step.path) == ("yes", False, registered.path("warm-up"))
    assert [later.reused for later in second] == [True]
    assert phase_named("warm-up").measured == 1  # type: ignore[attr-defined]
    assert results.read(registered.folder / walk.RECORD).summary == {"warm-up": "yes"}


def test_a_registered_phase_is_forecast(registered: PhaseInput) -> None:
    planned = walk.forecast(registered).phases[-1]
    assert (planned.phase, planned.requests, planned.reused) == ("warm-up", 7, False)
    walked(registered)
    assert walk.forecast(registered).phases[-1].reused


def test_the_answers_of_a_registered_phase_are_used(registered: PhaseInput, tmp_path: Path) -> None:
    done = walked(registered)
    assert walk.following_walk(done, registered.rollout, registered.file) == [
        f"next: specops guard status {registered.file}"
    ]
    colder = rollout_of(tmp_path, interval_s=600)
    assert left_out(colder.rollout, colder.folder) == {"warm-up": "the guard changed since"}
    failed = walked(colder)
    assert (failed.exit_code, failed.stopped) == (1, None)
    assert walk.following_walk(failed, colder.rollout, colder.file) == [
        f"change: heat {colder.file}",
        f"next: specops run {colder.file}",
    ]


def test_the_page_and_the_run_folder_have_a_registered_phase(registered: PhaseInput) -> None:
    walked(registered)
    run = RunFolder(registered.folder)
    assert run.parts["warm-up"] is not None
    assert run.results["warm-up"].data == {"degrees": 40.0}
    page = html(document(run))
    assert "warm-up" in page
    assert "40.0 degrees" in page
    assert phase_of_result("warmth") is phase_named("warm-up")


def test_a_registered_phase_is_planned_by_the_command(registered: PhaseInput) -> None:
    done = specops("run", str(registered.file), "--plan")
    assert done.returncode == 0, done.stderr
    assert "warm-up" in done.stdout


def test_the_schema_of_a_registered_phases_result_is_printed(registered: PhaseInput) -> None:
    schema = document_of("warmth")
    assert schema["properties"]["phase"] == {"const": "warmth"}
    assert schema["properties"]["data"]["properties"].keys() == {"degrees"}


def test_each_phase_of_the_registry_has_its_name(tmp_path: Path) -> None:
    for name in PHASES:
        phase = phase_named(name)
        assert phase.name == name
        assert phase_of_result(phase.result_name) is phase
