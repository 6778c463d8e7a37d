"""The stages of a sweep, which say where its requests go: the choice of a setting by halving, then its
confirmation. Pure.

The choice, with a budget, is successive halving at every load. Karnin, Koren and Somekh (ICML 2013) spend a
fixed budget on finding the best of several arms so: all are sampled, the better half stays, and every round
gets an equal share of what is left. Here each load has a contest of its own, and one start of a server serves
all of them. So settings are halved as well: those stay that are the best of a load, or as good, and then
those that are near it over all loads. What the intervals decide ends early: a setting that is surely slower
than the best, or a load at which no other can be faster by more than INDIFFERENCE, or nothing can pay. A load
with one setting left has no contest, and is not measured again before the confirmation. What is left out is
recorded with the reason.

The confirmation measures the chosen setting and its runner-up on prompts that chose neither. The best of many
measured settings is the best partly by luck, so the figure that it was chosen by is too high. What is
reported, and what decides, is measured anew. The number of rungs is fixed before the first.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from specops.errors import UsageError
from specops.phases.sweep import plan
from specops.phases.sweep.plan import Finalists, Job, Load, Rung, Skipped, StagePrompts, SweptCell, Timing
from specops.phases.sweep.speedups import Stratum, SweepCells, speedup_text
from specops.serving import Setting
from specops.stats import Interval

INDIFFERENCE = 0.03
"""A setting that is at best so much faster than another is not worth more of the budget."""

USUAL_K = 5
"""The playbook's K to start from."""

FAILED = "it failed"
NOTHING_PAYS = "decided: nothing pays here"
NO_TIME = "the budget has no time for it"


@dataclass(frozen=True)
class SettingEvidence:
    """A setting at a load, by the evidence so far."""

    setting: Setting
    speedup: Interval | None
    """None while too few prompts were answered."""

    def __str__(self) -> str:
        return "not known" if self.speedup is None else speedup_text(self.speedup)


class Halving:
    def __init__(
        self,
        settings: Sequence[Setting],
        decks: Mapping[Load, tuple[str, ...]],
        *,
        confidence: float,
    ) -> None:
        self.settings = settings
        self.decks = decks
        self.confidence = confidence
        usual = sorted(settings[1:], key=lambda setting: abs(setting.k - USUAL_K))
        self.open: dict[Load, list[Setting]] = {load: list(usual) for load in decks}
        """Settings still open, by load, the best first once there is evidence. Before, those that most likely
        are the best."""

        self.skipped: list[Skipped] = []
        self._dealt = dict.fromkeys(decks, 0)

    def resume(self, cells: Sequence[SweptCell], skipped: Sequence[Skipped]) -> None:
        """Resume an earlier sweep, which had measured `cells`. What it left out stays out, except what failed
        and what there was no time for."""
        for skip in skipped:
            if skip.why not in (FAILED, NO_TIME) and skip.load in self.open:
                self.skipped.append(skip)
                self.open[skip.load] = [left for left in self.open[skip.load] if left.name != skip.setting]
        for cell in cells:
            if cell.stage == "choice" and cell.setting == self.settings[0].name and cell.turn == 0:
                self._dealt[plan.load_of(cell)] += len(cell.cell.rows)

    def narrow(self, after: int, cells: Sequence[SweptCell], failed: Collection[str]) -> None:
        """Close what the evidence after the rung `after` decides, and the worse half of what is left."""
        for load, names in self.open.items():
            for setting in [setting for setting in names if setting.name in failed]:
                self._skip(after, load, setting, FAILED)
        before = {setting.name for settings in self.contested.values() for setting in settings}
        swept = SweepCells(cells, self.settings)
        standings = {load: self._standings(load, swept) for load in self.contested}
        for load, ranked in standings.items():
            self.open[load] = [standing.setting for standing in ranked]
            if ranked[0].speedup is not None:
                self._judge(after, load, ranked)
        self._halve_settings(after, standings, math.ceil(len(before) / 2))

    def _standings(self, load: Load, swept: SweepCells) -> list[SettingEvidence]:
        """The settings at a load, the fastest first; of equal ones the smaller K; last those without
        evidence."""
        where = replace(Stratum.of_load(load), stage="choice")
        standings = [
            SettingEvidence(setting, swept.pairs(setting.name, where).ratio("e2e", self.confidence))
            for setting in self.open[load]
        ]
        return sorted(
            standings,
            key=lambda standing: (
                -(standing.speedup.estimate if standing.speedup else 0.0),
                standing.setting.k,
            ),
        )

    def _judge(self, after: int, load: Load, ranked: list[SettingEvidence]) -> None:
        best, *rest = ranked
        for slower in rest:
            if slower.speedup and best.speedup and slower.speedup.high < best.speedup.low:
                self._skip(after, load, slower.setting, f"surely slower: {slower}, and {_named(best)}")
        left = [standing for standing in ranked if standing.setting in self.open[load]]
        if why := _decided(left):
            # The best stays, to be confirmed, unless nothing pays.
            for standing in left if why.startswith(NOTHING_PAYS) else left[1:]:
                self._skip(after, load, standing.setting, why)
            return
        measured = [standing for standing in left if standing.speedup is not None]
        for standing in measured[math.ceil(len(ranked) / 2) :]:
            self._skip(after, load, standing.setting, f"in the slower half: {standing}, and {_named(best)}")

    def _halve_settings(
        self, after: int, standings: Mapping[Load, Sequence[SettingEvidence]], most: int
    ) -> None:
        """Keep `most` settings, and always one that is about as good as the best at each load."""
        behind: dict[str, dict[Load, float]] = defaultdict(dict)
        for load, ranked in standings.items():
            best = ranked[0].speedup
            for standing in ranked:
                if best and standing.speedup and standing.setting in self.open[load]:
                    behind[standing.setting.name][load] = best.estimate / standing.speedup.estimate
        staying = _cover(behind)
        for name in sorted(behind, key=lambda name: fmean(behind[name].values())):
            if len(staying) < most:
                staying.add(name)
        for load, ranked in standings.items():
            for standing in ranked:
                if standing.setting in self.open[load] and standing.setting.name in behind.keys() - staying:
                    why = f"in the slower half over all loads: {standing}, and {_named(ranked[0])}"
                    self._skip(after, load, standing.setting, why)

    @property
    def contested(self) -> dict[Load, list[Setting]]:
        """The loads at which there is a choice."""
        return {load: settings for load, settings in self.open.items() if len(settings) > 1}

    def opening(self, number: int) -> Rung | None:
        """The first rung, with the fewest prompts that give an interval: how long it takes is not known. None
        where there is nothing to choose."""
        return self._deal(number, self._fewest()) if self.contested else None

    def fitting(self, opened: Rung, timing: Timing, left_s: float) -> Rung | None:
        """The part of the rung `opened` that fits into `left_s`, after the first turn of its standard; None
        where no two settings fit."""
        while self.contested:
            names = {
                load: {setting.name for setting in settings} for load, settings in self.contested.items()
            }
            standard = _restrict_job(opened.standard, names.keys())
            jobs = tuple(
                left
                for job in opened.jobs
                if (
                    left := _restrict_job(job, [load for load in names if job.setting.name in names[load]])
                ).cells
            )
            if timing.jobs([*jobs, standard]) <= left_s:
                return replace(opened, standard=standard, jobs=jobs)
            self._limit(opened.standard.rung - 1, max(map(len, self.contested.values())) - 1)
        return None

    def plan(self, number: int, timing: Timing, left_s: float, reserve_s: float) -> Rung | None:
        """The next rung, with as many prompts as its share of the time allows. `left_s` is the time of this
        stage, of which `reserve_s` should be left to the confirmation. None where nothing is contested, or
        the time does not suffice for a rung; what does not fit is skipped."""
        while contested := self.contested:
            most = max(map(len, contested.values()))
            smallest = timing.rung(self._rung(number, self._fewest()))
            if smallest > left_s:
                self._limit(number - 1, most - 1)
                continue
            share_s = max((left_s - reserve_s) / max(1, math.ceil(math.log2(most))), smallest)
            return self._deal(number, self._most(number, timing, share_s))
        return None

    def _most(self, number: int, timing: Timing, share_s: float) -> dict[Load, int]:
        """Prompts of each load, as many as take no longer than `share_s`, and never fewer than `_fewest`."""
        fewest, low, high = self._fewest(), 0, max(map(len, self.decks.values()))
        while low < high:  # the most that still fits
            middle = (low + high + 1) // 2
            fits = timing.rung(self._rung(number, self._at_least(fewest, middle))) <= share_s
            low, high = (middle, high) if fits else (low, middle - 1)
        return self._at_least(fewest, low)

    def _at_least(self, fewest: Mapping[Load, int], count: int) -> dict[Load, int]:
        return {load: min(max(few, count), len(self.decks[load])) for load, few in fewest.items()}

    def _fewest(self) -> dict[Load, int]:
        return {load: plan.fewest(load, deck) for load, deck in self.decks.items()}

    def _rung(self, number: int, counts: Mapping[Load, int]) -> Rung:
        contested = {load: [setting.name for setting in names] for load, names in self.contested.items()}
        prompts = {load: self._next(load, count) for load, count in counts.items()}
        spare = {load: self._spare(load, measured) for load, measured in prompts.items()}
        return plan.rung(number, self.settings, contested, prompts, spare)

    def _deal(self, number: int, counts: Mapping[Load, int]) -> Rung | None:
        planned = self._rung(number, counts)
        for cell in planned.standard.cells:
            self._dealt[cell.load] += len(cell.prompts)
        return planned if planned.jobs else None

    def _next(self, load: Load, count: int) -> tuple[str, ...]:
        """The next prompts of the deck, which begins again at its end."""
        deck, position = self.decks[load], self._dealt[load]
        return tuple(deck[(position + number) % len(deck)] for number in range(count))

    def _spare(self, load: Load, measured: Collection[str]) -> tuple[str, ...]:
        return tuple(name for name in self.decks[load] if name not in measured)

    def _limit(self, after: int, most: int) -> None:
        """Skip all but the first `most` settings at each load."""
        for load, settings in self.open.items():
            for setting in settings[max(1, most) :]:
                self._skip(after, load, setting, NO_TIME)

    def _skip(self, after: int, load: Load, setting: Setting, why: str) -> None:
        self.skipped.append(Skipped(setting.name, load, after, why))
        self.open[load] = [candidate for candidate in self.open[load] if candidate is not setting]


def _restrict_job(job: Job, loads: Collection[Load]) -> Job:
    return replace(job, cells=tuple(cell for cell in job.cells if cell.load in loads))


def _cover(behind: Mapping[str, Mapping[Load, float]]) -> set[str]:
    """A few settings such that one of them is within INDIFFERENCE of the best at every load; chosen
    greedily."""
    good = {
        name: {load for load, times in slowdowns.items() if times <= 1 + INDIFFERENCE}
        for name, slowdowns in behind.items()
    }
    uncovered, chosen = set().union(*good.values()), set[str]()
    while uncovered:
        name = max(good, key=lambda name: (len(good[name] & uncovered), -fmean(behind[name].values())))
        chosen.add(name)
        uncovered -= good[name]
    return chosen


def _decided(standings: Sequence[SettingEvidence]) -> str | None:
    """Return why more measuring would change nothing here; the first is the best. None where it could."""
    intervals = [standing.speedup for standing in standings if standing.speedup is not None]
    if len(intervals) < len(standings):
        return None
    best, *rest = intervals
    if max(interval.high for interval in intervals) < 1:
        return f"{NOTHING_PAYS}, at best {_named(standings[0])}"
    if best.low > 1 and all(interval.high <= best.low * (1 + INDIFFERENCE) for interval in rest):
        return f"decided: no other can be {INDIFFERENCE:.0%} faster than {_named(standings[0])}"
    return None


def _named(standing: SettingEvidence) -> str:
    return f"{standing.setting.name} is {standing}"


MOST_RUNGS = 3
"""The most rungs of a confirmation with a budget. More rungs have more starts of servers, for a narrower
interval."""

MOST_STARTING = 0.5
"""The share of the time of a confirmation of several rungs that may be spent on starting servers."""

LEAST_SHARE = 0.4
"""The least share of all requests, with a budget, that goes to settings other than the standard."""

FIRST_LOOK = 0.8
"""The share of the error allowed at the first look at a confirmation; each later look halves the rest."""


class BudgetError(UsageError):
    """Raised where nothing can be decided in a budget. `minutes` is the smallest useful one, as --budget
    takes it."""

    def __init__(self, message: str, minutes: str) -> None:
        super().__init__(message, hint=f"specops sweep ROLLOUT --budget {minutes}")
        self.minutes = minutes


@dataclass(frozen=True)
class ConfirmationInputs:
    """All that the plan of a confirmation depends on, except the time."""

    settings: Sequence[Setting]
    """The standard, then those picked."""

    loads: Sequence[Load]
    decks: StagePrompts
    first: int
    """Number of the first rung."""

    dealt: Mapping[str, int]
    """Prompts that earlier rungs had, by class of length."""

    owed: int = 0
    """Prompts that the rungs have at least, together: so many that the settings get LEAST_SHARE of all
    requests, whatever the standard had before."""

    requests: int = 0
    """Requests to each setting that the rungs have together, where there is time: so many bound rare events.
    Beyond the end of a deck, its prompts come again in other variants."""

    def rungs(self, counts: Sequence[Mapping[Load, int]]) -> list[Rung]:
        return plan.confirmation(self.first, self.settings, self.loads, self.decks, counts, self.dealt)

    def fewest(self, rungs: int = 1) -> dict[Load, int]:
        """The fewest prompts of each of so many rungs, by load."""
        owed_share = math.ceil(self.owed / (rungs * len(self.loads)))
        decks = {load: self.decks.confirmation[load.length] for load in self.loads}
        return {
            load: min(max(plan.fewest(load, deck), owed_share), len(deck)) for load, deck in decks.items()
        }

    def even(self, rungs: int) -> list[dict[Load, int]]:
        """All prompts, divided evenly between the rungs; never fewer than give an interval, or than
        `requests` needs."""
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
        """The prompts of a rung at a load, by those of the smallest class of length, or by `requests`."""
        turns = 2 if len(self.settings) == 2 else 1
        needed = math.ceil(self.requests / (rungs * len(self.loads) * turns))
        return max(needed, min(len(self.decks.confirmation[load.length]) for load in self.loads) // rungs)

    def _at_least(self, count: int, rungs: int) -> dict[Load, int]:
        return {load: max(few, count) for load, few in self.fewest(rungs).items()}


def owed(standard: int, settings: int) -> int:
    """Prompts of a confirmation, in which each is sent twice to the standard and twice to settings, such that
    settings have LEAST_SHARE of all requests. `standard` and `settings` count the requests so far."""
    short = LEAST_SHARE * standard - (1 - LEAST_SHARE) * settings
    return max(0, math.ceil(short / (2 - 4 * LEAST_SHARE) - 1e-9))


def smallest(settings: Sequence[Setting], loads: Sequence[Load], decks: StagePrompts, owed: int = 0) -> Rung:
    """The least that decides anything: the standard and one setting at the lightest load, each twice."""
    lightest = min(load.concurrency for load in loads)
    lightest_loads = [load for load in loads if load.concurrency == lightest]
    inputs = ConfirmationInputs(settings[:2], lightest_loads, decks, 0, {}, owed)
    return inputs.rungs([inputs.fewest()])[0]


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
    """The confidence of each of `among` intervals at look number `look`, from 1, such that all possible looks
    hold together. The first has FIRST_LOOK of the error, and each later one half of what is left."""
    share = FIRST_LOOK if look == 1 else (1 - FIRST_LOOK) * 0.5 ** (look - 1)
    return 1 - (1 - confidence) * share / max(1, among)


def confirming(
    finalists: Finalists,
    settings: Sequence[Setting],
    loads: Sequence[Load],
    decks: StagePrompts,
    first: int,
    dealt: Mapping[str, int],
    owed: int = 0,
    requests: int = 0,
) -> ConfirmationInputs:
    """The confirmation of what was `picked`, with the standard, at the loads that it names."""
    named = [next(setting for setting in settings if setting.name == name) for name in finalists.settings]
    chosen_loads = [
        load for load in loads if load.concurrency in finalists.streams and load.length in decks.confirmation
    ]
    return ConfirmationInputs([settings[0], *named], chosen_loads, decks, first, dealt, owed, requests)


def _seconds(timing: Timing, rungs: Sequence[Rung]) -> float:
    return sum(map(timing.rung, rungs))


def _starting(timing: Timing, rungs: Sequence[Rung]) -> float:
    jobs = [job for rung in rungs for job in (rung.standard, *rung.jobs, rung.standard)]
    return sum(timing.slack * timing.up_s(job.setting.name) for job in jobs)


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.1f} min"


def _rounded_up(seconds: float) -> str:
    """Minutes, rounded up to a tenth, as text."""
    return f"{math.ceil(seconds / 6) / 10:g}"
