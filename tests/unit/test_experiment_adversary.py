"""Inputs that got a wrong answer, by kind: with the claim, the factor or the condition that repairs it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from made_windows import ARMS, cell, evidence, experiment, row, windows

from specops.experiment import answers, claims
from specops.experiment.answers import compare_greedy, greedy_answers
from specops.experiment.findings import Finding
from specops.experiment.plan import Window
from specops.experiment.records import Measurements, WindowRecord
from specops.experiment.samples import pair_up
from specops.experiment.sentences import describe
from specops.load.arrivals import Level
from specops.load.counters import counted
from specops.load.record import CellRecord
from specops.load.request_times import Objectives
from specops.load.target_server import TargetServer
from specops.phases.ab.settings import AbSettings
from specops.prometheus.exposition import parse

ONE = Level(concurrency=1)
LOOKED_AT = 0.95


def of_draft(**fields: Any) -> Any:
    return lambda window, prompt, at: dict(fields) if window.arm == "draft" else {}


def wait(records: list[WindowRecord], basis: Any = "e2e", **fields: Any) -> Finding:
    return claims.wait(evidence(records, **fields), ONE, None, basis, LOOKED_AT)


# --- the field of the text


@pytest.mark.parametrize("field", ["reasoning", "refusal", "tool_calls"])
def test_the_same_text_in_another_field_is_another_answer(field: str) -> None:
    faulty = evidence(windows(2.0, cycles=2, answer=of_draft(**{field: 20}))).unusable["draft"]
    assert {fault for _, _, fault in faulty} == {"other field"}
    both = windows(2.0, cycles=2, answer=lambda window, prompt, at: {field: 8})
    assert not evidence(both).unusable["draft"]


# --- objectives


@pytest.mark.parametrize("objective_ms", [1.0, 50.0, 1e9])
def test_an_objective_selects_no_requests_for_the_speed_up(objective_ms: float) -> None:
    """One that no request of the standard attains, one that only requests of the draft attain, one that all
    do."""
    records = windows(1.6, cycles=12, noise=0.1)
    objectives = Objectives(e2e_ms=objective_ms)
    assert wait(records, objectives=objectives).ratio == wait(records).ratio
    late = evidence(records, objectives=objectives).late
    assert bool(late) == (objective_ms < 1e9)


def test_a_request_that_hangs_beyond_the_objective_is_counted_and_not_averaged() -> None:
    def hangs(window: Window, prompt: str, at: float) -> dict[str, Any]:
        return {"slower": 300.0} if window.arm == "draft" and prompt == "p003" else {}

    observed = evidence(windows(1.6, cycles=12, answer=hangs), objectives=Objectives(e2e_ms=5000.0))
    assert observed.late == observed.outliers != set()
    counts = claims.failures(observed)[0].counts
    assert counts is not None
    assert counts.challenger == len(observed.late)
    assert not any(id(sample.challenger) in observed.late for sample in observed.of_body(observed.samples))


# --- advice that cannot come true


def test_requests_of_which_none_can_be_compared_need_no_more_of_them() -> None:
    finding = wait(windows(2.0, cycles=12, answer=lambda window, prompt, at: {"retries": 1}))
    assert (finding.verdict, finding.cause, finding.needs) == ("open", "incomparable", None)
    assert "more requests" not in describe(finding)


def test_answers_that_come_at_once_are_not_compared_at_another_length() -> None:
    """Half the answer in half the time, behind a proxy that holds it back: each token takes as long."""

    def half(window: Window, prompt: str, at: float) -> dict[str, Any]:
        standard = window.arm == "standard"
        e2e = 75.0 if standard else 42.5
        return {
            "tokens": 10 if standard else 5,
            "text": "answer to that thing"[: 20 if standard else 10],
            "ttft_ms": 10.0 if standard else 42.3,
            "tpot_ms": 7.2 if standard else None,
            "e2e_ms": e2e,
            "e2e_with_retries_ms": e2e,
        }

    records = windows(1.0, cycles=12, answer=half)
    accepted = AbSettings(accept_length_change=True)
    finding = wait(records, "per_character", settings=accepted)
    assert (finding.verdict, finding.cause, finding.needs) == ("open", "incomparable", None)


# --- a cache that goes by meaning


@pytest.mark.parametrize("prompts", [6, 16, 32])
def test_a_cache_that_no_nonce_escapes_is_no_gain(prompts: int) -> None:
    sent_before: set[str] = set()

    def cached(window: Window, prompt: str, at: float) -> dict[str, Any]:
        hit = window.arm == "draft" and prompt in sent_before
        sent_before.update({prompt} if window.arm == "draft" else ())
        return {"slower": 0.2} if hit else {}

    finding = wait(windows(1.0, cycles=24, noise=0.1, answer=cached, prompts=prompts, long_run=0))
    assert finding.verdict != "shown"
    if prompts == 16:
        assert finding.cause == "known prompt"
        assert "whether a prompt was sent before" in describe(finding)


def test_new_prompts_leave_a_true_gain_alone() -> None:
    finding = wait(windows(1.3, cycles=24, noise=0.2, prompts=16))
    assert (finding.verdict, finding.cause) == ("shown", None)


# --- answers


def test_one_variant_that_differs_each_time_is_one_place_of_rounding() -> None:
    def other(window: Window, prompt: str, at: float) -> dict[str, Any]:
        return {"text": f"answer to {prompt} in another way"} if window.arm == "draft" else {}

    for same_prompts in (True, False):
        records = windows(2.0, cycles=20, prompts=6, answer=other, same_prompts=same_prompts)
        greedy = compare_greedy(*(greedy_answers(records, arm) for arm in ARMS))
        assert len(greedy.differences) > 10 * answers.LASTING
        assert bool(greedy.lasting) != same_prompts


@pytest.mark.parametrize(("tokens", "equal"), [(10, True), (11, True), (9, True), (12, False), (20, False)])
def test_a_text_may_be_counted_with_one_special_token(tokens: int, equal: bool) -> None:
    records = windows(2.0, cycles=10, answer=of_draft(tokens=tokens))
    greedy = compare_greedy(*(greedy_answers(records, arm) for arm in ARMS))
    assert greedy.equal == (greedy.compared if equal else 0)
    length = claims.length(evidence(records), ONE, LOOKED_AT)
    assert (length.verdict == "shown") == equal


@pytest.mark.parametrize(
    ("likeliest", "margin"),
    [
        ((-0.1, -2.4), 2.3),
        ((-0.8, -0.9), 0.1),
        ((21.5, 21.4), 0.1),  # logits as they are
        ((0.0, 0.0), None),  # two tokens of which each is certain
        ((0.0, -9999.0), None),  # after the temperature was applied
        ((0.0, float("-inf")), None),
        ((float("nan"), -1.0), None),
    ],
)
def test_a_margin_is_that_of_the_model_or_unknown(
    likeliest: tuple[float, float], margin: float | None
) -> None:
    assert answers.margin_at([("word", likeliest)], 2) == (
        margin if margin is None else pytest.approx(margin)
    )


# --- counters of another server


@pytest.mark.parametrize(("generated", "verified"), [(0, None), (30, None), (200, 0.0)])
def test_counters_that_do_not_count_our_answers_are_anothers(generated: int, verified: float | None) -> None:
    text = (
        'vllm:generation_tokens_total{{model_name="m"}} {}\n'
        'vllm:spec_decode_num_drafts_total{{model_name="m"}} 3\n'
    )
    before, after = parse(text.format(50)), parse(text.format(50 + generated))
    record = counted(cell([row("p", "code", 100.0) for _ in range(10)], ONE, 0), before, after, "m")
    assert record.verified == verified
    assert (verified is None) == ("another server's" in (record.drafts_missing or ""))


# --- an interrupted run


def test_requests_before_an_interruption_count() -> None:
    """Else a run that is stopped whenever a request fails would be repeated until none does."""
    earlier = windows(
        2.0, cycles=10, answer=lambda w, prompt, at: {"error": "http_500"} if w.cycle == 9 else {}
    )
    last = earlier[-1]
    stopped = cell((*last.cell.rows[:2], row("p", "edit", 9.0, error="interrupted")), ONE, 9, complete=False)
    earlier[-1] = last.model_copy(update={"cell": stopped})
    made = experiment(earlier)
    made.windows = {}
    made.resume(Measurements(run="x", windows=earlier, margins=[]), {})
    assert last.key not in made.windows
    again = made._measured_again
    assert len(again[last.key]) == 2
    assert {row.error for row in again[last.key]} == {"http_500"}
    assert {key[:3] for key in again} == {last.key[:3]}

    class Arm:
        client = SimpleNamespace(renew_connections=lambda _: None)

        async def visit(self, *_: Any, keep: Callable[[CellRecord], None], **__: Any) -> None:
            keep(last.cell)

    planned = next(window for window in made.plan.windows() if window.key == last.key)
    asyncio.run(made._measure_window(cast(TargetServer, Arm()), planned))
    assert made.windows[last.key].cell.sent == (*last.cell.rows, *again[last.key], *last.cell.beside)


def test_what_is_sent_again_after_an_interruption_is_a_repeat() -> None:
    records = windows(2.0, cycles=1, long_run=0)
    first = next(record for record in records if record.arm == "draft" and record.kind == "measured")
    before = tuple(row.model_copy(update={"part": "warm-up"}) for row in first.cell.rows[:3])
    place = records.index(first)
    update = {"cell": first.cell.model_copy(update={"beside": (*before, *first.cell.beside)})}
    records[place] = first.model_copy(update=update)
    measured = [sample for sample in pair_up(records, *ARMS) if sample.kind == "measured"]
    assert sum(sample.factors["repeat"] for sample in measured) == 3
