"""SGLang's metric names. Read in the source of 0.5.23 (srt/observability/metrics_collector.py)."""

from __future__ import annotations

from specops.serving.metrics import Gauges, Responses, Series

CURRENT = Series(
    ttft="sglang:time_to_first_token_seconds",
    tpot="sglang:request_time_per_output_token_seconds",
    e2e="sglang:e2e_request_latency_seconds",
    running="sglang:num_running_reqs",
    waiting="sglang:num_queue_reqs",
    kv_usage="sglang:token_usage",
    generated="sglang:generation_tokens_total",
    finished="sglang:num_requests_total",
    preemptions="sglang:num_retracted_requests_total",
    acceptance=Gauges(rate="sglang:spec_accept_rate", verifications="sglang:spec_verify_calls_total"),
    aborted="sglang:num_aborted_requests_total",
    http=Responses("sglang:http_responses_total", path="endpoint", status="status_code"),
    counts_at_end=True,
)
