"""AIPerf's profile_export_aiperf.json: one JSON object, a block of statistics for each metric.

Units are in the blocks. Its inter-token latency is (E2E − TTFT) / (tokens − 1) of a request. Definitions:
docs.nvidia.com/aiperf/reference/json-export-schema.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from specops.foreign_json import object_at
from specops.phases.tool_results.figures import Latency, ToolResult, ToolRun, count, load_of, number, text

MS = {"ms": 1.0, "s": 1000.0, "sec": 1000.0, "us": 0.001, "ns": 1e-6}
"""Milliseconds of the units of time."""


def read(bodies: Sequence[Mapping[str, Any]]) -> ToolResult | None:
    if len(bodies) != 1 or "aiperf_version" not in bodies[0]:
        return None
    body = bodies[0]
    names = object_at(body, "input_config", "endpoint").get("model_names")
    loadgen = object_at(body, "input_config", "loadgen")
    rate = number(object_at(body, "draft_acceptance_rate").get("avg"))
    percent = object_at(body, "draft_acceptance_rate").get("unit") in ("%", "percent")
    return ToolResult(
        tool="AIPerf",
        model=text(names[0]) if isinstance(names, list) and names else None,
        runs=[
            ToolRun(
                load=load_of(loadgen.get("concurrency"), loadgen.get("request_rate")),
                requests=count(object_at(body, "request_count").get("avg")),
                failed=count(object_at(body, "error_request_count").get("avg")),
                ttft_ms=_latency(body, "time_to_first_token"),
                tpot_ms=_latency(body, "inter_token_latency"),
                e2e_ms=_latency(body, "request_latency"),
                tokens_per_sec=number(object_at(body, "output_token_throughput").get("avg")),
                requests_per_sec=number(object_at(body, "request_throughput").get("avg")),
                acceptance_rate=rate / 100 if rate is not None and percent else rate,
                acceptance_length=number(object_at(body, "acceptance_length").get("avg")),
            )
        ],
    )


def _latency(body: Mapping[str, Any], name: str) -> Latency:
    """Empty where its unit is not one of time."""
    block = object_at(body, name)
    scale = MS.get(str(block.get("unit")))
    if scale is None:
        return Latency()
    values = {"mean": block.get("avg")} | {key: block.get(key) for key in ("p50", "p95", "p99")}
    return Latency(
        **{key: value * scale for key, raw in values.items() if (value := number(raw)) is not None}
    )
