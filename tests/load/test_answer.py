"""What a stream's events add up to."""

from __future__ import annotations

from typing import Any

import pytest
from stub import CHUNKS, DONE, event, stream

from specops.load.answer import Answer, Failure, read_answer
from specops.load.observation import Exchange
from specops.load.workload import Prompt

CHAT: dict[str, Any] = {
    "messages": [],
    "stream_options": {"include_usage": True, "continuous_usage_stats": True},
}
COMPLETION = {"prompt": "x", "stream_options": CHAT["stream_options"]}


def read(pieces: list[bytes], failure: Failure | None = None) -> Answer:
    return read_answer([(float(at), piece) for at, piece in enumerate(pieces)], failure)


def delta(**fields: Any) -> bytes:
    return event({"choices": [{"index": 0, "delta": fields, "finish_reason": None}]})


@pytest.mark.parametrize("body", [CHAT, COMPLETION])
def test_a_whole_answer(body: dict[str, Any]) -> None:
    answer = read(stream(body, CHUNKS))
    assert answer.text == "Once upon a time there was."
    assert (answer.tokens, answer.tokens_from) == (8, "usage")
    assert [chunk.tokens for chunk in answer.chunks] == [1, 2, 3, 2]
    assert (answer.finish_reason, answer.failure) == ("length", None)


def test_a_role_is_no_token() -> None:
    answer = read(stream(CHAT, CHUNKS))
    assert len(answer.chunks) == len(CHUNKS)
    assert answer.chunks[0].at == 1.0  # the role came at 0


@pytest.mark.parametrize(
    "fields",
    [
        {"reasoning_content": "Hm"},
        {"reasoning": "Hm"},
        {"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": "{"}}]},
        {"refusal": "No"},
    ],
)
def test_reasoning_and_tools_are_output(fields: dict[str, Any]) -> None:
    answer = read([delta(role="assistant", content=""), delta(**fields), delta(content="x"), DONE])
    assert [chunk.at for chunk in answer.chunks] == [1.0, 2.0]


def test_tokens_whose_text_was_held_back_come_with_the_next_chunk() -> None:
    def part(text: str, total: int) -> bytes:
        return event({"choices": [{"text": text}], "usage": {"completion_tokens": total}})

    answer = read([part("", 1), part("Ω", 2), part("", 4), part("ab", 5), DONE])
    assert [chunk.tokens for chunk in answer.chunks] == [2, 3]


def test_the_end_of_sequence_token_counts_in_time_though_it_has_no_text() -> None:
    end = event({"choices": [{"text": "", "finish_reason": "stop"}], "usage": {"completion_tokens": 2}})
    answer = read([event({"choices": [{"text": "a"}]}), end, DONE])
    assert (len(answer.chunks), answer.finished, answer.tokens) == (1, 1.0, 2)


def test_without_usage_tokens_are_unknown_not_chunks() -> None:
    answer = read(stream({"messages": []}, CHUNKS))
    assert (answer.tokens, answer.tokens_from) == (None, "unknown")
    assert all(chunk.tokens is None for chunk in answer.chunks)


def test_without_usage_a_tokenizer_counts() -> None:
    reads = [(0.0, b"".join(stream({"messages": []}, CHUNKS)))]
    answer = read_answer(reads, count_tokens=lambda text: len(text.split()))
    assert (answer.tokens, answer.tokens_from) == (6, "retokenised")


@pytest.mark.parametrize(
    ("pieces", "kind"),
    [
        ([], "empty"),
        ([DONE], "empty"),
        (stream(CHAT, []), "empty"),
        (stream(CHAT, CHUNKS, finish=None, done=False), "cut"),
        (stream(CHAT, CHUNKS)[:3], "cut"),
        ([*stream(CHAT, CHUNKS)[:3], b'data: {"choices": [{"del'], "cut"),
        ([*stream(CHAT, CHUNKS)[:3], b"data: {nonsense\n\n", DONE], "malformed"),
        ([b"data: [1, 2]\n\n"], "malformed"),
        ([event({"choices": 3})], "malformed"),
        ([event({"choices": ["x"]})], "malformed"),
        ([event({"choices": [{"delta": {"content": 7}}]})], "malformed"),
        ([delta(tool_calls=1)], "malformed"),
        ([b'data: {"id": ' + b"9" * 5000 + b"}\n\n"], "malformed"),
        ([b"data: " + b"[" * 100_000 + b"\n\n"], "malformed"),
        ([b'{"choices": [{"message": {"content": "not streamed"}}]}'], "malformed"),
        ([event({"error": {"message": "out of memory"}}), DONE], "stream_error"),
        ([event({"error": "out of memory"}), DONE], "stream_error"),
    ],
)
def test_each_broken_stream_has_its_kind(pieces: list[bytes], kind: str) -> None:
    answer = read(pieces)
    assert answer.failure is not None
    assert answer.failure.kind == kind


def test_a_finish_reason_ends_an_answer_as_well_as_done() -> None:
    assert read(stream(CHAT, CHUNKS, done=False)).failure is None


def test_done_without_its_blank_line_is_done() -> None:
    assert read([*stream(CHAT, CHUNKS)[:-1], b"data: [DONE]"]).failure is None


def test_what_the_transport_met_stands_unless_the_answer_was_whole() -> None:
    lost = Failure("cut", "connection lost")
    assert read(stream(CHAT, CHUNKS)[:3], lost).failure == lost
    assert read(stream(CHAT, CHUNKS), lost).failure is None


def test_half_a_character_does_not_come_through() -> None:
    answer = read([delta(content="a\ud83d"), delta(content="b"), DONE])
    assert answer.text == "a\N{REPLACEMENT CHARACTER}b"
    error = read([event({"error": {"message": "\ud83d"}})]).failure
    assert error is not None
    assert error.detail == "\N{REPLACEMENT CHARACTER}"


def test_a_character_torn_between_two_chunks_is_whole() -> None:
    halves = [delta(content="\ud83d"), delta(content="\ude00")]
    assert read([*halves, DONE]).text == "\N{GRINNING FACE}"


def test_a_count_of_tokens_that_cannot_be_is_none() -> None:
    absurd = event({"choices": [{"text": "a"}], "usage": {"completion_tokens": 10**400}})
    assert read([absurd, DONE]).tokens is None


def test_what_nothing_can_read_fails_alone() -> None:
    exchange = Exchange(Prompt("p", "all", "x"), 0.0, reads=[(1.0, b"".join(stream({}, CHUNKS)))])

    def broken(_: str) -> int:
        raise OverflowError("too long")

    failure = exchange.observe(broken).answer.failure
    assert failure == Failure("malformed", "could not be read: OverflowError: too long")


def test_an_answer_that_ends_at_once_is_whole_where_its_token_is_counted() -> None:
    """The model's first token ends the sequence: it has no text, and is no failure of the server."""
    ended = event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    usage = event({"choices": [], "usage": {"completion_tokens": 1}})
    answer = read([ended, usage, DONE])
    assert (answer.failure, answer.tokens, answer.finish_reason) == (None, 1, "stop")
    for pieces in ([ended, DONE], [usage, DONE]):
        failure = read(pieces).failure
        assert failure is not None
        assert failure.kind == "empty"
