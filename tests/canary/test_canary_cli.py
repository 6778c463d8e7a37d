"""`specops canary` by its exit codes, its page and what it leaves for the router."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from calling import specops
from faulty import Servers

from specops import results
from specops.errors import Exit
from specops.phases import canary
from specops.phases.canary.pool_pair import Conformance, ConformanceCheck, ConformanceFinding

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
    words = [line.split()[:2] for line in lines]
    assert [row for row in words if row[:1] in (["length"], ["usage"], ["tools"])] == [
        ["tools", "unsupported"],
        ["length", "pass"],
        ["usage", "pass"],
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
        (("--standard", "no", "--speculative", "no"), Exit.USAGE, "not a usable address"),
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
    monkeypatch.setattr("specops.phases.canary.client.BACKOFF_S", 0.01)
    done = specops("canary", *words, "--out", str(tmp_path), "--quiet")
    assert (done.returncode, done.stdout) == (code, "")
    assert told in done.stderr
    assert not (tmp_path / "canary.json").exists()


def test_a_check_that_there_is_not(servers: Servers, tmp_path: Path) -> None:
    done = specops("canary", *addresses(servers), "--only", "pariti", "--out", str(tmp_path), "--quiet")
    assert done.returncode == Exit.USAGE
    assert "no check 'pariti'" in done.stderr


def test_a_stopped_canary_resumes(servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prompts = tmp_path / "few.json"
    prompts.write_text(FEW, encoding="utf-8")
    words = ("canary", *addresses(servers), "--endpoint", "completions", "--prompts", str(prompts))
    words = (*words, "--only", "usage,tools,length", "--out", str(tmp_path))
    made: list[str] = []
    right = canary._finding

    def ended_after_the_first(check: ConformanceCheck, *rest: Any) -> ConformanceFinding:
        if not made:
            os.kill(os.getpid(), signal.SIGTERM)  # the task is cancelled where it waits next
        made.append(check.name)
        return right(check, *rest)

    monkeypatch.setattr(canary, "_finding", ended_after_the_first)
    path = tmp_path / "canary.json"
    done = specops(*words, "--fresh")
    assert done.returncode == 143, done.stderr
    assert f"partial results are in {path}\nresume with: {shlex.join(['specops', *words])}\n" in done.stderr
    partial = results.read(path)
    assert (partial.verdict, partial.reason) == ("partial", "stopped after 1 of 3 checks")
    before = Conformance.model_validate(partial.data)
    assert made == ["length"]
    many = partial.data | {"requests": {"standard": 1000, "speculative": 1000}}
    results.write(path, partial.model_copy(update={"data": many}))

    done = specops(*words)
    assert done.returncode == Exit.YES, done.stderr
    assert "1 of 3 checks reused" in done.stderr
    assert made == ["length", "usage", "tools"], "what stands is not made again"
    result = results.read(path)
    after = Conformance.model_validate(result.data)
    assert [one.name for one in after.checks] == made
    assert after.checks[0] == before.checks[0]
    assert all(number > 1000 for number in after.requests.values())
    assert result.verdict == "yes"


def test_partial_checks_of_other_inputs_do_not_stand(servers: Servers, tmp_path: Path) -> None:
    words = ("canary", *addresses(servers), "--endpoint", "completions", "--out", str(tmp_path), "--quiet")
    assert specops(*words, "--only", "length").returncode == Exit.YES
    path = tmp_path / "canary.json"
    complete = results.read(path)
    wrong = complete.data["checks"][0] | {"status": "fail"}
    partial = complete.model_copy(update={"verdict": "partial", "data": complete.data | {"checks": [wrong]}})
    results.write(path, partial)
    assert specops(*words, "--only", "length").returncode == Exit.NO, "the same inputs: the finding stands"
    results.write(path, partial.model_copy(update={"inputs": partial.inputs | {"settings": "0" * 64}}))
    assert specops(*words, "--only", "length").returncode == Exit.YES
    assert path.with_name("canary.previous.json").exists()
    results.write(path, partial)
    assert specops(*words, "--only", "length", "--fresh").returncode == Exit.YES


@pytest.mark.slow
def test_sigterm_ends_the_process_of_a_canary_which_then_resumes(servers: Servers, tmp_path: Path) -> None:
    path = tmp_path / "canary.json"
    words = ["canary", *addresses(servers), "--endpoint", "completions", "--out", str(tmp_path)]
    command = [sys.executable, "-m", "specops", *words]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 120
        while not path.exists():
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 143
    assert "Traceback" not in said
    assert said.endswith(f"resume with: {shlex.join(['specops', *words])}\n")
    partial = Conformance.model_validate(results.read(path).data)
    assert specops(*words).returncode in (Exit.YES, Exit.UNDECIDED)
    assert Conformance.model_validate(results.read(path).data).checks[: len(partial.checks)] == partial.checks
