"""How far a comparison can be trusted: each kind of doubt is observed where it is there, and only there; the
terminal and the page say the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from made_runs import compared, run
from made_windows import cell, row

from specops.config import load
from specops.experiment.plan import Window
from specops.load.arrivals import Level
from specops.phases.ab.trust import WIDE, Doubt, caution, is_wide
from specops.phases.run_folder import RunFolder
from specops.phases.run_page.conclusion import doubts_of
from specops.phases.run_page.document import document, walk_document
from specops.render.report.document import Cell, Ratios, shown_state, text_of
from specops.render.report.terminal import terminal
from specops.results import Result
from specops.stats import Interval


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "runs" / "demo"


def slow_at_first(window: Window, prompt: str, at: float) -> dict[str, Any]:
    """The machine is busy in the first half: both arms alike, so that the speed-up stays the same."""
    return {"slower": 3.0} if window.cycle < 10 else {}


def failing(window: Window, prompt: str, at: float) -> dict[str, Any]:
    return {"error": "http_500", "detail": "down"} if window.arm == "speculative" and prompt < "p002" else {}


def faster_when_second(window: Window, prompt: str, at: float) -> dict[str, Any]:
    """A cache that the other arm fills: what goes second is fast."""
    return {"slower": 0.4 if window.arm == "speculative" and window.order == 1 else 1.0}


def found(folder: Path) -> dict[str, Doubt]:
    return {doubt.name: doubt for doubt in doubts_of(RunFolder(folder).walk())}


def shown(folder: Path) -> str:
    walk = RunFolder(folder).walk()
    lines = terminal(walk_document(walk, load(folder / "../../rollout.yaml"), Path("rollout.yaml")))
    return " ".join(" ".join(lines).split())


@pytest.mark.parametrize(
    ("measured", "doubtful", "brief"),
    [
        ({"answer": slow_at_first}, "drift", "the speed was not steady (standard, speculative)"),
        ({"answer": failing}, "bad requests", "requests failed or were late"),
        ({"noise": 1.5, "cycles": 8}, "wide intervals", "are wide"),
        (
            {"answer": faster_when_second, "cycles": 60, "speed": 1.0},
            "noise",
            "the speed-up depends on how it was",
        ),
    ],
)
def test_the_page_and_the_terminal_say_each_doubt(
    folder: Path, measured: dict[str, Any], doubtful: str, brief: str
) -> None:
    run(folder, compared(measured.pop("speed", 2.0), **measured))
    doubt, text, page = found(folder)[doubtful], shown(folder), document(RunFolder(folder))
    assert doubt.observed
    assert brief in doubt.brief
    said = caution(list(found(folder).values()))
    assert said in text
    assert Cell(said, "open") in page.summary
    (section,) = [one for one in page.sections if one.title == "Can this measurement be trusted?"]
    rows = [(text_of(row[0]), text_of(row[1])) for row in section.tables[0].rows]
    assert {line for name, line in rows if name == doubtful} == set(doubt.lines)
    for name, line in rows:
        assert f"{name} {line}" in text


def test_a_steady_measurement_has_no_caution(folder: Path) -> None:
    run(folder, compared(2.0))
    assert [doubt.observed for doubt in found(folder).values()] == [()] * 4
    assert caution(list(found(folder).values())) == ""
    assert "Limits of this measurement" not in shown(folder)
    assert "Limits of this measurement" not in document(RunFolder(folder)).in_short()
    assert found(folder)["drift"].lines == ("none observed",)


def test_too_few_requests_are_not_steady(folder: Path) -> None:
    run(folder, compared(2.0, cycles=1, prompts=3))
    drift = found(folder)["drift"]
    assert drift.lines == ("too few requests to see a drift of standard, speculative",)
    assert "drift too few requests" in shown(folder)


COUNTED = ("requests", "failed", "interrupted", "retried_requests", "retries", "resent_requests")


def test_the_drift_of_the_baseline_is_on_the_page(folder: Path) -> None:
    change = {
        "latency": "e2e_ms", "concurrency": 1, "rate": None, "repeat": 0, "ratio": 1.6, "low": 1.3,
        "high": 2.0, "n": 96, "drift": True, "sentence": "E2E at 1 stream was 1.60× [1.30, 2.00]",
    }  # fmt: skip
    one = cell([row("p000", "edit", 100.0)], Level(concurrency=1), 0)
    cells = [one.model_dump(mode="json", by_alias=True)]
    baseline = Result(phase="baseline", verdict="undecided", reason="not steady",
                      data={"steadiness": [change], "cells": cells, "run": "abcd",
                            "by_concurrency": [], "prompts": {"count": 1}, "percentiles": "linear",
                            "endpoint": {},
                            "errors": dict.fromkeys(COUNTED, 0) | {"by_kind": {}, "examples": {}},
                            "by_class": {}, "acceptance": None, "acceptance_missing": None})  # fmt: skip
    run(folder, baseline, compared(2.0))
    assert found(folder)["drift"].observed == ("baseline: E2E at 1 stream was 1.60× [1.30, 2.00]",)
    assert "the speed was not steady (baseline)" in document(RunFolder(folder)).in_short()
    assert "the speed was not steady (baseline)" in shown(folder)


def test_a_load_that_may_be_a_loss_is_not_green(folder: Path) -> None:
    assert shown_state("yes", Interval(1.0, 0.03, 31.0, 9)) == "open"
    assert shown_state("yes", None) == "open"
    assert shown_state("yes", Interval(2.0, 1.5, 2.5, 9)) == "good"
    assert shown_state("no", Interval(0.5, 0.4, 0.6, 9)) == "bad"
    run(folder, compared(2.0, noise=1.5, cycles=8))
    (pays,) = [one for one in document(RunFolder(folder)).sections if one.title == "Where it pays"]
    (chart,) = pays.charts
    assert isinstance(chart, Ratios)
    assert all(row.low is not None and row.low > 1 for row in chart.rows if row.state == "good")


def test_an_interval_is_wide_from_a_factor_on() -> None:
    assert is_wide(Interval(1.4, 1.0, WIDE, 9))
    assert not is_wide(Interval(1.4, 1.01, WIDE, 9))
