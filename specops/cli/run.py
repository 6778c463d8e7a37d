"""`specops run`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from specops.cli.output import DebugFlag, FolderOption, JsonFlag, QuietFlag, print_json
from specops.cli.progress import progress
from specops.phases import Phase


def run(
    rollout: Annotated[Path, typer.Argument(help="The rollout file; `specops init` writes one.")],
    only: Annotated[Phase | None, typer.Option("--only", help="Phase to run alone.")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Measure again; reuse no earlier result.")] = False,
    go_on: Annotated[bool, typer.Option("--continue", help="Continue past a failed gate.")] = False,
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
