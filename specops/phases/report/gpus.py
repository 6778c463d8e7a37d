"""Memory of the GPUs that DCGM's exporters tell of. Pure."""

from __future__ import annotations

from specops.phases.report.report import Gpu
from specops.phases.report.seen import Gauge, Seen


def gpus(seen: Seen) -> list[Gpu]:
    """By name; only of those of which both what is used and what is free is known."""
    free = {_gpu(gauge): gauge for gauge in seen.gpu_free}
    found = []
    for used in seen.gpu_used:
        left = free.get(_gpu(used))
        if left is None or not used.at.size or not left.at.size:
            continue
        whole = float(used.values.mean() + left.values.mean())
        found.append(
            Gpu(
                name=_gpu(used),
                mean_used_gib=float(used.values.mean()) / 1024,
                most_used_gib=float(used.values.max()) / 1024,
                most_share=float(used.values.max()) / whole if whole else 0.0,
            )
        )
    return sorted(found, key=lambda gpu: gpu.name)


def _gpu(gauge: Gauge) -> str:
    where = gauge.labels.get("Hostname") or gauge.labels.get("instance", "")
    return f"{where} GPU {gauge.labels.get('gpu', '?')}"
