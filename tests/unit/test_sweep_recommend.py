"""What a sweep recommends: the highest measured speed-up that is sure, or nothing, and why."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import made_sweeps
import pytest
from made_sweeps import died, loads, setting, settings, swept

from specops import stats
from specops.config import Ab
from specops.experiment.findings import Decision, Finding
from specops.phases.sweep import claims, recommend
from specops.phases.sweep.claims import Division
from specops.phases.sweep.judging import SweepJudgement
from specops.phases.sweep.plan import Finalists, Memory, Skipped, SweptCell
from specops.phases.sweep.recommend import Candidate, Contest, best, differs, method_of, nothing_pays, of_each
from specops.phases.sweep.report import Report
from specops.phases.sweep.speedups import Pair, Pairs, Stratum, SweepCells
from specops.phases.sweep.stages import confidence_of
from specops.serving import Setting
from specops.serving.embedded import EmbeddedPool, Speculation
from specops.serving.vllm.pool import VllmPool
from specops.serving.vllm.settings import VllmSpeculation
from specops.stats import Interval

THREE = settings(3, 5, 8)


def judged(speed: Any, asked: list[Setting] = THREE, at: Any = None, **made: Any) -> SweepJudgement:
    names = ("failed", "skipped", "cells", "finalists", "fresh", "look", "margins")
    judging = {name: made.pop(name) for name in names if name in made}
    found: list[SweptCell] = judging.pop("cells", None) or swept(speed, asked, at, **made)
    return made_sweeps.judged(asked, at or loads(), found, judging.pop("failed", []), **judging)


def report(found: SweepJudgement) -> Report:
    return Report.model_validate(found.data)


def test_the_fastest_that_surely_pays() -> None:
    found = judged({"k=3": 1.3, "k=5": 1.6, "k=8": 0.8})
    assert found.verdict == "yes"
    assert found.reason.startswith("deploy K=5 for all traffic at 1 stream (1.60× [")
    assert ", n=48); per class: edit (1." in found.reason
    assert found.summary["recommended"] == 5
    told = found.recommendation
    assert set(told) >= {
        "verdict", "method", "k", "tree", "schedule", "break_even_acceptance", "cost", "crossover",
        "by_class",
    }  # fmt: skip
    assert (told["k"], told["method"], told["schedule"]) == (5, "ngram", [[1, 1, 5]])
    assert told["crossover"] == {"on_max": 1, "off_min": None, "per": "replica"}
    assert {group["verdict"] for group in told["by_class"].values()} == {"yes"}
    assert [(r.setting, r.differs) for r in report(found).runners_up] == [("k=3", True)]


def test_classes_of_too_few_prompts_are_one_part_of_the_sentence() -> None:
    found = judged({"k=3": 1.3, "k=5": 1.6, "k=8": 0.8}, prompts=12)
    assert found.verdict == "yes"
    assert found.reason.startswith("deploy K=5 for all traffic at 1 stream (")
    assert found.reason.endswith(", n=12); per class: undecided (about 4 more prompts would decide)")


def test_ties_go_to_the_smaller_k_and_what_is_told_apart_is_no_tie() -> None:
    near = {"k=3": 1.595, "k=5": 1.6, "k=8": 1.0}
    assert judged(near, noise=0.1).recommendation["k"] == 3
    assert judged(near, noise=0).recommendation["k"] == 5
    assert judged({"k=3": 1.5, "k=5": 1.6, "k=8": 1.0}, noise=0.1).recommendation["k"] == 5


def test_of_trees_the_one_with_fewer_nodes_is_the_smaller() -> None:
    trees = [
        setting(0),
        setting(3, name="wide", tree="expand:3,2,2"),
        setting(4, name="long", tree="chain:4"),
    ]
    found = judged({"wide": 1.5, "long": 1.5}, trees, noise=0.02)
    assert found.recommendation["tree"] == "chain:4"
    only = judged({"wide": 1.5}, trees[:2])
    assert only.recommendation["schedule"] is None
    assert report(only).schedule_missing == "wide is a tree that branches, and a schedule is of chains"


def test_do_not_deploy_where_nothing_pays() -> None:
    found = judged({"k=3": 0.9, "k=5": 0.8, "k=8": 0.6})
    assert found.verdict == "no"
    assert found.reason.startswith("do not deploy: nothing pays; the best is k=3 at 1 stream, 0.90× [")
    assert (found.recommendation["k"], found.recommendation["schedule"]) == (0, None)
    assert report(found).crossover is None


def test_a_gain_of_less_than_a_hundredth_is_none() -> None:
    found = judged(dict.fromkeys(("k=3", "k=5", "k=8"), 1.0), noise=0.005)
    assert found.verdict == "no"
    assert "gains less than 1% at best" in report(found).overall[1].decision.reason  # type: ignore[union-attr]


def test_undecided_says_how_many_prompts_would_tell() -> None:
    found = judged({"k=3": 1.06, "k=5": 0.98, "k=8": 0.97}, noise=0.4, prompts=24)
    assert found.verdict == "undecided"
    assert found.recommendation["k"] is None
    assert found.summary["more_prompts"] > 10
    assert f"about {found.summary['more_prompts']} more requests would decide" in found.reason


@pytest.mark.parametrize(
    ("seed", "said"), [(2, "the most promising is k=3"), (0, "no setting looks faster; the closest is k=5")]
)
def test_a_setting_below_1_is_not_called_promising(seed, said) -> None:
    found = judged({"k=3": 0.97, "k=5": 0.89, "k=8": 0.88}, noise=0.4, prompts=24, seed=seed)
    assert found.verdict == "undecided"
    assert found.reason.startswith(f"not enough evidence: {said} at 1 stream, ")


def drifting(by: float, **made: Any) -> SweepJudgement:
    """In every rung the standard's second turn takes `by` times as long as the first."""
    speeds = {"k=3": 1.3, "k=5": 1.2, "k=8": 1.1}
    return judged(speeds, rungs=1, confirming=1, slower=lambda r, n, turn, at: by if turn else 1.0, **made)


def test_a_machine_that_drifts_by_more_than_is_gained_decides_nothing() -> None:
    found = drifting(1.9)
    assert found.verdict == "undecided"
    assert found.recommendation["setting"] is None
    assert "more repeats would decide" in found.reason or "changed during the run" in found.reason
    assert found.summary["more_prompts"] is None


def test_the_best_of_many_is_not_the_luckiest() -> None:
    """Twenty settings that gain nothing, on few noisy prompts: some plain interval excludes 1, none here."""
    many = settings(*range(1, 21))
    nothing = {one.name: 1.0 for one in many}
    found = judged(nothing, many, noise=0.25, prompts=24, seed=5)
    assert found.verdict != "yes"
    plain = [
        found.estimate
        for one in report(found).overall
        if one.speedups and (found := one.speedups.e2e) and found.estimate > 1.02
    ]
    assert plain


def test_confidence_is_shared_by_settings_loads_and_looks() -> None:
    assert of_each(0.95, 1, 1, 1) == pytest.approx(0.95)
    assert of_each(0.95, 5, 2, 1) == pytest.approx(0.995)
    speeds, at = {"k=3": 1.3, "k=5": 1.2, "k=8": 1.1}, loads(1)[0]
    left = [Skipped("k=8", at, 0, "in the slower half")]
    assert confidence_of(0.95, 1, 1) == pytest.approx(0.96)
    assert confidence_of(0.95, 1, 2) == pytest.approx(0.98)
    assert sum(1 - confidence_of(0.95, look, 1) for look in range(1, 60)) == pytest.approx(0.05)
    assert report(judged(speeds)).looks == 1
    assert report(judged(speeds, skipped=left)).looks == 2
    assert report(judged(speeds, skipped=left)).confidence_of_each == pytest.approx(1 - 0.05 / 6, abs=1e-5)
    dead = {"skipped": left, "failed": [died("k=8")]}
    assert report(judged(speeds, **dead)).looks == 1  # that one failed was nobody's choice


def test_a_setting_that_failed_is_not_recommended() -> None:
    fast = {"k=3": 1.3, "k=5": 1.2, "k=8": 2.0}
    found = judged(fast, failed=[died("k=8", "it answered, then died")])
    assert found.recommendation["setting"] == "k=3"
    assert found.reason.endswith("k=8 failed: it answered, then died")
    dead = [died(name) for name in fast]
    none = judged(fast, failed=dead)
    assert none.verdict == "no"
    assert none.reason.startswith("do not deploy: no setting could be measured; k=3 failed: it died")
    standard = [cell for cell in swept(fast, THREE) if cell.setting != "standard"]
    gone = judged(fast, cells=standard, failed=[died("standard", "no memory")])
    assert (gone.verdict, gone.reason) == ("undecided", "the standard failed: no memory")


def test_a_class_may_pay_where_all_together_do_not_show_it() -> None:
    def speed(name: str, load: object, of: str) -> float:
        return {"long": 1.6}.get(of, 0.7)

    found = judged(speed)
    assert found.verdict == "yes"
    assert found.reason.startswith("deploy K=3 for long (1.5")
    assert found.reason.endswith(", n=16) at 1 stream, and for no other class")
    assert found.recommendation["only_for"] == ["long"]
    assert {name: g["verdict"] for name, g in found.recommendation["by_class"].items()} == {
        "edit": "no", "long": "yes", "short": "no",
    }  # fmt: skip
    assert found.recommendation["by_class"]["edit"]["k"] == 0
    assert found.recommendation["schedule"] is None


def test_a_class_that_loses_is_told() -> None:
    found = judged(lambda name, load, of: {"short": 0.8}.get(of, 1.8))
    assert found.reason.startswith("deploy K=3 for all traffic but short at 1 stream (")
    assert ", not for short (0.8" in found.reason
    assert found.reason.endswith(": slower, n=16)")


def test_ttft_is_a_veto() -> None:
    def slow_to_begin(cell: SweptCell) -> SweptCell:
        rows = tuple(row.model_copy(update={"ttft_ms": row.ttft_ms + 90}) for row in cell.cell.rows)  # type: ignore[operator]
        return cell.model_copy(update={"cell": cell.cell.model_copy(update={"rows": rows})})

    cells = swept({"k=3": 1.5, "k=5": 1.4, "k=8": 1.4}, THREE)
    found = judged({}, cells=[slow_to_begin(c) if c.setting == "k=3" else c for c in cells])
    assert found.recommendation["k"] in (5, 8)
    (first, *_) = [one for one in report(found).overall if one.setting == "k=3"]
    assert first.decision is not None
    assert [one.claim for one in first.decision.findings] == ["first token"]


def test_the_best_k_by_load_becomes_the_schedule() -> None:
    gains = {1: {"k=3": 1.3, "k=5": 1.6, "k=8": 1.2}, 4: {"k=3": 1.2, "k=5": 0.9, "k=8": 0.8}}

    def speed(name: str, load: Any, of: str) -> float:
        return gains[load.concurrency][name] if load.concurrency in gains else 0.7

    found = judged(speed, at=loads(1, 4, 16))
    assert found.recommendation["schedule"] == [[1, 2, 5], [3, 8, 3], [9, 16, 0]]
    assert found.recommendation["crossover"] == {"on_max": 1, "off_min": 4, "per": "replica"}
    assert report(found).schedule.largest == 5  # type: ignore[union-attr]


def test_what_pays_at_a_heavier_load_alone_is_recommended_for_it() -> None:
    found = judged(lambda n, load, of: 0.8 if load.concurrency == 1 else 1.5, at=loads(1, 4))
    assert found.summary["concurrency"] == 4
    assert "nothing is shown to pay at 1 stream" in found.reason


def test_lengths_and_temperatures_are_groups_of_their_own() -> None:
    at = loads(1, temperatures=(0.0, 1.0), lengths=("long", "short"))
    found = report(judged(lambda n, load, of: 1.8 if load.temperature == 0 else 1.2, at=at))
    assert list(found.by_temperature) == ["0.0", "1.0"]
    assert list(found.by_length) == ["long", "short"]
    assert found.by_temperature["0.0"].speedup.estimate > found.by_temperature["1.0"].speedup.estimate  # type: ignore[union-attr]
    assert len(found.cells) == 4 * 4


def test_costs_come_from_the_counters_and_what_is_not_counted_is_null() -> None:
    speeds = {"k=3": 1.3, "k=5": 1.4, "k=8": 1.2}
    found = judged(speeds, noise=0)
    line, (step, *_) = report(found).lines[0], report(found).steps
    tokens = 1 + 0.7 + 0.49 + 0.343
    assert step.tokens == pytest.approx(tokens, abs=1e-3)
    assert step.step_ms / step.target_ms == pytest.approx(tokens / 1.3, abs=1e-3)  # type: ignore[operator]
    assert step.break_even_acceptance == pytest.approx((tokens / 1.3 - 1) / 3, abs=1e-3)
    assert found.recommendation["cost"]["draft_ms"] == line.draft_ms
    assert (line.measured, line.curve_of) == ([0, 3, 5, 8], "k=8")
    assert [at.accepted for at in line.positions[:2]] == pytest.approx([0.7, 0.49])

    silent = judged(speeds, counted=False)
    assert silent.verdict == "yes"
    assert silent.recommendation["break_even_acceptance"] is None
    assert silent.recommendation["cost"] == {"draft_ms": None, "target_ms": None}
    (line,) = report(silent).lines
    assert (line.positions, line.missing) == ([], "the server exposes no counters")
    assert {cell.accept_ratio for cell in report(silent).cells} == {None}


def test_cells_are_in_the_playbooks_words() -> None:
    memory = Memory(gpu_gib=70.0, gpu_total_gib=80.0, resident_gib=3.0)
    (standard, first, *_) = judged({"k=3": 1.3, "k=5": 1.4, "k=8": 1.2}, memory=memory).data["cells"]
    assert (first["num_speculative_tokens"], first["gpu_memory_gb"], first["gpu_memory_share"]) == (
        3,
        70,
        0.875,
    )
    assert first["e2e_speedup"] == pytest.approx(1.3, abs=0.05)
    assert first["accept_ratio"] == pytest.approx((0.7 + 0.49 + 0.343) / 3, abs=1e-3)
    assert first["tpot_p50_ms"] > 0
    assert (standard["num_speculative_tokens"], standard["e2e_speedup"]) == (0, None)


def test_the_method_is_the_engines_word() -> None:
    vllm = VllmPool(engine="vllm", model="m", speculation=VllmSpeculation(method="ngram"))
    drafted = EmbeddedPool(engine="embedded", speculation=Speculation(tree="chain:3"))
    assert method_of(setting(3, pool=vllm)) == "ngram"
    assert method_of(setting(3, pool=drafted)) == "draft_model"
    assert method_of(setting(0)) is None


def test_what_is_not_confirmed_is_not_recommended() -> None:
    """k=5 looks 1.6 times as fast while it is chosen, and is as slow as the standard afterwards."""

    def slower(rung: int, name: str, turn: int, at: float) -> float:
        return 1.6 if rung > 1 and name == "k=5" else 1.0

    found = judged({"k=3": 0.9, "k=5": 1.6, "k=8": 0.8}, slower=slower)
    assert found.verdict != "yes"
    assert found.recommendation["setting"] is None
    again = report(found).confirmation
    assert again is not None
    assert [one.setting for one in again.settings] == ["k=5"]
    assert again.settings[0].at_choice.estimate == pytest.approx(1.6, abs=0.03)  # type: ignore[union-attr]
    assert again.settings[0].speedup.estimate == pytest.approx(1.0, abs=0.03)  # type: ignore[union-attr]
    (row,) = [one for one in report(found).overall if one.setting == "k=5"]
    assert (row.stage, row.requests) == ("confirmation", 96)
    assert row.speedups.e2e.estimate == pytest.approx(1.0, abs=0.03)  # type: ignore[union-attr]


def test_the_figure_that_is_reported_is_the_confirmations() -> None:
    def slower(rung: int, name: str, turn: int, at: float) -> float:
        return 1.2 if rung > 1 and name == "k=5" else 1.0

    found = judged({"k=3": 1.1, "k=5": 1.8, "k=8": 0.8}, slower=slower)
    assert found.reason.startswith("deploy K=5 for all traffic at 1 stream (1.5")
    assert found.summary["e2e_speedup"]["estimate"] == pytest.approx(1.5, abs=0.03)
    assert found.summary["prompts"] == 48
    (cell,) = [one for one in report(found).cells if one.setting == "k=5"]
    assert cell.e2e_speedup == pytest.approx(1.5, abs=0.03)


def test_a_runner_up_that_is_surely_faster_when_both_are_measured_again_is_recommended() -> None:
    def slower(by: float) -> Any:
        return lambda rung, name, turn, at: by if rung > 1 and name == "k=5" else 1.0

    speeds = {"k=3": 1.5, "k=5": 1.6, "k=8": 0.8}
    assert judged(speeds, slower=slower(1.2), noise=0.01).recommendation["k"] == 3
    # Within a hundredth it stays the chosen one: to take the larger figure would make it too high.
    assert judged(speeds, slower=slower(1.0667 * 1.005), noise=0.001).recommendation["k"] == 5
    assert judged(speeds, slower=slower(1.6), noise=0.01).recommendation["k"] == 3
    assert judged(speeds, slower=slower(1.0), noise=0.01).recommendation["k"] == 5


def test_without_a_confirmation_nothing_is_recommended() -> None:
    speeds = {"k=3": 1.3, "k=5": 1.6, "k=8": 0.8}
    chosen = judged(speeds, confirming=0)
    assert chosen.verdict == "undecided"
    assert "k=5 at 1 stream, 1.6" in chosen.reason
    (row,) = [one for one in report(chosen).overall if one.setting == "k=5"]
    assert row.decision is not None
    assert row.decision.reason.endswith("at the choice; not confirmed")


def test_prompts_that_were_not_fresh_are_said_to_be_so() -> None:
    speeds = {"k=3": 1.3, "k=5": 1.6, "k=8": 0.8}
    assert "too few prompts to split" in judged(speeds, fresh=False).reason
    assert "too few prompts to split" not in judged(speeds).reason


def test_a_tie_goes_to_the_one_that_drafts_less_whatever_their_order() -> None:
    """And what is a little more than a hundredth apart, and told apart, is no tie."""
    for asked in (settings(3, 5), settings(5, 3)):
        assert judged({"k=3": 1.6, "k=5": 1.6}, asked, noise=0.1).recommendation["k"] == 3
    assert judged({"k=3": 1.58, "k=5": 1.6}, settings(3, 5), noise=0).recommendation["k"] == 5
    assert judged({"k=3": 1.6, "k=5": 1.58}, settings(3, 5), noise=0).recommendation["k"] == 3


def test_two_settings_are_told_apart_with_95_percent() -> None:
    """Between the ends of the 50% interval and those of the 95% one: a tie."""
    cells = swept({"k=3": 1.5, "k=5": 1.5}, settings(3, 5), noise=0.05, confirming=0, seed=seed_of_a_tie())
    found = SweepCells(cells, settings(3, 5))
    assert not differs(found, Stratum(1), "k=3", "k=5")
    clear = swept({"k=3": 1.5, "k=5": 1.7}, settings(3, 5), noise=0.05, confirming=0)
    assert differs(SweepCells(clear, settings(3, 5)), Stratum(1), "k=3", "k=5")


def seed_of_a_tie() -> int:
    """Of two equal settings whose 50% interval excludes 1, and whose 95% interval holds it."""
    two = settings(3, 5)
    for seed in range(40):
        cells = swept({"k=3": 1.5, "k=5": 1.5}, two, noise=0.05, confirming=0, seed=seed)
        pairs = SweepCells(cells, two).pairs("k=3", Stratum(1), over="k=5")
        wide, narrow = pairs.ratio("e2e", 0.95), pairs.ratio("e2e", 0.5)
        assert wide is not None
        assert narrow is not None
        if wide.low < 1 < wide.high and not narrow.low < 1 < narrow.high:
            return seed
    raise AssertionError("no such seed")


FASTER = {"k=3": 1.6}


def changed(cells: list[SweptCell], name: str, change: Any) -> list[SweptCell]:
    """With the rows of this setting as `change` makes them of their number, from 0, and themselves."""

    def of(cell: SweptCell) -> SweptCell:
        rows = tuple(row.model_copy(update=change(n, row, cell)) for n, row in enumerate(cell.cell.rows))
        return cell.model_copy(update={"cell": cell.cell.model_copy(update={"rows": rows})})

    return [of(cell) if cell.setting == name else cell for cell in cells]


def faulty(change: Any, name: str = "k=3") -> SweepJudgement:
    """96 requests to the setting, and 32 sampled ones, within margins that they bound without an event."""
    one = settings(3)
    finalists = Finalists(settings=("k=3",), streams=(1,))
    cells = swept(FASTER, one, rungs=0, confirming=2)
    found = changed(cells, name, change)
    return judged({}, one, cells=found, finalists=finalists, margins=made_sweeps.BOUND_BY_96)


def took(ms: float) -> dict[str, float]:
    return {"e2e_ms": ms, "e2e_with_retries_ms": ms}


def test_the_same_without_a_fault_pays() -> None:
    assert faulty(lambda n, row, cell: {}).verdict == "yes"


@pytest.mark.parametrize("after_ms", [1.0, 5000.0])
def test_a_setting_whose_requests_fail_is_not_recommended(after_ms: float) -> None:
    found = faulty(lambda n, row, cell: {"error": "timeout", **took(after_ms)} if n in (5, 17) else {})
    assert found.verdict == "no"
    assert "each request of p005, p017 fails, which the standard answers" in found.reason
    once = faulty(lambda n, row, cell: {"error": "timeout", **took(after_ms)} if n == 5 + cell.rung else {})
    assert once.verdict != "yes"
    assert "2 of 128 requests failed, were refused or were late (standard 0 of 256)" in once.reason


def test_a_setting_that_hangs_is_not_recommended() -> None:
    found = faulty(lambda n, row, cell: took(10_000.0) if n in (5, 17) else {})
    assert found.verdict != "yes"
    assert "4 of 128 requests failed, were refused or were late (standard 0 of 256)" in found.reason


def test_a_setting_that_stops_early_is_not_recommended() -> None:
    def half(n: int, row: Any, cell: Any) -> dict[str, Any]:
        return {"tokens": row.tokens // 2, "text": row.text[: len(row.text) // 2], **took(row.e2e_ms / 2)}

    found = faulty(half)
    assert found.verdict != "yes"
    assert "answers are 50% [50, 50] shorter" in found.reason


def test_a_standard_that_truncates_is_named() -> None:
    def half(n: int, row: Any, cell: Any) -> dict[str, Any]:
        return {"tokens": row.tokens // 2, "text": row.text[: len(row.text) // 2], "finish_reason": "length"}

    found = faulty(half, "standard")
    assert found.verdict != "yes"
    assert "answers are 100% [100, 100] longer" in found.reason


def test_repeats_from_a_cache_are_not_a_gain() -> None:
    """The first requests are as slow as the standard's; in the second rung they are answered at once."""

    def cached(n: int, row: Any, cell: SweptCell) -> dict[str, Any]:
        return took(row.e2e_ms * 1.6) if cell.rung == 0 else took(row.e2e_ms / 10)

    found = faulty(cached)
    assert found.verdict != "yes"
    # Also where the gain is real without it.
    surely = faulty(lambda n, row, cell: took(row.e2e_ms / (20 if cell.rung else 15)))
    assert surely.verdict != "yes"
    assert "repeats come from a cache" in surely.reason
    assert "1.34× [1.32, 1.36] as long in first requests as in repeats" in surely.reason


def slowed(rung: int, factor: float) -> Any:
    """The standard takes `factor` times as long in this rung."""
    one = settings(3)
    cells = swept({"k=3": 1.0}, one, rungs=0, confirming=2)
    slower = changed(
        [cell for cell in cells if cell.rung == rung],
        "standard",
        lambda n, row, cell: took(row.e2e_ms * factor),
    )
    kept = {(cell.rung, cell.setting, cell.turn): cell for cell in slower}
    cells = [kept.get((cell.rung, cell.setting, cell.turn), cell) for cell in cells]
    return judged({}, one, cells=cells, finalists=Finalists(settings=("k=3",), streams=(1,)))


@pytest.mark.parametrize("rung", [0, 1])
def test_a_gain_that_one_rung_shows_and_another_excludes_is_a_drift(rung: int) -> None:
    assert slowed(rung, 2.0).verdict == "undecided"


def test_a_gain_that_ends_with_the_last_turn_is_a_drift() -> None:
    """The rung has the mean of its turns, which shows a gain."""
    one, last = settings(3), (4, 1)
    cells = swept({"k=3": 1.6}, one, rungs=0, confirming=5)
    cells = [
        again.model_copy(update={"turn": turn})
        for again in cells
        for turn in ((0, 1) if again.setting == "k=3" else (again.turn,))
    ]
    cells = [
        changed([cell], "k=3", lambda n, row, cell: took(1.6 * row.e2e_ms))[0]
        if (cell.rung, cell.turn) == last
        else cell
        for cell in cells
    ]
    found = judged({}, one, cells=cells, finalists=Finalists(settings=("k=3",), streams=(1,)))
    assert found.verdict == "undecided"
    assert "the speed-up changed during the run" in found.reason
    assert "in turn 2 of rung 5" in found.reason


@pytest.mark.parametrize(("first", "verdict"), [(24, "undecided"), (None, "yes")])
def test_a_standard_that_slows_down_within_its_first_turn_is_no_gain(first: int | None, verdict: str) -> None:
    """Each turn of the setting has a standard beside it that is slow in most requests."""
    one = settings(3)

    def slower(n: int, row: Any, cell: SweptCell) -> dict[str, float]:
        early = first is not None and (cell.rung, cell.turn) == (0, 0) and n < first
        return (
            {} if early else took(2 * row.e2e_ms) | {"ttft_ms": 2 * row.ttft_ms, "tpot_ms": 2 * row.tpot_ms}
        )

    cells = changed(swept({"k=3": 1.0}, one, rungs=0, confirming=2), "standard", slower)
    finalists = Finalists(settings=("k=3",), streams=(1,))
    found = judged({}, one, cells=cells, finalists=finalists, margins=made_sweeps.BOUND_BY_96)
    assert found.verdict == verdict
    assert ("standard's later requests" in found.reason) == (first is not None)


def test_a_machine_that_slows_down_for_both_leaves_the_gain() -> None:
    slow = {"slower": lambda rung, name, turn, now: 1.5 if rung else 1.0}
    assert judged({"k=3": 1.3, "k=5": 1.6, "k=8": 0.8}, **slow).verdict == "yes"


def test_only_a_gain_that_every_turn_shows_survives_turns_that_differ() -> None:
    def rungs(**of: tuple[float, float]) -> dict[tuple[int, int], Interval]:
        return {
            (int(name[1:]), 0): Interval((low + high) / 2, low, high, 24, 0.95)
            for name, (low, high) in of.items()
        }

    wait = Finding(claim="wait", verdict="shown", ratio=Interval(1.4, 1.25, 1.57, 48), n=48)

    def verdict(found: dict[tuple[int, int], Interval]) -> str:
        return Division(turns=found).limit(wait).verdict

    assert verdict({}) == "shown"
    assert verdict(rungs(r0=(0.97, 1.03), r1=(1.9, 2.1))) == "open"
    assert verdict(rungs(r0=(1.9, 2.1), r1=(0.97, 1.03))) == "open"
    three = Division(turns=rungs(r0=(1.9, 2.1), r1=(0.97, 1.03), r2=(1.0, 1.9))).limit(wait)
    assert three.cause == "time"
    assert [part.name for part in three.parts] == ["in turn 1 of rung 1", "in turn 1 of rung 2"]
    assert verdict(rungs(r0=(1.05, 1.10), r1=(1.9, 2.1))) == "open"  # the drift is larger than the gain
    assert verdict(rungs(r0=(1.25, 1.35), r1=(1.45, 1.55))) == "shown"
    assert verdict(rungs(r0=(0.99, 1.05), r1=(1.2, 1.4))) == "open"  # it is not, but one does not show it
    assert verdict(rungs(r0=(1.04, 1.08), r1=(1.2, 1.4))) == "open"  # nor beyond a turn's own noise
    assert verdict(rungs(r0=(1.06, 1.10), r1=(1.2, 1.4))) == "shown"
    assert verdict(rungs(r0=(0.97, 1.40), r1=(1.2, 2.1))) == "shown"  # they need not differ
    assert verdict(rungs(r0=(0.97, 1.03))) == "shown"


def test_first_tokens_alone_that_come_earlier_are_no_speculation() -> None:
    one, finalists = settings(3), Finalists(settings=("k=3",), streams=(1,))
    cells = changed(
        swept({"k=3": 1.0}, one, rungs=0, confirming=2),
        "standard",
        lambda n, row, cell: took(row.e2e_ms + 100) | {"ttft_ms": row.ttft_ms + 100},
    )
    found = judged({}, one, cells=cells, finalists=finalists)
    assert found.verdict == "undecided"
    assert "per output token" in found.reason


def test_a_client_that_was_the_bottleneck_decides_nothing() -> None:
    one, finalists = settings(3), Finalists(settings=("k=3",), streams=(1,))
    cells = swept(FASTER, one, rungs=0, confirming=2)
    record = cells[0].cell.model_copy(
        update={"client_bound": "the client was the bottleneck: it was busy 97% of the time"}
    )
    bound = [cells[0].model_copy(update={"cell": record}), *cells[1:]]
    found = judged({}, one, cells=bound, finalists=finalists)
    assert found.verdict == "undecided"
    assert found.reason.count("the client was the bottleneck: it was busy 97% of the time") == 1
    assert found.reason.count("the client was the bottleneck") == 1


def test_loads_are_decided_from_the_lightest() -> None:
    """It was chosen for 1 stream. That it pays at 4 is left open where it does not at 1."""

    finalists = Finalists(settings=("k=3",), streams=(1, 4))
    one, at = settings(3), loads(1, 4)
    cells = swept(lambda n, load, of: 1.5 if load.concurrency == 4 else 0.8, one, at, rungs=0)
    found = judged({}, one, at, cells=cells, finalists=finalists)
    assert found.verdict == "undecided"
    assert "k=3 at 4 streams pays (1.50× [" in found.reason
    assert found.recommendation["setting"] is None


def test_lengths_that_are_accepted_are_named_with_the_recommendation() -> None:
    one, finalists = settings(3), Finalists(settings=("k=3",), streams=(1,))

    def halved(n: int, row: Any, cell: SweptCell) -> dict[str, Any]:
        return {"tokens": row.tokens // 2, "text": row.text[: len(row.text) // 2], **took(row.e2e_ms / 2)}

    cells = changed(swept(FASTER, one, rungs=0, confirming=2), "k=3", halved)
    accepting = made_sweeps.FEW_REQUESTS.model_copy(update={"accept_length_change": True})
    found = judged({}, one, cells=cells, finalists=finalists, margins=accepting)
    assert found.verdict == "yes"
    assert "answers are 50% [50, 50] shorter (margin 3%): accepted" in found.reason
    assert "per output token" in found.reason
    assert judged({}, one, cells=cells, finalists=finalists).verdict != "yes"
    same = faulty(lambda n, row, cell: {})
    assert "per output token" not in same.reason


def candidate(name: int, low: float, high: float, n: int = 48, **fields: Any) -> Candidate:
    """Undecided, by an interval of its speed-up."""
    speedup = Interval(math.sqrt(low * high), low, high, n)
    decision = Decision(
        verdict="undecided", reason="open", speedup=speedup, more_prompts=stats.pairs_needed(speedup)
    )
    return Candidate(setting(name, **fields), decision, speedup)


def needed(*candidates: Candidate) -> int | None:
    return nothing_pays([Contest(Stratum(1), candidates, None)]).more_prompts


def test_settings_that_all_look_slower_need_as_many_prompts_as_the_last_of_them_for_a_no() -> None:
    near, far = candidate(3, 0.80, 1.20), candidate(5, 0.70, 1.05)
    each = [stats.pairs_needed(one.speedup) for one in (near, far) if one.speedup]
    assert each[0] > each[1] > 0
    assert needed(near, far) == needed(far, near) == each[0]
    assert needed(far) == each[1]
    assert needed(candidate(8, 0.5, 2.0 - 1e-9), far) is None  # no number would decide the first


def test_of_a_yes_the_most_hopeful_says_how_many_prompts_it_needs() -> None:
    hope, far = candidate(3, 0.95, 1.30), candidate(5, 0.97, 1.04)
    assert needed(hope, far) == hope.decision.more_prompts
    assert hope.decision.more_prompts != far.decision.more_prompts


def test_of_settings_that_draft_as_much_and_are_as_fast_the_faster_estimate_wins() -> None:
    def paying(name: str, estimate: float) -> Candidate:
        speedup = Interval(estimate, 1.2, 1.8, 48)
        one = replace(setting(3), name=name, draft=name)
        return Candidate(one, Decision(verdict="yes", reason="", speedup=speedup), speedup)

    slow, fast = paying("a", 1.500), paying("b", 1.505)
    for order in ([slow, fast], [fast, slow]):
        found = best(order, lambda one, other: False)
        assert found is fast


def test_a_cache_that_the_standard_has_as_well_is_no_difference() -> None:
    wait = Finding(claim="wait", verdict="shown", ratio=Interval(1.4, 1.25, 1.57, 48), n=48)

    def verdict(standard: tuple[float, float] | None, setting: tuple[float, float] | None) -> str:
        both = [Interval(1.5, *ends, 24) if ends else None for ends in (standard, setting)]
        return Division(repeats=(both[0], both[1])).limit(wait).verdict

    assert verdict(None, (1.3, 1.7)) == "open"
    assert verdict((0.9, 1.1), (1.3, 1.7)) == "open"
    assert verdict((1.2, 1.6), (1.3, 1.7)) == "shown"
    assert verdict((0.9, 1.1), (1.1, 1.7)) == "shown"  # as far apart as two starts of a server may be
    # The standard is asked first: where it has a cache, the setting may have its answers from the same one.
    assert verdict((1.3, 1.7), None) == "open"
    assert verdict((0.9, 1.1), None) == "shown"


def test_a_rival_as_fast_as_the_recommended_is_not_apart() -> None:
    found = judged({"k=3": 1.5, "k=5": 1.5, "k=8": 0.7}, noise=0.1)
    assert found.verdict == "yes"
    assert [(rival.differs, rival.ratio is not None) for rival in report(found).runners_up] == [(False, True)]


def test_a_setting_whose_first_token_is_late_still_has_its_speed_up() -> None:
    cells = changed(
        swept({"k=3": 1.5}, settings(3)), "k=3", lambda n, row, cell: {"ttft_ms": row.ttft_ms + 90}
    )
    pairs = SweepCells(cells, settings(3)).pairs("k=3", Stratum(1))
    of_speed = claims.of_speed(pairs, Stratum(1), 0.95, Ab(), sampled=False)
    found = recommend.candidate(settings(3)[-1], of_speed, [], Division(), Ab(), confirmed=True)
    assert found.decision.verdict == "no"
    assert [one.claim for one in found.decision.findings] == ["first token"]
    assert found.speedup == pairs.ratio("e2e", 0.95)


@pytest.mark.parametrize(("length", "named"), [(2.0, True), (1.0, False)])
def test_a_no_by_the_time_per_token_names_other_lengths(length: float, named: bool) -> None:
    """The end-to-end figure beside it would look like the reason."""
    pairs = Pairs(
        tuple(
            Pair(
                f"p{n}",
                "chat",
                {
                    "e2e": ((100.0, length * (100.0 + n % 3 - 1)),),
                    "tpot": ((10.0, 10.0 + (n % 3 - 1) / 100),),
                    "ttft": ((5.0, 5.0),),
                    "tokens": ((20.0, 20.0 * length),),
                },
            )
            for n in range(48)
        )
    )
    of_speed = claims.of_speed(pairs, Stratum(1), 0.95, Ab(), sampled=False)
    found = claims.decide(of_speed, Ab(), confirmed=True)
    assert found.verdict == "no", found.reason
    assert ("answers are" in found.reason) == named, found.reason
