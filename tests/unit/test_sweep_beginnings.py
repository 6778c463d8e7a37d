"""Visits that begin otherwise than they go on: a standard that was idle, and woke up, makes no gain."""

from __future__ import annotations

import random

import pytest

from specops.experiment.findings import Finding
from specops.phases.sweep.claims import Division
from specops.stats import Interval, Times

SHOWN = Finding(claim="wait", verdict="shown", ratio=Interval(1.4, 1.2, 1.6, 24), n=24)


def places(slow: int, *, standard: float = 1.0, setting: float = 1.0, gain: float = 1.0) -> list[list[Times]]:
    """Three visits of 24 requests; the first `slow` take so many times as long, and noise is 5%."""
    rng = random.Random(0)

    def took(factor: float, place: int) -> float:
        return 100 * (factor if place < slow else 1.0) * rng.lognormvariate(0, 0.05)

    return [[(gain * took(standard, p), took(setting, p)) for _ in range(3)] for p in range(24)]


def limited(found: list[list[Times]], wait: Finding = SHOWN) -> Finding:
    return Division(places=found).limit(wait)


@pytest.mark.parametrize(("slow", "factor"), [(3, 4.0), (6, 2.0), (12, 1.5)])
def test_a_gain_that_only_the_beginnings_show_is_not_deployed(slow: int, factor: float) -> None:
    found = limited(places(slow, standard=factor))
    assert (found.verdict, found.cause) == ("open", "place")
    first, later = found.parts
    assert f"the first {slow} requests of each visit" in first.name
    assert first.ratio is not None
    assert first.ratio.estimate == pytest.approx(factor, rel=0.1)
    assert later.ratio is not None
    assert later.ratio.low <= 1


def test_a_gain_that_the_later_requests_show_stands() -> None:
    assert limited(places(4, standard=4.0, gain=1.4)) == SHOWN
    assert limited(places(4, standard=4.0, setting=4.0, gain=1.4)) == SHOWN
    assert limited(places(4, setting=4.0, gain=1.4)) == SHOWN
    assert limited(places(0, gain=1.4)) == SHOWN


def test_a_setting_that_is_slower_later_is_not_deployed() -> None:
    assert limited(places(4, standard=9.0, gain=0.8)).verdict == "open"


def test_no_other_verdict_changes() -> None:
    against = Finding(claim="wait", verdict="against", ratio=Interval(0.8, 0.7, 0.9, 24), n=24)
    assert limited(places(4, standard=4.0), against) == against
