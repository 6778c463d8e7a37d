"""Conversations as they go out: in order, one turn after the other, with one nonce, to both arms alike."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from comparing import SHORT, windows
from comparing import run as compare_stubs
from measuring import run
from stub import CHUNKS, DONE, Body, Reply, Stub, event, stream

from specops.experiment.samples import pair_up
from specops.load.record import Row
from specops.load.workload import Prompt, load_prompts
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


LIVE = SHORT.model_copy(update={"live_answers": True})


def answering(text: str, prompt_tokens: int = 0) -> Any:
    """A stub's answers, after which a history differs from the recorded one."""

    def answer(body: Body) -> Reply:
        tokens = prompt_tokens or 10 * len(body["messages"])
        usage = {"prompt_tokens": tokens, "completion_tokens": 8}
        events = stream(body, [(text, 8)], done=False, usage=False)
        return Reply([*events, event({"choices": [], "usage": usage}), DONE], gap_s=0.002)

    return answer


@pytest.mark.parametrize("same_prompts", [False, True])
def test_with_live_answers_each_arm_goes_on_from_its_own(
    stub: Stub, other: Stub, conversations: Path, same_prompts: bool
) -> None:
    stub.answer, other.answer = answering("ours"), answering("theirs")
    result = compare_stubs((stub, other), conversations, settings=LIVE, same_prompts=same_prompts)
    for server, text in ((stub, "ours"), (other, "theirs")):
        answers = {
            message["content"]
            for body in server.requests
            for message in body["messages"]
            if message["role"] == "assistant"
        }
        # The turns that fill a stream are not compared, and hold the recorded answers.
        assert {text} <= answers <= {text, "Yes.", "So."}
        assert any(len(body["messages"]) == 5 for body in server.requests)
    records = windows(result)
    counted = [
        (record.arm, row) for record in records if record.kind == "measured" for row in record.cell.rows
    ]
    assert {("~" in row.variant, row.turn > 1) for _, row in counted} == {(False, False), (True, True)}
    assert not {(row.prompt, row.variant) for arm, row in counted if arm == "a" and row.turn > 1} & {
        (row.prompt, row.variant) for arm, row in counted if arm == "b"
    }, "other histories are other requests"
    samples = [sample for sample in pair_up(records, "a", "b") if sample.kind == "measured"]
    assert len(samples) == len(counted) / 2, "later turns are compared by the length of their prompts"
    assert all(sample.standard.prompt_tokens == sample.challenger.prompt_tokens for sample in samples)


def test_turns_on_other_answers_are_not_compared_at_other_lengths(
    stub: Stub, other: Stub, conversations: Path
) -> None:
    stub.answer, other.answer = answering("ours"), answering("theirs", prompt_tokens=600)
    result = compare_stubs((stub, other), conversations, settings=LIVE, same_prompts=False)
    samples = [sample for sample in pair_up(windows(result), "a", "b") if sample.kind == "measured"]
    assert {sample.standard.turn for sample in samples} == {1}


def test_equal_live_answers_are_the_same_requests(stub: Stub, other: Stub, conversations: Path) -> None:
    stub.answer = other.answer = answering("alike")
    result = compare_stubs((stub, other), conversations, settings=LIVE, same_prompts=False)
    samples = [sample for sample in pair_up(windows(result), "a", "b") if sample.kind == "measured"]
    assert {sample.standard.turn for sample in samples} == {1, 2, 3}
    for sample in samples:
        assert (sample.standard.prompt, sample.standard.variant) == (
            sample.challenger.prompt,
            sample.challenger.variant,
        )


def test_a_margin_is_requested_with_the_history_of_its_answer(
    stub: Stub, other: Stub, conversations: Path
) -> None:
    """The second answers differ on equal own histories: the standard is asked how sure it was there."""

    def answers(second: str) -> Any:
        def answer(body: Body) -> Reply:
            text = second if len(body["messages"]) == 3 else "alike"
            reply: Reply = answering(text)(body)
            return reply

        return answer

    stub.answer, other.answer = answers("so"), answers("no")
    compare_stubs((stub, other), conversations, settings=LIVE, same_prompts=False)
    asked = [body["messages"] for body in stub.requests if body.get("logprobs")]
    histories = {tuple(message["content"] for message in messages[1:]) for messages in asked}
    # A turn that fills a stream has the recorded answer.
    assert ("alike", "Why?") in histories
    assert histories <= {("alike", "Why?"), ("Yes.", "Why?")}


def test_the_recorded_history_stands_in_for_an_answer_that_failed(conversations: Path) -> None:
    first, second, third = load_prompts(conversations).sessions[0]
    own = second.continuing(first, first, "Mine.")
    assert [message["content"] for message in own.messages()] == ["Question 0", "Mine.", "Why?"]
    after_failure = third.continuing(second, own, None)
    assert [message["content"] for message in after_failure.messages()][1:] == [
        "Mine.",
        "Why?",
        "So.",
        "Really?",
    ]
    assert third.continuing(second, second, "So.") == third


def test_without_a_recorded_answer_the_texts_part_again() -> None:
    one = Prompt("s", "all", "Hello", session="s")
    two = Prompt("s#2", "all", "Hello\n\nAgain", session="s", turn=2)
    assert [(m["role"], m["content"]) for m in two.continuing(one, one, "Hi.").messages()] == [
        ("user", "Hello"),
        ("assistant", "Hi."),
        ("user", "Again"),
    ]
    assert two.continuing(one, one, None) == two


def test_the_result_of_a_tool_stays_behind_its_recorded_call() -> None:
    asked = {"role": "user", "content": "Weather?"}
    call = {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}
    tool = {"role": "tool", "content": "Rain", "tool_call_id": "1"}
    one = Prompt("s", "all", (asked,), session="s")
    two = Prompt("s#2", "all", (asked, call, tool), session="s", turn=2)
    assert two.continuing(one, one, "It rains.") == two


def test_a_share_of_the_requests_begins_with_one_prefix(stub: Stub, other: Stub, conversations: Path) -> None:
    stub.answer = other.answer = answering("alike")
    settings = SHORT.model_copy(update={"prefix_share": 0.5, "prefix_tokens": 200, "cold_share": 0.5})
    result = compare_stubs(
        (stub, other), conversations, settings=settings, same_prompts=False, concurrency=[2]
    )
    rows = [row for window in windows(result) if window.kind == "measured" for row in window.cell.rows]
    marks = [row.variant.rpartition(".")[2] for row in rows if row.turn == 1]
    assert marks.count("prefix") == marks.count("cold") == len(marks) / 2
    for server in (stub, other):
        firsts = {body["messages"][0]["content"] for body in server.requests}
        prefixed = {text for text in firsts if len(text) > 800}
        assert len({text[:800] for text in prefixed}) == 1 < len(prefixed)
        assert all("] Question" in text[800:] for text in prefixed), "a nonce of its own follows the prefix"
    cold = [row for row in rows if row.variant.endswith(".cold")]
    assert {row.turn for row in cold} == {1, 2, 3}
    states = {
        (sample.standard.turn > 1, sample.factors["cache"]) for sample in pair_up(windows(result), "a", "b")
    }
    assert states == {(False, 0.0), (False, 1.0), (True, 2.0), (True, 0.0)}


def test_each_turn_of_a_cold_conversation_has_a_nonce_of_its_own(
    stub: Stub, other: Stub, conversations: Path
) -> None:
    stub.answer = other.answer = answering("alike")
    settings = SHORT.model_copy(update={"cold_share": 1.0, "live_answers": True})
    result = compare_stubs((stub, other), conversations, settings=settings, same_prompts=False)
    firsts = [body["messages"][0]["content"] for body in stub.requests[2:]]
    assert len(set(firsts)) == len(firsts)
    samples = pair_up(windows(result), "a", "b")
    assert {sample.factors["cache"] for sample in samples} == {0.0}
    assert {sample.standard.turn for sample in samples} == {1, 2, 3}
