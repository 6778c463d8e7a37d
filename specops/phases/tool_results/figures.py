"""The figures of one run of another tool, in one set of names and units."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from specops.section import Frozen


class Latency(Frozen):
    """Milliseconds. None is not reported."""

    mean: float | None = None
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None


class ToolRun(Frozen):
    """One load that a tool measured."""

    load: str
    """As the tool calls it, such as "8 streams"."""

    requests: int | None = None
    """Requests that succeeded."""

    failed: int | None = None
    ttft_ms: Latency = Latency()
    tpot_ms: Latency = Latency()
    """Time per output token after the first; each tool's definition: docs/measure.md."""

    e2e_ms: Latency = Latency()
    tokens_per_sec: float | None = None
    """Output tokens."""

    requests_per_sec: float | None = None
    acceptance_rate: float | None = None
    """Share of drafted tokens, 0 to 1."""

    acceptance_length: float | None = None
    """Tokens a step, the target's own included."""


class ToolResult(Frozen):
    """A result file of another tool. It has figures and no verdict."""

    tool: str
    model: str | None = None
    runs: Sequence[ToolRun]


def number(value: Any) -> float | None:
    """Return a finite number; None for anything else."""
    usable = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if usable else None


def count(value: Any) -> int | None:
    parsed = number(value)
    return None if parsed is None or parsed < 0 else int(parsed)


def text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def flat_latency(body: Mapping[str, Any], name: str) -> Latency:
    """Latencies under keys such as median_ttft_ms and p99_ttft_ms, as vLLM's and SGLang's benchmarks have
    them."""
    return Latency(
        mean=number(body.get(f"mean_{name}_ms")),
        p50=number(body.get(f"median_{name}_ms", body.get(f"p50_{name}_ms"))),
        p95=number(body.get(f"p95_{name}_ms")),
        p99=number(body.get(f"p99_{name}_ms")),
    )


def load_of(concurrency: Any, rate: Any) -> str:
    streams, per_second = count(concurrency), number(rate)
    if streams is not None:
        return f"{streams} stream{'s' * (streams != 1)}"
    return "no limit" if per_second is None else f"{per_second:g} requests/s"
