"""Conversations as they go out: in order, one turn after the other, with one nonce, to both arms alike."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from comparing import run as compare_stubs
from comparing import windows
from measuring import run
from stub import CHUNKS, DONE, Body, Reply, Stub, event, stream

from specops.load.record import Row
from specops.results import Result

SESSIONS = 3


@pytest.fixture
def conversations(tmp_path: Path) -> Path:
    """Three conversations of three turns, with a recorded pause before the third."""
    path = tmp_path / "conversations.json"
    items = [
        {
            "session": f"s{number}",
            "turns": [
                {"text": f"Question {number}", "answer": "Yes.", "max_tokens": 16},
                {"text": "Why?", "answer": "So.", "max_tokens": 16},
                {"text": "Really?", "think_s": 0.4, "max_tokens": 16},
            ],
        }
        for number in range(SESSIONS)
    ]
    path.write_text(json.dumps(items))
    return path


def sent_rows(result: Result) -> list[Row]:
    return [Row.model_validate(row) for row in result.data["cells"][0]["rows"]]


def by_session(rows: list[Row]) -> dict[str, list[Row]]:
    sessions: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda row: row.sent_s):
        sessions.setdefault(row.prompt.partition("#")[0], []).append(row)
    return sessions


def check_order(rows: list[Row]) -> None:
    sessions = by_session(rows)
    assert len(sessions) == SESSIONS
    for turns in sessions.values():
        assert [row.turn for row in turns] == [1, 2, 3]
        for earlier, later in itertools.pairwise(turns):
            assert later.sent_s >= earlier.sent_s + earlier.e2e_ms / 1000 - 1e-3


def check_histories(requests: list[Body]) -> None:
    """Of each session, by its nonce: each request begins with the messages of the one before it."""
    sessions: dict[str, list[Body]] = {}
    for body in requests:
        sessions.setdefault(body["messages"][0]["content"], []).append(body["messages"])
    whole = [session for session in sessions.values() if len(session) > 1]
    assert len(whole) >= SESSIONS
    for session in whole:
        assert [len(messages) for messages in session] == [1, 3, 5][: len(session)]
        for earlier, later in itertools.pairwise(session):
            assert later[: len(earlier)] == earlier
            assert later[-2]["role"] == "assistant"


def test_turns_follow_one_another_in_a_closed_loop(stub: Stub, conversations: Path) -> None:
    stub.answer = lambda body: Reply(stream(body, CHUNKS), gap_s=0.005)
    result = run(stub, conversations, concurrency=[2])
    check_order(sent_rows(result))
    check_histories(stub.requests[1:])  # the first one only asks what the server is
    assert stub.most_in_flight == 2
    assert "9 turns of 3 conversations" in result.reason


def test_sessions_arrive_in_an_open_loop(stub: Stub, conversations: Path) -> None:
    stub.answer = lambda body: Reply(stream(body, CHUNKS), gap_s=0.005)
    result = run(stub, conversations, arrivals="poisson", rate=60.0)
    rows = sent_rows(result)
    check_order(rows)
    for turns in by_session(rows).values():  # a later turn is due when the answer before it has come
        assert turns[1].due_s == pytest.approx(turns[0].sent_s + turns[0].e2e_ms / 1000, abs=0.05)


@pytest.mark.parametrize(("think_time", "least_s"), [(0.5, 0.2), (0.0, 0.0)])
def test_users_think_as_long_as_recorded_times_the_factor(
    stub: Stub, conversations: Path, think_time: float, least_s: float
) -> None:
    rows = sent_rows(run(stub, conversations, concurrency=[3], think_time=think_time))
    check_order(rows)
    for _, second, third in by_session(rows).values():
        pause_s = third.due_s - second.sent_s - second.e2e_ms / 1000
        assert pause_s == pytest.approx(least_s, abs=0.05)  # it is no lag of the client's
        assert third.sent_s >= third.due_s


def test_a_turn_that_fails_does_not_end_its_session(stub: Stub, conversations: Path) -> None:
    def answer(body: Body) -> Reply:
        fails = len(body["messages"]) == 3
        return Reply(status=500, content_type="text/plain") if fails else Reply(stream(body, CHUNKS))

    stub.answer = answer
    rows = sent_rows(run(stub, conversations, abort_error_share=1.0, retries=0))
    assert [(row.turn, row.error) for row in by_session(rows)["s0"]] == [
        (1, None),
        (2, "http_500"),
        (3, None),
    ]


def test_a_completions_request_gets_the_first_turns_and_the_reason_says_so(
    stub: Stub, conversations: Path
) -> None:
    result = run(stub, conversations, endpoint="completions")
    assert {row.prompt for row in sent_rows(result)} == {"s0", "s1", "s2"}
    assert "later turns of conversations left out: 6" in result.reason


def test_both_arms_get_the_same_sessions(stub: Stub, other: Stub, conversations: Path) -> None:
    result = compare_stubs((stub, other), conversations, same_prompts=False)
    measured: dict[str, list[Any]] = {"a": [], "b": []}
    for window in windows(result):
        if window.kind != "measured":
            continue
        rows = sorted(window.cell.rows, key=lambda row: row.sent_s)
        in_order = [(row.prompt, row.variant, row.turn) for row in rows]
        assert [turn for _, _, turn in in_order] == [1, 2, 3] * (len(rows) // 3)
        measured[window.arm].append((window.cycle, sorted(in_order)))
    assert sorted(measured["a"]) == sorted(measured["b"])
    assert measured["a"]
    nonces = [{json.dumps(body["messages"]) for body in server.requests[2:]} for server in (stub, other)]
    assert len(nonces[0] & nonces[1]) > 20


def test_a_row_has_the_tokens_that_came_from_the_cache(stub: Stub, conversations: Path) -> None:
    def answer(body: Body) -> Reply:
        usage = {
            "prompt_tokens": 10 * len(body["messages"]),
            "completion_tokens": 8,
            "prompt_tokens_details": {"cached_tokens": 10 * (len(body["messages"]) - 1)},
        }
        return Reply([*stream(body, CHUNKS, done=False), event({"choices": [], "usage": usage}), DONE])

    stub.answer = answer
    rows = sent_rows(run(stub, conversations))
    assert {(row.turn, row.prompt_tokens, row.cached_tokens) for row in rows} == {
        (1, 10, 0),
        (2, 30, 20),
        (3, 50, 40),
    }
