"""What a sweep recommends: the highest measured speed-up that is sure, or nothing, and why."""

from __future__ import annotations

from typing import Any

import pytest
from made_sweeps import died, loads, setting, settings, swept

from specops.config import EmbeddedPool, Speculation, VllmPool, VllmSpeculation
from specops.phases.sweep.choice import method_of
from specops.phases.sweep.jobs import Setting, Skipped
from specops.phases.sweep.judging import Judged, judge
from specops.phases.sweep.recommend import of_each
from specops.phases.sweep.records import Memory, SweptCell
from specops.phases.sweep.report import Report

THREE = settings(3, 5, 8)


def judged(speed: Any, asked: list[Setting] = THREE, at: Any = None, **made: Any) -> Judged:
    judging = {name: made.pop(name) for name in ("failed", "skipped", "cells") if name in made}
    found: list[SweptCell] = judging.pop("cells", None) or swept(speed, asked, at, **made)
    return judge(asked, at or loads(), found, judging.pop("failed", []), **judging)


def report(found: Judged) -> Report:
    return Report.model_validate(found.data)


def test_the_fastest_that_surely_pays() -> None:
    found = judged({"k=3": 1.3, "k=5": 1.6, "k=8": 0.8})
    assert found.verdict == "yes"
    assert found.reason.startswith("deploy k=5: 1.6")
    assert found.reason.endswith("at 1 stream")
    assert found.summary["recommended"] == 5
    told = found.recommendation
    assert set(told) >= {
        "verdict", "method", "k", "tree", "schedule", "break_even_acceptance", "cost", "crossover",
        "by_class",
    }  # fmt: skip
    assert (told["k"], told["method"], told["schedule"]) == (5, "ngram", [[1, 1, 5]])
    assert told["crossover"] == {"on_max": 1, "off_min": None, "per": "replica"}
    assert {group["verdict"] for group in told["by_class"].values()} == {"yes"}
    assert [(r.setting, r.apart) for r in report(found).rivals] == [("k=3", True)]


def test_classes_of_too_few_prompts_are_told_in_one_breath() -> None:
    found = judged({"k=3": 1.3, "k=5": 1.6, "k=8": 0.8}, prompts=12)
    assert found.verdict == "yes"
    assert found.reason.endswith("at 1 stream; too few prompts to decide for edit, long, short")


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
    assert "gains less than 1% at best" in report(found).together[1].decision.reason  # type: ignore[union-attr]


def test_undecided_says_how_many_prompts_would_tell() -> None:
    found = judged({"k=3": 1.06, "k=5": 0.98, "k=8": 0.97}, noise=0.4, prompts=24)
    assert found.verdict == "undecided"
    assert found.recommendation["k"] is None
    assert found.summary["more_prompts"] > 10
    assert f"about {found.summary['more_prompts']} more prompts would tell" in found.reason


def test_one_rung_on_a_machine_that_drifts_asks_for_more_rungs() -> None:
    stepped = judged(
        {"k=3": 1.3, "k=5": 1.2, "k=8": 1.1}, rungs=1, slower=lambda r, n, turn, at: 1.2 if turn else 1.0
    )
    assert stepped.verdict == "undecided"
    assert stepped.reason.endswith("by more than it gains: more repeats would tell)")


def test_an_interval_that_says_nothing_is_not_shown() -> None:
    stepped = judged(
        {"k=3": 1.3, "k=5": 1.2, "k=8": 1.1}, rungs=1, slower=lambda r, n, turn, at: 1.9 if turn else 1.0
    )
    assert stepped.verdict == "undecided"
    assert "× (the machine drifted" in stepped.reason


def test_the_best_of_many_is_not_the_luckiest() -> None:
    """Twenty settings that gain nothing, on few noisy prompts: some plain interval excludes 1, none here."""
    many = settings(*range(1, 21))
    nothing = {one.name: 1.0 for one in many}
    found = judged(nothing, many, noise=0.25, prompts=24, seed=5)
    assert found.verdict != "yes"
    plain = [
        found.estimate
        for one in report(found).together
        if one.speedups and (found := one.speedups.e2e) and found.estimate > 1.02
    ]
    assert plain


def test_confidence_is_shared_by_settings_loads_and_looks() -> None:
    assert of_each(0.95, 1, 1, 1) == pytest.approx(0.95)
    assert of_each(0.95, 5, 2, 1) == pytest.approx(0.995)
    speeds, at = {"k=3": 1.3, "k=5": 1.2, "k=8": 1.1}, loads(1)[0]
    left = [Skipped("k=8", at, 0, "in the slower half")]
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
    assert found.reason.startswith("deploy k=3 for long: 1.6")
    assert "all classes together: " in found.reason
    assert found.recommendation["only_for"] == ["long"]
    assert {name: g["verdict"] for name, g in found.recommendation["by_class"].items()} == {
        "edit": "no", "long": "yes", "short": "no",
    }  # fmt: skip
    assert found.recommendation["by_class"]["edit"]["k"] == 0
    assert found.recommendation["schedule"] is None


def test_a_class_that_loses_is_told() -> None:
    found = judged(lambda name, load, of: {"short": 0.8}.get(of, 1.8))
    assert "; not for short: 0.79× [0.78, 0.81]: slower" in found.reason


def test_ttft_is_a_veto() -> None:
    def slow_to_begin(cell: SweptCell) -> SweptCell:
        rows = tuple(row.model_copy(update={"ttft_ms": row.ttft_ms + 90}) for row in cell.cell.rows)  # type: ignore[operator]
        return cell.model_copy(update={"cell": cell.cell.model_copy(update={"rows": rows})})

    cells = swept({"k=3": 1.5, "k=5": 1.4, "k=8": 1.4}, THREE)
    found = judged({}, cells=[slow_to_begin(c) if c.setting == "k=3" else c for c in cells])
    assert found.recommendation["k"] in (5, 8)
    (first, *_) = [one for one in report(found).together if one.setting == "k=3"]
    assert first.decision is not None
    assert "TTFT grows by" in first.decision.reason


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
