"""Live faults on a real Prometheus: `diagnose` names the right cause first, and none of a healthy rollout.

Each fault is a rollout that Prometheus has scraped for half an hour. It began a quarter of an hour ago,
unless its row says otherwise. Measurements before it are the same for all: it pays up to 8 streams.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from backfilled import AHEAD_S, PAST_S, SCRAPE_S, Pool, remembering

from specops.config import Rollout
from specops.phases.diagnose import diagnose
from specops.phases.diagnose.collectors import gather, live
from specops.phases.diagnose.finding import DiagnosisFinding
from specops.phases.diagnose.observations import (
    AbFigures,
    BaselineFigures,
    BaselineLoad,
    Observations,
    SpeedupInterval,
    SweepFigures,
)
from specops.progress import SilentProgress

pytestmark = pytest.mark.slow

LOADS = (1, 4, 8, 32)
BASELINE = BaselineFigures(
    source="baseline.json",
    loads=tuple(BaselineLoad(concurrency=at, ttft_ms=100, tpot_ms=30, token_ms=30) for at in LOADS),
)
ALONE = BASELINE.model_copy(update={"loads": BASELINE.loads[:1]})
SWEPT = SweepFigures(
    source="sweep.json", setting="k=3", k=3, break_even=0.4, draft_ms=1.0, target_ms=10.0, per_position=(),
    on_max=8, off_min=16, by_length={}, by_temperature={}, classes_off={},
)  # fmt: skip
COMPARED = AbFigures(
    source="ab.json", e2e=SpeedupInterval(estimate=1.4, low=1.3, high=1.5), streams=1, up_to=1, ttft=None,
    ttft_change_ms=None, acceptance=0.7, drafts=1e5, classes={}, equal=None, compared=None, control=None,
)  # fmt: skip
MEASURED: Mapping[str, Any] = {"baseline": BASELINE, "sweep": SWEPT, "compared": COMPARED}


@dataclass(frozen=True)
class Fault:
    cause: str | None
    """The id of the first; None: there is none."""

    told: str = ""
    """Part of what is said of it."""

    spec: Mapping[str, Any] = field(default_factory=dict)
    """Of the speculative pool's servers all the time, beside what a healthy one does."""

    then: Mapping[str, Any] | None = None
    """Of the last quarter of an hour."""

    standard: Mapping[str, Any] = field(default_factory=dict)
    second: Mapping[str, Any] | None = None
    """Another server of the speculative pool."""

    percent: int = 100
    """Of the first router's switch. The second's is at 100, or at `second_percent`."""

    second_percent: int = 100

    gpu_gib: float | None = None
    """In use of 80, by DCGM."""

    measured: Mapping[str, Any] = field(default_factory=dict)


FAULTS: Mapping[str, Fault] = {
    "healthy": Fault(None),
    "healthy-at-night": Fault(None, spec={"requests_per_s": 0.02}, standard={"requests_per_s": 0.02}),
    "heavy-load": Fault(
        "load-beyond-crossover",
        "22 streams; it stopped paying above 8 (sweep.json)",
        then={"requests_per_s": 5.0, "tpot": 0.042, "acceptance": 0.35},
    ),
    "heavy-load-by-the-comparison": Fault(
        "load-beyond-crossover",
        "20 streams; it stopped paying above 1 (ab.json)",
        spec={"requests_per_s": 9.5},
        measured={"sweep": None, "baseline": ALONE},
    ),
    "both-slow": Fault(
        "both-pools-slow", "speculation is not the cause", then={"tpot": 0.045}, standard={"tpot": 0.062}
    ),
    "switched-off": Fault(
        "speculation-off", "switched off", then={"requests_per_s": 0.0}, percent=0, second_percent=0
    ),
    "one-router-of-two-switched-off": Fault(None, percent=0),
    "slow-and-the-other-is-not": Fault(None, then={"tpot": 0.045}),
    "restarted-without-a-draft": Fault(
        "speculation-off", "127.0.0.1:8000", then={"drafted": 0.0, "tpot": 0.035}
    ),
    "never-had-a-draft": Fault("speculation-off", "127.0.0.1:8000", spec={"speculates": False}),
    "one-server-without-a-draft": Fault("speculation-off", "127.0.0.1:9000", second={"speculates": False}),
    "a-stuck-server": Fault(
        "server-stuck",
        "127.0.0.1:9000",
        second={"then": {"requests_per_s": 0.0, "gauges": {"num_requests_running": 7}}},
    ),
    "bad-draft": Fault("draft-quality", "below 0.40 (break-even", then={"acceptance": 0.2, "tpot": 0.04}),
    "bad-draft-by-the-playbook": Fault(
        "draft-quality", "below 0.30 (default)", then={"acceptance": 0.2, "tpot": 0.04},
        measured={"sweep": None, "compared": COMPARED.model_copy(update={"up_to": 8})},
    ),
    "dear-draft": Fault(
        "draft-cost", "60% of a target step", then={"tpot": 0.04},
        measured={"sweep": SWEPT.model_copy(update={"draft_ms": 6.0})},
    ),
    "full-kv-cache": Fault(
        "kv-cache-full", "98% full", then={
            "tpot": 0.04, "gauges": {"kv_cache_usage_perc": 0.98}, "counters": {"num_preemptions_total": 0.5},
        },
    ),
    "full-gpu": Fault(
        "gpu-memory-full", "GPU memory 78.0 of 80.0 GiB", gpu_gib=78.0,
        then={"tpot": 0.04, "gauges": {"kv_cache_usage_perc": 0.98}},
    ),
    "full-gpu-with-an-empty-cache": Fault(
        None, gpu_gib=78.0, spec={"gauges": {"kv_cache_usage_perc": 0.2}}
    ),
    "late-first-token": Fault("first-token-late", "4.00 ×", then={"ttft": 0.4}),
    "other-traffic": Fault("acceptance-drift", "0.55", then={"acceptance": 0.55}),
    "aborted": Fault("requests-aborted", "30.0%", then={"aborted": 0.3}),
    "clients-leave-both": Fault(None, spec={"aborted": 0.1}, standard={"aborted": 0.1}),
    "decays-with-uptime": Fault("decay-with-uptime", "0.50 now", measured={"compared": None}),
    "renamed": Fault("series-missing", spec={"prefix": "vllm_"}),
}  # fmt: skip


def rollout(name: str, prometheus: str) -> Rollout:
    nobody = {"engine": "endpoint", "base_url": "http://127.0.0.1:9/v1", "model": "m"}
    return Rollout.model_validate(
        {
            "rollout": name,
            "pools": {"standard": nobody, "speculative": nobody},
            "addresses": {"prometheus": prometheus, "gpus": ["127.0.0.1:9400"]},
        }
    )


def pools(name: str, fault: Fault) -> Iterator[Pool]:
    if name == "decays-with-uptime":
        yield from decaying(name)
    else:
        yield Pool(name, **{"then": fault.then} | dict(fault.spec))
    if fault.second is not None:
        yield Pool(name, port=9000, **fault.second)
    yield Pool(name, pool="standard", **{"speculates": False, "tpot": 0.03} | dict(fault.standard))


def decaying(name: str) -> Iterator[Pool]:
    """Half a day up, after two days of another start: acceptance falls within hours each time."""
    day = 86400
    yield Pool(
        name, past_s=3 * day, every_s=60, acceptance=0.5, until_s_ago=day / 2, pool="speculative",
    )  # fmt: skip
    yield Pool(
        name, port=9000, past_s=day // 2, every_s=60, acceptance=0.75, then={"acceptance": 0.5},
        then_s=day / 2 - 5400,
    )  # fmt: skip


def beside(name: str, fault: Fault, now: float) -> Iterator[str]:
    """Lines of what is scraped beside the pools."""
    ours = f'specops_rollout="{name}"'
    for at in range(int(now) - PAST_S, int(now) + AHEAD_S, SCRAPE_S):
        for router, percent in (("r", fault.percent), ("s", fault.second_percent)):
            has = percent if now - at < 900 else 100
            yield f'specops_route_speculative_percent{{{ours},instance="{router}"}} {has} {at}'
        if fault.gpu_gib is not None:
            for gpu, used in (("0", 20.0), ("1", fault.gpu_gib)):
                of = f'{{{ours},instance="g",Hostname="h",gpu="{gpu}"}}'
                yield f"DCGM_FI_DEV_FB_USED{of} {used * 1024:.0f} {at}"
                yield f"DCGM_FI_DEV_FB_FREE{of} {(80 - used) * 1024:.0f} {at}"
    if name == "decays-with-uptime":
        for at in range(int(now) - 43200, int(now) + AHEAD_S, 60):
            of = f'{{{ours},specops_pool="speculative",instance="127.0.0.1:9000"}}'
            yield f"process_start_time_seconds{of} {int(now) - 43200} {at}"


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    made = [pool for name, fault in FAULTS.items() for pool in pools(name, fault)]
    lines = [line for name, fault in FAULTS.items() for line in beside(name, fault, time.time())]
    with remembering(made, tmp_path_factory.mktemp("prometheus"), *lines) as up:
        yield up.url


def causes(seen: Observations, name: str) -> list[DiagnosisFinding]:
    """No rules are loaded into this Prometheus, so that of every one their series are missing."""
    found = [DiagnosisFinding.model_validate(one) for one in diagnose(seen).data["findings"]]
    return [
        one for one in found
        if one.severity == "cause" and (one.id != "series-missing" or name == "renamed")
    ]  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_the_first_cause_is_the_fault(
    name: str, prometheus: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault = FAULTS[name]
    monkeypatch.setattr(live, "gpu", lambda: "no driver answers")
    seen = gather(rollout(name, prometheus), tmp_path, datetime.now(UTC), SilentProgress(), requests=False)
    measured = dict(MEASURED) | dict(fault.measured)
    found = causes(seen.model_copy(update=measured), name)
    if fault.cause is None:
        assert [(one.id, one.message) for one in found] == []
        return
    assert found, "no cause was found"
    first = found[0]
    assert first.id == fault.cause, [(one.id, one.message) for one in found]
    assert fault.told in f"{first.message}; {first.cause}"


def test_where_no_gpu_is_here_prometheus_has_its_memory(
    prometheus: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "gpu", lambda: "no driver answers")

    def gpu(name: str) -> tuple[Any, str | None]:
        seen = gather(
            rollout(name, prometheus), tmp_path, datetime.now(UTC), SilentProgress(), requests=False
        )
        return seen.gpu, seen.missing.get("gpu")

    found, _ = gpu("full-gpu")
    assert (found.used_gib, found.total_gib) == (78.0, 80.0)
    assert found.source.endswith("(DCGM)")
    found, why = gpu("healthy")
    assert found is None
    assert "no driver answers" in str(why)
    assert "addresses.gpus" in str(why)
