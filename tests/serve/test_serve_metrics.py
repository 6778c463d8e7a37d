"""/metrics: vLLM's names, types and labels, and figures that agree with what was served."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import astuple, replace
from pathlib import Path

import pytest
from live import Live, events_of, until
from prometheus_client.parser import text_string_to_metric_families

from specops.serving import OWN

LABELS = 'engine="0",model_name="tiny"'
HISTOGRAMS = {
    "vllm:e2e_request_latency_seconds",
    "vllm:time_to_first_token_seconds",
    "vllm:inter_token_latency_seconds",
    "vllm:request_time_per_output_token_seconds",
    "vllm:request_queue_time_seconds",
    "vllm:request_prefill_time_seconds",
    "vllm:request_decode_time_seconds",
    "vllm:iteration_tokens_total",
}
GAUGES = {"vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"}
COUNTERS = {
    "vllm:generation_tokens_total",
    "vllm:prompt_tokens_total",
    "vllm:prefix_cache_queries_total",
    "vllm:prefix_cache_hits_total",
    "vllm:corrupted_requests_total",
    "vllm:num_preemptions_total",
    "vllm:request_success_total",
}
SPECULATIVE = {
    "vllm:spec_decode_num_drafts_total",
    "vllm:spec_decode_num_draft_tokens_total",
    "vllm:spec_decode_num_accepted_tokens_total",
    "vllm:spec_decode_num_accepted_tokens_per_pos_total",
}
# The edges of vLLM's own histograms: a query that names one of them must find it here.
# fmt: off
VLLM_EDGES = {
    "vllm:e2e_request_latency_seconds": (
        0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680,
    ),
    "vllm:time_to_first_token_seconds": (
        0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160,
        640, 2560,
    ),
    "vllm:inter_token_latency_seconds": (
        0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80,
    ),
}
# fmt: on


@pytest.fixture
def fresh(tiny_pair: tuple[Path, Path]) -> Iterator[Live]:
    """A server whose counters only the test moves."""
    from specops.engine import load_engine

    target, _ = tiny_pair
    live = Live(load_engine(target, target, tree="chain:2", max_batch=2, max_length=128, threads=1))
    yield live
    live.close()


def types_of(live: Live) -> dict[str, str]:
    lines = live.ask("/metrics").text.splitlines()
    return dict(line.split()[2:4] for line in lines if line.startswith("# TYPE "))


def test_names_and_types_are_vllms(fresh: Live) -> None:
    fresh.complete("a", max_tokens=4, ignore_eos=True)
    assert types_of(fresh) == {
        **dict.fromkeys(HISTOGRAMS, "histogram"),
        **dict.fromkeys(GAUGES, "gauge"),
        **dict.fromkeys(COUNTERS | SPECULATIVE, "counter"),
    }


def test_it_has_every_series_that_its_pool_is_said_to_have(fresh: Live) -> None:
    """A name that only vLLM has makes rules and alerts that never fire."""
    series = OWN.namings[OWN.name]
    named = {*series.draft_names, *astuple(replace(series, path="", aborted_reasons=None))}
    names = {name for name in named if isinstance(name, str) and ":" in name}
    assert len(names) == 13
    assert names - types_of(fresh).keys() == set()


def test_labels_are_vllms_and_nothing_is_created(fresh: Live) -> None:
    fresh.complete("the server measures", max_tokens=20, ignore_eos=True)
    reply = fresh.ask("/metrics")
    assert reply.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert "_created" not in reply.text
    extra = {
        "vllm:request_success": {"finished_reason"},
        "vllm:spec_decode_num_accepted_tokens_per_pos": {"position"},
    }
    for family in text_string_to_metric_families(reply.text):
        for sample in family.samples:
            buckets = {"le"} if sample.name.endswith("_bucket") else set()
            assert set(sample.labels) == {"model_name", "engine"} | extra.get(family.name, set()) | buckets
            assert (sample.labels["model_name"], sample.labels["engine"]) == ("tiny", "0")


@pytest.mark.parametrize("name", VLLM_EDGES)
def test_buckets_are_a_superset_of_vllms_and_finer_below(fresh: Live, name: str) -> None:
    edges = {
        float(series.split('le="')[1].split('"')[0])
        for series in fresh.metrics()
        if series.startswith(f"{name}_bucket")
    }
    assert edges >= set(VLLM_EDGES[name]) | {float("inf")}
    assert min(edges) <= 0.0005


def test_counters_agree_with_what_clients_were_told(fresh: Live) -> None:
    fresh.complete(["the server", "the draft"], max_tokens=30, ignore_eos=True)
    answer = fresh.complete("measures", max_tokens=1, ignore_eos=True)
    series = fresh.metrics()
    assert series[f"vllm:generation_tokens_total{{{LABELS}}}"] == 61
    prompts = sum(len(fresh.engine.tokenizer.encode(p)) for p in ("the server", "the draft", "measures"))
    assert series[f"vllm:prompt_tokens_total{{{LABELS}}}"] == prompts
    assert answer["usage"]["completion_tokens"] == 1
    finished = 'vllm:request_success_total{engine="0",finished_reason="length",model_name="tiny"}'
    assert series[finished] == 3
    for name in ("e2e_request_latency", "time_to_first_token", "request_queue_time", "request_prefill_time"):
        assert series[f"vllm:{name}_seconds_count{{{LABELS}}}"] == 3
    # the request of one token has no time between tokens
    assert series[f"vllm:request_time_per_output_token_seconds_count{{{LABELS}}}"] == 2
    steps = series[f"vllm:iteration_tokens_total_sum{{{LABELS}}}"]
    assert steps == 61 + prompts


def test_acceptance_by_position_adds_up(fresh: Live) -> None:
    fresh.complete("the server measures what it serves", max_tokens=60, ignore_eos=True, temperature=0)
    series = fresh.metrics()
    drafts, proposed, accepted = (
        series[f"vllm:spec_decode_num_{what}_total{{{LABELS}}}"]
        for what in ("drafts", "draft_tokens", "accepted_tokens")
    )
    positions = [
        value
        for name, value in series.items()
        if name.startswith("vllm:spec_decode_num_accepted_tokens_per_pos")
    ]
    assert sum(positions) == accepted
    assert 0 < accepted <= proposed <= 2 * drafts
    # each verification yields what it accepted and one token more; the first token needs none
    assert accepted + drafts <= 60


def test_without_speculation_its_series_do_not_exist(serve_scripted: Callable[..., Live]) -> None:
    live = serve_scripted(speculative=False)
    live.complete("a", max_tokens=4)
    assert set(types_of(live)) == HISTOGRAMS | GAUGES | COUNTERS


def test_inter_token_latency_has_a_sample_for_each_chunk_after_the_first(fresh: Live) -> None:
    chunks = fresh.stream("/v1/completions", {"prompt": "a", "max_tokens": 30, "ignore_eos": True})
    series = fresh.metrics()
    assert series[f"vllm:inter_token_latency_seconds_count{{{LABELS}}}"] == len(chunks) - 1
    gaps = series[f"vllm:inter_token_latency_seconds_sum{{{LABELS}}}"]
    assert gaps == pytest.approx(series[f"vllm:request_decode_time_seconds_sum{{{LABELS}}}"])
    e2e = series[f"vllm:e2e_request_latency_seconds_sum{{{LABELS}}}"]
    assert e2e == pytest.approx(gaps + series[f"vllm:time_to_first_token_seconds_sum{{{LABELS}}}"])


def test_gauges_tell_running_from_waiting(serve_scripted: Callable[..., Live]) -> None:
    live = serve_scripted(max_batch=2)
    endless = {"prompt": ["a"] * 3, "max_tokens": 900_000, "stream": True}
    with live.open("/v1/completions", endless) as response:
        next(events_of(response))
        series = live.metrics()
        assert series[f"vllm:num_requests_running{{{LABELS}}}"] == 2
        assert series[f"vllm:num_requests_waiting{{{LABELS}}}"] == 1
        assert series[f"vllm:kv_cache_usage_perc{{{LABELS}}}"] == 1
    until(lambda: live.metrics()[f"vllm:num_requests_running{{{LABELS}}}"] == 0, "the batch emptied")
