"""GuideLLM's benchmarks.json, report version 1 and 2: a list of benchmarks, one a strategy.

Its `inter_token_latency_ms` is the usual TPOT; its `time_per_output_token_ms` includes the first token, and
is not read. Figures are of successful requests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from specops.foreign_json import object_at
from specops.phases.tool_results.figures import Latency, ToolResult, ToolRun, count, number


def read(bodies: Sequence[Mapping[str, Any]]) -> ToolResult | None:
    if len(bodies) != 1 or not isinstance(bodies[0].get("benchmarks"), list):
        return None
    benchmarks = bodies[0]["benchmarks"]
    if not benchmarks or not all(
        object_at(benchmark, "metrics", "request_totals") for benchmark in benchmarks
    ):
        return None
    return ToolResult(tool="GuideLLM", runs=[*map(_run, benchmarks)])


def _run(benchmark: Mapping[str, Any]) -> ToolRun:
    metrics = object_at(benchmark, "metrics")
    totals = object_at(metrics, "request_totals")
    strategy = object_at(benchmark, "config", "strategy") or object_at(benchmark, "args", "strategy")
    size = next((f" {strategy[key]:g}" for key in ("streams", "rate") if number(strategy.get(key))), "")
    return ToolRun(
        load=f"{strategy.get('type_', 'not named')}{size}",
        requests=count(totals.get("successful")),
        failed=count(totals.get("errored")),
        ttft_ms=_latency(metrics, "time_to_first_token_ms"),
        tpot_ms=_latency(metrics, "inter_token_latency_ms"),
        e2e_ms=_latency(metrics, "request_latency", 1000.0),
        tokens_per_sec=number(object_at(metrics, "output_tokens_per_second", "successful").get("mean")),
        requests_per_sec=number(object_at(metrics, "requests_per_second", "successful").get("mean")),
    )


def _latency(metrics: Mapping[str, Any], name: str, scale: float = 1.0) -> Latency:
    """`scale`: milliseconds of its unit."""
    spread = object_at(metrics, name, "successful")
    values = {"mean": spread.get("mean"), "p50": spread.get("median")}
    values |= {key: object_at(spread, "percentiles").get(key) for key in ("p95", "p99")}
    return Latency(
        **{key: value * scale for key, raw in values.items() if (value := number(raw)) is not None}
    )
