"""The judgement of a sweep: from the cells to the report and the verdict. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from specops import stats
from specops.config import Ab
from specops.experiment.findings import Finding
from specops.experiment.records import Place
from specops.load import validity
from specops.load.record import CellRecord
from specops.phases.ab.report import Speedups
from specops.phases.sweep import advice, claims, recommend
from specops.phases.sweep.advice import FamilySteps, Step
from specops.phases.sweep.claims import Division
from specops.phases.sweep.plan import FailedJob, Finalists, Load, Skipped, Stage, SweptCell, load_of
from specops.phases.sweep.recommend import Candidate, Choice, Contest, choose, deciding, method_of, pick
from specops.phases.sweep.report import (
    Cell,
    Change,
    Confirmation,
    Confirmed,
    Cost,
    GroupFigures,
    Recommendation,
    Report,
    SettingFigures,
    Streams,
    cell_of,
    of_group,
    of_setting,
)
from specops.phases.sweep.speedups import Pairs, Stratum, SweepCells
from specops.phases.sweep.stages import confidence_of
from specops.results import Verdict
from specops.serving import Setting

MARGINS = Ab()
NOT_QUERIED: Mapping[Place, float | None] = {}


@dataclass(frozen=True)
class SweepJudgement:
    verdict: Verdict
    reason: str
    summary: dict[str, Any]
    data: dict[str, Any]
    """A Report (report.py), beside which the measured cells are stored under another key."""

    recommendation: dict[str, Any]
    """A Recommendation."""

    requests_missing: int | None = None
    """Further requests to the chosen setting that would decide, where nothing but rare events is open."""


def judge(
    settings: Sequence[Setting],
    loads: Sequence[Load],
    cells: Sequence[SweptCell],
    failed: Sequence[FailedJob],
    *,
    confidence: float = stats.LEVEL,
    skipped: Sequence[Skipped] = (),
    finalists: Finalists | None = None,
    look: int = 1,
    margins: Ab = MARGINS,
    nats: Mapping[Place, float | None] = NOT_QUERIED,
) -> SweepJudgement:
    """Judge every setting at every load; the setting with k = 0 is the standard.

    `confidence` is of all intervals of a kind together. A setting that failed once is not recommended: it
    died, or did not come up. Where something was `skipped`, what was measured was chosen by what had been
    measured before, and the intervals hold for every rung after which that was done. `picked` is what the
    confirmation measured, None where there was nothing to confirm; `look` is the number of this judgement.
    `nats` says how sure the standard was of its token, where answers differ.
    """
    judging = _Judging(settings, loads, cells, failed, confidence, skipped, finalists, look, margins, nats)
    report = judging.report()
    recommendation = judging.recommendation(report)
    return SweepJudgement(
        judging.choice.decision.verdict,
        "; ".join([judging.choice.decision.reason, *judging.notes(report), *_without_reasons(cells)]),
        _summary(report, judging.choice, recommendation),
        report.model_dump(mode="json"),
        recommendation.model_dump(mode="json"),
        judging.requests_missing(),
    )


def _without_reasons(cells: Sequence[SweptCell]) -> Iterator[str]:
    """A sentence for each setting whose answers have no finish reason."""
    for name in dict.fromkeys(cell.setting for cell in cells):
        rows = [row for cell in cells if cell.setting == name for row in cell.cell.rows]
        if sentence := validity.without_reasons(rows, f" of {name}"):
            yield sentence


def picked_by(
    settings: Sequence[Setting],
    loads: Sequence[Load],
    cells: Sequence[SweptCell],
    failed: Sequence[FailedJob],
    *,
    confidence: float,
    skipped: Sequence[Skipped],
    fresh: bool,
    margins: Ab = MARGINS,
) -> Finalists | None:
    """Return what the evidence of the choice says to confirm; None where nothing may pay."""
    judging = _Judging(settings, loads, cells, failed, confidence, skipped, None, 1, margins, NOT_QUERIED)
    return pick(judging.choices, judging.several, fresh=fresh)


class _Judging:
    """The evidence of a sweep, and what is made of it."""

    def __init__(
        self,
        settings: Sequence[Setting],
        loads: Sequence[Load],
        cells: Sequence[SweptCell],
        failed: Sequence[FailedJob],
        confidence: float,
        skipped: Sequence[Skipped],
        finalists: Finalists | None,
        look: int,
        margins: Ab,
        nats: Mapping[Place, float | None],
    ) -> None:
        self.settings, self.loads, self.cells = settings, loads, cells
        self.swept = SweepCells(cells, settings)
        self.confidence, self.finalists, self.look, self.margins = confidence, finalists, look, margins
        self.nats = nats
        self._requests_at: dict[tuple[str, int, bool], list[Finding]] = {}
        self._divisions: dict[tuple[str, int], Division] = {}
        self.why = {failure.setting: failure.why for failure in failed}
        narrowed = any(skip.setting not in self.why for skip in skipped)
        self.looks = max(1, self.swept.rungs) if narrowed else 1
        self.working = [setting for setting in self.swept.challengers if setting.name not in self.why]
        self.streams = sorted({load.concurrency for load in loads})
        self.of_each = self.each_of(len(self.streams))
        self.of_confirmed = self.each_confirmed()
        self.choices = [self.contest(Stratum(streams), self.of_each) for streams in self.streams]
        lightest = deciding(self.choices)
        by_class = self.groups(lightest.where, "traffic_class", self.swept.classes)
        self.several = by_class if len(by_class) > 1 else {}
        self.finals = [self.final(Stratum(streams), self.of_each) for streams in self.streams]
        decides = Stratum(finalists.streams[0]) if finalists else replace(lightest.where, stage=None)
        self.classes = self.final_groups(decides, "traffic_class", self.swept.classes)
        several = self.classes if len(self.classes) > 1 else {}
        self.choice = choose(
            self.finals,
            several,
            finalists,
            self.why,
            self.swept.standard,
            lambda first, second: recommend.differs(
                self.swept, replace(decides, stage="confirmation"), first, second
            ),
        )
        self.stratum = Stratum(self.choice.decided_at) if self.choice.decided_at is not None else None

    def each_of(self, groups: int) -> float:
        """The confidence of each interval of a kind: one for each setting in each of so many groups."""
        return recommend.of_each(self.confidence, len(self.swept.challengers), groups, self.looks)

    def each_confirmed(self, groups: int = 1) -> float:
        """The confidence of each interval of the confirmation. Loads are decided in order, from the lightest
        until one does not pay, which costs no confidence."""
        among = len(self.finalists.settings) if self.finalists else 1
        return confidence_of(self.confidence, self.look, among * groups)

    def contest(self, where: Stratum, confidence: float) -> Contest:
        """The contest at `where`, by the evidence of the choice."""
        where = replace(where, stage="choice")
        candidates = [
            self.candidate(setting, where, pairs, confidence)
            for setting in self.working
            if (pairs := self.swept.pairs(setting.name, where)).all
        ]

        def differs(first: str, second: str) -> bool:
            return recommend.differs(self.swept, where, first, second)

        return Contest(where, tuple(candidates), recommend.best(candidates, differs))

    def groups(self, where: Stratum, kind: str, names: Collection[Any]) -> dict[str, Contest]:
        """A contest for each class, length or temperature at `where`, by the evidence of the choice."""
        confidence = self.each_of(len(names))
        return {str(name): self.contest(replace(where, **{kind: name}), confidence) for name in sorted(names)}

    def final(self, where: Stratum, of_each: float, groups: int = 1) -> Contest:
        """The contest at `where`, by the evidence of the confirmation where there is any. What only the
        choice measured may be ruled out, and never pays."""
        candidates = []
        for setting in self.working:
            pairs = self.swept.evidence(setting.name, where)
            if not pairs.all:
                continue
            confirmed = self.swept.confirmed(setting.name, where)
            confidence = self.each_confirmed(groups) if confirmed else of_each
            candidate = self.candidate(setting, where, pairs, confidence, confirmed=confirmed)
            candidates.append(candidate if confirmed else recommend.unconfirmed(candidate))

        def differs(first: str, second: str) -> bool:
            return recommend.differs(self.swept, replace(where, stage="confirmation"), first, second)

        return Contest(where, tuple(candidates), recommend.best(candidates, differs))

    def final_groups(self, where: Stratum, kind: str, names: Collection[Any]) -> dict[str, Contest]:
        confidence = self.each_of(len(names))
        among = names
        if self.finalists and self.finalists.only and kind == "traffic_class":
            among = self.finalists.only
        return {
            str(name): self.final(replace(where, **{kind: name}), confidence, max(1, len(among)))
            for name in sorted(names)
        }

    def candidate(
        self, setting: Setting, where: Stratum, pairs: Pairs, confidence: float, *, confirmed: bool = False
    ) -> Candidate:
        """What is decided on a setting's pairs, limited by what was sent to it."""
        sampled = any(load.temperature > 0 and where.holds(load) for load in self.loads)
        of_speed = claims.of_speed(pairs, where, confidence, self.margins, sampled=sampled)
        if confirmed and where.traffic_class is not None:
            # As in `ab`, a class has a wait of its own, and lengths and first tokens are of all classes.
            everything = self.swept.evidence(setting.name, where.all_classes)
            of_all = claims.of_speed(everything, where, confidence, self.margins, sampled=sampled)
            of_speed[1:] = [
                finding if finding.verdict == "against" else whole
                for finding, whole in zip(of_speed[1:], of_all[1:], strict=True)
            ]
        of_requests = self._of_requests(setting.name, where.concurrency, confirmed)
        division = self._division(setting.name, where.concurrency)
        return recommend.candidate(
            setting, of_speed, of_requests, division, self.margins, confirmed=confirmed
        )

    def _of_requests(self, setting: str, streams: int, confirmed: bool) -> list[Finding]:
        """The findings on requests to a setting: at this concurrency; of a confirmed one, on those of the
        confirmation at all of them, with what speaks against it in any others."""
        key = setting, streams, confirmed
        if key not in self._requests_at:
            findings = claims.of_requests(
                self._evidence(setting, self._cells_at_streams(streams)), sampled=not confirmed
            )
            if confirmed:
                confirmation = [cell for cell in self.cells if cell.stage == "confirmation"]
                lists = [claims.of_requests(self._evidence(setting, confirmation))]
                if len(confirmation) < len(self.cells):
                    lists.append(claims.of_requests(self._evidence(setting, self.cells), sampled=False))
                lists.append([finding for finding in findings if finding.verdict == "against"])
                findings = claims.worst_of(lists)
            self._requests_at[key] = findings
        return self._requests_at[key]

    def _division(self, setting: str, streams: int) -> Division:
        key = setting, streams
        if key not in self._divisions:
            evidence = self._evidence(setting, self._cells_at_streams(streams))
            self._divisions[key] = Division.from_cells(self.swept, evidence, Stratum(streams))
        return self._divisions[key]

    def _cells_at_streams(self, streams: int) -> list[SweptCell]:
        return [cell for cell in self.cells if cell.cell.concurrency == streams]

    def _evidence(self, setting: str, cells: Sequence[SweptCell]) -> claims.SweptEvidence:
        return claims.evidence_on(cells, self.swept.standard, setting, self.margins, self.nats)

    def notes(self, report: Report) -> list[str]:
        """Sentences on what was observed of the recommended setting and takes no yes away."""
        contest = next((final for final in self.finals if final.where.concurrency == report.decided_at), None)
        candidate = contest.candidate_of(report.recommended) if contest and report.recommended else None
        return claims.noted(candidate.findings) if candidate else []

    def requests_missing(self) -> int | None:
        if self.finalists is None or self.finalists.only:
            return None
        setting, streams = self.finalists.settings[0], self.finalists.streams[0]
        contest = next((final for final in self.finals if final.where.concurrency == streams), None)
        candidate = contest.candidate_of(setting) if contest else None
        if candidate is None or candidate.decision.verdict != "undecided":
            return None
        findings = candidate.decision.findings
        needs = [finding.needs for finding in findings if finding.claim in ("failures", "answers")]
        numbers = [number for number in needs if number is not None]
        return max(numbers) if numbers and len(numbers) == len(findings) else None

    def report(self) -> Report:
        setting = self.choice.setting
        name = setting.name if setting else None
        planned, missing = advice.planned(self.swept, self.choices, self.finals, self.choice)
        steps, lines = self.costs()
        return Report(
            standard=self.swept.standard,
            confidence=self.confidence,
            confidence_of_each=round(self.of_each, 6),
            looks=self.looks,
            confirmation=self.confirmation(),
            decided_at=self.choice.decided_at,
            recommended=name,
            nearest=name or self._nearest(),
            only_for=list(self.choice.only),
            cells=[cell for load in self.loads for cell in self.cells_at(load)],
            overall=[figures for contest in self.finals for figures in self.overall(contest)],
            runners_up=advice.runners_up(self.swept, self.choices, self.choice),
            by_class={group: of_group(contest, name) for group, contest in self.classes.items()},
            by_length=self.of_groups("length", {load.length for load in self.loads}),
            by_temperature=self.of_groups("temperature", {load.temperature for load in self.loads}),
            steps=steps,
            lines=lines,
            crossover=advice.crossed(self.finals, self.choice),
            schedule=planned,
            schedule_missing=missing,
            standards=self.standards(),
            starts=self.starts(),
            start_sd=self.start_sd(),
        )

    def cells_at(self, load: Load) -> Iterator[Cell]:
        for setting in self.settings:
            cells = [cell for cell in self._measured(setting) if load_of(cell) == load]
            if cells:
                where = Stratum.of_load(load)
                pairs = self.swept.evidence(setting.name, where)
                yield cell_of(setting, load, cells, pairs, self.confidence_at(setting, where))

    def overall(self, contest: Contest) -> Iterator[SettingFigures]:
        where = contest.where
        for setting in self.settings:
            stage = self.stage_of(setting, where)
            cells = self._records(setting, where, stage)
            candidate = contest.candidate_of(setting.name)
            if cells:
                speedups = self.speedups(setting, where) if candidate else None
                yield of_setting(setting, where.concurrency, stage, cells, candidate, speedups)

    def stage_of(self, setting: Setting, where: Stratum) -> Stage | None:
        """Return which stage's figures are shown of a setting; of the standard, those of both."""
        if setting.k == 0:
            return None
        return "confirmation" if self.swept.confirmed(setting.name, where) else "choice"

    def speedups(self, setting: Setting, where: Stratum) -> Speedups:
        pairs = self.swept.evidence(setting.name, where)
        return pairs.speedups(where.level, self.confidence_at(setting, where))

    def confidence_at(self, setting: Setting, where: Stratum) -> float:
        confirmed = self.swept.confirmed(setting.name, where)
        return self.of_confirmed if confirmed else self.of_each

    def confirmation(self) -> Confirmation | None:
        """The figures of the picked settings by the choice, and by the confirmation."""
        if self.finalists is None:
            return None
        stratum = Stratum(self.finalists.streams[0])
        rungs = {cell.rung for cell in self.cells if cell.stage == "confirmation"}
        chosen = next(
            (contest for contest in self.choices if contest.where.concurrency == stratum.concurrency), None
        )
        confirmed = []
        for name in self.finalists.settings:
            pairs = self.swept.pairs(name, replace(stratum, stage="confirmation"))
            before = chosen.candidate_of(name) if chosen else None
            confirmed.append(
                Confirmed(
                    setting=name,
                    prompts=len(pairs.all),
                    speedup=pairs.ratio("e2e", self.of_confirmed),
                    at_choice=before.speedup if before else None,
                )
            )
        return Confirmation(
            concurrency=stratum.concurrency,
            only=list(self.finalists.only),
            fresh=self.finalists.fresh,
            rungs=len(rungs),
            looks=self.look,
            confidence_of_each=round(self.of_confirmed, 6),
            settings=confirmed,
        )

    def of_groups(self, kind: str, names: Collection[Any]) -> dict[str, GroupFigures]:
        """The verdicts by length or temperature, where there is more than one."""
        if self.stratum is None or len(names) < 2:
            return {}
        name = self.choice.setting.name if self.choice.setting else None
        return {
            g: of_group(contest, name) for g, contest in self.final_groups(self.stratum, kind, names).items()
        }

    def costs(self) -> tuple[list[Step], list[FamilySteps]]:
        stratum = self.stratum
        if stratum is None:
            return [], []
        cells = {
            setting.name: self._records(setting, stratum, self.stage_of(setting, stratum))
            for setting in self.swept.challengers
        }
        steps = [
            advice.step_of(setting, self.swept.evidence(setting.name, stratum), cells[setting.name])
            for setting in self.swept.challengers
            if cells[setting.name]
        ]
        families = dict.fromkeys(advice.family_of(setting) for setting in self.swept.challengers)
        by_name = {step.setting: step for step in steps}
        lines = [
            advice.line_of(family, self.swept.challengers, by_name, cells) for family in families if family
        ]
        return steps, lines

    def standards(self) -> list[Change]:
        if self.stratum is None:
            return []
        changes = []
        for turns in self.swept.turns(self.stratum, "e2e"):
            first, second = zip(*turns.durations.values(), strict=True)
            change = stats.paired_ratio(second, first, level=self.confidence)
            changes.append(Change(rung=turns.rung, machine=turns.machine, change=change))
        return changes

    def starts(self) -> int:
        stratum = self.stratum
        return len(
            {
                (cell.rung, cell.setting, cell.turn, cell.machine)
                for cell in self.cells
                if stratum is not None and stratum.holds(load_of(cell))
            }
        )

    def start_sd(self) -> float | None:
        single_start = self.swept.one_start(self.stratum, "e2e") if self.stratum is not None else None
        return None if single_start is None else round(math.sqrt(single_start.variance), 4)

    def recommendation(self, report: Report) -> Recommendation:
        """Return what is recommended; costs and break-even are of that setting, or of the nearest to
        paying."""
        recommended = self.choice.setting
        nearest = next((setting for setting in self.settings if setting.name == report.nearest), None)
        line = next(
            (x for x in report.lines if nearest and (x.draft, x.kind) == advice.family_of(nearest)), None
        )
        step = next((x for x in report.steps if x.setting == report.nearest), None)
        crossover, verdict = report.crossover, self.choice.decision.verdict
        return Recommendation(
            verdict=verdict,
            setting=recommended.name if recommended else None,
            method=method_of(recommended) if recommended else None,
            k=recommended.k if recommended else 0 if verdict == "no" else None,
            tree=recommended.tree if recommended else None,
            draft=recommended.draft if recommended else None,
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
        contest = next((final for final in self.finals if final.where == self.stratum), None)
        candidates = [c for c in contest.candidates if c.speedup] if contest else []
        return max(candidates, key=recommend.estimate).setting.name if candidates else None

    def _measured(self, setting: Setting) -> list[SweptCell]:
        return [cell for cell in self.cells if cell.setting == setting.name]

    def _records(self, setting: Setting, where: Stratum, stage: Stage | None = None) -> list[CellRecord]:
        return [
            cell.cell
            for cell in self._measured(setting)
            if where.holds(load_of(cell)) and stage in (None, cell.stage)
        ]


def _summary(report: Report, choice: Choice, recommended: Recommendation) -> dict[str, Any]:
    """The figures of the recommended setting, at the load that decided."""
    figures = next(
        (
            figures
            for figures in report.overall
            if (figures.setting, figures.concurrency) == (recommended.setting, report.decided_at)
        ),
        None,
    )
    step = next((step for step in report.steps if step.setting == recommended.setting), None)
    dumped = figures.speedups.model_dump(mode="json") if figures and figures.speedups else {}
    return {
        "recommended": recommended.k,
        "setting": recommended.setting,
        "concurrency": report.decided_at,
        "prompts": figures.speedups.prompts if figures and figures.speedups else None,
        "e2e_speedup": dumped.get("e2e"),
        "tpot_speedup": dumped.get("tpot"),
        "ttft_change_ms": dumped.get("ttft_change_ms"),
        "tokens_per_sec": figures.tokens_per_sec if figures else None,
        "acceptance_rate": step.acceptance if step else None,
        "break_even_acceptance": recommended.break_even_acceptance,
        "on_max": recommended.crossover.on_max,
        "off_min": recommended.crossover.off_min,
        "more_prompts": choice.decision.more_prompts,
    }
