"""Who measures what next, on machines that come, go and die: simulated, without Ray."""

from __future__ import annotations

import functools
from collections import Counter, defaultdict
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specops.load.record import CellRecord, Spread
from specops.phases.sweep.plan import (
    ANY_LENGTH,
    STANDARD,
    FailedJob,
    Job,
    Load,
    Memory,
    PlannedCell,
    Rung,
    SweptCell,
)
from specops.phases.sweep.ray_executor import MOST_TRIES, ServerRun, Sharing
from specops.serving import Setting
from specops.serving.command import CommandPool

POOL = CommandPool(engine="command", command="serve --port {port}")
NOTHING = Spread(n=0)


def job(name: str, cells: int = 2) -> Job:
    loads = [Load(2**n, 0.0, ANY_LENGTH) for n in range(cells)]
    return Job(0, Setting(name, POOL, 0), tuple(PlannedCell(load, 0, ("p",)) for load in loads))


def rung(jobs: int, cells: int = 2) -> Rung:
    return Rung(job(STANDARD, cells), tuple(job(f"k={n}", cells) for n in range(jobs)))


@functools.cache
def record(concurrency: int, complete: bool) -> CellRecord:
    return CellRecord(
        concurrency=concurrency,
        rate=None,
        burstiness=1.0,
        repeat=0,
        complete=complete,
        aborted=None,
        wall_s=1.0,
        tokens=1,
        tokens_per_sec=1.0,
        requests_per_sec=1.0,
        goodput_per_sec=None,
        goodput_tokens_per_sec=None,
        peak_tokens_per_sec=None,
        chunk_gap_ms=NOTHING,
        amortised_itl_ms=NOTHING,
        tokens_per_chunk=NOTHING,
        rows=(),
    )


def measured(errand: ServerRun, cell: PlannedCell, machine: str, *, complete: bool = True) -> SweptCell:
    return SweptCell(
        rung=0,
        setting=errand.job.setting.name,
        turn=errand.turn,
        machine=machine,
        temperature=cell.load.temperature,
        length=cell.load.length,
        began=0.0,
        memory=Memory(),
        cell=record(cell.load.concurrency, complete),
    )


def failed(errand: ServerRun, machine: str) -> FailedJob:
    name = errand.job.setting.name
    return FailedJob(rung=0, setting=name, turn=errand.turn, machine=machine, why="it died", log="")


def do(sharing: Sharing, machine: str, errand: ServerRun) -> None:
    for cell in errand.job.cells:
        sharing.stored(machine, measured(errand, cell, machine))
    sharing.finished(machine, now=0.0)


def alone(sharing: Sharing, machine: str) -> list[tuple[str, int]]:
    """What a machine is given when there is no other."""
    given_out = []
    while errand := sharing.next_for(machine, now=0.0):
        given_out.append((errand.job.setting.name, errand.turn))
        do(sharing, machine, errand)
    return given_out


def test_a_machine_measures_the_standard_before_its_first_job_and_after_its_last() -> None:
    assert alone(Sharing(rung(2)), "a") == [(STANDARD, 0), ("k=0", 0), ("k=1", 0), (STANDARD, 1)]


def test_a_machine_that_began_before_goes_on_with_jobs() -> None:
    begun = replace(rung(1), begun=frozenset("a"))
    assert alone(Sharing(begun), "a") == [("k=0", 0), (STANDARD, 1)]


def test_no_more_machines_begin_than_there_are_jobs() -> None:
    sharing = Sharing(rung(1))
    assert sharing.next_for("a", 0.0)
    assert sharing.next_for("b", 0.0) is None


def test_a_machine_that_got_no_job_does_not_measure_the_standard_again() -> None:
    sharing = Sharing(rung(2))
    for machine in "ab":
        errand = sharing.next_for(machine, 0.0)
        assert errand
        do(sharing, machine, errand)
    assert alone(sharing, "a") == [("k=0", 0), ("k=1", 0), (STANDARD, 1)]
    assert sharing.next_for("b", 0.0) is None
    assert sharing.unclosed == set()


def test_only_the_cells_that_a_lost_machine_had_not_measured_are_given_to_another() -> None:
    sharing = Sharing(rung(1, cells=3))
    do(sharing, "a", sharing.next_for("a", 0.0))
    errand = sharing.next_for("a", 0.0)
    whole, cut, _ = errand.job.cells
    assert sharing.stored("a", measured(errand, whole, "a"))
    assert not sharing.stored("a", measured(errand, whole, "a")), "the same cell, with its counters"
    assert not sharing.stored("a", measured(errand, cut, "a", complete=False))
    assert sharing.lost("a", "its node died") is None
    do(sharing, "b", sharing.next_for("b", 0.0))
    assert sharing.next_for("b", 0.0).job.cells == errand.job.cells[1:]
    assert [failure.machine for failure in sharing.failures()] == ["a", "b"]


def test_a_job_that_was_lost_too_often_has_failed() -> None:
    one = job("k=0")
    sharing = Sharing(Rung(job(STANDARD), (one, replace(one, turn=1))))
    for tries in range(1, MOST_TRIES + 1):
        machine = f"m{tries}"
        do(sharing, machine, sharing.next_for(machine, 0.0))
        assert sharing.next_for(machine, 0.0)
        failure = sharing.lost(machine, "its worker of Ray died")
        assert (failure is None) == (tries < MOST_TRIES)
    assert (failure.setting, failure.machine) == ("k=0", machine)
    assert "lost 3 times; the last: its worker of Ray died" in failure.why
    assert sharing.jobs_left == 0


def test_where_the_standard_does_not_come_up_nothing_is_measured() -> None:
    sharing = Sharing(rung(2))
    errand = sharing.next_for("a", 0.0)
    sharing.stored("a", failed(errand, "a"))
    sharing.finished("a", 0.0)
    assert sharing.next_for("a", 0.0) is None
    assert sharing.next_for("b", 0.0) == errand
    assert sharing.jobs_left == 2


def test_a_server_that_failed_is_not_started_again() -> None:
    sharing = Sharing(rung(1))
    do(sharing, "a", sharing.next_for("a", 0.0))
    sharing.stored("a", failed(sharing.next_for("a", 0.0), "a"))
    sharing.finished("a", 0.0)
    assert alone(sharing, "a") == [(STANDARD, 1)]


@pytest.mark.parametrize(("until", "jobs"), [(100.0, 3), (45.0, 2), (25.0, 2)])
def test_jobs_begin_only_while_there_is_time_for_them_and_the_standard(until: float, jobs: int) -> None:
    """Two begin in any case: else the standard, with its two turns, had most of the requests."""
    sharing, now, given_out = Sharing(replace(rung(3), until=until)), 0.0, []
    while errand := sharing.next_for("a", now):
        given_out.append(errand.job.setting.name)
        now += 20.0 if until < 30 else 10.0
        sharing.finished("a", now)
    assert given_out == [STANDARD, *(f"k={n}" for n in range(jobs)), STANDARD]


def test_a_job_that_is_expected_to_be_quick_begins_although_the_standard_was_slow() -> None:
    expected = {STANDARD: 5.0, "k=0": 5.0, "k=1": 5.0, "k=2": 5.0}
    sharing = Sharing(replace(rung(3), until=45.0, expected_s=expected))
    now, given_out = 0.0, []
    while errand := sharing.next_for("a", now):
        given_out.append(errand.job.setting.name)
        now += 20.0 if len(given_out) == 1 else 5.0
        sharing.finished("a", now)
    assert given_out == [STANDARD, "k=0", "k=1", "k=2", STANDARD]


def test_a_rung_without_jobs_is_the_standards_first_turn_on_one_machine() -> None:
    sharing = Sharing(Rung(job(STANDARD), ()))
    assert sharing.jobs_left == 1
    errand = sharing.next_for("a", 0.0)
    assert errand is not None
    assert (errand.job.setting.name, errand.turn) == (STANDARD, 0)
    assert sharing.next_for("b", 0.0) is None
    do(sharing, "a", errand)
    assert sharing.jobs_left == 0
    assert sharing.next_for("a", 0.0) is None
    assert not sharing.unclosed


def test_the_second_start_of_a_setting_has_its_turn() -> None:
    standard, one = job(STANDARD), job("k=0")
    sharing = Sharing(Rung(standard, (one, replace(one, turn=1))))
    assert alone(sharing, "a") == [(STANDARD, 0), ("k=0", 0), ("k=0", 1), (STANDARD, 1)]


def test_a_setting_that_failed_is_not_started_again() -> None:
    standard, one, other = job(STANDARD), job("k=0"), job("k=1")
    jobs = (one, other, replace(other, turn=1), replace(one, turn=1))
    sharing = Sharing(Rung(standard, jobs))
    do(sharing, "a", sharing.next_for("a", 0.0))
    sharing.stored("a", failed(sharing.next_for("a", 0.0), "a"))
    sharing.finished("a", 0.0)
    assert alone(sharing, "a") == [("k=1", 0), ("k=1", 1), (STANDARD, 1)]


def test_a_setting_that_failed_elsewhere_is_not_given_to_another_machine_when_one_is_lost() -> None:
    standard, one = job(STANDARD), job("k=0")
    sharing = Sharing(Rung(standard, (one, replace(one, turn=1))))
    for machine in "ab":
        errand = sharing.next_for(machine, 0.0)
        for cell in errand.job.cells:
            sharing.stored(machine, measured(errand, cell, machine))
    for machine in "ab":
        sharing.finished(machine, 0.0)
    sharing.next_for("a", 0.0)
    sharing.stored("b", failed(sharing.next_for("b", 0.0), "b"))
    sharing.finished("b", 0.0)
    assert sharing.lost("a", "its worker of Ray died") is None
    assert sharing.jobs_left == 0
    assert alone(sharing, "b") == [(STANDARD, 1)]


@given(st.data())
def test_every_cell_is_measured_once_between_two_of_the_standard_whatever_dies(data: st.DataObject) -> None:
    """Machines take turns at random, one cell at a time; some die, but never the last one."""
    jobs, cells = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 3))
    machines = [f"m{n}" for n in range(data.draw(st.integers(1, 4)))]
    deaths = data.draw(st.integers(0, len(machines) - 1))
    sharing = Sharing(rung(jobs, cells))
    busy: dict[str, tuple[ServerRun, list[PlannedCell]]] = {}
    done: Counter[tuple[str, int]] = Counter()
    story: dict[str, list[str]] = defaultdict(list)
    failures: list[FailedJob] = []
    while True:
        for machine in machines:
            if machine not in busy and (errand := sharing.next_for(machine, 0.0)):
                busy[machine] = errand, list(errand.job.cells)
        if not busy:
            break
        machine = data.draw(st.sampled_from(sorted(busy)))
        errand, left = busy[machine]
        if deaths and data.draw(st.booleans()):
            deaths -= 1
            machines.remove(machine)
            del busy[machine]
            failures += [failure] if (failure := sharing.lost(machine, "it died")) else []
            continue
        name = f"{errand.job.setting.name}/{errand.turn}"
        if left:
            cell = left.pop(0)
            sharing.stored(machine, measured(errand, cell, machine))
            story[machine].append(name)
            done[errand.job.setting.name, cell.load.concurrency] += errand.job.setting.name != STANDARD
        else:
            sharing.finished(machine, 0.0)
            del busy[machine]
    given_up = {failure.setting for failure in failures}
    for number in range(jobs):
        for cell in range(cells):
            times = done[f"k={number}", 2**cell]
            assert times == 1 or (times == 0 and f"k={number}" in given_up)
    for machine, names in story.items():
        assert names[:cells] == [f"{STANDARD}/0"] * len(names[:cells])
        worked = any(not name.startswith(STANDARD) for name in names)
        closed = names[-cells:] == [f"{STANDARD}/1"] * cells
        if not worked:
            assert not closed
        elif machine in machines:
            assert closed
    assert sharing.unclosed.isdisjoint(machines)
