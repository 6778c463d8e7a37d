"""The item of the weekly report: a cron job or a systemd timer that fires, and the last report.

A schedule counts where its program is there, where it fires at least every 8 days and where its daemon runs.
Only files that this user may read on this machine are examined: where another machine makes the report, a
person attests it.
"""

from __future__ import annotations

import os
import pwd
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

from cronsim import CronSim, CronSimError

from specops.errors import FileError
from specops.owned_file import read_file
from specops.phases.checklist.evidence import CheckInput, Evidence, ItemDecision, OpenItem, RefusedFile
from specops.phases.report.delivery import FOLDER as RENDERED
from specops.results import Result

REPORTS = "reports"
FRESH = timedelta(days=8)
"""Longest age of a weekly report: the next is due after seven days."""
ANSWER_S = 5.0
DAEMONS = ("cron", "crond", "fcron")
_UTC_TIME = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) UTC")


def _output_of(*words: str) -> str | None:
    """Return what a program prints, in UTC; None where it is missing, fails or takes longer than ANSWER_S."""
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=ANSWER_S, env=os.environ | {"TZ": "UTC"}
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout if done.returncode == 0 else None


def _own_crontab() -> str:
    """Return the crontab of this user; empty without a crontab, or without cron."""
    return _output_of("crontab", "-l") or ""


def _cron_runs() -> bool:
    for name in Path("/proc").glob("[0-9]*/comm"):
        try:
            if name.read_text().strip() in DAEMONS:
                return True
        except OSError:
            continue  # it has ended
    return False


def _timer_runs(timer: Path) -> bool:
    """Return whether systemd waits for the timer, as its own manager says."""
    own = [] if timer.is_relative_to("/etc") else ["--user"]
    return _output_of("systemctl", *own, "is-active", timer.name) is not None


def _calendar(expression: str) -> list[datetime]:
    """The next times of an OnCalendar, in UTC; empty where it has none, or systemd cannot read it."""
    said = _output_of("systemd-analyze", "calendar", "--iterations=10", expression) or ""
    return sorted({datetime.strptime(time, "%Y-%m-%d %H:%M:%S") for time in _UTC_TIME.findall(said)})


@dataclass(frozen=True)
class ScheduleFolders:
    """The folders where a schedule may be, and the programs that carry it out."""

    crontab: Callable[[], str] = _own_crontab
    cron_files: Sequence[Path] = (Path("/etc/crontab"), Path("/etc/cron.d"))
    weekly: Path = Path("/etc/cron.weekly")
    systemd: Sequence[Path] = (Path("/etc/systemd/system"), Path.home() / ".config/systemd/user")
    cron_runs: Callable[[], bool] = _cron_runs
    timer_runs: Callable[[Path], bool] = _timer_runs
    calendar: Callable[[str], Sequence[datetime]] = _calendar


@dataclass(frozen=True)
class FoundSchedule:
    what: str
    file: Path | None
    """None of a user's own crontab, which only cron hands out."""

    problem: str | None = None
    """Why it makes no weekly report all the same."""

    decide: str | None = None
    """The command that solves the problem."""


def weekly_report(look: CheckInput) -> ItemDecision:
    return by(look, ScheduleFolders())


def by(look: CheckInput, places: ScheduleFolders) -> ItemDecision:
    """The item, by what is scheduled in `places` and the last report. Raises OpenItem where nothing is
    scheduled that works, and where the last report is missing, old or not a yes."""
    found = list(scheduled(look.path, places, look.now))
    job = next((one for one in found if one.problem is None), None)
    latest = _latest(look)
    evidence = [] if latest is None else [latest[1]]
    if job is None:
        bad = next(iter(found), None)
        if bad is not None:
            raise OpenItem(f"{bad.what}: {bad.problem}", *evidence, decide=bad.decide)
        raise OpenItem(
            "no cron job and no systemd timer on this machine makes it", *evidence, decide=_install(look)
        )
    path = job.file
    since = datetime.fromtimestamp(path.stat().st_mtime, UTC) if path else look.now
    evidence.insert(0, look.file(path, since, job.what) if path else look.probed("crontab -l", job.what))
    make = look.commands.of("report {rollout}")
    if latest is None:
        if look.now - since > FRESH:
            raise OpenItem(
                f"{job.what}; it is there since {since:%Y-%m-%d}, and no report is in {REPORTS}/",
                *evidence,
                decide=make,
            )
        return ItemDecision(True, f"{job.what}; no report is due yet", tuple(evidence))
    last, shown = latest
    if look.now - last.created > FRESH:
        days = (look.now - last.created).days
        raise OpenItem(
            f"{job.what}; the last report, {shown.source}, is {days} days old", *evidence, decide=make
        )
    if last.verdict != "yes":
        raise OpenItem(
            f"the last report, {shown.source}, is {last.verdict}: {last.reason}", *evidence, decide=make
        )
    return ItemDecision(True, f"{job.what}; the last report is {shown.source}", tuple(evidence))


def _install(look: CheckInput) -> str | None:
    """Return the command that installs the line for cron rendered for this rollout; None where it is not
    rendered yet."""
    lines = [path for path in sorted((look.folder / RENDERED).glob("*")) if not path.suffix]
    mine = (path for path in lines if _cron_jobs_of(path, look.path))
    return next((f"cp {shlex.quote(str(path))} /etc/cron.d/" for path in mine), None)


def _cron_jobs_of(path: Path, rollout: Path) -> bool:
    parsed = jobs(_text(path), with_user=True)
    return any(reports(job.command, rollout, _home(job.user), job.path) for job in parsed)


def _latest(look: CheckInput) -> tuple[Result, Evidence] | None:
    """The last report. Raises RefusedFile for one that is damaged, was changed, or is dated in the future."""
    found: list[tuple[Result, Evidence]] = []
    make = look.commands.of("report {rollout}")
    for path in sorted((look.folder / REPORTS).glob("*.json")):
        try:
            result = look.read(path)
        except FileError as error:
            raise RefusedFile(error.message, change=f"remove {path}", decide=make) from error
        if result.phase == "report":
            evidence = look.file(path, result.created, result.reason)
            look.refuse_future(evidence, make)
            found.append((result, evidence))
    return max(found, key=lambda one: one[0].created, default=None)


def scheduled(rollout: Path, places: ScheduleFolders, now: datetime) -> Iterator[FoundSchedule]:
    """Yield what runs `specops report` for the rollout file, whether it works or not."""
    for file in _files(places.cron_files):
        yield from _cron_jobs(_text(file), file, rollout, places, now)
    yield from _cron_jobs(places.crontab(), None, rollout, places, now)
    for file in _files([places.weekly]):
        if reports(_text(file), rollout, Path("/"), PATH):
            problem = None if os.access(file, os.X_OK) else "it is not executable"
            yield FoundSchedule(
                f"{file} runs every week", file, problem or _no_cron(places), f"chmod +x {file}"
            )
    yield from _timers(rollout, places, now)


def _cron_jobs(
    text: str, file: Path | None, rollout: Path, places: ScheduleFolders, now: datetime
) -> Iterator[FoundSchedule]:
    for job in jobs(text, with_user=file is not None):
        if reports(job.command, rollout, _home(job.user), job.path):
            local = now.astimezone()
            rare = (
                None if fires_within(job.when, FRESH, local) else f"it does not fire every {FRESH.days} days"
            )
            yield FoundSchedule(f"cron runs it: {job.line}", file, rare or _no_cron(places))


def _no_cron(places: ScheduleFolders) -> str | None:
    return None if places.cron_runs() else "no cron daemon runs on this machine"


def _home(user: str | None) -> Path | None:
    """Return where cron begins a job."""
    try:
        return Path.home() if user is None else Path(pwd.getpwnam(user).pw_dir)
    except KeyError:
        return None


def _timers(rollout: Path, places: ScheduleFolders, now: datetime) -> Iterator[FoundSchedule]:
    """Timers whose service runs it. An enabled one is linked from a *.wants folder."""
    for folder in places.systemd:
        for timer in sorted(folder.glob("*.timer")):
            if not _service_reports(_text(timer.with_suffix(".service")), rollout):
                continue
            enable = f"systemctl enable --now {timer.name}"
            problem = None
            if not any(folder.glob(f"*.wants/{timer.name}")):
                problem = f"{timer} is not enabled"
            elif not places.timer_runs(timer):
                problem = "systemd does not run it"
            elif not _fires_weekly(_values(_text(timer), "OnCalendar"), places, now):
                problem, enable = f"its OnCalendar does not fire every {FRESH.days} days", ""
            yield FoundSchedule(f"{timer.name} runs it", timer, problem, enable or None)


def _fires_weekly(expressions: Sequence[str], places: ScheduleFolders, now: datetime) -> bool:
    """Return whether one of the expressions fires at least every 8 days, by its next ten times."""
    start = now.astimezone(UTC).replace(tzinfo=None)
    for expression in expressions:
        times = [start, *(time for time in places.calendar(expression) if time > start)]
        if len(times) > 2 and all(after - at <= FRESH for at, after in pairwise(times)):
            return True
    return False


def _service_reports(text: str, rollout: Path) -> bool:
    folder = Path(next(iter(_values(text, "WorkingDirectory")), "/").replace("%%", "%"))
    for command in _values(text, "ExecStart"):
        try:
            words = shlex.split(command.lstrip("-@:+!"))
        except ValueError:
            continue
        if runs([word.replace("%%", "%").replace("$$", "$") for word in words], rollout, folder, PATH):
            return True
    return False


def _values(unit: str, key: str) -> list[str]:
    return [line.partition("=")[2].strip() for line in unit.splitlines() if line.startswith(f"{key}=")]


def _files(places: Sequence[Path]) -> Iterator[Path]:
    """Files that cron reads: in a folder, no name with a dot, and none that others may write to (cron(8))."""
    for place in places:
        try:
            inside = sorted(place.iterdir()) if place.is_dir() else [place] if place.is_file() else []
        except PermissionError:
            continue
        for file in inside:
            if (file == place or "." not in file.name) and not file.stat().st_mode & 0o022:
                yield file


def _text(path: Path) -> str:
    try:
        return read_file(path).decode(errors="replace")
    except (OSError, FileError):  # not there, no file, or not for this user to read
        return ""


PATH = "/usr/bin:/bin"
"""Path in which cron looks for programs, unless the crontab sets another."""
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
"""Names of days that cronsim knows and cron does not."""
_YEAR = timedelta(days=366)


@dataclass(frozen=True)
class Job:
    line: str
    when: str
    """Five fields, or a nickname such as @weekly."""

    user: str | None
    command: str
    """The command as the shell gets it: up to the first % that is not escaped."""

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
    """Return whether at most `span` lies between now and the first time, and between two times, for a
    year."""
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


SHELLS = ("sh", "bash", "dash")
WRAPPERS = ("chronic", "env", "exec", "flock", "ionice", "nice", "nohup", "setsid", "sudo", "time", "timeout")
"""Programs that run the command that follows."""
ENTRY_POINT_BYTES = 65536
"""How much of a program called specops is read: pip's entry points have some hundred bytes."""
_TOKEN = re.compile(
    r"""[^\S\n]+
    | (?P<comment> (?<![^\s;&|()]) \#[^\n]*)
    | (?P<operator> [;&|()\n]+)
    | (?P<redirection> \d*[<>][<>&|]*)
    | (?P<word> (?: [^\s;&|()<>'"\\] | \\. | '[^']*' | "(?:[^"\\]|\\.)*" )+)
    """,
    re.VERBOSE | re.DOTALL,
)


def reports(script: str, rollout: Path, folder: Path | None, path: str) -> bool:
    """Return whether the shell text `script` runs `specops report` for `rollout`. It begins in `folder`, None
    where that is not known; programs are looked for in `path`. Text that no shell reads makes no report."""
    for condition, words in _commands(script):
        if words[:1] == ["cd"] and len(words) == 2:
            folder = (folder or Path("/")) / words[1] if folder or words[1].startswith("/") else None
        elif condition != "||" and runs(words, rollout, folder, path):
            return True
    return False


def runs(words: Sequence[str], rollout: Path, folder: Path | None, path: str) -> bool:
    """Return whether one program with its arguments runs `specops report` for `rollout`; see `reports`."""
    words = list(words)
    while words and re.match(r"\w+=", words[0]):
        words.pop(0)
    if not words:
        return False
    name = Path(words[0]).name
    if name in SHELLS and "-c" in words[1:-1]:
        return reports(words[words.index("-c") + 1], rollout, folder, path)
    if name in WRAPPERS:
        at = next((i for i, word in enumerate(words) if i and _is_program(words[i:], word)), None)
        return at is not None and runs(words[at:], rollout, folder, path)
    if not _is_program(words, words[0]) or not _exists(words[0], folder, path):
        return False
    arguments = words[1:] if name == "specops" else words[3:]
    return _makes_report(arguments, rollout, folder)


def _is_program(words: Sequence[str], first: str) -> bool:
    name = Path(first).name
    return (
        name == "specops"
        or name in SHELLS
        or (re.fullmatch(r"python[\d.]*", name) is not None and list(words[1:3]) == ["-m", "specops"])
    )


def _exists(program: str, folder: Path | None, path: str) -> bool:
    """Return whether the program is there and may be run; of one called specops, whether it is specops' entry
    point or a script that calls it, and not another program of that name."""
    if "/" not in program:
        found = shutil.which(program, path=path)
        place = Path(found) if found is not None else None
    else:
        place = Path(program) if folder is None else folder / program
    if place is None or not place.is_absolute() or not os.access(place, os.X_OK) or not place.is_file():
        return False
    if place.name != "specops":
        return True
    try:
        with place.open("rb") as file:
            return b"specops" in file.read(ENTRY_POINT_BYTES)
    except OSError:
        return False


def _makes_report(arguments: Sequence[str], rollout: Path, folder: Path | None) -> bool:
    if arguments[:1] != ["report"] or "--help" in arguments or arguments[1:2] == ["schedule"]:
        return False
    return any(_is_rollout(word, rollout, folder) for word in arguments[1:])


def _is_rollout(word: str, rollout: Path, folder: Path | None) -> bool:
    named = Path(word) if folder is None else folder / word
    return named.is_absolute() and named.resolve() == rollout.resolve()


def _commands(script: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each simple command, without its redirections, and the operator before it. Nothing after a quote
    that does not end."""
    before, words, skip, at = "", list[str](), False, 0
    while at < len(script) and (token := _TOKEN.match(script, at)) is not None:
        at = token.end()
        if token["operator"]:
            if words:
                yield before, words
            before, words = token["operator"].strip(), []
        elif token["redirection"]:
            skip = True
        elif token["word"]:
            if not skip and (words or token["word"] not in ("{", "}", "!")):
                words += shlex.split(token["word"])
            skip = False
    if words and at == len(script):
        yield before, words
