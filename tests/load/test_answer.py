"""What a stream's events add up to."""

from __future__ import annotations

from typing import Any

import pytest
from stub import CHUNKS, DONE, event, stream

from specops.load.answer import Answer, Failure, read_answer
from specops.load.request_times import Exchange
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
    assert answer.text == "Once upon a time."
    assert (answer.tokens, answer.tokens_from) == (8, "usage")
    assert [chunk.tokens for chunk in answer.chunks] == [1, 2, 3, 2]
    assert (answer.finish_reason, answer.failure) == ("length", None)


def test_a_role_is_no_token() -> None:
    answer = read(stream(CHAT, CHUNKS))
    assert len(answer.chunks) == len(CHUNKS)
    assert answer.chunks[0].time_s == 1.0  # the role came at 0


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
    assert [chunk.time_s for chunk in answer.chunks] == [1.0, 2.0]


def test_tokens_whose_text_was_held_back_come_with_the_next_chunk() -> None:
    def part(text: str, total: int) -> bytes:
        return event({"choices": [{"text": text}], "usage": {"completion_tokens": total}})

    answer = read([part("", 1), part("Ω", 2), part("", 4), part("ab", 5), DONE])
    assert [chunk.tokens for chunk in answer.chunks] == [2, 3]


def test_the_end_of_sequence_token_counts_in_time_though_it_has_no_text() -> None:
    end = event({"choices": [{"text": "", "finish_reason": "stop"}], "usage": {"completion_tokens": 2}})
    answer = read([event({"choices": [{"text": "a"}]}), end, DONE])
    assert (len(answer.chunks), answer.finished, answer.tokens) == (1, 1.0, 2)


@pytest.mark.parametrize(("given", "known"), [(31, 31), (None, None), (-1, None), ("31", None)])
def test_the_length_of_the_prompt_is_the_servers_own_count(given: object, known: int | None) -> None:
    usage = event({"choices": [], "usage": {"completion_tokens": 1, "prompt_tokens": given}})
    assert read([delta(content="x"), usage, DONE]).prompt_tokens == known


def test_without_usage_tokens_are_unknown_not_chunks() -> None:
    answer = read(stream({"messages": []}, CHUNKS))
    assert (answer.tokens, answer.tokens_from) == (None, "unknown")
    assert all(chunk.tokens is None for chunk in answer.chunks)


def test_without_usage_a_tokenizer_counts() -> None:
    reads = [(0.0, b"".join(stream({"messages": []}, CHUNKS)))]
    answer = read_answer(reads, count_tokens=lambda text: len(text.split()))
    assert (answer.tokens, answer.tokens_from) == (4, "retokenised")


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


@pytest.mark.parametrize(
    ("done", "usage", "failure"), [(True, True, None), (False, True, "cut"), (True, False, "cut")]
)
def test_of_an_endpoint_without_finish_reasons_done_and_usage_say_that_an_answer_is_whole(
    done: bool, usage: bool, failure: str | None
) -> None:
    body = CHAT if usage else {"messages": []}
    pieces = stream(body, CHUNKS, finish=None, done=done)
    reads = [(float(at), piece) for at, piece in enumerate(pieces)]
    answer = read_answer(reads, finish_reasons=False)
    assert (answer.failure and answer.failure.kind) == failure
    assert answer.finish_reason is None


def test_done_after_text_without_a_finish_reason_is_an_answer_cut_off() -> None:
    cut = Failure("cut", "the answer ended without a finish reason")
    assert read([delta(content="a"), DONE]).failure == cut


def test_reasoning_is_counted_apart_from_the_answer() -> None:
    ended = event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    thought = [delta(reasoning_content="hm, "), delta(reasoning="so")]
    assert read([*thought, delta(content="yes"), ended]).reasoning == len("hm, so")
    assert read([*thought, ended]).reasoning == len(read([*thought, ended]).text)


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


@pytest.mark.parametrize(("tokens", "kind"), [(1, None), (2, None), (3, "empty"), (64, "empty")])
def test_an_answer_of_counted_tokens_without_any_text_is_a_failure(tokens: int, kind: str | None) -> None:
    ended = event({"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]})
    failure = read([ended, event({"choices": [], "usage": {"completion_tokens": tokens}}), DONE]).failure
    assert (failure and failure.kind) == kind
    if failure is not None:
        assert failure.detail == f"the answer has no output, and its usage counts {tokens} tokens"


def total(text: str, count: Any, finish: str | None = None) -> bytes:
    """A chunk of text with the usage that the server puts beside it."""
    usage = {"completion_tokens": count} if count is not None else None
    return event({"choices": [{"text": text, "finish_reason": finish}], "usage": usage})


def chunk_tokens(pieces: list[bytes]) -> list[int | None]:
    return [chunk.tokens for chunk in read(pieces).chunks]


def test_a_first_chunk_of_several_tokens() -> None:
    assert chunk_tokens([total("a b c", 3), total("d", 4), DONE]) == [3, 1]


def test_a_total_on_the_last_chunk_is_not_that_chunks_tokens() -> None:
    """As many tokens as chunks are one each; more are unknown."""
    ones = [*[total("a ", None)] * 9, total("b", 10, "length"), DONE]
    assert chunk_tokens(ones) == [1] * 10
    answer = read([*[total("a ", None)] * 9, total("b", 30, "length"), DONE])
    assert answer.tokens == 30
    assert [chunk.tokens for chunk in answer.chunks] == [None] * 10
    assert answer.chunk_tokens_missing == "the endpoint does not send usage with every chunk"


def test_a_closing_token_without_text_is_no_chunks() -> None:
    pieces = [*[total("a ", None)] * 9, total("", None, "stop"), total("", 10), DONE]
    assert chunk_tokens(pieces) == [1] * 9
    assert chunk_tokens([*pieces[:9], total("", None, "length"), total("", 10), DONE]) == [None] * 9


@pytest.mark.parametrize(
    "counts",
    [
        [0, 0, 0, 0],  # none of them counted
        [0, 3, 6, 9],  # one chunk behind
        [3, 3, 3, 3],  # of the chunk alone
        [9, 6, 3, 12],
        [3, None, 9, 12],
        [12, 12, 12, 12],  # the bound, or the whole answer, with every chunk
    ],
)
def test_usage_that_is_not_a_running_total_counts_no_chunk(counts: list[int | None]) -> None:
    pieces = [*(total("word ", count) for count in counts), total("", 12, "length"), DONE]
    answer = read(pieces)
    assert answer.tokens == 12
    assert [chunk.tokens for chunk in answer.chunks] == [None] * 4
    assert answer.chunk_tokens_missing


@pytest.mark.parametrize(("count", "pieces"), [(0, 1), (0, 8), (1, 8), (3, 8)])
def test_fewer_tokens_than_can_be_are_unknown_with_the_reason(count: int, pieces: int) -> None:
    stream_ = [*[total("word ", count)] * pieces, total("", count, "length"), DONE]
    answer = read(stream_)
    assert (answer.tokens, answer.tokens_from, answer.failure) == (None, "unknown", None)
    assert answer.tokens_missing == f"the endpoint counts {count} tokens beside {pieces} chunks of text"
    reads = [(0.0, b"".join(stream_))]
    retokenised = read_answer(reads, count_tokens=lambda text: len(text.split()))
    assert (retokenised.tokens, retokenised.tokens_from) == (pieces, "retokenised")


def test_text_that_is_split_finer_than_tokens_is_counted() -> None:
    answer = read([*[total("a", None)] * 8, total("", 5, "length"), DONE])
    assert (answer.tokens, answer.tokens_from) == (5, "usage")
    assert all(chunk.tokens is None for chunk in answer.chunks)


def test_null_usage_says_nothing() -> None:
    answer = read([total("a", None), total("b", None, "length"), DONE])
    assert (answer.tokens, answer.tokens_missing) == (None, "the endpoint reports no usage")


@pytest.mark.parametrize(
    "reason", ["abort", "aborted", "error", "cancelled", "timeout", {"type": "abort", "message": "m"}]
)
def test_an_answer_that_the_server_gave_up_is_a_failure(reason: Any) -> None:
    ended = event({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
    answer = read([delta(content="a"), ended, DONE])
    assert answer.failure is not None
    assert answer.failure.kind == "aborted"
    assert answer.text == "a"  # what came is kept


@pytest.mark.parametrize(
    "reason", ["stop", "length", "tool_calls", "content_filter", "eos", {"type": "stop"}]
)
def test_an_answer_that_came_to_its_end_is_whole(reason: Any) -> None:
    ended = event({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
    assert read([delta(content="a"), ended, DONE]).failure is None


@pytest.mark.parametrize(
    "fault",
    [
        event({"error": {"message": "out of memory", "code": 500}}),
        event({"error": "out of memory"}),
        event({"object": "error", "message": "out of memory", "code": 500}),
        event({"object": "error", "message": "out of memory", "usage": None}),
        event({"detail": "out of memory"}),
        event({"message": "out of memory", "code": 500}),
        event({"choices": [{"index": 0, "finish_reason": "error", "error": {"message": "out of memory"}}]}),
        b'event: error\ndata: {"message": "out of memory"}\n\n',
        b"event: error\ndata: out of memory\n\n",
        b'error: {"code": 500, "message": "out of memory"}\n\n',
        b'{"object": "error", "message": "out of memory"}',
    ],
)
@pytest.mark.parametrize("ending", [[DONE], []])
def test_an_error_in_the_stream_is_a_failure_in_its_own_words(fault: bytes, ending: list[bytes]) -> None:
    begun = [] if fault.startswith(b"{") else [delta(content="a")]
    ending = [] if fault.startswith(b"{") else ending
    assert read([*begun, fault, *ending]).failure == Failure("stream_error", "out of memory")


def test_fields_beside_an_answer_are_no_error() -> None:
    beside = {"error": None, "message": "", "detail": None}
    usage = event({"usage": {"completion_tokens": 1}, "message": "done"})
    answer = event({"choices": [{"text": "a", "finish_reason": "stop"}]} | beside)
    assert read([answer, usage, DONE]).failure is None


def test_a_page_in_place_of_an_answer() -> None:
    page = b"\n<!doctype html>\n<html><head><title>Welcome &amp; more</title></head></html>"
    assert read([page]).failure == Failure("html", "an HTML page (Welcome & more)")
