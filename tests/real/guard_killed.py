"""A guard killed with -9 before every line of its own that it runs in the turn in which it falls back, and
the one after it. Prints what came of each as JSON.

    python tests/real/guard_killed.py FOLDER

The deployment is a log: what was last set is what it has. So its length is the number of actions.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import specops.guard
from specops.actions.action import Target
from specops.guard.guard import CapacityGate, Guard
from specops.guard.journal import Journal
from specops.guard.lock import locked
from specops.guard.policy import GuardRules
from specops.guard.state import Evaluation
from specops.guard.switch import Switch

OURS = str(Path(specops.guard.__file__).parent)
STORY = ("bad", "bad", "bad", "no_traffic")


class Log(Target):
    name = "log"

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> int:
        return int(self.lines()[-1]) if self._path.exists() else 100

    def set(self, percent: int) -> None:
        with self._path.open("a", buffering=1) as log:
            log.write(f"{percent}\n")

    def lines(self) -> list[str]:
        return self._path.read_text().split()


def play(folder: Path, turns: int, kill_at: int | None = None) -> int:
    """Go on with the story up to its turn `turns`; lines that were run, before one of which it is killed."""
    ran = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal ran
        if not frame.f_code.co_filename.startswith(OURS):
            return None
        if event == "line":
            ran += 1
            if ran == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
        return trace

    with locked(folder):
        clock = iter(range(0, 10**9, 60))
        journal = Journal(folder / "journal.jsonl")
        done = journal.standing.last.id if journal.standing.last else 0

        def observe(now: float, since: float | None, row: object) -> Evaluation:
            at = journal.standing.last.id if journal.standing.last else 0
            return Evaluation(ts=now, verdict=STORY[at], reason="the story")

        guard = Guard(
            rules=GuardRules(cooldown_s=10**6),
            observe=observe,
            switch=Switch([Log(folder / "log")]),
            journal=journal,
            gate=lambda: CapacityGate(reason="not asked"),
            clock=lambda: 1000.0 + next(clock) + 60 * done,
        )
        if kill_at is not None:
            sys.settrace(trace)
        guard.resume()
        for _ in range(turns - done):
            guard.turn()
        sys.settrace(None)
    return ran


def end(folder: Path) -> dict[str, Any]:
    standing = Journal(folder / "journal.jsonl").standing
    return {
        "set": Log(folder / "log").lines(),
        "confirmed": standing.confirmed,
        "state": standing.state.model_dump(),
    }


def main(folder: Path) -> None:
    plain = folder / "plain"
    play(plain, len(STORY))
    ends = []
    for kill_at in range(1, 10**6):
        here = folder / str(kill_at)
        play(here, 2)
        child = os.fork()
        if child == 0:
            play(here, 3, kill_at)
            os._exit(0)
        killed = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        play(here, len(STORY))
        ends.append(end(here))
        if not killed:
            break
    print(json.dumps({"plain": end(plain), "killed": ends}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
