"""What a person says, and the last weekly report."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest
from calling import specops
from made_checklists import NOW, Made, write

from specops import results
from specops.phases.checklist.evidence import (
    ATTESTATIONS,
    VALID_DAYS,
    CheckInput,
    ItemDecision,
    OpenItem,
    RefusedFile,
    attest,
    latest,
    read,
)
from specops.phases.checklist.items import weekly_report


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


def weekly(made: Made, days: float = 0) -> ItemDecision:
    return weekly_report(CheckInput(made.rollout, made.path, made.folder, NOW + timedelta(days=days)))


def test_the_last_report_decides(tmp_path: Path) -> None:
    made = Made(tmp_path)
    with pytest.raises(OpenItem, match="no report is in reports/"):
        weekly(made)
    made.put("baseline", name="reports/2026-11-21")
    with pytest.raises(OpenItem, match="no report is in reports/"):
        weekly(made)
    made.put("report", name="reports/2026-11-20")
    decided = weekly(made, days=7)
    assert decided.passed
    assert decided.reason == "the last report is reports/2026-11-20.json"
    with pytest.raises(OpenItem, match=r"reports/2026-11-20\.json, is 9 days old \(at most 8\)"):
        weekly(made, days=9)
    made.put("report", verdict="undecided", name="reports/2026-11-20")
    with pytest.raises(OpenItem, match="is undecided: made up") as undecided:
        weekly(made)
    assert undecided.value.decide == f"specops report {made.path} --out {made.folder}"


def test_of_two_reports_the_newer_decides(tmp_path: Path) -> None:
    made = Made(tmp_path)
    made.put("report", name="reports/a")
    path = made.folder / "reports" / "z.json"
    results.write(
        path,
        results.read(made.folder / "reports" / "a.json").model_copy(
            update={"created": NOW - timedelta(days=30), "verdict": "no"}
        ),
    )
    assert weekly(made).reason == "the last report is reports/a.json"


@pytest.mark.parametrize(
    ("text", "message"), [("{", "damaged"), ('{"phase": "report"}', "damaged"), ("", "damaged")]
)
def test_a_damaged_report_is_refused(text: str, message: str, tmp_path: Path) -> None:
    made = Made(tmp_path)
    path = made.folder / "reports" / "2026-11-21.json"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    with pytest.raises(RefusedFile, match=message) as refused:
        weekly(made)
    assert refused.value.change == f"remove {path}"


def test_an_old_report_can_be_attested(tmp_path: Path) -> None:
    made = Made(tmp_path)
    made.put("report", name="reports/2026-11-21")
    later = NOW + timedelta(days=20)
    item = made.checked(later)[1]["weekly-report-scheduled"]
    assert (item.status, item.decide) == (
        "open",
        f"specops report schedule {made.path} --out {made.folder}",
    )
    attest(made.rollout, made.folder, "weekly-report-scheduled", "Kim", "made elsewhere", later)
    assert made.checked(later)[1]["weekly-report-scheduled"].status == "attested"
