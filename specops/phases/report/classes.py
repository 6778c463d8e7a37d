"""Requests by class, as the routers counted them. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from specops.phases.report import buckets
from specops.phases.report.grown import Grown
from specops.phases.report.ratios import ratio
from specops.phases.report.report import LatencyOf, OfClass
from specops.prometheus.series import ROUTE_DURATION, ROUTE_FIRST_BYTE, ROUTE_REQUESTS


def classes(router: Mapping[str, Grown]) -> list[OfClass]:
    """Latencies are of what the pool answered, requests and failures of what was sent to it."""
    found = []
    for name, of_class in router[ROUTE_REQUESTS].by("class").items():
        for pool, sent in of_class.by("pool").items():
            total = sent.total
            if not total or pool == "none":
                continue
            duration, first = (
                _latency(router, histogram, name, pool) for histogram in (ROUTE_DURATION, ROUTE_FIRST_BYTE)
            )
            failed = sent.only(status="5xx").total or 0.0
            found.append(
                OfClass(
                    name=name, pool=pool, requests=total, failed=failed, duration=duration, first_byte=first
                )
            )
    return found


def _latency(router: Mapping[str, Grown], histogram: str, name: str, pool: str) -> LatencyOf:
    seconds, n, counted = (
        router[f"{histogram}_{part}"].only(**{"class": name, "pool": pool})
        for part in ("sum", "count", "bucket")
    )
    mean = ratio(seconds.hourly, n.hourly)
    by_bound = buckets.counts(counted)
    return LatencyOf(
        n=n.total or 0.0,
        mean=mean.value if mean else None,
        p50=buckets.quantile(by_bound, 0.5),
        p95=buckets.quantile(by_bound, 0.95),
    )
