"""Whether something makes the weekly report: a cron job, an enabled systemd timer, or a report that is there.

Only what this user may read here is seen: where another machine makes it, its report in the run folder tells.
"""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from specops import results
from specops.errors import SpecopsError
from specops.phases.checklist.evidence import Evidence, Open
from specops.phases.checklist.item import Decided
from specops.phases.checklist.looking import Look

REPORTS = "reports"
FRESH = timedelta(days=8)
"""Of a weekly report: the next is due after seven."""
ANSWER_S = 5.0


def _own_crontab() -> str:
    """Of this user; empty where there is none, or no cron."""
    try:
        asked = subprocess.run(["crontab", "-l"], capture_output=True, text=True, timeout=ANSWER_S)
    except (OSError, subprocess.SubprocessError):
        return ""
    return asked.stdout if asked.returncode == 0 else ""


@dataclass(frozen=True)
class Places:
    """Where a schedule may be."""

    crontab: Callable[[], str] = _own_crontab
    cron_files: Sequence[Path] = (Path("/etc/crontab"), Path("/etc/cron.d"), Path("/etc/cron.weekly"))
    systemd: Sequence[Path] = (Path("/etc/systemd/system"), Path.home() / ".config/systemd/user")


@dataclass(frozen=True)
class Scheduled:
    what: str
    file: Path | None
    """None of a user's own crontab, which only cron hands out."""


def weekly_report(look: Look) -> Decided:
    return by(look, Places())


def by(look: Look, places: Places) -> Decided:
    """The item, by what is scheduled in `places` and the reports that there are."""
    latest = _latest(look)
    fresh = latest is not None and look.now - latest.created <= FRESH
    job = next(scheduled(look.path, places), None)
    evidence = [latest] if latest is not None else []
    if job is not None:
        path = job.file
        when = datetime.fromtimestamp(path.stat().st_mtime, UTC) if path else look.now
        evidence.insert(0, look.file(path, when, job.what) if path else look.probed("crontab -l", job.what))
        return Decided(True, job.what, tuple(evidence))
    if fresh and latest is not None:
        return Decided(True, f"{latest.source} is no older than a week", tuple(evidence))
    idle = next(_timers(look.path, places, enabled=False), None)
    if idle is not None:
        timer = idle.file
        assert timer is not None
        raise Open(f"{timer} is installed, and not enabled", decide=f"systemctl enable --now {timer.name}")
    old = f", and {latest.source} is too old" if latest is not None else f", and no report is in {REPORTS}/"
    raise Open(f"no cron job and no timer here makes it{old}", *evidence)


def _latest(look: Look) -> Evidence | None:
    found: list[Evidence] = []
    for path in sorted((look.folder / REPORTS).glob("*.json")):
        try:
            result = results.read(path)
        except SpecopsError:
            continue  # a damaged one is no report
        if result.phase == "report":
            found.append(look.file(path, result.created, result.reason))
    return max(found, key=lambda one: one.created, default=None)


def scheduled(rollout: Path, places: Places) -> Iterator[Scheduled]:
    """What runs `specops report` for the rollout file, in time."""
    for file in _files(places.cron_files):
        line = _calling(_text(file), rollout)
        if line is not None:
            yield Scheduled(f"cron runs it: {line}", file)
    line = _calling(places.crontab(), rollout)
    if line is not None:
        yield Scheduled(f"cron runs it: {line}", None)
    yield from _timers(rollout, places, enabled=True)


def _timers(rollout: Path, places: Places, *, enabled: bool) -> Iterator[Scheduled]:
    """Timers whose service runs it. An enabled one is linked from a *.wants folder."""
    for folder in places.systemd:
        for timer in sorted(folder.glob("*.timer")):
            if _calling(_text(timer.with_suffix(".service")), rollout) is None:
                continue
            if any(folder.glob(f"*.wants/{timer.name}")) == enabled:
                yield Scheduled(f"{timer.name} runs it", timer)


def _files(places: Sequence[Path]) -> Iterator[Path]:
    """Of a folder, those that cron reads: a name with a dot is none (cron(8), as Debian has it)."""
    for place in places:
        try:
            inside = sorted(place.iterdir()) if place.is_dir() else []
        except PermissionError:
            continue
        yield from (file for file in inside if "." not in file.name)
        if place.is_file():
            yield place


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:  # not there, or not for this user to read
        return ""


def _calling(text: str, rollout: Path) -> str | None:
    """The first line that calls `specops report` with this rollout file; never a comment."""
    for line in text.splitlines():
        if "specops" not in line:
            continue
        words = _words(line)
        if "report" in words and any(_same(word, rollout) for word in words):
            return " ".join(line.split())
    return None


def _words(line: str) -> list[str]:
    """As the shell reads them; none of a line that it does not."""
    try:
        return shlex.split(line, comments=True)
    except ValueError:
        return []


def _same(word: str, rollout: Path) -> bool:
    """A relative path cannot be followed without the folder that the job begins in: the name has to do."""
    named = Path(word)
    if named.name != rollout.name:
        return False
    return named.resolve() == rollout.resolve() if named.is_absolute() else True
