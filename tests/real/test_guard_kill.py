"""A guard that is killed with -9: the next one ends where it would have ended, and nothing is done twice."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from daemons import wait_until
from guarded import deployment

from specops.actions import command
from specops.guard.journal import FILE, history, read

KILLED = Path(__file__).parent / "guard_killed.py"
SLOW = """
import sys, time
from pathlib import Path
with open(sys.argv[1], "a") as log: log.write("begins\\n")
deadline = time.monotonic() + 30
while not Path(sys.argv[1] + ".go").exists() and time.monotonic() < deadline: time.sleep(0.01)
with open(sys.argv[1], "a") as log: log.write(sys.argv[2] + "\\n")
"""
LAST = "import sys; print(([100] + [int(x) for x in open(sys.argv[1]) if x != 'begins\\n'])[-1])"


@pytest.mark.slow
def test_before_every_line_between_deciding_and_recording(tmp_path) -> None:
    done = subprocess.run(
        [sys.executable, str(KILLED), str(tmp_path)], capture_output=True, text=True, timeout=100, check=True
    )
    found = json.loads(done.stdout)
    assert found["plain"]["set"] == ["0"], "one action"
    assert found["plain"]["state"]["mode"] == "fallen"
    assert len(found["killed"]) > 150, "lines of the guard's own"
    assert all(end == found["plain"] for end in found["killed"])


def test_a_command_goes_on_without_its_guard_and_the_next_one_waits_for_it(tmp_path, monkeypatch) -> None:
    log, go = tmp_path / "log", tmp_path / "log.go"

    class Waiting:
        """The clock of the guard that waits: as soon as it does, the command may end."""

        monotonic = staticmethod(time.monotonic)

        @staticmethod
        def sleep(seconds: float) -> None:
            go.touch()
            time.sleep(seconds)

    log.touch()
    action = {
        "kind": "command",
        "set": [sys.executable, "-c", SLOW, str(log), "{percent}"],
        "read": [sys.executable, "-c", LAST, str(log)],
    }
    up = deployment(tmp_path / "up", addresses={"routers": []}, guard={"actions": [action]})
    words = [sys.executable, "-m", "specops", "guard", "override", str(up.file), "standard"]
    words += ["--why", "so", "--by", "ada", "--out", str(up.run)]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as killed:
        wait_until(lambda: "begins" in log.read_text(), "the command to begin", 30)
        killed.send_signal(signal.SIGKILL)
    assert read(up.run / "guard" / FILE).confirmed is None, "an intent without a result"
    monkeypatch.setattr(command, "time", Waiting)
    again = up.specops("override", "standard", "--why", "so", "--by", "ada")
    assert again.returncode == 0, again.stderr
    assert go.exists(), "it waited"
    assert log.read_text().split() == ["begins", "0"], "once"
    entries = list(history(up.run / "guard" / FILE))
    assert [(entry.id, entry.result and entry.result.outcome) for entry in entries] == [
        (1, None),
        (1, "done"),
    ]


def test_a_torn_line_is_what_was_never_done(tmp_path) -> None:
    flag = {"kind": "flag_file", "path": str(tmp_path / "flag")}
    up = deployment(tmp_path / "up", addresses={"routers": []}, guard={"actions": [flag]})
    first = up.specops("override", "standard", "--why", "so", "--by", "ada")
    assert first.returncode == 0, first.stderr
    with (up.run / "guard" / FILE).open("ab") as journal:
        journal.write(b'{"ts": 1, "id": 2, "verd')
    second = up.specops("override", "none", "--why", "so", "--by", "ada")
    assert second.returncode == 0, second.stderr
    assert json.loads((tmp_path / "flag").read_text()) == {"speculative_percent": 100}
    assert time.time() - read(up.run / "guard" / FILE).last.ts < 60  # type: ignore[union-attr]
