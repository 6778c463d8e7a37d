"""What a standard pool is said to do: a fact by its counters, an observation by its chunks."""

from __future__ import annotations

import pytest

from specops.load.counters import Observed, several_tokens, speculating_standard
from specops.prometheus.exposition import draft_counts, parse


def test_counters_that_grow_are_a_fact() -> None:
    found = speculating_standard(Observed(12.0, 2.0), Observed(30.0, 2.5))
    assert found == "the standard speculates: it verified 12 drafts while it answered"
    assert speculating_standard(Observed(12.0, 2.0), None) is not None
    assert several_tokens(Observed(12.0, 2.0)) is None, "it is explained"


@pytest.mark.parametrize(
    ("standard", "other"),
    [
        (Observed(12.0, 2.0), Observed(0.0, 1.0)),
        (Observed(12.0, 2.0), Observed(0.0, 4.0)),
        (Observed(12.0, None), Observed(None, 1.0)),
        (Observed(None, 2.5), Observed(None, 1.0)),
        (Observed(None, 2.5), Observed(0.0, 1.0)),
    ],
)
def test_pools_that_look_swapped(standard: Observed, other: Observed) -> None:
    found = speculating_standard(standard, other)
    assert found is not None
    assert found.startswith("the pools look swapped")


@pytest.mark.parametrize(
    ("standard", "other"),
    [
        (Observed(0.0, 1.0), Observed(30.0, 2.5)),
        (Observed(None, 1.0), Observed(None, 2.5)),
        (Observed(0.0, 4.0), Observed(30.0, 4.0)),  # a stream interval of 4
        (Observed(0.0, 4.0), Observed(0.0, 1.0)),  # counters show no drafts, whatever its chunks are
        (Observed(None, 4.0), Observed(None, 4.0)),
        (Observed(None, 4.0), Observed(30.0, 1.0)),  # llama.cpp speculates, and sends each token by itself
        (Observed(None, 1.49), Observed(None, 1.0)),
        (Observed(None, None), Observed(None, 1.0)),
        (Observed(None, 4.0), None),
    ],
)
def test_nothing_is_said_as_a_fact(standard: Observed, other: Observed | None) -> None:
    assert speculating_standard(standard, other) is None


def test_several_tokens_a_chunk_are_an_observation() -> None:
    found = several_tokens(Observed(None, 4.0))
    assert found is not None
    assert found.startswith("the standard sends 4.0 tokens a chunk: it may speculate, or")
    assert "its counters show no drafts" in str(several_tokens(Observed(0.0, 4.0)))
    assert several_tokens(Observed(None, 1.49)) is None
    assert several_tokens(Observed(None, None)) is None


def test_drafts_are_counted_by_the_names_of_either_engine() -> None:
    vllm = 'vllm:spec_decode_num_drafts_total{{model_name="m"}} {}\n'
    sglang = 'sglang:spec_verify_calls_total{{model_name="m"}} {}\n'
    for text in (vllm, sglang):
        before, after = parse(text.format(3)), parse(text.format(8))
        assert draft_counts(before, after, "m").drafts == 5
        assert draft_counts(after, after, "m").drafts == 0
        assert draft_counts({}, after, "m").drafts == 8


def test_an_engine_that_generated_tokens_without_such_a_counter_verified_no_drafts() -> None:
    text = 'vllm:generation_tokens_total{{model_name="m"}} {}\n'
    before, after = parse(text.format(3)), parse(text.format(8))
    assert draft_counts(before, after, "m").drafts == 0
    assert draft_counts(before, before, "m").drafts is None, "it generated nothing: nothing is known"
    other = 'sglang:generation_tokens_total{{model_name="m"}} {}\n'
    assert draft_counts(parse(other.format(3)), parse(other.format(8)), "m").drafts is None
