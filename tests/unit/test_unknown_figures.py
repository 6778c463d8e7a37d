"""A latency or a token rate of 0 or less is never evidence: what has one is as if it was not measured."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from made_sweeps import judged as judged_sweep
from made_sweeps import loads, settings, swept
from made_windows import ARMS, judged, row, windows

from specops.experiment.records import WindowRecord
from specops.experiment.samples import FIGURES, pair_up
from specops.load.record import CellRecord, Row
from specops.phases.ab.report import Speedups
from specops.phases.sweep.plan import Finalists
from specops.stats import Interval

WRONG = (0.0, -5.0, math.nan, math.inf)


def with_rows(window: WindowRecord, change: Callable[[Row], dict[str, Any]]) -> WindowRecord:
    rows = tuple(one.model_copy(update=change(one)) for one in window.cell.rows)
    return window.model_copy(update={"cell": window.cell.model_copy(update={"rows": rows})})


@pytest.mark.parametrize("value", WRONG)
@pytest.mark.parametrize("name", ["ttft_ms", "tpot_ms"])
def test_a_row_is_read_without_a_latency_that_no_clock_can_give(name: str, value: float) -> None:
    assert getattr(row("p", "edit", 100.0, **{name: value}), name) is None
    assert getattr(row("p", "edit", 100.0, **{name: 1e-3}), name) == 1e-3


@pytest.mark.parametrize("name", ["tokens_per_sec", "peak_tokens_per_sec"])
def test_a_cell_is_read_without_a_rate_of_zero(name: str) -> None:
    fields = windows(2.0)[0].cell.model_dump(by_alias=True)
    assert getattr(CellRecord(**fields | {name: 0.0}), name) is None
    assert getattr(CellRecord(**fields | {name: 9.5}), name) == 9.5
    assert CellRecord(**fields | {"goodput_per_sec": 0.0}).goodput_per_sec == 0  # that none met it is a fact


@pytest.mark.parametrize("value", [0.0, -5.0])
@pytest.mark.parametrize("arm", ARMS)
def test_answers_that_took_no_time_are_no_pairs(arm: str, value: float) -> None:
    """Neither the challenger's, which would be infinitely fast, nor the standard's."""
    gone = {"e2e_ms": value, "e2e_with_retries_ms": value}
    made = [
        with_rows(one, lambda row, arm=one.arm == arm: gone if arm and row.prompt < "p020" else {})
        for one in windows(2.0)
    ]
    timed = [sample for sample in pair_up(made, *ARMS) if FIGURES["e2e"](sample) is not None]
    assert min(sample.standard.prompt for sample in timed) == "p020"


def test_nothing_but_answers_that_took_no_time_decides_nothing() -> None:
    gone = {"e2e_ms": 0.0, "e2e_with_retries_ms": 0.0, "ttft_ms": None, "tpot_ms": None}
    made = [with_rows(one, lambda row, arm=one.arm: gone if arm == ARMS[1] else {}) for one in windows(2.0)]
    assert judged(made).decision.verdict == "undecided"


@pytest.mark.parametrize("low", [0.0, -1.0])
def test_a_ratio_in_a_file_that_reaches_zero_is_unknown(low: float) -> None:
    interval = {"estimate": 2.0, "low": low, "high": 3.0, "n": 48, "level": 0.95}
    fields = dict.fromkeys(("e2e", "tpot", "ttft", "stream_throughput"), interval)
    level = {"concurrency": 1}
    found = Speedups.model_validate({"level": level, "prompts": 48, "ttft_change_ms": -3.0, **fields})
    assert (found.e2e, found.tpot, found.ttft, found.stream_throughput) == (None,) * 4
    whole = Speedups.model_validate(
        {"level": level, "prompts": 48, "ttft_change_ms": 0.0, **fields, "e2e": interval | {"low": 1.5}}
    )
    assert whole.e2e == Interval(2.0, 1.5, 3.0, 48, 0.95)
    assert whole.ttft_change_ms == 0.0  # that nothing changed is a finding


@pytest.mark.parametrize("value", [0.0, -5.0])
def test_a_setting_of_a_sweep_whose_answers_took_no_time_does_not_pay(value: float) -> None:
    gone = {"e2e_ms": value, "e2e_with_retries_ms": value, "tpot_ms": None, "ttft_ms": None}
    cells = swept({"k=3": 1.0}, settings(3), rungs=0, confirming=2)
    changed = [
        one.model_copy(
            update={
                "cell": one.cell.model_copy(
                    update={"rows": tuple(row.model_copy(update=gone) for row in one.cell.rows)}
                )
            }
        )
        if one.setting == "k=3"
        else one
        for one in cells
    ]
    found = judged_sweep(
        settings(3), loads(), changed, [], finalists=Finalists(settings=("k=3",), streams=(1,))
    )
    assert found.verdict != "yes"
