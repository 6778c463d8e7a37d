"""Rungs: which prompts each setting is asked at each load, and in which order. Pure.

Rungs are outside and settings inside, so that a drift of the machine touches every setting alike. A rung
begins and ends with the standard, and goes through the others forwards and backwards in turn.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from specops.load.workload import Prompt
from specops.phases.sweep.jobs import Job, Load, PlannedCell, Rung, Setting
from specops.phases.sweep.records import SweptCell

_Start = tuple[str, int, str]
"""Setting, turn and machine."""

Key = tuple[int, str, int, str, Load]
"""Rung, setting, turn, machine and load: what makes it one cell of a sweep and no other."""


def deal(prompts: Iterable[Prompt], seed: int) -> tuple[str, ...]:
    """The prompts' ids in an order of which every beginning has the mix of traffic classes of the whole."""
    of_class: dict[str, list[str]] = defaultdict(list)
    for prompt in prompts:
        of_class[prompt.traffic_class].append(prompt.id)
    dealer = random.Random(seed)
    places: list[tuple[float, str]] = []
    for _, names in sorted(of_class.items()):
        dealer.shuffle(names)
        places += [((number + 0.5) / len(names), name) for number, name in enumerate(names)]
    return tuple(name for _, name in sorted(places))


def rung(
    number: int,
    settings: Sequence[Setting],
    asked: Mapping[Load, Collection[str]],
    prompts: Mapping[Load, tuple[str, ...]],
) -> Rung:
    """`asked` names the settings that are asked at each load, `prompts` what all of them are asked there.

    The first of `settings` is the standard, which is asked at every load that another is asked at.
    """
    standard, *others = settings
    loads = [load for load, names in asked.items() if names]
    jobs = [
        Job(number, setting, _cells(number, [load for load in loads if setting.name in asked[load]], prompts))
        for setting in (others[::-1] if number % 2 else others)
    ]
    return Rung(
        Job(number, standard, _cells(number, loads, prompts)), tuple(job for job in jobs if job.cells)
    )


def whole(
    settings: Sequence[Setting], loads: Sequence[Load], decks: Mapping[str, tuple[str, ...]], repeats: int
) -> list[Rung]:
    """Every setting is asked every prompt at every load, `repeats` times. `decks`: by class of length."""
    names = [setting.name for setting in settings[1:]]
    asked = dict.fromkeys(loads, names)
    prompts = {load: decks[load.length] for load in loads}
    return [rung(number, settings, asked, prompts) for number in range(repeats)]


def missing(planned: Rung, good: Iterable[SweptCell]) -> Rung | None:
    """What is left of it for a sweep that goes on; None where nothing is."""
    have: dict[_Start, set[Load]] = defaultdict(set)
    for cell in good:
        if cell.rung == planned.standard.rung:
            have[cell.setting, cell.turn, cell.machine].add(load_of(cell))
    jobs = tuple(left for job in planned.jobs if (left := _left(job, have)).cells)
    begun, ended = _machines(planned.standard, 0, have), _machines(planned.standard, 1, have)
    return replace(planned, jobs=jobs, begun=begun) if jobs or not begun or begun - ended else None


def key_of(cell: SweptCell) -> Key:
    return cell.rung, cell.setting, cell.turn, cell.machine, load_of(cell)


def load_of(cell: SweptCell) -> Load:
    assert cell.cell.concurrency is not None, "a sweep drives streams"
    return Load(cell.cell.concurrency, cell.temperature, cell.length)


def _machines(standard: Job, turn: int, have: Mapping[_Start, set[Load]]) -> frozenset[str]:
    """Those on which the whole of this turn was measured."""
    wanted = {cell.load for cell in standard.cells}
    return frozenset(
        machine
        for (name, number, machine), loads in have.items()
        if (name, number) == (standard.setting.name, turn) and loads >= wanted
    )


def _left(job: Job, have: Mapping[_Start, set[Load]]) -> Job:
    done = {load for (name, _, _), loads in have.items() if name == job.setting.name for load in loads}
    return replace(job, cells=tuple(cell for cell in job.cells if cell.load not in done))


def _cells(
    number: int, loads: Iterable[Load], prompts: Mapping[Load, tuple[str, ...]]
) -> tuple[PlannedCell, ...]:
    return tuple(PlannedCell(load, number, prompts[load]) for load in loads)
