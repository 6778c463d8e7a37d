"""The order of the phases, the gates between them, what a walk would do, and what to do after it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from math import log
from pathlib import Path
from statistics import fmean

from pydantic import Field, ValidationError

from specops import results
from specops.config import Pool, Rollout
from specops.errors import Exit, FileError, SpecopsError, Stopped
from specops.experiment.arms import Arm
from specops.experiment.plan import MIXED_STREAMS
from specops.experiment.run import FEWEST_CYCLES, plan_of
from specops.hints import PROGRAMS
from specops.load.settings import BaselineSettings
from specops.phases import PHASES, Phase
from specops.phases.ab.settings import AbSettings
from specops.phases.canary import inputs as canary_inputs
from specops.phases.commands import Commands
from specops.phases.inputs import changed, inputs_of, inputs_of_arms, settings_of
from specops.phases.launch import LaunchData
from specops.phases.playbook.phases import PHASE_RUNS, check_endpoints
from specops.phases.playbook.walk_step import PhaseInput, Skipped, Step, set_aside
from specops.phases.sweep.plan import Sample
from specops.phases.sweep.spec import forecast as forecast_sweep
from specops.phases.sweep.spec import samples_of, spec_of
from specops.progress import PhaseState, Progress
from specops.results import Result, Verdict
from specops.section import Frozen

RECORD = "run.json"
VERDICTS: Mapping[Exit, Verdict] = {Exit.YES: "yes", Exit.NO: "no", Exit.UNDECIDED: "undecided"}


class SkippedPhase(Frozen):
    phase: Phase
    reason: str
    hint: str | None


class Record(Frozen):
    """`data` of run.json: what no phase's own result holds."""

    rollout: str
    rollout_file: str | None
    """Path relative to the run folder."""

    skipped: list[SkippedPhase] = Field(default=[])
    stopped: Phase | None = None


@dataclass
class Walk:
    rollout: str
    folder: Path
    steps: list[Step] = field(default_factory=list)
    """Phases that have a result, in their order."""

    skipped: list[Skipped] = field(default_factory=list)
    stopped: Phase | None = None
    """The phase at whose gate the walk ended before the last phase."""

    @property
    def exit_code(self) -> Exit:
        """No where a phase said no; else undecided where one is, or nothing applied; else yes."""
        codes = {step.result.exit_code for step in self.steps} or {Exit.UNDECIDED}
        return next((code for code in (Exit.NO, Exit.UNDECIDED) if code in codes), Exit.YES)

    def step(self, phase: Phase) -> Step | None:
        return next((step for step in self.steps if step.phase == phase), None)


def run(
    rollout: Rollout,
    file: Path,
    folder: Path,
    progress: Progress,
    *,
    only: Phase | None = None,
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
    given = PhaseInput(rollout, file, folder, progress, fresh=fresh, by_name=only is not None)
    check_endpoints(given)
    walk = Walk(rollout.rollout, folder)
    progress.phases(_expected(given, only))
    order = PHASES if only is None else (only,)
    before = {phase: _stamp(given.path(phase)) for phase in order}
    _record(walk, given, order)
    for phase in order:
        progress.phase(phase, "running")
        try:
            made = PHASE_RUNS[phase](given)
        except BaseException as error:
            _set_aside_later(given, phase, before)
            if isinstance(error, KeyboardInterrupt) and walk.steps:
                path = error.path if isinstance(error, Stopped) else None
                raise Stopped(path, tuple(step.phase for step in walk.steps), folder) from None
            if walk.steps and isinstance(error, SpecopsError):
                done = ", ".join(step.phase for step in walk.steps)
                progress.note(f"{phase} failed; the same command resumes at {phase} (done: {done})")
            raise
        if isinstance(made, Skipped):
            walk.skipped.append(made)
            _record(walk, given, order)
            progress.phase(phase, "skipped", made.reason)
            progress.note(f"{phase}: skipped: {made.reason}")
            continue
        walk.steps.append(made)
        verdict = made.result.verdict
        state: PhaseState = "undecided" if verdict == "partial" else verdict
        progress.phase(phase, state, made.result.reason, reused=made.reused)
        if phase == "baseline" and not made.reused:
            progress.phases(_expected(given, only))  # now by what it measured
        if made.reused:
            why = "its own command wrote this result" if made.by_hand else "its inputs have not changed"
            progress.note(f"{phase}: reused, {why} ({made.path})")
        if made.result.verdict == "no" and phase != order[-1] and not go_on:
            walk.stopped = phase
            again = Commands(rollout, file, folder).of("run {rollout} --continue")
            progress.note(f"{phase} failed: {made.result.reason}; to continue past this gate: {again}")
            _set_aside_later(given, phase, before)
            break
    _record(walk, given, order)
    return walk


def _record(walk: Walk, at: PhaseInput, order: Sequence[Phase]) -> None:
    """Write run.json. What an earlier walk said of phases that are not in `order` is carried over."""
    path = at.folder / RECORD
    try:
        earlier = Record.model_validate(results.read(path).data)
    except (SpecopsError, ValidationError):
        earlier = Record(rollout=walk.rollout, rollout_file=None)
    skipped = [SkippedPhase(phase=one.phase, reason=one.reason, hint=one.hint) for one in walk.skipped]
    skipped += [one for one in earlier.skipped if one.phase not in order]
    record = Record(
        rollout=walk.rollout,
        rollout_file=os.path.relpath(at.file.resolve(), at.folder.resolve()),
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


def _expected(at: PhaseInput, only: Phase | None) -> Mapping[str, float | None]:
    """Seconds by phase, for progress. What is wrong with a phase's settings, the phase itself says."""
    try:
        return forecast(at, only).known_s
    except SpecopsError:
        return dict.fromkeys(PHASES if only is None else (only,))


def _stamp(path: Path) -> tuple[int, int] | None:
    """Return what changes when the file at `path` is replaced; None where there is no file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


def _set_aside_later(at: PhaseInput, stopped: Phase, before: Mapping[Phase, tuple[int, int] | None]) -> None:
    """A fresh walk that stopped at a phase resumes without `--fresh`. So it must not find the earlier results
    of later phases. Nothing is set aside where the walk has stored nothing yet."""
    order = tuple(before)
    reached = order[: order.index(stopped) + 1]
    if at.fresh and any(_stamp(at.path(phase)) != before[phase] for phase in reached):
        for phase in order[len(reached) :]:
            set_aside(phase, at.path(phase), at.progress)


ASSUMED_TOKEN_S = 0.02
ASSUMED_START_S = 30.0
ASSUMED_TOKENS = 256
"""Number of tokens of an answer whose prompt and settings give no max_tokens."""

QUICK_S = 2.0
"""Seconds of a phase that only renders files or judges results."""

CANARY_CHECKS = 24
DRILL_S = 60.0


@dataclass(frozen=True)
class PlannedPhase:
    phase: Phase
    starts: int = 0
    """Servers that specops starts."""

    requests: int = 0
    """Largest number of requests: a comparison ends early once it is decided."""

    seconds: float = QUICK_S
    streams: int = 0
    """Requests to one server at a time, about: arrivals in an open loop may overlap more."""

    reused: bool = False
    """An earlier result has the same inputs and stands."""

    note: str = ""


@dataclass(frozen=True)
class WalkForecast:
    phases: tuple[PlannedPhase, ...]
    assumed: bool
    """Whether there is no earlier measurement: times are by the assumptions above."""

    @property
    def total_s(self) -> float:
        return sum(one.seconds for one in self.phases if not one.reused)

    @property
    def load(self) -> tuple[int, int]:
        """Return the largest number of requests, and of requests to one server at a time."""
        sending = [one for one in self.phases if not one.reused and one.requests]
        return sum(one.requests for one in sending), max((one.streams for one in sending), default=0)

    @property
    def known_s(self) -> Mapping[str, float | None]:
        """Expected seconds by phase, for progress; None where they would be an assumption."""
        return {
            one.phase: 0.0
            if one.reused
            else None
            if self.assumed and one.starts + one.requests
            else one.seconds
            for one in self.phases
        }


class _Times:
    """The measured times of a request and of a start, in seconds."""

    def __init__(self, samples: list[Sample], requested: BaselineSettings) -> None:
        self.samples = samples
        self.tokens = requested.max_tokens or ASSUMED_TOKENS

    def request_s(self, streams: int) -> float:
        """A request's share of the time at so many streams."""
        if not self.samples:
            return self.tokens * ASSUMED_TOKEN_S / streams
        apart = [abs(log(sample.streams / streams)) for sample in self.samples]
        near = [s.prompt_s for s, far in zip(self.samples, apart, strict=True) if far == min(apart)]
        return fmean(near)

    def start_s(self) -> float:
        known = [sample.up_s for sample in self.samples if sample.up_s is not None]
        return fmean(known) if known else ASSUMED_START_S


def forecast(at: PhaseInput, only: Phase | None = None) -> WalkForecast:
    """Raises what the phases raise for wrong settings or damaged results."""
    requested = settings_of(at.rollout, at.rollout.pools.standard)
    samples, _ = samples_of(at.path("sweep"))
    times = _Times(samples, requested)
    planned = tuple(
        _PLANS.get(phase, _quick)(at, phase, requested, times) for phase in PHASES if only in (None, phase)
    )
    return WalkForecast(planned, assumed=not samples)


def _started(*pools: Pool) -> int:
    return sum(pool.endpoint is None for pool in pools)


def _stands(at: PhaseInput, phase: Phase, inputs: Mapping[str, str]) -> bool:
    path = at.path(phase)
    if at.fresh or not path.exists():
        return False
    try:
        previous = results.read(path)
    except FileError:
        return False  # the phase itself says what is wrong with it
    return previous.verdict not in ("partial", "no") and changed(previous, dict(inputs)) is None


def _quick(at: PhaseInput, phase: Phase, requested: BaselineSettings, times: _Times) -> PlannedPhase:
    return PlannedPhase(phase)


def _baseline(at: PhaseInput, phase: Phase, requested: BaselineSettings, times: _Times) -> PlannedPhase:
    pool, prompts = at.rollout.pools.standard, len(requested.prompt_set().prompts)
    starts = _started(pool)
    each = [level.concurrency or 1 for level in requested.levels() for _ in range(requested.repeats)]
    requests = (prompts + requested.warmup) * len(each)
    seconds = starts * times.start_s() + sum((prompts + requested.warmup) * times.request_s(n) for n in each)
    stands = _stands(at, phase, inputs_of(requested, pool))
    return PlannedPhase(phase, starts, requests, seconds, max(each), stands)


def _sweep(at: PhaseInput, phase: Phase, requested: BaselineSettings, times: _Times) -> PlannedPhase:
    pool = at.rollout.pools.speculative
    if pool.endpoint is not None or pool.fixed_k is not None:
        return PlannedPhase(phase, seconds=0.0, note="not run: K of this pool cannot be set")
    spec = spec_of(at.rollout, at.file.parent)
    known = forecast_sweep(spec, at.path("sweep"))
    starts, requests = sum(rung.starts for rung in known.rungs), sum(rung.requests for rung in known.rungs)
    if spec.budget_min is not None:
        seconds, note = 60.0 * spec.budget_min, "a budget: later rungs depend on the first"
    else:
        streams = max(load.concurrency for load in spec.loads)
        seconds, note = known.seconds or starts * times.start_s() + requests * times.request_s(streams), ""
    most = max(load.concurrency for load in spec.loads)
    return PlannedPhase(phase, starts, requests, seconds, most, _stands(at, phase, spec.inputs()), note)


def _ab(at: PhaseInput, phase: Phase, requested: BaselineSettings, times: _Times) -> PlannedPhase:
    pools = (at.rollout.pools.standard, at.rollout.pools.speculative)
    arms = [Arm("standard", pools[0]), Arm("speculative", pools[1])]
    settings, prompts = AbSettings(**at.rollout.ab.model_dump()), requested.prompt_set()
    plan = plan_of([arm.name for arm in arms], requested, settings, prompts, settings.mixed_temperature)
    restarts = settings.design == "abba-restart"
    starts = plan.rounds * len(arms) if restarts else _started(*pools)
    first = list(takewhile(lambda window: window.cycle == 0, plan.windows()))
    cycles = max(settings.requests / plan.requests_a_cycle(), FEWEST_CYCLES)
    if restarts:
        cycles = plan.rounds * plan.cycles_of_a_round
    sent = [(len(window.requests) + len(window.fillers), window.level.concurrency or 1) for window in first]
    requests = round(cycles * sum(count for count, _ in sent))
    seconds = starts * times.start_s()
    seconds += cycles * sum(count * times.request_s(streams) for count, streams in sent)
    seconds = max(seconds, settings.min_duration_s)
    inputs = inputs_of_arms(arms, requested, settings, prompts)
    mixed = MIXED_STREAMS if any(window.kind == "mixed" for window in first) else 1
    most = max(mixed, *(streams for _, streams in sent))
    return PlannedPhase(
        phase, starts, requests, seconds, most, _stands(at, phase, inputs), "at most: ends once decided"
    )


def _canary(at: PhaseInput, phase: Phase, requested: BaselineSettings, times: _Times) -> PlannedPhase:
    pools, settings = at.rollout.pools, at.rollout.canary
    starts = _started(pools.standard, pools.speculative)
    requests = 2 * (settings.samples + 4 * settings.prompts + 4 * CANARY_CHECKS)
    seconds = starts * times.start_s() + requests * times.request_s(8)
    stands = _stands(at, phase, canary_inputs(at.rollout))
    return PlannedPhase(phase, starts, requests, seconds, settings.concurrency, stands, "about")


def _drill(at: PhaseInput, phase: Phase, requested: BaselineSettings, times: _Times) -> PlannedPhase:
    pools, router = at.rollout.pools, at.rollout.route.router
    if pools.standard.endpoint or pools.speculative.endpoint:
        return PlannedPhase(phase, seconds=0.0, note="not run: it would move live traffic")
    note = f"and {router.title}, on loopback"
    return PlannedPhase(phase, 2, 0, 2 * times.start_s() + DRILL_S, note=note)


_PLANS: Mapping[Phase, Callable[[PhaseInput, Phase, BaselineSettings, _Times], PlannedPhase]] = {
    "baseline": _baseline,
    "sweep": _sweep,
    "ab": _ab,
    "canary": _canary,
    "guard-drill": _drill,
}

CHANGES: dict[Phase, str] = {
    "baseline": "fix what {result} names",
    "drafts": "choose another draft: pools.speculative in {file}",
    "sweep": "give other drafts or trees to try in {file}: sweep.drafts, sweep.trees",
    "ab": "choose another draft, tree or K: pools.speculative in {file}",
    "canary": "fix what {result} shows",
    "guard-drill": "fix what {result} names; its logs are {folder}/logs/guard-drill-*.log",
}
"""What to change after a phase said no."""
AGAIN: dict[Phase, str] = {
    "canary": "run {rollout} --only canary --fresh",
    "guard-drill": "run {rollout} --only guard-drill",
}
"""The command after that, where it is not `specops run ROLLOUT`."""


def following_walk(walk: Walk, rollout: Rollout, file: Path) -> list[str]:
    """Lines `change: …`, if any, and `next: COMMAND`: what the first no calls for; else what is open; else
    going live."""
    commands = Commands(rollout, file, walk.folder)
    said_no = next((step for step in walk.steps if step.result.verdict == "no"), None)
    checked = walk.step("checklist")
    if said_no is not None and said_no is not checked:
        return _after_no(said_no, walk, commands)
    if checked is not None and checked.result.verdict != "yes":
        return _lines(commands.of("checklist {rollout}"))
    if checked is not None:
        return _lines(commands.of("guard status {rollout}"))
    if walk.steps:
        return _after(walk.steps[-1], commands)
    hint = walk.skipped[-1].hint
    if hint is not None and hint.startswith("specops "):
        return _lines(hint)
    shown = hint and hint.split()[0] in PROGRAMS
    return _lines(_again(commands), f"fix what this shows: {hint}" if shown else hint)


def _lines(command: str, change: str | None = None) -> list[str]:
    return [*([f"change: {change}"] if change else []), f"next: {command}"]


def _after_no(step: Step, walk: Walk, commands: Commands) -> list[str]:
    if step.phase == "launch":
        return _lines(_again(commands), _of_launch(step))
    change = CHANGES.get(step.phase, "fix what {result} names")
    change = change.format(file=commands.file, folder=walk.folder, result=step.path)
    if step.phase == "drafts":
        target = str(step.result.settings.get("target", ""))
        if target:
            return _lines(commands.of(f"verify-draft --guide {target}"), change)
    if step.phase == "guard-drill" and step.by_hand:  # of the live set-up, which no walk drills by itself
        return _lines(commands.of("guard drill {rollout}"), f"fix what {step.path} names")
    return _lines(commands.of(AGAIN.get(step.phase, "run {rollout}")), change)


def _of_launch(step: Step) -> str:
    """The gate's change where it is the gate that said no, else what was rendered has errors."""
    data = LaunchData.model_validate(step.result.data)
    if step.result.verdict == data.capacity.verdict and data.capacity.change:
        return data.capacity.change
    return f"fix the errors that {step.path} names"


def _after(last: Step, commands: Commands) -> list[str]:
    """Return the next commands after a walk that did not come to the checklist."""
    if last.result.verdict in ("yes", "partial"):
        return _lines(_again(commands))
    if last.phase == "ab" and last.result.verdict == "undecided":
        more = last.result.summary.get("more_prompts")
        if more:
            file = f"the file that `prompts` names in {commands.file}"
            return _lines(_again(commands), f"for each undecided class, add about {more} prompts to {file}")
        alone = f"fix what leaves it open ({last.result.reason}); more prompts alone will not decide it"
        return _lines(commands.of("run {rollout} --only ab --fresh"), alone)
    return _lines(_again(commands), f"fix what {last.path} names")


def _again(commands: Commands) -> str:
    return commands.of("run {rollout}")
