"""What a person says, and what a scheduler does: attestations, cron jobs and timers."""

from __future__ import annotations

import json
import os
import shutil
import sys
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from calling import specops
from hypothesis import given
from hypothesis import strategies as st
from made_checklists import NOW, Made, write

from specops.phases.checklist.evidence import (
    ATTESTATIONS,
    VALID_DAYS,
    CheckInput,
    OpenItem,
    attest,
    latest,
    read,
)
from specops.phases.checklist.report_schedule import (
    FRESH,
    FoundSchedule,
    ScheduleFolders,
    by,
    fires_within,
    scheduled,
)


def test_an_attestation_is_by_name_and_date_and_ends(tmp_path: Path) -> None:
    made = Made(tmp_path)
    attest(made.rollout, made.folder, "runbook-shared", "Kim", "wiki/llm", NOW)
    attest(made.rollout, made.folder, "runbook-shared", "Lee", None, NOW + timedelta(days=1))
    assert [one.by for one in read(made.folder)] == ["Kim", "Lee"]
    last = latest(read(made.folder), "runbook-shared")
    assert last is not None
    assert last.by == "Lee"
    item = made.checked(NOW + timedelta(days=2))[1]["runbook-shared"]
    assert (item.status, item.found) == ("attested", "Lee said so on 2026-11-22")
    item = made.checked(NOW + timedelta(days=VALID_DAYS + 1))[1]["runbook-shared"]
    assert item.status == "open"
    assert "counted until" in item.found


def test_dates_of_an_attestation_are_computed_and_not_read(tmp_path: Path) -> None:
    made = Made(tmp_path)
    attest(made.rollout, made.folder, "runbook-shared", "Kim", None, NOW - timedelta(days=VALID_DAYS - 1))
    assert made.checked()[1]["runbook-shared"].status == "attested"
    path = made.folder / ATTESTATIONS
    kept = json.loads(path.read_text())["attestations"][0]
    old = kept | {"at": "2020-01-01T00:00:00Z", "until": "2099-01-01T00:00:00Z"}
    path.write_text(json.dumps({"attestations": [old]}))
    item = made.checked()[1]["runbook-shared"]
    assert (item.status, "which counted until 2020-03-31" in item.found) == ("open", True)
    path.write_text(json.dumps({"attestations": [kept | {"at": "2031-01-01T00:00:00Z"}]}))
    item = made.checked()[1]["runbook-shared"]
    assert (item.status, "dated 2031-01-01, in the future" in item.found) == ("open", True)


def test_a_comment_in_the_rollout_file_ends_no_attestation_and_a_change_does(tmp_path: Path) -> None:
    made = Made(tmp_path)
    attest(made.rollout, made.folder, "runbook-shared", "Kim", None, NOW)
    made.path.write_text("# the same\n" + made.path.read_text())
    assert made.checked()[1]["runbook-shared"].status == "attested"
    write(tmp_path, peak={"requests_per_s": 2.0})
    assert made.checked()[1]["runbook-shared"].status == "open"


def test_what_is_measured_cannot_be_attested(tmp_path: Path) -> None:
    path = write(tmp_path)

    def asked(item: str, *more: str) -> tuple[int, str]:
        done = specops("checklist", "attest", item, str(path), "--out", str(tmp_path / "run"), *more)
        return done.returncode, done.stderr + done.stdout

    code, said = asked("speedup", "--by", "Kim")
    assert (code, "decided by what is measured" in said) == (2, True)
    code, said = asked("speed-up", "--by", "Kim")
    assert (code, "there is no item" in said, "runbook-shared" in said) == (2, True, True)
    code, said = asked("runbook-shared", "--by", " ")
    assert (code, "--by" in said) == (2, True)
    assert asked("runbook-shared")[0] == 2
    assert not (tmp_path / "run").exists()
    code, said = asked("runbook-shared", "--by", "Kim", "--note", "위키", "--json")
    assert code == 0
    assert json.loads(said)["note"] == "위키"


def test_an_attestation_made_by_hand_overrules_no_measurement(tmp_path: Path) -> None:
    made = Made(tmp_path)
    made.fill()
    made.change("canary", verdict="no")
    attest(made.rollout, made.folder, "canary", "Kim", "it is fine", NOW)
    assert made.checked()[1]["canary"].status == "failed"


def test_damaged_attestations_are_told_and_not_lost(tmp_path: Path) -> None:
    path = write(tmp_path)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ATTESTATIONS).write_text("[]")
    for words in (
        ["checklist", str(path)],
        ["checklist", "attest", "runbook-shared", str(path), "--by", "Kim"],
    ):
        done = specops(*words, "--out", str(tmp_path / "run"))
        assert done.returncode == 3
        assert "attestations.json is damaged" in done.stderr
    assert (tmp_path / "run" / ATTESTATIONS).read_text() == "[]"


WEEKLY = [datetime(2026, 11, 23, 9) + timedelta(weeks=week) for week in range(10)]
MONTHLY = [datetime(2026, 11, 23, 9) + timedelta(days=30 * month) for month in range(10)]


def places(tmp_path: Path, crontab: str = "", **changes: Any) -> ScheduleFolders:
    given: dict[str, Any] = {
        "crontab": lambda: crontab,
        "cron_files": (tmp_path / "crontab", tmp_path / "cron.d"),
        "weekly": tmp_path / "cron.weekly",
        "systemd": (tmp_path / "system",),
        "cron_runs": lambda: True,
        "timer_runs": lambda timer: True,
        "calendar": lambda expression: WEEKLY,
    }
    return ScheduleFolders(**given | changes)


def look(tmp_path: Path, now: datetime = NOW) -> CheckInput:
    made = Made(tmp_path)
    return CheckInput(made.rollout, made.path, made.folder, now)


def found(rollout: Path, where: ScheduleFolders) -> list[FoundSchedule]:
    return list(scheduled(rollout, where, NOW))


def program(tmp_path: Path) -> Path:
    path = tmp_path / "bin" / "specops"
    path.parent.mkdir(exist_ok=True)
    path.write_text('#!/bin/sh\nexec python3 -m specops "$@"\n')
    path.chmod(0o755)
    return path


LINE = "0 9 * * 1 root cd /srv && {specops} report {rollout} --window 7d >> /var/log/specops 2>&1"
RENDERED = (
    "30 8 * * 1 root cd / && "
    "{{ set -a; [ ! -r /x.env ] || . /x.env; set +a; {python} -m specops report {rollout}; }}"
)


@pytest.mark.parametrize(
    ("line", "counts"),
    [
        (LINE, True),
        (RENDERED, True),
        ("#" + LINE, False),
        ("@weekly root {specops} report {rollout}", True),
        ("0 9 * * 1 root {specops} report make {rollout}", True),
        ("0 9 * * 1 root cd {folder} && {specops} report rollout.yaml", True),
        ("0 9 * * 1 root cd /tmp && {specops} report rollout.yaml", False),
        ("0 9 * * 1 root cd {bin} && ./specops report {rollout}", True),
        ("0 9 * * 1 root cd {folder} && ./specops report {rollout}", False),
        ("0 9 * * 1 root {specops} report rollout.yaml", False),  # root's home has none
        ("0 9 * * 1 root nice -n 5 timeout 600 {specops} report {rollout}", True),
        ("0 9 * * 1 root sh -c 'PATH=/bin {specops} report {rollout} | mail ops'", True),
        ("0 9 * * 1 root {specops} report {rollout}  # Kim's", True),
        ("0 9 * * 1 root echo specops report {rollout}", False),
        ("0 9 * * 1 root echo '&&' {specops} report {rollout}", False),
        ("0 9 * * 1 root true || {specops} report {rollout}", False),
        ("0 9 * * 1 root : # && {specops} report {rollout}", False),
        ("0 9 * * 1 root cat > {specops} report {rollout}", False),
        ("0 9 * * 1 root 2>/dev/null {specops} report {rollout}", True),
        ("0 9 * * 1 root {specops} report > {rollout}", False),
        ("0 9 * * 1 root true % {specops} report {rollout}", False),  # what follows a % is input
        ("0 9 * * 1 root {specops} report schedule {rollout}", False),
        ("0 9 * * 1 root {specops} report {rollout} --help", False),
        ("0 9 * * 1 root {specops} checklist {rollout}", False),
        ("0 9 * * 1 root {specops} baseline report {rollout}", False),
        ("0 9 * * 1 root /nowhere/specops report {rollout}", False),
        ("0 9 * * 1 root specops report {rollout}", False),  # not in cron's PATH
        ("PATH={bin}\n0 9 * * 1 root specops report {rollout}", True),
        ("0 9 * * 1 root {specops} report /elsewhere/rollout.yaml", False),
        ("0 9 * * 1 root {specops} report other.yaml", False),
        ("0 9 * * 1 root {specops} report '{rollout}", False),  # a quote that does not end: no shell runs it
    ],
)
def test_a_cron_job_that_makes_this_rollouts_report(line: str, counts: bool, tmp_path: Path) -> None:
    rollout, specops = write(tmp_path), program(tmp_path)
    names = {"rollout": rollout, "specops": specops, "bin": specops.parent, "folder": tmp_path}
    text = f"MAILTO=ops\n{line.format(**names, python=sys.executable)}\n"
    (tmp_path / "cron.d").mkdir()
    (tmp_path / "cron.d" / "specops-report-made").write_text(text)
    (tmp_path / "cron.d" / "specops-report-made").chmod(0o644)
    jobs = found(rollout, places(tmp_path))
    assert [(one.file, one.problem) for one in jobs] == (
        [(tmp_path / "cron.d" / "specops-report-made", None)] if counts else []
    )
    own = found(rollout, places(tmp_path / "none", text.replace(" root ", " ")))
    assert [one.problem for one in own] == ([None] if counts else [])
    if "&&" not in line:  # what follows a command that fails is not known
        with_user = found(rollout, places(tmp_path / "none", text))
        assert not with_user, "a user's own crontab has no column for the user"


@pytest.mark.parametrize(
    ("when", "often"),
    [
        ("0 9 * * 1", True),
        ("0 9 * * MON", True),
        ("*/5 * * * *", True),
        ("0 9 1,8,15,22 * *", False),  # nine or ten days, from the 22nd on
        ("0 9 1,8,15,22,29 * *", True),
        ("0 9 31 2 *", False),
        ("0 9 1 * *", False),
        ("0 9 22 * *", False),  # it is the 21st
        ("0 9 1 * 1", True),  # either day
        ("0 9 * 12 1", False),
        ("0 9 * 11,12 1", False),  # until the year ends
        ("0 9 * * 1#1,1#2,1#3,1#4,1#5", False),  # not of cron's language
        ("0 9 L * *", False),
        ("61 9 * * 1", False),
        ("@weekly", True),
        ("@monthly", False),
        ("@reboot", False),
    ],
)
def test_a_schedule_fires_every_eight_days_the_year_round(when: str, often: bool, tmp_path: Path) -> None:
    assert fires_within(when, FRESH, NOW) == often
    rollout = write(tmp_path)
    job = found(rollout, places(tmp_path, f"{when} {program(tmp_path)} report {rollout}\n"))
    assert [one.problem is None for one in job] == [often]


def test_a_job_that_never_runs_leaves_the_item_open(tmp_path: Path) -> None:
    rollout = write(tmp_path)
    line = f"0 9 * * 1 {program(tmp_path)} report {rollout}"
    assert by(look(tmp_path), places(tmp_path, line)).passed
    for crontab, changes, said in (
        (line, {"cron_runs": lambda: False}, "no cron daemon runs"),
        (line.replace("* * 1", "31 2 *"), {}, "does not fire every 8 days"),
        (line.replace(str(rollout), "x.yaml"), {}, "no cron job and no systemd timer"),
    ):
        with pytest.raises(OpenItem, match=said):
            by(look(tmp_path), places(tmp_path, crontab, **changes))


def test_another_program_of_the_name_makes_no_report(tmp_path: Path) -> None:
    rollout, specops = write(tmp_path), program(tmp_path)
    line = f"0 9 * * 1 {specops} report {rollout}"
    assert found(rollout, places(tmp_path, line))
    own = Path(sys.executable).with_name("specops")
    assert found(rollout, places(tmp_path, line.replace(str(specops), str(own)))), "what pip installed"
    specops.write_text('#!/bin/sh\necho "$@"\n')
    assert not found(rollout, places(tmp_path, line))
    specops.chmod(0o644)
    assert not found(rollout, places(tmp_path, line))


def test_a_file_that_cron_ignores_is_no_schedule(tmp_path: Path) -> None:
    rollout = write(tmp_path)
    (tmp_path / "cron.d").mkdir()
    file = tmp_path / "cron.d" / "report"
    file.write_text(f"0 9 * * 1 root {program(tmp_path)} report {rollout}\n")
    file.chmod(0o664)
    assert not found(rollout, places(tmp_path)), "others may write to it"
    file.chmod(0o644)
    assert found(rollout, places(tmp_path))
    file.rename(file.with_suffix(".bak"))
    assert not found(rollout, places(tmp_path)), "a name with a dot"
    weekly = tmp_path / "cron.weekly" / "report"
    weekly.parent.mkdir()
    weekly.write_text(f"#!/bin/sh\n{program(tmp_path)} report {rollout}\n")
    weekly.chmod(0o644)
    assert [one.problem for one in found(rollout, places(tmp_path))] == ["it is not executable"]
    weekly.chmod(0o755)
    assert [one.problem for one in found(rollout, places(tmp_path))] == [None]


def test_what_report_schedule_renders_is_found_once_it_is_installed(tmp_path: Path) -> None:
    rollout = write(tmp_path)
    done = specops("report", "schedule", str(rollout), "--out", str(tmp_path / "run"), "--quiet")
    assert done.returncode == 0, done.stderr
    rendered = tmp_path / "run" / "rendered" / "schedule"
    assert not found(rollout, places(tmp_path))
    (tmp_path / "cron.d").mkdir()
    shutil.copy(rendered / "specops-report-made", tmp_path / "cron.d")
    assert [one.problem for one in found(rollout, places(tmp_path))] == [None]
    wanted = tmp_path / "system" / "timers.target.wants"
    wanted.mkdir(parents=True)
    for unit in ("specops-report-made.service", "specops-report-made.timer"):
        shutil.copy(rendered / unit, tmp_path / "system")
    (wanted / "specops-report-made.timer").symlink_to(tmp_path / "system" / "specops-report-made.timer")
    assert [one.problem for one in found(rollout, places(tmp_path))] == [None, None]


def test_what_is_rendered_and_not_installed_is_the_command_that_is_next(tmp_path: Path) -> None:
    made = Made(tmp_path)
    with pytest.raises(OpenItem) as before:
        by(look(tmp_path), places(tmp_path))
    assert before.value.decide is None
    done = specops("report", "schedule", str(made.path), "--out", str(made.folder), "--quiet")
    assert done.returncode == 0, done.stderr
    with pytest.raises(OpenItem) as rendered:
        by(look(tmp_path), places(tmp_path))
    line = made.folder / "rendered" / "schedule" / "specops-report-made"
    assert rendered.value.decide == f"cp {line} /etc/cron.d/"


def test_a_timer_counts_once_it_is_enabled_and_runs(tmp_path: Path) -> None:
    rollout = write(tmp_path)
    units = tmp_path / "system"
    (units / "timers.target.wants").mkdir(parents=True)
    timer = units / "specops-report-made.timer"
    timer.write_text("[Timer]\nOnCalendar=Mon 09:00\n")
    timer.with_suffix(".service").write_text(f"[Service]\nExecStart=-{program(tmp_path)} report {rollout}\n")
    with pytest.raises(OpenItem) as idle:
        by(look(tmp_path), places(tmp_path))
    assert idle.value.decide == "systemctl enable --now specops-report-made.timer"
    (units / "timers.target.wants" / timer.name).symlink_to(timer)
    decided = by(look(tmp_path), places(tmp_path))
    assert decided.passed
    assert decided.evidence[0].source == str(timer)
    with pytest.raises(OpenItem, match="systemd does not run it"):
        by(look(tmp_path), places(tmp_path, timer_runs=lambda timer: False))
    for times in (MONTHLY, WEEKLY[3:], []):
        with pytest.raises(OpenItem, match="does not fire every 8 days"):
            by(look(tmp_path), places(tmp_path, calendar=lambda expression, times=times: times))
    timer.with_suffix(".service").write_text(f"[Service]\nExecStart=/bin/echo specops report {rollout}\n")
    with pytest.raises(OpenItem, match="no cron job and no systemd timer"):
        by(look(tmp_path), places(tmp_path))


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_says_when_a_timer_fires() -> None:
    weekly = ScheduleFolders().calendar("Mon *-*-* 09:00:00 Asia/Seoul")
    assert {later - earlier for earlier, later in pairwise(weekly)} == {timedelta(weeks=1)}
    assert {time.hour for time in weekly} == {0}
    assert ScheduleFolders().calendar("*-02-31 09:00:00") == []
    assert ScheduleFolders().calendar("no time") == []


def test_the_last_report_is_looked_at(tmp_path: Path) -> None:
    made = Made(tmp_path)
    job = places(tmp_path, f"0 9 * * 1 {program(tmp_path)} report {made.path}")
    made.put("report", name="reports/2026-11-21")
    with pytest.raises(OpenItem, match="no cron job and no systemd timer"):
        by(look(tmp_path), places(tmp_path))  # a report may be made by hand
    assert by(look(tmp_path, NOW + timedelta(days=7)), job).passed
    with pytest.raises(OpenItem, match="9 days old"):
        by(look(tmp_path, NOW + timedelta(days=9)), job)
    made.put("report", verdict="undecided", name="reports/2026-11-21")
    with pytest.raises(OpenItem, match="is undecided: made up") as undecided:
        by(look(tmp_path), job)
    assert undecided.value.decide == f"specops report {made.path} --out {made.folder}"


def test_a_job_that_is_old_and_made_no_report_does_not_work(tmp_path: Path) -> None:
    rollout = write(tmp_path)
    (tmp_path / "cron.d").mkdir()
    file = tmp_path / "cron.d" / "report"
    file.write_text(f"0 9 * * 1 root {program(tmp_path)} report {rollout}\n")
    for days, passed in ((7, True), (9, False)):
        since = (NOW - timedelta(days=days)).timestamp()
        os.utime(file, (since, since))
        if passed:
            assert "no report is due yet" in by(look(tmp_path), places(tmp_path)).found
        else:
            with pytest.raises(OpenItem, match="and no report is in reports/"):
                by(look(tmp_path), places(tmp_path))


@given(st.text(max_size=200))
def test_no_crontab_is_unreadable(text: str) -> None:
    nowhere = ScheduleFolders(crontab=lambda: text, cron_files=(), weekly=Path("/none"), systemd=())
    assert found(Path("rollout.yaml"), nowhere) == [] or "specops" in text
