"""The guard's journal: what it amounts to, whatever was cut short; and one guard at a time."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from specops.errors import EnvironmentFailure, FileError
from specops.guard import journal as module
from specops.guard.guard import Status, status
from specops.guard.journal import (
    Entry,
    EntryEvidence,
    Intent,
    Journal,
    SwitchResult,
    TargetReading,
    history,
    read,
    replay,
)
from specops.guard.lock import holder, locked
from specops.guard.policy import GuardRules, decide
from specops.guard.state import Evaluation, State

RULES = GuardRules(consecutive=2, cooldown_s=120, hold=1, steps=(50,))


def entry(number: int, to: int | None = None, done: str | None = None, **state: object) -> Entry:
    return Entry(
        ts=float(number),
        id=number,
        verdict="healthy",
        evidence=EntryEvidence(why=f"line {number}"),
        state=State.model_validate(state),
        action=None if to is None else Intent(percent=to),
        result=None if done is None else SwitchResult.model_validate({"outcome": done}),
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "guard" / "journal.jsonl"


def test_a_line_has_the_keys_that_others_read(path) -> None:
    Journal(path).append(entry(1, 0, "done", mode="fallen", percent=0))
    keys = ["ts", "id", "verdict", "evidence", "state", "action", "result", "notified"]
    assert list(json.loads(path.read_text())) == keys


def test_what_is_written_is_what_is_read(path) -> None:
    kept = Journal(path)
    for line in (
        entry(1),
        entry(2, 0, mode="fallen", percent=0),
        entry(2, 0, "done", mode="fallen", percent=0),
    ):
        kept.append(line)
        assert read(path) == kept.standing == Journal(path).standing
    assert kept.standing.confirmed == 0


def test_a_standing_begins_with_the_first_line_that_is_stored() -> None:
    first = replay([entry(3), entry(4)])
    assert first.began == 3.0
    assert replay([entry(5)], first).began == 3.0
    assert replay([]).began is None


def test_an_intent_without_a_result_and_a_failure_leave_it_open() -> None:
    assert replay([entry(1)]).confirmed == 100
    assert replay([entry(1, 0)]).confirmed is None
    assert replay([entry(1, 0), entry(1, 0, "failed")]).confirmed is None
    assert replay([entry(1, 0, "done"), entry(2)]).confirmed == 0


@given(cut=st.integers(0, 10_000))
@settings(max_examples=60)
def test_a_line_cut_short_was_never_acted_on(tmp_path_factory, cut) -> None:
    path = tmp_path_factory.mktemp("cut") / "journal.jsonl"
    kept = Journal(path)
    kept.append(entry(1, mode="on"))
    whole = path.stat().st_size
    kept.append(entry(2, 0, mode="fallen", percent=0))
    size = path.stat().st_size
    os.truncate(path, whole + cut % (size - whole))
    found = Journal(path)
    assert found.standing.state.mode == "on"
    found.append(entry(2, 0, mode="held", percent=0))
    assert [line.id for line in history(path)] == [1, 2]
    assert read(path).state.mode == "held"


def test_zero_bytes_of_a_power_failure_are_no_line(path) -> None:
    Journal(path).append(entry(1, mode="held", percent=0))
    with path.open("ab") as file:
        file.write(b"\0" * 100 + b"}\n")
    assert Journal(path).standing.state.mode == "held"


def test_damage_in_the_middle_is_history_and_at_the_end_is_told(path) -> None:
    kept = Journal(path)
    for number in (1, 2, 3):
        kept.append(entry(number))
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], "{", lines[2]]) + "\n")
    assert [line.id for line in history(path)] == [1, 3]
    path.write_text("\n".join([lines[0], lines[1], "{"]) + "\n")
    with pytest.raises(FileError, match=r"the last line of .*journal.jsonl \(3\) is damaged"):
        Journal(path)


def test_a_full_disk_takes_the_line_back(path, monkeypatch) -> None:
    kept = Journal(path)
    kept.append(entry(1))

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(module.os, "fsync", full)
        with pytest.raises(FileError, match="nothing is switched without it"):
            kept.append(entry(2, 0, mode="fallen"))
    assert kept.standing.state.mode == "on"
    kept.append(entry(2))
    assert [line.id for line in history(path)] == [1, 2]


def test_it_does_not_grow_for_ever_and_keeps_its_state(path) -> None:
    kept = Journal(path, rotate_bytes=2000)
    kept.append(entry(1, 0, mode="fallen", percent=0))
    kept.append(entry(1, 0, "failed", mode="fallen", percent=0, wait_s=9.0))
    for number in range(2, 200):
        kept.append(entry(number, mode="fallen", percent=0, wait_s=9.0))
        assert read(path) == kept.standing
    files = sorted(path.parent.iterdir())
    assert len(files) == module.OLD_FILES + 1
    assert sum(file.stat().st_size for file in files) < 2500 * len(files)
    again = Journal(path, rotate_bytes=2000)
    assert again.standing == kept.standing
    assert again.standing.confirmed is None, "the failed action is remembered"
    numbers = [line.id for line in history(path) if line.id > 1]
    assert numbers[-1] == 199
    assert sorted(numbers) == numbers


@given(st.lists(st.sampled_from(["healthy", "bad", "no_data", "no_traffic", "unknown"]), max_size=40))
@settings(max_examples=30)
def test_replay_is_the_live_state(tmp_path_factory, verdicts) -> None:
    kept = Journal(tmp_path_factory.mktemp("live") / "journal.jsonl", rotate_bytes=5000)
    state = State()
    for number, verdict in enumerate(verdicts, 1):
        found = Evaluation(ts=60.0 * number, verdict=verdict, reason="so")
        state = decide(state, found, found.ts, RULES).state
        kept.append(entry(number, **state.model_dump()))
    assert Journal(kept.path).standing.state == state


def test_one_guard_at_a_time_and_the_other_is_named(tmp_path) -> None:
    with locked(tmp_path) as lock:
        told = lock.announce("http://127.0.0.1:1")
        assert holder(tmp_path) == told
        assert (tmp_path / "lock").stat().st_mode & 0o077 == 0, "a token is in it"
        with pytest.raises(EnvironmentFailure, match=rf"pid {os.getpid()}"), locked(tmp_path):
            pass
    assert holder(tmp_path) is None
    assert holder(tmp_path / "nowhere") is None
    with locked(tmp_path):
        pass


def test_a_guard_that_is_killed_holds_nothing(tmp_path) -> None:
    program = (
        "import os, signal, sys; from pathlib import Path; from specops.guard.lock import locked\n"
        "with locked(Path(sys.argv[1])): os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False, timeout=60)
    assert (tmp_path / "lock").read_text()
    assert holder(tmp_path) is None


def test_lines_of_earlier_guards_are_read(path: Path) -> None:
    line = json.loads(entry(1, 0, "done", mode="fallen", percent=0).model_dump_json())
    del line["notified"]
    evaluation = {"ts": 5.0, "verdict": "bad", "reason": "slow", "seen_at": 4.0}
    line["evidence"] |= {"found": [{"name": "a", "percent": 100}], "evaluation": evaluation}
    del line["evidence"]["readings"]
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(line) + "\n")
    path.chmod(0o640)
    (found,) = history(path)
    assert found.evidence.readings == (TargetReading(name="a", percent=100),)
    assert found.evidence.evaluation is not None
    assert found.evidence.evaluation.observed_at == 4.0
    assert Journal(path).standing.confirmed == 0
    known = json.loads(status(Journal(path).standing).model_dump_json())
    known["wanted"] = known.pop("target_percent")
    assert Status.model_validate(known).target_percent == 0
