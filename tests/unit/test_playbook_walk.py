"""The walk's order and gates, and what each phase does where it does not apply. No server is started."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from specops import results
from specops.config import Rollout
from specops.errors import ConfigError, EnvironmentFailure, Exit, ServerError, SpecopsError
from specops.phases import ON_REQUEST, PHASES, PhaseName, phase_named
from specops.phases.canary import inputs as asked
from specops.phases.canary import phase as canary_phase
from specops.phases.guard_drill import phase as drill_phase
from specops.phases.guard_drill.phase import drill_inputs
from specops.phases.guard_drill.stage import STAGED, staged
from specops.phases.phase import Phase, PhaseInput, no_room
from specops.phases.playbook import Skipped, Step, Walk, walk
from specops.phases.playbook.walk import RECORD, Record
from specops.progress import SilentProgress
from specops.results import Result, Verdict

WALKED = [phase for phase in PHASES if phase not in ON_REQUEST]

ENDPOINT = {"engine": "endpoint", "base_url": "http://127.0.0.1:1/v1", "model": "m"}
EMBEDDED = {"engine": "embedded"}
OWN = {"standard": EMBEDDED, "speculative": EMBEDDED | {"speculation": {"tree": "ngram:8"}}}
RUNNING = {"standard": ENDPOINT, "speculative": ENDPOINT | {"base_url": "http://127.0.0.1:2/v1"}}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A walk writes run.json into its run folder."""
    monkeypatch.chdir(tmp_path)


class Notes(SilentProgress):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def note(self, text: str) -> None:
        self.lines.append(text)


def given(folder: Path, pools: Any = RUNNING, **changes: Any) -> PhaseInput:
    sections = {name: part for name, part in changes.items() if name not in ("fresh", "by_name")}
    rollout = Rollout.model_validate({"rollout": "demo", "pools": pools} | sections)
    options = {name: part for name, part in changes.items() if name not in sections}
    return PhaseInput(rollout, folder / "rollout.yaml", folder, SilentProgress(), **options)


def result(phase: str, verdict: Verdict = "yes", **more: Any) -> Result:
    return Result(phase=phase, verdict=verdict, reason=f"because of {phase}", **more)


def kept(at: PhaseInput, phase: PhaseName, verdict: Verdict = "yes", **more: Any) -> Result:
    results.write(at.path(phase), result(phase, verdict, **more))
    return results.read(at.path(phase))


def walked(
    monkeypatch: pytest.MonkeyPatch, said: dict[PhaseName, Verdict | SpecopsError | None], **options: Any
) -> tuple[Walk, Notes]:
    """What each phase says, yes where it is not named; None: it does not apply."""

    class Answering(Phase):
        def __init__(self, name: PhaseName) -> None:
            self.name = name

        def run(self, task: PhaseInput) -> Step | Skipped:
            answer = said.get(self.name, "yes")
            if isinstance(answer, SpecopsError):
                raise answer
            if answer is None:
                return Skipped(self.name, "it cannot")
            return Step(self.name, task.path(self.name), result(self.name, answer))

    monkeypatch.setattr(walk, "phase_named", Answering)
    at, notes = given(Path("runs/demo")), Notes()
    return walk.run(at.rollout, at.file, at.folder, notes, **options), notes


def test_all_phases_in_the_playbooks_order(monkeypatch) -> None:
    done, _ = walked(monkeypatch, {})
    assert [step.phase for step in done.steps] == WALKED
    assert (done.stopped, done.exit_code) == (None, Exit.YES)


@pytest.mark.parametrize("phase", WALKED[:-1])
def test_a_phase_that_says_no_ends_the_walk_unless_it_is_to_go_on(monkeypatch, phase) -> None:
    done, notes = walked(monkeypatch, {phase: "no"})
    assert done.stopped == done.steps[-1].phase == phase
    assert done.exit_code == Exit.NO
    again = "specops run runs/demo/rollout.yaml --out runs/demo --continue"
    assert f"{phase} failed: because of {phase}; to continue past this gate: {again}" in notes.lines
    on, _ = walked(monkeypatch, {phase: "no"}, go_on=True)
    assert [step.phase for step in on.steps] == WALKED
    assert (on.stopped, on.exit_code) == (None, Exit.NO)


def test_what_is_undecided_or_does_not_apply_ends_nothing(monkeypatch) -> None:
    done, notes = walked(monkeypatch, {"launch": "undecided", "sweep": None})
    assert [step.phase for step in done.steps] == [phase for phase in WALKED if phase != "sweep"]
    assert [one.phase for one in done.skipped] == ["sweep"]
    assert "sweep: skipped: it cannot" in notes.lines
    assert done.exit_code == Exit.UNDECIDED
    alone, _ = walked(monkeypatch, {"sweep": None}, only="sweep")
    assert (alone.steps, alone.exit_code) == ([], Exit.UNDECIDED)


def record(folder: Path) -> Record:
    return Record.model_validate(results.read(folder / RECORD).data)


def test_a_walk_records_its_rollout_file_what_it_skipped_and_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done, _ = walked(monkeypatch, {"sweep": None, "canary": "no"})
    first = record(tmp_path / done.folder)
    assert (first.rollout, first.rollout_file, first.stopped) == ("demo", "rollout.yaml", "canary")
    assert [one.phase for one in first.skipped] == ["sweep"]
    walked(monkeypatch, {"drafts": None}, only="drafts")  # of other phases it says nothing new
    again = record(tmp_path / done.folder)
    assert [one.phase for one in again.skipped] == ["drafts", "sweep"]
    assert again.stopped == "canary"
    walked(monkeypatch, {})
    assert (record(tmp_path / done.folder).skipped, record(tmp_path / done.folder).stopped) == ([], None)


def test_an_error_says_what_was_done_before_it(monkeypatch) -> None:
    notes: list[str] = []
    monkeypatch.setattr(Notes, "note", lambda _, text: notes.append(text))
    with pytest.raises(ServerError, match="it died"):
        walked(monkeypatch, {"sweep": ServerError("it died")})
    assert notes == ["sweep failed; the same command resumes at sweep (done: baseline, drafts, launch)"]


@pytest.mark.parametrize("stop", [KeyboardInterrupt(), ServerError("it died"), None])
@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("fresh", [False, True])
def test_a_fresh_walk_that_stops_leaves_no_earlier_result_of_later_phases(
    tmp_path, monkeypatch, fresh, stored, stop
) -> None:
    """It resumes without `--fresh`, and must not reuse them. `stop` None: the gate says no."""
    at = given(tmp_path)
    for phase in WALKED:
        kept(at, phase)
    names = [path.name for path in sorted(tmp_path.iterdir())]

    def baseline(task: PhaseInput) -> Step:
        if stored:
            kept(task, "baseline", "partial" if stop else "no")
        if stop:
            raise stop
        return Step("baseline", task.path("baseline"), result("baseline", "no"))

    monkeypatch.setattr(phase_named("baseline"), "run", baseline)
    with nullcontext() if stop is None else pytest.raises(type(stop)):
        walk.run(at.rollout, at.file, at.folder, Notes(), fresh=fresh)
    later = [at.path(phase) for phase in WALKED[1:]]
    assert at.path("baseline").exists()
    if fresh and stored:
        assert not any(path.exists() for path in later)
        assert all(path.with_name(f"{path.stem}.previous.json").exists() for path in later)
    else:
        assert [path.name for path in sorted(tmp_path.iterdir()) if path.name != RECORD] == names


@pytest.mark.parametrize(
    ("phase", "hint"),
    [
        ("drafts", "specops verify-draft TARGET DRAFT --out"),
        ("sweep", " --attach '0=http://127.0.0.1:1/v1#m' --attach '5=http://127.0.0.1:2/v1#m'"),
        ("guard-drill", "specops guard drill"),
    ],
)
def test_what_a_walk_cannot_do_with_pools_that_run_is_told_and_taken_where_it_was_done(
    tmp_path, phase, hint
) -> None:
    run = phase_named(phase).run
    at = given(tmp_path)
    skipped = run(at)
    assert isinstance(skipped, Skipped)
    assert hint in str(skipped.hint)
    by_hand = kept(at, phase)
    assert run(at) == Step(phase, at.path(phase), by_hand, reused=True, by_hand=True)
    assert isinstance(run(given(tmp_path, fresh=True)), Skipped)
    kept(at, phase, "partial")
    assert isinstance(run(at), Skipped)


def test_commands_are_swept_where_they_say_k_and_compared_where_they_do_not(tmp_path) -> None:
    def at(command: str) -> PhaseInput:
        speculative = {"engine": "command", "command": command}
        return given(tmp_path, {"standard": ENDPOINT, "speculative": speculative})

    skipped = phase_named("sweep").run(at("serve --port {port}"))
    assert isinstance(skipped, Skipped)
    assert "{k}" in skipped.reason
    with pytest.raises(ConfigError, match=r"says \{k\}") as caught:
        phase_named("ab").run(at("serve --port {port} -k {k}"))
    assert "rollout.yaml" in str(caught.value.hint)


@pytest.mark.parametrize("run", [phase_named("monitor").run, phase_named("route").run])
def test_nothing_is_rendered_for_pools_that_answer_nowhere_yet(tmp_path, run) -> None:
    skipped = run(given(tmp_path, OWN))
    assert isinstance(skipped, Skipped)
    assert "addresses.standard" in str(skipped.hint)
    made = run(given(tmp_path, OWN, addresses={"standard": ["a:1"], "speculative": ["b:1"]}))
    assert isinstance(made, Step)
    assert made.path.exists()


def test_a_server_without_room_beside_the_other_is_no_error_where_they_share_a_device(tmp_path) -> None:
    error = ServerError("out of memory")
    skipped = no_room(given(tmp_path, OWN, ab={"design": "abba-restart"}), "canary", error)
    assert "out of memory" in skipped.reason
    with pytest.raises(ServerError):
        no_room(given(tmp_path, OWN), "canary", error)


def test_without_a_router_there_is_no_stage(tmp_path, monkeypatch) -> None:
    lacking = EnvironmentFailure("could not find nginx", hint="apt-get install nginx")
    monkeypatch.setattr(drill_phase, "missing", lambda _: lacking)
    assert phase_named("guard-drill").run(given(tmp_path, OWN)) == Skipped(
        "guard-drill", "no router for the rehearsal: could not find nginx", "apt-get install nginx"
    )


@pytest.mark.parametrize(
    ("verdict", "settings", "inputs", "stands"),
    [
        ("no", {}, {}, True),  # of the live set-up
        ("yes", {STAGED: "here"}, None, True),
        ("yes", {STAGED: "here"}, {"settings": "others"}, False),
        ("undecided", {STAGED: "here"}, None, False),
        ("no", {STAGED: "here"}, None, False),
    ],
)
def test_a_drill_stands_on_the_live_set_up_or_of_the_same_inputs(
    tmp_path, monkeypatch, verdict, settings, inputs, stands
) -> None:
    monkeypatch.setattr(drill_phase, "missing", lambda _: EnvironmentFailure("none"))
    at = given(tmp_path, OWN)
    known = drill_inputs(at.rollout) if inputs is None else inputs
    kept(at, "guard-drill", verdict, settings=settings, inputs=known)
    made = phase_named("guard-drill").run(at)
    assert isinstance(made, Step if stands else Skipped)


def test_no_router_can_be_put_before_pools_that_call_the_model_differently(tmp_path) -> None:
    at = given(tmp_path, {"standard": ENDPOINT, "speculative": ENDPOINT | {"model": "other"}})
    with pytest.raises(ConfigError, match="calls it m, the speculative one other"), staged(at):
        pass


@pytest.mark.parametrize(
    ("verdict", "same", "fresh", "reused", "resumed"),
    [
        ("yes", True, False, True, False),
        ("no", True, False, True, False),
        ("undecided", True, False, False, False),
        ("partial", True, False, False, True),
        ("partial", False, False, False, False),
        ("yes", False, False, False, False),
        ("yes", True, True, False, False),
        ("partial", True, True, False, False),
    ],
)
def test_a_canary_is_reused_resumed_or_made_anew(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    verdict: Verdict,
    same: bool,
    fresh: bool,
    reused: bool,
    resumed: bool,
) -> None:
    at = given(tmp_path, fresh=fresh)
    read = asked(at.rollout) if same else {"settings": "other"}
    findings = {"checks": [], "unsupported": [], "requests": {}, "prompts": {}}
    earlier = kept(at, "canary", verdict, inputs=read, data=findings)
    given_previous: list[Result | None] = []

    def made(*_: Any, previous: Result | None, **__: Any) -> Result:
        given_previous.append(previous)
        return result("canary", "yes", data={"made": "anew"})

    monkeypatch.setattr(canary_phase, "canary", made)
    assert canary_phase.PHASE.reusable(at) == reused, "the forecast says what the walk does"
    step = phase_named("canary").run(at)
    assert isinstance(step, Step)
    assert step.reused == reused
    assert given_previous == ([] if reused else [earlier if resumed else None])
    aside = at.path("canary").with_name("canary.previous.json")
    assert aside.exists() == (not reused and not resumed)
    assert step.result.data == (findings if reused else {"made": "anew"})
