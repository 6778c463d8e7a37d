"""Reading /metrics: what vLLM exposes, what was renamed, and when there is no data."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from specops.net import is_loopback
from specops.prometheus import exposition
from specops.prometheus.exposition import DraftCounts, NoData
from specops.serving import USUAL

VLLM = USUAL.acceptance[0]

TEXT = """\
# HELP vllm:spec_decode_num_drafts_total Number of spec decoding drafts.
# TYPE vllm:spec_decode_num_drafts_total counter
vllm:spec_decode_num_drafts_total{{engine="0",model_name="m"}} {drafts}
vllm:spec_decode_num_drafts_total{{engine="1",model_name="m"}} {drafts}
# TYPE vllm:spec_decode_num_drafts_created gauge
vllm:spec_decode_num_drafts_created{{engine="0",model_name="m"}} 1.7e+09
# TYPE vllm:spec_decode_num_draft_tokens_total counter
vllm:spec_decode_num_draft_tokens_total{{engine="0",model_name="m"}} {draft_tokens}
# TYPE vllm:spec_decode_num_accepted_tokens_total counter
vllm:spec_decode_num_accepted_tokens_total{{engine="0",model_name="m"}} {accepted}
# TYPE vllm:spec_decode_num_accepted_tokens_per_pos_total counter
vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="0",model_name="m",position="0"}} {pos0}
vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="0",model_name="m",position="1"}} {pos1}
vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="0",model_name="m",position="10"}} {pos10}
# TYPE vllm:request_time_per_output_token_seconds histogram
vllm:request_time_per_output_token_seconds_bucket{{le="+Inf",model_name="m"}} {count}
vllm:request_time_per_output_token_seconds_sum{{model_name="m"}} {total}
vllm:request_time_per_output_token_seconds_count{{model_name="m"}} {count}
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{{model_name="m"}} NaN
"""
COLUMNS = ("drafts", "draft_tokens", "accepted", "pos0", "pos1", "pos10", "total", "count")
START = dict(zip(COLUMNS, (10, 60, 30, 15, 10, 5, 1.0, 10), strict=True))
END = dict(zip(COLUMNS, (60, 360, 180, 90, 60, 30, 2.0, 30), strict=True))
TPOT = "vllm:request_time_per_output_token_seconds"


def scrape(**values: float) -> exposition.Scrape:
    return exposition.parse(TEXT.format(**values))


def test_acceptance_from_counter_increments() -> None:
    counts = exposition.draft_counts(scrape(**START), scrape(**END), "m")
    assert counts == DraftCounts(100, 300, 150, (75, 50, 25))  # drafts are summed over the engines
    assert counts.length == 2.5
    assert counts.rate == 0.5
    assert counts.per_position == [0.75, 0.5, 0.25]
    assert counts.conditional == [0.75, pytest.approx(2 / 3), 0.5]


def test_a_histograms_mean_is_its_sums_over_its_counts_increment() -> None:
    assert exposition.mean(scrape(**START), scrape(**END), TPOT, "m") == pytest.approx(0.05)


def test_a_histogram_without_a_new_observation_has_no_mean() -> None:
    found = exposition.mean(scrape(**START), scrape(**START), TPOT, "m")
    assert isinstance(found, NoData)
    assert "no observation" in found.reason


def test_renamed_series_are_read_as_vllms_own() -> None:
    renamed = TEXT.replace("vllm:", "vllm_")
    before, after = (exposition.parse(renamed.format(**values)) for values in (START, END))
    assert exposition.draft_counts(before, after, "m") == DraftCounts(100, 300, 150, (75, 50, 25))


def test_created_twins_and_nan_are_no_samples() -> None:
    names = {name for name, _ in scrape(**START)}
    assert not any(name.endswith("_created") for name in names)
    assert "vllm:kv_cache_usage_perc" not in names


def test_a_restarted_server_gives_no_data() -> None:
    found = exposition.draft_counts(scrape(**END), scrape(**START), "m")
    assert isinstance(found, NoData)
    assert "reset" in found.reason


def test_a_vanished_series_gives_no_data() -> None:
    assert isinstance(exposition.increase(scrape(**START), {}, VLLM.drafts), NoData)


def test_a_series_that_is_new_began_at_zero() -> None:
    assert exposition.increase({}, scrape(**START), VLLM.accepted_tokens, "m") == 30


def test_no_draft_in_the_window_is_no_data_not_zero() -> None:
    found = exposition.draft_counts(scrape(**START), scrape(**START), "m")
    assert isinstance(found, NoData)
    assert "no draft" in found.reason


def test_a_server_without_speculation_gives_no_data() -> None:
    found = exposition.draft_counts({}, {}, "m")
    assert isinstance(found, NoData)
    assert found.drafts is None, "no names at all: unknown, not none"


def test_another_models_series_do_not_count() -> None:
    found = exposition.draft_counts(scrape(**START), scrape(**END), "other")
    assert isinstance(found, NoData)
    assert "only of m" in found.reason


def test_windows_add_up() -> None:
    total = DraftCounts(10, 30, 15, (9, 6)) + DraftCounts(10, 20, 5, (5,))
    assert total == DraftCounts(20, 50, 20, (14, 6))
    assert total.rate == 0.4


def test_zero_over_zero_is_unknown() -> None:
    nothing = DraftCounts(0, 0, 0, (0, 0))
    assert (nothing.length, nothing.rate) == (None, None)
    assert nothing.per_position == nothing.conditional == [None, None]


@pytest.mark.parametrize("base", ["http://h:1/v1", "http://h:1/v1/", "http://h:1"])
def test_metrics_lie_beside_v1(base: str) -> None:
    assert exposition.metrics_url(base) == "http://h:1/metrics"


@pytest.mark.parametrize(
    ("url", "own"),
    [
        ("http://127.0.0.1:8000/v1", True),
        ("http://localhost/v1", True),
        ("http://[::1]:80/v1", True),
        ("http://10.0.0.1/v1", False),
        ("http://localhost.example.org/v1", False),
    ],
)
def test_which_addresses_are_loopback(url: str, own: bool) -> None:
    assert is_loopback(url) is own


def test_no_proxy_stands_between_us_and_a_loopback_exposition(monkeypatch: pytest.MonkeyPatch) -> None:
    class Exposition(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"up 1\n")

        def log_message(self, *_: object) -> None:
            pass

    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with HTTPServer(("127.0.0.1", 0), Exposition) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        assert exposition.scrape(f"http://127.0.0.1:{server.server_port}/v1") == {("up", frozenset()): 1.0}
