"""`specops ab`: its answer, its exit codes, what it refuses, and Ctrl-C."""

from __future__ import annotations

import json
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from calling import specops
from stub import CHUNKS, Body, Reply, Stub, fault, stream, wait_until

from specops import results
from specops.errors import Exit

pytestmark = pytest.mark.usefixtures("any_speed")


def words_of(stub: Stub, other: Stub, prompts: Path, out: Path, *more: str) -> list[str]:
    arms = ["--arm", f"old={stub.base_url}#stub", "--arm", f"new={other.base_url}"]
    asked = ["--prompts", str(prompts), "--out", str(out), "--warmup", "0", "--same-prompts"]
    asked += ["--requests", "330", "--min-duration", "0"]
    return ["ab", *arms, *asked, *more]


@pytest.fixture
def more_prompts(tmp_path: Path) -> Path:
    """Enough of each class for an interval."""
    path = tmp_path / "more.json"
    items = [{"id": f"p{i}", "class": "long" if i % 2 else "short", "text": f"Prompt {i}"} for i in range(24)]
    path.write_text(json.dumps(items))
    return path


def call(*args: Any) -> subprocess.CompletedProcess[str]:
    return specops(*words_of(*args))


def slower(seconds: float) -> Any:
    return lambda body: Reply(stream(body, CHUNKS), gap_s=seconds)


def test_a_faster_arm_is_a_yes_on_one_page(stub, other, more_prompts, tmp_path) -> None:
    stub.answer, other.answer = slower(0.015), slower(0.002)
    out, plot = tmp_path / "ab.json", tmp_path / "ab.svg"
    done = call(stub, other, more_prompts, out, "--looks", "1", "--plot", str(plot))
    assert done.returncode == Exit.YES, done.stdout + done.stderr
    assert "comparing old and new" in done.stderr
    assert "deploy for long, short" in done.stdout.lower()
    assert "failed, refused or late" in done.stdout
    result = results.read(out)
    assert (result.verdict, result.phase) == ("yes", "ab")
    assert result.settings["arms"]["new"]["model"] == "stub"  # the only one served
    assert plot.read_text().startswith("<?xml")
    again = call(stub, other, more_prompts, out, "--looks", "1")
    assert again.stdout.splitlines()[-1] == f"plot: specops plot {out}"
    in_a_run = tmp_path / "runs" / "mine" / "ab.json"
    in_a_run.parent.mkdir(parents=True)
    shutil.copy(out, in_a_run)
    again = call(stub, other, more_prompts, in_a_run, "--looks", "1")
    assert again.stdout.splitlines()[-1] == f"page: {in_a_run.parent / 'index.html'}"
    assert (in_a_run.parent / "index.html").exists()
    assert "plot: " not in call(stub, other, more_prompts, out, "--looks", "1", "--quiet").stdout


@pytest.mark.slow
def test_a_slower_arm_is_a_no_and_json_is_the_result(stub, other, more_prompts, tmp_path) -> None:
    stub.answer, other.answer = slower(0.002), slower(0.02)
    out = tmp_path / "ab.json"
    done = call(stub, other, more_prompts, out, "--looks", "1", "--json", "--quiet")
    assert done.returncode == Exit.NO, done.stdout + done.stderr
    assert json.loads(done.stdout) == json.loads(out.read_text())
    assert done.stderr == ""


def test_one_server_twice_is_refused_before_the_first_request(stub, prompts_file, tmp_path) -> None:
    done = call(stub, stub, prompts_file, tmp_path / "ab.json")
    assert done.returncode == Exit.USAGE, done.stdout + done.stderr
    assert f"error: the arms old and new are one server: both are {stub.base_url}" in done.stderr
    assert stub.requests == []


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--arm", "old=embedded"], "two arms are called old"),
        (["--arm", "x=nothing"], "'nothing' is not a pool that can be served or measured"),
        (["--arm", "x=command:vllm serve m"], "the command does not say {port}"),
        (["--arm", "x=command:no-such-server --port {port}"], "there is no program no-such-server"),
        (["--concurrency", "one"], "whole numbers"),
        (["--repeats", "0"], "--repeats"),
        (["--design", "abab"], "--design"),
        (["--design", "abba-restart"], "old is an endpoint that runs already"),
        (["--looks", "99"], "--looks"),
        (["--confidence", "1"], "--confidence"),
        (["--classes", "tall"], "no prompts of class tall"),
        (["--prompts", "missing.json"], "there are no prompts"),
        (["--against", "missing.json"], "there is no result missing.json"),
        (["--plot", "ab.pdf"], ".svg or .png"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_usage_is_a_sentence_before_the_first_request(
    stub, other, prompts_file, tmp_path, more, message
) -> None:
    done = call(stub, other, prompts_file, tmp_path / "ab.json", *more)
    missing = "missing.json" in more or "no-such-server" in message
    assert done.returncode == (Exit.ENVIRONMENT if missing else Exit.USAGE), done.stderr
    assert done.stderr.splitlines()[-2].startswith("error: ")
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert stub.requests == []


def test_one_arm_is_no_comparison(stub, prompts_file, tmp_path) -> None:
    done = specops("ab", "--arm", f"a={stub.base_url}")
    assert (done.returncode, "a comparison needs two arms, not 1" in done.stderr) == (Exit.USAGE, True)


@pytest.mark.parametrize("down", ["http://127.0.0.1:9/v1#m", "http://127.0.0.1:9/v1"])
def test_an_arm_that_is_down_is_the_environments_failure(stub, other, prompts_file, tmp_path, down) -> None:
    out = tmp_path / "ab.json"
    done = call(stub, other, prompts_file, out, "--arm", f"down={down}")
    assert done.returncode == Exit.ENVIRONMENT
    assert "could not reach http://127.0.0.1:9/v1" in done.stderr
    assert not out.exists()


def test_an_arm_that_dies_is_a_no(stub, other, prompts_file, tmp_path) -> None:
    def dying(body: Body) -> Reply:
        return fault(500, "out of memory") if len(other.requests) > 9 else Reply(stream(body, CHUNKS))

    other.answer = dying
    done = call(stub, other, prompts_file, tmp_path / "ab.json", "--repeats", "4")
    assert done.returncode == Exit.NO, done.stderr
    assert "fail" in done.stdout


def test_a_damaged_result_is_named_and_fresh_gets_past_it(stub, other, prompts_file, tmp_path) -> None:
    out = tmp_path / "ab.json"
    assert call(stub, other, prompts_file, out).returncode in (0, 1, 4)
    fields = json.loads(out.read_text())
    fields["data"]["windows"][0]["cell"]["rows"] = 3
    out.write_text(results.sealed(fields))
    asked = len(stub.requests)
    done = call(stub, other, prompts_file, out)
    assert done.returncode == Exit.ENVIRONMENT
    assert f"{out} is damaged: data.windows.0.cell.rows" in done.stderr
    assert len(stub.requests) == asked
    assert call(stub, other, prompts_file, out, "--fresh").returncode in (0, 1, 4)


def test_another_comparison_is_not_replaced(stub, other, prompts_file, tmp_path) -> None:
    out = tmp_path / "ab.json"
    assert call(stub, other, prompts_file, out).returncode in (0, 1, 4)
    before = out.read_bytes()
    done = call(stub, other, prompts_file, out, "--temperature", "0.5")
    assert (done.returncode, out.read_bytes()) == (Exit.USAGE, before)
    assert f"{out} holds another comparison: the settings changed" in done.stderr
    assert "--fresh" in done.stderr


def test_against_a_recorded_run(stub, other, prompts_file, tmp_path) -> None:
    then = tmp_path / "then.json"
    other.answer = slower(0.01)
    assert call(stub, other, prompts_file, then).returncode in (0, 1, 4)
    stub.page = ("application/json", '{"version": "stub-2", "data": [{"id": "stub", "object": "model"}]}')
    now = call(stub, other, prompts_file, tmp_path / "now.json", "--against", str(then))
    assert now.returncode in (0, 1, 4), now.stderr
    assert "stub-1" in now.stdout
    assert "stub-2" in now.stdout
    assert results.read(tmp_path / "now.json").data["against"]["changes"]
    asked = len(stub.requests)
    hot = call(stub, other, prompts_file, tmp_path / "hot.json", "--against", str(then), "--top-p", "0.9")
    assert hot.returncode == Exit.USAGE
    assert "top_p (1.0 then, 0.9 now)" in hot.stderr
    assert len(stub.requests) == asked


@pytest.mark.parametrize(
    ("number", "code", "name"),
    [(signal.SIGINT, 130, "Ctrl-C"), pytest.param(signal.SIGTERM, 143, "SIGTERM", marks=pytest.mark.slow)],
)
def test_a_signal_leaves_a_valid_partial_that_resumes(
    number, code, name, stub, other, prompts_file, tmp_path
) -> None:
    out = tmp_path / "ab.json"
    other.answer = lambda body: Reply(stream(body, CHUNKS), hang=len(other.requests) > 16)
    words = words_of(stub, other, prompts_file, out, "--looks", "1")
    command = [sys.executable, "-m", "specops", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        wait_until(lambda: len(other.requests) > 16, 60)
        process.send_signal(number)
        shown, said = process.communicate(timeout=60)
    assert (process.returncode, shown) == (code, "")
    assert "Traceback" not in said
    assert f"stopped by {name}; partial results are in {out}\n" in said
    assert f"resume with: {shlex.join(['specops', *words])}\n" in said
    partial = results.read(out)
    assert partial.verdict == "partial"
    whole = [window for window in partial.data["windows"] if window["cell"]["complete"]]
    assert len(whole) == len(partial.data["windows"]) - 1 >= 1
    wait_until(lambda: other.in_flight == 0)
    other.answer = slower(0.0)
    done = specops(*words)
    assert done.returncode in (0, 1, 4), done.stderr
    pairs = len(whole) // 2 * 2  # half a pair is measured again
    assert f"windows measured before: {pairs}" in done.stderr
    assert results.read(out).data["windows"][:pairs] == whole[:pairs]
