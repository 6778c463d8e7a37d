"""The order of the phases, the gates between them, what a walk would do, and what to do after it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import Field, ValidationError

from specops import results
from specops.config import Rollout
from specops.errors import Exit, SpecopsError, Stopped
from specops.hints import PROGRAMS
from specops.phases import ON_REQUEST, PHASES, PhaseName, phase_named
from specops.phases.commands import Commands
from specops.phases.inputs import settings_of
from specops.phases.phase import (
    ASSUMED_START_S,
    ASSUMED_TOKEN_S,
    NO_TIME,
    OWN_START_S,
    PhaseInput,
    PlannedPhase,
    Skipped,
    Span,
    Step,
    Timing,
    next_lines,
    set_aside,
)
from specops.phases.playbook.endpoints import check_endpoints
from specops.phases.sweep.spec import samples_of
from specops.progress import PhaseState, Progress
from specops.results import Result, Verdict
from specops.section import Frozen

RECORD = "run.json"
VERDICTS: Mapping[Exit, Verdict] = {Exit.YES: "yes", Exit.NO: "no", Exit.UNDECIDED: "undecided"}


class Record(Frozen):
    """`data` of run.json: what no phase's own result holds."""

    rollout: str
    rollout_file: str | None
    """Path relative to the run folder."""

    skipped: list[Skipped] = Field(default=[])
    stopped: PhaseName | None = None


@dataclass
class Walk:
    rollout: str
    folder: Path
    steps: list[Step] = field(default_factory=list)
    """Phases that have a result, in their order."""

    skipped: list[Skipped] = field(default_factory=list)
    stopped: PhaseName | None = None
    """The phase at whose gate the walk ended before the last phase."""

    @property
    def exit_code(self) -> Exit:
        """No where a phase said no; else undecided where one is, or nothing applied; else yes."""
        codes = {step.result.exit_code for step in self.steps} or {Exit.UNDECIDED}
        return next((code for code in (Exit.NO, Exit.UNDECIDED) if code in codes), Exit.YES)

    def step(self, phase: PhaseName) -> Step | None:
        return next((step for step in self.steps if step.phase == phase), None)


def run(
    rollout: Rollout,
    file: Path,
    folder: Path,
    progress: Progress,
    *,
    only: PhaseName | None = None,
    fresh: bool = False,
    go_on: bool = False,
) -> Walk:
    """Walk the playbook for the rollout of `file`; results go to `folder`.

    Every phase is a gate: one that says no ends the walk there, but for `go_on`. One that is undecided, or
    does not apply, does not: the checklist keeps it open. `only` runs one phase, `fresh` reuses no earlier
    result. Raises what the phases raise; what was measured until then is in `folder`, and the same call
    resumes. Raises ConfigError for pools that are one server, and UsageError for one whose secrets are not in
    the environment.
    """
    task = PhaseInput(rollout, file, folder, progress, fresh=fresh, by_name=only is not None)
    check_endpoints(task)
    walk = Walk(rollout.rollout, folder)
    progress.phases(_expected(task, only))
    order = order_of(rollout, only)
    before = {phase: _stamp(task.path(phase)) for phase in order}
    _record(walk, task, order)
    for phase in order:
        progress.phase(phase, "running")
        try:
            outcome = phase_named(phase).run(task)
        except BaseException as error:
            _set_aside_later(task, phase, before)
            if isinstance(error, KeyboardInterrupt) and walk.steps:
                path = error.path if isinstance(error, Stopped) else None
                raise Stopped(path, tuple(step.phase for step in walk.steps), folder) from None
            if walk.steps and isinstance(error, SpecopsError):
                done = ", ".join(step.phase for step in walk.steps)
                progress.note(f"{phase} failed; the same command resumes at {phase} (done: {done})")
            raise
        if isinstance(outcome, Skipped):
            walk.skipped.append(outcome)
            _record(walk, task, order)
            progress.phase(phase, "skipped", outcome.reason)
            progress.note(f"{phase}: skipped: {outcome.reason}")
            continue
        walk.steps.append(outcome)
        verdict = outcome.result.verdict
        state: PhaseState = "undecided" if verdict == "partial" else verdict
        progress.phase(phase, state, outcome.result.reason, reused=outcome.reused)
        if phase_named(phase).times_requests and not outcome.reused:
            progress.phases(_expected(task, only))  # now by what it measured
        if outcome.reused:
            why = "its own command wrote this result" if outcome.by_hand else "its inputs have not changed"
            progress.note(f"{phase}: reused, {why} ({outcome.path})")
        if outcome.result.verdict == "no" and phase != order[-1] and not go_on:
            walk.stopped = phase
            again = Commands(rollout, file, folder).of("run {rollout} --continue")
            progress.note(f"{phase} failed: {outcome.result.reason}; to continue past this gate: {again}")
            _set_aside_later(task, phase, before)
            break
    _record(walk, task, order)
    return walk


def order_of(rollout: Rollout, only: PhaseName | None = None) -> tuple[PhaseName, ...]:
    """The phases of a walk in their order, or `only` one."""
    if only is not None:
        return (only,)
    return tuple(name for name in PHASES if name not in ON_REQUEST or getattr(rollout, name) is not None)


def _record(walk: Walk, task: PhaseInput, order: Sequence[PhaseName]) -> None:
    """Write run.json. What an earlier walk said of phases that are not in `order` is carried over."""
    path = task.folder / RECORD
    try:
        earlier = Record.model_validate(results.read(path).data)
    except (SpecopsError, ValidationError):
        earlier = Record(rollout=walk.rollout, rollout_file=None)
    skipped = [*walk.skipped, *(phase for phase in earlier.skipped if phase.phase not in order)]
    record = Record(
        rollout=walk.rollout,
        rollout_file=os.path.relpath(task.file.resolve(), task.folder.resolve()),
        skipped=skipped,
        stopped=walk.stopped if len(order) > 1 else earlier.stopped,
    )
    results.write(
        path,
        Result(
            phase="run",
            verdict=VERDICTS[walk.exit_code],
            reason=f"stopped at {walk.stopped}" if walk.stopped else "no gate stopped the run",
            environment=results.environment(),
            summary={step.phase: step.result.verdict for step in walk.steps},
            data=record.model_dump(mode="json"),
        ),
    )


def _expected(task: PhaseInput, only: PhaseName | None) -> Mapping[str, float | None]:
    """Seconds by phase, for progress. What is wrong with a phase's settings, the phase itself says."""
    try:
        return forecast(task, only).known_s
    except SpecopsError:
        return dict.fromkeys(order_of(task.rollout, only))


def _stamp(path: Path) -> tuple[int, int] | None:
    """Return what changes when the file at `path` is replaced; None where there is no file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def _set_aside_later(
    task: PhaseInput, stopped: PhaseName, before: Mapping[PhaseName, tuple[int, int] | None]
) -> None:
    """A fresh walk that stopped at a phase resumes without `--fresh`. So it must not find the earlier results
    of later phases. Nothing is set aside where the walk has stored nothing yet."""
    order = tuple(before)
    reached = order[: order.index(stopped) + 1]
    if task.fresh and any(_stamp(task.path(phase)) != before[phase] for phase in reached):
        for phase in order[len(reached) :]:
            set_aside(phase, task.path(phase), task.progress)


@dataclass(frozen=True)
class WalkForecast:
    phases: tuple[PlannedPhase, ...]
    assumed: bool
    """Whether there is no earlier measurement: the times of tokens and starts are assumed."""

    token_s: Span | None = None
    """The assumed time of a token; None: it was measured."""

    start_s: Span | None = None
    """The assumed time of a server's start; None: it was measured, or none starts."""

    @property
    def total_s(self) -> float:
        return sum(phase.seconds for phase in self.phases if not phase.reused)

    @property
    def span(self) -> Span:
        """The least and the most seconds."""
        return sum((phase.span for phase in self.phases if not phase.reused), NO_TIME)

    @property
    def gpus(self) -> int | None:
        """The most GPUs of servers that specops starts, at a time; None: not known."""
        counts = [phase.gpus for phase in self.phases if not phase.reused and phase.starts]
        numbers = [count for count in counts if count is not None]
        return max(numbers, default=0) if len(numbers) == len(counts) else None

    @property
    def gpu_hours(self) -> Span | None:
        """GPU-hours of these servers; None: not known."""
        if self.gpus is None:
            return None
        started = [phase for phase in self.phases if not phase.reused and phase.starts]
        return sum((phase.span * ((phase.gpus or 0) / 3600) for phase in started), NO_TIME)

    @property
    def load(self) -> tuple[int, int]:
        """Return the largest number of requests, and of requests to one server at a time."""
        sending = [phase for phase in self.phases if not phase.reused and phase.requests]
        return sum(phase.requests for phase in sending), max((phase.streams for phase in sending), default=0)

    @property
    def known_s(self) -> Mapping[str, float | None]:
        """Expected seconds by phase, for progress; None where they would be an assumption."""
        return {
            phase.phase: 0.0
            if phase.reused
            else None
            if self.assumed and phase.starts + phase.requests
            else phase.seconds
            for phase in self.phases
        }


def forecast(
    task: PhaseInput, only: PhaseName | None = None, token_s: Span = ASSUMED_TOKEN_S
) -> WalkForecast:
    """Return what a walk would do. `token_s`: the time of a token, where nothing is measured yet. Raises what
    the phases raise for wrong settings or damaged results."""
    requested = settings_of(task.rollout, task.rollout.pools.standard)
    samples, _ = samples_of(task.path("sweep"))
    pools = (task.rollout.pools.standard, task.rollout.pools.speculative)
    own = all(pool.own is not None for pool in pools if pool.endpoint is None)
    timing = Timing(samples, requested, token_s, OWN_START_S if own else ASSUMED_START_S)
    planned = tuple(phase_named(name).forecast(task, timing) for name in order_of(task.rollout, only))
    started = any(phase.starts and not phase.reused for phase in planned)
    start_known = any(sample.up_s is not None for sample in samples)
    return WalkForecast(
        planned,
        assumed=not samples,
        token_s=None if samples else token_s,
        start_s=None if start_known or not started else timing.assumed_start_s,
    )


def following_walk(walk: Walk, rollout: Rollout, file: Path) -> list[str]:
    """Lines `change: …`, if any, and `next: COMMAND`: what the first no calls for, else what the last phase
    does."""
    commands = Commands(rollout, file, walk.folder)
    if walk.steps:
        failed = next((step for step in walk.steps if step.result.verdict == "no"), walk.steps[-1])
        return phase_named(failed.phase).following(failed, commands)
    hint = walk.skipped[-1].hint
    if hint is not None and hint.startswith("specops "):
        return next_lines(hint)
    command = hint and hint.split()[0] in PROGRAMS
    return next_lines(commands.of("run {rollout}"), f"fix what this shows: {hint}" if command else hint)
