"""What answers are held against: the playbook's thresholds, and what was measured in their place."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from specops.config.route import Route
from specops.phases.diagnose import findings
from specops.phases.diagnose.finding import DiagnosisFinding, Severity
from specops.phases.diagnose.observations import (
    AbFigures,
    BaselineFigures,
    BaselineLoad,
    CanaryCheck,
    CanaryFigures,
    ClassVerdict,
    EarlierAcceptance,
    GpuFigures,
    Live,
    Observations,
    RoutedShare,
    SpeedupInterval,
    StreamFigures,
    SweepFigures,
)


def by_id(seen: Observations) -> dict[str, DiagnosisFinding]:
    return {one.id: one for one in findings(seen)}


LIVE = Live(source="a server", over="5m", answers=1000, drafted=1e7)
SWEPT = SweepFigures(
    source="sweep.json", setting="k=4", k=4, break_even=None, draft_ms=2.0, target_ms=10.0, per_position=(),
    on_max=4, off_min=16, by_length={}, by_temperature={}, classes_off={},
)  # fmt: skip
BASELINE = BaselineFigures(
    source="baseline.json",
    loads=(
        BaselineLoad(concurrency=1, ttft_ms=100, tpot_ms=10, token_ms=10),
        BaselineLoad(concurrency=9, ttft_ms=500, tpot_ms=50, token_ms=50),
    ),
)
FASTER = AbFigures(
    source="ab.json", e2e=SpeedupInterval(estimate=1.5, low=1.4, high=1.6), ttft=None, ttft_change_ms=None,
    acceptance=None, drafts=0.0, classes={}, equal=None, compared=None, control=None,
)  # fmt: skip


def live(**figures: Any) -> Observations:
    return Observations(rollout="made", live=LIVE.model_copy(update=figures))


@pytest.mark.parametrize(
    ("acceptance", "break_even", "branches", "severity"),
    [
        (0.29, None, False, "cause"),  # the playbook's
        (0.299, None, False, "cause"),
        (0.31, None, False, "contributing"),
        (0.49, None, False, "contributing"),
        (0.51, None, False, "ruled_out"),
        (0.49, 0.45, False, "ruled_out"),  # what was measured comes first
        (0.55, 0.60, False, "cause"),
        (0.20, None, True, "unknown"),  # most of such a tree cannot be accepted
        (0.20, 0.15, True, "ruled_out"),
    ],
)
def test_the_draft_is_judged_by_its_break_even_else_by_the_playbook(
    acceptance: float, break_even: float | None, branches: bool, severity: Severity
) -> None:
    seen = live(acceptance=acceptance).model_copy(update={"branches": branches})
    if break_even is not None:
        seen = seen.model_copy(update={"sweep": SWEPT.model_copy(update={"break_even": break_even})})
    assert by_id(seen)["draft-quality"].severity == severity


def test_a_draft_below_the_playbooks_threshold_that_is_faster_all_the_same_is_no_cause() -> None:
    seen = live(acceptance=0.2).model_copy(update={"compared": FASTER})
    found = by_id(seen)["draft-quality"]
    assert found.severity == "contributing"
    assert "but the pool is not slower" in found.message


@pytest.mark.parametrize(("drafted", "severity"), [(300.0, "contributing"), (20_000.0, "cause")])
def test_a_rate_within_its_error_of_the_threshold_accuses_nobody(drafted: float, severity: str) -> None:
    found = by_id(live(acceptance=0.28, drafted=drafted, per_position=(0.5, 0.3, 0.1)))["draft-quality"]
    assert found.severity == severity, found.message


def test_an_acceptance_of_few_tokens_is_none() -> None:
    found = by_id(live(acceptance=0.1, drafted=150.0))["draft-quality"]
    assert (found.severity, "200 tokens" in found.message) == ("unknown", True)


@pytest.mark.parametrize(
    ("load", "e2e_ms", "severity"),
    [
        (1, 1089.0, "ruled_out"),  # 100 + 10 × 89
        (5, 5100.0, "symptom"),  # 300 + 30 × 89 = 2970
        (5, 3200.0, "ruled_out"),
        (12, 9e9, "unknown"),  # beyond the heaviest load that was measured
    ],
)
def test_slower_is_held_against_the_baseline_at_the_same_load(
    load: float, e2e_ms: float, severity: str
) -> None:
    seen = live(load=load, e2e_ms=e2e_ms, answer_tokens=90.0).model_copy(update={"baseline": BASELINE})
    assert by_id(seen)["slower-than-standard"].severity == severity


def test_a_mean_of_few_answers_is_held_against_nothing() -> None:
    few = {"answers": 12.0, "load": 1.0, "e2e_ms": 9e9, "ttft_ms": 9e9, "answer_tokens": 90.0}
    found = by_id(live(**few).model_copy(update={"baseline": BASELINE}))
    for name in ("slower-than-standard", "first-token-late"):
        assert (found[name].severity, "50 answers" in found[name].message) == ("unknown", True)


@pytest.mark.parametrize(("draft_ms", "severity"), [(4.9, "ruled_out"), (5.0, "cause")])
def test_a_draft_that_takes_half_of_a_step_is_too_dear(draft_ms: float, severity: str) -> None:
    seen = Observations(rollout="made", sweep=SWEPT.model_copy(update={"draft_ms": draft_ms}))
    assert by_id(seen)["draft-cost"].severity == severity
    faster = by_id(seen.model_copy(update={"compared": FASTER}))["draft-cost"]
    assert faster.severity == ("contributing" if severity == "cause" else severity)


def test_k_is_cut_where_a_position_costs_more_than_it_brings() -> None:
    # Steps of 10 ms, 2 ms a position: position 1 saves 0.8 × 10, position 2 saves 0.5 × 12 / 1.8, position 3
    # 0.1 × 14 / 2.3 = 0.6 ms.
    seen = live(per_position=(0.8, 0.5, 0.1)).model_copy(update={"sweep": SWEPT})
    found = by_id(seen)["draft-length"]
    assert found.severity == "contributing"
    assert found.fix is not None
    assert found.fix == "specops sweep ROLLOUT --k 2"


@pytest.mark.parametrize(("load", "severity"), [(3, "ruled_out"), (8, "contributing"), (16, "cause")])
def test_the_batch_is_too_large_beyond_the_measured_crossover(load: float, severity: str) -> None:
    seen = live(load=load).model_copy(update={"sweep": SWEPT})
    assert by_id(seen)["load-beyond-crossover"].severity == severity


FAST = {"load": 4.0, "e2e_ms": 1000.0, "tpot_ms": 10.0, "answer_tokens": 90.0}
"""A third of what the baseline took at that load."""


def first_cause(seen: Observations) -> str | None:
    return next((one.id for one in findings(seen) if one.severity == "cause"), None)


def test_a_load_beyond_what_paid_comes_before_the_draft_and_rules_no_slowness_out() -> None:
    compared = FASTER.model_copy(update={"streams": 1, "up_to": 1})
    seen = live(load=20.0, acceptance=0.2).model_copy(update={"compared": compared})
    found = by_id(seen)
    assert first_cause(seen) == "load-beyond-crossover"
    assert found["load-beyond-crossover"].message == "20 streams; it stopped paying above 1 (ab.json)"
    # At one stream it was faster. That says nothing of twenty.
    assert found["slower-than-standard"].severity == "contributing"
    few = seen.model_copy(update={"live": LIVE.model_copy(update={"load": 1.2, "acceptance": 0.9})})
    assert by_id(few)["slower-than-standard"].severity == "ruled_out"
    assert first_cause(few) is None


def test_a_comparison_that_never_paid_does_not_accuse_the_load() -> None:
    compared = FASTER.model_copy(update={"streams": 1, "up_to": 0})
    seen = live(load=20.0).model_copy(update={"compared": compared})
    assert by_id(seen)["load-beyond-crossover"].severity == "unknown"


def test_a_load_above_what_paid_that_is_no_slower_now_is_no_cause() -> None:
    wide = SWEPT.model_copy(update={"on_max": 1, "off_min": 2})
    seen = live(**FAST).model_copy(update={"baseline": BASELINE, "sweep": wide})
    assert by_id(seen)["load-beyond-crossover"].severity == "contributing"
    slow = live(**FAST | {"e2e_ms": 9000.0}).model_copy(update={"baseline": BASELINE, "sweep": wide})
    assert by_id(slow)["load-beyond-crossover"].severity == "cause"


@pytest.mark.parametrize(
    ("ours", "theirs", "severity"),
    [
        (2.0, 2.0, "cause"),
        (2.0, 3.0, "cause"),  # speculation helps, and not enough
        (3.0, 1.5, "contributing"),  # most of it is the speculative pool's own
        (2.0, 1.05, "ruled_out"),
        (0.9, 2.0, "contributing"),  # it is not slow at all
    ],
)
def test_both_pools_are_slow_where_the_standard_one_is_as_slow(
    ours: float, theirs: float, severity: str
) -> None:
    slow = {"load": 5.0, "answer_tokens": 90.0}  # 2970 ms by the baseline
    standard = LIVE.model_copy(update=slow | {"e2e_ms": 2970 * theirs})
    seen = live(**slow, e2e_ms=2970 * ours).model_copy(update={"baseline": BASELINE, "standard": standard})
    found = by_id(seen)["both-pools-slow"]
    assert found.severity == severity, found.message
    if severity == "cause":
        assert found.cause == "both pools are slow, so speculation is not the cause"
        assert first_cause(seen) == "both-pools-slow"


@pytest.mark.parametrize(
    ("percent", "not_drafting", "severity"),
    [
        (0.0, (), "cause"),
        (25.0, (), "contributing"),
        (100.0, (), "ruled_out"),
        (100.0, ("a:1",), "cause"),
        (None, ("a:1",), "cause"),
        (None, (), "ruled_out"),
    ],
)
def test_speculation_that_is_off_is_the_first_cause(
    percent: float | None, not_drafting: tuple[str, ...], severity: str
) -> None:
    switched = None if percent is None else RoutedShare(source="prometheus", percent=percent)
    seen = live(not_drafting=not_drafting, acceptance=0.1, stuck=("b:1",))
    seen = seen.model_copy(update={"routed_share": switched})
    assert by_id(seen)["speculation-off"].severity == severity
    assert first_cause(seen) == ("speculation-off" if severity == "cause" else "server-stuck")


@pytest.mark.parametrize(
    ("ours", "theirs", "severity"),
    [
        (0.3, None, "cause"),
        (0.3, 0.01, "cause"),
        (0.3, 0.28, "contributing"),
        (0.02, None, "ruled_out"),
        (None, 0.3, "unknown"),
    ],
)
def test_aborted_requests_are_the_speculative_pools_where_the_other_has_fewer(
    ours: float | None, theirs: float | None, severity: str
) -> None:
    standard = None if theirs is None else LIVE.model_copy(update={"aborted": theirs})
    seen = live(aborted=ours).model_copy(update={"standard": standard})
    assert by_id(seen)["requests-aborted"].severity == severity


def test_a_full_gpu_is_no_cause_while_its_kv_cache_has_room() -> None:
    full = GpuFigures(source="NVML", used_gib=77, total_gib=80)
    alone = Observations(rollout="made", gpu=full)
    assert by_id(alone)["gpu-memory-full"].severity == "contributing"
    roomy = live(kv_usage=0.4, preemptions_per_s=0.0).model_copy(update={"gpu": full})
    assert by_id(roomy)["gpu-memory-full"].severity == "ruled_out"
    tight = live(kv_usage=0.97, preemptions_per_s=0.2).model_copy(update={"gpu": full})
    found = by_id(tight)
    assert (found["gpu-memory-full"].severity, found["kv-cache-full"].severity) == ("cause", "cause")
    assert "K = 3" in (found["kv-cache-full"].fix or "")


def test_the_rule_for_a_weak_class_can_be_pasted_into_the_rollout_file() -> None:
    losing = ClassVerdict(verdict="no", reason="slower", e2e=SpeedupInterval(estimate=0.8, low=0.7, high=0.9))
    compared = FASTER.model_copy(update={"classes": {"code": losing, "maths": losing}})
    written: dict[str, dict[str, object]] = {"code": {"name": "code", "content": "def "}}
    found = by_id(Observations(rollout="made", compared=compared, classes=written))["weak-classes"]
    assert found.severity == "cause"
    pasted = Route.model_validate(yaml.safe_load(found.paste or "")["route"])
    assert [(one.name, one.content, one.speculate) for one in pasted.classes] == [
        ("code", "def ", False),
        ("maths", None, False),
    ]


def test_a_temperature_from_which_on_too_little_is_accepted_becomes_a_limit_of_the_router() -> None:
    swept = SWEPT.model_copy(update={"by_temperature": {0.0: 0.7, 0.7: 0.55, 1.0: 0.3}})
    found = by_id(Observations(rollout="made", sweep=swept))["high-temperature"]
    assert found.severity == "cause"
    assert "route.max_temperature: 0.7" in (found.fix or "")


def test_acceptance_that_fell_since_the_start_is_told_apart_from_traffic_that_changed() -> None:
    earlier = EarlierAcceptance(source="prometheus", week=0.45, after_start=0.7, up_hours=90)
    found = by_id(live(acceptance=0.45).model_copy(update={"earlier": earlier}))
    assert found["decay-with-uptime"].severity == "cause"
    assert found["acceptance-drift"].severity == "ruled_out"


def test_a_fall_within_the_error_of_few_tokens_is_no_cause() -> None:
    earlier = EarlierAcceptance(source="prometheus", week=0.6, after_start=0.6, up_hours=90)
    few = live(acceptance=0.48, drafted=210, per_position=(0.5,) * 5)
    found = by_id(few.model_copy(update={"earlier": earlier}))
    assert found["acceptance-drift"].severity == found["decay-with-uptime"].severity == "contributing"


def canaried(*statuses: str) -> DiagnosisFinding:
    checks = tuple(CanaryCheck(name=name, status=name, message="it is so", request=None) for name in statuses)
    seen = Observations(rollout="made", canary=CanaryFigures(source="canary.json", checks=checks))
    return by_id(seen)["requests-that-break"]


@pytest.mark.parametrize(
    ("statuses", "severity"),
    [
        (("undecided",), "unknown"),  # which is no evidence that nothing breaks
        (("unsupported", "undecided"), "unknown"),
        (("pass", "undecided"), "ruled_out"),
        (("pass", "differs"), "contributing"),
        (("pass", "differs", "fail"), "cause"),
    ],
)
def test_a_canary_that_decided_nothing_rules_nothing_out(statuses: tuple[str, ...], severity: str) -> None:
    found = canaried(*statuses)
    assert found.severity == severity
    if "undecided" in statuses:
        assert [one.what for one in found.evidence] == ["canary, undecided: undecided"]


@pytest.mark.parametrize(
    ("equal", "compared", "control", "severity"),
    [
        (11, 12, 1.0, "contributing"),  # one of twelve is chance
        (7, 12, 1.0, "cause"),  # five are not: 1 in 32
        (7, 12, 0.75, "contributing"),  # the standard does not repeat itself either
        (12, 12, 0.75, "ruled_out"),
        (7, 12, None, "contributing"),
    ],
)
def test_answers_that_differ_by_chance_are_no_fault(
    equal: int, compared: int, control: float | None, severity: str
) -> None:
    asked = FASTER.model_copy(
        update={"equal": equal, "compared": compared, "control": control, "mixed": True}
    )
    found = by_id(Observations(rollout="made", compared=asked))["greedy-differs"]
    assert found.severity == severity
    assert "where sampled requests share the batch" in found.message


@pytest.mark.parametrize(
    ("tokens", "gap_ms", "severity"),
    [(1.2, 300.0, "ruled_out"), (2.5, 40.0, "contributing"), (2.5, 180.0, "symptom")],
)
def test_bursts_are_a_fault_where_readers_see_them(tokens: float, gap_ms: float, severity: str) -> None:
    stream = StreamFigures(
        source="a server", requests=3, chunks=90, tokens_per_chunk=tokens, tokens_per_chunk_p95=4,
        gap_p50_ms=30, gap_p95_ms=gap_ms, tokens_per_s=25, buffer_ms=130.5,
    )  # fmt: skip
    found = by_id(Observations(rollout="made", stream=stream))["bursts-in-streams"]
    assert found.severity == severity
    if severity != "ruled_out":
        assert yaml.safe_load(found.paste or "") == {"tokens_per_second": 25.0, "buffer_ms": 140}
        assert "--disable-frontend-multiprocessing" in (found.fix or "")
