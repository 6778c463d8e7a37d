"""`compare`: the windows that are measured, what is kept of them, and how a comparison goes on where it
was."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from comparing import SHORT, arms, asked, run, texts, windows
from stub import CHUNKS, Body, Reply, Stub, fault, stream

from specops.errors import EndpointError, EnvironmentFailure, PromptsError, UsageError
from specops.experiment.arms import Arm
from specops.phases.ab.measure import compare
from specops.phases.ab.settings import AbSettings
from specops.progress import SilentProgress
from specops.results import Result
from specops.serving.command import CommandPool

MIXED = SHORT.model_copy(update={"mixed_prompts": 3})


def test_every_arm_gets_the_same_requests_in_turn(stub: Stub, other: Stub, prompts_file: Path) -> None:
    made = windows(run((stub, other), prompts_file, concurrency=[1, 4]))
    for one, two in zip(made[::2], made[1::2], strict=True):
        assert {one.arm, two.arm} == {"a", "b"}
        assert one.key[:-1] == two.key[:-1]
        assert one.began <= two.began
        assert one.cell.rows
        assert {row.prompt for row in one.cell.rows} == {row.prompt for row in two.cell.rows}
    orders = {(w.cycle, w.kind, w.arm): w.order for w in made if w.arm == "a"}
    assert set(orders.values()) == {0, 1}  # which arm goes first changes
    assert {w.kind for w in made} == {"measured", "open"}


def test_all_streams_are_full_while_any_counted_request_is_answered(
    stub: Stub, other: Stub, prompts_file: Path
) -> None:
    """Of requests of very different lengths: a batch that drains is no load."""

    def answer(body: Body) -> Reply:
        number = int(body["messages"][0]["content"].split()[-1])
        return Reply(stream(body, CHUNKS), gap_s=0.02 if number % 4 == 0 else 0.002)

    stub.answer = other.answer = answer
    for window in windows(run((stub, other), prompts_file, concurrency=[4])):
        if window.kind == "measured":
            rows = window.cell.sent
            begins = [(row.sent_s, row.sent_s + row.e2e_ms / 1000) for row in rows]
            first = min(row.sent_s for row in window.cell.rows)
            last = max(row.sent_s + row.e2e_ms / 1000 for row in window.cell.rows)
            middle = [first + (last - first) * share / 20 for share in range(1, 20)]
            full = [sum(begin <= at <= end for begin, end in begins) for at in middle]
            assert sum(full) >= 0.85 * 4 * len(full)
            assert {row.part for row in window.cell.beside} == {"fill"}


def test_every_request_is_a_row(stub: Stub, other: Stub, prompts_file: Path) -> None:
    """Of warm-up, windows, fillers, open loop and mixed requests; only the probes before are none."""
    made = windows(run((stub, other), prompts_file, settings=MIXED, warmup=3, concurrency=[2]))
    for server, arm in ((stub, "a"), (other, "b")):
        streamed = [request for request in server.requests if request["stream"]]
        assert len(streamed) - 1 == sum(len(w.cell.sent) for w in made if w.arm == arm)
    parts = [row.part for window in made for row in window.cell.sent]
    assert parts.count("warm-up") == 2 * 3


def test_no_prompt_is_known_to_a_cache(stub: Stub, other: Stub, prompts_file: Path) -> None:
    run((stub, other), prompts_file, settings=MIXED, same_prompts=False)
    first = texts(stub)
    stub.requests.clear()
    other.requests.clear()
    run((stub, other), prompts_file, settings=MIXED, same_prompts=False)
    assert not set(first) & set(texts(stub))  # another run has other nonces
    greedy = [request for request in stub.requests if not request["temperature"] and request["stream"]]
    mixed = sum(bool(request["temperature"]) for request in stub.requests)
    repeats = len(greedy) - len({request["messages"][0]["content"] for request in greedy})
    assert 0 < repeats <= mixed  # only the control of equal answers comes again
    assert set(texts(stub)) == set(texts(other))  # both arms answer the same


def test_an_open_loop_has_the_same_arrivals_in_both_arms(stub: Stub, other: Stub, prompts_file: Path) -> None:
    made = [w for w in windows(run((stub, other), prompts_file)) if w.kind == "open"]
    assert made
    for one, two in zip(made[::2], made[1::2], strict=True):
        assert one.cell.rate == two.cell.rate
        due = [sorted(row.due_s for row in w.cell.rows) for w in (one, two)]
        gaps = [[later - at for at, later in pairwise(times)] for times in due]
        assert gaps[0] == pytest.approx(gaps[1], abs=1e-3)


def test_greedy_requests_come_again_among_sampled_ones(stub: Stub, other: Stub, prompts_file: Path) -> None:
    made = [w for w in windows(run((stub, other), prompts_file, settings=MIXED)) if w.kind == "mixed"]
    assert made
    for window in made:
        heats = [row.temperature for row in window.cell.rows]
        assert (heats.count(0.0), heats.count(0.7)) == (3, 4)


def test_a_comparison_goes_on_with_the_windows_that_it_lacks(
    stub: Stub, other: Stub, prompts_file: Path
) -> None:
    kept: list[Result] = []
    whole = run((stub, other), prompts_file, kept=kept)
    stub.requests.clear()
    other.requests.clear()
    again = run((stub, other), prompts_file, kept[3])
    assert [w.key for w in windows(again)] == [w.key for w in windows(whole)]
    assert windows(again)[:4] == windows(whole)[:4]
    assert {w.period for w in windows(again)[4:]} == {1}


def test_a_whole_comparison_is_judged_again_without_a_request(
    stub: Stub, other: Stub, prompts_file: Path
) -> None:
    whole = run((stub, other), prompts_file)
    stub.requests.clear()
    again = run((stub, other), prompts_file, whole)
    assert (stub.requests, again.data, again.environment) == ([], whole.data, whole.environment)


@pytest.mark.parametrize(
    ("settings", "chosen"), [({}, {"temperature": 0.5}), ({"looks": 3}, {}), ({"confidence": 0.9}, {})]
)
def test_another_plan_is_measured_anew(
    stub: Stub, other: Stub, prompts_file: Path, settings: Any, chosen: Any
) -> None:
    whole = run((stub, other), prompts_file)
    stub.requests.clear()
    found = run((stub, other), prompts_file, whole, SHORT.model_copy(update=settings), **chosen)
    assert stub.requests
    assert {w.period for w in windows(found)} == {0}


def test_failed_requests_are_not_sent_again_until_they_succeed(
    stub: Stub, other: Stub, prompts_file: Path
) -> None:
    """The same command, run again, must not turn failures into answers one by one."""
    other.answer = lambda body: (
        fault(500, "boom") if len(other.requests) % 12 == 5 else Reply(stream(body, CHUNKS))
    )
    found = run((stub, other), prompts_file, max_error_share=0.2)
    failed = sum(w.cell.failed for w in windows(found))
    assert failed
    other.answer = lambda body: Reply(stream(body, CHUNKS))
    other.requests.clear()
    again = run((stub, other), prompts_file, found, max_error_share=0.2)
    assert (sum(w.cell.failed for w in windows(again)), other.requests) == (failed, [])
    assert again.verdict != "yes"


def test_the_rate_cap_holds_for_all_arms_together(stub: Stub, other: Stub, prompts_file: Path) -> None:
    made = windows(run((stub, other), prompts_file, max_rps=200))
    sent = sum(len(w.cell.sent) for w in made)
    ends = max(w.began + max(row.sent_s for row in w.cell.sent) for w in made)
    assert ends - made[0].began >= (sent - 2) / 200 - 0.05


def test_margins_are_asked_for_where_answers_differ(stub: Stub, other: Stub, prompts_file: Path) -> None:
    other.answer = lambda body: Reply(stream(body, [("Never", 8)]))
    found = run((stub, other), prompts_file)
    assert found.data["margins"]
    assert {margin["nats"] for margin in found.data["margins"]} == {None}  # the stub reports none
    assert any(not request["stream"] for request in stub.requests)


def test_restarts_need_a_command_that_starts_the_arm(stub: Stub, other: Stub, prompts_file: Path) -> None:
    restarting = AbSettings(design="abba-restart", looks=1)
    with pytest.raises(UsageError, match="a is an endpoint that runs already"):
        run((stub, other), prompts_file, settings=restarting)


def test_a_server_that_is_not_there_is_named_before_any_request(stub: Stub, prompts_file: Path) -> None:
    missing = Arm("b", CommandPool(engine="command", command="no-such-server --port {port}", model="m"))
    with pytest.raises(EnvironmentFailure, match="there is no program no-such-server"):
        compare(
            [*arms(stub), missing], asked(prompts_file), SHORT, SilentProgress(), logs=prompts_file.parent
        )
    assert stub.requests == []


def test_an_arm_that_never_answers_is_an_error(stub: Stub, other: Stub, prompts_file: Path) -> None:
    other.answer = lambda body: fault(401, "who are you")
    with pytest.raises(EndpointError, match="401"):
        run((stub, other), prompts_file)


def test_prompts_that_cannot_be_sent_are_named(stub: Stub, other: Stub, tmp_path: Path) -> None:
    path = tmp_path / "empty.json"
    path.write_text("[]")
    with pytest.raises(PromptsError):
        run((stub, other), path)
