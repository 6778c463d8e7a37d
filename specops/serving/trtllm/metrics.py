"""TensorRT-LLM's metric names. Read in the main branch between 1.3.0rc27 and 1.4.0rc1
(tensorrt_llm/metrics/collector.py). It writes trtllm_ where this table has trtllm:.

They are at /prometheus/metrics: /metrics answers with JSON, and removes what it has answered. Counters of
requests need `return_perf_metrics: true` in the YAML file, gauges need `enable_iter_perf_stats: true`.
1.1.0rc5 had five of these series and no counters of drafts. Which release added the others is not known.
"""

from __future__ import annotations

from specops.serving.metrics import Drafts, Series

CURRENT = Series(
    path="/prometheus/metrics",
    ttft="trtllm:time_to_first_token_seconds",
    tpot="trtllm:time_per_output_token_seconds",
    e2e="trtllm:e2e_request_latency_seconds",
    running="trtllm:num_requests_running",
    waiting="trtllm:num_requests_waiting",
    kv_usage="trtllm:kv_cache_utilization",
    generated="trtllm:generation_tokens_total",
    finished="trtllm:request_success_total",
    preemptions=None,
    acceptance=Drafts(
        drafts="trtllm:spec_decode_drafted_tokens_total",
        draft_tokens="trtllm:spec_decode_drafted_tokens_total",
        accepted_tokens="trtllm:spec_decode_accepted_tokens_total",
        per_position="trtllm:spec_decode_accepted_tokens_total",
        position="token_position",
        of_first=True,
    ),
    aborted="trtllm:request_error_total",
    counts_at_end=True,
)
