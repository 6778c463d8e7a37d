"""Overrides that meet: each other, an action that takes time, a guard that holds the lock, their own end."""

from __future__ import annotations

import json
import os
import shlex
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml
from calling import specops

from specops.config import load
from specops.errors import EnvironmentFailure
from specops.guard.guard import OverrideRequest, Status
from specops.guard.journal import FILE, Journal, history
from specops.guard.lock import locked
from specops.guard.state import Override
from specops.phases import guard as phase
from specops.phases.commands import Commands

ENDPOINT = {"engine": "endpoint", "base_url": "http://127.0.0.1:1/v1", "model": "m"}
SET = """
import sys, time
from pathlib import Path
log, percent, takes_s = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])
with log.open("a") as out:
    print(f"begin {percent}", file=out, flush=True)
    time.sleep(takes_s)
    print(f"end {percent}", file=out, flush=True)
"""
READ = """
import sys
from pathlib import Path
log = Path(sys.argv[1])
lines = log.read_text().splitlines() if log.exists() else []
ended = [line.split()[1] for line in lines if line.startswith("end")]
print(ended[-1] if ended else 100)
"""


class Slow:
    """A rollout that is switched by a command which takes `takes_s` seconds and writes down when it runs."""

    def __init__(self, folder: Path, takes_s: float) -> None:
        self.log, self.file, self.run = folder / "log", folder / "rollout.yaml", folder / "runs" / "r"
        words = [sys.executable, "-c"]
        action = {
            "kind": "command",
            "set": [*words, SET, str(self.log), "{percent}", str(takes_s)],
            "read": [*words, READ, str(self.log)],
        }
        pools = {"standard": ENDPOINT, "speculative": ENDPOINT}
        self.file.write_text(yaml.safe_dump({"rollout": "r", "pools": pools, "guard": {"actions": [action]}}))

    def override(self, pool: str, by: str, minutes: float | None = None) -> Status:
        request = OverrideRequest.model_validate({"pool": pool, "by": by, "why": "so", "minutes": minutes})
        return phase.override(Commands(load(self.file), self.file, self.run), request)

    @property
    def lines(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []


def outcomes(*calls: Callable[[], Status]) -> list[Status | EnvironmentFailure]:
    """Of calls that begin at the same moment."""
    together = threading.Barrier(len(calls))

    def one(call: Callable[[], Status]) -> Status | EnvironmentFailure:
        together.wait()
        try:
            return call()
        except EnvironmentFailure as refused:
            return refused

    with ThreadPoolExecutor(len(calls)) as threads:
        return list(threads.map(one, calls))


@pytest.mark.parametrize("takes_s", [0.0, 1.0])
def test_of_two_overrides_at_once_none_is_lost_in_silence(tmp_path: Path, takes_s: float) -> None:
    """The later one waits a moment for the first, or is refused; commands never run side by side."""
    slow = Slow(tmp_path, takes_s)
    both = outcomes(lambda: slow.override("standard", "ada"), lambda: slow.override("speculative", "ben"))
    done = [one for one in both if isinstance(one, Status)]
    refused = [one for one in both if isinstance(one, EnvironmentFailure)]
    assert len(done) + len(refused) == 2
    assert done
    assert all("another guard" in one.message for one in refused)
    begun = slow.lines[::2]
    assert slow.lines == [line for one in begun for line in (one, one.replace("begin", "end"))]
    journal = Journal(slow.run / "guard" / FILE).standing
    assert journal.state.override is not None
    assert len({entry.id for entry in history(slow.run / "guard" / FILE)}) == len(done)
    wanted = {"standard": 0, "speculative": 100}[journal.state.override.pool]
    assert (journal.confirmed, journal.state.target_percent) == (wanted, wanted)


def test_an_override_while_another_holds_the_lock_is_refused_and_switches_nothing(tmp_path: Path) -> None:
    """A guard that has the lock and serves nowhere, as one that starts or `guard once`; and one that has
    announced an address where it no longer answers."""
    slow = Slow(tmp_path, 0.0)
    words = ["guard", "override", str(slow.file), "standard", "--why", "so"]
    with locked(slow.run / "guard") as lock:
        done = specops(*words)
        assert done.returncode == 3
        assert "another guard of" in done.stderr
        assert f"(pid {os.getpid()})" in done.stderr
        assert f"hint: specops guard status {shlex.quote(str(slow.file))}\n" in done.stderr
        lock.announce("http://127.0.0.1:1")
        gone = specops(*words, "--json")
        assert gone.returncode == 3
        assert "could not send the override to the guard" in json.loads(gone.stdout)["error"]
    assert slow.lines == []
    assert not (slow.run / "guard" / FILE).exists()


def test_an_override_whose_time_is_over_before_it_is_handed_back(tmp_path: Path) -> None:
    """What it switched is found there, and comes back by steps."""
    slow = Slow(tmp_path, 0.0)
    slow.override("standard", "ada", minutes=0.001)
    assert slow.lines[-1] == "end 0"
    threading.Event().wait(0.1)
    after = slow.override("none", "ada")
    assert (after.state.override, after.target_percent) == (None, 5)
    assert slow.lines[-1] == "end 5"


def test_an_override_that_was_cut_off_in_its_action_is_finished_by_the_next(tmp_path: Path) -> None:
    """Its intent is in the journal and its result is not."""
    slow = Slow(tmp_path, 0.0)
    slow.override("standard", "ada")
    path = slow.run / "guard" / FILE
    lines = path.read_text().splitlines()
    path.write_text("\n".join(lines[:-1]) + "\n")  # killed before the result was written
    slow.log.write_text("")  # and before the command did anything
    after = slow.override("standard", "ben")
    assert slow.lines[-1] == "end 0"
    assert after.unconfirmed is None
    assert after.state.override == Override(pool="standard", by="ben", why="so", left_s=None)
