"""What changed on the way is found, and what did not change is not."""

from __future__ import annotations

import itertools
import math
import re
from pathlib import Path
from typing import Any

import pytest
from made_visits import ARMS, judged, visits

from specops.load.settings import BaselineSettings
from specops.phases.ab.challengers import unless_pauses_made_it
from specops.phases.ab.drift import Drift, found, halves, lowest, one_sided
from specops.phases.ab.evidence import Evidence
from specops.phases.ab.speedups import pair_up
from specops.phases.ab.verdict import Decision
from specops.phases.ab.visits import AbSettings, Visit
from specops.stats import Interval


def drifts(**made: Any) -> dict[tuple[str, str], Drift]:
    return {(drift.kind, drift.arm): drift for drift in found(visits(2.0, **made), ARMS, 0.95)}


def slowing(arm: str | None, rate: float = 0.05, tpot_ms: float = 5.0) -> Any:
    """An arm, or both, that get slower by `rate` of what they were with every second of the run."""

    def answer(visit: Any, prompt: str, at: float) -> dict[str, Any]:
        slower = 1 + rate * at if arm in (None, visit.arm) else 1.0
        return {"slower": slower, "tpot_ms": slower * (tpot_ms if visit.arm == "draft" else 10.0)}

    return answer


def steady(visit: Any, prompt: str, at: float) -> dict[str, Any]:
    return {"tpot_ms": 5.0 if visit.arm == "draft" else 10.0}


@pytest.mark.parametrize("design", ["interleaved", "abba-restart"])
def test_nothing_is_found_where_nothing_changes(design) -> None:
    checks = drifts(design=design, concurrency=(1, 4), noise=0.05)
    assert len(checks) == 8
    assert not any(drift.flagged for drift in checks.values())


@pytest.mark.parametrize("concurrency", [(1,), (1, 4), (4, 1)])
@pytest.mark.parametrize("looks", [1, 4])
def test_a_server_that_slows_down_is_found_and_named(concurrency, looks) -> None:
    checks = drifts(answer=slowing("draft"), concurrency=concurrency, looks=looks)
    assert {key for key, drift in checks.items() if drift.flagged} >= {
        ("slow-down", "draft"),
        ("speed-up", "draft"),
    }
    assert not checks["slow-down", "standard"].flagged
    assert checks["slow-down", "draft"].change.estimate > 1.05
    assert checks["speed-up", "draft"].change.estimate < 0.95
    assert checks["slow-down", "draft"].message.startswith(
        "latency of draft from the beginning to the end: +"
    )


def test_prompts_that_one_level_lacks_do_not_hide_a_trend() -> None:
    made = visits(2.0, answer=slowing("draft"), concurrency=(1, 4), looks=1, prompts=64)
    some = [visit for visit in made if visit.cell.concurrency == 1 or visit.block < 4]
    whole, part = (
        next(d for d in found(records, ARMS, 0.95) if (d.kind, d.arm) == ("speed-up", "draft"))
        for records in (made, some)
    )
    assert part.change.estimate == pytest.approx(whole.change.estimate, rel=0.1)


def test_a_machine_that_slows_down_all_alike_is_no_arms_fault() -> None:
    made = visits(2.0, answer=slowing(None))
    checks = found(made, ARMS, 0.95)
    assert {drift.arm for drift in checks if drift.flagged and drift.kind == "slow-down"} == set(ARMS)
    assert one_sided(checks, "draft") is None


def test_going_first_may_matter() -> None:
    def answer(visit: Any, prompt: str, at: float) -> dict[str, Any]:
        return {"slower": 1.3 if visit.arm == "draft" and visit.order == 0 else 1.0}

    order = drifts(answer=answer)["order", "draft"]
    assert order.flagged
    assert order.change.estimate == pytest.approx(1 / 1.3, rel=0.03)
    one_round = drifts(answer=answer, rounds=1)["order", "draft"]
    assert one_round.change.estimate == pytest.approx(1 / 1.3, rel=0.05)


def test_a_warm_up_that_was_too_short_is_found() -> None:
    def answer(visit: Any, prompt: str, at: float) -> dict[str, Any]:
        cold = visit.arm == "draft" and (visit.stage, visit.block, visit.round) == (0, 0, 0)
        return {"tpot_ms": 20.0 if cold else 10.0}

    checks = drifts(answer=answer, concurrency=(4, 8))
    assert checks["warm-up", "draft"].flagged
    assert checks["warm-up", "draft"].change.estimate > 1.5
    assert not checks["warm-up", "standard"].flagged


def waking(*arms: str) -> Any:
    """The first request of each visit takes six times as long."""
    visited: dict[str, Visit] = {}

    def answer(visit: Visit, prompt: str, at: float) -> dict[str, Any]:
        wakes = visit.arm in arms and visited.get(visit.arm) != visit
        visited[visit.arm] = visit
        return {"slower": 6.0 if wakes else 1.0}

    return answer


def test_a_standard_that_wakes_up_in_each_visit_makes_no_gain() -> None:
    found = judged(visits(1.0, prompts=64, answer=waking("standard")))
    assert (found.verdict, found.summary["deploy"]) == ("undecided", [])
    assert "speed-up of draft in the first half of each visit, compared with the second half" in found.reason
    assert "an idle arm may be slow at first" in found.reason
    assert "only" not in judged(visits(1.0, prompts=64)).reason


@pytest.mark.parametrize("arms", [("standard",), ("draft",), ("standard", "draft")])
def test_a_gain_in_both_halves_of_the_visits_stands(arms: tuple[str, ...]) -> None:
    found = judged(visits(3.0, prompts=64, answer=waking(*arms)))
    assert "an idle arm may be slow at first" not in found.reason
    assert (found.verdict == "yes") == (arms != ("draft",)), found.reason


@pytest.mark.parametrize(("size", "streams"), [(3, 2), (4, 2), (6, 4)])
def test_the_first_half_of_a_visit_has_what_begins_together(size: int, streams: int) -> None:
    """The first requests of all streams wake the standard up, also where they are most of a visit."""
    made = []
    for visit in visits(1.0, prompts=12 * size, concurrency=(streams,), looks=1, noise=0.01):
        rows = visit.cell.rows[:size]
        waking = visit.arm == "standard"
        slow = [4.0 if waking and at < streams else 1.0 for at in range(len(rows))]
        rows = tuple(
            row.model_copy(update=dict.fromkeys(("e2e_ms", "e2e_with_retries_ms"), f * row.e2e_ms))
            for row, f in zip(rows, slow, strict=True)
        )
        made.append(visit.model_copy(update={"cell": visit.cell.model_copy(update={"rows": rows})}))
    (halves,) = [one for one in found(made, ARMS, 0.95) if one.kind == "visit"]
    assert halves.change is not None
    assert halves.change.estimate > 3.0


def test_a_gain_in_one_order_alone_is_no_gain() -> None:
    """Each of the standard's visits after the other's is slow from beginning to end."""

    def answer(visit: Visit, prompt: str, at: float) -> dict[str, Any]:
        return {"slower": 2.0 if visit.arm == "standard" and visit.order == 1 else 1.0}

    found = judged(visits(1.0, prompts=96, answer=answer))
    assert (found.verdict, found.summary["deploy"]) == ("undecided", []), found.reason
    assert "when it goes first, compared with when it goes second: +" in found.reason
    assert "an idle arm may be slow at first, and the slower part does not show the gain (1.0" in found.reason
    assert judged(visits(1.5, prompts=96, answer=answer)).verdict == "yes"


def until(share: float, before: float, after: float, prompts: int = 96) -> Any:
    """The challenger is `before` times as fast until that share of its requests, then `after` times."""
    sent = itertools.count()

    def answer(visit: Visit, prompt: str, at: float) -> dict[str, Any]:
        if visit.arm != "draft":
            return {}
        return {"slower": 1 / before if next(sent) < share * 2 * prompts else 1 / after}

    return answer


@pytest.mark.parametrize("share", [0.3, 0.6, 0.85, 0.9])
@pytest.mark.parametrize("factor", [1.5, 4.0])
def test_a_gain_of_the_first_minutes_alone_is_no_gain(share: float, factor: float) -> None:
    found = judged(visits(1.0, prompts=96, answer=until(share, factor, 0.99)))
    assert (found.verdict, found.summary["deploy"]) == ("undecided", []), found.reason
    assert re.search(r"drifted|the slower part does not show the gain", found.reason)


def test_a_gain_that_begins_late_is_no_gain() -> None:
    found = judged(visits(1.0, prompts=96, answer=until(0.15, 0.99, 1.5)))
    assert found.verdict == "undecided"
    assert "speed-up of draft after its largest change, compared with before: +5" in found.reason
    assert re.search(r"the slower part does not show the gain \((0.9|1.0)\d× \[0.9", found.reason)
    assert "over the whole run: deploy for" in found.reason


@pytest.mark.parametrize(("before", "after"), [(2.0, 1.4), (1.4, 2.0)])
def test_a_gain_that_changes_and_stays_one_stands(before: float, after: float) -> None:
    found = judged(visits(1.0, prompts=96, answer=until(0.8, before, after)))
    assert found.verdict == "yes", found.reason
    (step,) = [one for one in found.data["drift"] if one["kind"] == "step"]
    assert step["flagged"]
    assert step["change"]["estimate"] == pytest.approx(after / before, rel=0.03)


def test_too_few_prompts_are_said() -> None:
    checks = drifts(prompts=3)
    assert all(drift.change is None and not drift.flagged for drift in checks.values())
    assert all("too few prompts" in drift.message for drift in checks.values())


def test_a_small_change_is_not_flagged_however_sure() -> None:
    checks = drifts(answer=slowing("draft", 0.001), noise=0.0, prompts=96)
    trend = checks["slow-down", "draft"]
    assert trend.change.low > 1
    assert not trend.flagged


def test_a_gain_that_one_half_of_the_run_does_not_show_is_no_gain() -> None:
    """Four times as fast in the beginning, no faster at the end: on average faster."""
    found = judged(visits(4.0, prompts=96, classes=("chat",), answer=slowing("draft", 0.12, 2.5)))
    assert found.verdict == "undecided"
    assert "speed-up of draft from the beginning to the end: -" in found.reason
    assert "and the gain is not shown throughout the run: " in found.reason
    assert "over the whole run: deploy for chat" in found.reason


def test_a_gain_that_both_halves_show_stands_and_the_drift_is_named() -> None:
    found = judged(visits(4.0, answer=slowing("draft", 0.03)), settings=AbSettings())
    assert found.verdict == "yes"
    assert "both halves of the run show the gain" in found.reason


def test_a_gain_that_the_standard_made_by_slowing_down_is_no_gain() -> None:
    """Equal at first, and the standard takes three times as long at the end: each half shows a gain."""
    sent = itertools.count()

    def threefold(visit: Any, prompt: str, at: float) -> dict[str, Any]:
        slower = 1 + 2 * next(sent) / (96 * 2 * 2)
        return {"slower": slower if visit.arm == "standard" else 1.0}

    made = visits(1.0, prompts=96, classes=("chat",), noise=0.02, answer=threefold)
    found = judged(made)
    pairs = pair_up(made, *ARMS, "interleaved")
    assert all(half is not None and half.low > 1 for half in halves(pairs, 0.95))
    assert found.verdict == "undecided"
    assert re.search(
        r" in its halves, and (0\.9|1\.[01])\d× \[0\.\d+, 1\.\d+\] at the worse end; over", found.reason
    )


@pytest.mark.parametrize(("change", "low"), [(1.0, 1.41), (3.0, 0.705), (1 / 3, 0.705)])
def test_the_worse_end_is_below_the_mean_by_what_an_even_change_makes(change: float, low: float) -> None:
    pairs = pair_up(visits(1.41, noise=0.0), *ARMS, "interleaved")
    shown = Interval(math.sqrt(change), min(1.0, change), max(1.0, change), 48)
    drifted = Drift(kind="speed-up", arm="draft", change=shown, flagged=True, message="")
    found = lowest(pairs, drifted, 0.95)
    assert found is not None
    assert found.estimate == pytest.approx(low)
    assert lowest(pairs, drifted.model_copy(update={"change": None}), 0.95) is None


def sustained(speed: Any) -> list[Any]:
    """One visit of each arm, of all prompts."""
    made = visits(speed, rounds=1, looks=1)
    found = []
    for arm in ARMS:
        ours = [visit for visit in made if visit.arm == arm]
        rows = [row for visit in ours for row in visit.cell.rows]
        rows = [row.model_copy(update={"sent_s": float(at)}) for at, row in enumerate(rows)]
        found.append(
            ours[0].model_copy(update={"cell": ours[0].cell.model_copy(update={"rows": tuple(rows)})})
        )
    return found


def test_a_gain_that_requests_without_a_pause_do_not_show_is_no_gain() -> None:
    found = judged(visits(2.0), sustained=sustained(1.0))
    assert (found.verdict, found.summary["deploy"]) == ("undecided", [])
    assert (
        "speed-up of draft in visits between pauses, compared with requests without a pause: +"
        in found.reason
    )
    assert "an idle arm may be slow at first" in found.reason


@pytest.mark.parametrize("speed", [2.0, 1.3, 3.0])
def test_a_gain_that_requests_without_a_pause_show_too_stands(speed: float) -> None:
    found = judged(visits(2.0), sustained=sustained(speed))
    assert found.verdict == "yes"
    idle = next(one for one in found.data["drift"] if one["kind"] == "idle")
    assert idle["flagged"] == (speed != 2.0)


@pytest.mark.parametrize(("without", "verdict"), [(1.0, "undecided"), (0.8, "undecided"), (1.3, "yes")])
def test_a_gain_of_a_few_slow_requests_after_pauses_is_no_gain(without: float, verdict: str) -> None:
    """Two in five requests of the standard are slow; the usual request is as fast as without a pause."""

    def answer(visit: Any, prompt: str, at: float) -> dict[str, Any]:
        slow = visit.arm == "standard" and int(prompt[1:]) % 5 < 2
        return {"tpot_ms": 60.0, "e2e_ms": 600.0, "e2e_with_retries_ms": 600.0} if slow else {}

    found = judged(visits(without, prompts=96, answer=answer), sustained=sustained(without))
    assert found.verdict == verdict, found.reason
    assert "an idle arm may be slow at first" not in found.reason or verdict == "undecided"


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [(0.9, 1.1, "undecided"), (1.01, 1.1, "yes"), (0.9, 1.5, "yes"), (0.9, 1.39, "undecided")],
)
def test_requests_without_a_pause_that_may_show_the_whole_gain_leave_it(
    low: float, high: float, verdict: str
) -> None:
    gain = Decision(verdict="yes", reason="deploy")
    found = unless_pauses_made_it(gain, Interval(1.6, 1.4, 1.9, 48), Interval(1.05, low, high, 16))
    assert found.verdict == verdict
    assert unless_pauses_made_it(gain, None, Interval(1.05, low, high, 16)) is gain


def test_a_gain_of_one_class_is_compared_with_that_class_without_a_pause() -> None:
    """The others are slower; all together show no gain without a pause."""

    def speed(arm: str, name: str) -> float:
        return 1.0 if arm == "standard" else {"edit": 3.0}.get(name, 0.6)

    found = judged(visits(speed, prompts=96), sustained=sustained(speed))
    assert found.verdict == "yes", found.reason
    assert [one["traffic_class"] for one in found.summary["deploy"]] == ["edit"]


@pytest.mark.parametrize(("speed", "needed"), [(2.0, ["standard", "draft"]), (1.0, []), (0.7, [])])
def test_only_a_gain_needs_requests_without_a_pause(speed: float, needed: list[str]) -> None:
    made = visits(speed)
    plan = [
        Visit(one.stage, one.cell.level, one.block, one.round, one.order, one.period, one.arm, ())
        for one in made
    ]
    requests = BaselineSettings(base_url="http://127.0.0.1:1/v1", model="m", prompts=Path("prompts.json"))
    evidence = Evidence(plan, ARMS, requests, AbSettings(), visits={one.key: one for one in made})
    found = []
    while (arm := evidence.next_sustained(ARMS)) is not None:
        found.append(arm)
        evidence.sustained[arm] = made[0]
    assert found == needed
    same = Evidence(plan, ARMS, requests, AbSettings(same_server=True), visits=evidence.visits)
    assert same.next_sustained(ARMS) is None


def test_only_the_second_half_without_a_pause_counts() -> None:
    """In the first half a server may still be waking up."""
    made = sustained(1.0)
    slow = [
        row.model_copy(update={"tpot_ms": 9 * row.tpot_ms}) if row.sent_s < 24 else row
        for row in made[0].cell.rows
    ]
    made[0] = made[0].model_copy(update={"cell": made[0].cell.model_copy(update={"rows": tuple(slow)})})
    assert judged(visits(2.0), sustained=made).verdict == "undecided"


def without_a_pause(arm: int, change: Any, many: int) -> list[Any]:
    """Requests without a pause, of which `change` applies to the first `many` of an arm."""
    made = sustained(2.0)
    rows = tuple(
        row.model_copy(update=change(row)) if number < many else row
        for number, row in enumerate(made[arm].cell.rows)
    )
    made[arm] = made[arm].model_copy(update={"cell": made[arm].cell.model_copy(update={"rows": rows})})
    return made


HANGS = lambda row: {"e2e_ms": 3000.0, "e2e_with_retries_ms": 3000.0}  # noqa: E731
FAILS = lambda row: {"error": "http"}  # noqa: E731
LOOPS = lambda row: {"text": " the" * 200}  # noqa: E731
STOPS = lambda row: {"tokens": row.tokens // 2, "text": row.text[: len(row.text) // 2]}  # noqa: E731
STARTS = lambda row: {"text": row.text[:1]}  # noqa: E731


@pytest.mark.parametrize(
    ("change", "many", "verdict", "words"),
    [
        (FAILS, 1, "undecided", r"1 of 144 requests failed \(standard: 0 of 144"),
        (FAILS, 12, "no", r"12 of 144 requests failed \(standard: 0 of 144"),
        (HANGS, 1, "undecided", r"1 of 144 requests took over 10×"),
        (HANGS, 12, "no", r"12 of 144 requests took over 10×"),
        (LOOPS, 12, "no", r"repeats one passage|to repeated prompts change"),
        (LOOPS, 4, "undecided", r"same answer as another prompt"),
        (STARTS, 12, "no", r"less than a third|to repeated prompts change"),
        (STOPS, 30, "no", r"to repeated prompts change"),
    ],
)
def test_requests_without_a_pause_count_like_all_others(
    change: Any, many: int, verdict: str, words: str
) -> None:
    """A server that does wrong only when it is busy would be deployed for what it does between pauses."""
    found = judged(visits(2.0), sustained=without_a_pause(1, change, many))
    assert found.verdict == verdict, found.reason
    assert re.search(words, found.reason)
    (figures,) = found.data["arms"]["draft"]
    assert figures["requests"] == 96 + 48
    assert (figures["failed"], figures["slow"]) == (many * (change is FAILS), many * (change is HANGS))
    if change in (FAILS, HANGS):  # and not against the challenger where the standard does it
        assert judged(visits(2.0), sustained=without_a_pause(0, change, many)).verdict == "yes"


@pytest.mark.parametrize(
    ("arm", "accepted", "verdict"), [(1, False, "no"), (1, True, "yes"), (0, False, "undecided")]
)
def test_answers_without_a_pause_that_have_other_lengths_are_no_gain(
    arm: int, accepted: bool, verdict: str
) -> None:
    """At a temperature above 0 no answer is the same twice; their lengths still are, in the mean."""
    made = without_a_pause(arm, STOPS, 99)
    settings = AbSettings(accept_length_change=accepted)
    found = judged(visits(2.0), sustained=made, temperature=0.7, settings=settings)
    assert found.verdict == verdict, found.reason
    assert ("when requests are sent without a pause" in found.reason) == (verdict != "yes")
