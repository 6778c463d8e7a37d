"""What a Prometheus would have shown of a rollout, hour for hour, without one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
from made_monitoring import rollout

from specops.phases.report.prometheus_data import (
    Floats,
    Gauge,
    Increases,
    PoolData,
    PrometheusData,
    counters_of,
)
from specops.phases.report.report import HOUR_S, ReportWindow
from specops.prometheus.promql import LATENCIES
from specops.prometheus.series import ROUTE_DURATION, ROUTE_FAILOVERS, ROUTE_FIRST_BYTE, ROUTE_REQUESTS
from specops.serving.vllm.pool import SERIES as VLLM

HOURS = 24
WINDOW = ReportWindow(1795273200 - HOURS * HOUR_S, 1795273200, ZoneInfo("Asia/Seoul"))
FILE = Path("rollout.yaml")
DRAFTED, TOKENS, REQUESTS = 6000.0, 5000.0, 50.0
"""An hour."""


def every(value: float, hours: int = 2 * HOURS) -> Floats:
    return np.full(hours, value)


def grown(values: Floats, **labels: str) -> Increases:
    return Increases((labels,), values[np.newaxis, :])


def gauge(value: float, name: str = "", **labels: str) -> Gauge:
    """Every five minutes of both windows."""
    at = np.arange(WINDOW.previous.start + 300, WINDOW.end + 1, 300).astype(float)
    return Gauge({"__name__": name, "instance": "a:8000"} | labels, at, np.full(at.size, value))


def pool(
    acceptance: float = 0.7,
    tpot_s: float = 0.01,
    running: float = 2.0,
    preempted: float = 0.0,
    kv: float = 0.4,
) -> PoolData:
    """One that does the same in every hour."""
    counted = VLLM.acceptance[0]
    ttft, e2e = 0.06, 0.06 + tpot_s * (TOKENS / REQUESTS - 1)
    values = {
        VLLM.generated: TOKENS,
        VLLM.finished: REQUESTS,
        VLLM.preemptions: preempted,
    }
    amounts = (DRAFTED / 3, DRAFTED, DRAFTED * acceptance)
    values |= dict(zip(counted.counters, amounts, strict=False))
    for latency, seconds in (("ttft", ttft), ("tpot", tpot_s), ("e2e", e2e)):
        name = getattr(VLLM, latency)
        values |= {f"{name}_sum": REQUESTS * seconds, f"{name}_count": REQUESTS}
    counters: dict[str, Increases] = {name: grown(every(value)) for name, value in values.items()}
    shares = [acceptance**at for at in (1, 2, 3)]
    counters[counted.counters[-1]] = Increases(
        tuple({"position": str(at)} for at in range(3)),
        np.array([every(DRAFTED / 3 * share) for share in shares]),
    )
    assert set(counters) == set(counters_of(VLLM))
    buckets = {
        f"{getattr(VLLM, latency)}_bucket": Increases((), np.empty((0, HOURS))) for latency in LATENCIES
    }
    late = gauge(kv)
    now = late.times > WINDOW.start
    return PoolData(
        VLLM,
        counters,
        buckets,
        running=(gauge(running, VLLM.running),),
        waiting=(),
        kv_usage=(Gauge(late.labels, late.times[now], late.values[now]),),
    )


def router() -> Mapping[str, Increases]:
    nothing = Increases((), np.empty((0, HOURS)))
    names = [ROUTE_REQUESTS, ROUTE_FAILOVERS]
    names += [
        f"{name}_{part}" for name in (ROUTE_DURATION, ROUTE_FIRST_BYTE) for part in ("sum", "count", "bucket")
    ]
    return dict.fromkeys(names, nothing)


def seen(**changes: Any) -> PrometheusData:
    made = PrometheusData(
        "http://prometheus:9090",
        WINDOW,
        {"standard": pool(tpot_s=0.012), "speculative": pool()},
        router(),
        up=(gauge(1.0, "up"),),
        firing=(),
        gpu_used=(),
        gpu_free=(),
    )
    return replace(made, **changes)


def without_pool(of: PoolData) -> PoolData:
    """A pool of which Prometheus has nothing."""
    none = {name: Increases((), np.empty((0, 2 * HOURS))) for name in of.counters}
    return replace(of, counters=none, running=(), waiting=(), kv_usage=())


__all__ = ["DRAFTED", "FILE", "HOURS", "WINDOW", "gauge", "grown", "pool", "rollout", "seen", "without_pool"]
