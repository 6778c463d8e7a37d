"""The definitions, on answers whose figures can be worked out by hand."""

from __future__ import annotations

import json

import pytest

from specops.load import request_times
from specops.load.answer import Answer, Chunk, Failure, read_answer
from specops.load.arrivals import offsets
from specops.load.request_times import Objectives, Observation


def observation(
    chunks: list[tuple[float, int | None]],
    tokens: int | None,
    *,
    finished: float | None = None,
    **fields: float,
) -> Observation:
    """Sent at 10 s; chunks are (instant, tokens)."""
    made = tuple(Chunk(at, count) for at, count in chunks)
    return Observation(
        prompt="p",
        traffic_class="all",
        scheduled=fields.get("scheduled", 9.5),
        first_sent=fields.get("first_sent", 10.0),
        sent=10.0,
        ended=fields.get("ended", 12.0),
        answer=Answer(made, "x", tokens, "usage", "length", finished),
    )


BURSTY = observation([(10.5, 2), (11.0, 3), (11.6, 2)], tokens=7)


def test_ttft_e2e_and_lag() -> None:
    late = observation([(10.5, 1)], 1, scheduled=9.0, first_sent=9.25)
    assert request_times.ttft(late) == 0.5
    assert request_times.e2e(late) == 2.0
    assert request_times.e2e_with_retries(late) == 2.75
    assert request_times.lag(late) == 0.25


def test_tpot_leaves_out_the_tokens_of_the_first_chunk() -> None:
    assert request_times.tpot(BURSTY) == pytest.approx(1.1 / 5)


def chunked(characters: list[int], tokens: int, gap: float = 0.1) -> Observation:
    """An answer whose chunks of so many characters come `gap` seconds apart, their tokens unknown."""
    made = tuple(Chunk(10.5 + gap * i, None, length) for i, length in enumerate(characters))
    answer = Answer(made, "x", tokens, "usage", "length", chunk_tokens_missing="no usage with every chunk")
    return Observation("p", "all", 10.0, 10.0, 10.0, 12.0, answer)


def test_a_first_chunk_of_unknown_size_gives_no_tpot_where_it_matters() -> None:
    """Six tokens in two chunks: the first has one to five, and the TPOT is 0.2 s to 1 s."""
    found = chunked([12, 12], tokens=6)
    assert request_times.tpot(found) is None
    assert request_times.tpot_missing(found) == (
        "the tokens of the first chunk are unknown: no usage with every chunk"
    )


def test_a_first_chunk_of_unknown_size_gives_a_tpot_where_it_hardly_matters() -> None:
    """200 chunks of 4 tokens each: n_first is 4, taken for 2 to 8."""
    found = chunked([16] * 200, tokens=800)
    assert request_times.tpot(found) == pytest.approx(199 * 0.1 / 796, rel=0.01)
    assert request_times.tpot_missing(found) is None


def test_a_first_chunk_cannot_hold_the_tokens_of_others() -> None:
    """Two tokens more than chunks: the first has three at most, however long its text is."""
    found = chunked([500, *[2] * 199], tokens=202)
    assert request_times.tpot(found) == pytest.approx(199 * 0.1 / (202 - 3), rel=0.01)


def test_chunks_that_arrive_together_with_the_first_are_in_it() -> None:
    """A proxy that holds events back sends several on at once: nobody waits between their tokens."""
    held = observation([(10.5, 1)] * 4 + [(11.0, 1)] * 5 + [(11.3, 1)] * 3, tokens=12)
    assert request_times.tpot(held) == pytest.approx(0.8 / 8)
    assert request_times.tpot(observation([(10.5, 1)] * 4, tokens=4)) is None
    unknown = observation([(10.5, None)] * 4 + [(11.0 + n / 10, None) for n in range(96)], tokens=100)
    assert request_times.tpot(unknown) is None  # the four may have two to four tokens


def test_chunks_that_arrive_together_hold_no_tokens_of_later_ones() -> None:
    """201 tokens, 198 later chunks: the two first ones have three at most, however long their text is."""
    made = [Chunk(10.5, None, 250)] * 2 + [Chunk(10.6 + n / 10, None, 2) for n in range(198)]
    answer = Answer(tuple(made), "x", 201, "usage", "length")
    held = Observation("p", "all", 10.0, 10.0, 10.0, 40.0, answer)
    assert request_times.tpot(held) == pytest.approx((made[-1].time_s - 10.5) / (201 - 3), rel=1e-6)


def test_tpot_ends_with_the_last_token_also_where_it_has_no_text() -> None:
    ended = observation([(10.5, 1), (11.0, 1)], tokens=3, finished=11.5)
    assert request_times.tpot(ended) == pytest.approx(0.5)


@pytest.mark.parametrize(("finished", "last"), [(11.5, 11.5), (12.0, 12.0), (12.1, 11.0), (19.0, 11.0)])
def test_a_finish_reason_that_comes_late_is_not_the_time_of_a_token(finished: float, last: float) -> None:
    """A server that does something else before it ends a stream is not slower per token."""
    ended = observation([(10.5, 1), (11.0, 1)], tokens=3, finished=finished)
    assert request_times.tpot(ended) == pytest.approx((last - 10.5) / 2)


@pytest.mark.parametrize(
    "found", [observation([], None), observation([(10.5, None)], None), observation([(10.5, 4)], 4)]
)
def test_there_is_no_tpot_without_a_token_after_the_first_chunk(found: Observation) -> None:
    assert request_times.tpot(found) is None


def test_an_answer_without_output_has_no_ttft() -> None:
    assert request_times.ttft(observation([], 0)) is None


def test_gaps_and_what_they_amortise_to() -> None:
    assert request_times.chunk_gaps(BURSTY) == pytest.approx([0.5, 0.6])
    assert request_times.amortised_itl(BURSTY) == pytest.approx([0.5 / 3, 0.3])
    assert request_times.tokens_per_chunk(BURSTY) == pytest.approx(7 / 3)


def test_peak_throughput_weighs_chunks_by_their_tokens() -> None:
    assert request_times.peak_throughput([BURSTY]) == 5  # 10.5 and 11.0; 11.6 is more than a second later
    assert request_times.peak_throughput([BURSTY, BURSTY]) == 10
    unknown = observation([(10.5, None), (11.0, None), (11.6, None)], tokens=9)
    assert request_times.peak_throughput([BURSTY, unknown]) is None
    assert request_times.peak_throughput([]) is None


@pytest.mark.parametrize(
    ("objectives", "met"),
    [
        (Objectives(), True),
        (Objectives(ttft_ms=500.1), True),
        (Objectives(ttft_ms=499), False),
        (Objectives(ttft_ms=600, tpot_ms=221, e2e_ms=2001), True),
        (Objectives(ttft_ms=600, tpot_ms=219, e2e_ms=2001), False),
        (Objectives(e2e_ms=1999), False),
    ],
)
def test_goodput_needs_every_objective_met(objectives: Objectives, met: bool) -> None:
    assert request_times.meets(BURSTY, objectives) is met


def test_a_failed_or_unknown_request_meets_nothing() -> None:
    failed = Observation("p", "all", 0, 0, 0, 0.1, Answer(failure=Failure("cut", "")))
    assert not request_times.meets(failed, Objectives(e2e_ms=1000))
    assert not request_times.meets(observation([(10.5, None)], None), Objectives(tpot_ms=1000))


def test_an_answer_that_came_all_at_once_meets_any_tpot() -> None:
    assert request_times.meets(observation([(10.5, 4)], 4), Objectives(tpot_ms=1))
    assert request_times.meets(observation([(10.5, None)], 1), Objectives(tpot_ms=1))


def test_goodput_counts_the_time_that_retries_took() -> None:
    retried = observation([(10.5, 1)], 1, first_sent=8.0)
    assert request_times.meets(retried, Objectives(e2e_ms=4001))
    assert not request_times.meets(retried, Objectives(e2e_ms=3999))


def test_tokens_of_a_window_are_unknown_where_one_answers_are() -> None:
    assert request_times.output_tokens([BURSTY, BURSTY]) == 14
    assert request_times.output_tokens([BURSTY, observation([(10.5, None)], None)]) is None


def test_arrivals_are_seeded_and_of_the_rate_asked_for() -> None:
    drawn = offsets(50.0, 5000, seed=1)
    assert drawn == offsets(50.0, 5000, seed=1) != offsets(50.0, 5000, seed=2)
    assert drawn == sorted(drawn)
    assert 5000 / drawn[-1] == pytest.approx(50, rel=0.06)  # four standard deviations


def test_burstiness_spreads_the_gaps() -> None:
    def variation(burstiness: float) -> float:
        at = offsets(10.0, 4000, burstiness=burstiness, seed=3)
        gaps = [b - a for a, b in zip([0.0, *at], at, strict=False)]
        mean = sum(gaps) / len(gaps)
        return float((sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5 / mean)

    assert variation(0.25) == pytest.approx(2, rel=0.15)
    assert variation(1.0) == pytest.approx(1, rel=0.15)
    assert variation(16.0) == pytest.approx(0.25, rel=0.15)


def test_a_tpot_that_is_unknown_is_no_met_objective() -> None:
    found = chunked([12, 12], tokens=6)
    assert not request_times.meets(found, Objectives(tpot_ms=10_000))


@pytest.mark.parametrize("usage", ["continuous", "last chunk", "at the end"])
@pytest.mark.parametrize("sizes", [[1] * 60, [4] + [1] * 59, [3] * 60, [1, 2, 3, 2, 5] * 12])
def test_figures_are_right_or_unknown_with_the_reason(usage: str, sizes: list[int]) -> None:
    """Chunks of so many tokens every 10 ms: TPOT, amortised ITL and peak, within 1% of the truth."""
    reads, total = [], 0
    for number, size in enumerate(sizes):
        total += size
        told = usage == "continuous" or (usage == "last chunk" and number == len(sizes) - 1)
        body = {
            "choices": [
                {"text": "word " * size, "finish_reason": "length" if told and number == 59 else None}
            ],
            "usage": {"completion_tokens": total} if told else None,
        }
        reads.append((number / 100, f"data: {json.dumps(body)}\n\n".encode()))
    end = json.dumps({"choices": [], "usage": {"completion_tokens": total}})
    reads.append((0.59, f"data: {end}\n\ndata: [DONE]\n\n".encode()))
    found = Observation("p", "all", 0, 0, 0, 0.59, read_answer(reads))
    tpot = request_times.tpot(found)
    if tpot is None:
        assert request_times.tpot_missing(found)
    else:
        assert tpot == pytest.approx(0.59 / (total - sizes[0]), rel=0.01)
    itl, peak = request_times.amortised_itl(found), request_times.peak_throughput([found])
    if usage == "continuous" or sizes == [1] * 60:
        assert tpot is not None
        assert itl == pytest.approx([0.01 / size for size in sizes[1:]])
        assert peak == total  # all within a second
    elif not (itl and peak):
        assert found.answer.chunk_tokens_missing
        assert (itl, peak) == ([], None)
    else:
        raise AssertionError("chunks of several tokens cannot be known here")
