"""The run folder and the rollout file: results of phases, the guard's journal, server logs, the pool's
command."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from specops.config import Rollout
from specops.errors import ConfigError, SpecopsError
from specops.experiment.findings import StoredInterval
from specops.guard.journal import FILE as JOURNAL
from specops.guard.journal import history
from specops.guard.signals.criteria import deployed_setting
from specops.launch.command_files import command_of, judge
from specops.phases.ab.report import CHALLENGER, ArmFigures, Challenger, ParityCounts
from specops.phases.canary.pool_pair import conformance_of
from specops.phases.diagnose.observations import (
    AbFigures,
    AcceptanceAtLoad,
    BaselineFigures,
    BaselineLoad,
    CanaryCheck,
    CanaryFigures,
    ClassVerdict,
    DeployedSettings,
    DraftFigures,
    Fallbacks,
    LintFigures,
    LintFinding,
    MissingNames,
    SpeedupInterval,
    SweepFigures,
    VocabularyLogLines,
)
from specops.phases.guard import GUARD
from specops.phases.monitor.check import GOOD, NameState, check
from specops.phases.monitor.thresholds import Measurements
from specops.phases.run_folder import Missing, RunFolder
from specops.phases.sweep.advice import FamilySteps
from specops.phases.sweep.report import Cell, Report
from specops.phases.verify_draft.pair import findings_of
from specops.progress import SilentProgress
from specops.prometheus.api import Api
from specops.results import milliseconds
from specops.serving import ENGINES, Finding, Startable

WEEK = timedelta(days=7)


def baseline(measured: Measurements) -> BaselineFigures | str:
    if not measured.loads or measured.baseline is None:
        return measured.missing.get("baseline", "baseline.json has no level of concurrency")
    loads = tuple(
        BaselineLoad(
            concurrency=load.concurrency,
            ttft_ms=milliseconds(load.seconds.get(("ttft", "mean"))),
            tpot_ms=milliseconds(load.seconds.get(("tpot", "mean"))),
            token_ms=milliseconds(load.token_s),
        )
        for load in measured.loads
    )
    return BaselineFigures(source=measured.baseline, loads=loads)


def comparison(run: RunFolder) -> AbFigures | str:
    """Return the figures of ab.json, or why they cannot be used."""
    stored = run.finished_comparison
    if isinstance(stored, Missing):
        return stored.why
    report = stored.part
    challenger = report.challengers.get(CHALLENGER)
    if challenger is None:
        return f"ab.json compares no arm called {CHALLENGER}"
    total = report.acceptance(CHALLENGER)
    lightest = challenger.levels[0].speedups if challenger.levels else None
    worst = _parity(challenger)
    return AbFigures(
        source=stored.source,
        e2e=_ends(lightest.e2e) if lightest else None,
        streams=lightest.level.concurrency if lightest else None,
        up_to=challenger.deployed_up_to,
        ttft=_ends(lightest.ttft) if lightest else None,
        ttft_change_ms=lightest.ttft_change_ms if lightest else None,
        acceptance=total.rate if total else None,
        drafts=total.drafts if total else 0.0,
        by_streams=_by_streams(report.arms.get(CHALLENGER, [])),
        classes={
            name: ClassVerdict(
                verdict=figures.decision.verdict,
                reason=figures.decision.reason,
                e2e=_ends(figures.levels[0].e2e),
            )
            for name, figures in challenger.classes.items()
        },
        equal=_equal(worst) if worst else None,
        compared=worst.compared if worst else None,
        control=_control(worst) if worst else None,
        mixed=worst.mixed if worst else False,
    )


def _by_streams(arms: Sequence[ArmFigures]) -> tuple[AcceptanceAtLoad, ...]:
    rates = [
        AcceptanceAtLoad(
            streams=arm.level.concurrency, rate=arm.acceptance.rate, drafts=arm.acceptance.drafts or 0.0
        )
        for arm in arms
        if arm.level.concurrency is not None
        and arm.acceptance is not None
        and arm.acceptance.rate is not None
    ]
    return tuple(sorted(rates, key=lambda one: one.streams))


def _parity(challenger: Challenger) -> ParityCounts | None:
    """Return the parity of the load, or of greedy answers among sampled ones, where fewest are equal beside
    the control."""

    def stored(counts: ParityCounts) -> float:
        control = _control(counts)
        return _equal(counts) / counts.compared - (1.0 if control is None else control)

    return min((counts for counts in challenger.parity if counts.compared), key=stored, default=None)


def _equal(parity: ParityCounts) -> int:
    """A near tie may fall either way, and counts as equal."""
    return parity.equal + parity.near_ties


def _control(parity: ParityCounts) -> float | None:
    again = parity.control
    return again.equal / again.compared if again is not None and again.compared else None


def swept(rollout: Rollout, run: RunFolder, measured: Measurements) -> SweepFigures | str:
    """Return the figures of sweep.json, or why they cannot be used."""
    stored, recommendation = run.finished_sweep, run.recommendation
    if isinstance(stored, Missing):
        return stored.why
    if isinstance(recommendation, Missing):
        return recommendation.why
    report, advice = stored.part, recommendation.part
    setting = deployed_setting(rollout.pools.speculative, stored.result)
    cells = [cell for cell in report.cells if cell.setting == setting]
    line = _line(report, cells)
    k = next((cell.num_speculative_tokens for cell in cells), None)
    is_recommended = setting is not None and setting == advice.setting
    return SweepFigures(
        source=stored.source,
        setting=setting,
        k=k,
        break_even=measured.break_even.value if measured.break_even else None,
        draft_ms=line.draft_ms if line else None,
        target_ms=line.target_ms if line else None,
        per_position=tuple(position.accepted for position in line.positions[:k]) if line else (),
        on_max=advice.crossover.on_max if is_recommended else None,
        off_min=advice.crossover.off_min if is_recommended else None,
        by_length=_by(cells, "length", "temperature"),
        by_temperature={float(name): rate for name, rate in _by(cells, "temperature", "length").items()},
        classes_off={
            name: decision.reason for name, decision in report.by_class.items() if decision.verdict == "no"
        },
    )


def _line(report: Report, cells: list[Cell]) -> FamilySteps | None:
    """Return the steps of a setting's family, by its cells: they are fitted over all its K."""
    if not cells:
        return None
    draft, tree = cells[0].draft, cells[0].tree or ""
    return next(
        (
            steps
            for steps in report.lines
            if steps.draft == draft and (steps.kind is None or tree.startswith(steps.kind))
        ),
        None,
    )


def _by(cells: list[Cell], key: str, fixed_key: str) -> dict[str, float]:
    """Acceptance by one of the cells' conditions, all else at the first: lightest load, `fixed_key`."""
    counted = [cell for cell in cells if cell.accept_ratio is not None]
    if not counted:
        return {}
    lightest, first = min(cell.concurrency for cell in counted), getattr(counted[0], fixed_key)
    return {
        str(getattr(cell, key)): cell.accept_ratio
        for cell in counted
        if cell.concurrency == lightest
        and getattr(cell, fixed_key) == first
        and cell.accept_ratio is not None
    }


def drafts(run: RunFolder) -> DraftFigures | str:
    stored = run.finished("drafts", findings_of)
    if isinstance(stored, Missing):
        return stored.why
    wrong = [f"{part.check}: {part.detail}" for part in stored.part if part.verdict != "compatible"]
    verdict = str(stored.result.summary.get("verdict", stored.result.verdict))
    return DraftFigures(
        source=stored.source, verdict=verdict, reason=stored.result.reason, wrong=tuple(wrong)
    )


def deployed(rollout: Rollout) -> DeployedSettings:
    pool = rollout.pools.speculative
    pair, key = pool.pair, ENGINES[pool.engine].k_key
    k = getattr(getattr(pool, "speculation", None), key, None) if key else None
    return DeployedSettings(
        engine=pool.engine,
        version=pair.version if pair else None,
        model=pair.target if pair else pool.endpoint.model if pool.endpoint else None,
        method=pool.method,
        k=k if isinstance(k, int) else None,
        ends_speculation=pool.ends_speculation,
    )


def canary(run: RunFolder) -> CanaryFigures | str:
    stored = run.finished("canary", conformance_of)
    if isinstance(stored, Missing):
        return stored.why
    checks = (
        CanaryCheck(name=check.name, status=check.status, message=check.message, request=check.request)
        for check in stored.part.checks
    )
    return CanaryFigures(source=stored.source, checks=tuple(checks))


def fallbacks(folder: Path, now: datetime) -> Fallbacks | str:
    journal = folder / GUARD / JOURNAL
    if not journal.exists():
        return "this run folder has no guard journal"
    try:
        fell = [
            entry
            for entry in history(journal)
            if "fell_back" in entry.evidence.events and entry.ts >= (now - WEEK).timestamp()
        ]
    except (SpecopsError, OSError) as error:
        return getattr(error, "message", str(error))
    last = None
    if fell:
        last = f"{datetime.fromtimestamp(fell[-1].ts, UTC):%Y-%m-%d %H:%M} UTC, {fell[-1].evidence.why}"
    # A line that was written again with what came of it has the same id.
    return Fallbacks(source=f"{GUARD}/{JOURNAL}", week=len({entry.id for entry in fell}), last=last)


def _ends(interval: StoredInterval | None) -> SpeedupInterval | None:
    return (
        None
        if interval is None
        else SpeedupInterval(estimate=interval.estimate, low=interval.low, high=interval.high)
    )


ANY_PORT = 8000
UNLIKE = re.compile(
    "|".join(pattern for engine in ENGINES.values() for pattern in engine.vocabulary_errors), re.IGNORECASE
)
LINES, CHARACTERS = 3, 300
TAIL_BYTES = 1 << 20
"""Number of bytes of each log: a server that refuses its pair says so last."""


def lint(rollout: Rollout) -> LintFigures | str:
    """Return the lint of the command as specops would start the pool, for the version that is named or
    installed."""
    pool = rollout.pools.speculative
    try:
        if not isinstance(pool, Startable):
            return "an endpoint does not say how it was started"
        if pool.own is not None:
            return f"{ENGINES[pool.engine].title} takes no such command"
        script = pool.rendering(ANY_PORT, rollout.rollout)
        if script.judged is not None:
            return _lint(script.judged, script.findings)
        judged = judge(command_of(script.words))
        return _lint(f"{judged.engine} {judged.version}, {judged.because}", judged.findings)
    except ConfigError as error:  # a setting that the version does not have
        refused = Finding("error", "pools.speculative", error.message, error.hint)
        return _lint("the rollout file", [refused])
    except SpecopsError as error:
        return error.message


def _lint(source: str, findings: Sequence[Finding]) -> LintFigures:
    return LintFigures(
        source=source,
        findings=tuple(
            LintFinding(
                level=finding.level, flag=finding.flag, why=finding.why, replacement=finding.replacement
            )
            for finding in findings
        ),
    )


def logged(folder: Path) -> VocabularyLogLines | str:
    logs = sorted((folder / "logs").rglob("*.log"))
    if not logs:
        return "no server's log is in the run folder"
    lines: list[str] = []
    where = "logs"
    for log in logs:
        for line in _tail(log).splitlines():
            if UNLIKE.search(line) and len(lines) < LINES:
                lines.append(line.strip()[:CHARACTERS])
                where = log.relative_to(folder).as_posix()
    return VocabularyLogLines(source=where, files=len(logs), lines=tuple(lines))


def _tail(log: Path) -> str:
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - TAIL_BYTES))
            return file.read().decode("utf-8", errors="replace")
    except OSError:
        return ""


def names(rollout: Rollout, api: Api) -> MissingNames:
    """Raises EndpointError."""
    result = check(rollout, api, SilentProgress())
    states = [NameState.model_validate(row) for row in result.data["names"]]
    lacking = [state for state in states if state.status not in GOOD]
    message = [f"{state.name} of the {state.where}: {state.status}" for state in lacking]
    fixes = dict.fromkeys(state.fix for state in lacking if state.fix)
    return MissingNames(source=api.url, requested=len(states), lacking=tuple(message), fixes=tuple(fixes))
