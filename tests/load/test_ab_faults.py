"""`compare` when something fails on the way: nothing measured is lost, and the answer says what failed."""

from __future__ import annotations

from typing import Any

import pytest
from comparing import SHORT, run, windows
from stub import CHUNKS, Body, Reply, Stub, fault, running_stub, stream

from specops.errors import EndpointError, FileError
from specops.prometheus import exposition
from specops.results import Result


def after(server: Stub, good: int, then: Reply) -> None:
    """The server answers well so many times, the probe included."""
    server.answer = lambda body: then if len(server.requests) > good else Reply(stream(body, CHUNKS))


def test_a_challenger_that_dies_is_a_no_with_its_reason(stub, other, prompts_file) -> None:
    after(other, 9, fault(500, "out of memory"))
    kept: list[Result] = []
    found = run((stub, other), prompts_file, kept=kept, abort_window=4)
    assert found.verdict == "no"
    assert "of the last 4 requests failed" in found.reason
    assert found.data["failed"]["b"].startswith("stopped at 1 stream: ")
    assert len(other.requests) <= 20  # then it is left in peace
    assert len(stub.requests) < 40  # and the standard has nobody to be compared with
    assert not windows(found)[-1].cell.complete
    assert kept[-1].data["windows"] == found.data["windows"]


def test_the_others_go_on_without_the_arm_that_failed(stub, other, prompts_file) -> None:
    after(other, 9, fault(500, "x"))
    with running_stub() as third:
        found = run((stub, other, third), prompts_file, abort_window=4)
        assert len(stub.requests) == len(third.requests) > 40
        assert len(other.requests) <= 20
    assert list(found.data["failed"]) == ["b"]


def test_a_failed_standard_ends_the_comparison_undecided(stub, other, prompts_file) -> None:
    after(stub, 9, fault(500, "x"))
    found = run((stub, other), prompts_file, abort_window=4)
    assert found.verdict == "undecided"
    assert list(found.data["failed"]) == ["a"]
    assert len(other.requests) < 40


def test_an_arm_with_too_many_failures_has_failed(stub, other, prompts_file) -> None:
    def flaky(body: Body) -> Reply:
        return fault(500, "boom") if len(other.requests) % 5 == 0 else Reply(stream(body, CHUNKS))

    other.answer = flaky
    found = run((stub, other), prompts_file)
    assert found.verdict == "no"
    assert "requests failed, such as:" in found.data["failed"]["b"]
    assert "boom" in found.data["failed"]["b"]
    other.requests.clear()
    tolerant = run((stub, other), prompts_file, max_error_share=0.5)
    assert tolerant.data["failed"] == {}


def test_a_failed_arm_is_asked_again_for_what_failed(stub, other, prompts_file) -> None:
    after(other, 9, fault(500, "x"))
    failed = run((stub, other), prompts_file, settings=SHORT, abort_window=4)
    other.answer = lambda body: Reply(stream(body, CHUNKS))
    found = run((stub, other), prompts_file, failed, SHORT, abort_window=4)
    assert found.data["failed"] == {}
    assert all(window.cell.complete and not window.cell.failed for window in windows(found))


def test_a_standard_of_which_nothing_succeeds_is_an_error(stub, other, prompts_file) -> None:
    after(stub, 1, fault(500, "boom"))
    with pytest.raises(EndpointError, match=r"all \d+ requests failed; .*boom"):
        run((stub, other), prompts_file)


def test_an_arm_that_is_gone_when_a_comparison_goes_on_has_failed(stub, prompts_file) -> None:
    kept: list[Result] = []
    with running_stub() as other:
        whole = run((stub, other), prompts_file, kept=kept, settings=SHORT)
    gone = run((stub, other), prompts_file, kept[3], SHORT)
    assert gone.verdict == "no"
    assert "could not reach" in gone.data["failed"]["b"]
    assert windows(gone)[:4] == windows(whole)[:4]


def test_a_stop_while_the_counters_are_read_keeps_the_window(
    stub, other, prompts_file, monkeypatch: pytest.MonkeyPatch
) -> None:
    def scrape(*_: object) -> dict[Any, float]:
        if len(stub.requests) + len(other.requests) > 4:  # the closing one of the first window
            raise KeyboardInterrupt
        return {}

    monkeypatch.setattr(exposition, "scrape", scrape)
    kept: list[Result] = []
    with pytest.raises(KeyboardInterrupt):
        run((stub, other), prompts_file, kept=kept)
    assert kept[-1].verdict == "partial"
    assert kept[-1].reason == "stopped after 1 window"
    (window,) = windows(kept[-1])
    assert window.cell.complete
    assert window.cell.drafts_missing == "stopped before they were read"


def test_nothing_is_kept_of_a_comparison_without_a_visit(
    stub, other, prompts_file, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("specops.load.target_server.warm_up", stop)
    kept: list[Result] = []
    with pytest.raises(KeyboardInterrupt):
        run((stub, other), prompts_file, kept=kept)
    assert kept == []


def test_a_fault_of_ours_keeps_what_was_measured(
    stub, other, prompts_file, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("ours")

    monkeypatch.setattr("specops.load.client.status_failure", broken)
    after(stub, 4, fault(500, "x"))  # the probe, a visit of two, and one of the next
    kept: list[Result] = []
    with pytest.raises(RuntimeError, match="ours"):
        run((stub, other), prompts_file, kept=kept)
    last = windows(kept[-1])[-1]
    assert (last.arm, last.cell.complete) == ("a", False)
    assert "interrupted" in [row.error for row in last.cell.sent]
    assert kept[-1].verdict == "partial"


def test_a_result_that_cannot_be_written_is_tried_once(stub, other, prompts_file) -> None:
    class Full(list[Result]):
        def append(self, result: Result) -> None:
            super().append(result)
            raise FileError("could not write it: No space left on device")

    kept = Full()
    with pytest.raises(FileError):
        run((stub, other), prompts_file, kept=kept)
    assert len(kept) == 1


def test_the_api_key_is_sent_and_kept_nowhere(
    stub, other, prompts_file, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECOPS_API_KEY", "sk-very-secret")
    found = run((stub, other), prompts_file)
    assert other.headers[0]["Authorization"] == "Bearer sk-very-secret"
    assert "sk-very-secret" not in found.model_dump_json()


def test_windows_that_storing_left_out_are_stored_where_it_stops(
    stub, other, prompts_file, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("specops.experiment.storing.STORING_S", 0.0)
    monkeypatch.setattr("specops.experiment.storing.STORING_SHARE", 0.0)

    def scrape(*_: object) -> dict[Any, float]:
        if len(stub.requests) + len(other.requests) > 30:
            raise KeyboardInterrupt
        return {}

    monkeypatch.setattr(exposition, "scrape", scrape)
    kept: list[Result] = []
    with pytest.raises(KeyboardInterrupt):
        run((stub, other), prompts_file, kept=kept)
    assert len(kept) == 2, "the first window, and all of them at the end"
    assert len(windows(kept[0])) == 1
    assert len(windows(kept[1])) > 2
    assert sum(len(one.cell.sent) for one in windows(kept[1])) >= 28
