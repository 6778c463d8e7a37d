"""The judgement of a comparison: from the experiment to the report and the verdict."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specops import stats
from specops.experiment import answers, cache_claims, sentences
from specops.experiment.claims import Evidence
from specops.experiment.decide import Judged, over_loads
from specops.experiment.findings import Decision, Finding
from specops.experiment.plan import CACHE_STATES
from specops.experiment.records import WindowRecord, levels_of
from specops.experiment.run import Experiment
from specops.experiment.samples import FIGURES, Sample, change_ms, ratio_of, waited_ms
from specops.load import record, validity
from specops.load.arrivals import Level
from specops.load.counters import Observed, several_tokens, speculating_standard
from specops.load.record import Spread
from specops.load.validity import COUNT_ADVICE
from specops.phases.ab import earlier
from specops.phases.ab.report import (
    EXPECTED,
    ArmFigures,
    CacheComparison,
    CacheState,
    Challenger,
    ClassFigures,
    ClassLevel,
    DeployTarget,
    Dot,
    EqualCounts,
    LevelComparison,
    Noise,
    ParityCounts,
    Report,
    Speedups,
    Throughput,
)
from specops.prometheus.exposition import CacheCounts
from specops.render.figures import times
from specops.results import Verdict, rounded


@dataclass(frozen=True)
class AbJudgement:
    verdict: Verdict
    reason: str
    summary: dict[str, Any]
    data: dict[str, Any]
    """A Report, beside which the windows themselves are stored."""


def judge(experiment: Experiment) -> AbJudgement:
    """Judge every challenger against the standard; the last look is the one at which the experiment ended."""
    windows = list(experiment.windows.values())
    standard, *challengers = experiment.pools
    facts = experiment.facts
    judged = {name: experiment.judge(name, windows, experiment.final_look) for name in challengers}
    reports = {}
    for name in challengers:
        evidence = experiment.evidence(name, windows)
        reports[name] = _challenger(evidence, judged[name], experiment.failed)
    noise = _noise_of(reports) if experiment.same_server else None
    note = None
    for name in challengers:
        if noise is not None:
            wrong: str | None = _noise_sentence(noise)
        else:
            wrong, note = _check_standard(windows, standard, name, facts.get(standard))
            wrong = wrong or _miscounting(facts, (standard, name))
        if wrong is not None:
            reports[name] = _void(reports[name], wrong)
    if standard in experiment.failed:
        wrong = f"the standard, {standard}, failed: {experiment.failed[standard]}"
        reports = {name: _void(challenger, wrong) for name, challenger in reports.items()}
    deploying = [name for name, challenger in reports.items() if challenger.decision.verdict == "yes"]
    best = max(deploying, key=lambda name: _gain(reports[name]), default=None)
    report = Report(
        standard=standard,
        best=best,
        expected=dict(EXPECTED),
        arms={
            arm: _measured(windows, arm, experiment.evidence(challengers[0], windows))
            for arm in experiment.pools
        },
        challengers=reports,
        differences=earlier.of_arms(facts),
        standard_note=note,
        same_server=noise,
        same_prompts=experiment.plan.same_prompts,
    )
    verdict, reason = _overall(reports, best)
    reason = "; ".join([reason, *_without_reasons(windows, experiment.pools)])
    return AbJudgement(
        verdict,
        reason,
        _summary(report, reports[best or challengers[0]], verdict, experiment),
        report.model_dump(mode="json"),
    )


def _overall(reports: Mapping[str, Challenger], best: str | None) -> tuple[Verdict, str]:
    """The verdict over all challengers: deploy the best; undecided where one still may be deployed."""
    if best is not None:
        also = [name for name in reports if name != best]
        chosen = f"{best}: " if also else ""
        return "yes", f"{chosen}{reports[best].decision.reason}"
    undecided = [name for name, challenger in reports.items() if challenger.decision.verdict != "no"]
    verdict: Verdict = "undecided" if undecided else "no"
    named = len(reports) > 1
    reasons = [
        f"{f'{name}: ' if named else ''}{challenger.decision.reason}" for name, challenger in reports.items()
    ]
    return verdict, "; ".join(reasons)


def _gain(challenger: Challenger) -> float:
    speedup = challenger.levels[0].speedups.e2e if challenger.levels else None
    return speedup.estimate if speedup is not None else 0.0


def _challenger(evidence: Evidence, judged: Judged, failed: Mapping[str, str]) -> Challenger:
    decision = judged.decision
    deploy = [DeployTarget(traffic_class=name, level=level) for name, level in judged.deploy]
    if evidence.challenger in failed:  # the requests that a failing arm answered say nothing about it
        reason = f"{evidence.challenger} failed: {failed[evidence.challenger]}"
        decision, deploy = Decision(verdict="no", reason=reason), []
    paying = [
        level
        for level, level_decision in zip(judged.levels, judged.together, strict=True)
        if level_decision.verdict == "yes"
    ]
    first = evidence.at(judged.levels[0]) if judged.levels else []

    def body(level: Level, traffic_class: str | None = None) -> list[Sample]:
        return evidence.of_body(evidence.at(level, traffic_class))

    return Challenger(
        decision=decision,
        deploy=deploy,
        failed=failed.get(evidence.challenger),
        pays_up_to=paying[-1].concurrency if paying and deploy else None,
        load=sentences.load_sentence(judged.together, judged.levels),
        classes={
            name: ClassFigures(
                decision=over_loads(decisions, judged.levels),
                levels=[
                    ClassLevel(
                        **vars(_speedups(body(level, name), level, judged.confidences.of_classes)),
                        decision=level_decision,
                    )
                    for level, level_decision in zip(judged.levels, decisions, strict=True)
                ],
            )
            for name, decisions in judged.classes.items()
        },
        levels=[
            LevelComparison(
                decision=level_decision,
                speedups=_speedups(body(level), level, judged.confidences.of_loads),
                throughput=_throughput(evidence, level, judged.confidences.of_loads),
                lengths=length,
            )
            for level, level_decision, length in zip(
                judged.levels, judged.together, judged.lengths, strict=True
            )
        ],
        parity=list(_parity(evidence)),
        prompts=[_dot(sample) for sample in first],
        findings=[*judged.findings],
        caches=[*_caches(evidence, judged)],
        cache_states=[*_cache_states(evidence, judged)],
    )


def _caches(evidence: Evidence, judged: Judged) -> Iterator[CacheComparison]:
    for finding in judged.findings:
        level = finding.load
        if finding.claim != "cached tokens" or finding.traffic_class is not None or level is None:
            continue
        shares = cache_claims.cache_shares(evidence, level)
        if shares is not None:
            before, of_before, after, of_after = shares.totals
            yield CacheComparison(
                level=level,
                source=shares.source,
                standard=round(before / max(1.0, of_before), 4),
                challenger=round(after / max(1.0, of_after), 4),
                difference=shares.difference(judged.confidences.of_loads),
                equal=finding.verdict == "shown" and finding.cause is None,
            )


def _cache_states(evidence: Evidence, judged: Judged) -> Iterator[CacheState]:
    for level in judged.levels:
        states: dict[float, list[Sample]] = defaultdict(list)
        for sample in evidence.of_body(evidence.at(level)):
            states[sample.factors["cache"]].append(sample)
        for state in sorted(states) if len(states) > 1 else ():
            speedups = _speedups(states[state], level, judged.confidences.of_loads)
            yield CacheState(**vars(speedups), state=CACHE_STATES[int(state)])


def _speedups(samples: Sequence[Sample], level: Level, confidence: float) -> Speedups:
    """The speed-ups of the requests on which the decision rests: those that failed or were late are counted
    beside them."""
    change, e2e = change_ms(samples, "ttft"), ratio_of(samples, "e2e", confidence)
    lengths = [tokens for sample in samples if (tokens := FIGURES["tokens"](sample)) is not None]
    standard = sum(standard_tokens for standard_tokens, _ in lengths)
    per_stream = sum(challenger_tokens for _, challenger_tokens in lengths) / standard if standard else None
    return Speedups(
        level=level,
        prompts=len(samples),
        e2e=e2e,
        tpot=ratio_of(samples, "tpot", confidence),
        ttft=ratio_of(samples, "ttft", confidence),
        ttft_change_ms=rounded(change),
        stream_throughput=e2e.times(per_stream) if e2e is not None and per_stream is not None else None,
    )


def _throughput(evidence: Evidence, level: Level, confidence: float) -> Throughput | None:
    """The ratio of throughputs over pairs of windows, by seconds a token while all streams are full."""
    pairs: dict[int, dict[str, float]] = {}
    for window in evidence.windows:
        cell = window.cell
        if (
            window.kind == "measured"
            and window.level == level
            and cell.complete
            and cell.tokens
            and cell.wall_s > 0
        ):
            pairs.setdefault(window.cycle, {})[window.arm] = cell.wall_s / cell.tokens
    window_pairs = [
        (pair[evidence.standard], pair[evidence.challenger])
        for pair in pairs.values()
        if {evidence.standard, evidence.challenger} <= pair.keys()
    ]
    if not window_pairs:
        return None
    before, after = ([pair[index] for pair in window_pairs] for index in (0, 1))
    return Throughput(
        standard=round(len(before) / sum(before), 4),
        challenger=round(len(after) / sum(after), 4),
        windows=len(window_pairs),
        ratio=stats.paired_ratio(before, after, level=confidence),
    )


def _measured(windows: Sequence[WindowRecord], arm: str, evidence: Evidence) -> list[ArmFigures]:
    """The figures of an arm by level; latencies are those of requests that are compared."""
    figures, levels = [], levels_of(windows)
    for level in levels:
        arm_windows = [w for w in windows if w.kind == "measured" and w.arm == arm and w.level == level]
        cells = [window.cell for window in arm_windows]
        in_time = [window.cell.rows for window in sorted(arm_windows, key=lambda window: window.began)]
        sent = [row for cell in cells for row in cell.sent]
        good = [row for cell in cells for row in cell.rows if row.error is None]
        counts, missing = record.acceptance(cells)
        read = [cell.cache_counts for cell in cells if cell.cache_counts is not None]
        cached = [row.cached_tokens or 0 for row in good]
        reported = any(row.cached_tokens is not None for row in good)
        prompt_tokens = sum(row.prompt_tokens or 0 for row in good)
        wall = sum(cell.wall_s for cell in cells if cell.tokens is not None)
        tokens = sum(cell.tokens for cell in cells if cell.tokens is not None)
        figures.append(
            ArmFigures(
                level=level,
                requests=len(sent),
                failed=sum(row.error is not None for row in sent),
                failures=dict(Counter(str(row.error) for row in sent if row.error is not None)),
                late=sum(id(row) in evidence.late for row in sent),
                retried=sum(row.retries > 0 for row in sent),
                slowest_ms=[round(took, 4) for took in sorted(map(waited_ms, sent), reverse=True)[:3]],
                ttft_ms=Spread.of([row.ttft_ms for row in good if row.ttft_ms is not None]),
                tpot_ms=Spread.of([row.tpot_ms for row in good if row.tpot_ms is not None]),
                e2e_ms=Spread.of([row.e2e_ms for row in good]),
                tokens_per_sec=round(tokens / wall, 4) if tokens and wall else None,
                acceptance=counts,
                acceptance_missing=missing,
                cached_share=round(sum(cached) / prompt_tokens, 4) if reported and prompt_tokens else None,
                cache_counts=CacheCounts(
                    sum(counts.hits for counts in read), sum(counts.lookups for counts in read)
                )
                if read
                else None,
                steadiness=validity.change_over_windows(level, in_time, len(levels)),
            )
        )
    return figures


def _parity(evidence: Evidence) -> Iterator[ParityCounts]:
    """Equal greedy answers: at each load, and among sampled requests."""
    originals = answers.greedy_answers(evidence.windows, evidence.standard)
    challenger_answers = answers.greedy_answers(evidence.windows, evidence.challenger)
    control = answers.compare_with_itself(originals)
    scopes = dict.fromkeys((w.kind, w.level) for w in evidence.windows if w.kind != "open")
    for scope in scopes:
        greedy = answers.compare_greedy(originals, challenger_answers, scope=scope).with_margins(
            evidence.margins
        )
        if greedy.compared:
            yield ParityCounts(
                mixed=scope[0] == "mixed",
                level=scope[1],
                equal=greedy.equal,
                compared=greedy.compared,
                control=EqualCounts(equal=control.equal, compared=control.compared)
                if control.compared
                else None,
                near_ties=sum(difference.near_tie for difference in greedy.differences),
                witnesses=list(greedy.differences),
            )


def _dot(sample: Sample) -> Dot:
    def ratio(figure: str) -> float | None:
        values = FIGURES[figure](sample)
        return round(values[0] / values[1], 4) if values else None

    return Dot(
        prompt=sample.standard.prompt,
        traffic_class=sample.traffic_class,
        e2e=ratio("e2e"),
        tpot=ratio("tpot"),
    )


def _check_standard(
    windows: Sequence[WindowRecord], standard: str, challenger: str, facts: Mapping[str, Any] | None
) -> tuple[str | None, str | None]:
    """Return why the comparison does not answer its question, and what else is to be noted of the standard.

    `facts` is what is known of the standard. One that was configured to speculate, with `--arm
    NAME=embedded:TREE`, was meant to: that is a note, unless the challenger does not speculate.
    """
    of_standard, of_challenger = _observed(windows, standard), _observed(windows, challenger)
    wrong = speculating_standard(of_standard, of_challenger)
    configured = ((facts or {}).get("pool") or {}).get("speculation") is not None
    if wrong is not None and configured and of_challenger.speculates:
        return None, wrong
    return wrong, None if wrong is not None else several_tokens(of_standard)


def _miscounting(facts: Mapping[str, Mapping[str, Any]], arms: Iterable[str]) -> str | None:
    """Return which of `arms` counts tokens wrongly: then neither lengths nor times per token can be
    compared."""
    miscounts = [f"{arm}: {facts[arm]['miscount']}" for arm in arms if facts.get(arm, {}).get("miscount")]
    return f"{'; '.join(miscounts)}; {COUNT_ADVICE}, and compare again" if miscounts else None


def _observed(windows: Sequence[WindowRecord], arm: str) -> Observed:
    """Drafts over all loads. Tokens per chunk at the lightest load: under load, chunks may wait and be
    joined."""
    cells = [window.cell for window in windows if window.arm == arm]
    counts = [
        cell.drafts.drafts if cell.verified is None and cell.drafts is not None else cell.verified
        for cell in cells
    ]
    verified = [value for value in counts if value is not None]
    lightest = levels_of(windows)[:1]
    rows = [row for cell in cells if cell.level in lightest for row in cell.rows if row.error is None]
    sized = [(row.tokens, row.chunks) for row in rows if row.tokens is not None and row.chunks]
    chunks = sum(number for _, number in sized)
    tokens = sum(number for number, _ in sized)
    return Observed(sum(verified) if verified else None, tokens / chunks if chunks else None)


def _void(challenger: Challenger, reason: str) -> Challenger:
    """Return `challenger` with every decision undecided for `reason`, and nothing to deploy."""
    if challenger.failed is not None:  # that it failed is an answer
        return challenger

    def undecided(decision: Decision) -> Decision:
        by_speed = f"; by speed alone: {times(decision.speedup)}" if decision.speedup else ""
        return decision.model_copy(
            update={"verdict": "undecided", "reason": f"{reason}{by_speed}", "more_prompts": None}
        )

    classes = {
        name: figures.model_copy(
            update={
                "decision": undecided(figures.decision),
                "levels": [
                    level.model_copy(update={"decision": undecided(level.decision)})
                    for level in figures.levels
                ],
            }
        )
        for name, figures in challenger.classes.items()
    }
    levels = [level.model_copy(update={"decision": undecided(level.decision)}) for level in challenger.levels]
    return challenger.model_copy(
        update={
            "decision": Decision(verdict="undecided", reason=reason),
            "deploy": [],
            "pays_up_to": None,
            "load": "",
            "classes": classes,
            "levels": levels,
        }
    )


def _noise_of(challengers: Mapping[str, Challenger]) -> list[Noise]:
    """Return what an A/A measured: how far one server is from itself, by arm and load, all classes
    together."""
    return [
        Noise(arm=name, level=level.speedups.level, e2e=level.speedups.e2e, below=_below(level.speedups.e2e))
        for name, challenger in challengers.items()
        for level in challenger.levels
    ]


def _below(interval: stats.Interval | None) -> float | None:
    """A relative difference below which an interval as wide as this one may include 1."""
    if interval is None:
        return None
    return round(max(interval.high / interval.estimate, interval.estimate / interval.low) - 1, 4)


def _noise_sentence(noise: Sequence[Noise]) -> str:
    """The result of an A/A in a sentence."""
    measured = [
        (noise_at_level, noise_at_level.e2e, noise_at_level.below)
        for noise_at_level in noise
        if noise_at_level.e2e is not None and noise_at_level.below is not None
    ]
    if not measured:
        return "an A/A of one server: too few prompts for an interval"
    below = ", ".join(
        f"{100 * share:.1f}% at {noise_at_level.level}" for noise_at_level, _, share in measured
    )
    reason = f"an A/A of one server: differences below {below} are within the noise here"
    differing = [
        f"{times(interval)} at {noise_at_level.level}"
        for noise_at_level, interval, _ in measured
        if not interval.low <= 1 <= interval.high
    ]
    return reason + (f"; the server differs from itself: {', '.join(differing)}" if differing else "")


def _without_reasons(windows: Sequence[WindowRecord], arms: Iterable[str]) -> Iterator[str]:
    """A sentence for each arm whose answers have no finish reason."""
    for arm in arms:
        rows = [row for window in windows if window.arm == arm for row in window.cell.rows]
        if message := validity.without_reasons(rows, f" of {arm}"):
            yield message


def _summary(
    report: Report, challenger: Challenger, verdict: Verdict, experiment: Experiment
) -> dict[str, Any]:
    """The figures of the best challenger at the lightest load; of the first one where none deploys."""
    name = next(key for key, candidate in report.challengers.items() if candidate is challenger)
    first = challenger.levels[0] if challenger.levels else None
    accepted = report.arms[name][0].acceptance if report.arms[name] else None
    alone = next((parity for parity in challenger.parity if not parity.mixed), None)
    mixed = next((parity for parity in challenger.parity if parity.mixed), None)
    dumped = first.speedups.model_dump(mode="json") if first else {}
    return {
        "challenger": name,
        "deploy": [target.model_dump(mode="json") for target in challenger.deploy],
        "e2e_speedup": dumped.get("e2e"),
        "tpot_speedup": dumped.get("tpot"),
        "throughput_ratio": round(first.throughput.estimate, 4) if first and first.throughput else None,
        "pays_up_to": challenger.pays_up_to,
        "parity": str(alone) if alone else None,
        "parity_control": str(alone.control) if alone and alone.control else None,
        "parity_mixed": str(mixed) if mixed else None,
        "acceptance_rate": accepted.rate if accepted else None,
        "acceptance_length": accepted.length if accepted else None,
        "more_prompts": challenger.decision.more_prompts if verdict == "undecided" else None,
        "looks": f"{experiment.looks_done} of {len(experiment.looks)}",
        "duration_s": round(experiment.duration_s, 1),
    }


__all__ = ["AbJudgement", "Finding", "judge"]
