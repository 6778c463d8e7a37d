"""A standard that speculates, and an A/A, decide nothing; a stream interval decides as usual."""

from __future__ import annotations

from typing import Any

import pytest
from made_challengers import challenger, interval, no_gain, streams
from made_visits import ARMS, judged, visits

from specops.load.record import DraftCountsRecord
from specops.phases.ab.challengers import noise_of
from specops.phases.ab.report import Report
from specops.phases.ab.visits import AbSettings, VisitRecord

STANDARD, DRAFT = ARMS


def cells(made: list[VisitRecord], arm: str, **fields: Any) -> list[VisitRecord]:
    """`made` with other fields of the cells of `arm`."""
    return [
        visit.model_copy(update={"cell": visit.cell.model_copy(update=fields)}) if visit.arm == arm else visit
        for visit in made
    ]


def chunks(made: list[VisitRecord], arm: str, number: int) -> list[VisitRecord]:
    """With so many chunks in each answer of `arm`, which has ten tokens."""
    return [
        visit.model_copy(
            update={
                "cell": visit.cell.model_copy(
                    update={
                        "rows": tuple(row.model_copy(update={"chunks": number}) for row in visit.cell.rows)
                    }
                )
            }
        )
        if visit.arm == arm
        else visit
        for visit in made
    ]


def report(made: list[VisitRecord], **asked: Any) -> tuple[str, str, Report]:
    found = judged(made, **asked)
    return found.verdict, found.reason, Report.model_validate(found.data)


def void(found: Report) -> None:
    challenger = found.challengers[DRAFT]
    assert challenger.deploy == []
    assert challenger.pays_up_to is None
    decisions = [challenger.decision, *(level.decision for level in challenger.levels)]
    for of in challenger.classes.values():
        decisions += [of.decision, *(level.decision for level in of.levels)]
    assert {decision.verdict for decision in decisions} == {"undecided"}
    assert found.best is None


@pytest.mark.parametrize("speed", [2.0, 0.5])
def test_a_standard_whose_counters_grow_decides_nothing(speed: float) -> None:
    made = cells(visits(speed, concurrency=(1, 8)), STANDARD, verified=3.0)
    verdict, reason, found = report(made)
    assert verdict == "undecided"
    assert reason.startswith("the standard speculates: it verified ")
    void(found)


def test_counters_of_a_result_that_has_only_drafts_count() -> None:
    drafts = DraftCountsRecord(
        drafts=5.0, draft_tokens=15.0, accepted_tokens=9.0, accepted_per_position=(5.0,)
    )
    verdict, reason, _ = report(cells(visits(2.0), STANDARD, drafts=drafts))
    assert (verdict, "the standard speculates" in reason) == ("undecided", True)


def test_counters_that_stand_still_decide_as_usual() -> None:
    verdict, _, found = report(cells(visits(2.0), STANDARD, verified=0.0))
    assert (verdict, found.standard_note) == ("yes", None)


def test_swapped_pools_are_named() -> None:
    """The challenger is slower, since it is the one without speculation."""
    made = cells(visits(0.5), STANDARD, verified=9.0)
    made = cells(made, DRAFT, verified=0.0, drafts=None)
    verdict, reason, found = report(made)
    assert verdict == "undecided"
    assert reason.startswith("the pools look swapped: the standard speculates (it verified ")
    void(found)


def test_swapped_pools_without_metrics_are_named_by_their_chunks() -> None:
    made = cells(chunks(chunks(visits(0.5), STANDARD, 4), DRAFT, 10), DRAFT, drafts=None)
    verdict, reason, found = report(made)
    assert verdict == "undecided"
    assert reason == (
        "the pools look swapped: the standard sends 2.5 tokens a chunk, and the speculative one 1.0"
    )
    void(found)


def test_a_stream_interval_is_an_observation_and_decides_as_usual() -> None:
    made = chunks(chunks(visits(2.0), STANDARD, 4), DRAFT, 4)
    verdict, _, found = report(made)
    assert verdict == "yes"
    assert str(found.standard_note).startswith("the standard sends 2.5 tokens a chunk: it may speculate, or")
    assert report(visits(2.0))[2].standard_note is None


def test_chunks_that_are_joined_under_load_are_not_observed() -> None:
    made = [
        visit if visit.cell.level.concurrency == 1 else chunks([visit], STANDARD, 2)[0]
        for visit in visits(2.0, concurrency=(1, 8))
    ]
    assert report(made)[2].standard_note is None


def test_a_standard_that_was_configured_to_speculate_was_meant_to() -> None:
    made = cells(visits(2.0), STANDARD, verified=3.0)
    known = {STANDARD: {"pool": {"engine": "embedded", "speculation": {"tree": "ngram:8"}}}, DRAFT: {}}
    verdict, _, found = report(made, facts=known)
    assert verdict == "yes"
    assert str(found.standard_note).startswith("the standard speculates")
    swapped = cells(made, DRAFT, verified=0.0, drafts=None)
    assert report(swapped, facts=known)[0] == "undecided"


def test_a_challenger_that_failed_stays_a_no() -> None:
    made = cells(visits(2.0), STANDARD, verified=3.0)
    assert report(made, failed={DRAFT: "out of memory"})[0] == "no"


A_A = AbSettings(same_server=True)


@pytest.mark.parametrize("speed", [1.0, 1.02])
def test_an_a_a_reports_the_noise(speed: float) -> None:
    made = visits(speed, noise=0.05, concurrency=(1, 8))
    verdict, reason, found = report(made, settings=A_A)
    assert verdict == "undecided"
    void(found)
    assert found.same_server is not None
    one, eight = found.same_server
    assert (one.level.concurrency, eight.level.concurrency) == (1, 8)
    assert one.below is not None
    assert eight.below is not None
    assert one.e2e is not None
    assert one.below == pytest.approx(
        max(one.e2e.high / one.e2e.estimate, one.e2e.estimate / one.e2e.low) - 1, abs=1e-3
    )
    assert reason.startswith(
        f"an A/A of one server: differences below {100 * one.below:.1f}% at 1 stream, "
        f"{100 * eight.below:.1f}% at 8 streams are within the noise here"
    )


def test_an_a_a_is_never_deploy_and_says_where_the_server_differs_from_itself() -> None:
    verdict, reason, found = report(visits(1.5, noise=0.02), settings=A_A)
    assert verdict == "undecided"
    assert "; the server differs from itself: 1." in reason
    void(found)
    assert "differs" not in report(visits(1.0, noise=0.05), settings=A_A)[1]


def test_more_noise_hides_more() -> None:
    quiet = report(visits(1.0, noise=0.02), settings=A_A)[2].same_server
    loud = report(visits(1.0, noise=0.2), settings=A_A)[2].same_server
    assert quiet is not None
    assert loud is not None
    assert quiet[0].below is not None
    assert loud[0].below is not None
    assert loud[0].below > 4 * quiet[0].below


def test_an_a_a_of_few_prompts_says_so() -> None:
    verdict, reason, _ = report(visits(1.0, prompts=4, looks=1), settings=A_A, looks=1, looks_done=1)
    assert (verdict, reason) == ("undecided", "an A/A of one server: too few prompts for an interval")


@pytest.mark.parametrize(
    ("estimate", "low", "high", "below"),
    [(1.0, 0.98, 1.1, 0.1), (1.0, 0.8, 1.1, 0.25), (2.0, 1.6, 2.1, 0.25)],
)
def test_the_wider_side_of_an_interval_is_the_noise(
    estimate: float, low: float, high: float, below: float
) -> None:
    found = challenger(streams(1), {"a": [no_gain(1.0, 0.9, 1.1)]}, [no_gain(1.0, 0.9, 1.1)])
    (level,) = found.levels
    shown = level.speedups.model_copy(update={"e2e": interval(estimate, low, high)})
    wide = found.model_copy(update={"levels": [level.model_copy(update={"speedups": shown})]})
    assert noise_of({"b": wide})[0].below == pytest.approx(below)
