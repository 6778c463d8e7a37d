"""What the guard sees, asked of a real Prometheus: bad, no data, no traffic and unknown are told apart."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from backfilled import Pool, again, answered, remembering, routed

from specops.guard.policy import GuardRules
from specops.guard.signals.criteria import Baseline, BaselineLevel, Criteria, Missing
from specops.guard.signals.observation import observe
from specops.guard.signals.query import LiveQuery
from specops.guard.simulation.simulate import simulate
from specops.guard.simulation.traces import record
from specops.guard.state import Evaluation, SignalFinding, Threshold
from specops.prometheus.api import Api
from specops.serving.vllm.pool import SERIES as VLLM

SPREAD = {"tpot_cv": 0.2, "tpot_error": 0.01, "e2e_cv": 0.2, "e2e_error": 0.01}
SPREAD |= {"whole_cv": 0.5, "whole_error": 0.03}
LEVELS = (
    BaselineLevel(streams=1, ttft=0.1, tpot=0.025, token=0.025, e2e=2.6, **SPREAD),
    BaselineLevel(streams=8, ttft=0.2, tpot=0.032, token=0.032, e2e=3.4, **SPREAD),
)
SLOW = {"tpot": 0.04, "ttft": 0.2}
POOLS = (
    Pool("healthy"),
    Pool("two-servers", servers=2),
    Pool("bad-draft", then={"acceptance": 0.1}),
    Pool("slow", then={**SLOW, "requests_per_s": 1.5}),
    Pool("slow-for-a-moment", then={**SLOW, "requests_per_s": 1.5}, then_s=30.0),
    Pool("overloaded", then={"tpot": 0.06, "requests_per_s": 4.0}),
    Pool("slow-since-a-start", then={**SLOW, "requests_per_s": 1.5}, restarted_s_ago=120.0),
    Pool("restarted", restarted_s_ago=120.0),
    Pool("idle", then={"requests_per_s": 0.0}),
    Pool("quiet", then={"requests_per_s": 0.1}),
    Pool("bad-draft-when-quiet", then={"acceptance": 0.1, "requests_per_s": 0.5}),
    Pool("gone", until_s_ago=600.0),
    Pool("just-gone", until_s_ago=265.0),
    Pool("renamed", prefix="vllm_"),
    Pool("not-a-number", nan=True),
    Pool("standard-after-all", speculates=False),
    Pool("aborting", aborted=0.3),
    Pool("aborting", aborted=0.01, pool="standard"),
    Pool("users-leave", aborted=0.3),
    Pool("users-leave", aborted=0.3, pool="standard"),
    Pool("users-leave-the-only-pool", aborted=0.3),
    Pool("restarted-at-the-edge", restarted_s_ago=300.0),
    Pool("scraped-twice", job="a"),
    Pool("scraped-twice", job="b"),
    Pool("moved", job="old", until_s_ago=120.0),
    Pool("moved", job="new", past_s=120),
    Pool("slow-since-it-moved", job="old", until_s_ago=120.0),
    Pool("slow-since-it-moved", job="new", past_s=120, **SLOW),
    Pool("scraped-faster", every_s=5),
    Pool("infinite", counters={"e2e_request_latency_seconds_sum": math.inf}),
    Pool("behind-a-router"),
    Pool("failing-over"),
)


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    now = time.time()
    quiet = {("chat", "speculative", "speculative", "2xx"): 2.0, ("chat", "standard", "standard", "2xx"): 1.0}
    lines = [
        *routed("behind-a-router", quiet, now),
        *routed("failing-over", quiet | {("chat", "speculative", "standard", "2xx"): 1.0}, now),
        *answered("behind-a-router", {"code": (10.0, 9.0), "chat": (10.0, 2.0), "new": (10.0, 9.0)}, now),
    ]
    with remembering(POOLS, tmp_path_factory.mktemp("prometheus"), *lines) as up:
        api = Api(up.url)
        yield api
        api.close()


def plan(rollout: str, **changes: object) -> Criteria:
    made = Criteria(
        query=LiveQuery(rollout=rollout, series=VLLM, standard=VLLM, labels={}, scrape_s=15.0, routed=False),
        window_s=300.0,
        min_acceptance=Threshold(value=0.5, source="sweep.json"),
        baseline=Baseline(LEVELS, "baseline.json"),
        regression=Threshold(value=1.2, source="the rollout file"),
        max_error_share=Threshold(value=0.05, source="the rollout file"),
        min_requests=None,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def seen(api: Api, rollout: str, **changes: object) -> Evaluation:
    return observe(api, plan(rollout, **changes), time.time())


def of(evaluation: Evaluation, signal: str) -> SignalFinding:
    return next(finding for finding in evaluation.findings if finding.signal == signal)


def test_a_pool_that_pays_is_healthy_with_its_figures(asked: Api) -> None:
    found = seen(asked, "healthy")
    assert {finding.verdict for finding in found.findings} == {"healthy"}, found
    assert of(found, "acceptance").value == pytest.approx(0.7, rel=1e-3)
    # 4.2 requests at a time by Little's law: 20 ms over the line from 25 ms at 1 to 32 ms at 8.
    assert of(found, "tpot").value == pytest.approx(20 / 28.2, rel=0.02)
    assert of(found, "tpot").n == pytest.approx(600, rel=0.05)
    assert of(found, "e2e").value == pytest.approx(2.1 / (0.1457 + 0.0282 * 100), rel=0.02)
    assert found.took_ms >= found.prometheus_ms > 0


@pytest.mark.parametrize(
    ("rollout", "verdict", "signals", "said"),
    [
        ("two-servers", "healthy", {"acceptance", "tpot", "e2e"}, "4.2 requests"),
        ("bad-draft", "bad", {"acceptance"}, "acceptance 0.10"),
        ("slow", "bad", {"tpot", "e2e"}, "of that without speculation"),
        ("slow-for-a-moment", "healthy", {"tpot", "e2e"}, "TPOT"),
        ("aborting", "bad", {"errors"}, "30.0% of 600 requests failed"),
        ("users-leave", "healthy", {"errors"}, "TPOT"),
        ("users-leave-the-only-pool", "healthy", {"errors"}, "TPOT"),
        (
            "idle",
            "no_traffic",
            {"acceptance", "tpot"},
            "TPOT: 0 requests in 300 s, a verdict needs 196",
        ),
        (
            "quiet",
            "no_traffic",
            {"acceptance", "tpot"},
            "acceptance: 30 requests in 300 s, a verdict needs 100",
        ),
        ("gone", "no_data", {"acceptance", "tpot"}, "no target of the speculative pool"),
        ("never-there", "no_data", {"acceptance", "tpot"}, "no target of the speculative pool"),
        ("renamed", "no_data", {"acceptance", "tpot"}, "vllm:e2e_request_latency_seconds_count"),
        ("just-gone", "no_data", {"tpot"}, "10% of the scrapes of the last 300 s succeeded (threshold 90%"),
        ("restarted", "healthy", {"acceptance", "tpot", "e2e"}, "1 of its servers started within"),
        ("restarted-at-the-edge", "healthy", {"acceptance", "tpot", "e2e"}, "1 of its servers started"),
        ("moved", "no_data", {"acceptance", "tpot", "e2e"}, "of the scrapes of the last 300 s succeeded"),
        ("slow-since-it-moved", "no_data", {"acceptance", "tpot", "e2e"}, "of the scrapes of the last"),
        (
            "scraped-faster",
            "no_data",
            {"acceptance", "tpot", "e2e"},
            "3.0× the expected samples",
        ),
        ("slow-since-a-start", "unknown", {"tpot"}, "1 of its servers started within"),
    ],
)
def test_what_is_there_is_told_apart(
    asked: Api, rollout: str, verdict: str, signals: set[str], said: str
) -> None:
    found = seen(asked, rollout)
    assert found.verdict == verdict, found
    assert {of(found, signal).verdict for signal in signals} == {verdict}, found
    assert said in found.reason


def test_a_server_that_is_scraped_twice_has_no_more_requests(asked: Api) -> None:
    """As by two replicas of a Prometheus, where nothing deduplicates: noise would look smaller than it is."""
    once, twice = seen(asked, "healthy"), seen(asked, "scraped-twice")
    for signal in ("acceptance", "tpot", "e2e", "errors"):
        assert of(twice, signal).n == pytest.approx(of(once, signal).n, rel=0.02)
        assert of(twice, signal).verdict == "healthy"


def test_an_infinite_sum_is_no_data_and_never_bad(asked: Api) -> None:
    """Without the time that requests spent there is no load, so that TPOT is not judged either."""
    found = seen(asked, "infinite")
    assert (of(found, "e2e").verdict, of(found, "tpot").verdict) == ("no_data", "no_data"), found
    assert (of(found, "acceptance").verdict, found.verdict) == ("healthy", "no_data")


def test_no_number_is_no_data_of_that_signal_alone(asked: Api) -> None:
    found = seen(asked, "not-a-number")
    assert (of(found, "tpot").verdict, of(found, "e2e").verdict) == ("no_data", "no_data")
    assert (of(found, "acceptance").verdict, found.verdict) == ("healthy", "no_data")
    found = seen(asked, "standard-after-all")
    assert (of(found, "acceptance").verdict, of(found, "tpot").verdict) == ("no_data", "healthy")
    assert found.verdict == "degraded", "it has answers, and no counter of drafts"


def test_a_load_beyond_the_baseline_s_cannot_be_compared(asked: Api) -> None:
    found = seen(asked, "overloaded")
    assert (of(found, "tpot").verdict, of(found, "tpot").value) == ("unknown", None)
    assert "the baseline was measured at 1 to 8" in of(found, "tpot").why


def test_a_server_that_just_started_is_not_slow_yet(asked: Api) -> None:
    found = seen(asked, "slow-since-a-start")
    assert of(found, "tpot").verdict == "unknown"
    assert "servers have just started" in of(found, "tpot").why


def test_without_a_baseline_acceptance_alone_is_judged_and_nothing_is_healthy(asked: Api) -> None:
    missing = Missing("there is no baseline.json")
    found = seen(asked, "healthy", baseline=missing)
    assert (found.verdict, of(found, "tpot").verdict) == ("unknown", "unknown")
    assert of(found, "acceptance").verdict == "healthy"
    assert "there is no baseline.json" in of(found, "tpot").why
    assert seen(asked, "idle", baseline=missing).verdict == "no_traffic"


def test_by_the_router_a_request_that_failed_over_is_an_error(asked: Api) -> None:
    by_router = {
        name: LiveQuery(rollout=name, series=VLLM, standard=VLLM, labels={}, scrape_s=15.0, routed=True)
        for name in ("behind-a-router", "failing-over")
    }
    healthy = seen(asked, "", query=by_router["behind-a-router"])
    assert (of(healthy, "errors").verdict, of(healthy, "errors").value) == ("healthy", 0.0)
    failing = seen(asked, "", query=by_router["failing-over"])
    assert failing.verdict == "bad"
    assert of(failing, "errors").value == pytest.approx(1 / 3, rel=0.02)


def test_of_classes_a_bad_one_is_named_and_all_traffic_is_judged_by_itself(asked: Api) -> None:
    by_router = LiveQuery(
        rollout="behind-a-router", series=VLLM, standard=VLLM, labels={}, scrape_s=15.0, routed=True
    )
    times = Baseline(LEVELS, "baseline.json", (("chat", LEVELS), ("code", LEVELS)))
    found = seen(asked, "", query=by_router, baseline=times)
    classes = {one.traffic_class: (one.verdict, one.n) for one in found.findings if one.traffic_class}
    assert classes == {"chat": ("healthy", pytest.approx(3000)), "code": ("bad", pytest.approx(3000))}
    assert found.verdict == "degraded"


def test_what_prometheus_has_is_recorded_and_replayed_as_it_was_seen(asked: Api) -> None:
    now = time.time()
    for rollout, falls in (("bad-draft", ["acceptance"]), ("healthy", [])):
        made = record(asked, plan(rollout), now - 1500, now, 60.0)
        found = simulate(made, plan(rollout), GuardRules())
        assert [one.why.split()[0] for one in found.fallbacks[:1]] == falls
        assert all(one.rightly == "unknown" for one in found.fallbacks)
    assert np.nanmean(made.figures.acceptance) == pytest.approx(0.7, rel=1e-3)
    assert made.playbook.acceptance.max() == 0.0  # nobody records its name here: it would fall at once
    assert found.playbook is not None


def test_a_quiet_pool_is_looked_at_for_longer_where_nothing_changed(asked: Api) -> None:
    now = time.time()
    assert observe(asked, plan("quiet"), now, since=now - 60).verdict == "no_traffic"
    assert observe(asked, plan("quiet", min_requests=80), now).verdict == "no_traffic"
    longer = observe(asked, plan("quiet", min_requests=80), now, since=now - 890)
    assert longer.verdict == "healthy", longer
    assert of(longer, "tpot").n == pytest.approx(89, rel=0.05)
    # Where nobody asks, what there was before is not of now.
    assert observe(asked, plan("idle"), now, since=now - 1500).verdict == "no_traffic"
    # A signal that its own window suffices for is not looked back on: there acceptance was 0.7.
    fallen = observe(asked, plan("bad-draft-when-quiet"), now, since=now - 1500)
    assert (of(fallen, "acceptance").verdict, fallen.verdict) == ("bad", "bad")
    assert "a verdict needs 196" in of(fallen, "tpot").why


def test_a_clock_that_jumped_is_no_data_and_never_bad(asked: Api) -> None:
    for jump in (-7200.0, 7200.0):
        found = observe(asked, plan("bad-draft"), time.time() + jump)
        assert (found.verdict, found.findings) == ("no_data", ())
        assert "Prometheus' clock is 7200 s" in found.reason


def test_a_prometheus_that_is_down_is_unknown_and_tells_the_same_once_it_is_back(tmp_path: Path) -> None:
    with remembering([Pool("bad-draft", then={"acceptance": 0.1})], tmp_path) as up:
        before = seen(Api(up.url), "bad-draft")
    down = seen(Api(up.url), "bad-draft")
    assert (before.verdict, down.verdict) == ("bad", "unknown")
    assert "nothing listens there" in down.reason
    with again(tmp_path) as back:
        assert seen(Api(back.url), "bad-draft").verdict == "bad"
