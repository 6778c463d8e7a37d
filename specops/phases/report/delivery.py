"""Delivery of the report: JSON, Markdown and HTML files; a webhook; schedules for cron and systemd.

The webhook gets one POST of JSON: `text`, as Slack, Mattermost and most others read it, and the figures for
programs. Its address is a secret: it stands in no file and no error.
"""

from __future__ import annotations

import getpass
import shlex
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

import requests

from specops import results
from specops.config import Rollout
from specops.errors import EndpointError, UsageError
from specops.hints import http_request
from specops.phases.launch import RENDERED
from specops.phases.measurement import checked
from specops.phases.report.document import document
from specops.phases.report.report import ReportWindow, WeeklyReport
from specops.render import schedule as render
from specops.render import write_files
from specops.render.report.document import Document
from specops.render.report.formats import html, markdown
from specops.results import Result

REPORTS = "reports"


@dataclass(frozen=True)
class ReportFiles:
    json: Path
    markdown: Path
    html: Path
    document: Document


def read(result: Result) -> WeeklyReport:
    return checked(WeeklyReport, result.data, "the report is damaged: data")


def write(folder: Path, window: ReportWindow, result: Result) -> ReportFiles:
    """Into `folder`/reports, by the window's name: one of the same last day and length is replaced. Raises
    FileError."""
    reports, name = folder / REPORTS, window.name
    results.write(reports / f"{name}.json", result)
    page = document(read(result), result)
    write_files(reports, {f"{name}.md": markdown(page), f"{name}.html": html(page)})
    return ReportFiles(reports / f"{name}.json", reports / f"{name}.md", reports / f"{name}.html", page)


WEBHOOK = "SPECOPS_REPORT_WEBHOOK"
TIMEOUT_S = 10.0
PAUSES_S = (1.0, 3.0)
"""Seconds before it tries again, where nobody answered, or that may be over in a moment."""

_PASSING = (429, 500, 502, 503, 504)


def body(document: Document, result: Result) -> dict[str, Any]:
    lines = [
        f"*{document.title}*, {document.subtitle}",
        document.in_short(),
    ]
    lines += [
        f"{number}. {step.action}: `{step.command}`" for number, step in enumerate(document.steps, start=1)
    ]
    return {"text": "\n".join(lines), "specops": {"phase": "report", **result.summary}}


def post(url: str, message: Mapping[str, Any], pauses_s: tuple[float, ...] = PAUSES_S) -> None:
    """Raises UsageError for an invalid address, EndpointError where the receiver did not accept it."""
    host = _host(url)
    why = ""
    for pause in (*pauses_s, None):
        try:
            # A redirect would be followed with a GET, and the message lost.
            answer = requests.post(url, json=message, timeout=TIMEOUT_S, allow_redirects=False)
        except requests.Timeout:
            why = f"it did not answer within {TIMEOUT_S:g} s"
        except (requests.RequestException, ValueError) as error:  # urllib3's of a name that cannot be one
            why = f"it could not be reached ({type(error).__name__})"
        else:
            if answer.ok and not answer.is_redirect:
                return
            why = f"it answered {answer.status_code}"
            if answer.status_code not in _PASSING:
                break
        if pause is not None:
            time.sleep(pause)
    raise EndpointError(
        f"could not post the report to the webhook at {host}: {why}; --post, or {WEBHOOK} in the "
        "environment, must be its whole address",
        hint=http_request(f"https://{host}/"),
    )


def _host(url: str) -> str:
    try:
        parts = urlsplit(url)
        if parts.scheme in ("http", "https") and parts.hostname:
            return parts.hostname
    except ValueError:
        pass
    raise UsageError(
        "invalid address of the webhook", hint=f"export {WEBHOOK}=https://hooks.slack.com/services/…"
    )


FOLDER = f"{RENDERED}/schedule"
SECRETS = Path("/etc/specops")


@dataclass(frozen=True)
class WrittenSchedule:
    folder: Path
    names: tuple[str, ...]
    cron_name: str
    calendar: str


def schedule(
    rollout: Rollout, path: Path, folder: Path, when: str, zone: ZoneInfo, now: datetime
) -> WrittenSchedule:
    """Write the files into `folder`/rendered/schedule. The report will be made by this Python, as this user,
    from here, of what the rollout file says by then. Raises UsageError, FileError."""
    day, _, clock = when.rpartition(" ")
    hour, minute = clock.split(":")
    name = f"specops-report-{rollout.rollout}"
    words = [
        sys.executable,
        "-m",
        "specops",
        "report",
        str(path.resolve()),
        "--out",
        str(folder.resolve()),
        "--quiet",
        *(() if zone.key == rollout.report.timezone else ("--tz", zone.key)),
    ]
    if any(not word.isprintable() for word in words):
        raise UsageError(
            "a path has characters that no schedule can carry: expected printable ones",
            hint=f"ls -lb {shlex.quote(str(path.parent))}",
        )
    timer = render.Schedule(
        name=name,
        about=f"Report on speculative decoding: {rollout.rollout}",
        day=day or None,
        hour=int(hour),
        minute=int(minute),
        zone=zone,
        user=getpass.getuser(),
        folder=Path.cwd(),
        command=words,
        environment=SECRETS / f"{rollout.rollout}.env",
    )
    texts = render.files(timer, now)
    write_files(folder / FOLDER, texts)
    return WrittenSchedule(folder / FOLDER, tuple(texts), timer.cron_name, timer.calendar)
