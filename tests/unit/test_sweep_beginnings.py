"""Visits that begin otherwise than they go on: a standard that was idle, and woke up, makes no gain."""

from __future__ import annotations

import random

import pytest
from specops.phases.ab.confounders import Requests

from specops.experiment.findings import Decision
from specops.phases.ab.settings import AbSettings
from specops.phases.sweep.vetoes import StageMeasurements, limit
from specops.stats import Interval, Times

YES = Decision(verdict="yes", reason="1.40×", speedup=Interval(1.4, 1.2, 1.6, 24))


def places(slow: int, *, standard: float = 1.0, setting: float = 1.0, gain: float = 1.0) -> list[list[Times]]:
    """Three visits of 24 requests; the first `slow` take so many times as long, and noise is 5%."""
    rng = random.Random(0)

    def took(factor: float, place: int) -> float:
        return 100 * (factor if place < slow else 1.0) * rng.lognormvariate(0, 0.05)

    return [[(gain * took(standard, p), took(setting, p)) for _ in range(3)] for p in range(24)]


def limited(found: list[list[Times]], decision: Decision = YES) -> Decision:
    return limit(decision, StageMeasurements(Requests(()), (), (None, None), places=found), AbSettings())


@pytest.mark.parametrize(("slow", "factor"), [(3, 4.0), (6, 2.0), (12, 1.5)])
def test_a_gain_that_only_the_beginnings_show_is_not_deployed(slow: int, factor: float) -> None:
    found = limited(places(slow, standard=factor))
    assert found.verdict == "undecided"
    assert f"in about the first {slow} requests of each visit" in found.reason
    assert "the later requests show no gain (1.0" in found.reason
    assert found.reason.endswith("over all requests: 1.40×")


def test_a_gain_that_the_later_requests_show_stands() -> None:
    assert limited(places(4, standard=4.0, gain=1.4)) == YES
    assert limited(places(4, standard=4.0, setting=4.0, gain=1.4)) == YES
    assert limited(places(4, setting=4.0, gain=1.4)) == YES
    assert limited(places(0, gain=1.4)) == YES


def test_a_setting_that_is_slower_later_is_not_deployed() -> None:
    assert limited(places(4, standard=9.0, gain=0.8)).verdict == "undecided"


def test_no_other_verdict_changes() -> None:
    no = Decision(verdict="no", reason="0.8×", speedup=Interval(0.8, 0.7, 0.9, 24))
    assert limited(places(4, standard=4.0), no) == no
