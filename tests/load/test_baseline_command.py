"""`specops baseline`: its answer, its exit codes, and Ctrl-C."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from calling import specops
from stub import CHUNKS, Body, Reply, Stub, event, fault, stream, wait_until

from specops import results

pytestmark = pytest.mark.usefixtures("any_speed")


def words_of(stub: Stub, prompts: Path, out: Path, *more: str) -> list[str]:
    base = ["baseline", "--base-url", stub.base_url]
    return [*base, "--prompts", str(prompts), "--out", str(out), "--warmup", "0", *more]


def call(*args: Any) -> subprocess.CompletedProcess[str]:
    return specops(*words_of(*args))


@pytest.mark.parametrize(
    ("metrics", "state"),
    [
        ("", "unknown"),
        ("up 1\n", "unknown"),
        ('vllm:num_requests_running{{model_name="stub"}} 0\n', "unknown"),
        ('vllm:generation_tokens_total{{model_name="stub"}} {}\n', "none"),
        ('sglang:generation_tokens_total{{model_name="stub"}} {}\n', "unknown"),
    ],
)
def test_only_a_server_that_would_count_drafts_is_said_not_to_speculate(
    metrics: str, state: str, stub: Stub, prompts_file: Path, tmp_path: Path
) -> None:
    """SGLang's releases differ in what they expose of drafts."""
    stub.metrics = lambda: metrics.format(9 * len(stub.requests))
    done = call(stub, prompts_file, tmp_path / "baseline.json", "--repeats", "1")
    assert f"acceptance: {state}" in done.stdout


def test_acceptance_of_sglang_is_a_figure(stub: Stub, prompts_file: Path, tmp_path: Path) -> None:
    """Each request adds 34 tokens in 10 verifications; the rate is a gauge of its own."""
    stub.metrics = lambda: "".join(
        f'sglang:{name}{{model_name="stub"}} {value}\n'
        for name, value in {
            "generation_tokens_total": 34 * len(stub.requests),
            "spec_verify_calls_total": 10 * len(stub.requests),
            "spec_accept_rate": 0.6,
            "spec_accept_length": 3.4,
        }.items()
    )
    out = tmp_path / "baseline.json"
    done = call(stub, prompts_file, out, "--repeats", "1")
    assert "accepted 0.60 of drafted tokens, 3.40 tokens a step" in done.stdout
    acceptance = results.read(out).data["acceptance"]
    assert acceptance["rate"] == pytest.approx(0.6)
    assert acceptance["length"] == pytest.approx(3.4)
    assert acceptance["estimated"]


def test_acceptance_of_each_request_is_in_its_row(stub: Stub, prompts_file: Path, tmp_path: Path) -> None:
    """A server without /metrics whose answers report their drafts, as llama.cpp's do."""

    def answer(body: Body) -> Reply:
        *events, usage, done = stream(body, CHUNKS)
        reported = json.loads(usage.removeprefix(b"data: ")) | {
            "timings": {"draft_n": 10, "draft_n_accepted": 4}
        }
        return Reply([*events, event(reported), done])

    stub.answer = answer
    out = tmp_path / "baseline.json"
    call(stub, prompts_file, out, "--repeats", "1")
    data = results.read(out).data
    assert {(row["drafted"], row["accepted"]) for cell in data["cells"] for row in cell["rows"]} == {(10, 4)}
    assert data["acceptance"]["rate"] == pytest.approx(0.4)
    assert data["acceptance"]["length"] is None, "nobody said how many verifications there were"


def as_a_process(*args: Any) -> list[str]:
    return [sys.executable, "-m", "specops", *words_of(*args)]


def test_a_table_on_stdout_and_the_result_in_its_file(stub: Stub, prompts_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "baseline.json"
    done = call(stub, prompts_file, out, "--concurrency", "1,2")
    assert done.returncode == 0, done.stderr
    assert "TTFT p50" in done.stdout
    assert "2 streams, long" in done.stdout
    assert "acceptance: unknown (" in done.stdout
    missing = [line for line in done.stdout.splitlines() if line.startswith("  –: p95")]
    assert missing == ["  –: p95 is not shown for rows with fewer than 20 requests"], "once for all rows"
    assert results.read(out).settings["model"] == "stub"  # the only one served
    assert "repeat 1 of 2" in done.stderr
    assert "repeat 1 of 2" not in done.stdout


def test_json_on_stdout(stub: Stub, prompts_file: Path, tmp_path: Path) -> None:
    done = call(stub, prompts_file, tmp_path / "b.json", "--json", "--quiet", "--repeats", "1")
    assert json.loads(done.stdout)["summary"]["total_tokens"] == 12 * 8
    assert done.stderr == ""


def test_a_no_exits_with_1(stub: Stub, prompts_file: Path, tmp_path: Path) -> None:
    stub.answer = lambda body: fault(500, "x") if len(stub.requests) % 2 else Reply(stream(body, CHUNKS))
    stub.requests.append({})  # so that the probe is the second
    done = call(stub, prompts_file, tmp_path / "b.json", "--abort-error-share", "1")
    assert (done.returncode, "http_500" in done.stdout) == (1, True)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--concurrency", "one"], "whole numbers"),
        (["--arrivals", "poisson"], "need a rate"),
        (["--concurrency", "0"], "--concurrency"),
        (["--classes", "tall"], "no prompts of class tall"),
    ],
)
def test_wrong_usage_exits_with_2(
    stub: Stub, prompts_file: Path, tmp_path: Path, more: list[str], message: str
) -> None:
    done = call(stub, prompts_file, tmp_path / "b.json", *more)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_prompts_that_are_missing_exit_with_3(stub: Stub, prompts_file: Path, tmp_path: Path) -> None:
    done = call(stub, prompts_file, tmp_path / "b.json", "--prompts", "missing.json")
    assert done.returncode == 3
    assert "there are no prompts at missing.json" in done.stderr


def test_an_endpoint_that_is_down_exits_with_3(stub: Stub, prompts_file: Path, tmp_path: Path) -> None:
    done = call(stub, prompts_file, tmp_path / "b.json", "--base-url", "http://127.0.0.1:9/v1")
    assert done.returncode == 3
    assert "could not reach http://127.0.0.1:9/v1" in done.stderr
    assert "hint: " in done.stderr


@pytest.mark.parametrize(
    ("reply", "message", "hint"),
    [
        (fault(401, "no"), "refused the API key", "SPECOPS_API_KEY"),
        (fault(429, "no", Retry_After="0"), "send fewer requests with --max-rps", "/v1/models"),
        (fault(500, "boom"), "refused the request (500): boom", "server's log"),
        (Reply(hang=True), "did not answer in time: ", "shows whether it answers at all"),
        (Reply([b"data: {}\n\n"], cut=True), "(cut)", "curl -sSi -m 5 http://127.0.0.1:"),
        (Reply([b"data: nonsense\n\n"]), "expected an OpenAI-compatible server that streams", "curl "),
        (fault(404, "model stub not found"), "the model stub (404): model stub not found", "/v1/models"),
        (
            Reply([b"<!DOCTYPE html><html><title>nginx</title>"], content_type="text/html"),
            "answered with an HTML page (nginx), not with an OpenAI-compatible API",
            "/v1/models",
        ),
        (
            Reply([b"<html><h1>Sign in</h1>"], status=401, content_type="text/html"),
            "refused the API key (401): an HTML page (Sign in)",
            "export SPECOPS_API_KEY=",
        ),
        (
            Reply([], status=307, headers={"Location": "https://there/v1"}),
            "(307): redirected to https://there/v1; use the address that it redirects to as the base URL",
            "curl ",
        ),
        (
            Reply([b"data: [DONE]\n\n"]),
            "all 13 requests failed; the answer has no output",
            "curl ",
        ),
    ],
    ids=["401", "429", "500", "hang", "cut", "malformed", "404", "html", "401 html", "307", "empty"],
)
def test_each_fault_exits_with_3_and_says_what_to_do(
    stub: Stub, prompts_file: Path, tmp_path: Path, reply: Reply, message: str, hint: str
) -> None:
    stub.answer = lambda _: reply
    out = tmp_path / "b.json"
    done = call(stub, prompts_file, out, "--timeout", "1", "--repeats", "1", "--quiet")
    assert done.returncode == 3
    error, said = done.stderr.strip().splitlines()
    assert error.startswith("error: ")
    assert message in error
    assert said.startswith("hint: ")
    assert hint in said


@pytest.mark.parametrize("page", [("text/html", "<html></html>"), ("application/json", "{")])
def test_nonsense_for_models_exits_with_3(
    stub: Stub, prompts_file: Path, tmp_path: Path, page: tuple[str, str]
) -> None:
    stub.page = page
    done = call(stub, prompts_file, tmp_path / "b.json")
    named = "an HTML page" if page[0] == "text/html" else "no list of models"
    assert (done.returncode, named in done.stderr) == (3, True)


def test_damaged_cells_are_named_by_their_file(stub: Stub, prompts_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "b.json"
    assert call(stub, prompts_file, out, "--repeats", "1").returncode == 0
    fields = json.loads(out.read_text())
    fields["data"]["cells"] = 3
    out.write_text(results.sealed(fields))
    done = call(stub, prompts_file, out, "--repeats", "1")
    assert (done.returncode, f"{out} is damaged: data.cells" in done.stderr) == (3, True)


def test_another_measurement_is_not_replaced(stub: Stub, prompts_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "b.json"
    assert call(stub, prompts_file, out, "--repeats", "1").returncode == 0
    before = out.read_bytes()
    done = call(stub, prompts_file, out, "--repeats", "1", "--temperature", "0.5")
    assert (done.returncode, out.read_bytes()) == (2, before)
    assert f"{out} holds another measurement: the settings changed" in done.stderr
    assert "--fresh" in done.stderr
    assert call(stub, prompts_file, out, "--repeats", "1", "--temperature", "0.5", "--fresh").returncode == 0


def test_ctrl_c_in_the_warm_up_leaves_an_earlier_result_alone(
    stub: Stub, prompts_file: Path, tmp_path: Path
) -> None:
    out = tmp_path / "b.json"
    assert call(stub, prompts_file, out, "--repeats", "1").returncode == 0
    before = out.read_bytes()
    stub.requests.clear()
    stub.answer = lambda body: Reply(stream(body, CHUNKS), hang=len(stub.requests) > 1)  # not the probe
    process = subprocess.Popen(
        as_a_process(stub, prompts_file, out, "--fresh", "--warmup", "2"), stderr=subprocess.PIPE, text=True
    )
    try:
        wait_until(lambda: len(stub.requests) > 1, 30)
        os.kill(process.pid, signal.SIGINT)
        _, stderr = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 130
    assert out.read_bytes() == before
    assert "stopped by Ctrl-C; no partial results\n" in stderr
    assert stderr.rstrip().endswith("--fresh --warmup 2"), "without --fresh it would show the earlier result"


def test_a_result_that_cannot_be_written_is_kept_elsewhere(
    stub: Stub, prompts_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    done = call(stub, prompts_file, prompts_file / "b.json", "--repeats", "1")  # below a file, no folder
    assert done.returncode == 3
    saved = done.stderr.split("it was saved as ")[1].split("\n")[0]
    assert results.read(Path(saved)).phase == "baseline"


def test_a_damaged_earlier_result_exits_with_3_and_stays(
    stub: Stub, prompts_file: Path, tmp_path: Path
) -> None:
    out = tmp_path / "b.json"
    out.write_text('{"schema": 1, "pha')
    done = call(stub, prompts_file, out)
    assert (done.returncode, out.read_text()) == (3, '{"schema": 1, "pha')
    assert "is damaged" in done.stderr
    assert call(stub, prompts_file, out, "--fresh").returncode == 0


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("number", "code", "name"), [(signal.SIGINT, 130, "Ctrl-C"), (signal.SIGTERM, 143, "SIGTERM")]
)
def test_a_signal_leaves_a_valid_partial_that_resumes(
    number: signal.Signals, code: int, name: str, stub: Stub, prompts_file: Path, tmp_path: Path
) -> None:
    out = tmp_path / "b.json"
    first_cell = 1 + 1 + 12  # the probe, and what fills the stream

    def answer(body: Body) -> Reply:
        hang = len(stub.requests) > first_cell + 5
        return Reply(stream(body, CHUNKS)[: 2 if hang else None], hang=hang)

    stub.answer = answer
    words = as_a_process(stub, prompts_file, out, "--model", "stub", "--repeats", "3")
    process = subprocess.Popen(
        [*words, "--fresh"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_until(lambda: len(stub.requests) > first_cell + 5, 30)
        os.kill(process.pid, number)
        _, stderr = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == code
    assert "Traceback" not in stderr
    again = shlex.join(["specops", *words[3:]])
    assert stderr.endswith(f"stopped by {name}; partial results are in {out}\nresume with: {again}\n")
    wait_until(lambda: stub.in_flight == 0)  # the request in flight was dropped
    partial = results.read(out)
    assert (partial.verdict, partial.reason) == ("partial", "stopped after 1 of 3 cells")
    errors = [[row["error"] for row in cell["rows"]] for cell in partial.data["cells"]]
    assert errors == [[None] * 12, [None] * 4 + ["interrupted"]]  # the request in flight was sent, and counts
    stub.answer = lambda body: Reply(stream(body, CHUNKS))
    stub.requests.clear()
    done = specops(*shlex.split(again)[1:])
    assert done.returncode in (0, 4), done.stderr
    assert len(stub.requests) == 1 + 2 * 13
    assert results.read(out).data["cells"][0] == partial.data["cells"][0]
