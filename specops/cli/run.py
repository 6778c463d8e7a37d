"""`specops run`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specops.cli.output import DebugFlag, FolderOption, JsonFlag, QuietFlag, print_json
from specops.cli.progress import progress
from specops.phases import Phase

if TYPE_CHECKING:
    from specops.config import Rollout


def run(
    rollout: Annotated[Path, typer.Argument(help="The rollout file; `specops init` writes one.")],
    only: Annotated[Phase | None, typer.Option("--only", help="Phase to run alone.")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Measure again; reuse no earlier result.")] = False,
    go_on: Annotated[bool, typer.Option("--continue", help="Continue past a failed gate.")] = False,
    plan: Annotated[
        bool, typer.Option("--plan", help="Print what would run, and how long it takes.")
    ] = False,
    out: FolderOption = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
    debug: DebugFlag = False,
) -> None:
    """Run every phase, from measuring to a go-live verdict.

    Stops at the first failed gate, skips unchanged phases and those that do not apply, resumes interrupted
    ones. The page begins with what each load showed and the decision, by traffic class and load.
    """
    from specops.config import load, run_folder

    file = load(rollout)  # before what follows is loaded: a wrong file is answered at once
    from specops.cli.page import page
    from specops.phases import playbook

    folder = run_folder(rollout, file.rollout, out)
    if plan:
        show_plan(file, rollout, folder, only=only, fresh=fresh, as_json=as_json)
        return
    with progress(quiet) as report:
        walk = playbook.run(file, rollout, folder, report, only=only, fresh=fresh, go_on=go_on)
    if as_json:
        print_json(
            {
                "rollout": walk.rollout,
                "folder": str(walk.folder),
                "exit_code": walk.exit_code,
                "stopped": walk.stopped,
                "phases": [
                    {
                        "phase": step.phase,
                        "file": str(step.path),
                        "reused": step.reused,
                        "verdict": step.result.verdict,
                        "reason": step.result.reason,
                        "summary": step.result.summary,
                    }
                    for step in walk.steps
                ],
                "skipped": [
                    {"phase": one.phase, "reason": one.reason, "hint": one.hint} for one in walk.skipped
                ],
            }
        )
    else:
        typer.echo("\n".join(page(walk, file, rollout)))
    raise typer.Exit(walk.exit_code)


def show_plan(
    file: Rollout, rollout: Path, folder: Path, *, only: Phase | None, fresh: bool, as_json: bool
) -> None:
    from dataclasses import asdict

    from specops.cli.walk_plan_page import plan_page
    from specops.phases.commands import Commands
    from specops.phases.playbook.forecast import forecast
    from specops.phases.playbook.step import Given
    from specops.progress import Silent

    planned = forecast(Given(file, rollout, folder, Silent(), fresh=fresh, by_name=only is not None), only)
    if as_json:
        print_json(asdict(planned) | {"total_s": planned.total_s})
    else:
        typer.echo("\n".join(plan_page(planned, Commands(file, rollout, folder).of("run {rollout}"))))
