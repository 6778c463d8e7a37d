"""From the cells to the report and the verdict: pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from specops import stats
from specops.load.record import CellRecord
from specops.phases.ab.speedups import Speedups, speedups
from specops.phases.sweep import advice, costs, recommend
from specops.phases.sweep.cells import cell_of, of_setting
from specops.phases.sweep.choice import Choice, choose, deciding, method_of
from specops.phases.sweep.costs import Line, Step
from specops.phases.sweep.groups import of_group
from specops.phases.sweep.jobs import Load, Setting, Skipped
from specops.phases.sweep.plan import load_of
from specops.phases.sweep.recommend import Contest
from specops.phases.sweep.records import FailedJob, SweptCell
from specops.phases.sweep.report import (
    Cell,
    Change,
    Cost,
    OfGroup,
    OfSetting,
    Recommendation,
    Report,
    Streams,
)
from specops.phases.sweep.speedups import Swept, Where
from specops.results import Verdict


@dataclass(frozen=True)
class Judged:
    verdict: Verdict
    reason: str
    summary: dict[str, Any]
    data: dict[str, Any]
    """A Report (report.py), beside which the cells as they were measured are kept under another key."""

    recommendation: dict[str, Any]
    """A Recommendation."""


def judge(
    settings: Sequence[Setting],
    loads: Sequence[Load],
    cells: Sequence[SweptCell],
    failed: Sequence[FailedJob],
    *,
    confidence: float = 0.95,
    skipped: Sequence[Skipped] = (),
) -> Judged:
    """Judge every setting at every load; the setting with k = 0 is the standard.

    `confidence` is of all intervals of a kind together. A setting that failed once is not recommended: it
    died, or did not come up. Where something was `skipped`, what was measured was chosen by what had been
    seen, and the intervals hold for every rung after which that was done.
    """
    judging = _Judging(settings, loads, cells, failed, confidence, skipped)
    report = judging.report()
    told = judging.recommendation(report)
    return Judged(
        judging.choice.decision.verdict,
        judging.choice.decision.reason,
        _summary(report, judging.choice, told),
        report.model_dump(mode="json"),
        told.model_dump(mode="json"),
    )


class _Judging:
    """What everything is judged by."""

    def __init__(
        self,
        settings: Sequence[Setting],
        loads: Sequence[Load],
        cells: Sequence[SweptCell],
        failed: Sequence[FailedJob],
        confidence: float,
        skipped: Sequence[Skipped],
    ) -> None:
        self.settings, self.loads, self.cells = settings, loads, cells
        self.swept = Swept(cells, settings)
        self.confidence = confidence
        self.why = {one.setting: one.why for one in failed}
        chosen = any(one.setting not in self.why for one in skipped)
        self.looks = max(1, self.swept.rungs) if chosen else 1
        self.working = [one for one in self.swept.challengers if one.name not in self.why]
        self.streams = sorted({load.concurrency for load in loads})
        self.of_each = self.each_of(len(self.streams))
        self.contests = [self.contest(Where(streams), self.of_each) for streams in self.streams]
        lightest = deciding(self.contests)
        self.classes = self.groups(lightest.where, "traffic_class", self.swept.classes)
        several = self.classes if len(self.classes) > 1 else {}
        self.choice = choose(self.contests, several, self.why, self.swept.standard)
        self.at = Where(self.choice.at) if self.choice.at is not None else None

    def each_of(self, groups: int) -> float:
        """The confidence of each interval of a kind: one for each setting in each of so many groups."""
        return recommend.of_each(self.confidence, len(self.swept.challengers), groups, self.looks)

    def contest(self, where: Where, confidence: float) -> Contest:
        return recommend.contest(self.swept, where, self.working, confidence)

    def groups(self, where: Where, kind: str, names: Collection[Any]) -> dict[str, Contest]:
        """A contest for each class, length or temperature at `where`."""
        each = self.each_of(len(names))
        return {str(name): self.contest(replace(where, **{kind: name}), each) for name in sorted(names)}

    def report(self) -> Report:
        setting = self.choice.setting
        name = setting.name if setting else None
        planned, missing = advice.planned(self.swept, self.contests, self.choice)
        steps, lines = self.costs()
        return Report(
            standard=self.swept.standard,
            confidence=self.confidence,
            confidence_of_each=round(self.of_each, 6),
            looks=self.looks,
            decided_at=self.choice.at,
            recommended=name,
            nearest=name or self._nearest(),
            only_for=list(self.choice.only),
            cells=[found for load in self.loads for found in self.cells_at(load)],
            together=[found for contest in self.contests for found in self.together(contest)],
            rivals=advice.rivals(self.swept, self.contests, self.choice),
            by_class={group: of_group(contest, name) for group, contest in self.classes.items()},
            by_length=self.of_groups("length", {load.length for load in self.loads}),
            by_temperature=self.of_groups("temperature", {load.temperature for load in self.loads}),
            steps=steps,
            lines=lines,
            crossover=advice.crossed(self.contests, self.choice),
            schedule=planned,
            schedule_missing=missing,
            standards=self.standards(),
            start_sd=self.start_sd(),
        )

    def cells_at(self, load: Load) -> Iterator[Cell]:
        for setting in self.settings:
            ours = [cell for cell in self._measured(setting) if load_of(cell) == load]
            if ours:
                pairs = self.swept.pairs(setting.name, Where.of(load))
                yield cell_of(setting, load, ours, pairs, self.of_each)

    def together(self, contest: Contest) -> Iterator[OfSetting]:
        for setting in self.settings:
            cells = self._records(setting, contest.where)
            candidate = contest.of(setting.name)
            if cells:
                decision, where = candidate.decision if candidate else None, contest.where
                found = self.speedups(setting, where) if candidate else None
                yield of_setting(setting, where.concurrency, cells, decision, found)

    def speedups(self, setting: Setting, where: Where) -> Speedups:
        return speedups(self.swept.pairs(setting.name, where), where.level, self.of_each)

    def of_groups(self, kind: str, names: Collection[Any]) -> dict[str, OfGroup]:
        """Of lengths and temperatures, where there is more than one."""
        if self.at is None or len(names) < 2:
            return {}
        name = self.choice.setting.name if self.choice.setting else None
        return {g: of_group(found, name) for g, found in self.groups(self.at, kind, names).items()}

    def costs(self) -> tuple[list[Step], list[Line]]:
        at = self.at
        if at is None:
            return [], []
        cells = {one.name: self._records(one, at) for one in self.swept.challengers}
        steps = [
            costs.step(one, self.swept.pairs(one.name, at), cells[one.name])
            for one in self.swept.challengers
            if cells[one.name]
        ]
        families = dict.fromkeys(costs.family(one) for one in self.swept.challengers)
        by_name = {step.setting: step for step in steps}
        lines = [costs.line(family, self.swept.challengers, by_name, cells) for family in families if family]
        return steps, lines

    def standards(self) -> list[Change]:
        if self.at is None:
            return []
        found = []
        for turns in self.swept.turns(self.at, "e2e"):
            first, second = zip(*turns.taken.values(), strict=True)
            change = stats.paired_ratio(second, first, level=self.confidence)
            found.append(Change(rung=turns.rung, machine=turns.machine, change=change))
        return found

    def start_sd(self) -> float | None:
        one = self.swept.one_start(self.at, "e2e") if self.at is not None else None
        return None if one is None else round(math.sqrt(one.variance), 4)

    def recommendation(self, report: Report) -> Recommendation:
        """Costs and break-even are of the recommended setting, or of the nearest to paying."""
        ours = self.choice.setting
        shown = next((one for one in self.settings if one.name == report.nearest), None)
        line = next((x for x in report.lines if shown and (x.draft, x.kind) == costs.family(shown)), None)
        step = next((x for x in report.steps if x.setting == report.nearest), None)
        crossover, verdict = report.crossover, self.choice.decision.verdict
        return Recommendation(
            verdict=verdict,
            setting=ours.name if ours else None,
            method=method_of(ours) if ours else None,
            k=ours.k if ours else 0 if verdict == "no" else None,
            tree=ours.tree if ours else None,
            draft=ours.draft if ours else None,
            only_for=report.only_for,
            schedule=report.schedule.ranges if report.schedule else None,
            break_even_acceptance=step.break_even_acceptance if step else None,
            cost=Cost(draft_ms=line.draft_ms if line else None, target_ms=line.target_ms if line else None),
            crossover=Streams(
                on_max=crossover.on_max if crossover else None,
                off_min=crossover.off_min if crossover else None,
            ),
            by_class=report.by_class,
        )

    def _nearest(self) -> str | None:
        contest = next((found for found in self.contests if found.where == self.at), None)
        known = [c for c in contest.candidates if c.speedup] if contest else []
        return max(known, key=recommend.estimate).setting.name if known else None

    def _measured(self, setting: Setting) -> list[SweptCell]:
        return [cell for cell in self.cells if cell.setting == setting.name]

    def _records(self, setting: Setting, where: Where) -> list[CellRecord]:
        return [cell.cell for cell in self._measured(setting) if where.holds(load_of(cell))]


def _summary(report: Report, choice: Choice, told: Recommendation) -> dict[str, Any]:
    """Of the recommended setting, at the load that decided."""
    ours = next(
        (
            found
            for found in report.together
            if (found.setting, found.concurrency) == (told.setting, report.decided_at)
        ),
        None,
    )
    step = next((found for found in report.steps if found.setting == told.setting), None)
    dumped = ours.speedups.model_dump(mode="json") if ours and ours.speedups else {}
    return {
        "recommended": told.k,
        "setting": told.setting,
        "concurrency": report.decided_at,
        "e2e_speedup": dumped.get("e2e"),
        "tpot_speedup": dumped.get("tpot"),
        "ttft_change_ms": dumped.get("ttft_change_ms"),
        "tokens_per_sec": ours.tokens_per_sec if ours else None,
        "acceptance_rate": step.acceptance if step else None,
        "break_even_acceptance": told.break_even_acceptance,
        "on_max": told.crossover.on_max,
        "off_min": told.crossover.off_min,
        "more_prompts": choice.decision.more_prompts,
    }
