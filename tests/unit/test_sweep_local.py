"""The order of jobs on this machine, and which of them begin when the time is short; nothing is started."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from made_sweeps import loads, settings

from specops.load.settings import BaselineSettings
from specops.phases.sweep import measure as module
from specops.phases.sweep.measure import Local
from specops.phases.sweep.plan import Job, PlannedCell, Rung
from specops.progress import SilentProgress

STANDARD, *OTHERS = [Job(0, one, (PlannedCell(loads(1)[0], 0, ("p",)),)) for one in settings(3, 4, 5)]
RUNG = Rung(STANDARD, tuple(OTHERS))


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Setting and turn of every start; each takes as long as `takes` says, 10 s where it does not."""
    clock = SimpleNamespace(now=0.0)
    found: list[tuple[str, int]] = []

    def measure(rung: Rung, takes: dict[str, float] | None = None, dies: str = "") -> list[tuple[str, int]]:
        def job(job: Job, turn: int, **_: Any) -> bool:
            found.append((job.setting.name, turn))
            clock.now += (takes or {}).get(job.setting.name, 10.0)
            return job.setting.name != dies

        monkeypatch.setattr(module, "measure_job", job)
        monkeypatch.setattr(module, "clock", SimpleNamespace(now=lambda: clock.now))
        asked = BaselineSettings(base_url="http://127.0.0.1:9/v1", model="m")
        Local(asked, [], Path(), SilentProgress()).run(rung, lambda record: None)
        return found

    return measure


def test_the_standard_is_measured_before_and_after(measured) -> None:
    assert measured(RUNG) == [("standard", 0), ("k=3", 0), ("k=4", 0), ("k=5", 0), ("standard", 1)]


def test_a_setting_has_its_own_turns(measured) -> None:
    twice = replace(RUNG, jobs=(OTHERS[0], replace(OTHERS[0], turn=1)))
    assert measured(twice) == [("standard", 0), ("k=3", 0), ("k=3", 1), ("standard", 1)]


@pytest.mark.parametrize(("until", "jobs"), [(50.0, 3), (49.0, 2), (25.0, 2), (1.0, 2)])
def test_two_jobs_begin_in_any_case_and_more_only_in_time(measured, until: float, jobs: int) -> None:
    expected = dict.fromkeys(("standard", "k=3", "k=4", "k=5"), 10.0)
    found = measured(replace(RUNG, until=until, expected_s=expected))
    assert len(found) == jobs + 2
    assert found[-1] == ("standard", 1)


def test_what_is_expected_decides_and_not_how_long_the_standard_took(measured) -> None:
    expected = dict.fromkeys(("standard", "k=3", "k=4", "k=5"), 5.0)
    takes = {"standard": 30.0, "k=3": 5.0, "k=4": 5.0, "k=5": 5.0}
    assert len(measured(replace(RUNG, until=50.0, expected_s=expected), takes)) == 5


def test_without_jobs_only_the_first_turn_is_measured(measured) -> None:
    assert measured(replace(RUNG, jobs=())) == [("standard", 0)]


def test_a_rung_that_was_begun_is_closed(measured) -> None:
    assert measured(replace(RUNG, jobs=(), begun=frozenset({"here"}))) == [("standard", 1)]


def test_without_its_standard_nothing_is_measured(measured) -> None:
    assert measured(RUNG, dies="standard") == [("standard", 0)]


def test_a_setting_that_failed_is_not_started_again_in_the_rung(measured) -> None:
    again = [replace(job, turn=1) for job in reversed(OTHERS)]
    found = measured(replace(RUNG, jobs=(*OTHERS, *again)), dies="k=4")
    assert found == [
        ("standard", 0),
        ("k=3", 0),
        ("k=4", 0),
        ("k=5", 0),
        ("k=5", 1),
        ("k=3", 1),
        ("standard", 1),
    ]
