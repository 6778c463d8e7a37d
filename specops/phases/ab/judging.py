"""The judgement of a comparison: from the visits to the report and the verdict. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specops.load import record, validity
from specops.load.arrivals import Level
from specops.load.record import Spread
from specops.phases.ab import confounders, drift, parity, verdict
from specops.phases.ab.challengers import (
    ORDER,
    check_standard,
    fastest_of,
    load_sentence,
    miscounting,
    noise_of,
    noise_sentence,
    of_challenger,
    over_loads,
    overall,
    unchecked_answers,
    unless_answers_differ,
    unless_drifted,
    unless_it_changed,
    unless_it_wakes_up,
    unless_lengths_differ_without_a_pause,
    unless_pauses_made_it,
    unless_prompts_differ,
    void,
)
from specops.phases.ab.confounders import Repeats
from specops.phases.ab.drift import Drift
from specops.phases.ab.parity import Parity, Place
from specops.phases.ab.report import (
    EXPECTED,
    Acceptance,
    ArmFigures,
    Challenger,
    ClassFigures,
    ClassLevel,
    DeployTarget,
    Dot,
    EqualCounts,
    LevelComparison,
    ParityCounts,
    Report,
)
from specops.phases.ab.speedups import Pair, Pairs, levels_of, pair_up, speedups, throughput
from specops.phases.ab.verdict import Confidences, Decision, Verdicts
from specops.phases.ab.visits import AbSettings, VisitRecord, as_last_round
from specops.results import Verdict
from specops.stats import Interval


@dataclass(frozen=True)
class AbJudgement:
    verdict: Verdict
    reason: str
    summary: dict[str, Any]
    data: dict[str, Any]
    """A Report, beside which the visits themselves are stored."""


def judge(
    records: Sequence[VisitRecord],
    mixed: Sequence[VisitRecord],
    arms: Sequence[str],
    settings: AbSettings,
    *,
    looks_done: int,
    looks: int,
    failed: Mapping[str, str],
    temperature: float,
    facts: Mapping[str, Mapping[str, Any]] | None = None,
    margins: Mapping[Place, float | None] | None = None,
    sent_before: Collection[str] = (),
    greedy: Sequence[VisitRecord] = (),
    sustained: Sequence[VisitRecord] = (),
) -> AbJudgement:
    """Judge every challenger; the first of `arms` is the standard.

    `failed` says why an arm failed, `facts` what is known of each arm (`drift.of_arms`). `margins` says how
    sure the standard was where answers differ (`parity.margins_needed` says where), and `sent_before` which
    prompts warmed the arms up. `greedy` are the requests at temperature 0 beside a measurement at a higher
    one, and `sustained` those without a pause.
    """
    standard, *challengers = arms
    sustained = as_last_round(sustained, records)
    working = [arm for arm in arms if arm not in failed]
    again = {arm: confounders.compare_repeats(records, arm, settings.confidence) for arm in arms}
    drifts = drift.found(records, working, settings.confidence) if standard in working else []
    drifts += [
        drift.idle(records, sustained, standard, name, settings.confidence)
        for name in challengers
        if {standard, name} <= {visit.arm for visit in sustained}
    ]
    judging = _Judging(
        records,
        mixed,
        standard,
        settings,
        temperature,
        margins or {},
        drifts,
        again,
        sent_before,
        greedy,
        sustained,
    )
    pairs = {
        name: confounders.pairs_of(records, standard, name, settings, sent_before) for name in challengers
    }
    tried = [name for name in challengers if name in working] or challengers
    classes = {of for name in tried for of in pairs[name].classes}
    confidences = Confidences.at(settings, classes, len(tried), looks_done, looks)
    found = {
        name: judging.challenger(name, pairs[name], confidences, len(tried), failed) for name in challengers
    }
    noise = noise_of(found) if settings.same_server else None
    note = None
    for name in challengers:
        if noise is not None:
            wrong: str | None = noise_sentence(noise)
        else:
            wrong, note = check_standard(records, standard, name, (facts or {}).get(standard))
            wrong = wrong or miscounting(facts or {}, (standard, name))
        if wrong is not None:
            found[name] = void(found[name], wrong)
    decisions = {name: challenger.decision for name, challenger in found.items()}
    fastest = fastest_of(decisions, {name: _e2e(challenger) for name, challenger in found.items()})
    decision = overall(decisions, fastest)
    report = Report(
        standard=standard,
        best=fastest,
        confidence_of_classes=confidences.of_classes,
        confidence_of_levels=confidences.of_levels,
        expected=dict(EXPECTED),
        parity_missing=None if temperature == 0 else parity.unchecked(greedy, standard),
        greedy_requests=sum(len(visit.cell.rows) for visit in greedy),
        arms={arm: _measured(records, sustained, arm) for arm in arms},
        challengers=found,
        drift=drifts,
        differences=drift.of_arms(facts) if facts else [],
        standard_note=note,
        same_server=noise,
    )
    return AbJudgement(
        decision.verdict,
        "; ".join([decision.reason, *_without_reasons(records, arms)]),
        _summary(report, decision, looks_done, looks),
        report.model_dump(mode="json"),
    )


def _without_reasons(visits: Sequence[VisitRecord], arms: Sequence[str]) -> Iterator[str]:
    """A sentence for each arm whose answers have no finish reason."""
    for arm in arms:
        rows = [row for visit in visits if visit.arm == arm for row in visit.cell.rows]
        if said := validity.without_reasons(rows, f" of {arm}"):
            yield said


@dataclass(frozen=True)
class _Judging:
    """The evidence by which every challenger is judged."""

    visits: Sequence[VisitRecord]
    mixed: Sequence[VisitRecord]
    standard: str
    settings: AbSettings
    temperature: float
    margins: Mapping[Place, float | None]
    drifts: Sequence[Drift]
    repeats: Mapping[str, Sequence[Repeats]]
    """First requests over repeats, by arm."""

    sent_before: Collection[str]
    greedy: Sequence[VisitRecord]
    sustained: Sequence[VisitRecord]

    def challenger(
        self,
        name: str,
        pairs: Pairs,
        confidences: Confidences,
        challengers: int,
        failed: Mapping[str, str],
    ) -> Challenger:
        verdicts = verdict.of_each(
            self.visits, pairs, self.standard, name, confidences, self.settings, self.sustained
        )
        parities = self._parities(name)
        # Every test of parity could fail by luck; they share what the confidence leaves. The two of a level
        # are looks at one question (parity.LOOKS_ALONE).
        questions = sum(not one.repeated for one in parities)
        each = 1 - (1 - self.settings.confidence) / (challengers * max(1, questions))
        parities = parity.with_openings(parities, each)
        ignored = parity.ignored_temperature(self.visits, self.greedy, self.standard, name, each)
        decision = self._decision(name, pairs, verdicts, parities, each, failed, ignored)
        verdicts = unless_answers_differ(verdicts, parities, each, ignored)
        again = [*self.repeats[self.standard], *self.repeats[name]]
        cached = "e2e" in confounders.cached_figures(again)
        counted = confounders.first_visits(self.visits, self.sent_before) if cached else self.visits
        best = verdict.pays_up_to(verdicts.together)
        levels = [cell.level for cell in verdicts.together]
        return Challenger(
            decision=decision,
            deploy=[DeployTarget(traffic_class=of, level=level) for of, level in verdicts.deploy]
            if decision.verdict == "yes"
            else [],
            failed=failed.get(name),
            pays_up_to=best.concurrency if best else None,
            load=load_sentence(verdicts.together),
            classes={
                of: ClassFigures(
                    decision=over_loads(cells),
                    levels=[
                        ClassLevel(
                            **vars(speedups(pairs.of(of), cell.level, confidences.of_classes)),
                            decision=cell.decision,
                            lengths=cell.lengths,
                        )
                        for cell in cells
                    ],
                )
                for of, cells in verdicts.classes.items()
            },
            levels=[
                LevelComparison(
                    decision=cell.decision,
                    speedups=speedups(pairs, cell.level, confidences.of_levels),
                    throughput=throughput(
                        counted,
                        self.standard,
                        name,
                        cell.level,
                        self.settings.design,
                        confidences.of_levels,
                    ),
                    lengths=cell.lengths,
                    failures=checks.failures,
                    slow=checks.slow,
                    client_bound=checks.client_bound,
                )
                for cell, checks in zip(verdicts.together, verdicts.checks, strict=True)
            ],
            repeats=again,
            parity=[_parity(parity) for parity in parities],
            prompts=[_dot(pair) for pair in pairs.at(levels[0]).all] if levels else [],
        )

    def _parities(self, name: str) -> list[Parity]:
        if self.temperature > 0:
            found = parity.greedy(self.greedy, self.standard, name)
        else:
            found = parity.compare([*self.visits, *self.sustained], self.mixed, self.standard, name)
        if self.settings.accept_length_change:
            found = [one.without_lengths for one in found]
        return [parity.with_margins(one, self.margins) for one in found]

    def _other_prompts(self, name: str) -> confounders.OtherPrompts | None:
        ours, theirs = (
            [row for visit in self.visits if visit.arm == arm for row in visit.cell.rows]
            for arm in (self.standard, name)
        )
        return confounders.other_prompts(ours, theirs, self.settings.length_margin)

    def _decision(
        self,
        name: str,
        pairs: Pairs,
        verdicts: Verdicts,
        parities: Sequence[Parity],
        parity_confidence: float,
        failed: Mapping[str, str],
        ignored: Mapping[Level, str],
    ) -> Decision:
        if self.standard in failed:
            why = failed[self.standard]
            return Decision(verdict="undecided", reason=f"the standard, {self.standard}, failed: {why}")
        if name in failed:  # the requests that a failing arm answered say nothing about it
            return Decision(verdict="no", reason=f"do not deploy: {name} failed: {failed[name]}")
        decision = of_challenger(verdicts, parities, parity_confidence)
        if ignored:
            faults = "; ".join(f"at {level}, {said}" for level, said in ignored.items())
            reason = f"do not deploy: {faults}; by speed alone: {decision.reason}"
            return Decision(verdict="no", reason=reason)
        same = bool(parities) and all(one.arms.equal == one.arms.compared for one in parities)
        decision = unless_prompts_differ(decision, self._other_prompts(name), same)
        if self.temperature > 0 and (missing := parity.unchecked(self.greedy, self.standard)):
            decision = unchecked_answers(decision, missing)
        decision = _with_caches(decision, [*self.repeats[self.standard], *self.repeats[name]])
        paying = {of for of, _ in verdicts.deploy}
        lightest = pairs.at(pairs.levels[0]).of(*paying) if pairs.all else pairs
        confidence, drifted = self.settings.confidence, drift.one_sided(self.drifts, name)
        decision = unless_it_wakes_up(
            decision,
            drift.flagged(self.drifts, "visit", name),
            drift.halves_of_visits(self.visits, self.standard, lightest, name, confidence),
        )
        decision = unless_drifted(
            decision,
            drifted,
            drift.halves(lightest, confidence),
            drift.lowest(lightest, drifted, confidence) if drifted else None,
        )
        decision = unless_it_changed(
            decision,
            drift.flagged(self.drifts, "order", name),
            drift.slower_order(self.visits, self.standard, lightest, name, confidence),
            ORDER,
        )
        sustained = drift.without_pauses(self.sustained, self.standard, name, confidence)
        decision = unless_it_changed(decision, drift.flagged(self.drifts, "idle", name), sustained, ORDER)
        of_paying = drift.without_pauses(self.sustained, self.standard, name, confidence, paying)
        decision = unless_pauses_made_it(decision, lightest.ratio("tpot", confidence), of_paying)
        lengths = confounders.compare_lengths(
            pair_up(self.sustained, self.standard, name, self.settings.design).all,
            self.settings.length_margin,
            confidence,
        )
        decision = unless_lengths_differ_without_a_pause(
            decision, lengths, self.settings.accept_length_change
        )
        return unless_it_changed(
            decision,
            drift.flagged(self.drifts, "step", name),
            drift.slower_side(self.visits, self.standard, lightest, name, confidence),
        )


def _with_caches(decision: Decision, found: Sequence[Repeats]) -> Decision:
    """Return `decision`, naming the arms that answer repeats from a cache."""
    cached = {one.arm: one for one in reversed(found) if one.cached and one.figure != "ttft"}
    if not cached:
        return decision
    arms = " and ".join(sorted(cached))
    faster = ", ".join(f"{one.ratio.estimate:.1f}×" for one in cached.values() if one.ratio is not None)
    reason = f"{decision.reason}; repeats come from a cache in {arms} ({faster} as fast): only first requests"
    return decision.model_copy(update={"reason": f"{reason} count"})


def _e2e(challenger: Challenger) -> Interval | None:
    return challenger.levels[0].speedups.e2e if challenger.levels else None


def _measured(visits: Sequence[VisitRecord], sustained: Sequence[VisitRecord], arm: str) -> list[ArmFigures]:
    """The figures of an arm by level. Of the requests without a pause, failures and slow ones count."""
    found = []
    for level in levels_of(visits):
        cells, beside = (
            [visit.cell for visit in of if visit.arm == arm and visit.cell.level == level]
            for of in (visits, sustained)
        )
        rows = [row for cell in cells for row in cell.rows]
        sent = [*rows, *(row for cell in beside for row in cell.rows)]
        good = [row for row in rows if row.error is None]
        counts, missing = record.acceptance(cells)
        wall = sum(cell.wall_s for cell in cells if cell.tokens is not None)
        tokens = sum(cell.tokens for cell in cells if cell.tokens is not None)
        found.append(
            ArmFigures(
                level=level,
                requests=len(sent),
                failed=sum(row.error is not None for row in sent),
                failures=dict(Counter(str(row.error) for row in sent if row.error is not None)),
                slow=confounders.slow_rows(sent),
                retried=sum(row.retries > 0 for row in sent),
                slowest_ms=[
                    round(took, 4) for took in sorted(map(confounders.waited, sent), reverse=True)[:3]
                ],
                ttft_ms=Spread.of([row.ttft_ms for row in good if row.ttft_ms is not None]),
                tpot_ms=Spread.of([row.tpot_ms for row in good if row.tpot_ms is not None]),
                e2e_ms=Spread.of([row.e2e_ms for row in good]),
                tokens_per_sec=round(tokens / wall, 4) if tokens and wall else None,
                acceptance=Acceptance(**{key: counts[key] for key in Acceptance.model_fields})
                if counts
                else None,
                acceptance_missing=missing,
            )
        )
    return found


def _parity(found: Parity) -> ParityCounts:
    control = found.control
    return ParityCounts(
        mixed=found.mixed,
        repeated=found.repeated,
        opening=found.opening,
        level=found.level,
        equal=found.arms.equal,
        compared=found.arms.compared,
        control=EqualCounts(equal=control.equal, compared=control.compared) if control else None,
        near_ties=sum(witness.near_tie for witness in found.arms.witnesses),
        failures=len(found.failures),
        witnesses=list(found.arms.witnesses),
    )


def _dot(pair: Pair) -> Dot:
    def ratio(latencies: tuple[float, float] | None) -> float | None:
        return round(latencies[0] / latencies[1], 4) if latencies else None

    return Dot(
        prompt=pair.prompt,
        traffic_class=pair.traffic_class,
        e2e=ratio(pair.mean("e2e")),
        tpot=ratio(pair.mean("tpot")),
    )


def _summary(report: Report, decision: Decision, looks_done: int, looks: int) -> dict[str, Any]:
    """The figures of the best challenger at the lightest load; of the first one where none deploys."""
    name = report.best or next(iter(report.challengers))
    shown = report.challengers[name]
    first = shown.levels[0] if shown.levels else None
    accepted = report.arms[name][0].acceptance if report.arms[name] else None
    alone = next((found for found in shown.parity if not found.mixed and not found.repeated), None)
    mixed = next((found for found in shown.parity if found.mixed), None)
    dumped = first.speedups.model_dump(mode="json") if first else {}
    return {
        "challenger": name,
        "deploy": [one.model_dump(mode="json") for one in shown.deploy],
        "e2e_speedup": dumped.get("e2e"),
        "tpot_speedup": dumped.get("tpot"),
        "throughput_ratio": round(first.throughput.estimate, 4) if first and first.throughput else None,
        "pays_up_to": shown.pays_up_to,
        "parity": str(alone) if alone else None,
        "parity_control": str(alone.control) if alone and alone.control else None,
        "parity_mixed": str(mixed) if mixed else None,
        "acceptance_rate": accepted.rate if accepted else None,
        "acceptance_length": accepted.length if accepted else None,
        "more_prompts": decision.more_prompts,
        "looks": f"{looks_done} of {looks}",
    }
