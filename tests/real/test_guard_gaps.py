"""Gaps in scraping, spikes, and both pools slow at once, on a real Prometheus: what the guard makes of them.

Each pool was scraped with a past of its own. The guard is walked through that past, an evaluation a minute,
by the queries that it sends and the rules that decide.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

import pytest
from backfilled import Pool, remembering

from specops.guard.guard import CapacityGate, Guard
from specops.guard.journal import Journal, SwitchResult, TargetReading
from specops.guard.policy import GuardRules, decide
from specops.guard.signals.criteria import Baseline, BaselineLevel, Criteria
from specops.guard.signals.observation import BadRow, observe
from specops.guard.signals.query import LiveQuery, combine, read
from specops.guard.state import Evaluation, State, Threshold
from specops.prometheus.api import Api, Sample
from specops.serving.vllm.pool import SERIES as VLLM

MINUTE = 60.0
WINDOW_S = 300.0
SPREAD = {"tpot_cv": 0.2, "tpot_error": 0.01, "e2e_cv": 0.2, "e2e_error": 0.01}
SPREAD |= {"whole_cv": 0.5, "whole_error": 0.03}


def levels(*known: tuple[int, float]) -> tuple[BaselineLevel, ...]:
    return tuple(
        BaselineLevel(streams=streams, ttft=0.05, tpot=tpot, token=tpot, e2e=0.05 + 100 * tpot, **SPREAD)
        for streams, tpot in known
    )


STEEP = levels((1, 0.010), (16, 0.080))
"""A pool that is taken to have half its load is taken to be half as fast again."""

FLAT = levels((1, 0.026), (16, 0.030))

WELL = {"requests_per_s": 2.0, "ttft": 0.05, "tpot": 0.0215}
"""4.4 requests at a time, for which the baseline has 26 ms a token: 0.83 times."""

ALMOST = {**WELL, "tpot": 0.025}
"""0.9 times the flat baseline."""

SLOW = {"requests_per_s": 1.5, "tpot": 0.043}
"""6.5 requests at a time, 36 ms: 1.2 times the baseline's, 1.45 times as slow as it was."""

GAPS = {"1m": 60.0, "3m": 180.0, "5m": 300.0, "30m": 1800.0}
BACK = 1200.0
"""Seconds ago that gaps ended."""


def _gap(length: float) -> tuple[float, float]:
    return (BACK + length, BACK)


def _pair(name: str, mine: dict[str, object], theirs: dict[str, object]) -> list[Pool]:
    known = {"past_s": 7200, **WELL}
    return [
        Pool(name, **{**known, **mine}),  # type: ignore[arg-type]
        Pool(name, pool="standard", speculates=False, **{**known, "tpot": 0.026, **theirs}),  # type: ignore[arg-type]
    ]


POOLS = [
    *(Pool(f"away-{name}", past_s=7200, away=_gap(s), **WELL) for name, s in GAPS.items()),
    *(Pool(f"silent-{name}", past_s=7200, silent=_gap(s), **WELL) for name, s in GAPS.items()),
    Pool("slow-after-a-gap", past_s=7200, away=_gap(300.0), then=SLOW, then_s=BACK, **WELL),
    Pool("slow", past_s=7200, then=SLOW, then_s=BACK, **WELL),
    Pool("spike", past_s=7200, then={"tpot": 0.0625}, then_s=BACK, then_until_s=BACK - 60, **ALMOST),
    *_pair("both-slow", {"then": SLOW, "then_s": BACK}, {"then": {**SLOW, "tpot": 0.052}, "then_s": BACK}),
    *_pair("slow-alone", {"then": SLOW, "then_s": BACK}, {}),
    *_pair("slow-and-idle", {"then": SLOW, "then_s": BACK}, {"requests_per_s": 0.0}),
    *_pair("slow-and-silent", {"then": SLOW, "then_s": BACK}, {"silent": (BACK + 600, -120.0)}),
    *_pair("slow-and-gone", {"then": SLOW, "then_s": BACK}, {"until_s_ago": BACK + 600}),
]


@dataclass
class Past:
    api: Api
    now: float

    def instant(self, query: str, end: float | None = None) -> list[Sample]:
        """As of `at`, in place of now."""
        return self.api.instant(query, self.at if end is None else end)

    at: float = field(default=0.0)


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Past]:
    now = float(int(time.time()))
    with remembering(POOLS, tmp_path_factory.mktemp("prometheus")) as up:
        api = Api(up.url)
        yield Past(api, now)
        api.close()


def plan(rollout: str, known: tuple[BaselineLevel, ...]) -> Criteria:
    return Criteria(
        query=LiveQuery(rollout=rollout, series=VLLM, standard=VLLM, labels={}, scrape_s=15.0, routed=False),
        window_s=WINDOW_S,
        min_acceptance=Threshold(value=0.5, source="the test"),
        baseline=Baseline(known, "baseline.json"),
        regression=Threshold(value=1.2, source="the test"),
        max_error_share=Threshold(value=0.05, source="the test"),
        min_requests=None,
    )


@dataclass
class Walked:
    evaluations: dict[float, Evaluation] = field(default_factory=dict)
    """By seconds since the end of the gap, or since the change."""

    states: dict[float, State] = field(default_factory=dict)

    @property
    def verdicts(self) -> set[str]:
        return {found.verdict for found in self.evaluations.values()}

    @property
    def fell_after(self) -> float | None:
        return next((at for at, state in self.states.items() if state.mode == "fallen"), None)


def walk(
    past: Past, rollout: str, begin: float, end: float, known: tuple[BaselineLevel, ...] = STEEP
) -> Walked:
    """The guard, an evaluation a minute, from `begin` to `end` seconds after the gap ended."""
    state, walked, ours = State(), Walked(), plan(rollout, known)
    after = begin
    while after <= end:
        past.at = past.now - BACK + after
        row = (
            BadRow(state.row_began, state.row_last)
            if state.row_began is not None and state.row_last
            else None
        )
        found = observe(cast(Api, past), ours, past.at, None, row)
        state = decide(state, found, past.at, GuardRules()).state
        walked.evaluations[after], walked.states[after] = found, state
        after += MINUTE
    return walked


@pytest.mark.parametrize("kind", ["away", "silent"])
@pytest.mark.parametrize(
    "length", [pytest.param(name, marks=[] if name in ("1m", "5m") else [pytest.mark.slow]) for name in GAPS]
)
def test_a_gap_is_no_data_and_never_bad(past: Past, kind: str, length: str) -> None:
    gap_s = min(GAPS[length], 360.0)
    walked = walk(past, f"{kind}-{length}", -gap_s, 480.0)
    assert walked.verdicts <= {"healthy", "no_data"}, walked.evaluations
    assert {walked.evaluations[at].verdict for at in walked.evaluations if 0 < at < 240} == {"no_data"}
    assert {walked.evaluations[at].verdict for at in walked.evaluations if at >= 360} == {"healthy"}
    assert "of the scrapes of the last 300 s succeeded" in walked.evaluations[60.0].reason


@pytest.mark.parametrize("after", [75.0, 150.0, 285.0])
def test_a_load_is_of_the_time_that_samples_cover(past: Past, after: float) -> None:
    past.at = past.now - BACK + after
    asked = plan("away-5m", STEEP).query
    query = combine(asked.expressions(WINDOW_S, 2 * WINDOW_S))
    found = read(past.instant(query), asked, WINDOW_S)
    assert float(found.load) == pytest.approx(4.4, rel=0.12)
    assert float(found.covered) == pytest.approx(after / WINDOW_S, abs=0.06)


@pytest.mark.parametrize("rollout", ["slow", "slow-after-a-gap", "slow-alone", "slow-and-idle"])
def test_a_pool_that_is_slower_is_acted_on_in_time(past: Past, rollout: str) -> None:
    fell_after = walk(past, rollout, 0.0, 600.0).fell_after
    assert fell_after is not None
    assert WINDOW_S / 2 < fell_after <= WINDOW_S + 3 * MINUTE


def test_a_spike_of_a_fifth_of_the_window_is_one_bad_observation(past: Past) -> None:
    walked = walk(past, "spike", 0.0, 600.0, FLAT)
    assert sum(found.verdict == "bad" for found in walked.evaluations.values()) >= 3, walked.evaluations
    assert max(state.bad_in_a_row for state in walked.states.values()) == 1


@dataclass
class Replicas:
    """Two of a Prometheus behind one address, which answer in turn; the clock of the second is ahead."""

    past: Past
    ahead_s: float
    second: bool = False

    def instant(self, query: str, end: float | None = None) -> list[Sample]:
        found = self.past.instant(query, end)
        return [replace(one, ts=one.ts + self.ahead_s) for one in found] if self.second else found


@pytest.mark.parametrize("ahead_s", [0.0, 90.0, 280.0])
def test_a_spike_is_one_bad_observation_whichever_replica_answers(
    past: Past, ahead_s: float, tmp_path: Path
) -> None:
    replicas, ours = Replicas(past, ahead_s), plan("spike", FLAT)
    guard = Guard(
        rules=GuardRules(),
        observe=lambda now, _, row: observe(cast(Api, replicas), ours, now, None, row),
        switch=Nothing(),
        journal=Journal(tmp_path / "journal.jsonl"),
        gate=lambda: CapacityGate(reason="capacity suffices"),
        clock=lambda: past.at,
        steady=lambda: past.at,
    )
    rows = []
    for number, after in enumerate((80.0, 140.0, 200.0, 260.0)):
        past.at, replicas.second = past.now - BACK + after, number > 0
        rows.append((guard.turn().verdict, guard.state.bad_in_a_row))
    assert [verdict for verdict, _ in rows[:3]] == ["bad", "bad", "bad"]
    assert max(row for _, row in rows) == 1
    assert guard.state.target_percent == 100


@dataclass
class Stale:
    """A cache before Prometheus: the same question has the same answer again."""

    past: Past
    answers: dict[str, list[Sample]] = field(default_factory=dict)

    def instant(self, query: str, end: float | None = None) -> list[Sample]:
        return self.answers.setdefault(query, self.past.instant(query, end))


def test_an_answer_that_comes_again_from_a_cache_is_the_same_observation(past: Past, tmp_path: Path) -> None:
    stale, ours = Stale(past), plan("slow", STEEP)
    guard = Guard(
        rules=GuardRules(),
        observe=lambda now, _, row: observe(cast(Api, stale), ours, now, None, row),
        switch=Nothing(),
        journal=Journal(tmp_path / "journal.jsonl"),
        gate=lambda: CapacityGate(reason="capacity suffices"),
        clock=lambda: past.at,
    )
    found = []
    for after in range(360, 1000, 60):
        past.at = past.now - BACK + after
        found.append(guard.turn().verdict)
    assert found[:5] == ["bad"] * 5
    assert found[-1] == "no_data", "it is older than a window"
    assert (guard.state.bad_in_a_row, guard.state.target_percent) == (0, 100)


class Nothing:
    """That is switched."""

    def read(self) -> tuple[TargetReading, ...]:
        return ()

    def to(self, percent: int, *, again: bool = False) -> SwitchResult:
        return SwitchResult(outcome="done")


def test_both_pools_slow_are_not_speculation_s_doing(past: Past) -> None:
    walked = walk(past, "both-slow", 0.0, 900.0)
    assert "bad" not in walked.verdicts, walked.evaluations
    found = walked.evaluations[600.0]
    assert (found.verdict, found.both_slow) == ("unknown", True)
    assert found.reason.startswith("both pools are slow, so speculation is not the cause")


@pytest.mark.parametrize("rollout", ["slow-and-silent", "slow-and-gone"])
def test_a_standard_pool_whose_samples_are_missing_is_not_one_without_traffic(
    past: Past, rollout: str
) -> None:
    walked = walk(past, rollout, 300.0, 600.0)
    assert "bad" not in walked.verdicts, walked.evaluations
    tpot = next(one for one in walked.evaluations[600.0].findings if one.signal == "tpot")
    assert (tpot.verdict, "not compared with the standard pool" in tpot.why) == ("unknown", True)
