"""The report's page in a real Chromium: it asks for nothing, complains of nothing, and reads well."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest
from browser import CONTRAST, Page, chromium

from specops.render.report.document import (
    Axis,
    Curve,
    Distribution,
    Document,
    Level,
    Line,
    Ratio,
    Ratios,
    Samples,
    Section,
    Step,
    Table,
    Tile,
    TimeChart,
    Timeline,
)
from specops.render.report.formats import html

HOSTILE = '</title><script>alert(1)</script><img src="http://127.0.0.1:9/x.png"> & {{ 7*7 }}'
HOURS = 48
A4 = 687
"""Pixels between the margins of a page."""

Got = TypeVar("Got")


def made() -> Document:
    wave = tuple(None if 10 <= hour < 16 else 0.5 + 0.01 * (hour % 12) for hour in range(HOURS))
    axis = Axis(HOURS, ((0, "Mon 16"), (24, "Tue 17")), ((10, 16),))
    cells = ("many words " * 5, "Sat 21 Nov 14:00", "1,234,567 / 2,345,678", "0.123 (Sat 21 Nov 14:00)")
    rows = tuple((f"row {n}", str(n), *cells) for n in range(60))
    long = Table("Many", ("name", "number", "why", "from", "of", "lowest"), rows, "A note.")
    charts = (
        TimeChart("Acceptance", HOSTILE, "share", (Line("a pool", wave), Line("another", wave[::-1])),
                 (Level("0.55", 0.55),)),
        Timeline("When", "one", ((HOSTILE[:20] + r"$\frac$", ((3, 5.5), (20, 48))),)),
        Curve("By position", "falls", (Line("now", (0.8, 0.6, None)),)),
        Ratios("Speed-up", "one of each state", "95% intervals", (
            Ratio("all", HOSTILE, "good", 1.9, 1.8, 2.0), Ratio("edit", HOSTILE, "bad", 0.8, 0.7, 0.9),
            Ratio("long", HOSTILE, "open", 0.86, 0.03, 25.0), Ratio("short", HOSTILE, "none", None))),
        Distribution("End to end", "two arms", (
            Samples("standard", (900.0, 1200.0)), Samples("other", (1.0,)))),
    )  # fmt: skip
    sections = (Section("Charts", ("In words.",), charts), Section("Tables", (), (), (long,)))
    tiles = (Tile("Speed-up", "1.81×", "comparable"), Tile("Fallbacks", "–", "not known"))
    steps = (Step("Do this", "since", "specops sweep r.yaml"),)
    return Document(
        f"Report {HOSTILE}", "a week", "open", "Look", "Look.", ("In short.",), tiles, steps, sections,
        axis=axis, foot=("End.",),
    )  # fmt: skip


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(html(made()), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def seen(page_file: Path) -> dict[str, Any]:
    """One visit by one browser, since that is what takes long."""
    return _run(_visit(page_file))


def _run(work: Coroutine[Any, Any, Got]) -> Got:
    return asyncio.run(work)


async def _visit(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    async with chromium(path.parent) as page:
        await page.open(path.as_uri())
        for name, how in LOOKS.items():
            await page.look(**how)
            found[name] = {
                "contrast": await page.evaluate(CONTRAST),
                "paper": await page.evaluate("getComputedStyle(document.body).backgroundColor"),
                "wide": await page.evaluate("document.documentElement.scrollWidth"),
                "png": await page.png(),
            }
        found["scripts"] = await page.evaluate("document.scripts.length + document.images.length")
        found["named"] = await page.evaluate(
            "[...document.querySelectorAll('svg[role=img]')].map(svg => document.getElementById("
            "svg.getAttribute('aria-labelledby')).textContent)"
        )
        found["ids"] = await page.evaluate("[...document.querySelectorAll('[id]')].map(node => node.id)")
        found["heads"] = await page.evaluate(
            "[...document.querySelectorAll('table')].map(t => t.querySelectorAll('th[scope=col]').length)"
        )
        await page.look(media="print", width=A4)
        found["cut"] = await page.evaluate(
            "[...document.querySelectorAll('.wide')].map(box => box.scrollWidth - box.clientWidth)"
        )
        found["pdf"] = await page.pdf()
        found["requests"], found["complaints"] = _kept(page)
    return found


def _kept(page: Page) -> tuple[list[str], list[str]]:
    return page.requests, page.complaints


LOOKS: dict[str, dict[str, Any]] = {"light": {}, "dark": {"dark": True}, "phone": {"width": 390}}


def test_it_asks_nobody_and_says_nothing(seen: dict[str, Any], page_file: Path) -> None:
    asked = [address for address in seen["requests"] if not address.startswith("data:")]
    assert asked == [page_file.as_uri()]
    assert seen["complaints"] == []
    assert seen["scripts"] == 0


@pytest.mark.parametrize("look", LOOKS)
def test_all_text_is_read_easily(look: str, seen: dict[str, Any]) -> None:
    """4.5 to 1, as WCAG 2.2 asks of text (AA)."""
    assert seen[look]["contrast"][0][0] >= 4.5, seen[look]["contrast"]


def test_dark_is_dark_and_a_phone_shows_all_of_its_width(seen: dict[str, Any]) -> None:
    assert seen["light"]["paper"] == "rgb(255, 255, 255)"
    assert sum(map(int, re.findall(r"\d+", seen["dark"]["paper"]))) < 120
    assert seen["phone"]["wide"] == 390
    assert len({seen[look]["png"] for look in LOOKS}) == 3


def test_charts_have_names_and_no_id_is_there_twice(seen: dict[str, Any]) -> None:
    assert [name.partition(":")[0] for name in seen["named"]] == [
        "Acceptance",
        "When",
        "By position",
        "Speed-up",
        "End to end",
    ]
    assert HOSTILE in seen["named"][0]
    assert len(seen["ids"]) == len(set(seen["ids"]))
    assert seen["heads"] == [6]


def test_on_paper_it_has_pages_and_nothing_is_cut_off(seen: dict[str, Any]) -> None:
    assert len(seen["cut"]) == 1
    assert max(seen["cut"]) <= 0
    pdf = seen["pdf"]
    assert pdf.startswith(b"%PDF-")
    assert 3 <= len(re.findall(rb"/Type\s*/Page\b", pdf)) <= 9


def test_a_line_has_a_hole_where_nothing_is_known() -> None:
    """Of the drawn path: it is begun anew after the hole, and no point lies in it."""
    from specops.render.report.charts import draw

    document = made()
    chart = document.sections[0].charts[0]
    drawn = draw(chart, document.axis, 0).svg
    [whole] = re.findall(r'<path class="line-1" d="([^"]+)"', drawn)
    pieces = [re.findall(r"[ML]([\d.]+) ", piece) for piece in re.findall(r"M[^M]+", whole)]
    assert len(pieces) == 2
    left, right = float(pieces[0][-1]), float(pieces[1][0])
    step = float(pieces[0][1]) - float(pieces[0][0])
    assert right - left == pytest.approx(7 * step, rel=0.01)
    assert draw(chart, document.axis, 0).svg == drawn
