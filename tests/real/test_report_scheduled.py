"""What `report schedule` renders, by the real tools: systemd reads the units, and cron runs the line."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from backfilled import Pool, remembering
from calling import specops
from daemons import Daemon, program, wait_until

NAME, BEGUN = "by.itself", "begun"
SEOUL = ZoneInfo("Asia/Seoul")
POOLS = {
    name: {"engine": "endpoint", "base_url": f"http://{name}:8000/v1", "model": "m"}
    for name in ("standard", "speculative")
}


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """It knows the hour before this one; of a second rollout, the last half hour."""
    pools = [Pool(NAME, past_s=3 * 3600, every_s=60), Pool(BEGUN, past_s=1800)]
    with remembering(pools, tmp_path_factory.mktemp("prometheus")) as up:
        yield up


def test_before_a_full_hour_the_first_report_is_announced(prometheus: Daemon, tmp_path: Path) -> None:
    path = tmp_path / "rollout.yaml"
    addresses = {"prometheus": prometheus.url}
    path.write_text(json.dumps({"rollout": BEGUN, "pools": POOLS, "addresses": addresses}))
    began = datetime.now(UTC) - timedelta(seconds=1800)
    before = began.replace(minute=0, second=0, microsecond=0)
    done = specops(
        "report", str(path), "--window", "1h", "--end", before.isoformat(), "--out", str(tmp_path), "--quiet"
    )
    assert done.returncode == 4, done.stderr
    first = before + timedelta(hours=1)
    assert f"The first report is possible at {first:%Y-%m-%d %H:%M} UTC: specops report {path}" in done.stdout


def scheduled(folder: Path, at: str, prometheus: str | None = None) -> Path:
    """The rendered files, of a rollout in a folder whose name a shell and cron would read otherwise."""
    folder = folder / "it's 50% off"
    folder.mkdir()
    where = {"prometheus": prometheus} if prometheus else {}
    made = {"rollout": NAME, "pools": POOLS, "addresses": where, "report": {"window": "1h", "at": at}}
    (folder / "rollout.yaml").write_text(json.dumps(made))
    done = specops(
        "report", "schedule", str(folder / "rollout.yaml"), "--tz", SEOUL.key, "--out", str(folder)
    )
    assert done.returncode == 0, done.stderr
    return folder / "rendered" / "schedule"


def test_systemd_takes_the_units(tmp_path: Path) -> None:
    made = scheduled(tmp_path, "Mon 09:00")
    units = [made / f"specops-report-{NAME}.{kind}" for kind in ("service", "timer")]
    analyze = program("systemd-analyze")
    done = subprocess.run([analyze, "verify", "--man=no", *map(str, units)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "specops-report" not in done.stderr  # it complains of what it does not know, and returns 0


def test_systemd_reads_the_calendar_as_meant(tmp_path: Path) -> None:
    text = (scheduled(tmp_path, "Mon 09:00") / f"specops-report-{NAME}.timer").read_text()
    (calendar,) = [line.partition("=")[2] for line in text.splitlines() if line.startswith("OnCalendar=")]
    said = subprocess.run(
        [program("systemd-analyze"), "calendar", "--iterations=3", calendar],
        capture_output=True, text=True, check=True, env={**os.environ, "TZ": "UTC", "LC_ALL": "C"},
    ).stdout  # fmt: skip
    elapses = [
        line.partition(": ")[2].strip() for line in said.splitlines() if "(in UTC)" in line or "UTC" in line
    ]
    nexts = [datetime.strptime(each, "%a %Y-%m-%d %H:%M:%S UTC") for each in elapses if each.endswith("UTC")]
    assert nexts
    for each in nexts:
        there = each.replace(tzinfo=UTC).astimezone(SEOUL)
        assert (there.weekday(), there.hour, there.minute) == (0, 9, 0)


@pytest.mark.slow
def test_cron_leaves_a_report(prometheus: Daemon, tmp_path: Path) -> None:
    """A cron of its own: its folders are in a mount namespace, so that the machine's jobs are not run."""
    cron = program("cron")
    if os.geteuid() != 0 or not _may_unshare():
        pytest.skip("cron runs jobs of /etc/cron.d as root, in a mount namespace")
    soon = datetime.now(SEOUL) + timedelta(seconds=65)  # the minute after this one, or the next
    made = scheduled(tmp_path, f"{soon:%a %H:%M}", prometheus.url)
    reports = made.parents[1] / "reports"
    private = tmp_path / "private"
    for name in ("cron.d", "spool", "run"):
        (private / name).mkdir(parents=True)
    (private / "crontab").touch()
    line = private / "cron.d" / "specops-report-by-itself"
    shutil.copy(made / line.name, line)
    line.chmod(0o644)
    mounts = {"cron.d": "/etc/cron.d", "crontab": "/etc/crontab", "spool": "/var/spool/cron", "run": "/run"}
    hide = " && ".join(f"mount --bind {private / name} {there}" for name, there in mounts.items())
    with (tmp_path / "cron.log").open("wb") as log:
        up = subprocess.Popen(
            ["unshare", "--mount", "sh", "-c", f"{hide} && exec {cron} -f -L 15"],
            stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    try:
        wait_until(
            lambda: list(reports.glob("*.html")) or up.poll() is not None, "cron to make a report", 100
        )
    finally:
        os.killpg(up.pid, signal.SIGTERM)
        up.wait(10)
    (found,) = reports.glob("*.json")
    kept = json.loads(found.read_text())
    assert kept["verdict"] == "yes"
    assert kept["data"]["pools"]["speculative"]["acceptance"]["rate"] == pytest.approx(0.7, abs=0.01)


def _may_unshare() -> bool:
    return subprocess.run([program("unshare"), "--mount", "true"], capture_output=True).returncode == 0
