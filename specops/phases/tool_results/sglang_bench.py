"""`python -m sglang.bench_serving --output-file`: a JSON object a line, one for each run.

`accept_length` is the server's own average at the end of the run, null without speculation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from specops.phases.tool_results.figures import ToolResult, ToolRun, count, flat_latency, load_of, number

KEYS = {"backend", "dataset_name", "completed", "output_throughput", "total_output_tokens_retokenized"}


def read(bodies: Sequence[Mapping[str, Any]]) -> ToolResult | None:
    if not all(body.keys() >= KEYS for body in bodies):
        return None
    return ToolResult(tool="SGLang bench_serving", runs=[*map(_run, bodies)])


def _run(body: Mapping[str, Any]) -> ToolRun:
    return ToolRun(
        load=load_of(body.get("max_concurrency"), body.get("request_rate")),
        requests=count(body["completed"]),
        ttft_ms=flat_latency(body, "ttft"),
        tpot_ms=flat_latency(body, "tpot"),
        e2e_ms=flat_latency(body, "e2e_latency"),
        tokens_per_sec=number(body["output_throughput"]),
        requests_per_sec=number(body.get("request_throughput")),
        acceptance_length=number(body.get("accept_length")),
    )
