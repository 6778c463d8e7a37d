"""llama.cpp's metric names, which `--metrics` turns on. Read in b11549 (tools/server/server-task.cpp).

Its server counts tokens and no requests: how many there were and how long they took, the router's own series
say. It has nothing on the time to the first token, the KV cache, or preemptions, which it does not do.
"""

from __future__ import annotations

from specops.serving.metrics import Drafts, Series

CURRENT = Series(
    ttft="specops_route_first_byte_seconds",
    tpot="llamacpp:tokens_predicted_seconds_total",
    tpot_of_events=True,
    tpot_counts_seconds=True,
    e2e="specops_route_request_duration_seconds",
    running="llamacpp:requests_processing",
    waiting="llamacpp:requests_deferred",
    kv_usage=None,
    generated="llamacpp:tokens_predicted_total",
    finished="specops_route_requests_total",
    preemptions=None,
    acceptance=Drafts(
        drafts="llamacpp:spec_decode_num_drafts_total",
        draft_tokens="llamacpp:spec_decode_num_draft_tokens_total",
        accepted_tokens="llamacpp:spec_decode_num_accepted_tokens_total",
        per_position="llamacpp:spec_decode_num_accepted_tokens_per_pos_total",
    ),
    aborted="specops_route_requests_total",
    counts_at_end=True,
    requests_by_router=True,
)
