"""`specops plot`: every kind of result that has a plot, legible colours, and what is undecided."""

from __future__ import annotations

import json
import shutil
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from calling import specops
from matplotlib import colormaps
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.image import imread

from specops.phases.plot import plotter
from specops.render.ab_plot import Curve, Mark, Panel, Picture, Row, draw
from specops.render.plot import BACKGROUND, GREY, INK, SERIES, Heading, contrast, figure, foot, ink_on
from specops.results import Result, write

EXAMPLES = Path(__file__).parents[2] / "alerts" / "examples"


def test_text_is_legible_on_every_background() -> None:
    assert contrast("#ffffff", "#000000") == pytest.approx(21)
    for ink in (INK, GREY):
        assert contrast(ink, BACKGROUND) >= 4.5
    for share in np.linspace(0, 1, 101):
        square = colormaps["PuOr"](share)[:3]
        assert contrast(ink_on(square), square) >= 4.5, share


@pytest.mark.parametrize("name", ["baseline", "ab"])
def test_a_plot_has_verdict_model_date_and_sample_size(name: str, tmp_path: Path) -> None:
    shutil.copy(EXAMPLES / f"{name}.json", tmp_path)
    done = specops("plot", str(tmp_path / f"{name}.json"))
    assert done.returncode == 0, done.stderr
    text = (tmp_path / f"{name}.svg").read_text()
    result = json.loads((EXAMPLES / f"{name}.json").read_text())
    title = {"baseline": "Baseline", "ab": "Comparison"}[name]
    assert result["verdict"] == "yes"
    for words in (f"{title}: passed", result["created"][:10], "n = ", "model "):
        assert words in text
    assert ("model not recorded" in text) == (name == "baseline")  # the example has no settings
    assert "n = 0 " not in text
    assert f"fill: {BACKGROUND}" in text, "the background is opaque"


def test_png_is_written_where_it_is_asked_for(tmp_path: Path) -> None:
    out = tmp_path / "new" / "plot.png"
    done = specops("plot", str(EXAMPLES / "ab.json"), "--out", str(out), "--json")
    assert json.loads(done.stdout) == {"plot": str(out)}
    assert out.read_bytes().startswith(b"\x89PNG")


def test_what_has_no_plot_is_one_sentence_and_exit_code_2(tmp_path: Path) -> None:
    path = tmp_path / "canary.json"
    write(path, Result(phase="canary", verdict="yes", reason="the pools agree"))
    done = specops("plot", str(path))
    assert done.returncode == 2
    assert "a result of canary: expected one of baseline, sweep, ab" in done.stderr
    shutil.copy(EXAMPLES / "ab.json", tmp_path)
    for wrong in (path, tmp_path):
        done = specops("plot", str(wrong))
        assert (done.returncode, f"hint: specops plot {tmp_path / 'ab.json'}" in done.stderr) == (2, True)
    done = specops("plot", str(EXAMPLES / "ab.json"), "--out", str(tmp_path / "plot.pdf"))
    assert (done.returncode, "expected a name that ends with .svg or .png" in done.stderr) == (2, True)
    assert plotter("report")


def test_a_result_without_figures_has_nothing_to_draw(tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    none = {"n": 0, "p50": None, "p95": None}
    level = {"concurrency": 1, "rate": None, "requests": 4, "e2e_ms": none}
    data = {"by_concurrency": [level]}
    write(path, Result(phase="baseline", verdict="no", reason="all requests failed", data=data))
    done = specops("plot", str(path))
    assert done.returncode == 2
    assert f"nothing to draw in {path}: all requests failed" in done.stderr
    assert not (tmp_path / "baseline.svg").exists()


def drawn(*marks: Mark, folder: Path) -> str:
    panel = Panel("draft", (Row("edit", (), marks),), (), None)
    path = folder / "plot.svg"
    draw(Picture((panel,), None, ""), Heading("Comparison", ()), path)
    return path.read_text()


def test_an_undecided_interval_is_hatched_and_clipped_and_a_decided_one_is_not(tmp_path: Path) -> None:
    undecided = drawn(Mark("1 stream", 0.86, 0.03, 25.0), folder=tmp_path)
    assert "undecided: the interval includes 1" in undecided
    assert "ends outside of the axis" in undecided
    assert "<pattern" in undecided
    decided = drawn(Mark("1 stream", 1.5, 1.4, 1.6), folder=tmp_path)
    assert "undecided" not in decided
    assert "ends outside" not in decided
    assert "<pattern" not in decided


def pixels(mark: Mark, folder: Path) -> int:
    """Of the first load's colour, within the axes."""
    panel = Panel("draft", (Row("edit", (), (mark,)),), (), None)
    path = folder / "plot.png"
    draw(Picture((panel,), None, ""), Heading("Comparison", ()), path)
    seen = imread(path)[:, :, :3]
    seen = seen[:, : int(seen.shape[1] * 0.7)]  # without the legend
    return int(np.count_nonzero(np.all(np.abs(seen - to_rgb(SERIES[0])) < 0.02, axis=2)))


@pytest.mark.parametrize("width", [0.0, 0.001])
def test_an_interval_without_width_at_1_is_seen(width: float, tmp_path: Path) -> None:
    mark = Mark("1 stream", 1.0, 1 - width, 1 + width)
    assert pixels(mark, tmp_path) >= 20
    assert "undecided: a narrow interval that includes 1" in drawn(mark, folder=tmp_path)
    wide = Mark("1 stream", 1.0, 0.5, 2.0)
    assert "narrower than its mark" not in drawn(wide, folder=tmp_path)


def test_a_load_that_is_not_deployed_is_drawn_as_that_whatever_its_interval(tmp_path: Path) -> None:
    """Failures or other answers decide, too: an interval above 1, or around 1, is then no sign of a gain."""
    for low, high in ((0.19, 1.58), (1.2, 1.6)):
        text = drawn(Mark("4 streams", 0.55, low, high, "no"), folder=tmp_path)
        assert "do not deploy" in text
        assert "undecided" not in text
        assert "<pattern" not in text
    undecided = drawn(Mark("4 streams", 1.4, 1.2, 1.6, "undecided"), folder=tmp_path)
    assert "<pattern" in undecided
    assert ">undecided<" in undecided, "this interval does not include 1: something else is open"
    deployed = drawn(Mark("4 streams", 1.4, 1.2, 1.6, "yes"), folder=tmp_path)
    assert "do not deploy" not in deployed
    assert "undecided" not in deployed


def test_a_load_without_an_interval_has_a_note(tmp_path: Path) -> None:
    row = Row("edit", (), (Mark("1 stream", 1.5, 1.4, 1.6),), ("4 streams (do not deploy)",))
    path = tmp_path / "plot.svg"
    draw(Picture((Panel("draft", (row,), (), None),), None, ""), Heading("Comparison", ()), path)
    assert "no interval: 4 streams (do not deploy)" in path.read_text()


@pytest.mark.parametrize(("low", "high"), [(0.4, 3.0), (0.06, 19.0), (0.9, 1.2), (0.7, 1.8)])
@pytest.mark.parametrize("curves", [(), (Curve("1 stream", 0.6, (0.8, 0.6, 0.4)),)])
def test_labels_of_ticks_do_not_touch(low, high, curves, monkeypatch) -> None:
    marks = (Mark("1 stream", low, low * 0.95, low * 1.02), Mark("4 streams", high, high * 0.95, high * 1.02))
    panel = Panel("draft against standard", (Row("summaries of tickets", (), marks),), curves, None)
    gaps = []

    def measure(whole: Figure, *_: object, **__: object) -> None:
        whole.canvas.draw()
        axes = whole.axes[0]
        boxes = [label.get_window_extent() for label in axes.get_xticklabels()]
        boxes.sort(key=lambda box: box.x0)
        gaps.extend(right.x0 - left.x1 for left, right in pairwise(boxes))

    monkeypatch.setattr(Figure, "savefig", measure)
    draw(Picture((panel,), None, ""), Heading("Comparison", ()), Path("plot.svg"))
    assert gaps
    assert min(gaps) > 2


def test_a_note_below_the_axes_fits_into_the_figure(tmp_path: Path) -> None:
    with figure(tmp_path / "plot.png", Heading("Sweep", ()), (4.0, 2.0)) as whole:
        foot(whole, "Intervals have 98.75% confidence each, so that all of them hold together. " * 3)
        whole.canvas.draw()
        below = whole._supxlabel.get_window_extent()  # type: ignore[attr-defined]
        assert 0 <= below.x0 < below.x1 <= whole.bbox.width
