"""`specops diagnose ROLLOUT`: why it is slow, or odd."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specops.cli.output import DebugFlag, FolderOption, JsonFlag, QuietFlag, print_json

if TYPE_CHECKING:
    from specops.phases.diagnose.finding import Symptom


def diagnose(
    rollout: Annotated[Path, typer.Argument(help="The rollout file; `specops init` writes one.")],
    symptom: Annotated[
        list[str] | None,
        typer.Option(
            help="slower, acceptance, bursts, vocabulary, answers or watching; again for more. Default: all."
        ),
    ] = None,
    requests: Annotated[
        bool,
        typer.Option(help="Send a few streamed requests to the speculative pool, to see how text comes."),
    ] = True,
    out: FolderOption = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
    debug: DebugFlag = False,
) -> None:
    """Find why serving is slow or odd, from metrics and results.

    Every question gets an answer: a cause with its fix, ruled out, or the missing evidence. Writes
    diagnose.json. Exit 0 where nothing wrong was found, 1 where something was, 4 without any evidence.
    """
    from specops.config import load, run_folder

    file = load(rollout)
    from datetime import UTC, datetime

    from specops import results
    from specops.cli.diagnose_page import page
    from specops.cli.progress import progress
    from specops.phases.commands import Commands
    from specops.phases.diagnose.collectors.gather import gather
    from specops.phases.diagnose.diagnose import FILE, diagnose

    symptoms = _symptoms(symptom or [])
    folder = run_folder(rollout, file.rollout, out)
    with progress(quiet) as shown:
        observed = gather(file, folder, datetime.now(UTC), shown, requests=requests)
    result = diagnose(observed, symptoms, Commands(file, rollout, folder).place)
    results.write(folder / FILE, result)
    print_json(result) if as_json else typer.echo("\n".join(page(result)))
    raise typer.Exit(result.exit_code)


def _symptoms(asked: list[str]) -> list[Symptom]:
    from typing import get_args

    from specops.errors import UsageError
    from specops.phases.diagnose.finding import Symptom

    known: tuple[Symptom, ...] = get_args(Symptom)
    for name in asked:
        if name not in known:
            raise UsageError(f"there is no symptom {name!r}", hint=f"known: {', '.join(known)}")
    return [name for name in known if name in asked]
