"""`specops checklist ROLLOUT`, and `specops checklist attest ITEM ROLLOUT --by NAME`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from specops.cli.default_command import FirstUnlessNamed
from specops.cli.output import DebugFlag, FolderOption, JsonFlag, QuietFlag, print_json

RolloutFile = Annotated[Path, typer.Argument(help="The rollout file; `specops init` writes one.")]

checklist = typer.Typer(
    cls=FirstUnlessNamed,
    help="Decide whether it may go live, item by item.\n\n"
    "`checklist ROLLOUT` shows each item with its evidence.",
    no_args_is_help=True,
)


@checklist.command()
def show(
    rollout: RolloutFile,
    out: FolderOption = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
    debug: DebugFlag = False,
) -> None:
    """Decide every item from results and live probes.

    It writes checklist.json.

    Exit 0 where all are passed or attested, 1 where one failed, 4 where some are open. Nothing else changes.
    """
    from specops.config import load, run_folder

    file = load(rollout)  # before what follows is loaded: a wrong file is answered at once
    from datetime import UTC, datetime

    from specops import results
    from specops.cli.checklist_page import page
    from specops.phases.checklist.checklist import FILE, checklist

    folder = run_folder(rollout, file.rollout, out)
    result = checklist(file, rollout, folder, datetime.now(UTC))
    results.write(folder / FILE, result)
    print_json(result) if as_json else typer.echo("\n".join(page(result, folder)))
    raise typer.Exit(result.exit_code)


@checklist.command()
def attest(
    item: Annotated[str, typer.Argument(help="Its name, as `specops checklist ROLLOUT` prints it.")],
    rollout: RolloutFile,
    by: Annotated[str, typer.Option(help="Who says so.")],
    note: Annotated[str | None, typer.Option(help="Such as where it was shared, and with whom.")] = None,
    out: FolderOption = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
    debug: DebugFlag = False,
) -> None:
    """Record a person's confirmation of an item, for 90 days.

    It is stored in attestations.json with name and date. It counts for the rollout file as it is now.
    """
    from pydantic import ValidationError

    from specops.config import load, run_folder

    file = load(rollout)
    from datetime import UTC, datetime

    from specops.cli.load_options import wrong_option
    from specops.errors import UsageError
    from specops.phases.checklist.attestations import attest
    from specops.phases.checklist.items import ITEMS

    attestable = [spec.name for spec in ITEMS if spec.attestable]
    if item not in attestable:
        known = item in (spec.name for spec in ITEMS)
        why = f"{item} is decided by what is measured" if known else f"there is no item {item!r}"
        raise UsageError(f"{why}, and cannot be attested", hint=f"what can be: {', '.join(attestable)}")
    folder = run_folder(rollout, file.rollout, out)
    try:
        made = attest(file, folder, item, by, note, datetime.now(UTC))
    except ValidationError as error:
        raise wrong_option(error, "checklist attest") from error
    if as_json:
        print_json(made)
    else:
        typer.echo(
            f"{item}: attested by {made.by}, until {made.until:%Y-%m-%d} or until the rollout file changes"
        )
