"""The time that a report is of: whole hours, which belong to days of a time zone. Pure.

Hours are counted back from the end. A day that summer time makes 23 or 25 hours long has so many; where
a zone moves its clocks by half an hour the window begins up to half an hour earlier, so that hours are whole.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from itertools import groupby
from zoneinfo import ZoneInfo

from specops.config.report import SPAN
from specops.errors import UsageError

HOUR_S = 3600
_DAYS = {"d": 1, "w": 7}


@dataclass(frozen=True)
class Window:
    start: int
    """Seconds since the epoch, as `end`: not itself in the window."""

    end: int
    zone: ZoneInfo

    @property
    def hours(self) -> int:
        return (self.end - self.start) // HOUR_S

    @property
    def previous(self) -> Window:
        """As long, and just before."""
        return Window(2 * self.start - self.end, self.start, self.zone)

    @property
    def weeks(self) -> float:
        return (self.end - self.start) / (7 * 24 * HOUR_S)

    @property
    def last_day(self) -> date:
        return self.local(self.end - 1).date()

    def local(self, ts: float) -> datetime:
        return datetime.fromtimestamp(ts, self.zone)

    def iso(self, ts: float) -> str:
        """`ts` by the zone's clock, in ISO 8601 with its offset."""
        return self.local(ts).isoformat(timespec="seconds")

    def full_hour(self, ts: float) -> datetime:
        """The end of the hour that `ts` is in, by this window's hours."""
        return self.local(self.end + math.ceil((ts - self.end) / HOUR_S) * HOUR_S)

    def begins(self) -> list[datetime]:
        """Of every hour, by the zone's clock."""
        return [self.local(self.start + number * HOUR_S) for number in range(self.hours)]

    def days(self) -> list[tuple[date, slice]]:
        """Every day, and which of the hours begin on it."""
        found, at = [], 0
        for day, hours in groupby(begin.date() for begin in self.begins()):
            length = len(list(hours))
            found.append((day, slice(at, at + length)))
            at += length
        return found

    def __str__(self) -> str:
        first, last = self.local(self.start), self.local(self.end)
        return f"{first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M} {self.zone.key}"


def window(span: str, end: str, zone: ZoneInfo, now: datetime) -> Window:
    """`span` as in 24h, 7d, 2w, up to `end`: a day, which is counted whole, a time of it, or `now`, which is
    the end of the last full hour. A day of the span is one of `zone`. Raises UsageError."""
    return _window(span, _end(end, zone, now), zone)


def _end(text: str, zone: ZoneInfo, now: datetime) -> int:
    if text == "now":
        here = now.astimezone(zone)
        into = here.minute * 60 + here.second
        return int(now.timestamp()) - into
    try:
        day = _day(text)
        if day is not None:
            end = datetime.combine(day + timedelta(days=1), time(), zone)
        else:
            given = datetime.fromisoformat(text)
            end = given if given.tzinfo else given.replace(tzinfo=zone)
        ts = int(end.timestamp())
        if ts < 0:
            raise ValueError(text)  # before any clock that Prometheus goes by
    except (ValueError, OverflowError):
        raise UsageError(
            f"{text!r} is no end of a report", hint="--end now, 2026-11-20 or 2026-11-20T09:00"
        ) from None
    if ts > now.timestamp():
        raise UsageError(
            f"the report's end {text} is not over yet",
            hint="--end now is the last full hour; or give an earlier day",
        )
    return ts


def _day(text: str) -> date | None:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


def _window(span: str, end: int, zone: ZoneInfo) -> Window:
    if re.fullmatch(SPAN, span) is None:
        raise UsageError(f"{span!r} is no length of a report", hint="as in 24h, 7d or 2w")
    number, unit = int(span[:-1]), span[-1]
    if unit == "h":
        return Window(end - number * HOUR_S, end, zone)
    # Back by the wall clock, so that seven days begin at the same time of day.
    wall = datetime.fromtimestamp(end, UTC).astimezone(zone) - timedelta(days=number * _DAYS[unit])
    length = end - wall.timestamp()
    return Window(end - math.ceil(length / HOUR_S) * HOUR_S, end, zone)
