"""Where a budget goes while a setting is chosen: successive halving at every load. Pure.

Karnin, Koren and Somekh (ICML 2013) spend a fixed budget on finding the best of several arms so: all are
sampled, the better half goes on, and every round gets an equal share of what is left. Here each load has a
contest of its own, and one start of a server serves all of them. So settings are halved as well: those stay
that are the best of a load, or as good, and then those that are near it over all loads. Beside the halving,
what the intervals decide ends early: a setting that is surely slower than the best, a load at which no other
can be faster by more than INDIFFERENCE, or nothing can pay. A load with one setting left has no contest, and
is not measured again before the confirmation. Whatever is left out is recorded, with the reason.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from specops.phases.sweep import plan
from specops.phases.sweep.jobs import Job, Load, Rung, Setting, Skipped
from specops.phases.sweep.records import SweptCell
from specops.phases.sweep.speedups import Swept, Where, shown
from specops.phases.sweep.timing import Timing
from specops.stats import Interval

INDIFFERENCE = 0.03
"""A setting that is at best so much faster than another is not worth more of the budget."""

USUAL_K = 5
"""The playbook's K to start from."""

FAILED = "it failed"
NOTHING_PAYS = "decided: nothing pays here"
NO_TIME = "the budget has no time for it"


@dataclass(frozen=True)
class Standing:
    """Of a setting at a load, so far."""

    setting: Setting
    speedup: Interval | None
    """None while too few prompts were answered."""

    def __str__(self) -> str:
        return "not known" if self.speedup is None else shown(self.speedup)


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
        """By load, the best first once there is evidence. Before, those that most likely are the best."""

        self.skipped: list[Skipped] = []
        self._dealt = dict.fromkeys(decks, 0)

    def resume(self, cells: Sequence[SweptCell], skipped: Sequence[Skipped]) -> None:
        """Go on where an earlier sweep was, which had measured `cells`: what it left out stays so, but for
        what failed, and what there was no time for."""
        for one in skipped:
            if one.why not in (FAILED, NO_TIME) and one.load in self.open:
                self.skipped.append(one)
                self.open[one.load] = [left for left in self.open[one.load] if left.name != one.setting]
        for cell in cells:
            if cell.stage == "choice" and cell.setting == self.settings[0].name and cell.turn == 0:
                self._dealt[plan.load_of(cell)] += len(cell.cell.rows)

    def narrow(self, after: int, cells: Sequence[SweptCell], failed: Collection[str]) -> None:
        """Close what the evidence after the rung `after` decides, and of what is left the worse half."""
        for load, names in self.open.items():
            for setting in [setting for setting in names if setting.name in failed]:
                self._skip(after, load, setting, FAILED)
        before = {setting.name for settings in self.contested.values() for setting in settings}
        swept = Swept(cells, self.settings)
        standings = {load: self._standings(load, swept) for load in self.contested}
        for load, ranked in standings.items():
            self.open[load] = [standing.setting for standing in ranked]
            if ranked[0].speedup is not None:
                self._judge(after, load, ranked)
        self._halve_settings(after, standings, math.ceil(len(before) / 2))

    def _standings(self, load: Load, swept: Swept) -> list[Standing]:
        """The fastest first, of equal ones that of the smaller K; last those of which nothing is known."""
        where = replace(Where.of(load), stage="choice")
        found = [
            Standing(setting, swept.pairs(setting.name, where).ratio("e2e", self.confidence))
            for setting in self.open[load]
        ]
        return sorted(found, key=lambda one: (-(one.speedup.estimate if one.speedup else 0.0), one.setting.k))

    def _judge(self, after: int, load: Load, ranked: list[Standing]) -> None:
        best, *others = ranked
        for other in others:
            if other.speedup and best.speedup and other.speedup.high < best.speedup.low:
                self._skip(after, load, other.setting, f"surely slower: {other}, and {_named(best)}")
        left = [standing for standing in ranked if standing.setting in self.open[load]]
        if why := _decided(left):
            # The best stays, to be confirmed, unless nothing pays.
            for standing in left if why.startswith(NOTHING_PAYS) else left[1:]:
                self._skip(after, load, standing.setting, why)
            return
        known = [standing for standing in left if standing.speedup is not None]
        for standing in known[math.ceil(len(ranked) / 2) :]:
            self._skip(after, load, standing.setting, f"in the slower half: {standing}, and {_named(best)}")

    def _halve_settings(self, after: int, standings: Mapping[Load, Sequence[Standing]], most: int) -> None:
        """Keep `most` settings, and always one that is about as good as the best at each load."""
        behind: dict[str, dict[Load, float]] = defaultdict(dict)
        for load, ranked in standings.items():
            best = ranked[0].speedup
            for one in ranked:
                if best and one.speedup and one.setting in self.open[load]:
                    behind[one.setting.name][load] = best.estimate / one.speedup.estimate
        kept = _cover(behind)
        for name in sorted(behind, key=lambda name: fmean(behind[name].values())):
            if len(kept) < most:
                kept.add(name)
        for load, ranked in standings.items():
            for one in ranked:
                if one.setting in self.open[load] and one.setting.name in behind.keys() - kept:
                    why = f"in the slower half over all loads: {one}, and {_named(ranked[0])}"
                    self._skip(after, load, one.setting, why)

    @property
    def contested(self) -> dict[Load, list[Setting]]:
        """The loads at which there is a choice."""
        return {load: settings for load, settings in self.open.items() if len(settings) > 1}

    def opening(self, number: int) -> Rung | None:
        """The first rung, of the fewest prompts that tell anything: how long it takes is not known. None
        where there is nothing to choose."""
        return self._deal(number, self._fewest()) if self.contested else None

    def fitting(self, opened: Rung, timing: Timing, left_s: float) -> Rung | None:
        """What of the rung `opened` can be measured in `left_s`, after the first turn of its standard; None
        where no two settings can."""
        while self.contested:
            names = {load: {one.name for one in settings} for load, settings in self.contested.items()}
            standard = _at(opened.standard, names.keys())
            jobs = tuple(
                left
                for job in opened.jobs
                if (left := _at(job, [load for load in names if job.setting.name in names[load]])).cells
            )
            if timing.jobs([*jobs, standard]) <= left_s:
                return replace(opened, standard=standard, jobs=jobs)
            self._keep(opened.standard.rung - 1, max(map(len, self.contested.values())) - 1)
        return None

    def plan(self, number: int, timing: Timing, left_s: float, reserve_s: float) -> Rung | None:
        """The next rung: of every prompt that its share of the time lets be asked. `left_s` is what there is
        for this stage, of which `reserve_s` had better be left to the confirmation. None where nothing is
        contested, or the time does not suffice for a rung; what it does not suffice for is skipped."""
        while contested := self.contested:
            most = max(map(len, contested.values()))
            smallest = timing.rung(self._rung(number, self._fewest()))
            if smallest > left_s:
                self._keep(number - 1, most - 1)
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
        asked = {load: [setting.name for setting in names] for load, names in self.contested.items()}
        prompts = {load: self._next(load, count) for load, count in counts.items()}
        spare = {load: self._spare(load, measured) for load, measured in prompts.items()}
        return plan.rung(number, self.settings, asked, prompts, spare)

    def _deal(self, number: int, counts: Mapping[Load, int]) -> Rung | None:
        planned = self._rung(number, counts)
        for cell in planned.standard.cells:
            self._dealt[cell.load] += len(cell.prompts)
        return planned if planned.jobs else None

    def _next(self, load: Load, count: int) -> tuple[str, ...]:
        """The next prompts of the deck, which begins again at its end."""
        deck, at = self.decks[load], self._dealt[load]
        return tuple(deck[(at + number) % len(deck)] for number in range(count))

    def _spare(self, load: Load, measured: Collection[str]) -> tuple[str, ...]:
        return tuple(name for name in self.decks[load] if name not in measured)

    def _keep(self, after: int, most: int) -> None:
        """No more settings than so many at each load."""
        for load, settings in self.open.items():
            for setting in settings[max(1, most) :]:
                self._skip(after, load, setting, NO_TIME)

    def _skip(self, after: int, load: Load, setting: Setting, why: str) -> None:
        self.skipped.append(Skipped(setting.name, load, after, why))
        self.open[load] = [other for other in self.open[load] if other is not setting]


def _at(job: Job, loads: Collection[Load]) -> Job:
    return replace(job, cells=tuple(cell for cell in job.cells if cell.load in loads))


def _cover(behind: Mapping[str, Mapping[Load, float]]) -> set[str]:
    """Settings of which, at every load, one is behind the best by INDIFFERENCE at most; few, by greed."""
    good = {
        name: {load for load, times in at.items() if times <= 1 + INDIFFERENCE} for name, at in behind.items()
    }
    wanted, kept = set().union(*good.values()), set[str]()
    while wanted:
        name = max(good, key=lambda name: (len(good[name] & wanted), -fmean(behind[name].values())))
        kept.add(name)
        wanted -= good[name]
    return kept


def _decided(standings: Sequence[Standing]) -> str | None:
    """Why more measuring would change nothing here; the first is the best. None where it could."""
    intervals = [standing.speedup for standing in standings if standing.speedup is not None]
    if len(intervals) < len(standings):
        return None
    best, *others = intervals
    if max(interval.high for interval in intervals) < 1:
        return f"{NOTHING_PAYS}, at best {_named(standings[0])}"
    if best.low > 1 and all(other.high <= best.low * (1 + INDIFFERENCE) for other in others):
        return f"decided: no other can be {INDIFFERENCE:.0%} faster than {_named(standings[0])}"
    return None


def _named(standing: Standing) -> str:
    return f"{standing.setting.name} is {standing}"
