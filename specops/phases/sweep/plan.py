"""Rungs: which prompts each setting is asked at each load, and in which order. Pure.

Rungs are outside and settings inside, so that a drift of the machine touches every setting alike. A rung
begins and ends with the standard, and goes through the others forwards and backwards in turn. A load at which
only one setting is measured has it twice, S A A S: so the settings have half of a rung's requests or more,
whatever is measured, and each setting's starts lie evenly between the standard's.

The prompts are divided before anything runs: one part for the choice, the other for the confirmation.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from specops.load.workload import Prompt
from specops.phases.sweep.jobs import Job, Load, PlannedCell, Rung, Setting
from specops.phases.sweep.records import Stage, SweptCell
from specops.stats import MIN_PAIRS

Deck = tuple[str, ...]
"""Ids of prompts, in the order in which they are asked."""

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


@dataclass(frozen=True)
class Decks:
    """The prompts of each stage, by class of length."""

    choice: Mapping[str, Deck]
    confirmation: Mapping[str, Deck]
    fresh: bool
    """No prompt is in both."""


def divided(decks: Mapping[str, Deck], settings: int) -> Decks:
    """Half of each deck for the choice and half for the confirmation.

    Both have all prompts where some deck is too small for an interval of each half, and where there is but
    one setting (`settings` counts them without the standard), so that nothing is chosen.
    """
    if settings < 2 or min(map(len, decks.values())) < 2 * MIN_PAIRS:
        return Decks(decks, decks, fresh=settings < 2)
    return Decks(
        {name: deck[: len(deck) // 2] for name, deck in decks.items()},
        {name: deck[len(deck) // 2 :] for name, deck in decks.items()},
        fresh=True,
    )


def fewest(load: Load, deck: Deck) -> int:
    """Prompts of which an interval can be made, and which mostly run at the full load."""
    return min(max(MIN_PAIRS, 2 * load.concurrency), len(deck))


def rung(
    number: int,
    settings: Sequence[Setting],
    asked: Mapping[Load, Collection[str]],
    prompts: Mapping[Load, Deck],
    warm_up: Mapping[Load, Deck] | None = None,
    stage: Stage = "choice",
) -> Rung:
    """`asked` names the settings that are asked at each load, `prompts` what all of them are asked there, and
    `warm_up` what a server is warmed up with.

    The first of `settings` is the standard, which is asked at every load that another is asked at.
    """
    standard, *others = settings
    loads = [load for load, names in asked.items() if names]
    others = others[::-1] if number % 2 else others

    def job(setting: Setting, at: Sequence[Load], turn: int = 0) -> Job:
        cells = tuple(PlannedCell(load, number, prompts[load], (warm_up or {}).get(load, ())) for load in at)
        return Job(number, setting, cells, turn, stage)

    first = [job(one, [load for load in loads if one.name in asked[load]]) for one in others]
    alone = [load for load in loads if len(asked[load]) == 1]
    again = [job(one, [load for load in alone if one.name in asked[load]], 1) for one in reversed(others)]
    return Rung(job(standard, loads), tuple(job for job in first + again if job.cells))


def whole(settings: Sequence[Setting], loads: Sequence[Load], decks: Decks, repeats: int) -> list[Rung]:
    """The choice without a budget: all settings, all its prompts, at every load, `repeats` times."""
    names = [setting.name for setting in settings[1:]]
    prompts = {load: decks.choice[load.length] for load in loads}
    warm_up = spare(decks.choice, prompts)
    asked = dict.fromkeys(loads, names)
    return [rung(number, settings, asked, prompts, warm_up) for number in range(repeats)]


def confirmation(
    first: int,
    settings: Sequence[Setting],
    loads: Sequence[Load],
    decks: Decks,
    counts: Sequence[Mapping[Load, int]],
    dealt: Mapping[str, int],
) -> list[Rung]:
    """The rungs of a confirmation, numbered from `first`; `counts` has the prompts of each at each load.

    A load goes on in the deck from rung to rung, and the loads of a rung begin at different places: as long
    as there are prompts, a load has none twice, and one start of a server neither. `dealt` says how many
    prompts of each class of length earlier rungs had.
    """
    found = []
    names = [setting.name for setting in settings[1:]]
    for index, of_load in enumerate(counts):
        number, prompts = first + index, {}
        for place, load in enumerate(loads):
            deck, count = decks.confirmation[load.length], of_load[load]
            begin = dealt.get(load.length, 0) + (index + place) * count
            prompts[load] = tuple(deck[(begin + n) % len(deck)] for n in range(count))
        warm_up = spare(decks.choice, prompts)
        asked = dict.fromkeys(loads, names)
        found.append(rung(number, settings, asked, prompts, warm_up, "confirmation"))
    return found


def spare(decks: Mapping[str, Deck], prompts: Mapping[Load, Deck]) -> dict[Load, Deck]:
    """By load, prompts of its class of length that the rung does not measure; empty where there are none."""
    measured = {name for of_load in prompts.values() for name in of_load}
    return {load: tuple(name for name in decks[load.length] if name not in measured) for load in prompts}


def missing(planned: Rung, good: Iterable[SweptCell]) -> Rung | None:
    """What is left of it for a sweep that goes on; None where nothing is. A rung without jobs, of which
    nothing was measured, has nothing left: the standard alone is compared with nothing."""
    have: dict[_Start, set[Load]] = defaultdict(set)
    for cell in good:
        if cell.rung == planned.standard.rung:
            have[cell.setting, cell.turn, cell.machine].add(load_of(cell))
    begun, ended = _machines(planned.standard, 0, have), _machines(planned.standard, 1, have)
    if not begun:
        return planned if planned.jobs else None
    jobs = tuple(left for job in planned.jobs if (left := _left(job, have)).cells)
    return replace(planned, jobs=jobs, begun=begun) if jobs or begun - ended else None


def unfinished(settings: Sequence[Setting], cells: Sequence[SweptCell]) -> Rung | None:
    """The last rung, where its standard was measured once and not again: with all its jobs where none of them
    was measured, else without, so that only the standard's second turn is left. None where it is whole.

    `settings` are those of the rung, the standard first.
    """
    number = max((cell.rung for cell in cells), default=-1)
    ours = [cell for cell in cells if cell.rung == number]
    name = settings[0].name
    prompts = {
        load_of(cell): tuple(row.prompt for row in cell.cell.rows)
        for cell in ours
        if (cell.setting, cell.turn) == (name, 0)
    }
    turns = [{cell.machine for cell in ours if (cell.setting, cell.turn) == (name, turn)} for turn in (0, 1)]
    left = turns[0] - turns[1]
    if not left:
        return None
    asked = {load: [one.name for one in settings[1:]] for load in prompts}
    planned = rung(number, settings, asked, prompts, stage=ours[0].stage)
    begun = any(cell.setting != name for cell in ours)
    return replace(planned, jobs=() if begun else planned.jobs, begun=frozenset(left))


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
    started = (job.setting.name, job.turn)
    done = {load for (name, turn, _), loads in have.items() if (name, turn) == started for load in loads}
    return replace(job, cells=tuple(cell for cell in job.cells if cell.load not in done))
