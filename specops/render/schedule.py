"""A weekly or daily command: as a line for cron, and as a systemd service with its timer. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_WEEKS = 53


@dataclass(frozen=True)
class Schedule:
    name: str
    """The name of files, units and log lines."""

    about: str
    day: str | None
    """One of DAYS; None: every day."""

    hour: int
    minute: int
    zone: ZoneInfo
    user: str
    folder: Path
    """The working directory."""

    command: Sequence[str]
    environment: Path
    """A file of NAME=value lines, for secrets. It is optional."""

    @property
    def calendar(self) -> str:
        """The value of systemd's OnCalendar."""
        day = f"{self.day} " if self.day else ""
        return f"{day}*-*-* {self.hour:02}:{self.minute:02}:00 {self.zone.key}"

    @property
    def cron_name(self) -> str:
        """cron ignores files of /etc/cron.d with a dot in their name."""
        return self.name.replace(".", "-")


def files(schedule: Schedule, now: datetime, cron_zone: tzinfo | None = None) -> dict[str, str]:
    """Texts by file name. `cron_zone` is the zone of this machine's cron; None means the system's zone."""
    return {
        schedule.cron_name: cron(schedule, now, cron_zone),
        f"{schedule.name}.service": service(schedule),
        f"{schedule.name}.timer": timer(schedule),
    }


def cron(schedule: Schedule, now: datetime, cron_zone: tzinfo | None = None) -> str:
    """A file for /etc/cron.d. cron uses the machine's zone, and Debian's cron has no CRON_TZ: the time is
    converted with today's offset. If summer time moves it, a comment in the file says so."""
    times = [_cron_time(occurrence, cron_zone) for occurrence in _occurrences(schedule, now)]
    hour, minute, day = times[0]
    field = "*" if schedule.day is None else str(day)
    env = shlex.quote(str(schedule.environment))
    secrets = f"set -a; [ ! -r {env} ] || . {env}; set +a"
    run = f"cd {shlex.quote(str(schedule.folder))} && {{ {secrets}; {shlex.join(schedule.command)}; }}"
    lines = [
        f"# {schedule.about}",
        f"# Into /etc/cron.d, as {schedule.cron_name}: a name with a dot is ignored.",
        f"# Secrets, as NAME=value lines: {schedule.environment}.",
        f"# cron goes by this machine's clock: {_words(schedule)} is {hour:02}:{minute:02} here.",
    ]
    if len(set(times)) > 1:
        lines.append(
            "# Summer time moves it by up to an hour for a part of the year; the systemd timer stays."
        )
    lines += [
        "SHELL=/bin/sh",
        f"{minute} {hour} * * {field} {schedule.user} {run.replace('%', chr(92) + '%')}",
    ]
    return "\n".join(lines) + "\n"


def _words(schedule: Schedule) -> str:
    return f"{schedule.day or 'daily'} {schedule.hour:02}:{schedule.minute:02} {schedule.zone.key}"


def _occurrences(schedule: Schedule, now: datetime) -> list[datetime]:
    """The next occurrence, and one a week for a year."""
    local = now.astimezone(schedule.zone)
    today = local.replace(hour=schedule.hour, minute=schedule.minute, second=0, microsecond=0)
    ahead = 1 if schedule.day is None else (DAYS.index(schedule.day) - today.weekday()) % 7
    first = today + timedelta(days=ahead)
    return [first + timedelta(weeks=week) for week in range(_WEEKS)]


def _cron_time(occurrence: datetime, cron_zone: tzinfo | None) -> tuple[int, int, int]:
    """Hour, minute, and cron's day of the week (Sunday is 0)."""
    # Through UTC: two times of one zone are otherwise taken to be of one clock.
    cron_time = occurrence.astimezone(ZoneInfo("UTC")).astimezone(cron_zone)
    return cron_time.hour, cron_time.minute, cron_time.isoweekday() % 7


def service(schedule: Schedule) -> str:
    command = " ".join(_word(word) for word in schedule.command)
    return f"""# {schedule.about}
# Into /etc/systemd/system, with its timer. Secrets, as NAME=value lines: {schedule.environment}.
[Unit]
Description={_percent(schedule.about)}
Wants=network-online.target
After=network-online.target

[Service]
Type=oneshot
User={schedule.user}
WorkingDirectory={_percent(str(schedule.folder))}
EnvironmentFile=-{_percent(str(schedule.environment))}
ExecStart={command}
"""


def timer(schedule: Schedule) -> str:
    return f"""# systemctl enable --now {schedule.name}.timer; systemctl list-timers shows when it is next.
[Unit]
Description={_percent(schedule.about)}, at {_words(schedule)}

[Timer]
OnCalendar={schedule.calendar}
# A run is made up for where the machine was off.
Persistent=true

[Install]
WantedBy=timers.target
"""


def _word(word: str) -> str:
    """A word of a systemd command line. systemd expands %, $ and backslashes also within quotes."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return escaped if shlex.quote(word) == word else f'"{escaped}"'


def _percent(text: str) -> str:
    return text.replace("%", "%%")
