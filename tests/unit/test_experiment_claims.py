"""Each claim that a deployment needs: shown where it holds, against where it does not, never shown
unobserved."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
from made_windows import ARMS, CLASSES, evidence, judged, windows

from specops.experiment import answer_claims, claims
from specops.experiment.decide import Judged
from specops.experiment.plan import Window
from specops.experiment.records import WindowRecord
from specops.experiment.sentences import noted
from specops.load.arrivals import Level
from specops.phases.ab.settings import AbSettings
from specops.stats import Interval

CYCLES = 40


def when(fault: Callable[[Window, str, float], bool], **fields: Any) -> Callable[..., dict[str, Any]]:
    """The challenger's requests that meet `fault` get these fields."""
    return lambda window, prompt, at: (
        dict(fields) if window.arm == "draft" and fault(window, prompt, at) else {}
    )


def share(of: float, seed: int = 0) -> Callable[[Window, str, float], bool]:
    dice = random.Random(seed)
    return lambda window, prompt, at: dice.random() < of


def verdicts(found: Judged) -> dict[str, str]:
    """The verdict of each claim over all loads, or over all classes at the lightest."""
    lines = [finding for finding in found.findings if finding.traffic_class is None]
    return {finding.claim: finding.verdict for finding in reversed(lines)}


def test_a_healthy_pair_that_is_faster_is_deployed() -> None:
    found = judged(windows(1.5, cycles=CYCLES, noise=0.1))
    assert found.decision.verdict == "yes"
    assert found.deploy == [(name, Level(concurrency=1)) for name in ("edit", "long", "short")]
    assert set(verdicts(found).values()) == {"shown"}


@pytest.mark.parametrize("speed", [1.0, 0.8])
def test_a_pair_that_is_no_faster_is_a_no(speed: float) -> None:
    verdict = judged(windows(speed, cycles=CYCLES)).decision.verdict
    assert verdict == "no" if speed < 1 else verdict != "yes"


FAULTS: dict[str, Callable[..., dict[str, Any]]] = {
    "2% of requests fail": when(share(0.02), error="http_500", detail="down"),
    "2% hang for 30 s": when(share(0.02), e2e_ms=30_000.0, e2e_with_retries_ms=30_000.0),
    "sampled requests fail": when(
        lambda window, prompt, at: window.kind == "mixed", error="http_500", detail="down"
    ),
    "refused at first": when(share(0.05), retries=2),
    "3% of answers are other ones from the first character on": when(share(0.03), text="junk and more junk"),
    "80% arrive as reasoning": when(share(0.8), reasoning=20),
    "the first letters arrive as reasoning": when(share(1.0), reasoning=4),
    "a tenth are stumps": when(share(0.1), text="a", tokens=1),
    "a tenth loop": when(share(0.1), text="again and " * 9),
    "the same answer to many prompts": when(share(0.2), text="I am sorry, I cannot help with that."),
    "a tenth are filtered": when(share(0.1), finish_reason="content_filter"),
    "the first token comes late": when(share(1.0), ttft_ms=400.0),
    "the first token comes late after a rest": when(
        lambda window, prompt, at: window.kind == "open", ttft_ms=400.0
    ),
    "sampled requests are slower": when(lambda window, prompt, at: window.kind == "mixed", slower=6.0),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_never_deployed_however_fast(name: str) -> None:
    found = judged(windows(3.0, cycles=CYCLES, noise=0.05, answer=FAULTS[name]))
    assert found.decision.verdict == "no", found.decision.reason
    assert not found.deploy


def test_what_cannot_be_shown_by_so_few_requests_is_open() -> None:
    """None of 100 failed: a share of 3% would not have shown. That is no yes."""
    found = judged(windows(3.0, cycles=5, noise=0.05))
    assert found.decision.verdict == "undecided"
    assert verdicts(found)["failures"] == "open"
    failures = next(finding for finding in found.findings if finding.claim == "failures")
    assert failures.needs is not None
    assert failures.bound is not None
    assert failures.bound > 0.01


def test_one_failure_of_800_is_within_the_margin() -> None:
    once = iter([True])
    found = judged(
        windows(2.0, cycles=48, answer=when(lambda *_: next(once, False), error="cut", detail="x"))
    )
    assert verdicts(found)["failures"] == "shown"
    assert found.decision.verdict == "yes"


def test_a_prompt_that_always_fails_is_named_where_the_standard_answers_it() -> None:
    found = judged(
        windows(
            2.0,
            cycles=CYCLES,
            answer=when(lambda window, prompt, at: prompt == "p007", error="http_400", detail="no"),
        )
    )
    named = [finding for finding in found.findings if finding.cause == "always fails"]
    assert [(one.traffic_class, one.examples) for one in named if one.traffic_class] == [("long", ["p007"])]
    assert {name for name, _ in found.deploy} == {"edit", "short"}  # it fails in a request of another class
    both = judged(
        windows(
            2.0,
            cycles=CYCLES,
            answer=lambda window, prompt, at: (
                {"error": "http_400", "detail": "no"} if prompt == "p007" else {}
            ),
        )
    )
    assert both.decision.verdict == "yes"  # it says nothing of the challenger
    named = [finding for finding in both.findings if finding.cause == "always fails"]
    assert {(one.verdict, *one.examples) for one in named} == {("shown", "p007")}


def test_answers_whose_tokens_are_not_counted_are_not_other_answers() -> None:
    found = judged(
        windows(
            2.0, cycles=CYCLES, answer=when(lambda *_: True, tokens=None, tokens_from="unknown", tpot_ms=None)
        )
    )
    assert verdicts(found)["answers"] == "shown"
    assert found.decision.verdict == "yes"


def test_a_near_tie_is_acceptable_and_a_sure_token_is_not() -> None:
    def differing(window: Window, prompt: str, at: float) -> dict[str, Any]:
        changed = window.arm == "draft" and prompt in ("p003", "p010")
        return {"text": f"answer to {prompt} as another"} if changed else {}

    made = windows(2.0, cycles=CYCLES, answer=differing)
    places = {
        one.place
        for window in made
        for row in window.cell.sent
        if window.arm == "draft" and row.prompt in ("p003", "p010")
        for one in [
            claims.answers.Difference(
                prompt=row.prompt, variant=row.variant, character=18, standard="", challenger=""
            )
        ]
    }
    ties = judged(made, margins=dict.fromkeys(places, 0.05))
    sure = judged(made, margins=dict.fromkeys(places, 3.0))
    assert verdicts(ties)["answers"] == "shown"
    assert verdicts(sure)["answers"] == "against"
    assert sure.decision.verdict == "no"


def test_few_differences_beside_a_standard_of_unknown_steadiness_are_no_yes() -> None:
    """No request is repeated without mixed windows; then nothing says that rounding is the reason."""

    def differing(window: Window, prompt: str, at: float) -> dict[str, Any]:
        changed = window.arm == "draft" and prompt == "p003"
        return {"text": f"answer to {prompt} as another"} if changed else {}

    made = [one for one in windows(2.0, cycles=CYCLES, answer=differing) if one.kind != "mixed"]
    found = judged(made)
    assert verdicts(found)["answers"] == "open"
    assert found.decision.verdict != "yes"


def test_a_standard_that_differs_from_itself_excuses_as_much() -> None:
    dice = random.Random(1)

    def unsteady(window: Window, prompt: str, at: float) -> dict[str, Any]:
        return {"text": f"answer {dice.random()}"} if dice.random() < 0.3 else {}

    assert verdicts(judged(windows(2.0, cycles=CYCLES, answer=unsteady)))["answers"] != "against"


@pytest.mark.parametrize(
    ("other", "verdicts_of_answers"),
    [(0.0, {"shown", "open"}), (0.08, {"open", "against"}), (1.0, {"against"})],
)
def test_a_standard_that_repeats_half_of_its_answers_still_reveals_others(
    other: float, verdicts_of_answers: set[str]
) -> None:
    """Half of the other answers are hidden among those that vary by themselves."""
    dice = random.Random(4)

    def varying(window: Window, prompt: str, at: float) -> dict[str, Any]:
        if window.arm == "draft" and dice.random() < other:
            return {"text": f"junk {dice.random()}"}
        return {"text": f"{dice.random()} and so on"} if dice.random() < 0.35 else {}

    found = judged(windows(2.0, cycles=60, answer=varying))
    control = next(
        f for f in found.findings if f.claim == "answers" and f.traffic_class is None and f.load is None
    )
    assert control.counts is not None
    assert control.counts.standard / control.counts.standard_n > 0.45
    assert control.verdict in verdicts_of_answers


def test_gibberish_of_the_same_length_is_told_apart() -> None:
    dice = random.Random(2)
    letters = "qxzvkjwp "

    def gibberish(window: Window, prompt: str, at: float) -> dict[str, Any]:
        sampled = window.kind == "mixed" and window.arm == "draft"
        return (
            {"text": "".join(dice.choice(letters) for _ in range(50))}
            if sampled and dice.random() < 0.6
            else {}
        )

    found = judged(windows(2.0, cycles=CYCLES, answer=gibberish))
    assert found.decision.verdict == "no"


def test_a_temperature_that_is_ignored_is_against() -> None:
    made = windows(
        2.0,
        cycles=CYCLES,
        answer=lambda window, prompt, at: (
            {"text": f"always {prompt}"} if window.arm == "draft" and window.kind == "mixed" else {}
        ),
    )
    found = answer_claims.sampled_answers(evidence(made))
    assert found.verdict == "against"


def test_no_accepted_token_means_that_the_gain_is_not_speculations() -> None:
    made = windows(1.55, cycles=CYCLES)
    nothing = [
        window.model_copy(
            update={
                "cell": window.cell.model_copy(
                    update={"drafts": replace(window.cell.drafts, accepted_tokens=0.0)}
                )
            }
        )
        if window.cell.drafts is not None
        else window
        for window in made
    ]
    found = judged(nothing)
    assert found.decision.verdict == "no"
    assert verdicts(found)["speculation"] == "against"


def test_counters_that_are_not_there_are_unknown_and_no_veto() -> None:
    made = [
        window.model_copy(
            update={"cell": window.cell.model_copy(update={"drafts": None, "drafts_missing": "no /metrics"})}
        )
        for window in windows(1.55, cycles=CYCLES)
    ]
    found = judged(made)
    assert verdicts(found)["speculation"] == "unknown"
    assert found.decision.verdict == "yes"


def test_shorter_answers_are_no_gain() -> None:
    short = when(
        lambda *_: True,
        tokens=5,
        text="half",
        e2e_ms=40.0,
        e2e_with_retries_ms=40.0,
        ttft_ms=20.0,
        tpot_ms=10.0,
    )
    found = judged(windows(1.0, cycles=CYCLES, answer=short))
    assert found.decision.verdict == "no"


OF_ONE_CLASS: dict[str, tuple[dict[str, Any], Callable[[Window, str, float], bool]]] = {
    "fail": ({"error": "http_500", "detail": "down"}, share(0.1)),
    "are other ones": ({"text": "junk and more junk"}, share(0.1)),
    "are longer": ({"tokens": 12, "text": "answer to a prompt at greater length"}, share(1.0)),
    "loop": ({"text": "again and " * 9}, share(0.2)),
    "begin late": ({"ttft_ms": 400.0}, share(1.0)),
    "begin late, and the mean over all classes does not": ({"ttft_ms": 150.0}, share(1.0)),
    "take longer in an open loop": ({"slower": 6.0}, lambda window, *_: window.kind == "open"),
    "take longer where sampled": ({"slower": 9.0}, lambda window, *_: window.kind == "mixed"),
}


@pytest.mark.parametrize("name", OF_ONE_CLASS)
def test_a_fault_of_one_class_keeps_that_class_off_alone(name: str) -> None:
    fields, some = OF_ONE_CLASS[name]

    def faulty(window: Window, prompt: str, at: float) -> bool:
        return int(prompt[1:]) % 3 == 0 and some(window, prompt, at)

    found = judged(windows(3.0, cycles=60, noise=0.05, answer=when(faulty, **fields)))
    assert found.decision.verdict == "yes", found.decision.reason
    assert {name for name, _ in found.deploy} == {"long", "short"}
    assert found.classes["edit"][0].verdict == "no"


def test_loops_that_the_standard_gives_too_are_no_fault_of_the_challenger() -> None:
    def looping(window: Window, prompt: str, at: float) -> dict[str, Any]:
        looped = window.kind != "mixed" and int(prompt[1:]) % 3 == 0
        return {"text": f"{prompt} {'again and ' * 9}"} if looped else {}

    found = judged(windows(2.0, cycles=CYCLES, answer=looping))
    assert verdicts(found)["answers"] == "shown"
    alone = judged(
        windows(2.0, cycles=CYCLES, answer=when(lambda *some: bool(looping(*some)), text="ab " * 9))
    )
    assert alone.classes["edit"][0].verdict == "no"


def test_answers_that_differ_in_each_variant_of_a_prompt_are_other_answers() -> None:
    """A server that reports no log-probabilities, and a standard that repeats itself: it is not rounding."""
    other = when(lambda window, prompt, at: prompt in ("p003", "p010"), text="answer to another question")
    found = judged(windows(2.0, cycles=60, answer=other))
    assert found.classes["edit"][0].verdict != "yes"
    assert found.decision.verdict == "no", found.decision.reason


def test_a_load_at_which_requests_fail_does_not_cost_the_lighter_one() -> None:
    failing = when(
        lambda window, prompt, at: (window.level.concurrency or 0) > 1, error="http_503", detail="full"
    )
    found = judged(windows(2.0, cycles=60, concurrency=(1, 8), answer=failing))
    assert ("edit", Level(concurrency=8)) not in found.deploy


def test_waits_count_from_when_a_request_was_due() -> None:
    """Served at once when sent, but sent late: a queue in front of the server."""
    queued = when(lambda window, prompt, at: window.kind == "open", due_s=-2.0)
    assert judged(windows(1.5, cycles=CYCLES, answer=queued)).decision.verdict == "no"


def test_a_margin_of_the_rollout_file_decides() -> None:
    made = windows(2.0, cycles=CYCLES, answer=when(share(0.02), error="http_500", detail="down"))
    assert judged(made).decision.verdict == "no"
    lenient = judged(made, settings=AbSettings(failure_margin=0.08))
    assert verdicts(lenient)["failures"] == "shown"


def test_arms_of_nothing_are_undecided() -> None:
    found = judged([window for window in windows(2.0) if window.arm == ARMS[0]])
    assert found.decision.verdict == "undecided"


@pytest.mark.parametrize(
    ("standard_ms", "slower", "verdict", "unit"),
    [
        (10.0, 1.1, "shown", ""),  # within a fifth
        (10.0, 3.0, "shown", "ms"),  # three times as long, and 20 ms are not noticed
        (400.0, 1.5, "against", ""),  # 200 ms later
        (100.0, 1.5, "open", ""),  # 50 ms later, and as likely more as less
    ],
)
def test_a_first_token_is_held_against_the_margin_that_its_row_names(
    standard_ms: float, slower: float, verdict: str, unit: str
) -> None:
    interval = Interval(1 / slower, 0.95 / slower, 1.05 / slower, n=8)
    times = [(standard_ms, slower * standard_ms)] * 8
    finding = claims.judge_first_token(interval, times, AbSettings(), 8)
    assert (finding.verdict, finding.unit) == (verdict, unit)
    assert finding.bound is not None
    assert finding.margin is not None
    assert (finding.bound <= finding.margin) == (verdict == "shown")


def test_equal_means_do_not_hide_a_wide_interval_of_the_first_token() -> None:
    """A change of 0 ms on average is no bound on it."""
    finding = claims.judge_first_token(Interval(1.0, 0.5, 2.0, n=4), [(400.0, 400.0)] * 4, AbSettings(), 4)
    assert finding.verdict == "open"


def test_a_no_names_what_is_against_at_the_lightest_load_besides() -> None:
    """The decision rests on the failures of all loads; that answers are shorter is as true."""
    short = {"tokens": 5, "text": "half", "e2e_ms": 40.0, "e2e_with_retries_ms": 40.0, "tpot_ms": 10.0}
    failing = share(0.3)

    def answer(window: Window, prompt: str, at: float) -> dict[str, Any]:
        fault = {"error": "http_500", "detail": "down"} if failing(window, prompt, at) else {}
        return short | fault if window.arm == "draft" else {}

    found = judged(windows(1.0, cycles=CYCLES, answer=answer))
    assert found.decision.verdict == "no"
    assert {"failures", "length"} <= {finding.claim for finding in found.decision.findings}
    assert "shorter" in found.decision.reason


def test_a_gain_before_the_first_token_is_not_speculations() -> None:
    """A limit in front of the standard delays its requests; both servers decode as fast."""
    delayed = windows(
        1.0,
        cycles=CYCLES,
        answer=lambda window, prompt, at: (
            {"added_ms": 90.0, "ttft_ms": 110.0, "tpot_ms": 10.0}
            if window.arm == "standard"
            else {"tpot_ms": 10.0}
        ),
    )
    found = judged(delayed)
    wait = next(f for f in found.findings if f.claim == "wait" and f.traffic_class is None)
    assert (wait.basis, wait.verdict, wait.cause) == ("tpot", "against", "not decoding")
    end_to_end, per_token = wait.parts
    assert end_to_end.ratio is not None
    assert end_to_end.ratio.low > 1.2
    assert per_token.ratio == wait.ratio
    assert found.decision.verdict == "no"
    assert not found.deploy


def test_requests_that_the_standard_refused_at_first_are_no_gain_of_the_challenger() -> None:
    """They are counted as refused, and their waits are not averaged."""
    dice = random.Random(3)

    def answer(window: Window, prompt: str, at: float) -> dict[str, Any]:
        return {"retries": 1, "added_ms": 200.0} if window.arm == "standard" and dice.random() < 0.25 else {}

    found = judged(windows(1.0, cycles=CYCLES, noise=0.1, answer=answer))
    assert found.decision.verdict != "yes"


REFUSED = {"error": "http_400", "detail": "temperature must be above 0"}


def test_greedy_requests_that_no_server_takes_say_nothing_of_the_challenger() -> None:
    measured = windows(1.5, cycles=CYCLES, temperature=0.7)
    for arms, verdict in ((ARMS, "yes"), (ARMS[1:], "no")):
        found = judged([_without_greedy(record, arms) for record in measured], temperature=0.7)
        assert found.decision.verdict == verdict
        always = [f for f in found.findings if f.claim == "failures" and f.cause == "always fails"]
        assert always[0].examples == ["temperature 0"]


def _without_greedy(record: WindowRecord, arms: Collection[str]) -> WindowRecord:
    """The window where the servers of `arms` refuse temperature 0."""
    rows = tuple(
        row.model_copy(update=REFUSED) if row.temperature == 0 and record.arm in arms else row
        for row in record.cell.rows
    )
    return record.model_copy(update={"cell": record.cell.model_copy(update={"rows": rows})})


@pytest.mark.parametrize(
    ("tokens", "verdict"),
    [
        ({"edit": 15}, "no"),  # half of each prompt of one class; the tokenizer counts the others alike
        ({"edit": 15, "long": 15, "short": 15}, "undecided"),  # it may be another tokenizer
        ({"edit": 60}, "undecided"),  # the standard reads less
    ],
)
def test_a_challenger_that_reads_less_of_some_prompts_is_against(
    tokens: dict[str, int], verdict: str
) -> None:
    """Even where answers cannot tell, since the standard's vary."""
    numbers = count()

    def answer(window: Window, prompt: str, at: float) -> dict[str, Any]:
        read = tokens.get(CLASSES[int(prompt[1:]) % 3], 30) if window.arm == "draft" else 30
        return {"prompt_tokens": read, "text": f"as always, {next(numbers)}"}

    found = judged(windows(1.5, cycles=CYCLES, answer=answer))
    read = [f for f in found.findings if f.cause == "other prompts"]
    assert {f.verdict for f in read} == {"against" if verdict == "no" else "open"}
    assert found.decision.verdict == verdict


def test_other_lengths_that_are_accepted_are_said_to_be() -> None:
    short = {"tokens": 5, "e2e_ms": 30.0, "e2e_with_retries_ms": 30.0, "ttft_ms": 10.0, "tpot_ms": 5.0}
    records = windows(1.0, cycles=CYCLES, answer=when(lambda *_: True, **short))
    found = judged(records, settings=AbSettings(accept_length_change=True))
    lengths = [f for f in found.findings if f.claim == "length"]
    assert {(f.verdict, f.cause) for f in lengths} == {("shown", "accepted")}
    assert any("shorter" in note and "accepted" in note for note in noted(found.findings))
    assert {f.basis for f in found.findings if f.claim == "wait"} == {"tpot"}


def test_repeats_from_the_standards_cache_make_no_request_late_and_no_wait_longer() -> None:
    sent: set[tuple[str, str]] = set()
    records = []
    for record in windows(1.5, cycles=CYCLES):
        rows = []
        for row in record.cell.rows:
            cached = record.arm == "standard" and (row.prompt, row.variant) in sent
            rows.append(row.model_copy(update={"e2e_ms": 1.0, "e2e_with_retries_ms": 1.0} if cached else {}))
        sent |= {(row.prompt, row.variant) for row in rows if record.arm == "standard"}
        records.append(
            record.model_copy(update={"cell": record.cell.model_copy(update={"rows": tuple(rows)})})
        )
    assert min(row.e2e_ms for record in records for row in record.cell.rows) == 1.0
    found = judged(records)
    verdicts_of = {f.claim: f.verdict for f in found.findings if f.traffic_class is None}
    assert verdicts_of["failures"] == "shown"
    assert found.decision.verdict == "undecided"
    sampled = next(f for f in found.findings if f.claim == "sampled wait")
    assert (sampled.verdict, sampled.cause) == ("open", "repeat")
    assert "cache" in found.decision.reason


@pytest.mark.parametrize("claim", ["sampled wait", "open-loop wait"])
def test_longer_answers_are_no_slower_ones_beside_the_measured_windows(claim: str) -> None:
    """A standard that cuts its answers ends earlier."""

    def cut(window: Window, prompt: str, at: float) -> dict[str, Any]:
        return {"ttft_ms": 1.0} | ({"slower": 0.5, "tokens": 5} if window.arm == "standard" else {})

    found = judged(windows(1.0, cycles=24, answer=cut))
    beside = [finding for finding in found.findings if finding.claim == claim]
    assert beside
    assert all(finding.verdict != "against" for finding in beside)
    assert found.decision.verdict != "yes"
