"""A report's words: what hostile names become, what is not known, and that every page has all sections."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_monitoring import MEASURED, rollout
from made_reports import FILE, WINDOW, gauge, pool, seen, without_pool

from specops import results
from specops.phases.report import assembly, tables
from specops.phases.report.delivery import read, write
from specops.phases.report.document import axis, document
from specops.phases.report.prometheus_data import Gauge
from specops.phases.report.report import Extreme, Quantile, ReportWindow
from specops.render.report.document import Cell, Document, Section, Step, Table
from specops.render.report.formats import markdown
from specops.results import Result


def of(text: str) -> Document:
    table = Table(text, (text, text), ((text, Cell(text, "good", text)),), text)
    section = Section(text, (text,), (), (table,))
    step = Step(text, text, text)
    return Document(text, text, "good", text, text, (text,), (), (step,), (section,), foot=(text,))


@given(st.text(min_size=1).filter(lambda text: text.strip()))
def test_no_text_becomes_markdown_or_html(text: str) -> None:
    written = markdown(of(text)).splitlines()
    assert sum(line.startswith("# ") for line in written) == 1
    rows = [line for line in written if line.startswith("|")]
    assert len(rows) == 3
    assert {len(re.findall(r"(?<!\\)\|", row.replace(r"\\", ""))) for row in rows} == {3}
    fenced = re.sub(r"^(`{3,})\n.*?^\1$", "", "\n".join(written), flags=re.DOTALL | re.MULTILINE)
    bare = re.sub(
        r"(`+).*?\1", "", "\n".join(line for line in fenced.split("\n") if not line.startswith("   `"))
    )
    assert not re.search(r"(?<!\\)[<>]", bare.replace(r"\\", ""))


def test_three_files_are_of_one_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assembly, "measurements", lambda rollout, folder, unfit: MEASURED)
    one = seen(pools={"standard": pool(tpot_s=0.012), "speculative": pool(acceptance=0.4, tpot_s=0.006)})
    result = assembly.assemble(rollout(costs={"standard_per_hour": 2.0}), FILE, tmp_path, one)
    written = write(tmp_path, one.window, result)
    assert written.html.name == "2026-11-21-1d.html"
    text, page = written.markdown.read_text(), written.html.read_text()
    titles = [section.title for section in written.document.sections]
    assert titles == [
        "Speed-up against the baseline", "Acceptance", "Traffic and latencies", "Incidents and fallbacks",
        "Memory", "Savings", "Drift", "Missing data",
    ]  # fmt: skip
    for title in titles:
        assert f"## {title}" in text
        assert f"<h2>{title}</h2>" in page
    assert "specops sweep rollout.yaml" in text
    assert "specops sweep rollout.yaml" in page
    assert "40.0%" in text
    again = write(tmp_path, one.window, result)
    assert again.html.read_text() == page


def test_the_summary_says_what_is_not_known(tmp_path: Path) -> None:
    result = assembly.assemble(rollout(), FILE, tmp_path, seen())
    made = document(read(result), result)
    said = [made.headline, *made.summary]
    assert said[0] == "The speed-up is unknown: there is no baseline."
    assert any("the number of fallbacks is unknown" in one for one in said)


@pytest.mark.parametrize(
    ("hours", "first", "second"),
    [
        (1, "Sat 23:00", None),
        (24, "Sat 00:00", "Sat 03:00"),
        (168, "Sun 15", "Mon 16"),
        (720, "23 Oct", "26 Oct"),
    ],
)
def test_an_axis_has_some_ten_ticks(hours: int, first: str, second: str | None, tmp_path: Path) -> None:
    report = read(assembly.assemble(rollout(), FILE, tmp_path, seen()))
    window = ReportWindow(WINDOW.end - hours * 3600, WINDOW.end, WINDOW.zone)
    begins = [begin.isoformat() for begin in window.begins()]
    times = report.window.model_copy(update={"hours": hours, "begins": begins})
    ticks = axis(report.model_copy(update={"window": times})).ticks
    assert len(ticks) <= 10
    assert ticks[0] == (0, first)
    assert second is None or ticks[1][1] == second


@pytest.mark.parametrize(
    ("said", "text"),
    [
        (tables.hours(-0.001), "0.00"),
        (tables.hours(-0.5), "-0.50"),
        (tables.hours(1234.56), "1,234.6"),
        (tables.elapsed(42), "42 s"),
        (tables.elapsed(3600), "60 min"),
        (tables.elapsed(7260), "2 h 1 min"),
        (tables.elapsed(7200), "2 h"),
        (tables.seconds(0.00412), "4.12 ms"),
        (tables.seconds(0.25), "250 ms"),
        (tables.seconds(None), "–"),
        (tables.bounds(Quantile(above=0.0, to=0.1)), "≤ 100 ms"),
        (tables.bounds(Quantile(above=0.5, to=1.0)), "500 ms to 1.00 s"),
        (tables.bounds(Quantile(above=30.0, to=None)), "> 30.00 s"),
        (
            tables.describe_extreme(Extreme(value=0.5, at="2026-11-21T15:00:00+09:00"), ".1%"),
            "50.0% (Sat 21 Nov 15:00)",
        ),
    ],
)
def test_figures_in_words(said: str, text: str) -> None:
    assert said == text


@pytest.mark.parametrize(
    ("amount", "shown"),
    [
        (0.24, "0.24"),
        (0.0, "0.00"),
        (0.0042, "0.0042"),
        (-0.049, "-0.049"),
        (99.4, "99.40"),
        (1234.5, "1,234"),
    ],
)
def test_an_amount_is_never_rounded_to_nothing(amount: float, shown: str) -> None:
    assert tables.money(amount) == shown


@pytest.mark.parametrize("per_hour", [2.0, 0.02, 2000.0])
def test_what_was_saved_is_the_same_amount_wherever_it_stands(
    per_hour: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assembly, "measurements", lambda rollout, folder, unfit: MEASURED)
    one = seen(pools={"standard": pool(tpot_s=0.012), "speculative": pool(tpot_s=0.006)})
    costs = {"standard_per_hour": per_hour, "currency": "USD"}
    result = assembly.assemble(rollout(costs=costs), FILE, tmp_path, one)
    report = read(result)
    assert report.saved is not None
    assert report.saved.money
    amount = tables.money(report.saved.money)
    assert float(amount.replace(",", "")) == pytest.approx(report.saved.money, rel=0.05)
    made = document(report, result)
    [tile] = [tile for tile in made.tiles if tile.label == "Saved"]
    assert tile.value == amount
    assert f"worth {amount} USD" in made.in_short()
    [table] = [table for section in made.sections if section.title == "Savings" for table in section.tables]
    assert ("value", f"{amount} USD") in table.rows


@pytest.mark.parametrize("zone", ["Asia/Seoul", "Asia/Kolkata"])
def test_before_a_full_hour_the_page_says_when_the_first_report_can_be_made(
    zone: str, tmp_path: Path
) -> None:
    """Prometheus began to scrape 25 minutes into the hour that is not over."""
    end = 1795273200 + (1800 if zone == "Asia/Kolkata" else 0)  # a full hour by the zone's clock
    window = ReportWindow(end - 24 * 3600, end, ZoneInfo(zone))
    nothing = without_pool(pool())
    pools = {"standard": nothing, "speculative": nothing}
    for after, hour in ((1500.0, 1), (3600.0, 1), (3601.0, 2)):
        one = seen(pools=pools, up=(), window=window, scraped_from=end + after)
        result = assembly.assemble(rollout(), FILE, tmp_path, one)
        first = window.local(end + hour * 3600)
        assert result.verdict == "undecided"
        assert (
            f"The first report is possible at {first:%Y-%m-%d %H:%M} {zone}: specops report {FILE}"
            in result.reason
        )
        report = read(result)
        assert report.first_report == first.isoformat(timespec="seconds")
        assert first.minute == 0
        assert f"{first:%Y-%m-%d %H:%M}" in document(report, result).headline
    never = assembly.assemble(rollout(), FILE, tmp_path, seen(pools=pools, up=(), window=window))
    assert "first report" not in never.reason
    assert read(never).first_report is None


def test_a_baseline_of_another_rollout_is_named_and_not_compared_with(tmp_path: Path) -> None:
    other = Result(
        phase="baseline", verdict="yes", reason="measured", inputs={"settings": "of another model"}, data={}
    )
    results.write(tmp_path / "baseline.json", other)
    report = read(assembly.assemble(rollout(), FILE, tmp_path, seen()))
    (why,) = (one.why for one in report.missing if "baseline.json" in one.why)
    assert why.startswith("baseline.json is not used: ")


@pytest.mark.parametrize("hours", [1, 5, 23])
def test_a_prometheus_that_keeps_less_than_the_window_is_in_the_verdict(hours: int, tmp_path: Path) -> None:
    """It has the last hours alone; the pools did the same in all of them."""

    def last(one: Gauge) -> Gauge:
        stored = one.times > WINDOW.end - hours * 3600
        return Gauge(one.labels, one.times[stored], one.values[stored])

    whole = seen(up=(gauge(1.0, "up", specops_pool="speculative"),))
    pools = {
        name: replace(each, running=tuple(map(last, each.running))) for name, each in whole.pools.items()
    }
    short = replace(whole, up=tuple(map(last, whole.up)), pools=pools)
    assert assembly.assemble(rollout(), FILE, tmp_path, whole).verdict == "yes"
    result = assembly.assemble(rollout(), FILE, tmp_path, short)
    assert result.verdict == "undecided"
    assert read(result).covered_hours == hours
    assert f"{hours} of the window's 24 hours" in result.reason
    assert f"{hours} of 24 hours" in document(read(result), result).verdict
