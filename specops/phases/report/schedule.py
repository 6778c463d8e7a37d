"""`specops report schedule`: what has the report made by itself, as files of cron's and systemd's."""

from __future__ import annotations

import getpass
import sys
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

from specops.config import Rollout
from specops.errors import UsageError
from specops.phases.rendered import RENDERED
from specops.render import files as rendered_files
from specops.render import schedule as render

FOLDER = f"{RENDERED}/schedule"
SECRETS = Path("/etc/specops")


@dataclass(frozen=True)
class Scheduled:
    folder: Path
    names: tuple[str, ...]
    cron_name: str
    calendar: str


def schedule(rollout: Rollout, path: Path, folder: Path, at: str, zone: ZoneInfo, now: datetime) -> Scheduled:
    """Write the files into `folder`/rendered/schedule. The report will be made by this Python, as this user,
    from here, of what the rollout file says by then. Raises UsageError, FileError."""
    day, _, clock = at.rpartition(" ")
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
        raise UsageError("a path has characters that no schedule can carry", hint="rename the folder")
    made = render.Schedule(
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
    texts = render.files(made, now)
    rendered_files.write(folder / FOLDER, texts)
    return Scheduled(folder / FOLDER, tuple(texts), made.cron_name, made.calendar)
