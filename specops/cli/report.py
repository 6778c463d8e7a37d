"""`specops report ROLLOUT`, and `specops report schedule ROLLOUT`."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer
from typing_extensions import TypedDict

from specops.cli.call import Answer, DefaultCommandGroup, RolloutCall, shared_options
from specops.hints import with_options
from specops.phases.report.delivery import WrittenSchedule
from specops.quantities import SECONDS

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

Zone = Annotated[
    str | None,
    typer.Option("--tz", help="Time zone, such as Asia/Seoul; default: report.timezone."),
]

report = typer.Typer(
    cls=DefaultCommandGroup,
    help="`report ROLLOUT` writes a report; `report schedule` renders timers for it.",
    no_args_is_help=True,
)


@report.command()
@shared_options()
def make(
    call: RolloutCall,
    window: Annotated[
        str | None, typer.Option(help="Window length, such as 7d, 24h or 2w; default: report.window.")
    ] = None,
    end: Annotated[
        str, typer.Option(help="End of the window: a day (included), a time, or now (the last full hour).")
    ] = "now",
    tz: Zone = None,
    post: Annotated[
        str | None,
        typer.Option(help="Webhook that receives the report; default: SPECOPS_REPORT_WEBHOOK, if set."),
    ] = None,
    prometheus: Annotated[
        str | None,
        typer.Option(help="Root URL of Prometheus; default: addresses.prometheus of the rollout file."),
    ] = None,
    timeout_s: Annotated[
        float, SECONDS, typer.Option(min=0.1, help="Timeout of one query, in seconds or as 30s.")
    ] = 60.0,
) -> Answer:
    """Write the report as JSON, Markdown and HTML.

    The files are reports/DAY.* in the run folder, named after the last day; DAY-30d.* of 30 days.

    Exit 0 once it is written, whatever it says; 4 where Prometheus has nothing of the window.
    """
    from specops.errors import UsageError

    url = prometheus or call.file.addresses.prometheus
    if url is None:
        raise UsageError(
            "report needs the address of a Prometheus",
            hint=with_options({"--prometheus": "http://127.0.0.1:9090"}),
        )
    from datetime import UTC, datetime

    from specops.phases.report import delivery as webhook
    from specops.phases.report.assembly import report
    from specops.phases.report.delivery import write
    from specops.phases.report.report import window as window_of
    from specops.prometheus.api import Api

    settings = call.file.report
    requested = window_of(window or settings.window, end, _zone(tz or settings.timezone), datetime.now(UTC))
    api = Api(url, timeout_s=timeout_s)
    try:
        with call.progress() as progress:
            result = report(call.file, call.path, call.folder, requested, api, progress)
    finally:
        api.close()
    written = write(call.folder, requested, result)
    files = f"written: {written.html}, beside it .md and .json"
    document = replace(written.document, summary=(*written.document.summary, files))
    answer = Answer(result, document)
    address = post or os.environ.get(webhook.WEBHOOK)
    if not address:
        return answer
    call.give(answer)  # also where the webhook refuses it
    webhook.post(address, webhook.body(written.document, result))
    raise typer.Exit(answer.code)


class ScheduleFiles(TypedDict):
    folder: str
    files: list[str]
    calendar: str
    """When, as systemd writes it."""


@report.command()
@shared_options()
def schedule(
    call: RolloutCall,
    at: Annotated[
        str | None, typer.Option(help='When: "Mon 09:00", or "09:00" daily; default: report.at.')
    ] = None,
    tz: Zone = None,
) -> Answer:
    """Render a cron file and a systemd timer; installs nothing."""
    from datetime import UTC, datetime

    from specops.config.rollout import AT
    from specops.errors import UsageError
    from specops.phases.report.delivery import schedule

    when = at or call.file.report.at
    if re.fullmatch(AT, when) is None:
        raise UsageError(
            f"invalid time of a week {when!r}: expected DAY HH:MM or HH:MM",
            hint=with_options({"--at": "Mon 09:00"}),
        )
    zone = _zone(tz or call.file.report.timezone)
    files = schedule(call.file, call.path, call.folder, when, zone, datetime.now(UTC))
    value = ScheduleFiles(folder=str(files.folder), files=list(files.names), calendar=files.calendar)
    return Answer(value, scheduled(files))


def _zone(name: str) -> ZoneInfo:
    from zoneinfo import ZoneInfo

    from specops.errors import UsageError

    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise UsageError(
            f"this machine knows no time zone {name!r}",
            hint=with_options({"--tz": "Asia/Seoul"}),
        ) from None


def scheduled(files: WrittenSchedule) -> list[str]:
    service = next(name for name in files.names if name.endswith(".service"))
    timer = next(name for name in files.names if name.endswith(".timer"))
    return [
        f"schedule · {files.folder} · {files.calendar}",
        f"  cron     install -m 644 {files.folder}/{files.cron_name} /etc/cron.d/",
        f"  systemd  install -m 644 {files.folder}/{service} {files.folder}/{timer} /etc/systemd/system/"
        f" && systemctl daemon-reload && systemctl enable --now {timer}",
        "One of the two. Nothing was installed.",
    ]
