"""`specops guard`: what nobody can mean is refused in a sentence, before anything is touched."""

from __future__ import annotations

import getpass
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from calling import specops
from printed_commands import in_prose, problem
from typer.testing import CliRunner

from specops.actions import Message, Notification
from specops.cli.app import app
from specops.cli.output import name_rollout
from specops.cli.progress import progress
from specops.config import load
from specops.errors import EnvironmentFailure, Exit, UsageError
from specops.guard.journal import FILE, Entry, EntryEvidence, Journal, read
from specops.guard.lock import locked
from specops.guard.policy import GuardRules, decide
from specops.guard.state import Evaluation, Override, SignalFinding, State
from specops.phases import guard as phase
from specops.phases.commands import Commands

ENDPOINT = {"engine": "endpoint", "base_url": "http://127.0.0.1:1/v1", "model": "m"}


@pytest.fixture
def rollout(tmp_path: Path) -> Path:
    path = tmp_path / "rollout.yaml"
    pools = {"standard": ENDPOINT, "speculative": ENDPOINT}
    addresses = {"prometheus": "http://127.0.0.1:1"}
    actions = [{"kind": "flag_file", "path": str(tmp_path / "flag")}]
    path.write_text(
        yaml.safe_dump(
            {"rollout": "r", "pools": pools, "addresses": addresses, "guard": {"actions": actions}}
        )
    )
    return path


@pytest.mark.parametrize(
    "words",
    [
        ["override", "standard", "--why", "x", "--for", "inf"],
        ["override", "standard", "--why", "x", "--for", "nan"],
        ["drill", "--limit", "inf"],
        ["simulate", "--last", "inf"],
        ["simulate", "--last", "10000000"],
        ["simulate", "--slower", "inf"],
    ],
)
def test_a_time_without_end_is_refused(rollout, words) -> None:
    done = CliRunner().invoke(app, ["guard", words[0], str(rollout), *words[1:]])
    assert done.exit_code == Exit.USAGE
    assert "Invalid value" in done.output
    assert not (rollout.parent / "flag").exists()


@pytest.mark.parametrize(("option", "value"), [("--why", ""), ("--by", "x" * 201)])
def test_an_override_says_who_and_why(rollout, option, value) -> None:
    words = ["--why", "x", option, value]
    done = CliRunner().invoke(app, ["guard", "override", str(rollout), "standard", *words])
    assert isinstance(done.exception, UsageError)
    assert option in done.exception.message


def test_a_user_without_a_name_can_override(rollout, tmp_path, monkeypatch) -> None:
    def nameless() -> str:
        raise KeyError("getpwuid(): uid not found: 1000700000")

    monkeypatch.setattr(getpass, "getuser", nameless)
    words = ["override", str(rollout), "standard", "--why", "x", "--out", str(tmp_path)]
    done = CliRunner().invoke(app, ["guard", *words])
    assert not isinstance(done.exception, EnvironmentFailure | KeyError), done.output
    override = read(tmp_path / "guard" / FILE).state.override
    assert override is not None
    assert override.by.startswith("uid ")


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("as_json", [False, True])
def test_a_hint_names_the_rollout_file_of_the_command(
    rollout: Path, tmp_path: Path, apart: bool, as_json: bool
) -> None:
    """The lock of the guard does not know which file it is of; the command line does."""
    file = rollout.rename(tmp_path / "my rollout.yaml")
    folder = tmp_path / "elsewhere" if apart else tmp_path / "runs" / "r"
    words = ["guard", "once", str(file), *(["--out", str(folder)] if apart else [])]
    with locked(folder / "guard"):
        done = specops(*words, *(["--json"] if as_json else []))
    assert done.returncode == Exit.ENVIRONMENT
    hint = json.loads(done.stdout)["hint"] if as_json else done.stderr.splitlines()[-1]
    (shown,) = in_prose(hint)
    assert shown.words == ["guard", "status", *words[2:]]
    assert problem(shown.words) is None


class Chat(Notification):
    name = "chat"

    def __init__(self) -> None:
        self.texts: list[str] = []

    def send(self, message: Message) -> None:
        self.texts.append(message.text)


def strings(document: str) -> str:
    """The texts of a JSON document, one in a line."""

    def within(value: Any) -> Iterator[str]:
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict | list):
            for one in value.values() if isinstance(value, dict) else value:
                yield from within(one)

    return "\n".join(within(json.loads(document)))


@pytest.mark.parametrize("name", ["my rollout.yaml", "ROLLOUT.yaml"])
def test_journal_status_and_messages_have_commands_that_run_from_anywhere(
    rollout: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None has the placeholder: the file is named with its whole path, as one word."""
    file, chat = rollout.rename(rollout.parent / name), Chat()
    monkeypatch.chdir(file.parent)
    monkeypatch.setattr(phase, "notifications", lambda _: [chat])
    given = load(file)
    settings = given.guard.model_copy(update={"attempts": 0, "consecutive": 1})
    commands = Commands(given.model_copy(update={"guard": settings}), Path(name), Path("runs/r"))
    unmeasured = "there is no baseline.json: specops run ROLLOUT --only baseline"
    finding = SignalFinding(signal="e2e", verdict="bad", why=unmeasured)
    bad = Evaluation(ts=1.0, verdict="bad", reason=unmeasured, findings=(finding,))
    with phase.guarding(commands, lambda *_: bad) as (guard, _):
        fallen = guard.turn()
        (file.parent / "flag").write_text('{"speculative_percent": 0}')
        guard.release("ada", "again")
        (file.parent / "flag").write_text('{"speculative_percent": 0}')
        guard.pin(Override(pool="speculative", by="ada", why="look", left_s=None))
        (file.parent / "flag").write_text('{"speculative_percent": 0}')
        guard.turn()
        unconfirmed = guard.unconfirmed
    assert fallen.evidence.capacity is not None
    assert unconfirmed is not None
    shown = CliRunner().invoke(app, ["guard", "status", name, "--json"]).stdout
    journal = file.parent / "runs" / "r" / "guard" / FILE
    texts = {
        "journal": "\n".join(map(strings, journal.read_text().splitlines())),
        "status": strings(shown),
        "chat": "\n".join(chat.texts),
        "health": unconfirmed,
    }
    for where, text in texts.items():
        assert not re.search(r"\bROLLOUT\b(?!\.yaml)", text), (where, text)
        calls = [one for one in in_prose(text) if one.words]
        assert calls, where
        for call in calls:
            assert str(file) in call.words, (where, call)
            assert problem(call.words) is None, (where, call)


def test_status_and_notes_name_the_rollout_file(rollout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    journal = Journal(rollout.parent / "runs" / "r" / "guard" / FILE)
    held = decide(
        State(mode="held", percent=0), Evaluation(ts=1.0, verdict="healthy", reason="r"), 1.0, GuardRules()
    )
    journal.append(
        Entry(ts=1.0, id=1, verdict="healthy", evidence=EntryEvidence(why=held.why), state=held.state)
    )
    said = specops("guard", "status", str(rollout)).stdout
    assert f"specops guard override {rollout} none --why 'the cause is fixed'" in said
    name_rollout("a.yaml")
    try:
        with progress() as shown:
            shown.note("run specops guard status ROLLOUT")
    finally:
        name_rollout(None)
    assert capsys.readouterr().err == "run specops guard status a.yaml\n"
