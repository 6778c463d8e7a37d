"""`specops run`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import astuple
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typing_extensions import TypedDict

from specops.cli.call import Answer, RolloutCall, shared_options
from specops.cli.progress import between
from specops.errors import UsageError
from specops.hints import with_options
from specops.phases import PhaseName, phases_of
from specops.results import Verdict

ONLY = f"Phase to run alone: {', '.join(phases_of(None))}."

if TYPE_CHECKING:
    from specops.config import Rollout
    from specops.phases.phase import PhaseInput, Span
    from specops.phases.playbook.walk import WalkForecast
    from specops.progress import Progress

    Choice = str
else:
    Choice = Literal[tuple(phases_of(None))]  # of which Typer makes the option's values


class WalkedPhase(TypedDict):
    phase: PhaseName
    file: str
    reused: bool
    """Whether its inputs have not changed, so that an earlier result stands."""

    verdict: Verdict
    reason: str
    summary: dict[str, Any]


class SkippedPhase(TypedDict):
    phase: PhaseName
    reason: str
    hint: str | None


class RunOutput(TypedDict):
    rollout: str
    folder: str
    exit_code: int
    stopped: PhaseName | None
    """The phase at whose gate it ended before the last phase."""

    phases: list[WalkedPhase]
    skipped: list[SkippedPhase]


@shared_options()
def run(
    call: RolloutCall,
    only: Annotated[Choice | None, typer.Option("--only", metavar="PHASE", help=ONLY)] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Measure again; reuse no earlier result.")] = False,
    go_on: Annotated[bool, typer.Option("--continue", help="Continue past a failed gate.")] = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Send requests to endpoints without a question.")
    ] = False,
    plan: Annotated[
        bool, typer.Option("--plan", help="Print what would run, and how long it takes.")
    ] = False,
) -> Answer:
    """Stops at the first failed gate, skips unchanged phases and those that do not apply, resumes interrupted
    ones. The page ends with what each load showed and the decision, by traffic class and load.

    Before the first request it checks what the rollout names, and says what it will send. If a pool runs
    already, it asks; without a terminal it needs --yes, or measure.max_rps in the rollout file.
    """
    from specops.phases import playbook
    from specops.phases.run_page.document import walk_document

    if plan:
        return _planned(call, only, fresh=fresh)
    _prepare(call, only, fresh=fresh, yes=yes)
    with call.progress() as report:
        walk = playbook.run(call.file, call.path, call.folder, report, only=only, fresh=fresh, go_on=go_on)
    phases = [
        WalkedPhase(
            phase=step.phase,
            file=str(step.path),
            reused=step.reused,
            verdict=step.result.verdict,
            reason=step.result.reason,
            summary=step.result.summary,
        )
        for step in walk.steps
    ]
    value = RunOutput(
        rollout=walk.rollout,
        folder=str(walk.folder),
        exit_code=walk.exit_code,
        stopped=walk.stopped,
        phases=phases,
        skipped=[SkippedPhase(phase=skip.phase, reason=skip.reason, hint=skip.hint) for skip in walk.skipped],
    )
    return Answer(value, walk_document(walk, call.file, call.path), walk.exit_code)


def _prepare(call: RolloutCall, only: PhaseName | None, *, fresh: bool, yes: bool) -> None:
    """Check what the requests need, and ask whether endpoints may be sent them. Raises what `preflight`
    raises, and UsageError where nobody has agreed."""
    from specops.phases.playbook.preflight import preflight

    with call.progress() as report:
        planned = preflight(_input(call, only, report, fresh=fresh), only)
    if (load := load_sentence(planned, call.file)) is None:
        return
    sentence, terminal = f"This sends {load}.", sys.stdin.isatty() and sys.stderr.isatty()
    if yes or not (terminal or call.file.measure.max_rps is None):
        if not call.quiet:
            print(sentence, file=sys.stderr)
        return
    with_yes = with_options({"--yes": True})
    if not terminal:
        raise UsageError(
            f"nothing was sent: this would send {load}, and there is no terminal to ask on; expected --yes, "
            "or measure.max_rps in the rollout file",
            hint=with_yes,
        )
    print(f"{sentence} Continue? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise UsageError("nothing was sent: the answer was not yes", hint=with_yes)


def load_sentence(plan: WalkForecast, rollout: Rollout) -> str | None:
    """Return what is sent to endpoints that specops does not start; None where nothing is."""
    from specops.render.figures import count

    pools = (rollout.pools.standard, rollout.pools.speculative)
    places = [pool.endpoint.base_url for pool in pools if pool.endpoint is not None]
    requests, streams = plan.load
    if not requests or not places:
        return None
    limit = rollout.measure.max_rps
    rate = f" and at most {limit:g} a second" if limit else ""
    return (
        f"up to {count(requests, 'request')} to {' and '.join(dict.fromkeys(places))}, about {streams} at a "
        f"time to each{rate}, for about {_time(plan.span)}"
    )


def _input(call: RolloutCall, only: PhaseName | None, progress: Progress, *, fresh: bool) -> PhaseInput:
    from specops.phases.phase import PhaseInput

    return PhaseInput(call.file, call.path, call.folder, progress, fresh=fresh, by_name=only is not None)


class ForecastOutput(TypedDict):
    """The keys that --json prints beside the fields of a `WalkForecast`."""

    total_s: float
    """At most, by what is known."""

    least_total_s: float
    gpus: int | None
    """GPUs of servers that specops starts, at a time; null: not known."""

    gpu_hours: dict[str, float] | None
    """GPU-hours of these servers, least and most; null: not known."""


def _planned(call: RolloutCall, only: PhaseName | None, *, fresh: bool) -> Answer:
    from dataclasses import asdict

    from specops.phases.playbook.walk import forecast
    from specops.progress import SilentProgress

    planned = forecast(_input(call, only, SilentProgress(), fresh=fresh), only)
    value = asdict(planned) | ForecastOutput(
        total_s=planned.span.most,
        least_total_s=planned.span.least,
        gpus=planned.gpus,
        gpu_hours=asdict(planned.gpu_hours) if planned.gpu_hours is not None else None,
    )
    options = f"{f' --only {only}' if only else ''}{' --fresh' if fresh else ''}"
    load = load_sentence(planned, call.file)
    return Answer(value, plan_page(planned, call.commands.of(f"run {{rollout}}{options}"), load))


def plan_page(plan: WalkForecast, run_command: str, load: str | None = None) -> Iterator[str]:
    """The lines of a plan. `load`: what it sends to endpoints, by `load_sentence`."""
    from specops.render.figures import count

    yield "phase         starts  requests         about"
    for phase in plan.phases:
        if phase.reused:
            yield f"{phase.phase:12}       -         -       -   reused: its inputs have not changed"
            continue
        time = "-" if not phase.seconds else _time(phase.span)
        yield f"{phase.phase:12}  {phase.starts:6}  {phase.requests:8}  {time:>12}   {phase.note}".rstrip()
    yield ""
    reused = sum(phase.reused for phase in plan.phases)
    run = [phase for phase in plan.phases if not phase.reused and phase.seconds]
    left = len(plan.phases) - reused - len(run)
    starts, requests = sum(phase.starts for phase in run), sum(phase.requests for phase in run)
    yield f"Plan: {count(len(run), 'phase')} to run, {reused} to reuse, {left} not to run."
    yield (
        f"In all {count(starts, 'server start')}, at most {count(requests, 'request')},"
        f" about {_time(plan.span)}."
    )
    if starts and plan.gpus is None:
        yield "How many GPUs it holds is not known: a pool is a command."
    elif starts and plan.gpus and plan.gpu_hours is not None:
        low, high = (f"{hours:.2g}" if hours < 10 else f"{hours:.0f}" for hours in astuple(plan.gpu_hours))
        hours = low if low == high else f"{low}–{high}"
        yield f"It holds up to {count(plan.gpus, 'GPU')} at a time, for {hours} GPU-hours in all."
    if any(phase.phase == "ab" for phase in run):
        yield "A comparison that is decided early takes less."
    if plan.token_s is not None or plan.start_s is not None:
        yield f"Not measured yet, so assumed: {', '.join(_assumptions(plan))}."
    if load is not None:
        yield f"It sends {load}."
    yield f"next: {run_command}"


def _assumptions(plan: WalkForecast) -> Iterator[str]:
    if plan.token_s is not None:
        yield f"{plan.token_s.least * 1000:.3g}–{plan.token_s.most * 1000:.3g} ms a token"
    if plan.start_s is not None:
        yield f"{_time(plan.start_s)} a server start"


def _time(span: Span) -> str:
    return between(span.least, span.most)
