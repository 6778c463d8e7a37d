"""Parts of a pool, of a real Prometheus: a replica that is not scraped, samples that come late, a replica
that is slow or drafts nothing, a class, the slowest requests."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from backfilled import Pool, answered, remembering, routed

from specops.guard.signals.criteria import Baseline, BaselineLevel, Criteria
from specops.guard.signals.observation import observe
from specops.guard.signals.query import LiveQuery
from specops.guard.state import Evaluation, SignalFinding, Threshold
from specops.prometheus.api import Api
from specops.serving.vllm.pool import SERIES as VLLM

SPREAD = {"tpot_cv": 0.2, "tpot_error": 0.01, "e2e_cv": 0.2, "e2e_error": 0.01}
SPREAD |= {"whole_cv": 0.5, "whole_error": 0.03}
LEVELS = (
    BaselineLevel(streams=1, ttft=0.1, tpot=0.025, token=0.025, e2e=2.6, **SPREAD),
    BaselineLevel(streams=32, ttft=0.2, tpot=0.045, token=0.045, e2e=4.7, **SPREAD),
)
SLOW = {"tpot": 0.0364, "ttft": 0.14}
"""40% more than the baseline at its load, and more."""


def replicas(rollout: str, *each: dict[str, Any]) -> list[Pool]:
    return [Pool(rollout, port=8000 + number, **changes) for number, changes in enumerate(each)]


def buckets(slow_share: float, rate: float = 6.0) -> dict[str, float]:
    """TPOT's histogram: all but a share of the requests take 20 ms, the others 200 ms."""
    counts = {"0.025": rate * (1 - slow_share), "0.15": rate * (1 - slow_share), "0.25": rate, "+Inf": rate}
    name = "request_time_per_output_token_seconds_bucket"
    return {f'{name}{{le="{bound}"}}': count for bound, count in counts.items()}


UNSCRAPED = {"silent": (1800.0, -120.0)}
POOLS = [
    *replicas("all-well", {}, {}, {}),
    *replicas("one-unscraped", {}, {}, UNSCRAPED),
    *replicas("one-unscraped-others-slow", SLOW, SLOW, UNSCRAPED),
    *replicas("one-unscraped-others-reject", {"acceptance": 0.03}, {"acceptance": 0.03}, UNSCRAPED),
    *replicas("most-unscraped", SLOW, UNSCRAPED, UNSCRAPED),
    *replicas("late", {"until_s_ago": 45.0}, {"until_s_ago": 45.0}),
    *replicas("late-and-slow", {"until_s_ago": 45.0, **SLOW}, {"until_s_ago": 45.0, **SLOW}),
    *replicas("one-slow", {}, {}, {}, {"tpot": 0.06, "ttft": 0.3}),
    *replicas("one-rejects", {}, {}, {}, {"acceptance": 0.02}),
    *replicas("one-does-not-draft", {}, {"drafted": 0.0}, {}),
    *replicas("none-drafts", {"drafted": 0.0}, {"drafted": 0.0}),
    *replicas("slow-tail", {"requests_per_s": 6.0, "counters": buckets(0.015)}),
    *replicas("short-tail", {"requests_per_s": 6.0, "counters": buckets(0.001)}),
    *replicas("classes", {"requests_per_s": 8.0}),
    *replicas("longer-answers", {"requests_per_s": 4.0, "tokens": 202.0}),
]


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    now = time.time()
    rates = {("chat", "speculative", "speculative", "2xx"): 20.0}
    lines = [
        *routed("classes", rates, now),
        *routed("longer-answers", rates, now),
        # The pool's mean length is the baseline's: one class takes 2.2 times as long as it should.
        *answered("classes", {"chat": (10.0, 2.1), "code": (10.0, 2.2 * 2.6)}, now),
        # It is twice the baseline's, since one class's answers are four times as long, and as fast.
        *answered("longer-answers", {"chat": (6.7, 2.1), "code": (3.3, 0.1 + 0.02 * 400)}, now),
    ]
    with remembering(POOLS, tmp_path_factory.mktemp("prometheus"), *lines) as up:
        connection = Api(up.url)
        yield connection
        connection.close()


def criteria(rollout: str, **changes: Any) -> Criteria:
    known = {"scrape_s": 15.0, "routed": False, "servers": 0} | changes
    return Criteria(
        query=LiveQuery(rollout=rollout, series=VLLM, standard=VLLM, labels={}, **known),
        window_s=300.0,
        min_acceptance=Threshold(value=0.5, source="sweep.json"),
        baseline=Baseline(LEVELS, "baseline.json", (("chat", LEVELS), ("code", LEVELS))),
        regression=Threshold(value=1.2, source="the rollout file"),
        max_error_share=Threshold(value=0.05, source="the rollout file"),
        min_requests=None,
    )


def evaluated(api: Api, rollout: str, since_s: float | None = None, **changes: Any) -> Evaluation:
    now = time.time()
    return observe(api, criteria(rollout, **changes), now, None if since_s is None else now - since_s)


def bad_parts(evaluation: Evaluation) -> set[tuple[str, str | None]]:
    return {(finding.signal, finding.part) for finding in evaluation.bad_parts}


def whole(evaluation: Evaluation, signal: str) -> SignalFinding:
    return next(finding for finding in evaluation.whole if finding.signal == signal)


def test_a_pool_with_all_its_parts_well_is_healthy(api: Api) -> None:
    found = evaluated(api, "all-well")
    assert (found.verdict, found.not_covered, found.bad_parts) == ("healthy", (), ()), found


def test_one_replica_that_is_not_scraped_leaves_the_others_judged_and_is_named(api: Api) -> None:
    found = evaluated(api, "one-unscraped")
    assert {finding.verdict for finding in found.whole} == {"healthy"}, found
    assert found.verdict == "no_data", "a part that nobody sees is not healthy"
    assert len(found.not_covered) == 1
    assert found.not_covered[0].startswith("127.0.0.1:8002: 0% of the scrapes")
    assert whole(found, "tpot").n == pytest.approx(1200, rel=0.05), "of the two that are covered"


@pytest.mark.parametrize(
    ("rollout", "signal"),
    [("one-unscraped-others-slow", "tpot"), ("one-unscraped-others-reject", "acceptance")],
)
def test_what_the_covered_replicas_show_is_bad_though_one_is_not_scraped(
    api: Api, rollout: str, signal: str
) -> None:
    found = evaluated(api, rollout)
    assert (found.verdict, whole(found, signal).verdict) == ("bad", "bad"), found
    assert len(found.not_covered) == 1


def test_fewer_than_half_of_the_replicas_are_not_the_pool(api: Api) -> None:
    found = evaluated(api, "most-unscraped")
    assert (found.verdict, len(found.not_covered)) == ("no_data", 2)


def test_a_server_of_the_rollout_file_without_a_target_is_not_covered(api: Api) -> None:
    found = evaluated(api, "all-well", servers=4)
    assert found.verdict == "no_data"
    assert found.not_covered == ("1 of 4 servers of the rollout file have no target",)


@pytest.mark.parametrize(("rollout", "verdict"), [("late", "healthy"), ("late-and-slow", "bad")])
def test_samples_that_come_late_are_judged_as_of_the_newest(api: Api, rollout: str, verdict: str) -> None:
    found = evaluated(api, rollout)
    assert (found.verdict, found.not_covered) == (verdict, ()), found
    assert found.observed_at is not None
    assert 30 <= found.ts - found.observed_at <= 90


def test_one_slow_replica_is_named_and_its_load_does_not_excuse_it(api: Api) -> None:
    found = evaluated(api, "one-slow")
    slow = {(signal, "replica 127.0.0.1:8003") for signal in ("tpot", "e2e")}
    assert (found.verdict, bad_parts(found)) == ("degraded", slow), found
    ratio = next(finding.value for finding in found.bad_parts if finding.signal == "tpot")
    assert ratio == pytest.approx(3.0, rel=0.05)


def test_one_replica_whose_drafts_are_rejected_is_named(api: Api) -> None:
    found = evaluated(api, "one-rejects")
    assert bad_parts(found) == {("acceptance", "replica 127.0.0.1:8003")}, found
    assert whole(found, "acceptance").verdict == "healthy", "the mean hides it"


def test_flat_counters_of_drafts_under_traffic_are_a_verdict_of_their_own(api: Api) -> None:
    one = evaluated(api, "one-does-not-draft")
    assert (one.verdict, bad_parts(one)) == ("degraded", {("drafting", "replica 127.0.0.1:8001")}), one
    every = evaluated(api, "none-drafts")
    assert every.verdict == "degraded"
    assert whole(every, "drafting").verdict == "bad"
    assert whole(every, "acceptance").verdict == "unknown", "not too little traffic"


def test_the_slowest_requests_are_judged_beside_the_mean(api: Api) -> None:
    """1.5% of them take ten times as long. The mean is what it should be."""
    found = evaluated(api, "slow-tail", since_s=1700.0)
    assert (found.verdict, bad_parts(found)) == ("degraded", {("tpot", "the slowest requests")}), found
    well = evaluated(api, "short-tail", since_s=1700.0)
    assert (well.verdict, well.bad_parts) == ("healthy", ()), well


def test_a_class_is_judged_by_the_longest_answers_that_the_pool_s_mean_allows(api: Api) -> None:
    slow = evaluated(api, "classes", routed=True)
    assert bad_parts(slow) == {("e2e", "class code")}, slow
    longer = evaluated(api, "longer-answers", routed=True)
    assert longer.bad_parts == (), longer
