"""The picture of a sweep: the same bytes every time, its numbers in it, and drawn whatever is missing."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_sweeps import judged, loads, settings, swept

from specops.errors import FileError
from specops.phases.sweep.plan import Load
from specops.phases.sweep.report import Report, picture
from specops.render.plot import Heading
from specops.render.sweep_plot import Point, draw, frontier

THREE = settings(3, 5)
HEADING = Heading("Sweep: yes", ("deploy",))


@cache
def report(at: tuple[Load, ...] = tuple(loads(1, 4)), prompts: int = 48) -> Report:
    cells = swept(
        lambda n, load, of: {"k=3": 1.3, "k=5": 1.6}[n] / load.concurrency**0.5, THREE, at, prompts=prompts
    )
    return Report.model_validate(judged(THREE, at, cells).data)


@pytest.mark.parametrize("suffix", [".svg", ".png"])
def test_the_picture_is_the_same_every_time(tmp_path: Path, suffix: str) -> None:
    drawn = []
    for name in ("one", "two"):
        path = tmp_path / "new" / f"{name}{suffix}"
        draw(picture(report()), HEADING, path)
        drawn.append(path.read_bytes())
    assert drawn[0] == drawn[1]


def test_every_square_has_its_number_and_what_it_is_worth(tmp_path: Path) -> None:
    found = report()
    draw(picture(found), HEADING, tmp_path / "sweep.svg")
    text = (tmp_path / "sweep.svg").read_text()
    speedups = [cell.e2e_interval for cell in found.cells if cell.e2e_interval]
    assert len(speedups) == 4
    for interval in speedups:
        assert f"{interval.estimate:.2f}×" in text
        assert f"{interval.low:.2f} to {interval.high:.2f}" in text
    for words in ("k=3", "4 streams", "end-to-end speed-up over standard", "tokens/s of all streams"):
        assert words in text


def test_every_load_has_its_panel() -> None:
    at = tuple(loads(1, temperatures=(0.0, 0.7), lengths=("short", "long")))
    panels = picture(report(at)).panels
    assert [panel.title for panel in panels] == [
        "temperature 0, short", "temperature 0.7, short", "temperature 0, long", "temperature 0.7, long",
    ]  # fmt: skip
    assert [square.chosen for square in panels[0].squares] == [False, True]
    assert [panel.title for panel in picture(report()).panels] == [""]


def test_a_picture_without_figures_is_drawn_all_the_same(tmp_path: Path) -> None:
    few, none = report(prompts=3), report().model_copy(update={"cells": [], "overall": []})
    draw(picture(few), HEADING, tmp_path / "few.svg")
    assert "–" in (tmp_path / "few.svg").read_text()
    draw(picture(none), HEADING, tmp_path / "none.svg")
    assert "the endpoint reports no usage" in (tmp_path / "none.svg").read_text()


def test_an_undecided_point_is_not_drawn_as_a_decided_one(tmp_path: Path) -> None:
    few = picture(report(prompts=3))
    by_setting = {point.setting: point.decided for point in few.points}
    assert by_setting == {"standard": True, "k=3": False, "k=5": False}
    for found, undecided in ((few, True), (picture(report()), False)):
        draw(found, HEADING, tmp_path / "sweep.svg")
        text = (tmp_path / "sweep.svg").read_text()
        assert ("its speed-up is undecided" in text) == undecided
        assert "not beaten in both figures" in text


def test_a_picture_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(FileError, match="could not write the plot"):
        draw(picture(report()), HEADING, tmp_path / "taken" / "sweep.svg")


FIGURES = st.floats(1, 1000).map(lambda value: round(value, 1))
POINTS = st.lists(st.builds(Point, st.just("k"), st.just(1), FIGURES, FIGURES, st.booleans()), max_size=12)


@given(POINTS)
def test_nothing_beats_the_frontier(points: list[Point]) -> None:
    front = frontier(points)
    for point in points:
        beaten = any(
            other.user >= point.user and other.total >= point.total and other != point for other in points
        )
        assert beaten or point in front
    assert all(one.user >= other.user and one.total < other.total for one, other in pairwise(front))
