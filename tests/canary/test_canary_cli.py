"""`specops canary` by its exit codes, its page and what it leaves for the router."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from calling import specops
from faulty import Servers

from specops import results
from specops.errors import Exit
from specops.phases.canary.finding import Conformance

FEW = json.dumps([{"text": "def f(self):\n    return self", "id": "a"}, {"text": "import os\n", "id": "b"}])


def addresses(servers: Servers) -> tuple[str, ...]:
    return ("--standard", servers.standard.url + "/v1", "--speculative", servers.speculative.url + "/v1")


def test_two_addresses_that_answer_alike(servers: Servers, tmp_path: Path) -> None:
    prompts = tmp_path / "few.json"
    prompts.write_text(FEW, encoding="utf-8")
    asked = (*addresses(servers), "--endpoint", "completions", "--prompts", str(prompts))
    done = specops("canary", *asked, "--only", "usage,tools,length", "--out", str(tmp_path), "--quiet")
    assert (done.returncode, done.stderr) == (Exit.YES, "")
    lines = done.stdout.splitlines()
    assert [line.split()[:2] for line in lines[1:4]] == [
        ["length", "pass"],
        ["usage", "pass"],
        ["tools", "unsupported"],
    ]
    assert lines[-1].startswith("next: ")
    result = results.read(tmp_path / "canary.json")
    assert result.verdict == "yes"
    assert Conformance.model_validate(result.data).unsupported == []


def test_a_failure_shows_its_request(servers: Servers, tmp_path: Path) -> None:
    with servers.usage_off_by_one():
        asked = (*addresses(servers), "--endpoint", "completions", "--only", "usage")
        done = specops("canary", *asked, "--out", str(tmp_path), "--quiet")
    assert done.returncode == Exit.NO
    assert "FAIL" in done.stdout
    assert 'curl -sS "$BASE_URL/completions"' in done.stdout


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        ((), Exit.USAGE, "a rollout file, or two addresses"),
        (("--standard", "http://127.0.0.1:9/v1"), Exit.USAGE, "both --standard and --speculative"),
        (("--standard", "no", "--speculative", "no"), Exit.USAGE, "cannot be asked"),
        (
            ("--standard", "http://127.0.0.1:9/v1", "--speculative", "http://127.0.0.1:9/v1", "--model", "m"),
            Exit.ENVIRONMENT,
            "could not reach",
        ),
    ],
)
def test_what_cannot_be_asked(
    words: tuple[str, ...], code: Exit, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("specops.phases.canary.asking.BACKOFF_S", 0.01)
    done = specops("canary", *words, "--out", str(tmp_path), "--quiet")
    assert (done.returncode, done.stdout) == (code, "")
    assert told in done.stderr
    assert not (tmp_path / "canary.json").exists()


def test_a_check_that_there_is_not(servers: Servers, tmp_path: Path) -> None:
    done = specops("canary", *addresses(servers), "--only", "pariti", "--out", str(tmp_path), "--quiet")
    assert done.returncode == Exit.USAGE
    assert "no check 'pariti'" in done.stderr
