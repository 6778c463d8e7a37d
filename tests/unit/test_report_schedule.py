"""The cron line and the units: times converted, words quoted, and summer time told of."""

from __future__ import annotations

import shlex
import subprocess
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from calling import specops
from hypothesis import given
from hypothesis import strategies as st

from specops.render.schedule import DAYS, Schedule, cron, service, timer

NOW = datetime(2026, 11, 22, 3, 41, tzinfo=UTC)
SEOUL, BERLIN, NEW_YORK = ZoneInfo("Asia/Seoul"), ZoneInfo("Europe/Berlin"), ZoneInfo("America/New_York")
POOLS = "{standard: {engine: embedded}, speculative: {engine: embedded, speculation: {tree: 'ngram:4'}}}"
MADE = Schedule(
    name="specops-report-v1.2", about="Report", day="Mon", hour=9, minute=0, zone=SEOUL, user="ops",
    folder=Path("/srv/a b"), command=("/usr/bin/python3", "-m", "specops", "report", "/srv/100%/r.yaml"),
    environment=Path("/etc/specops/v1.2.env"),
)  # fmt: skip


def line(text: str) -> tuple[list[str], str]:
    """The five fields and the user; and what the shell gets, as cron hands it over."""
    (found,) = [each for each in text.splitlines() if not each.startswith(("#", "SHELL="))]
    *fields, command = found.split(" ", 6)
    return fields, command.replace(r"\%", "%")


def test_the_time_is_converted_to_the_machines_zone() -> None:
    assert line(cron(MADE, NOW, ZoneInfo("UTC")))[0] == ["0", "0", "*", "*", "1", "ops"]
    assert line(cron(MADE, NOW, NEW_YORK))[0] == ["0", "19", "*", "*", "0", "ops"]  # Sunday evening
    assert line(cron(replace(MADE, day=None), NOW, BERLIN))[0] == ["0", "1", "*", "*", "*", "ops"]


@pytest.mark.parametrize(
    ("zone", "here", "said"),
    [(SEOUL, "UTC", False), (BERLIN, "Europe/Berlin", False), (SEOUL, "Europe/Berlin", True),
     (BERLIN, "UTC", True)],
)  # fmt: skip
def test_summer_time_that_moves_it_is_said(zone: ZoneInfo, here: str, said: bool) -> None:
    text = cron(replace(MADE, zone=zone), NOW, ZoneInfo(here))
    assert ("Summer time" in text) == said


def test_no_name_in_cron_has_a_dot() -> None:
    assert MADE.cron_name == "specops-report-v1-2"


@given(st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1, max_size=12))
def test_a_shell_gets_the_words_as_they_are(word: str) -> None:
    made = replace(MADE, folder=Path("/"), command=("printf", "%s", word))
    text = cron(made, NOW, ZoneInfo("UTC"))
    assert "%" not in text.splitlines()[-1].replace(r"\%", "")
    inner = line(text)[1].partition("{ ")[2].rpartition("; }")[0].rpartition("set +a; ")[2]
    assert shlex.split(inner) == ["printf", "%s", word]


def test_a_real_shell_reads_the_environment_and_runs_it(tmp_path: Path) -> None:
    secrets = tmp_path / "it's.env"
    secrets.write_text("TOLD='a secret'\n")
    made = replace(MADE, folder=tmp_path, command=("printenv", "TOLD"), environment=secrets)
    said = ["/bin/sh", "-c", line(cron(made, NOW))[1]]
    assert subprocess.run(said, capture_output=True, text=True, check=True).stdout == "a secret\n"


def test_systemd_gets_percent_and_dollar_doubled() -> None:
    made = replace(MADE, command=("/bin/echo", "100%", "$HOME", 'a "b" \\c'))
    assert 'ExecStart=/bin/echo 100%% "$$HOME" "a \\"b\\" \\\\c"' in service(made)
    assert "OnCalendar=Mon *-*-* 09:00:00 Asia/Seoul\n" in timer(made)
    assert "OnCalendar=*-*-* 09:00:00 Asia/Seoul\n" in timer(replace(made, day=None))


@given(st.sampled_from(DAYS), st.integers(0, 23), st.sampled_from(["UTC", "Asia/Seoul", "Asia/Kolkata"]))
def test_it_is_the_same_instant_by_either_clock(day: str, hour: int, here: str) -> None:
    """Between zones without summer time."""
    fields, _ = line(cron(replace(MADE, day=day, hour=hour), NOW, ZoneInfo(here)))
    local = NOW.astimezone(ZoneInfo(here)).replace(hour=int(fields[1]), minute=int(fields[0]))
    local += timedelta(days=(int(fields[4]) - local.isoweekday()) % 7)
    asked = local.astimezone(SEOUL)
    assert (DAYS[asked.weekday()], asked.hour, asked.minute) == (day, hour, 0)


def test_the_command_writes_all_three_and_installs_nothing(tmp_path: Path) -> None:
    path = tmp_path / "rollout.yaml"
    path.write_text(f"rollout: v1.2\npools: {POOLS}\n")
    done = specops(
        "report", "schedule", str(path), "--at", "Fri 17:30", "--tz", "Asia/Seoul", "--out", str(tmp_path)
    )
    assert done.returncode == 0, done.stderr
    made = tmp_path / "rendered" / "schedule"
    names = ["specops-report-v1-2", "specops-report-v1.2.service", "specops-report-v1.2.timer"]
    assert sorted(each.name for each in made.iterdir()) == names
    assert "Fri *-*-* 17:30:00 Asia/Seoul" in done.stdout
    assert all("--tz Asia/Seoul" in (made / name).read_text() for name in names[:2])  # its days, too
    for wrong in ("noon", "Mon 24:00", "Mon  09:00", "09:60"):
        refused = specops("report", "schedule", str(path), "--at", wrong, "--out", str(tmp_path))
        assert refused.returncode == 2
        assert "invalid time of a week" in refused.stderr
