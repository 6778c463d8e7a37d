"""`specops guard …`: takes speculation off when it stops paying, and brings it back carefully."""

from __future__ import annotations

import getpass
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from specops.cli.call import Answer, OnRollout, shared_options
from specops.cli.guard_simulate import simulate
from specops.errors import Exit
from specops.guard.guard import Status
from specops.phases.measurement import checked
from specops.render.figures import NONE, aligned, milliseconds, sentence
from specops.results import Result

if TYPE_CHECKING:
    from specops.phases.guard_drill import Leg

MOST_MINUTES = 365 * 24 * 60
guard = typer.Typer(no_args_is_help=True)
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Decide and keep a journal, dry-run.jsonl, and switch nothing.")
]


@guard.command()
@shared_options()
def run(
    call: OnRollout,
    dry_run: DryRun = False,
) -> Answer:
    """Guard until stopped: evaluate, decide and act.

    It evaluates every guard.interval_s, and serves /metrics and /health.

    SIGTERM or Ctrl-C ends it after the turn that it is in, and leaves traffic as it is.
    """
    from specops.phases import guard as phase

    with call.progress() as shown:
        phase.run(call.file, call.folder, shown.note, dry_run=dry_run)
    found = phase.standing(call.folder)
    return Answer(found, page(call.file.rollout, found))


@guard.command()
@shared_options()
def once(
    call: OnRollout,
    dry_run: DryRun = False,
) -> Answer:
    """Evaluate once, act on the result, and exit (for cron).

    Exit 0 if healthy, 1 if bad, 4 otherwise.
    """
    from specops.phases import guard as phase

    with call.progress() as shown:
        found = phase.once(call.file, call.folder, shown.note, dry_run=dry_run)
    verdict = found.evaluation.verdict if found.evaluation else "unknown"
    code = {"healthy": Exit.YES, "bad": Exit.NO}.get(verdict, Exit.UNDECIDED)
    return Answer(found, page(call.file.rollout, found), code)


@guard.command()
@shared_options()
def status(
    call: OnRollout,
) -> Answer:
    """Show the guard's state, from the guard or its journal."""
    from specops.phases import guard as phase

    found = phase.standing(call.folder)
    return Answer(found, page(call.file.rollout, found))


@guard.command()
@shared_options()
def override(
    call: OnRollout,
    pool: Annotated[
        Literal["standard", "speculative", "none"],
        typer.Argument(help="Pool that gets all traffic; none returns control to the guard."),
    ],
    why: Annotated[str, typer.Option(help="Reason, stored in the journal.")],
    by: Annotated[str, typer.Option(help="Who decides; default: this user.")] = "",
    minutes: Annotated[
        float | None,
        typer.Option("--for", min=0.1, max=MOST_MINUTES, help="Minutes; left out: until it is ended."),
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
        raise UsageError("none ends an override, and has no time", hint="leave --for out")
    try:
        request = OverrideRequest(pool=pool, by=by or _user(), why=why, minutes=minutes)
    except ValidationError as error:
        raise call.wrong_option(error) from error
    found = phase.override(call.file, call.folder, request)
    code = Exit.ENVIRONMENT if found.unconfirmed else Exit.YES
    return Answer(found, page(call.file.rollout, found), code)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user often has no name
        return f"uid {os.getuid()}"


@guard.command()
@shared_options()
def drill(
    call: OnRollout,
    limit: Annotated[
        float,
        typer.Option(min=10, max=3600, help="Seconds; after them the guard brings traffic back by itself."),
    ] = 60.0,
) -> Answer:
    """Rehearse a fall-back and a return on live traffic.

    It writes guard-drill.json.

    Whatever happens, Ctrl-C too, traffic is handed back. Exit 0 where it moved, came back and lost nothing.
    """
    from specops import results
    from specops.phases.guard_drill import FILE, drill

    with call.progress() as shown:
        result = drill(call.file, call.folder, shown, limit_s=limit)
    results.write(call.folder / FILE, result)
    return Answer(result, drill_page(result, call.folder / FILE))


guard.command()(simulate)

WORDS = {"no_data": "no data", "no_traffic": "no traffic"}


def page(rollout: str, found: Status) -> list[str]:
    """The page's lines."""
    state = found.state
    runs = f"running, pid {found.running}" if found.running else "not running"
    rows = [["  state", f"{state.mode}{_rows(found)}"], ["  target", f"{found.target_percent}% speculative"]]
    if state.override is not None:
        pin = state.override
        left = f", {pin.left_s / 60:.0f} min left" if pin.left_s is not None else ""
        rows.append(["  override", f"{pin.pool}, by {pin.by}{left}: {pin.why}"])
    if state.mode == "fallen":
        rows.append(["  next step", f"in at least {state.wait_s:.0f} s"])
    if found.capacity:
        rows.append(["  capacity", found.capacity])
    if found.unconfirmed:
        rows.append(["  unconfirmed", found.unconfirmed])
    if found.evaluation is not None:
        rows += [[f"  {WORDS.get(one.verdict, one.verdict)}", one.why] for one in found.evaluation.findings]
    when = (
        f"{datetime.fromtimestamp(found.decided_at, UTC):%Y-%m-%d %H:%M:%S} UTC" if found.decided_at else NONE
    )
    marked = " · dry run" if found.dry_run else ""
    return [f"guard · {rollout} · {runs} · {when}{marked}", *aligned(rows), f"{found.why}."]


def _rows(found: Status) -> str:
    state = found.state
    said = []
    if state.bad_in_a_row:
        said.append(f"{state.bad_in_a_row} bad in a row")
    if state.mode == "canary":
        said.append(f"at {state.percent}%, {state.healthy_in_a_row} healthy")
    if state.attempts:
        said.append(f"{state.attempts} attempts to return")
    return f" ({', '.join(said)})" if said else ""


def drill_page(result: Result, path: Path) -> list[str]:
    """The page's lines."""
    from specops.phases.guard_drill import Rehearsal

    rehearsal = checked(Rehearsal, result.data, f"{path} is damaged: data")
    rows = [_row("fell back", rehearsal.fall_back), _row("returned", rehearsal.restoration)]
    if rehearsal.ended is not None:
        lost = rehearsal.ended.get("lost", 0.0)
        rows.append(["  requests", f"{sum(rehearsal.ended.values()):.0f} ended, {lost:.0f} lost", ""])
    return [f"guard drill · {path}", *aligned(rows), sentence(result.reason)]


def _row(what: str, leg: Leg) -> list[str]:
    began = sorted((leg.begun or {}).items())
    counts = ", ".join(f"{count:.0f} on {pool}" for pool, count in began if count)
    watched = f"in {leg.watched_s:g} s began {counts or 'no request'}" if leg.begun is not None else ""
    return [f"  {what}", f"{len(leg.targets)} switched in {milliseconds(leg.took_ms)}", watched]
