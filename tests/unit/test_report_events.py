"""Incidents from samples of ALERTS, gaps, and fallbacks from a journal."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_reports import HOURS, WINDOW

from specops.guard.journal import Entry, EntryEvidence, Intent, SwitchResult
from specops.guard.state import Override, State
from specops.phases.report.events import fallbacks, gaps, incidents
from specops.phases.report.prometheus_data import Gauge
from specops.phases.report.report import AlertIncident

EVERY = 60.0
ALL = np.arange(-HOURS * 3600.0, HOURS * 3600.0 + 1, EVERY)


def fired(times: Any, up: Any = ALL, **labels: str) -> list[AlertIncident]:
    """Seconds are counted from the window's start."""
    alert = Gauge({"alertname": "Low"} | labels, WINDOW.start + np.asarray(times), np.ones(len(times)))
    seen = Gauge({}, WINDOW.start + np.asarray(up), np.ones(len(up)))
    return incidents(WINDOW, [alert], [seen])


def between(begin: float, end: float) -> Any:
    return np.arange(begin, end + 1, EVERY)


def test_each_time_is_one_with_its_length() -> None:
    found = fired(np.concatenate([between(600, 1200), between(3600, 3600)]))
    assert [(one.seconds, one.end is None, one.began_before) for one in found] == [
        (600, False, False), (0, False, False),
    ]  # fmt: skip


def test_one_still_open_is_counted_up_to_the_windows_end() -> None:
    end = HOURS * 3600
    (one,) = fired(between(end - 1800, end))
    assert one.end is None
    assert one.seconds == 1800


def test_one_is_open_too_where_nothing_was_scraped_since() -> None:
    end = HOURS * 3600
    (one,) = fired(between(end - 7200, end - 3600), up=ALL[end - 3600 >= ALL])
    assert one.end is None
    assert one.seconds == 7200


def test_a_hole_of_prometheus_does_not_split_one_and_a_pause_does() -> None:
    halves = np.concatenate([between(0, 3600), between(10800, 14400)])
    (whole,) = fired(halves, up=ALL[(ALL <= 3600) | (ALL >= 10800)])
    assert whole.seconds == 14400
    assert [one.seconds for one in fired(halves)] == [3600, 3600]


def test_one_that_began_before_is_known_as_such_and_one_that_ended_before_is_not_ours() -> None:
    assert fired(between(-7200, -600)) == []
    (one,) = fired(between(-7200, 600))
    assert one.began_before
    assert one.seconds == 7800


def test_scrapes_that_fail_singly_split_nothing() -> None:
    times = between(0, 3600)
    assert len(fired(np.delete(times, [10, 20, 30]))) == 1


@given(st.lists(st.tuples(st.integers(0, HOURS * 60 - 30), st.integers(3, 20)), min_size=1, max_size=8))
def test_no_incident_is_lost_or_counted_twice(spans: list[tuple[int, int]]) -> None:
    minutes = sorted({minute for begin, length in spans for minute in range(begin, begin + length)})
    pieces = 1 + sum(b - a > 2 for a, b in itertools.pairwise(minutes))
    assert len(fired([minute * 60.0 for minute in minutes])) == pieces


@given(st.dictionaries(st.integers(1, HOURS * 3 - 1), st.integers(1, 5), min_size=1, max_size=8))
def test_one_that_fires_for_an_instant_now_and_then_is_one_each_time(lengths: dict[int, int]) -> None:
    """At every twenty minutes for so many: one sample each says nothing of how often it is evaluated."""
    spans = [(begin * 1200, begin * 1200 + 60 * (length - 1)) for begin, length in sorted(lengths.items())]
    found = fired(np.concatenate([between(*span) for span in spans]))
    assert len(found) == len(spans)
    done = [one.seconds for one in found if one.end is not None]
    assert done == [end - begin for begin, end in spans][: len(done)]


def test_how_often_rules_are_evaluated_the_other_alerts_tell() -> None:
    rare = Gauge({"alertname": "Rare"}, WINDOW.start + np.array([600.0, 1200.0]), np.ones(2))
    long = Gauge({"alertname": "Long"}, WINDOW.start + between(0, 3600), np.ones(61))
    often = Gauge({}, WINDOW.start + np.arange(0.0, HOURS * 3600, 15), np.ones(HOURS * 240))
    found = incidents(WINDOW, [rare, long], [often])
    assert [(one.alert, one.seconds) for one in found] == [("Long", 3600), ("Rare", 0), ("Rare", 0)]


def test_a_gap_of_the_pool_is_told_once_and_a_servers_own_by_its_name() -> None:
    times = ALL[ALL > 0]
    dark = (times > 3600) & (times < 7200)
    lost = dark | ((times > 36000) & (times < 37800))
    a, b = (
        Gauge({"instance": name}, WINDOW.start + times[~of], np.ones(int((~of).sum())))
        for name, of in (("a", dark), ("b", lost))
    )
    found = gaps(WINDOW, [a, b])
    assert [(gap.server, gap.seconds) for gap in found] == [(None, 3600), ("b", 1800)]
    late = Gauge({"instance": "c"}, WINDOW.start + times[times > 50000], np.ones(int((times > 50000).sum())))
    assert len(gaps(WINDOW, [a, b, late])) == 2  # added later: nothing is missing of it
    assert gaps(WINDOW, [])[0].seconds == HOURS * 3600


def entry(hours: float, number: int, state: State, *events: Any, result: bool = False) -> Entry:
    made = {
        "ts": WINDOW.start + hours * 3600, "id": number, "verdict": "bad", "state": state,
        "evidence": EntryEvidence(why=f"why {number}", events=events),
        "action": Intent(percent=state.target_percent),
        "result": SwitchResult(outcome="done") if result else None,
    }  # fmt: skip
    return Entry.model_validate(made)


OFF, CANARY, ON = State(mode="fallen", percent=0), State(mode="canary", percent=25), State()


def test_a_fall_back_lasts_until_a_step_back_and_is_over_at_the_whole() -> None:
    told = [
        entry(1, 1, OFF, "fell_back"), entry(1, 1, OFF, "fell_back", result=True),
        entry(3, 2, CANARY, "canary"), entry(5, 3, ON, "returned"),
    ]  # fmt: skip
    (one,) = fallbacks(WINDOW, told)
    assert (one.by, one.why, one.percent, one.seconds) == ("the guard", "why 1", 0, 7200)
    assert one.ended is not None
    assert one.full is not None


def test_falling_at_a_step_back_is_another_and_falling_further_the_same() -> None:
    left = State(mode="fallen", percent=40)
    told = [
        entry(1, 1, left, "fell_back"), entry(2, 2, OFF, "fell_further"), entry(3, 3, CANARY, "canary"),
        entry(4, 4, OFF, "fell_back"), entry(5, 5, CANARY, "canary"), entry(6, 6, ON, "returned"),
    ]  # fmt: skip
    assert [(one.percent, one.seconds) for one in fallbacks(WINDOW, told)] == [(0, 7200), (0, 3600)]


def test_a_person_who_takes_it_off_is_named() -> None:
    pinned = State(override=Override(pool="standard", by="kim", why="a test", left_s=None))
    (one,) = fallbacks(WINDOW, [entry(1, 1, pinned, "override"), entry(2, 2, ON, "released")])
    assert (one.by, one.percent, one.seconds) == ("kim", 0, 3600)


@pytest.mark.parametrize(("ended", "count"), [(-2.0, 0), (2.0, 1), (None, 1)])
def test_one_that_held_when_the_window_began_is_of_it(ended: float | None, count: int) -> None:
    told = [entry(-5, 1, OFF, "fell_back")] + ([] if ended is None else [entry(ended, 2, ON, "returned")])
    assert len(fallbacks(WINDOW, told)) == count


def test_what_came_after_the_window_is_not_of_it() -> None:
    told = [entry(1, 1, OFF, "fell_back"), entry(HOURS + 1, 2, ON), entry(HOURS + 2, 3, OFF, "fell_back")]
    (one,) = fallbacks(WINDOW, told)
    assert one.ended is None
    assert one.seconds == (HOURS - 1) * 3600
