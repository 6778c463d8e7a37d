"""A report on two weeks that a real Prometheus remembers: every figure is the one that the samples give."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest
import yaml
from a_week import BEFORE, BOUNDS, END, HOUR, NAME, START, Week, remembered
from adopting import adopted_by
from calling import specops
from daemons import Daemon
from recounted import Recount, line, total

from specops.config import Rollout
from specops.phases.monitor.thresholds import measurements
from specops.phases.report.assembly import report
from specops.phases.report.delivery import read
from specops.phases.report.report import ReportWindow, WeeklyReport, window
from specops.progress import SilentProgress
from specops.prometheus.api import Api
from specops.results import Result, sealed

EXAMPLES = Path(__file__).parents[2] / "alerts" / "examples"
SPEC = {"specops_pool": "speculative"}
E2E = "vllm:e2e_request_latency_seconds"
COSTS = {"standard_per_hour": 4.0, "speculative_per_hour": 5.0}


@pytest.fixture(scope="module")
def week() -> Week:
    return Week()


@pytest.fixture(scope="module")
def prometheus(week: Week, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with remembered(week, tmp_path_factory.mktemp("prometheus")) as up:
        yield up


@pytest.fixture(scope="module")
def folder(rollout: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder with this rollout's comparison and baseline, made as slow as the week's standard pool."""
    found = tmp_path_factory.mktemp("run")
    shutil.copy(EXAMPLES / "ab.json", found)
    baseline = json.loads((EXAMPLES / "baseline.json").read_text())
    for level in baseline["data"]["by_concurrency"]:
        streams = level["concurrency"]
        tokens = level["total_tokens"] / level["requests"]
        ttft, tpot = 110 + 10.0 * streams, 1.7 * (13.5 + streams)
        means = {"ttft_ms": ttft, "tpot_ms": tpot, "e2e_ms": ttft + tpot * (tokens - 1)}
        for name, value in means.items():
            level[name] |= {"mean": value, "p50": value, "p95": value}
    (found / "baseline.json").write_text(sealed(baseline))
    file = found / "rollout.yaml"
    file.write_text(yaml.safe_dump(rollout))
    adopted_by(file)
    return found


@pytest.fixture(scope="module")
def rollout(prometheus: Daemon) -> dict[str, Any]:
    pools = {
        name: {"engine": "endpoint", "base_url": f"http://{name}:8000/v1", "model": "m"}
        for name in ("standard", "speculative")
    }
    where = {"routers": ["10.0.1.5:8081"], "prometheus": prometheus.url}
    return {"rollout": NAME, "pools": pools, "addresses": where, "costs": COSTS}


@pytest.fixture(scope="module")
def span() -> ReportWindow:
    return window("7d", "2026-11-21", ZoneInfo("Asia/Seoul"), datetime(2026, 11, 22, 12, tzinfo=UTC))


@pytest.fixture(scope="module")
def result(rollout: dict[str, Any], prometheus: Daemon, folder: Path, span: ReportWindow) -> Result:
    assert (span.start, span.end) == (START, END)
    api = Api(prometheus.url, timeout_s=60)
    try:
        return report(Rollout.model_validate(rollout), Path("r.yaml"), folder, span, api, SilentProgress())
    finally:
        api.close()


@pytest.fixture(scope="module")
def found(result: Result) -> WeeklyReport:
    return read(result)


@pytest.fixture(scope="module")
def truth(week: Week) -> Recount:
    return Recount(week)


def same(ours: list[float | None], theirs: list[float]) -> None:
    values = [math.nan if value is None else value for value in ours]
    np.testing.assert_allclose(values, theirs, rtol=1e-9, atol=1e-6)


def ratios(parts: list[float], wholes: list[float]) -> list[float]:
    return [a / b if b > 0 else math.nan for a, b in zip(parts, wholes, strict=True)]


def test_acceptance_is_that_of_the_samples(found: WeeklyReport, truth: Recount) -> None:
    ours = found.pools["speculative"].acceptance
    assert ours is not None
    drafted, accepted, drafts = (
        truth.hourly(f"vllm:spec_decode_num_{name}_total", **SPEC)
        for name in ("draft_tokens", "accepted_tokens", "drafts")
    )
    assert ours.drafted_tokens == total(drafted)
    assert ours.accepted_tokens == total(accepted)
    assert ours.rate == pytest.approx(total(accepted) / total(drafted), rel=1e-12)
    assert ours.length == pytest.approx(1 + total(accepted) / total(drafts), rel=1e-12)
    by_hour = ratios(accepted, drafted)
    same(ours.by_hour, by_hour)
    counted = [rate for rate, n in zip(by_hour, drafted, strict=True) if n >= ours.min_drafted]
    assert ours.lowest is not None
    assert ours.highest is not None
    assert (ours.lowest.value, ours.highest.value) == pytest.approx((min(counted), max(counted)))
    assert ours.counted_hours == len(counted) < len(by_hour)
    for position, share in enumerate(ours.per_position):
        name = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
        reached = truth.hourly(name, position=str(position))
        assert share == pytest.approx(total(reached) / total(drafts), rel=1e-12)
        hourly = ratios(reached, drafts)
        busy = [one for one, n in zip(hourly, drafted, strict=True) if n >= ours.min_drafted]
        ends = ours.lowest_per_position[position], ours.highest_per_position[position]
        assert [end.value if end else None for end in ends] == pytest.approx([min(busy), max(busy)])
    assert len(ours.per_position) == 5


def test_a_day_is_its_hours(found: WeeklyReport, truth: Recount) -> None:
    accepted, drafted = (
        truth.hourly(f"vllm:spec_decode_num_{name}_total", **SPEC)
        for name in ("accepted_tokens", "draft_tokens")
    )
    requests = truth.hourly("vllm:request_success_total", **SPEC)
    assert [day.date for day in found.days] == [f"2026-11-{day}" for day in range(15, 22)]
    for number, day in enumerate(found.days):
        hours = slice(24 * number, 24 * number + 24)
        assert day.acceptance == pytest.approx(total(accepted[hours]) / total(drafted[hours]), rel=1e-12)
        assert day.requests == total(requests[hours])


def test_gpu_memory_is_that_of_the_samples(found: WeeklyReport, truth: Recount) -> None:
    assert [gpu.name for gpu in found.gpus] == ["gpu-host GPU 0", "gpu-host GPU 1"]
    for number, gpu in enumerate(found.gpus):
        ((_, samples),) = truth.series("DCGM_FI_DEV_FB_USED", gpu=str(number))
        used = samples.values[(samples.at > START) & (samples.at <= END)]
        assert gpu.mean_used_gib == pytest.approx(used.mean() / 1024)
        assert gpu.most_share == pytest.approx(used.max() / 81000)


@pytest.mark.parametrize("pool", ["standard", "speculative"])
def test_what_a_pool_did_is_that_of_the_samples(pool: str, found: WeeklyReport, truth: Recount) -> None:
    ours = found.pools[pool]  # type: ignore[index]
    of = {"specops_pool": pool}
    assert ours.requests == truth.total("vllm:request_success_total", **of)
    assert ours.generated_tokens == truth.total("vllm:generation_tokens_total", **of)
    assert ours.preemptions == truth.total("vllm:num_preemptions_total", **of)
    same(ours.requests_by_hour, truth.hourly("vllm:request_success_total", **of))
    same(ours.load_by_hour, truth.load(pool))
    for name, latency in (("time_to_first_token", "ttft"), ("request_time_per_output_token", "tpot"),
                          ("e2e_request_latency", "e2e")):  # fmt: skip
        seconds, n = (truth.hourly(f"vllm:{name}_seconds_{part}", **of) for part in ("sum", "count"))
        mean = ours.latencies[latency]  # type: ignore[index]
        assert mean.mean == pytest.approx(total(seconds) / total(n), rel=1e-9)
        same(mean.by_hour, ratios(seconds, n))
    usage = [
        value
        for _, samples in truth.series("vllm:kv_cache_usage_perc", **of)
        for at, value in zip(samples.at, samples.values, strict=True)
        if START < at <= END
    ]
    assert ours.kv_usage is not None
    assert ours.kv_usage.mean == pytest.approx(sum(usage) / len(usage))
    assert ours.kv_usage.highest.value == max(usage)


def test_a_quantile_lies_in_the_bucket_that_the_samples_fill(found: WeeklyReport, truth: Recount) -> None:
    counts = [truth.total(f"{E2E}_bucket", le=le, **SPEC) for le in [*map(repr, BOUNDS), "+Inf"]]
    for q in (0.5, 0.95):
        at = next(number for number, n in enumerate(counts) if n >= q * counts[-1])
        ours = getattr(found.pools["speculative"].latencies["e2e"], f"p{round(q * 100)}")
        assert (ours.above, ours.to) == (BOUNDS[at - 1], BOUNDS[at])


def test_the_speed_up_is_of_the_hours_at_a_load_that_was_measured(
    found: WeeklyReport, truth: Recount, folder: Path, rollout: dict[str, Any]
) -> None:
    loads = measurements(Rollout.model_validate(rollout), folder).loads
    first = line([(each.concurrency, each.seconds["ttft", "mean"]) for each in loads])
    token = line([(each.concurrency, each.token_s or 0) for each in loads])
    n, took = truth.hourly(f"{E2E}_count", **SPEC), truth.hourly(f"{E2E}_sum", **SPEC)
    tokens = truth.hourly("vllm:generation_tokens_total", **SPEC)
    was = would = was_hours = would_hours = compared = 0.0
    by_hour = []
    for load, count, seconds, generated in zip(truth.load("speculative"), n, took, tokens, strict=True):
        expected = math.nan
        if count > 0:
            expected = count * (first(load) + token(load) * (generated / count - 1))
        by_hour.append(expected / seconds if seconds > 0 else math.nan)
        if not math.isnan(expected):
            was, would, compared = was + seconds, would + expected, compared + count
            was_hours, would_hours = was_hours + seconds / load / 3600, would_hours + expected / load / 3600
    ours = found.speedup.by["e2e"]
    same(ours.by_hour, by_hour)
    assert ours.ratio == pytest.approx(would / was, rel=1e-9)
    assert ours.comparable_share == pytest.approx(compared / total(n))
    assert ours.comparable_share is not None
    assert 0.1 < ours.comparable_share < 0.9
    saved = found.saved
    assert saved is not None
    assert (saved.requests, saved.server_hours) == pytest.approx((compared, was_hours))
    assert saved.without_server_hours == pytest.approx(would_hours)
    assert saved.money == pytest.approx(would_hours * 4.0 - was_hours * 5.0)


def test_classes_are_those_of_the_routers(found: WeeklyReport, truth: Recount) -> None:
    assert [(one.name, one.pool) for one in found.classes] == [
        ("chat", "speculative"),
        ("code", "speculative"),
    ]
    for one in found.classes:
        of = {"class": one.name}
        assert one.requests == truth.total("specops_route_requests_total", **of)
        assert one.failed == truth.total("specops_route_requests_total", status="5xx", **of)
        for name, ours in (("request_duration", one.duration), ("first_byte", one.first_byte)):
            histogram = f"specops_route_{name}_seconds"
            n = truth.total(f"{histogram}_count", **of)
            assert ours.mean == pytest.approx(truth.total(f"{histogram}_sum", **of) / n)
            assert ours.n == n


def test_incidents_are_counted_once_each_and_the_open_one_too(found: WeeklyReport, week: Week) -> None:
    assert found.incidents is not None
    told = [(one.alert, one.began_before, one.end is None) for one in found.incidents]
    assert told == [
        ("LowAcceptRatio", True, False),
        ("LowAcceptRatio", False, False),
        ("SpeculationTargetDown", False, False),
        ("SpecopsGuardDown", False, False),
        ("SpeculationLatencyRegression", False, True),
    ]
    lengths = [one.seconds for one in found.incidents]
    every = week.every_s
    hole = week.off[1] - week.off[0] + 2 * HOUR
    asked = [3 * HOUR - every, 5400 - every, hole - every, HOUR - every, 2 * HOUR - 2]
    assert lengths == pytest.approx(asked, abs=every)


def test_gaps_are_found_where_they_are(found: WeeklyReport, week: Week) -> None:
    for pool in found.pools.values():
        (whole,) = [gap for gap in pool.gaps if gap.server is None]
        assert datetime.fromisoformat(whole.start).timestamp() == pytest.approx(week.off[0], abs=week.every_s)
        assert datetime.fromisoformat(whole.end).timestamp() == pytest.approx(week.off[1], abs=week.every_s)
    lost = [gap.server for gap in found.pools["speculative"].gaps if gap.server]
    assert set(lost) >= {"10.0.0.1:8000"}


def test_it_drifts_from_last_week_as_the_samples_do(found: WeeklyReport, truth: Recount) -> None:
    first = next(one for one in found.drift if one.what == "acceptance" and "before" in one.source)
    accepted, drafted = (f"vllm:spec_decode_num_{name}_total" for name in ("accepted_tokens", "draft_tokens"))
    then = truth.total(accepted, BEFORE, START) / truth.total(drafted, BEFORE, START)
    assert first.then == pytest.approx(then, rel=1e-12)
    assert first.beyond
    assert {one.rule for one in found.recommendations} >= {"drift", "comparable load"}


def test_the_command_writes_three_files(
    rollout: dict[str, Any], folder: Path, result: Result, tmp_path: Path
) -> None:
    path = tmp_path / "rollout.yaml"
    path.write_text(json.dumps(rollout))
    said = ["report", str(path), "--end", "2026-11-21", "--tz", "Asia/Seoul", "--out", str(folder), "--quiet"]
    done = specops(*said)
    assert done.returncode == 4, "for some hours Prometheus was off"
    made = folder / "reports"
    assert sorted(each.name for each in made.iterdir()) == [
        f"2026-11-21.{end}" for end in ("html", "json", "md")
    ]
    kept = json.loads((made / "2026-11-21.json").read_text())
    assert kept["data"]["pools"] == json.loads(result.model_dump_json())["data"]["pools"]
    assert "1 still open" in done.stdout
    again = specops("report", str(path), "--end", "2026-01-01", "--out", str(tmp_path / "run"), "--quiet")
    assert again.returncode == 4, again.stderr
    assert "has no data of rollout" in again.stdout
    assert (tmp_path / "run" / "reports" / "2026-01-01.html").exists()
