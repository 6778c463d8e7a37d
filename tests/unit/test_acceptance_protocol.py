"""Acceptance is asked of the engine's package: what its series show, and what a request's answer reports."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from specops.load.answer import read_answer
from specops.load.request_drafts import by_class, by_prompt_length, length_class, pooled
from specops.prometheus.exposition import DraftCounts, NoData, draft_counts, naming_of, parse
from specops.prometheus.promql import Signals
from specops.serving import ENGINES, RequestDrafts, fields_for_drafts, namings, request_drafts
from specops.serving.acceptance import MOST

INPUTS = yaml.safe_load(
    Path(__file__).with_name("public_inputs").joinpath("inputs.yaml").read_text(encoding="utf-8")
)
METRICS = [one for one in INPUTS if one["kind"] == "metrics" and one["half"] in ("developed", "later")]


def judged(text: str) -> dict[str, Any]:
    """What is read of a scrape, as `right` of an input has it."""
    scrape = parse(text)
    series, counts = naming_of(scrape), draft_counts({}, scrape)
    measured = counts if isinstance(counts, DraftCounts) else None
    return {
        "engine": next((name for name, one in namings().items() if one == series), None),
        "speculates": None if counts.drafts is None else counts.drafts > 0,
        "rate": None if measured is None or measured.rate is None else round(measured.rate, 6),
        "length": None if measured is None or measured.length is None else round(measured.length, 6),
    }


@pytest.mark.parametrize("one", METRICS, ids=[one["id"] for one in METRICS])
def test_a_scrape_is_read_by_its_own_engines_names(one: Mapping[str, Any]) -> None:
    assert judged(one["text"]) == one["right"]


SGLANG = """sglang:generation_tokens_total{{model_name="m"}} {}
sglang:spec_verify_calls_total{{model_name="m"}} {}
"""
RATE = 'sglang:spec_accept_rate{{model_name="m"}} {}\nsglang:spec_accept_length{{model_name="m"}} 3.4\n'


def test_sglangs_tokens_and_verifications_give_the_length_and_its_gauge_the_rate() -> None:
    before, after = (parse((SGLANG + RATE).format(*values)) for values in ((34, 10, 0.5), (374, 110, 0.6)))
    counts = draft_counts(before, after, "m")
    assert isinstance(counts, DraftCounts)
    assert (counts.rate, counts.length, counts.estimated) == (pytest.approx(0.6), pytest.approx(3.4), True)


def test_verifications_that_accept_nothing_are_a_rate_of_zero() -> None:
    counts = draft_counts({}, parse((SGLANG + RATE).format(100, 100, 0.0)), "m")
    assert isinstance(counts, DraftCounts)
    assert (counts.rate, counts.length) == (0.0, 1.0)


def test_only_an_engine_whose_counters_come_with_speculation_is_said_not_to_speculate() -> None:
    quiet = {"vllm": "vllm:generation_tokens_total 9\n", "sglang": "sglang:generation_tokens_total 9\n"}
    assert judged(quiet["vllm"])["speculates"] is False
    assert judged(quiet["sglang"])["speculates"] is None
    assert judged("llamacpp:tokens_predicted_total 9\n")["speculates"] is None
    other = quiet["vllm"] + "vllm:spec_decode_draft_acceptance_rate 0.4\n"
    assert judged(other)["speculates"] is None, "a name for drafts that is not read"
    assert judged("")["speculates"] is None
    assert judged("up 1\n") == {"engine": None, "speculates": None, "rate": None, "length": None}


@pytest.mark.parametrize("naming", namings())
def test_no_gauge_is_summed_or_differenced(naming: str) -> None:
    """It is a mean over the last iterations: its increase over a window means nothing."""
    series = namings()[naming]
    signals = Signals(series, {"a": "b"}, "5m", ("model_name",))
    makers = (signals.acceptance, signals.accepted_length, signals.accepted, signals.drafted, signals.drafts)
    texts = [make() for make in makers]
    for drafts in series.acceptance:
        for gauge in filter(None, (drafts.rate, drafts.length)):
            shown = [text for text in texts if gauge in text]
            assert shown, f"nothing reads {gauge}"
            for text in shown:
                assert not re.search(rf"(rate|increase|delta|sum) ?\({re.escape(gauge)}", text)
                assert f"avg_over_time(({gauge}" in text


def test_short_answers_without_an_accepted_token_are_a_rate_of_zero() -> None:
    """One token of each answer comes from its prompt."""
    text = (SGLANG + RATE).format(10, 5, 0.0) + 'sglang:num_requests_total{model_name="m"} 5\n'
    counts = draft_counts({}, parse(text), "m")
    assert isinstance(counts, DraftCounts)
    assert counts.rate == 0.0
    unknown = draft_counts({}, parse((SGLANG + RATE).format(30, 5, 0.0)), "m")
    assert isinstance(unknown, NoData)
    assert unknown.drafts == 5


VLLM_ANSWER = {
    "choices": [],
    "usage": {"completion_tokens": 24},
    "metrics": {
        "speculative_decoding": {
            "mean_acceptance_length": 3.29,
            "acceptance_histogram": [1, 1, 0, 5],
            "num_spec_steps": 7,
            "num_accepted_draft_tokens": 16,
            "num_draft_tokens": 21,
        }
    },
}
SGLANG_SPEC = {
    "spec_num_correct_drafts": 63,
    "spec_num_proposed_drafts": 215,
    "spec_verify_ct": 43,
    "spec_correct_drafts_histogram": [11, 14, 11, 4, 0, 3],
}
LLAMACPP_ANSWER = {"choices": [], "timings": {"predicted_n": 30, "draft_n": 29, "draft_n_accepted": 13}}


@pytest.mark.parametrize(
    ("engine", "body", "drafts"),
    [
        ("vllm", VLLM_ANSWER, RequestDrafts(21, 16, 7, (6, 5, 5))),
        ("embedded", VLLM_ANSWER, RequestDrafts(21, 16, 7, (6, 5, 5))),
        (
            "sglang",
            {"choices": [], "sglext": {"spec_tokens_details": SGLANG_SPEC}},
            RequestDrafts(215, 63, 43, (32, 18, 7, 3, 3)),
        ),
        (
            "sglang",
            {"choices": [{"meta_info": {"spec_draft_token_num": 9, "spec_accept_token_num": 4}}]},
            RequestDrafts(9, 4),
        ),
        ("llamacpp", LLAMACPP_ANSWER, RequestDrafts(29, 13)),
    ],
)
def test_an_answers_own_drafts_are_read(engine: str, body: dict[str, Any], drafts: RequestDrafts) -> None:
    read = ENGINES[engine].answer_drafts
    assert read is not None
    assert read(body) == request_drafts(body) == drafts


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"timings": {"predicted_n": 5}},  # llama.cpp while nothing was drafted
        {"metrics": None},
        {"metrics": {"speculative_decoding": {"num_draft_tokens": 3}}},
        {"timings": {"draft_n": 3, "draft_n_accepted": 4}},  # more than was drafted
        {"timings": {"draft_n": True, "draft_n_accepted": True}},
        {"timings": {"draft_n": MOST + 1, "draft_n_accepted": 0}},
        {"timings": []},
        {"choices": [{"meta_info": SGLANG_SPEC}, {"meta_info": SGLANG_SPEC}]},  # of which choice?
    ],
)
def test_what_is_no_count_is_not_reported(body: dict[str, Any]) -> None:
    assert request_drafts(body) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["metrics", "speculative_decoding", "timings", "draft_n", "choices"]), inner
        )
    ),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(["metrics", "timings", "sglext", "choices", "meta_info"]), JSON))
def test_no_answer_breaks_the_readers(body: dict[str, Any]) -> None:
    found = request_drafts(body)
    assert found is None or 0 <= found.accepted <= found.drafted


@given(st.lists(st.integers(0, 4), min_size=1, max_size=20))
def test_a_histogram_is_the_accepted_tokens_by_position(accepted_by_step: list[int]) -> None:
    histogram = [accepted_by_step.count(number) for number in range(max(accepted_by_step) + 1)]
    total = sum(accepted_by_step)
    found = RequestDrafts.read(4 * len(accepted_by_step), total, len(accepted_by_step), histogram)
    assert found is not None
    assert found.per_position is not None
    assert sum(found.per_position) == total
    for position, count in enumerate(found.per_position):
        assert count == sum(accepted > position for accepted in accepted_by_step)


def test_a_streams_last_report_counts() -> None:
    chunk = {"choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": None}]}
    first = chunk | {"timings": {"draft_n": 3, "draft_n_accepted": 1}}
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]} | LLAMACPP_ANSWER
    end["choices"] = [{"index": 0, "delta": {}, "finish_reason": "stop"}]
    stream = "".join(f"data: {json.dumps(body)}\n\n" for body in (chunk, first, end)) + "data: [DONE]\n\n"
    assert read_answer([(0.0, stream.encode())]).drafts == RequestDrafts(29, 13)
    assert read_answer([(0.0, f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n".encode())]).drafts is None


def test_only_an_engine_that_its_list_of_models_names_is_asked_for_more() -> None:
    assert fields_for_drafts("sglang") == {"return_spec_tokens_details": True}
    for owner in ("vllm", "llamacpp", "specops", "openai", ""):
        assert not fields_for_drafts(owner)


class Row:
    def __init__(self, name: str, prompt: int | None, drafts: RequestDrafts | None) -> None:
        self.traffic_class, self.prompt_tokens = name, prompt
        self.drafted = drafts and drafts.drafted
        self.accepted = drafts and drafts.accepted
        self.draft_steps = drafts and drafts.steps
        self.accepted_per_position = drafts and drafts.per_position


def test_tokens_are_pooled_and_silent_answers_are_counted() -> None:
    rows: Any = [
        Row("code", 10, RequestDrafts(30, 20, 10, (9, 7, 4))),
        Row("code", 400, RequestDrafts(3, 0, 1, (0, 0, 0))),
        Row("chat", 2000, RequestDrafts(3, 1, 1, (1, 0, 0))),
        Row("chat", 20, None),
    ]
    whole = pooled(rows)
    assert whole is not None
    assert (whole.drafted, whole.accepted, whole.steps, whole.silent) == (36, 21, 12, 1)
    assert whole.per_position == (10, 7, 4)
    assert (whole.rate, whole.length) == (21 / 36, 1 + 21 / 12)
    assert {name: one.rate for name, one in by_class(rows).items()} == {"code": 20 / 33, "chat": 1 / 3}
    assert list(by_prompt_length(rows)) == ["1-128 tokens", "129-512 tokens", "513-2048 tokens"]
    assert pooled(rows[3:]) is None
    assert length_class(128) == "1-128 tokens"
