"""Lines of a crontab, and how often they fire. Pure; as Debian's cron reads them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from cronsim import CronSim, CronSimError

PATH = "/usr/bin:/bin"
"""In which cron looks for programs, unless the crontab sets another."""
NICKNAMES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_SETTING = re.compile(r"""\s*(["']?)(\w+)\1\s*=\s*(["']?)(.*?)\3\s*$""")
_NOT_CRON = re.compile(r"#|L$|LW", re.IGNORECASE)
"""Of days, what cronsim knows and cron does not."""
_YEAR = timedelta(days=366)


@dataclass(frozen=True)
class Job:
    line: str
    when: str
    """Five fields, or a nickname such as @weekly."""

    user: str | None
    command: str
    """As the shell gets it: up to the first % that is not escaped."""

    path: str


def jobs(text: str, *, with_user: bool) -> Iterator[Job]:
    """The jobs of a crontab. `with_user`: a user follows the time, as in /etc/crontab and /etc/cron.d."""
    path = PATH
    for line in text.splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        setting = _SETTING.match(line)
        if setting is not None:
            path = setting[4] if setting[2] == "PATH" else path
            continue
        fields = 1 if line.lstrip().startswith("@") else 5
        words = line.split(None, fields + with_user)
        if len(words) <= fields + with_user:
            continue
        command = re.split(r"(?<!\\)%", words[-1])[0].replace("\\%", "%")
        user = words[fields] if with_user else None
        yield Job(" ".join(line.split()), " ".join(words[:fields]), user, command, path)


def fires_within(when: str, span: timedelta, now: datetime) -> bool:
    """Whether at most `span` lies between now and the first time, and between two times, for a year."""
    expression = NICKNAMES.get(when.lower(), when)
    days = expression.split()[2::2]
    if any(_NOT_CRON.search(field) for field in days):
        return False
    at = now.replace(tzinfo=None, second=0, microsecond=0)
    end = at + _YEAR
    try:
        while at < end:
            last = next(CronSim(expression, at + span + timedelta(minutes=1), reverse=True), None)
            if last is None or last <= at:
                return False
            at = last
    except CronSimError:
        return False
    return True
