"""`specops report ROLLOUT`, and `specops report schedule ROLLOUT`."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specops.cli.default_command import FirstUnlessNamed
from specops.cli.output import DebugFlag, FolderOption, JsonFlag, QuietFlag, print_json

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

RolloutFile = Annotated[Path, typer.Argument(help="The rollout file; `specops init` writes one.")]
Zone = Annotated[
    str | None, typer.Option("--tz", help="Of days and hours, as Asia/Seoul; default: report.timezone.")
]

report = typer.Typer(
    cls=FirstUnlessNamed,
    help="Report what speculation did over the last week.\n\n"
    "`report ROLLOUT` writes one; `report schedule` renders timers for it.",
    no_args_is_help=True,
)


@report.command()
def make(
    rollout: RolloutFile,
    window: Annotated[
        str | None, typer.Option(help="Its length: 7d, 24h, 2w; default: report.window.")
    ] = None,
    end: Annotated[
        str, typer.Option(help="A day, counted whole, a time of it, or now: the last full hour.")
    ] = "now",
    tz: Zone = None,
    post: Annotated[
        str | None,
        typer.Option(help="Webhook that receives the report; default: SPECOPS_REPORT_WEBHOOK, if set."),
    ] = None,
    prometheus: Annotated[
        str | None, typer.Option(help="Its root; default: addresses.prometheus of the rollout file.")
    ] = None,
    timeout_s: Annotated[float, typer.Option(min=0.1, help="Longest time for one question.")] = 60.0,
    out: FolderOption = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
    debug: DebugFlag = False,
) -> None:
    """Write the report as JSON, Markdown and HTML.

    The files are reports/DAY.* in the run folder, named after the last day.

    Exit 0 once it is written, whatever it says; 4 where Prometheus has nothing of the window.
    """
    from specops.config import load, run_folder
    from specops.errors import UsageError

    file = load(rollout)  # before what follows is loaded: a wrong file is answered at once
    url = prometheus or file.addresses.prometheus
    if url is None:
        raise UsageError(
            "report needs the address of a Prometheus",
            hint="--prometheus http://HOST:9090, or addresses.prometheus in the rollout file",
        )
    from datetime import UTC, datetime

    from specops.cli.progress import progress
    from specops.cli.report_page import page
    from specops.phases.report import delivery as webhook
    from specops.phases.report.assembly import report
    from specops.phases.report.delivery import read, write
    from specops.phases.report.window import window as window_of
    from specops.prometheus.api import Api

    folder = run_folder(rollout, file.rollout, out)
    settings = file.report
    asked = window_of(window or settings.window, end, _zone(tz or settings.timezone), datetime.now(UTC))
    api = Api(url, timeout_s=timeout_s)
    try:
        with progress(quiet) as shown:
            result = report(file, rollout, folder, asked, api, shown)
    finally:
        api.close()
    written = write(folder, asked, result)
    if as_json:
        print_json(result)
    else:
        typer.echo("\n".join(page(written, read(result))))
    address = post or os.environ.get(webhook.WEBHOOK)
    if address:
        webhook.post(address, webhook.body(written.document, result))
    raise typer.Exit(result.exit_code)


@report.command()
def schedule(
    rollout: RolloutFile,
    at: Annotated[
        str | None, typer.Option(help='When: "Mon 09:00", or "09:00" daily; default: report.at.')
    ] = None,
    tz: Zone = None,
    out: FolderOption = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
    debug: DebugFlag = False,
) -> None:
    """Render a cron file and a systemd timer; installs nothing."""
    from specops.config import load, run_folder
    from specops.config.report import AT
    from specops.errors import UsageError

    file = load(rollout)
    from datetime import UTC, datetime

    from specops.cli.report_page import scheduled
    from specops.phases.report.delivery import schedule

    when = at or file.report.at
    if re.fullmatch(AT, when) is None:
        raise UsageError(f"{when!r} is no time of a week", hint='--at "Mon 09:00", or 09:00 for every day')
    folder = run_folder(rollout, file.rollout, out)
    zone = _zone(tz or file.report.timezone)
    made = schedule(file, rollout, folder, when, zone, datetime.now(UTC))
    if as_json:
        print_json({"folder": str(made.folder), "files": list(made.names), "calendar": made.calendar})
    else:
        typer.echo("\n".join(scheduled(made)))


def _zone(name: str) -> ZoneInfo:
    from zoneinfo import ZoneInfo

    from specops.errors import UsageError

    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise UsageError(
            f"this machine knows no time zone {name!r}",
            hint="as in --tz Asia/Seoul; on Debian, apt-get install tzdata",
        ) from None
