"""`specops guard …`: takes speculation off when it stops paying, and brings it back carefully."""

from __future__ import annotations

import getpass
import os
from pathlib import Path
from typing import Annotated, Literal

import typer

from specops.cli.guard_simulate import simulate
from specops.cli.output import DebugFlag, FolderOption, JsonFlag, QuietFlag, print_json
from specops.errors import Exit

MOST_MINUTES = 365 * 24 * 60
guard = typer.Typer(help="Turn speculation off when it stops paying, and back on.", no_args_is_help=True)
RolloutFile = Annotated[Path, typer.Argument(help="The rollout file; `specops init` writes one.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Decide and keep a journal, dry-run.jsonl, and switch nothing.")
]


@guard.command()
def run(
    rollout: RolloutFile,
    dry_run: DryRun = False,
    out: FolderOption = None,
    quiet: QuietFlag = False,
    debug: DebugFlag = False,
) -> None:
    """Guard until stopped: evaluate, decide and act.

    It evaluates every guard.interval_s, and serves /metrics and /health.

    SIGTERM or Ctrl-C ends it after the turn that it is in, and leaves traffic as it is.
    """
    from specops.config import load, run_folder

    file = load(rollout)
    from specops.cli.progress import progress
    from specops.phases import guard as phase

    with progress(quiet) as shown:
        phase.run(file, run_folder(rollout, file.rollout, out), shown.note, dry_run=dry_run)


@guard.command()
def once(
    rollout: RolloutFile,
    dry_run: DryRun = False,
    out: FolderOption = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
    debug: DebugFlag = False,
) -> None:
    """Evaluate once, act on the result, and exit (for cron).

    Exit 0 if healthy, 1 if bad, 4 otherwise.
    """
    from specops.config import load, run_folder

    file = load(rollout)
    from specops.cli.guard_page import page
    from specops.cli.progress import progress
    from specops.phases import guard as phase

    with progress(quiet) as shown:
        found = phase.once(file, run_folder(rollout, file.rollout, out), shown.note, dry_run=dry_run)
    print_json(found) if as_json else typer.echo("\n".join(page(file.rollout, found)))
    verdict = found.evaluation.verdict if found.evaluation else "unknown"
    raise typer.Exit({"healthy": Exit.YES, "bad": Exit.NO}.get(verdict, Exit.UNDECIDED))


@guard.command()
def status(
    rollout: RolloutFile,
    out: FolderOption = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
    debug: DebugFlag = False,
) -> None:
    """Show the guard's state, from the guard or its journal."""
    from specops.config import load, run_folder

    file = load(rollout)
    from specops.cli.guard_page import page
    from specops.phases import guard as phase

    found = phase.standing(run_folder(rollout, file.rollout, out))
    print_json(found) if as_json else typer.echo("\n".join(page(file.rollout, found)))


@guard.command()
def override(
    rollout: RolloutFile,
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
    out: FolderOption = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
    debug: DebugFlag = False,
) -> None:
    """Set the share by hand; it overrides the guard's decisions.

    It works whether or not a guard runs.
    """
    from pydantic import ValidationError

    from specops.config import load, run_folder
    from specops.errors import UsageError

    file = load(rollout)
    from specops.cli.guard_page import page
    from specops.cli.load_options import wrong_option
    from specops.guard.guard import OverrideRequest
    from specops.phases import guard as phase

    if pool == "none" and minutes is not None:
        raise UsageError("none ends an override, and has no time", hint="leave --for out")
    try:
        request = OverrideRequest(pool=pool, by=by or _user(), why=why, minutes=minutes)
    except ValidationError as error:
        raise wrong_option(error, "guard override") from error
    found = phase.override(file, run_folder(rollout, file.rollout, out), request)
    print_json(found) if as_json else typer.echo("\n".join(page(file.rollout, found)))
    raise typer.Exit(Exit.ENVIRONMENT if found.unconfirmed else Exit.YES)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user often has no name
        return f"uid {os.getuid()}"


@guard.command()
def drill(
    rollout: RolloutFile,
    limit: Annotated[
        float,
        typer.Option(min=10, max=3600, help="Seconds; after them the guard brings traffic back by itself."),
    ] = 60.0,
    out: FolderOption = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
    debug: DebugFlag = False,
) -> None:
    """Rehearse a fall-back and a return on live traffic.

    It writes guard-drill.json.

    Whatever happens, Ctrl-C too, traffic is handed back. Exit 0 where it moved, came back and lost nothing.
    """
    from specops.config import load, run_folder

    file = load(rollout)
    from specops import results
    from specops.cli.guard_drill_page import page
    from specops.cli.progress import progress
    from specops.phases.guard_drill import FILE, drill

    folder = run_folder(rollout, file.rollout, out)
    with progress(quiet) as shown:
        result = drill(file, folder, shown, limit_s=limit)
    results.write(folder / FILE, result)
    print_json(result) if as_json else typer.echo("\n".join(page(result, folder / FILE)))
    raise typer.Exit(result.exit_code)


guard.command()(simulate)
