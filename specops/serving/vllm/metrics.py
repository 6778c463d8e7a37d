"""vLLM's metric names. Read in the sources of 0.8 to 0.33 (vllm/v1/metrics/loggers.py)."""

from __future__ import annotations

from dataclasses import replace

from specops.serving.metrics import Drafts, Responses, Series

CURRENT = Series(
    ttft="vllm:time_to_first_token_seconds",
    tpot="vllm:request_time_per_output_token_seconds",
    e2e="vllm:e2e_request_latency_seconds",
    running="vllm:num_requests_running",
    waiting="vllm:num_requests_waiting",
    kv_usage="vllm:kv_cache_usage_perc",
    generated="vllm:generation_tokens_total",
    finished="vllm:request_success_total",
    preemptions="vllm:num_preemptions_total",
    acceptance=Drafts(
        drafts="vllm:spec_decode_num_drafts_total",
        draft_tokens="vllm:spec_decode_num_draft_tokens_total",
        accepted_tokens="vllm:spec_decode_num_accepted_tokens_total",
        per_position="vllm:spec_decode_num_accepted_tokens_per_pos_total",
    ),
    aborted="vllm:request_success_total",
    aborted_reasons="abort|error",
    http=Responses("http_requests_total", path="handler", status="status"),
    cache_config="vllm:cache_config_info",
    drafts_come_late=True,
)

BEFORE_0_11 = replace(
    CURRENT,
    tpot="vllm:time_per_output_token_seconds",
    tpot_of_events=True,
    kv_usage="vllm:gpu_cache_usage_perc",
)
