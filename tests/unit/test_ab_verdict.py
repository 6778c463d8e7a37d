"""The verdict: what deploys, what does not, what is not known, and that luck does not decide it."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_visits import ARMS, CLASSES, judged, visits
from pydantic import ValidationError

from specops import stats
from specops.load.arrivals import Level
from specops.load.record import Row
from specops.phases.ab.challengers import of_challenger, overall, unless_answers_differ
from specops.phases.ab.parity import Matches, Parity, Witness
from specops.phases.ab.speedups import Pair, Pairs
from specops.phases.ab.verdict import (
    Cell,
    Confidences,
    Decision,
    Verdicts,
    in_sequence,
    look,
    of_cell,
    of_look,
    paying,
    pays_up_to,
    times,
)
from specops.phases.ab.visits import AbSettings, VisitRecord

THREE = ("standard", "chain", "ngram")


def speeds(**of_class: float) -> Any:
    return lambda arm, name: 1.0 if arm == "standard" else of_class[name]


def deployed(found: Any) -> list[tuple[str, int]]:
    return [(one["traffic_class"], one["level"]["concurrency"]) for one in found.summary["deploy"]]


def test_a_class_that_gains_deploys_and_one_that_loses_does_not() -> None:
    found = judged(visits(speeds(edit=0.8, long=2.0, short=1.0), noise=0.1))
    assert found.verdict == "yes"
    assert deployed(found) == [("long", 1)]
    assert found.reason.startswith("deploy for long at 1 stream; not for edit: 0.79× [")
    assert "undecided for short: " in found.reason
    assert found.summary["e2e_speedup"]["estimate"] == pytest.approx(1.13, rel=0.1)


@pytest.mark.parametrize(
    ("speed", "noise", "verdict"),
    [
        (1.003, 0.0005, "undecided"),
        (1.008, 0.0005, "undecided"),
        (1.009, 0.006, "undecided"),  # the interval reaches above 1.01
        (1.02, 0.0005, "yes"),
    ],
)
def test_a_gain_below_a_hundredth_is_not_deployed_however_sure_it_is(
    speed: float, noise: float, verdict: str
) -> None:
    found = judged(visits(speed, noise=noise))
    assert found.verdict == verdict
    interval = found.summary["e2e_speedup"]
    assert 1 < interval["low"] < interval["high"] < 1.03
    assert ("a gain below 1% may be the client's error" in found.reason) == (verdict == "undecided")


def waiting(ms: float, tpot_factor: float = 1.0) -> Any:
    """The standard begins each answer so much later; its tokens take `tpot_factor` times as long."""

    def answer(visit: Any, prompt: str, at: float) -> dict[str, Any]:
        standard = visit.arm == "standard"
        noise = 1 + (int(prompt[1:]) * (3 if standard else 5) + visit.round) % 7 / 100
        later = {"added_ms": ms, "ttft_ms": 20.0 + ms} if standard else {}
        return later | {"tpot_ms": 10.0 * noise * (tpot_factor if standard else 1.0)}

    return answer


def test_first_tokens_alone_that_come_earlier_are_no_speculation() -> None:
    """A standard with a limit of requests, or without a prefix cache, makes its users wait for them."""
    found = judged(visits(1.0, answer=waiting(100.0)))
    assert (found.verdict, found.summary["deploy"]) == ("undecided", [])
    assert re.search(
        r"undecided for edit: 1\.\d\d× \[.*\], but 1\.0\d× \[.*\] per output token: first tokens come",
        found.reason,
    )
    both = judged(visits(1.0, answer=waiting(100.0, tpot_factor=1.5)))
    assert both.verdict == "yes", both.reason


def test_a_gain_of_first_tokens_is_not_counted_beside_a_smaller_one_per_token() -> None:
    found = judged(visits(1.0, prompts=96, answer=waiting(100.0, tpot_factor=1.1)))
    assert found.verdict == "yes"
    (edit, *_) = found.data["challengers"]["draft"]["classes"]["edit"]["levels"]
    assert edit["decision"]["basis"] == "tpot"
    assert 1.05 < edit["decision"]["speedup"]["estimate"] < 1.15
    reason = edit["decision"]["reason"]
    assert re.search(r"per output token; end to end it is [1-9]\.\d\d×.*: first tokens come earlier", reason)


@pytest.mark.parametrize(("tpot_factor", "basis"), [(1.1, "tpot"), (1.3, "e2e")])
def test_first_tokens_decide_where_they_make_more_than_half_of_a_gain(tpot_factor: float, basis: str) -> None:
    """The standard begins 25 ms later, of about 100."""
    found = judged(visits(1.1, prompts=96, noise=0.01, answer=waiting(25.0, tpot_factor=tpot_factor)))
    (edit, *_) = found.data["challengers"]["draft"]["classes"]["edit"]["levels"]
    assert 1.25 < edit["e2e"]["estimate"] < 1.5
    assert edit["decision"]["basis"] == basis


@pytest.mark.parametrize(
    ("added_ms", "verdict"),
    [(0.0, "yes"), (45.0, "no"), (28.0, "undecided"), (29.0, "undecided"), (-10.0, "yes")],
)
def test_a_gain_per_token_does_not_count_where_answers_of_equal_length_take_as_long(
    added_ms: float, verdict: str
) -> None:
    """With random lengths the time per token decides: a slower start must not be forgotten."""

    def answer(visit: Any, prompt: str, at: float) -> dict[str, Any]:
        draft = visit.arm == "draft"
        tokens = random.Random(f"{prompt} {visit.arm} {visit.round}").randint(8, 20)
        noise = 1 + (int(prompt[1:]) * (3 if draft else 5) + visit.round) % 7 / 100
        tpot, ttft = (2.0 if draft else 4.0) * noise, 20.0 + (added_ms if draft else 0.0)
        e2e = ttft + tpot * tokens
        return {
            "tpot_ms": tpot, "ttft_ms": ttft, "e2e_ms": e2e, "e2e_with_retries_ms": e2e, "tokens": tokens,
            "text": f"{prompt} " * tokens, "finish_reason": "stop",
        }  # fmt: skip

    found = judged(visits(1.0, prompts=192, answer=answer), temperature=0.7)
    (edit, *_) = found.data["challengers"]["draft"]["classes"]["edit"]["levels"]
    assert edit["decision"]["basis"] == "tpot"
    assert 1.8 < edit["tpot"]["estimate"] < 2.2
    assert edit["decision"]["verdict"] == verdict, edit["decision"]
    assert ("end to end at equal length" in edit["decision"]["reason"]) == (verdict != "yes")


def test_a_standard_that_ends_its_streams_late_is_named_so() -> None:
    def late(visit: Any, prompt: str, at: float) -> dict[str, Any]:
        noise = 1 + (int(prompt[1:]) * (3 if visit.arm == "standard" else 5) + visit.round) % 7 / 100
        return ({"added_ms": 100.0} if visit.arm == "standard" else {}) | {"tpot_ms": 10.0 * noise}

    found = judged(visits(1.0, answer=late))
    assert found.verdict == "undecided"
    assert "the gain lies between the last token and the end of the answer" in found.reason


def test_an_end_of_an_interval_that_says_nothing_is_no_figure() -> None:
    assert times(stats.Interval(1.07, 0.0000009, 1068534.6, 2)) == "1.07× [<0.01, >100]"
    assert times(stats.Interval(1.07, 0.01, 100.0, 2)) == "1.07× [0.01, 100.00]"


def test_speculation_that_helps_nobody_is_a_no() -> None:
    found = judged(visits(0.8))
    assert (found.verdict, found.summary["deploy"]) == ("no", [])
    assert found.reason.startswith("do not deploy: edit: 0.80× [")


def test_what_is_undecided_says_how_many_more_prompts_it_takes() -> None:
    found = judged(visits(1.05, noise=0.2, prompts=45, classes=("chat",), seed=3))
    assert found.verdict == "undecided"
    assert found.reason.startswith("not enough evidence: undecided for chat: 1.0")
    assert f"includes 1 (about {found.summary['more_prompts']} more prompts would decide)" in found.reason
    few = judged(visits(2.0, prompts=5, classes=("chat",)))
    assert (few.verdict, few.summary["more_prompts"]) == ("undecided", 3)
    assert f"5 prompts were sent to both arms; an interval needs {stats.MIN_PAIRS}" in few.reason


def test_a_difference_that_no_number_of_prompts_shows_is_said() -> None:
    took = [((100.0, after),) for after in (80.0, 120.0)] * 10
    pairs = tuple(
        Pair(f"p{n}", "chat", Level(concurrency=1), 0, 0.0, e2e=e2e, tpot=(), ttft=(), tokens=())
        for n, e2e in enumerate(took)
    )
    found = of_cell(Pairs(pairs), Level(), 0.95, AbSettings()).decision
    assert (found.verdict, found.more_prompts) == ("undecided", None)
    assert "even 100 times as many prompts would not decide" in found.reason


def test_ttft_vetoes() -> None:
    def late(visit: Any, prompt: str, at: float) -> dict[str, Any]:
        return {"ttft_ms": 90.0 if visit.arm == "draft" else 20.0}

    found = judged(visits(2.0, answer=late))
    assert found.verdict == "no"
    assert "TTFT grows by 70 ms, to 4.50 times as much" in found.reason
    assert judged(visits(2.0, answer=late), settings=AbSettings(ttft_veto_ms=100)).verdict == "yes"


@pytest.mark.parametrize(("late_ms", "verdict"), [(70.0, "no"), (69.9, "yes")])
def test_ttft_vetoes_from_so_many_milliseconds_on(late_ms: float, verdict: str) -> None:
    def late(visit: Any, prompt: str, at: float) -> dict[str, Any]:
        return {"ttft_ms": late_ms if visit.arm == "draft" else 20.0}

    assert judged(visits(2.0, answer=late)).verdict == verdict


def test_a_ttft_that_may_have_grown_is_no_veto() -> None:
    """It takes the whole interval: two prompts that waited are no growth."""
    pairs = Pairs(
        tuple(
            Pair(
                f"p{n}", "a", Level(concurrency=1), 0, 0.0,
                e2e=((1000.0, 500.0 + n),), tpot=(), tokens=(), ttft=((20.0, 20.0 + 600 * (n < 2)),),
            )
            for n in range(12)
        )
    )  # fmt: skip
    ttft = pairs.ratio("ttft", 0.95)
    assert ttft is not None
    assert ttft.low < 1 / AbSettings().ttft_veto_ratio < ttft.high
    assert of_cell(pairs, Level(), 0.95, AbSettings()).decision.verdict == "yes"


def test_answers_that_a_filter_ends_in_both_arms_are_no_difference() -> None:
    def filtered(arms: Sequence[str]) -> Any:
        def answer(visit: Any, prompt: str, at: float) -> dict[str, Any]:
            ends = visit.arm in arms and prompt == "p000"
            return {"finish_reason": "content_filter"} if ends else {}

        return answer

    assert judged(visits(2.0, answer=filtered(ARMS))).verdict == "yes"
    assert judged(visits(2.0, answer=filtered(ARMS[1:]))).verdict == "undecided"


def test_of_eight_prompts_one_may_carry_it_all() -> None:
    level = Level(concurrency=1)
    times = [(1e6, 5e5), *[(1.0, 0.9)] * 7]
    pairs = Pairs(
        tuple(
            Pair(f"p{n}", "a", level, 0, 0.0, e2e=(both,), tpot=(), ttft=(), tokens=())
            for n, both in enumerate(times)
        )
    )
    assert of_cell(pairs, Level(), 0.95, AbSettings()).decision.reason.endswith(
        "a few prompts dominate the mean"
    )
    few = replace(pairs, all=pairs.all[1:])
    assert "an interval needs 8" in of_cell(few, Level(), 0.95, AbSettings()).decision.reason


def test_all_classes_together_are_judged_more_sternly_at_early_looks_too() -> None:
    first, last = (Confidences.at(AbSettings(), {"a"}, 1, look, 4).of_levels for look in (1, 4))
    assert first > last > 0.95


def loaded(**of_streams: float) -> Any:
    """By how much the draft is slower at so many streams."""

    def answer(visit: Any, prompt: str, at: float) -> dict[str, Any]:
        slower = of_streams.get(f"s{visit.level.concurrency}", 1.0)
        return {"slower": slower if visit.arm == "draft" else 1.0}

    return answer


def test_where_it_stops_paying() -> None:
    found = judged(visits(2.0, concurrency=(8, 1, 4), answer=loaded(s4=1.5, s8=2.5)))
    challenger = found.data["challengers"]["draft"]
    assert found.summary["pays_up_to"] == 4
    assert challenger["load"].startswith(
        "For all classes together, speculation pays up to 4 streams; slower at 8 streams: 0.80× ["
    )
    assert [level["decision"]["verdict"] for level in challenger["levels"]] == ["yes", "yes", "no"]
    everywhere = judged(visits(2.0, concurrency=(1, 4))).data["challengers"]["draft"]
    assert (
        everywhere["load"]
        == "For all classes together, speculation is faster at every measured level, up to 4 streams."
    )
    assert judged(visits(2.0)).data["challengers"]["draft"]["load"] == ""


def test_a_verdict_has_a_class_and_a_load() -> None:
    found = judged(visits(2.0, concurrency=(1, 4, 8), prompts=96, answer=loaded(s4=1.0, s8=2.5)))
    assert deployed(found) == [(name, streams) for name in CLASSES for streams in (1, 4)]
    assert found.reason.startswith("deploy for edit, long, short at 1 stream and 4 streams; ")
    assert "at 8 streams it is slower (0.80× [" in found.reason
    classes = found.data["challengers"]["draft"]["classes"]
    for one in classes.values():
        assert [level["decision"]["verdict"] for level in one["levels"]] == ["yes", "yes", "no"]
        assert one["decision"]["verdict"] == "yes"
        assert one["decision"]["reason"].startswith("pays at 1 stream: 2.")
        assert "; at 8 streams it is slower (0.8" in one["decision"]["reason"]
    even = judged(visits(2.0, concurrency=(1, 8), prompts=96, noise=0.1, answer=loaded(s8=2.0)))
    assert deployed(even) == [(name, 1) for name in CLASSES]
    assert "; at 8 streams no gain is shown (" in even.reason


def test_a_heavier_load_does_not_deploy_where_a_lighter_one_does_not_pay() -> None:
    """Loads are tested in a fixed order, up to the first that does not surely pay."""
    found = judged(visits(2.0, concurrency=(1, 4, 8), prompts=96, answer=loaded(s4=2.5)))
    assert deployed(found) == [(name, 1) for name in CLASSES]
    challenger = found.data["challengers"]["draft"]
    assert challenger["pays_up_to"] == 1
    last = challenger["levels"][2]["decision"]
    assert (last["verdict"], last["speedup"]["low"] > 1) == ("undecided", True)
    assert last["reason"].endswith(", but a lighter load does not surely pay")
    first = judged(visits(2.0, concurrency=(1, 8), prompts=96, answer=loaded(s1=2.5)))
    assert (first.verdict, deployed(first), first.summary["pays_up_to"]) == ("no", [], None)


def test_one_class_may_deploy_at_a_load_at_which_another_does_not() -> None:
    def answer(visit: Any, prompt: str, at: float) -> dict[str, Any]:
        short = int(prompt[1:]) % 3 == 2
        slow = visit.arm == "draft" and visit.level.concurrency == 8 and short
        return {"slower": 2.5 if slow else 1.0}

    found = judged(visits(2.0, concurrency=(1, 8), prompts=96, noise=0.02, answer=answer))
    assert deployed(found) == [("edit", 1), ("edit", 8), ("long", 1), ("long", 8), ("short", 1)]
    assert "not for short at 8 streams: 0.8" in found.reason


def test_more_prompts_are_as_many_as_the_class_that_needs_most() -> None:
    found = judged(visits(speeds(edit=1.05, long=1.1, short=1.02), noise=0.25, prompts=60, seed=5))
    classes = found.data["challengers"]["draft"]["classes"]
    needed = [one["decision"]["more_prompts"] for one in classes.values()]
    assert found.verdict == "undecided"
    assert None in needed or len(set(needed)) == 3
    known = None if None in needed else max(needed)
    assert found.summary["more_prompts"] == known
    decisions = {
        name: Decision(verdict="undecided", reason="open", more_prompts=more)
        for name, more in (("one", 7), ("two", 30), ("three", 12))
    }
    assert overall(decisions, None).more_prompts == 30
    open_ = decisions | {"four": Decision(verdict="undecided", reason="open")}
    assert overall(open_, None).more_prompts is None
    cells = {name: (Cell(Level(concurrency=1), one, None),) for name, one in decisions.items()}
    one = Cell(Level(concurrency=1), decisions["one"], None)
    of_all = of_challenger(Verdicts(cells, (one,), ()), [], 0.95)
    assert (of_all.verdict, of_all.more_prompts) == ("undecided", 30)


@pytest.mark.parametrize(
    ("verdicts", "count"),
    [("", 0), ("y", 1), ("yy", 2), ("nyy", 0), ("yny", 1), ("yuy", 1), ("yyn", 2), ("uyy", 0)],
)
def test_loads_pay_up_to_the_first_that_does_not(verdicts: str, count: int) -> None:
    words: dict[str, Any] = {"y": "yes", "n": "no", "u": "undecided"}
    cells = [
        Cell(Level(concurrency=2**k), Decision(verdict=words[v], reason=""), None)
        for k, v in enumerate(verdicts)
    ]
    assert paying([cell.decision for cell in cells]) == count
    assert pays_up_to(cells) == (cells[count - 1].level if count else None)
    after = "".join(cell.decision.verdict[0] for cell in in_sequence(cells))
    assert after == verdicts[:count] + verdicts[count:].replace("y", "u")


def test_the_fastest_of_those_that_pay_is_named() -> None:
    arms = {"standard": 1.0, "chain": 1.4, "ngram": 1.8}
    found = judged(visits(lambda arm, name: arms[arm], arms=THREE), THREE)
    assert found.data["best"] == found.summary["challenger"] == "ngram"
    assert found.reason.startswith("the fastest that may be deployed is ngram. chain: deploy for ")
    slow = judged(visits(lambda arm, name: 1 / arms[arm], arms=THREE), THREE)
    assert (slow.verdict, slow.data["best"]) == ("no", None)


@pytest.mark.parametrize(
    ("failed", "verdict", "reason"),
    [
        ({"draft": "it died"}, "no", "do not deploy: draft failed: it died"),
        ({"standard": "it died"}, "undecided", "the standard, standard, failed: it died"),
        ({"standard": "it died", "draft": "so did this"}, "undecided", "the standard, standard, failed"),
    ],
)
def test_an_arm_that_failed_decides(failed, verdict, reason) -> None:
    for made in (visits(2.0), [visit for visit in visits(2.0) if visit.arm not in failed], []):
        found = judged(made, failed=failed)
        assert found.verdict == verdict
        assert found.reason.startswith(reason)


def test_of_two_challengers_one_may_fail() -> None:
    found = judged(visits(2.0, arms=THREE), THREE, failed={"ngram": "it died"})
    assert (found.verdict, found.data["best"]) == ("yes", "chain")


def told(unlike: int, rounds: int = 2) -> Any:
    def answer(visit: Any, prompt: str, at: float) -> dict[str, Any]:
        return {"text": "another" if visit.arm == "draft" and int(prompt[1:]) < unlike else "the same"}

    return visits(2.0, answer=answer, rounds=rounds)


def test_other_answers_are_no_speed_up() -> None:
    found = judged(told(20))
    assert found.verdict == "no"
    assert found.reason.startswith(
        "do not deploy: 28/48 greedy answers are the same in both arms at 1 stream, and 48/48 when the "
    )
    assert deployed(found) == []
    sampled = judged(told(20), temperature=1.0)  # sampled answers differ by themselves
    assert sampled.verdict == "yes"
    assert sampled.reason.endswith(
        "; the answers were not compared with the standard's: no requests were sent at temperature 0"
    )
    once = judged(told(1, rounds=1))
    assert once.verdict == "undecided"
    assert "one repeat does not show whether the standard differs from itself" in once.reason
    assert judged(told(1)).verdict == "yes"  # with a control, one answer may differ by rounding
    assert judged(told(0, rounds=1)).verdict == "yes"


def test_a_load_at_which_answers_differ_is_not_said_to_pay() -> None:
    def answer(visit: Any, prompt: str, at: float) -> dict[str, Any]:
        garbled = visit.arm == "draft" and visit.level.concurrency == 4 and int(prompt[1:]) < 30
        return {"text": "another" if garbled else "the same"}

    found = judged(visits(2.0, answer=answer, concurrency=(1, 4), looks=1))
    assert found.verdict == "no"
    (challenger,) = found.data["challengers"].values()
    assert [one["decision"]["verdict"] for one in challenger["levels"]] == ["yes", "no"]
    assert all(one["levels"][1]["decision"]["verdict"] == "no" for one in challenger["classes"].values())
    assert challenger["load"].startswith(
        "For all classes together, speculation pays up to 1 stream; not deployed at 4 streams: 18/48 "
        "greedy answers"
    )
    assert challenger["pays_up_to"] == 1


def test_answers_that_change_where_a_prompt_comes_again_are_no_speed_up() -> None:
    def answer(visit: Any, prompt: str, at: float) -> dict[str, Any]:
        garbled = visit.arm == "draft" and visit.round == 1 and int(prompt[1:]) < 20
        return {"text": "another" if garbled else "the same"}

    found = judged(visits(2.0, answer=answer))
    assert found.verdict == "no"
    assert "greedy answers to repeated prompts change: 28/48 later answers of draft" in found.reason


def with_rows(visit: VisitRecord, rows: Sequence[Row]) -> VisitRecord:
    return visit.model_copy(update={"cell": visit.cell.model_copy(update={"rows": tuple(rows)})})


def test_mixed_batches_that_change_greedy_answers_are_a_no() -> None:
    made = visits(2.0, prompts=64, looks=1, concurrency=(1, 4))
    mixed = [next(v for v in reversed(made) if v.arm == arm and len(v.cell.rows) >= 8) for arm in ARMS]
    original = mixed[1].cell.rows
    rows = tuple(row.model_copy(update={"text": "garbled"}) for row in original)
    mixed[1] = with_rows(mixed[1], rows)
    found = judged(made, mixed=mixed)
    assert found.verdict == "no"
    assert "greedy answers change when sampled requests share the batch: 0/" in found.reason
    few = [row if n > 4 else row.model_copy(update={"text": "garbled"}) for n, row in enumerate(original)]
    some = [mixed[0], with_rows(mixed[1], few)]
    unsure = judged(made, mixed=some)
    assert unsure.verdict == "undecided"
    assert "greedy answers change when sampled requests share the batch: 3/8 greedy" in unsure.reason
    assert "too few to decide" in unsure.reason
    sure = {(row.prompt, 0): 1.0 for row in few[:2]}
    assert judged(made, mixed=some, margins=sure).verdict == "no"
    one = [mixed[0], with_rows(mixed[1], [few[0], *original[1:]])]
    assert judged(made, mixed=one).verdict == "yes"  # rounding may turn one
    near = {(row.prompt, 0): 0.01 for row in rows}
    assert judged(made, mixed=mixed, margins=near).verdict == "yes"
    gone = {"error": "stream_error", "detail": "the engine is dead", "text": "", "tokens": None}
    rows = tuple(row.model_copy(update=gone) for row in mixed[1].cell.rows)
    mixed[1] = mixed[1].model_copy(update={"cell": mixed[1].cell.model_copy(update={"rows": rows})})
    ended = judged(made, mixed=mixed)
    assert ended.verdict == "no"
    assert "greedy requests fail when sampled requests share the batch: 8, all of which" in ended.reason


def test_classes_and_challengers_share_the_error_that_one_alone_may_make() -> None:
    def width(classes: tuple[str, ...], arms: tuple[str, ...]) -> float:
        report = judged(visits(1.5, classes=classes, arms=arms), arms).data
        return float(report["confidence_of_classes"])

    one = width(("chat",), ARMS)
    assert one == pytest.approx(stats.sequential.levels([0.25, 0.5, 0.75, 1.0], 0.95)[-1])
    assert one < width(("chat",), THREE) < width(CLASSES, ARMS) < width(CLASSES, THREE)


def test_all_classes_together_share_the_error_with_the_other_challengers_only() -> None:
    found = Confidences.at(AbSettings(), CLASSES, 2, 1, 1)
    assert found.of_levels == pytest.approx(of_look(AbSettings().confidence, 1, 1, among=2))
    assert found.of_classes == pytest.approx(of_look(AbSettings().confidence, 1, 1, among=2 * len(CLASSES)))
    assert Confidences.at(AbSettings(), (), 0, 1, 1).of_levels == pytest.approx(AbSettings().confidence)


def test_a_decision_is_not_changed_in_place() -> None:
    """Looks, the page and the result share it."""
    with pytest.raises(ValidationError, match="frozen"):
        Decision(verdict="no", reason="slower").verdict = "yes"


def test_a_stored_decision_with_an_unknown_key_is_refused() -> None:
    """An ab.json of another version is not read by half."""
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        Decision.model_validate({"verdict": "no", "reason": "slower", "because": "slower"})


def test_early_looks_are_sterner() -> None:
    found = [of_look(0.95, done, 4) for done in (1, 2, 3, 4)]
    assert found == sorted(found, reverse=True)
    assert found[0] > 0.9999
    assert of_look(0.95, 1, 1) == pytest.approx(0.95)


def test_a_look_ends_the_run_only_when_every_question_is_answered() -> None:
    def decided(speed: Any, done: int, arms: tuple[str, ...] = ARMS, **made: Any) -> bool:
        taken = visits(speed, arms=arms, prompts=96, **made)
        return look([v for v in taken if v.stage < done], arms, AbSettings(), done, 4).decided

    assert decided(2.0, 2)
    assert not decided(1.0, 2, noise=0.2)
    assert not decided(speeds(edit=2.0, long=2.0, short=1.0), 3, noise=0.2)
    assert not decided(lambda arm, name: {"chain": 2.0}.get(arm, 1.0), 3, THREE, noise=0.2)

    def crossing(visit: Any, prompt: str, at: float) -> dict[str, Any]:
        return {"slower": 2.0 if visit.arm == "draft" and visit.level.concurrency == 8 else 1.0}

    assert not decided(2.0, 3, concurrency=(1, 8), answer=crossing, noise=0.2)
    assert not look([], ARMS, AbSettings(), 1, 4).decided


@settings(max_examples=25)
@given(st.integers(0, 200), st.sampled_from([0.05, 0.3]), st.sampled_from([12, 30]))
def test_no_difference_never_deploys_both_ways_round(seed, noise, prompts) -> None:
    made = visits(1.0, seed=seed, noise=noise, prompts=prompts)
    there, back = judged(made), judged(made, ("draft", "standard"))
    assert not set(deployed(there)) & set(deployed(back))
    swapped = {"yes": "no", "no": "yes", "undecided": "undecided"}
    classes = there.data["challengers"]["draft"]["classes"]
    for name, found in back.data["challengers"]["standard"]["classes"].items():
        assert found["decision"]["verdict"] == swapped[classes[name]["decision"]["verdict"]]


@settings(max_examples=40)
@given(st.sets(st.integers(0, 100)), st.sampled_from(["interleaved", "abba-restart"]))
def test_no_visit_that_is_missing_breaks_the_judging(lost, design) -> None:
    made = visits(1.5, prompts=12, concurrency=(1, 4), design=design)
    kept = [visit for number, visit in enumerate(made) if number not in lost]
    found = judged(kept, settings=AbSettings(design=design))
    assert found.verdict in ("yes", "no", "undecided")
    look(kept, ARMS, AbSettings(design=design), 2, 4)


def test_a_fault_in_mixed_batches_is_of_no_load_alone() -> None:
    """It decides on the challenger; that its alone answers at a load are the standard's is still so."""
    level = Level(concurrency=1)
    yes = Cell(level, Decision(verdict="yes", reason="fast"), None)
    verdicts = Verdicts({"edit": (yes,)}, (yes,), ())
    prompts = frozenset(f"p{n}" for n in range(48))
    same = Matches(prompts, ())
    other = Matches(prompts, tuple(Witness(prompt=p, character=0, standard="a", other="b") for p in prompts))
    mixed = Parity("draft", True, level, other, same)
    assert mixed.shows_a_fault(0.95)
    assert unless_answers_differ(verdicts, [mixed], 0.95, {}) is verdicts
    for parity in (replace(mixed, mixed=False), replace(mixed, mixed=False, repeated=True)):
        found = unless_answers_differ(verdicts, [parity], 0.95, {})
        assert found.together[0].decision.verdict == found.classes["edit"][0].decision.verdict == "no"
