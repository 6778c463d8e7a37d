"""Windows: whole hours and days of a zone, across summer time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_monitoring import rollout

from specops.errors import UsageError
from specops.phases.report.prometheus_data import query
from specops.phases.report.report import window
from specops.progress import SilentProgress as Quiet
from specops.prometheus.api import Api, Sample, Series

SEOUL = ZoneInfo("Asia/Seoul")
NOW = datetime(2026, 11, 22, 3, 41, 7, tzinfo=UTC)
ZONES = ("UTC", "Asia/Seoul", "America/New_York", "Europe/Berlin", "Asia/Kolkata", "Australia/Lord_Howe",
         "America/St_Johns", "Asia/Kathmandu", "Africa/Cairo")  # fmt: skip


def test_now_is_the_last_full_hour_of_the_zone() -> None:
    found = window("7d", "now", SEOUL, NOW)
    assert found.local(found.end).isoformat() == "2026-11-22T12:00:00+09:00"
    assert found.local(found.start).isoformat() == "2026-11-15T12:00:00+09:00"
    assert str(found.last_day) == "2026-11-22"
    india = window("24h", "now", ZoneInfo("Asia/Kolkata"), NOW)
    assert india.local(india.end).isoformat() == "2026-11-22T09:00:00+05:30"


def test_a_day_as_the_end_is_counted_whole() -> None:
    found = window("1w", "2026-11-21", SEOUL, NOW)
    assert found.local(found.end).isoformat() == "2026-11-22T00:00:00+09:00"
    assert [str(day) for day, _ in found.days()] == [f"2026-11-{day}" for day in range(15, 22)]
    assert all(hours.stop - hours.start == 24 for _, hours in found.days())
    assert str(found.last_day) == "2026-11-21"


@pytest.mark.parametrize(
    ("span", "end", "name"),
    [
        ("1w", "2026-11-21", "2026-11-21"),
        ("7d", "2026-10-26", "2026-10-26"),  # summer time ends in Berlin within it: 169 hours
        ("30d", "2026-11-21", "2026-11-21-30d"),
        ("24h", "2026-11-21", "2026-11-21-1d"),
        ("5h", "2026-11-21", "2026-11-21-5h"),
    ],
)
def test_reports_that_end_on_one_day_have_names_of_their_own(span: str, end: str, name: str) -> None:
    assert window(span, end, ZoneInfo("Europe/Berlin"), NOW).name == name


@pytest.mark.parametrize("day", ["2026-11-21", "20261121", "2026-W47-6"])
def test_a_day_is_counted_whole_however_it_is_written(day: str) -> None:
    assert window("24h", day, SEOUL, NOW) == window("24h", "2026-11-22T00:00", SEOUL, NOW)


def test_the_one_before_ends_where_it_begins_and_is_as_long() -> None:
    found = window("36h", "2026-11-20T09:00", SEOUL, NOW)
    assert (found.previous.end, found.previous.hours) == (found.start, 36)


@pytest.mark.parametrize(("day", "length"), [("2026-03-29", 23), ("2026-10-25", 25), ("2026-06-01", 24)])
def test_summer_time_makes_a_day_shorter_or_longer(day: str, length: int) -> None:
    found = window("1d", day, ZoneInfo("Europe/Berlin"), NOW)
    assert found.hours == length
    assert len(found.days()) == 1


@given(
    st.sampled_from(ZONES), st.datetimes(datetime(2015, 1, 1), datetime(2026, 1, 1)),
    st.sampled_from(["1h", "24h", "1d", "7d", "2w", "31d"]), st.booleans(),
)  # fmt: skip
def test_hours_are_whole_and_every_one_is_of_one_day(zone: str, at: datetime, span: str, day: bool) -> None:
    end = f"{at:%Y-%m-%d}" if day else "now"
    found = window(span, end, ZoneInfo(zone), at.replace(tzinfo=UTC) + timedelta(days=2 * day))
    assert found.end - found.start == found.hours * 3600 > 0
    begins = found.begins()
    assert len(begins) == found.hours
    assert all((b.timestamp() - a.timestamp()) == 3600 for a, b in pairwise(begins))
    days = found.days()
    assert [hours.start for _, hours in days] == [0, *(hours.stop for _, hours in days[:-1])]
    assert days[-1][1].stop == found.hours
    for of, hours in days:
        assert {begin.date() for begin in begins[hours]} == {of}
    if span.endswith("d"):
        local = found.local(found.end).replace(tzinfo=None) - found.local(found.start).replace(tzinfo=None)
        assert abs(local - timedelta(days=int(span[:-1]))) <= timedelta(hours=1)


@pytest.mark.parametrize(
    ("span", "end"),
    [("7", "now"), ("0d", "now"), ("7m", "now"), ("7d", "yesterday"), ("7d", "2026-13-01"),
     ("7d", "2026-11-23"),
     ("7d", "2026-11-22"), ("", "now"), ("7d", "9999-12-31"), ("7d", "0001-01-05"), ("1d\n", "now")],
)  # fmt: skip
def test_what_is_no_window_is_said(span: str, end: str) -> None:
    with pytest.raises(UsageError) as caught:
        window(span, end, SEOUL, NOW)
    assert caught.value.hint


def test_everything_that_is_asked_is_of_the_rollouts_own_cluster() -> None:
    asked: list[str] = []

    class Silent(Api):
        def raw(self, which: str, start: float, end: float) -> list[Series]:
            asked.append(which)
            return []

        def instant(self, expr: str, at: float | None = None) -> list[Sample]:
            return []

        def range(self, expr: str, start: float, end: float, step_s: float) -> list[Series]:
            asked.append(expr)
            return []

    api = Silent("http://127.0.0.1:9")
    query(rollout(monitor={"labels": {"cluster": "a"}}), window("1h", "now", SEOUL, NOW), api, Quiet())
    api.close()
    assert {"up", "ALERTS"} <= {which.partition("{")[0] for which in asked}
    assert [which for which in asked if 'cluster="a"' not in which] == []
