"""`specops guard`: what nobody can mean is refused in a sentence, before anything is touched."""

from __future__ import annotations

import getpass
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from specops.cli.app import app
from specops.errors import EnvironmentFailure, Exit, UsageError
from specops.guard.journal import FILE, read

ENDPOINT = {"engine": "endpoint", "base_url": "http://127.0.0.1:1/v1", "model": "m"}


@pytest.fixture
def rollout(tmp_path: Path) -> Path:
    path = tmp_path / "rollout.yaml"
    pools = {"standard": ENDPOINT, "speculative": ENDPOINT}
    actions = [{"kind": "flag_file", "path": str(tmp_path / "flag")}]
    path.write_text(yaml.safe_dump({"rollout": "r", "pools": pools, "guard": {"actions": actions}}))
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
