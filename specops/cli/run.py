"""`specops run`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typing_extensions import TypedDict

from specops.cli.call import Answer, RolloutCall, shared_options
from specops.cli.progress import duration
from specops.phases import PHASES, Phase
from specops.results import Verdict

ONLY = f"Phase to run alone: {', '.join(PHASES)}."

if TYPE_CHECKING:
    from specops.phases.playbook.walk import WalkForecast


class WalkedPhase(TypedDict):
    phase: Phase
    file: str
    reused: bool
    """Whether its inputs have not changed, so that an earlier result stands."""

    verdict: Verdict
    reason: str
    summary: dict[str, Any]


class SkippedPhase(TypedDict):
    phase: Phase
    reason: str
    hint: str | None


class RunOutput(TypedDict):
    rollout: str
    folder: str
    exit_code: int
    stopped: Phase | None
    """The phase at whose gate it ended before the last phase."""

    phases: list[WalkedPhase]
    skipped: list[SkippedPhase]


@shared_options()
def run(
    call: RolloutCall,
    only: Annotated[Phase | None, typer.Option("--only", metavar="PHASE", help=ONLY)] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Measure again; reuse no earlier result.")] = False,
    go_on: Annotated[bool, typer.Option("--continue", help="Continue past a failed gate.")] = False,
    plan: Annotated[
        bool, typer.Option("--plan", help="Print what would run, and how long it takes.")
    ] = False,
) -> Answer:
    """Stops at the first failed gate, skips unchanged phases and those that do not apply, resumes interrupted
    ones. The page begins with what each load showed and the decision, by traffic class and load.
    """
    from specops.cli.page import page
    from specops.phases import playbook

    if plan:
        return _planned(call, only, fresh=fresh)
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
        skipped=[SkippedPhase(phase=one.phase, reason=one.reason, hint=one.hint) for one in walk.skipped],
    )
    return Answer(value, page(walk, call.file, call.path), walk.exit_code)


class ForecastOutput(TypedDict):
    """The keys that --json prints beside the fields of a `WalkForecast`."""

    total_s: float


def _planned(call: RolloutCall, only: Phase | None, *, fresh: bool) -> Answer:
    from dataclasses import asdict

    from specops.phases.playbook.walk import forecast
    from specops.phases.playbook.walk_step import PhaseInput
    from specops.progress import SilentProgress

    given = PhaseInput(
        call.file, call.path, call.folder, SilentProgress(), fresh=fresh, by_name=only is not None
    )
    planned = forecast(given, only)
    value = asdict(planned) | ForecastOutput(total_s=planned.total_s)
    options = f"{f' --only {only}' if only else ''}{' --fresh' if fresh else ''}"
    return Answer(value, plan_page(planned, call.commands.of(f"run {{rollout}}{options}")))


def plan_page(plan: WalkForecast, run_command: str) -> Iterator[str]:
    from specops.phases.playbook.walk import ASSUMED_START_S, ASSUMED_TOKEN_S
    from specops.render.figures import count

    yield "phase         starts  requests         about"
    for one in plan.phases:
        if one.reused:
            yield f"{one.phase:12}       -         -       -   reused: its inputs have not changed"
            continue
        time = "-" if not one.seconds else duration(one.seconds)
        yield f"{one.phase:12}  {one.starts:6}  {one.requests:8}  {time:>12}   {one.note}".rstrip()
    yield ""
    reused = sum(one.reused for one in plan.phases)
    run = [one for one in plan.phases if not one.reused and one.seconds]
    left = len(plan.phases) - reused - len(run)
    starts, requests = sum(one.starts for one in run), sum(one.requests for one in run)
    yield f"Plan: {count(len(run), 'phase')} to run, {reused} to reuse, {left} not to run."
    yield (
        f"In all {count(starts, 'server start')}, at most {count(requests, 'request')},"
        f" about {duration(plan.total_s)}."
    )
    if any(one.phase == "ab" for one in run):
        yield "A comparison that is decided early takes less."
    if plan.assumed:
        yield (
            f"Nothing is measured yet: a token is assumed to take {ASSUMED_TOKEN_S * 1000:.0f} ms, "
            f"a server start {ASSUMED_START_S:.0f} s."
        )
    yield f"next: {run_command}"
