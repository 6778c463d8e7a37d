"""What a person says, and what a scheduler does: attestations, cron jobs and timers."""

from __future__ import annotations

import json
import shutil
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from calling import specops
from hypothesis import given
from hypothesis import strategies as st
from made_checklists import NOW, Made, write

from specops.phases.checklist.attestations import FILE, VALID_DAYS, attest, latest, read
from specops.phases.checklist.evidence import Open
from specops.phases.checklist.item import Decided
from specops.phases.checklist.looking import Look
from specops.phases.checklist.scheduled import Places, by, scheduled


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
    (tmp_path / "run" / FILE).write_text("[]")
    for words in (
        ["checklist", str(path)],
        ["checklist", "attest", "runbook-shared", str(path), "--by", "Kim"],
    ):
        done = specops(*words, "--out", str(tmp_path / "run"))
        assert done.returncode == 3
        assert "attestations.json is damaged" in done.stderr
    assert (tmp_path / "run" / FILE).read_text() == "[]"


def places(tmp_path: Path, crontab: str = "") -> Places:
    return Places(
        crontab=lambda: crontab,
        cron_files=(tmp_path / "crontab", tmp_path / "cron.d"),
        systemd=(tmp_path / "system",),
    )


def look(tmp_path: Path, now: datetime = NOW) -> Look:
    made = Made(tmp_path)
    return Look(made.rollout, made.path, made.folder, now)


LINE = "0 9 * * 1 root cd /srv && /opt/specops report {rollout} --window 7d >> /var/log/specops 2>&1"


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (LINE, True),
        ("0 9 * * 1 specops report rollout.yaml", True),  # relative to where the job begins
        ("#" + LINE, False),
        ("0 9 * * 1 root specops baseline {rollout}", False),
        ("0 9 * * 1 root specops report /elsewhere/rollout.yaml", False),
        ("0 9 * * 1 root specops report other.yaml", False),
        ("0 9 * * 1 root specops report '{rollout}", False),  # a quote that does not end: no shell runs it
        ("0 9 * * 1 root specops report {rollout}  # Kim's", True),
    ],
)
def test_a_cron_job_for_this_rollout_is_found_wherever_it_is(line: str, found: bool, tmp_path: Path) -> None:
    rollout = write(tmp_path)
    text = f"MAILTO=ops\n{line.replace('{rollout}', str(rollout))}\n"
    assert bool(list(scheduled(rollout, places(tmp_path, crontab=text)))) == found
    (tmp_path / "cron.d").mkdir()
    (tmp_path / "cron.d" / "specops-report-made").write_text(text)
    seen = list(scheduled(rollout, places(tmp_path)))
    assert [one.file for one in seen] == ([tmp_path / "cron.d" / "specops-report-made"] if found else [])


def test_what_report_schedule_renders_is_found_once_it_is_installed(tmp_path: Path) -> None:
    rollout = write(tmp_path)
    done = specops("report", "schedule", str(rollout), "--out", str(tmp_path / "run"), "--quiet")
    assert done.returncode == 0, done.stderr
    rendered = tmp_path / "run" / "rendered" / "schedule"
    assert not list(scheduled(rollout, places(tmp_path)))
    (tmp_path / "cron.d").mkdir()
    shutil.copy(rendered / "specops-report-made", tmp_path / "cron.d" / "specops-report-made.bak")
    assert not list(scheduled(rollout, places(tmp_path)))  # cron does not read a name with a dot
    shutil.copy(rendered / "specops-report-made", tmp_path / "cron.d")
    assert len(list(scheduled(rollout, places(tmp_path)))) == 1
    wanted = tmp_path / "system" / "timers.target.wants"
    wanted.mkdir(parents=True)
    for unit in ("specops-report-made.service", "specops-report-made.timer"):
        shutil.copy(rendered / unit, tmp_path / "system")
    (wanted / "specops-report-made.timer").symlink_to(tmp_path / "system" / "specops-report-made.timer")
    assert len(list(scheduled(rollout, places(tmp_path)))) == 2


def test_a_timer_counts_once_it_is_enabled(tmp_path: Path) -> None:
    rollout = write(tmp_path)
    units = tmp_path / "system"
    (units / "timers.target.wants").mkdir(parents=True)
    timer = units / "specops-report-made.timer"
    timer.write_text("[Timer]\nOnCalendar=Mon 09:00\n")
    timer.with_suffix(".service").write_text(f"[Service]\nExecStart=/opt/specops report {rollout}\n")
    with pytest.raises(Open) as idle:
        by(look(tmp_path), places(tmp_path))
    assert idle.value.decide == "systemctl enable --now specops-report-made.timer"
    (units / "timers.target.wants" / timer.name).symlink_to(timer)
    decided = by(look(tmp_path), places(tmp_path))
    assert decided.passed
    assert decided.evidence[0].source == str(timer)


def test_a_report_counts_until_the_next_is_overdue(tmp_path: Path) -> None:
    made = Made(tmp_path)
    made.put("report", name="reports/2026-11-21")
    decided: Decided = by(look(tmp_path, NOW + timedelta(days=7)), places(tmp_path))
    assert decided.passed
    with pytest.raises(Open) as old:
        by(look(tmp_path, NOW + timedelta(days=9)), places(tmp_path))
    assert "too old" in old.value.why


@given(st.text(max_size=200))
def test_no_crontab_is_unreadable(text: str) -> None:
    nowhere = Places(crontab=lambda: text, cron_files=(), systemd=())
    assert list(scheduled(Path("rollout.yaml"), nowhere)) == [] or "specops" in text
