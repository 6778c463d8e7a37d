"""`specops guard …`: takes speculation off when it stops paying, and brings it back carefully."""

from __future__ import annotations

import getpass
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from specops.cli.call import Answer, RolloutCall, shared_options
from specops.cli.progress import duration
from specops.errors import Exit
from specops.guard.guard import Status
from specops.hints import with_options
from specops.render.figures import NONE, aligned, sentence

if TYPE_CHECKING:
    pass
from dataclasses import asdict

from typing_extensions import TypedDict

from specops.guard.simulation.simulate import Detection, Simulated
from specops.quantities import DAYS, MINUTES, RATIO, SECONDS
from specops.render.figures import count

MOST_MINUTES = 365 * 24 * 60
guard = typer.Typer(no_args_is_help=True)
DryRun = Annotated[
    bool, typer.Option("--plan", help="Decide and keep a journal, dry-run.jsonl, and switch nothing.")
]


@guard.command()
@shared_options()
def run(
    call: RolloutCall,
    dry_run: DryRun = False,
) -> Answer:
    """Guard until stopped: evaluate, decide and act.

    It evaluates every guard.interval_s, and serves /metrics and /health.

    SIGTERM or Ctrl-C ends it after the turn that it is in, and leaves traffic as it is.
    """
    from specops.phases import guard as phase

    with call.progress(heartbeat=False) as progress:
        phase.run(call.commands, progress.note, dry_run=dry_run)
    status = phase.standing(call.folder)
    return Answer(status, page(call.file.rollout, status))


@guard.command()
@shared_options()
def once(
    call: RolloutCall,
    dry_run: DryRun = False,
) -> Answer:
    """Evaluate once, act on the result, and exit (for cron).

    Exit 0 if healthy, 1 if bad, 4 otherwise.
    """
    from specops.phases import guard as phase

    with call.progress() as progress:
        status = phase.once(call.commands, progress.note, dry_run=dry_run)
    verdict = status.evaluation.verdict if status.evaluation else "unknown"
    code = {"healthy": Exit.YES, "bad": Exit.NO}.get(verdict, Exit.UNDECIDED)
    return Answer(status, page(call.file.rollout, status), code)


@guard.command()
@shared_options()
def status(
    call: RolloutCall,
) -> Answer:
    """Show the guard's state, from the guard or its journal."""
    from specops.phases import guard as phase

    status = phase.standing(call.folder)
    return Answer(status, page(call.file.rollout, status))


@guard.command()
@shared_options()
def override(
    call: RolloutCall,
    pool: Annotated[
        Literal["standard", "speculative", "none"],
        typer.Argument(help="Pool that gets all traffic; none returns control to the guard."),
    ],
    why: Annotated[str, typer.Option(help="Reason, stored in the journal.")],
    by: Annotated[str, typer.Option(help="Who decides; default: this user.")] = "",
    minutes: Annotated[
        float | None,
        MINUTES,
        typer.Option(
            "--for", min=0.1, max=MOST_MINUTES, help="Minutes, or a time as 2h; left out: until it is ended."
        ),
    ] = None,
) -> Answer:
    """Set the share by hand; it overrides the guard's decisions.

    It works whether or not a guard runs.
    """
    from pydantic import ValidationError

    from specops.errors import UsageError
    from specops.guard.guard import OverrideRequest
    from specops.phases import guard as phase

    if pool == "none" and minutes is not None:
        raise UsageError("none ends an override: it takes no --for", hint=with_options({"--for": None}))
    try:
        request = OverrideRequest(pool=pool, by=by or _user(), why=why, minutes=minutes)
    except ValidationError as error:
        raise call.wrong_option(error) from error
    status = phase.override(call.commands, request)
    code = Exit.ENVIRONMENT if status.unconfirmed else Exit.YES
    return Answer(status, page(call.file.rollout, status), code)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user often has no name
        return f"uid {os.getuid()}"


@guard.command()
@shared_options()
def drill(
    call: RolloutCall,
    limit: Annotated[
        float,
        SECONDS,
        typer.Option(
            min=10,
            max=3600,
            help="Seconds, or a time as 5m; after them the guard brings traffic back by itself.",
        ),
    ] = 60.0,
) -> Answer:
    """Rehearse a fallback and a return on live traffic.

    It writes guard-drill.json.

    Whatever happens, Ctrl-C too, traffic is handed back. Exit 0 where it moved, came back and lost nothing.
    """
    from specops import results
    from specops.phases.guard_drill import FILE, drill
    from specops.phases.guard_drill.document import document

    with call.progress() as progress:
        result = drill(call.commands, progress, limit_s=limit)
    results.write(call.folder / FILE, result)
    return Answer(result, document(result, call.folder / FILE))


class SimulationOutput(TypedDict):
    """The keys that --json prints beside the fields of `Simulated`."""

    verdict: Literal["yes", "no"]


@guard.command()
@shared_options()
def simulate(
    call: RolloutCall,
    trace: Annotated[Path | None, typer.Option(help="Trace to replay, a file that --save wrote.")] = None,
    last: Annotated[
        float | None,
        DAYS,
        typer.Option(min=0.01, max=366, help="Days, or a time as 12h, to replay from addresses.prometheus."),
    ] = None,
    save: Annotated[Path | None, typer.Option(help="File for the replayed trace (JSON Lines).")] = None,
    incident: Annotated[
        list[str] | None,
        typer.Option(
            help="Period in which speculation did not pay: BEGIN/END in UTC, such as "
            "2026-11-20T10:00/2026-11-20T12:00; repeatable."
        ),
    ] = None,
    slower: Annotated[
        float | None,
        RATIO,
        typer.Option(
            min=1.01,
            max=100,
            help="Latency of the speculative pool in mid-week, in times the standard pool's "
            "(synthetic week only).",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the synthetic week.")] = 0,
) -> Answer:
    """Replay a trace through the guard's rules.

    It shows when this guard and one with fixed thresholds would have fallen back.

    What is replayed is a trace, the last days of Prometheus, or a week made up from baseline.json. Exit 1
    where the guard would have fallen back falsely, or not where it should have, as far as the truth is known.
    """
    from specops.errors import UsageError

    if trace is not None and last is not None:
        raise UsageError("--trace and --last exclude each other", hint=with_options({"--last": None}))
    file = call.file
    import time

    from specops.guard.policy import GuardRules
    from specops.guard.simulation import simulate as simulation
    from specops.guard.simulation import synthetic, traces
    from specops.phases.guard import deployment_criteria
    from specops.prometheus.api import Api

    criteria, without = deployment_criteria(file, call.folder)
    rules = GuardRules.from_settings(file.guard)
    if trace is not None:
        replayed = traces.load(trace)
    elif last is None:
        replayed = synthetic.week(criteria, seed, slower)
    elif file.addresses.prometheus is None:
        raise UsageError(
            "the rollout file names no Prometheus: expected addresses.prometheus",
            hint=with_options({"--last": None}),
        )
    elif file.guard.interval_s < 2 * file.monitor.scrape_interval_s:
        raise UsageError(  # else all of it would be no data
            f"guard.interval_s {file.guard.interval_s} is shorter than two scrapes, which are"
            f" {file.monitor.scrape_interval_s} s apart:"
            f" expected {2 * file.monitor.scrape_interval_s} or more",
            hint=with_options({"--last": None}),
        )
    else:
        now = time.time()
        api = Api(file.addresses.prometheus, timeout_s=60.0)
        replayed = traces.record(api, criteria, now - last * 86400, now, file.guard.interval_s)
    replayed = traces.marked(replayed, incident or [])
    if save is not None:
        traces.save(replayed, save)
    with call.progress() as progress:
        for line in without:
            progress.note(line)
        simulated = simulation.simulate(replayed, criteria, rules, progress)
    code = Exit.NO if simulated.verdict == "no" else Exit.YES
    return Answer(
        asdict(simulated) | SimulationOutput(verdict=simulated.verdict),
        simulated_page(file.rollout, simulated),
        code,
    )


MODES = {"fallen": "fallen: speculation is off", "held": "held: speculation is off until a person acts"}
WORDS = {"no_data": "no data", "no_traffic": "no traffic"}


def page(rollout: str, status: Status) -> list[str]:
    """The page's lines."""
    state = status.state
    if not status.running and status.decided_at is None and state.override is None:
        start = "specops guard run ROLLOUT"
        return [f"guard · {rollout} · no guard runs, and none has decided anything yet", f"next: {start}"]
    runs = f"running, pid {status.running}" if status.running else "not running"
    rows = [
        ["  state", f"{MODES.get(state.mode, state.mode)}{_rows(status)}"],
        ["  target", f"{status.target_percent}% speculative"],
    ]
    if state.override is not None:
        pin = state.override
        left = f", {pin.left_s / 60:.0f} min left" if pin.left_s is not None else ""
        rows.append(["  override", f"{pin.pool}, by {pin.by}{left}: {pin.why}"])
    if state.mode == "fallen":
        rows.append(["  next step", f"in {duration(state.wait_s)} or later"])
    if status.capacity:
        rows.append(["  capacity", status.capacity])
    if status.unconfirmed:
        rows.append(["  unconfirmed", status.unconfirmed])
    if status.state.blind_since is not None and status.decided_at is not None:
        rows.append(["  blind", f"for {(status.decided_at - status.state.blind_since) / 60:.0f} min"])
    if status.evaluation is not None:
        rows += [["  not covered", part] for part in status.evaluation.not_covered]
        rows += [
            [f"  {WORDS.get(finding.verdict, finding.verdict)}", finding.why]
            for finding in status.evaluation.findings
        ]
    when = (
        f"{datetime.fromtimestamp(status.decided_at, UTC):%Y-%m-%d %H:%M:%S} UTC"
        if status.decided_at
        else NONE
    )
    marked = " · a plan: nothing is switched" if status.dry_run else ""
    return [f"guard · {rollout} · {runs} · {when}{marked}", *aligned(rows), f"{status.why}."]


def _rows(status: Status) -> str:
    state = status.state
    details = []
    if state.bad_in_a_row:
        details.append(f"{state.bad_in_a_row} bad in a row")
    if state.mode == "canary":
        details.append(f"at {state.percent}%, {state.healthy_in_a_row} healthy")
    if state.attempts:
        details.append(count(state.attempts, "attempt") + " to return")
    return f" ({', '.join(details)})" if details else ""


RIGHTLY = {"yes": "(correct)", "late": "(late)", "no": "(false)", "unknown": "(correctness unknown)"}
MOST = 20
"""Steps that are shown; --json has them all."""


def simulated_page(rollout: str, simulated: Simulated) -> list[str]:
    """The page's lines."""
    observed = ", ".join(
        f"{number} {verdict.replace('_', ' ')}" for verdict, number in simulated.verdicts.items()
    )
    rightly = {fallback.ts: RIGHTLY[fallback.rightly] for fallback in simulated.fallbacks}
    rows = []
    for step in simulated.steps[:MOST]:
        message = f" {rightly[step.ts]}" if step.event == "fell_back" else ""
        rows.append(["  guard", _utc(step.ts), f"{step.event.replace('_', ' ')}{message}: {step.why}"])
    if len(simulated.steps) > MOST:
        rows.append(["  guard", "", f"and {len(simulated.steps) - MOST} steps more"])
    rows += [
        [f"  {detection.status}", _utc(detection.began), _detection(detection)]
        for detection in simulated.detections
    ]
    if simulated.playbook is not None:
        message = f"fell back {RIGHTLY[simulated.playbook.rightly]}: {simulated.playbook.why}"
        rows.append(["  fixed thresholds", _utc(simulated.playbook.ts), message])
        rows.append(["  fixed thresholds", "", f"{simulated.playbook_triggers} triggers in all"])
    by = ", ".join(f"{number} by the {source}" for source, number in simulated.decided_by.items())
    span = f"{_utc(simulated.began)} to {_utc(simulated.ended)} UTC"
    return [
        f"simulated · {rollout} · {span} · {simulated.evaluations} evaluations: {observed}",
        *aligned(rows),
        *([f"  latencies were decided: {by}"] if "live effect" in simulated.decided_by else []),
        sentence(_summary(simulated)),
    ]


def _detection(detection: Detection) -> str:
    requests = f"{detection.requests:.0f} requests"
    if detection.delay_s is None:
        return f"speculation stopped paying here, and the guard did not fall back ({requests} in that time)"
    delay, allowed = (f"{seconds / 60:.0f} min" for seconds in (detection.delay_s, detection.allowed_s))
    return f"speculation stopped paying here; the guard acted after {delay}, {requests} (allowed: {allowed})"


def _summary(simulated: Simulated) -> str:
    fallbacks = count(len(simulated.fallbacks), "fallback")
    false = sum(fallback.rightly == "no" for fallback in simulated.fallbacks)
    if false:
        fallbacks += f", {false} of them false"
    playbook = "falls back" if simulated.playbook is not None else "does not fall back"
    statuses = [detection.status for detection in simulated.detections]
    wrong = "".join(
        f", {count(statuses.count(status), 'incident')} {words}"
        for status, words in (("missed", "missed"), ("late", "acted on late"))
        if status in statuses
    )
    return f"guard: {fallbacks}{wrong}; fixed thresholds: {playbook}"


def _utc(ts: float) -> str:
    return f"{datetime.fromtimestamp(ts, UTC):%Y-%m-%d %H:%M}"
