"""`measure` when something fails on the way: its verdict, when it stops, and that nothing is lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from measuring import run, settings
from stub import CHUNKS, Body, Reply, Stub, fault, stream

from specops import results
from specops.errors import EndpointError, FileError, PromptsError
from specops.phases.baseline import measure
from specops.progress import SilentProgress
from specops.prometheus import exposition
from specops.results import Result


@pytest.mark.usefixtures("any_speed")
def test_too_many_failures_are_a_no_with_their_kinds(stub: Stub, prompts_file: Path) -> None:
    def flaky(body: Body) -> Reply:
        number = len(stub.requests)
        if number in (3, 5):
            return Reply(stream(body, CHUNKS)[:2], cut=True)
        return fault(500, "boom") if number == 7 else Reply(stream(body, CHUNKS))

    stub.answer = flaky
    found = run(stub, prompts_file)
    assert found.verdict == "no"
    assert found.reason == "3 of 13 requests failed: 2 cut, 1 http_500"
    assert found.data["by_concurrency"][0]["requests"] == 12  # the others are kept
    assert run(stub, prompts_file, max_error_share=0.5).verdict == "yes"


@pytest.mark.usefixtures("any_speed")
def test_retries_are_reported(stub: Stub, prompts_file: Path) -> None:
    def busy(body: Body) -> Reply:
        if len(stub.requests) == 4:
            return fault(429, "x", Retry_After="0.2")
        return Reply(stream(body, CHUNKS), first_s=0.05)  # so that none is slow beside the others

    stub.answer = busy
    found = run(stub, prompts_file)
    assert found.verdict == "yes"
    assert (found.data["errors"]["retries"], found.data["errors"]["retried_requests"]) == (1, 1)
    assert found.reason.startswith("measured 13 requests in 1 cell; ")
    assert found.reason.endswith("; 1 retried")
    level = found.data["by_concurrency"][0]
    assert level["e2e_with_retries_ms"]["n"] == 12
    assert level["e2e_with_retries_ms"]["max"] >= 200


def test_a_failing_endpoint_is_left_in_peace(stub: Stub, prompts_file: Path) -> None:
    stub.answer = lambda body: fault(500, "x") if len(stub.requests) > 5 else Reply(stream(body, CHUNKS))
    found = run(stub, prompts_file, repeats=3, abort_window=4)
    assert found.verdict == "no"
    assert "3 of the last 4 requests failed" in found.reason
    assert len(stub.requests) == 1 + 4 + 3  # the probe, four good ones, three failures
    assert found.data["errors"]["requests"] == 7
    assert not found.data["cells"][0]["complete"]


def test_the_abort_rule_remembers_the_cells_before(stub: Stub, prompts_file: Path) -> None:
    stub.answer = lambda body: fault(500, "x") if len(stub.requests) > 2 else Reply(stream(body, CHUNKS))
    found = run(stub, prompts_file, repeats=3, abort_window=16)  # more than a cell has prompts
    assert found.verdict == "no"
    assert "of the last 16 requests failed" in found.reason
    assert len(stub.requests) == 1 + 16


def test_an_endpoint_that_turns_slow_is_left_in_peace(stub: Stub, prompts_file: Path) -> None:
    stub.answer = lambda body: Reply(stream(body, CHUNKS), first_s=0.05)
    found = run(stub, prompts_file, abort_window=3, abort_e2e_ms=20)
    assert found.verdict == "no"
    assert "median latency" in found.reason
    assert found.data["errors"]["requests"] == 3


def test_nothing_measured_is_an_error_not_a_verdict(stub: Stub, prompts_file: Path) -> None:
    stub.answer = lambda body: fault(500, "boom") if len(stub.requests) > 1 else Reply(stream(body, CHUNKS))
    kept: list[Result] = []
    with pytest.raises(EndpointError, match=r"all 13 requests failed; .*boom"):
        measure(settings(stub, prompts_file), SilentProgress(), None, kept.append)
    assert kept[-1].data["errors"]["by_kind"] == {"http_500": 13}


def test_prompts_that_cannot_be_sent_are_refused_before_the_first_request(stub: Stub, tmp_path: Path) -> None:
    path = tmp_path / "batch.jsonl"
    path.write_text(json.dumps({"body": {"prompt": [1, 2]}}) + "\n")
    with pytest.raises(PromptsError, match="token ids"):
        run(stub, path)
    assert stub.requests == []


@pytest.mark.usefixtures("any_speed")
def test_one_bad_answer_does_not_cost_the_result(stub: Stub, prompts_file: Path, tmp_path: Path) -> None:
    def odd(body: Body) -> Reply:
        chunks = {3: [("\ud83d", 1)], 5: [("x" * 9, 1), ("\ude00", 1)]}.get(len(stub.requests), CHUNKS)
        return Reply(stream(body, chunks))

    stub.answer = odd
    found = run(stub, prompts_file)
    assert found.verdict == "yes"
    results.write(tmp_path / "b.json", found)
    assert results.read(tmp_path / "b.json").data == found.data


def test_a_fault_of_ours_keeps_what_was_measured(
    stub: Stub, prompts_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("ours")

    monkeypatch.setattr("specops.load.client.status_failure", broken)
    stub.answer = lambda body: fault(500, "x") if len(stub.requests) > 6 else Reply(stream(body, CHUNKS))
    kept: list[Result] = []
    with pytest.raises(RuntimeError, match="ours"):  # itself, not in a group
        measure(settings(stub, prompts_file), SilentProgress(), None, kept.append)
    (cell,) = kept[-1].data["cells"]
    assert [row["error"] for row in (*cell["beside"], *cell["rows"])] == [None] * 5 + ["interrupted"]
    assert kept[-1].data["errors"]["failed"] == 0  # it was sent, and is no failure of the server
    assert kept[-1].verdict == "partial"


def test_a_result_that_cannot_be_written_is_tried_once(stub: Stub, prompts_file: Path) -> None:
    tried: list[Result] = []

    def full(result: Result) -> None:
        tried.append(result)
        raise FileError("could not write it: No space left on device")

    with pytest.raises(FileError):
        measure(settings(stub, prompts_file), SilentProgress(), None, full)
    assert len(tried) == 1


def test_a_stop_while_the_counters_are_read_keeps_the_cell(
    stub: Stub, prompts_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def scrape(*_: object) -> dict[Any, float]:
        if len(stub.requests) > 1:  # the closing one
            raise KeyboardInterrupt
        return {}

    monkeypatch.setattr(exposition, "scrape", scrape)
    kept: list[Result] = []
    with pytest.raises(KeyboardInterrupt):
        measure(settings(stub, prompts_file), SilentProgress(), None, kept.append)
    assert kept[-1].data["cells"][0]["complete"]
    assert kept[-1].data["acceptance_missing"] == "stopped before they were read"


def test_nothing_is_kept_of_a_run_without_a_request(
    stub: Stub, prompts_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(exposition, "scrape", stop)  # the opening one
    kept: list[Result] = []
    with pytest.raises(KeyboardInterrupt):
        measure(settings(stub, prompts_file), SilentProgress(), None, kept.append)
    assert kept == []


def test_the_api_key_is_sent_and_kept_nowhere(
    stub: Stub, prompts_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECOPS_API_KEY", "sk-very-secret")
    found = run(stub, prompts_file)
    assert stub.headers[0]["Authorization"] == "Bearer sk-very-secret"
    assert "sk-very-secret" not in found.model_dump_json()


@pytest.mark.slow
def test_a_server_that_is_slower_in_the_end_is_undecided_and_measured_again(
    stub: Stub, prompts_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("specops.load.validity.DRIFT", 3.0)  # more than a busy machine adds

    def slower(body: Body) -> Reply:
        late = len(stub.requests) > 1 + 12
        return Reply(stream(body, CHUNKS), gap_s=0.06 if late else 0.003)

    stub.answer = slower
    found = run(stub, prompts_file, repeats=2)
    assert found.verdict == "undecided"
    assert "the server was not steady: TPOT at 1 stream was " in found.reason
    (change,) = (one for one in found.data["steadiness"] if one["drift"])
    assert 3.0 < change["low"] <= change["ratio"] <= change["high"]
    sent = len(stub.requests)
    again = run(stub, prompts_file, found, repeats=2)
    assert (again.verdict, len(stub.requests)) == ("yes", 2 * sent)


def test_a_client_that_is_the_bottleneck_decides_nothing(
    stub: Stub, prompts_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("specops.load.record.client_bound", lambda _: "the client was the bottleneck: so")
    found = run(stub, prompts_file)
    assert found.verdict == "undecided"
    assert found.reason.startswith("at 1 stream, the client was the bottleneck: so; lower the load, or ")
    assert found.data["cells"][0]["client_bound"] == "the client was the bottleneck: so"


@pytest.mark.usefixtures("any_speed")
def test_a_slow_tail_is_on_the_page(stub: Stub, prompts_file: Path) -> None:
    def tail(body: Body) -> Reply:
        return Reply(stream(body, CHUNKS), first_s=1.0 if len(stub.requests) == 9 else 0.02)

    stub.answer = tail
    found = run(stub, prompts_file)
    assert found.verdict == "yes"
    assert "; at 1 stream, 1 of 13 requests took over 10 times the median (the slowest 1." in found.reason
    assert found.summary["slow_tail"]["slow"] == 1
    assert "p99 needs 100 samples" in found.summary["reasons"]["e2e_p99_ms"]


def test_aborted_answers_are_failures(stub: Stub, prompts_file: Path) -> None:
    def aborting(body: Body) -> Reply:
        return Reply(stream(body, CHUNKS, finish="abort" if len(stub.requests) % 3 == 0 else "length"))

    stub.answer = aborting
    found = run(stub, prompts_file)
    assert (found.verdict, found.reason) == ("no", "4 of 13 requests failed: 4 aborted")


def test_a_server_that_answers_429_without_end_is_named(stub: Stub, prompts_file: Path) -> None:
    def limited(body: Body) -> Reply:
        return (
            fault(429, "quota exceeded", Retry_After="0")
            if len(stub.requests) > 7
            else Reply(stream(body, CHUNKS))
        )

    stub.answer = limited
    found = run(stub, prompts_file, abort_window=4)
    assert found.verdict == "no"
    assert found.reason.startswith(
        "stopped at 1 stream: 3 of the last 4 requests failed (3 http_429, such as: "
    )
    assert "quota exceeded" in found.reason
    stub.answer = lambda _: fault(429, "quota exceeded", Retry_After="0")
    with pytest.raises(EndpointError, match=r"over its limit \(429\), also after waiting: quota exceeded"):
        run(stub, prompts_file)
