"""`vllm bench serve --save-result`, and its predecessor benchmark_serving.py: one JSON object a run.

TPOT is (E2E − TTFT) / (tokens − 1) of a request. Acceptance is of the server's counters during the run, its
rate in percent (vllm/benchmarks/serve.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from specops.phases.tool_results.figures import (
    ToolResult,
    ToolRun,
    count,
    flat_latency,
    load_of,
    number,
    text,
)

KEYS = {"backend", "model_id", "tokenizer_id", "completed", "output_throughput"}


def read(bodies: Sequence[Mapping[str, Any]]) -> ToolResult | None:
    if not all(body.keys() >= KEYS for body in bodies):
        return None
    return ToolResult(tool="vllm bench serve", model=text(bodies[0]["model_id"]), runs=[*map(_run, bodies)])


def _run(body: Mapping[str, Any]) -> ToolRun:
    rate = number(body.get("spec_decode_acceptance_rate"))
    return ToolRun(
        load=load_of(body.get("max_concurrency"), body.get("request_rate")),
        requests=count(body["completed"]),
        failed=count(body.get("failed")),
        ttft_ms=flat_latency(body, "ttft"),
        tpot_ms=flat_latency(body, "tpot"),
        e2e_ms=flat_latency(body, "e2el"),
        tokens_per_sec=number(body["output_throughput"]),
        requests_per_sec=number(body.get("request_throughput")),
        acceptance_rate=None if rate is None else rate / 100,
        acceptance_length=number(body.get("spec_decode_acceptance_length")),
    )
