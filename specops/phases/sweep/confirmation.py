"""The second stage of a sweep: the chosen setting and its runner-up on prompts that chose neither. Pure.

The best of many measured settings is the best partly by luck, so the figure that it was chosen by is too
high. What is reported, and what decides, is measured anew. The number of rungs is fixed before the first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from specops.errors import UsageError
from specops.phases.sweep import plan
from specops.phases.sweep.jobs import Job, Load, Rung, Setting
from specops.phases.sweep.plan import Decks
from specops.phases.sweep.records import Picked
from specops.phases.sweep.timing import Timing

MOST_RUNGS = 3
"""Of a confirmation with a budget: more rungs have more starts of servers, for a narrower interval."""

MOST_STARTING = 0.5
"""Of the time of a confirmation of several rungs, so much may be spent on starting servers."""

LEAST_SHARE = 0.4
"""Of all requests with a budget, those of the settings, without the standard's."""

FIRST_LOOK = 0.8
"""Of the error allowed, the share of the first look at a confirmation; each later one halves the rest."""


class BudgetError(UsageError):
    """Nothing can be decided in a budget. `minutes` is the smallest useful one, as --budget takes it."""

    def __init__(self, message: str, minutes: str) -> None:
        super().__init__(message, hint=f"give --budget {minutes}, or sweep.budget_min: {minutes}")
        self.minutes = minutes


@dataclass(frozen=True)
class Confirming:
    """What is confirmed with what: all that a plan depends on but the time."""

    settings: Sequence[Setting]
    """The standard, then those picked."""

    loads: Sequence[Load]
    decks: Decks
    first: int
    """Number of the first rung."""

    dealt: Mapping[str, int]
    """Prompts that earlier rungs had, by class of length."""

    owed: int = 0
    """Prompts that the rungs have at least, together: so many that the settings get LEAST_SHARE of all
    requests, whatever the standard had before."""

    def rungs(self, counts: Sequence[Mapping[Load, int]]) -> list[Rung]:
        return plan.confirmation(self.first, self.settings, self.loads, self.decks, counts, self.dealt)

    def fewest(self, rungs: int = 1) -> dict[Load, int]:
        """Of each rung."""
        each = math.ceil(self.owed / (rungs * len(self.loads)))
        decks = {load: self.decks.confirmation[load.length] for load in self.loads}
        return {load: min(max(plan.fewest(load, deck), each), len(deck)) for load, deck in decks.items()}

    def even(self, rungs: int) -> list[dict[Load, int]]:
        """As many prompts as there are, divided evenly between the rungs; never fewer than tell anything."""
        return [self._at_least(self._share(rungs), rungs)] * rungs

    def within(self, timing: Timing, left_s: float) -> list[Rung] | None:
        """The rungs that can be measured in `left_s`; None where not even the smallest can."""
        for rungs in range(MOST_RUNGS, 0, -1):
            smallest = self.rungs([self.fewest(rungs)] * rungs)
            if _seconds(timing, smallest) > left_s:
                continue
            if rungs > 1 and _starting(timing, smallest) > MOST_STARTING * left_s:
                continue
            if rungs > 1 and self._share(rungs) < max(self.fewest(rungs).values()):
                continue
            return self.rungs([self._most(timing, left_s, rungs)] * rungs)
        return None

    def _most(self, timing: Timing, left_s: float, rungs: int) -> dict[Load, int]:
        low, high = 0, self._share(rungs)
        while low < high:  # the most that still fits
            middle = (low + high + 1) // 2
            fits = _seconds(timing, self.rungs([self._at_least(middle, rungs)] * rungs)) <= left_s
            low, high = (middle, high) if fits else (low, middle - 1)
        return self._at_least(low, rungs)

    def _share(self, rungs: int) -> int:
        """Of the prompts of the smallest class of length, those of a rung at a load."""
        return min(len(self.decks.confirmation[load.length]) for load in self.loads) // rungs

    def _at_least(self, count: int, rungs: int) -> dict[Load, int]:
        return {
            load: min(max(few, count), len(self.decks.confirmation[load.length]))
            for load, few in self.fewest(rungs).items()
        }


def owed(standard: int, others: int) -> int:
    """Prompts of a confirmation, in which each is sent twice to the standard and twice to settings, such that
    settings have LEAST_SHARE of all requests. `standard` and `others` count the requests so far."""
    short = LEAST_SHARE * standard - (1 - LEAST_SHARE) * others
    return max(0, math.ceil(short / (2 - 4 * LEAST_SHARE) - 1e-9))


def smallest(settings: Sequence[Setting], loads: Sequence[Load], decks: Decks, owed: int = 0) -> Rung:
    """The least that decides anything: the standard and one setting at the lightest load, each twice."""
    lightest = min(load.concurrency for load in loads)
    at = [load for load in loads if load.concurrency == lightest]
    one = Confirming(settings[:2], at, decks, 0, {}, owed)
    return one.rungs([one.fewest()])[0]


def refuse_short(budget_s: float, spent_s: float, timing: Timing, jobs: Sequence[Job]) -> None:
    """Raise BudgetError where `jobs`, the fewest before anything can be decided, do not fit into
    what is left of a budget."""
    need_s = timing.jobs(jobs)
    if need_s <= budget_s - spent_s:
        return
    starting_s = sum(timing.slack * timing.up_s(job.setting.name) for job in jobs)
    requests = sum(len(cell.prompts) + timing.warmup for job in jobs for cell in job.cells)
    left_s = budget_s - spent_s - starting_s
    more = "more " if spent_s else ""
    spent = f", after {_minutes(spent_s)} spent so far" if spent_s else ""
    minutes = _rounded_up(spent_s + need_s)
    raise BudgetError(
        f"budget {budget_s / 60:g} min: the standard and one setting need {len(jobs)} {more}server starts, "
        f"{len(jobs)} × {starting_s / len(jobs):.1f} s{spent}, which leaves "
        f"{_minutes(left_s) if left_s > 0 else 'nothing'} for {requests} requests that take about "
        f"{_minutes(need_s - starting_s)}; the smallest useful budget is about {minutes} min",
        minutes,
    )


def confidence_of(confidence: float, look: int, among: int) -> float:
    """Of each of `among` intervals at look number `look`, from 1, such that all looks there may ever be hold
    together: the first has FIRST_LOOK of the error, and each later one half of what is left."""
    share = FIRST_LOOK if look == 1 else (1 - FIRST_LOOK) * 0.5 ** (look - 1)
    return 1 - (1 - confidence) * share / max(1, among)


def confirming(
    picked: Picked,
    settings: Sequence[Setting],
    loads: Sequence[Load],
    decks: Decks,
    first: int,
    dealt: Mapping[str, int],
    owed: int = 0,
) -> Confirming:
    """What was `picked`, with the standard, at the loads that it names."""
    named = [next(one for one in settings if one.name == name) for name in picked.settings]
    at = [one for one in loads if one.concurrency in picked.streams and one.length in decks.confirmation]
    return Confirming([settings[0], *named], at, decks, first, dealt, owed)


def _seconds(timing: Timing, rungs: Sequence[Rung]) -> float:
    return sum(map(timing.rung, rungs))


def _starting(timing: Timing, rungs: Sequence[Rung]) -> float:
    jobs = [job for rung in rungs for job in (rung.standard, *rung.jobs, rung.standard)]
    return sum(timing.slack * timing.up_s(job.setting.name) for job in jobs)


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.1f} min"


def _rounded_up(seconds: float) -> str:
    """Minutes, to a tenth."""
    return f"{math.ceil(seconds / 6) / 10:g}"
