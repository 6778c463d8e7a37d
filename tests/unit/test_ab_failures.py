"""Requests that fail, hang or come late: every one that was sent counts for its arm."""

from __future__ import annotations

import re
from typing import Any

import pytest
from made_visits import ARMS, judged, visits

from specops.load.arrivals import Level
from specops.phases.ab.confounders import SLOW, RequestCounts, Requests
from specops.phases.ab.visits import AbSettings
from specops.stats import paired_difference

ONE = Level(concurrency=1)
FAILED = {"error": "http_500", "detail": "boom", "text": "", "tokens": None, "tpot_ms": None, "ttft_ms": None}


def nth(every: int, fields: dict[str, Any], arm: str = "draft") -> Any:
    """What happens to every so many-th of an arm's requests."""
    sent = {"standard": 0, "draft": 0}

    def answer(visit: Any, prompt: str, at: float) -> dict[str, Any]:
        sent[visit.arm] += 1
        return dict(fields) if visit.arm == arm and sent[arm] % every == 0 else {}

    return answer


def hung(ms: float, **fields: Any) -> dict[str, Any]:
    return {"e2e_ms": ms, "e2e_with_retries_ms": ms} | fields


HANGS = {
    "timeout of 5 s": hung(5000.0, **FAILED | {"error": "timeout"}),
    "10 s in the end": hung(10000.0),
    "aborted at once": hung(2.0, **FAILED | {"error": "aborted"}),
    "10 s before the first attempt is accepted": {"e2e_with_retries_ms": 10000.0, "retries": 2},
}


@pytest.mark.parametrize("what", HANGS)
@pytest.mark.parametrize(("every", "prompts"), [(20, 64), (20, 200), (40, 64), (13, 24)])
def test_an_arm_of_which_some_requests_hang_or_fail_never_deploys(what, every, prompts) -> None:
    found = judged(visits(4.0, prompts=prompts, answer=nth(every, HANGS[what])))
    assert (found.summary["deploy"], found.verdict in ("no", "undecided")) == ([], True), found.reason
    count = 2 * prompts // every
    happened = "failed" if "error" in HANGS[what] else "took over 10× the standard's median"
    assert f"{count} of {2 * prompts} requests {happened}" in found.reason


@pytest.mark.parametrize("speed", [1.0, 1.01])
def test_refusals_of_the_standard_are_no_speed_of_the_challenger(speed: float) -> None:
    waits = {"e2e_with_retries_ms": 300.0, "retries": 1}
    found = judged(visits(speed, prompts=96, noise=0.1, answer=nth(2, waits, "standard")))
    assert (found.summary["deploy"], found.verdict) == ([], "undecided")
    assert re.search(
        r"but only because of requests that failed or were refused \((0\.9|1\.0)\d×", found.reason
    )


@pytest.mark.parametrize(("every", "verdict"), [(4, "no"), (24, "undecided")])
def test_an_arm_that_refuses_at_first_never_deploys(every: int, verdict: str) -> None:
    """A client that does not ask again has no answer."""
    waits = {"retries": 1}
    found = judged(visits(1.6, prompts=48, answer=nth(every, waits)))
    assert (found.summary["deploy"], found.verdict) == ([], verdict)
    assert f"{96 // every} of 96 requests were refused at first (standard: 0 of 96;" in found.reason
    both = judged(visits(1.6, prompts=48, answer=lambda *_: dict(waits)))
    assert both.verdict == "yes", both.reason


def test_a_share_that_is_surely_higher_is_a_no_and_one_that_may_be_is_undecided() -> None:
    sure = judged(visits(2.0, prompts=96, answer=nth(10, FAILED)))
    assert sure.verdict == "no"
    assert "19 of 192 requests failed (standard: 0 of 192; difference +9.9 [" in sure.reason
    possible = judged(visits(2.0, prompts=96, answer=nth(100, FAILED)))
    assert possible.verdict == "undecided"
    assert "1 of 192 requests failed" in possible.reason
    # One failure is half a point of 200 requests, which are 100 prompts.
    assert "about 4 more prompts without such a request would decide" in possible.reason
    enough = judged(visits(2.0, prompts=104, answer=nth(150, FAILED)))
    assert (enough.verdict, len(enough.summary["deploy"])) == ("yes", 3)
    tolerant = AbSettings(failure_margin=0.2)
    assert judged(visits(2.0, prompts=96, answer=nth(10, FAILED)), settings=tolerant).verdict == "yes"


def test_no_failure_decides_with_the_usual_prompts() -> None:
    found = judged(visits(2.0, prompts=64))
    assert found.verdict == "yes"
    counted = found.data["challengers"]["draft"]["levels"][0]["failures"]
    assert (counted["challenger"], counted["difference"]["high"]) == (0, 0.0)


def test_failures_of_both_arms_alike_are_no_difference() -> None:
    def both(visit: Any, prompt: str, at: float) -> dict[str, Any]:
        return dict(FAILED) if int(prompt[1:]) % 24 == 0 else {}

    assert judged(visits(2.0, prompts=96, answer=both)).verdict == "yes"


def test_a_gain_that_only_failures_of_the_standard_make_is_none() -> None:
    every = nth(20, hung(60000.0, **FAILED), arm="standard")
    found = judged(visits(1.0, prompts=96, classes=("chat",), answer=every))
    assert (found.verdict, found.summary["deploy"]) == ("undecided", [])
    assert (
        judged(visits(2.0, prompts=96, classes=("chat",), answer=nth(40, FAILED, "standard"))).verdict
        == "yes"
    )


BOUND = "the client was the bottleneck: requests waited 9 ms"


def test_a_client_that_was_the_bottleneck_leaves_its_load_undecided() -> None:
    made = visits(2.0, prompts=96, concurrency=(1, 8))

    def bound(visit: Any) -> Any:
        if visit.cell.concurrency != 8 or visit.arm == "standard":
            return visit
        return visit.model_copy(update={"cell": visit.cell.model_copy(update={"client_bound": BOUND})})

    found = judged([bound(visit) for visit in made])
    assert {one["level"]["concurrency"] for one in found.summary["deploy"]} == {1}
    levels = found.data["challengers"]["draft"]["levels"]
    assert [level["client_bound"] for level in levels] == [None, BOUND]
    assert levels[1]["decision"]["verdict"] == "undecided"
    assert f"at 8 streams undecided ({BOUND})" in found.reason
    slow = judged([bound(visit) for visit in visits(0.5, prompts=96, concurrency=(1, 8))])
    assert slow.data["challengers"]["draft"]["levels"][1]["decision"]["verdict"] == "undecided"


def test_a_longer_tail_vetoes_where_it_is_sure() -> None:
    """Four times as long is no hang; a tenth of all requests is surely more than none."""
    late = judged(visits(2.0, prompts=96, answer=nth(10, {"slower": 8.0})))
    assert late.verdict == "no"
    assert re.search("1[89] of 192 requests took over 3× the standard's median", late.reason)
    few = judged(visits(2.0, prompts=96, answer=nth(64, {"slower": 8.0})))
    assert few.verdict == "yes"


def test_slow_is_over_ten_times_what_the_standard_takes() -> None:
    def counted(factor: float, **made: Any) -> RequestCounts:
        answer = nth(8, {"slower": factor})
        of = visits(1.0, prompts=48, noise=0.0, classes=("chat",), answer=answer, **made)
        found = Requests.of(of, *ARMS, ONE).counted("slow", 0.95)
        assert found is not None
        return found

    assert (counted(60.0).challenger, counted(60.0).standard) == (12, 0)
    assert counted(1.0).challenger == 0
    assert (
        counted(SLOW - 0.1).challenger == 0
    )  # of a prompt that is longer than the median, ten times its own


def test_a_standard_that_hangs_as_often_is_no_difference() -> None:
    def both(visit: Any, prompt: str, at: float) -> dict[str, Any]:
        return hung(30000.0) if int(prompt[1:]) % 24 == visit.round else {}

    made = visits(2.0, prompts=96, classes=("chat",), answer=both)
    found = Requests.of(made, *ARMS, ONE).counted("slow", 0.95)
    assert found is not None
    assert (found.standard, found.challenger, found.only_challenger) == (8, 8, 0)


def test_tails_are_in_the_data_of_each_arm() -> None:
    found = judged(visits(2.0, prompts=96, answer=nth(40, hung(30000.0))))
    standard, draft = (found.data["arms"][arm][0] for arm in ARMS)
    assert (standard["slow"], draft["slow"]) == (0, 4)
    assert draft["slowest_ms"] == [30000.0] * 3
    assert draft["e2e_ms"]["p99"] == 30000.0
    failed = judged(visits(2.0, prompts=96, answer=nth(40, FAILED))).data["arms"]["draft"][0]
    assert (failed["failed"], failed["failures"]) == (4, {"http_500": 4})


def counted(standard: int, challenger: int, pairs: int = 200) -> RequestCounts:
    return RequestCounts(
        kind="failed",
        pairs=pairs,
        prompts=pairs // 2,
        standard=standard,
        challenger=challenger,
        only_standard=standard,
        only_challenger=challenger,
        difference=paired_difference(standard, challenger, pairs),
    )


@pytest.mark.parametrize(
    ("standard", "challenger", "sure", "possible"),
    [
        (0, 0, False, False),
        (0, 1, False, False),  # half a point at most, which is the margin
        (0, 2, False, True),
        (2, 2, False, False),  # no evidence that it is more
        (2, 3, False, True),
        (3, 2, False, False),
        (0, 6, False, True),
        (0, 8, True, True),
    ],
)
def test_what_is_sure_and_what_is_possible(standard, challenger, sure, possible) -> None:
    found = counted(standard, challenger)
    assert (found.surely_more(0.005), found.possibly_more(0.005)) == (sure, possible)


def test_as_many_more_prompts_would_decide() -> None:
    assert counted(0, 2).more_prompts(0.005) == 100
    assert not counted(0, 2, 400).possibly_more(0.005)
    assert counted(0, 2, 398).possibly_more(0.005)


def test_nothing_that_was_sent_to_one_arm_alone_is_compared() -> None:
    only = [visit for visit in visits(2.0) if visit.arm == "standard"]
    assert Requests.of(only, *ARMS, ONE).counted("failed", 0.95) is None


def test_stumps_of_answers_are_counted_against_the_other_arms_answers() -> None:
    stump = {"text": "an"}
    found = judged(visits(2.0, prompts=96, answer=nth(12, stump)), temperature=0.7)
    assert found.verdict == "no"
    assert (
        "16 of 192 requests got less than a third of the other arm's answer (standard: 0 of 192;"
        in found.reason
    )
    accepted = AbSettings(accept_length_change=True)
    records = visits(2.0, prompts=96, answer=nth(12, stump))
    assert judged(records, settings=accepted, temperature=0.7).verdict == "yes"
    standards = judged(visits(2.0, prompts=96, answer=nth(12, stump, "standard")), temperature=0.7)
    assert "a third of the other arm's answer" not in standards.reason
