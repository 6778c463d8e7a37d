"""`specops run` checks what its requests need, says what it will send, and asks, before the first prompt."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pty
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import yaml
from any_speed import any_speed_passes
from calling import specops
from stub import Stub, fault

from specops.cli import app
from specops.cli.run import load_sentence
from specops.config import load
from specops.phases.doctor import machine
from specops.phases.phase import PlannedPhase
from specops.phases.playbook.walk import WalkForecast

NOBODY = "http://127.0.0.1:9"


@pytest.fixture
def written(stub: Stub, other: Stub, prompts_file: Path, tmp_path: Path) -> Any:
    """Writes a rollout file of two endpoints that run."""

    def write(**changes: Any) -> Path:
        ends = [{"engine": "endpoint", "base_url": one.base_url, "model": "stub"} for one in (stub, other)]
        rollout = {
            "rollout": "r",
            "prompts": prompts_file.name,
            "pools": dict(zip(("standard", "speculative"), ends, strict=True)),
            "measure": {"endpoint": "completions", "concurrency": [1, 2], "repeats": 2, "warmup": 0},
        }
        path = tmp_path / "rollout.yaml"
        path.write_text(yaml.safe_dump(rollout | changes))
        return path

    return write


def sent(*stubs: Stub) -> int:
    return sum(len(stub.requests) for stub in stubs)


def test_all_problems_are_listed_before_anything_is_measured(written: Any, stub: Stub, other: Stub) -> None:
    pools = yaml.safe_load(written().read_text())["pools"]
    pools["standard"]["model"] = "another"
    pools["speculative"]["base_url"] = f"{NOBODY}/v1"
    path = written(pools=pools, addresses={"prometheus": NOBODY, "routers": ["127.0.0.1:9"]})
    (path.parent / "prompts.json").write_text("[]")
    done = specops("run", str(path), "--yes")
    assert done.returncode == 3
    said = done.stderr
    assert "error: nothing was measured: 4 problems\n" in said
    assert "\n  prompts: " in said
    assert f"\n  standard endpoint: {stub.base_url} serves stub, not another\n" in said
    assert f"\n  speculative endpoint: {NOBODY}/v1 gave no answer: " in said
    assert "\n  prometheus server: " in said
    assert said.count("    fix: ") == 4
    assert f"hint: specops doctor {path}" in said
    assert sent(stub, other) == 0
    assert not (path.parent / "runs").exists()


def test_prompts_alone_are_wrong_usage(written: Any, stub: Stub, other: Stub) -> None:
    path = written()
    (path.parent / "prompts.json").write_text("[]")
    done = specops("run", str(path), "--yes")
    assert done.returncode == 2
    assert "nothing was measured: prompts: " in done.stderr
    assert sent(stub, other) == 0


def test_a_refused_key_is_found_before_the_baseline(written: Any, stub: Stub, other: Stub) -> None:
    other.admits = lambda headers: False
    done = specops("run", str(written()), "--yes")
    assert done.returncode == 3
    found = f"speculative endpoint: {other.base_url}/models answered 401: it refused the API key\n"
    assert found in done.stderr
    assert sent(stub, other) == 0


def test_a_router_that_does_not_answer_is_a_note(written: Any) -> None:
    path = written(addresses={"routers": ["127.0.0.1:9"]})
    done = specops("run", str(path), "--only", "baseline", "--yes")
    assert done.returncode in (0, 1, 4), done.stderr
    assert "router: could not read the switch of router" in done.stderr


def test_a_folder_that_cannot_be_written_is_a_problem(written: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written()
    access = os.access
    monkeypatch.setattr(
        machine.os, "access", lambda where, mode: where != path.parent and access(where, mode)
    )
    done = specops("run", str(path), "--yes")
    assert done.returncode == 3
    assert f"nothing was measured: disk: results cannot be written in {path.parent}" in done.stderr


def test_without_a_terminal_endpoints_need_an_agreement(written: Any, stub: Stub, other: Stub) -> None:
    path = written()
    done = specops("run", str(path), "--only", "baseline")
    assert done.returncode == 2
    assert (
        f"error: nothing was sent: this would send up to 48 requests to {stub.base_url} and "
        f"{other.base_url}, about 2 at a time to each, for about "
    ) in done.stderr
    assert "expected --yes, or measure.max_rps in the rollout file" in done.stderr
    assert f"hint: specops run {path} --only baseline --yes" in done.stderr
    assert sent(stub, other) == 0


def test_a_limit_in_the_file_is_an_agreement(written: Any, stub: Stub) -> None:
    measure = {"endpoint": "completions", "repeats": 1, "warmup": 0, "concurrency": [1], "max_rps": 200.0}
    done = specops("run", str(written(measure=measure)), "--only", "baseline")
    assert done.returncode in (0, 1, 4), done.stderr
    assert "and at most 200 a second, for about " in done.stderr
    assert stub.requests


def test_what_is_measured_already_needs_neither_servers_nor_an_answer(
    written: Any, stub: Stub, other: Stub
) -> None:
    path = written()
    with any_speed_passes():
        assert specops("run", str(path), "--only", "baseline", "--yes").returncode == 0
    stub.answer = other.answer = lambda body: fault(500, "gone")
    stub.admits = other.admits = lambda headers: False
    stub.visitors.clear()
    again = specops("run", str(path), "--only", "baseline")
    assert again.returncode == 0, again.stderr
    assert stub.visitors == []
    assert "This sends" not in again.stderr
    assert specops("run", str(path), "--only", "launch").returncode != 2  # it renders files


def test_a_plan_says_what_is_sent_where(written: Any, stub: Stub, other: Stub) -> None:
    done = specops("run", str(written()), "--plan", "--only", "baseline")
    assert f"It sends up to 48 requests to {stub.base_url} and {other.base_url}, about 2 at" in done.stdout
    assert stub.visitors == other.visitors == []


def test_pools_that_specops_starts_need_no_question(tmp_path: Path) -> None:
    plan = WalkForecast((PlannedPhase("ab", 2, 512, 90.0, 8),), assumed=False)
    path = tmp_path / "rollout.yaml"
    path.write_text(
        yaml.safe_dump(
            {
                "rollout": "r",
                "pools": {
                    "standard": {"engine": "command", "command": "serve --port {port}"},
                    "speculative": {
                        "engine": "endpoint", "base_url": "http://10.0.0.1/v1", "model": "m"
                    },
                },
            }
        )
    )  # fmt: skip
    rollout = load(path)
    assert load_sentence(plan, rollout) == (
        "up to 512 requests to http://10.0.0.1/v1, about 8 at a time to each, for about 1 min 30 s"
    )
    started = rollout.pools.model_copy(update={"speculative": rollout.pools.standard})
    assert load_sentence(plan, rollout.model_copy(update={"pools": started})) is None
    reused = WalkForecast((PlannedPhase("ab", 2, 512, 90.0, 8, reused=True),), assumed=False)
    assert load_sentence(reused, rollout) is None


@pytest.mark.parametrize(("answer", "sends"), [("y", True), ("n", False), ("", False)])
def test_a_terminal_is_asked(
    written: Any, stub: Stub, monkeypatch: pytest.MonkeyPatch, answer: str, sends: bool
) -> None:
    monkeypatch.setenv("TERM", "dumb")
    code, said = on_a_terminal(answer, "run", str(written()), "--only", "baseline")
    assert "This sends up to 48 requests to " in said
    assert "Continue? [y/N] " in said
    assert bool(stub.requests) == sends
    if not sends:
        assert code == 2
        assert "nothing was sent: the answer was not yes" in said


def test_a_terminal_with_yes_is_not_asked(written: Any, stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    _, said = on_a_terminal("n", "run", str(written()), "--only", "baseline", "--yes")
    assert "Continue?" not in said
    assert stub.requests


def on_a_terminal(answer: str, *words: str) -> tuple[int, str]:
    """The exit code of a command, and what it says on a terminal on which `answer` was typed."""
    mine, theirs = pty.openpty()
    os.write(mine, f"{answer}\n".encode())
    with (
        os.fdopen(theirs, encoding="utf-8") as typed,
        os.fdopen(os.dup(theirs), "w", buffering=1, encoding="utf-8") as screen,
        mock.patch.object(sys, "argv", ["specops", *words]),
        mock.patch.object(sys, "stdin", typed),
        contextlib.redirect_stderr(screen),
        contextlib.redirect_stdout(io.StringIO()),
        pytest.raises(SystemExit) as ended,
    ):
        app.main()
    said = b""
    with contextlib.suppress(OSError):  # on Linux, at the end of what was written
        while part := os.read(mine, 65536):
            said += part
    os.close(mine)
    return int(ended.value.code or 0), said.decode(errors="replace")


def test_json_of_a_plan_has_streams(written: Any) -> None:
    done = specops("run", str(written()), "--plan", "--json")
    phases = {one["phase"]: one for one in json.loads(done.stdout)["phases"]}
    assert phases["baseline"]["streams"] == 2
    assert phases["canary"]["streams"] == 8
    assert phases["launch"]["streams"] == 0
