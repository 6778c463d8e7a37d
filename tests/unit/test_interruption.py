"""SIGTERM does what Ctrl-C does, in every command; and the command that resumes is printed."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
from pathlib import Path

import pytest
from calling import specops

from specops import results
from specops.cli.interruption import message, sigterm_as_ctrl_c
from specops.errors import ServerError, Stopped
from specops.phases.measurement import Keep, partial_results
from specops.progress import SilentProgress
from specops.results import Result

EXAMINE = "specops.phases.doctor.examine"


def terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def test_sigterm_is_ctrl_c_within_the_block_only() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), sigterm_as_ctrl_c():
        terminate()
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize("ignored", [False, True])
def test_an_event_loop_cancels_its_task_as_by_ctrl_c(ignored: bool) -> None:
    ended = []

    async def work() -> None:
        asyncio.get_running_loop().call_soon(terminate)
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(0)  # what saves partial results may wait as well
            ended.append("saved")
            raise

    before = signal.signal(signal.SIGINT, signal.SIG_IGN if ignored else signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt), sigterm_as_ctrl_c():
            asyncio.run(work())
    finally:
        signal.signal(signal.SIGINT, before)
    assert ended == ["saved"]


def test_sigterm_ends_a_background_job_that_ignores_ctrl_c() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with pytest.raises(KeyboardInterrupt), sigterm_as_ctrl_c():
            terminate()
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_every_command_says_how_to_go_on(
    number: signal.Signals, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "SIGTERM" if number == signal.SIGTERM else "Ctrl-C"
    monkeypatch.setattr(EXAMINE, lambda *_: os.kill(os.getpid(), number))
    done = specops("doctor", "--json")
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.splitlines()[-2:] == [
        f"stopped by {name}; no partial results",
        "start again with: specops doctor --json",
    ]
    monkeypatch.setattr(EXAMINE, lambda *_: signal.raise_signal(signal.SIGINT))
    assert specops("doctor").returncode == 130, "what ended an earlier command does not count"


def test_fresh_is_left_out_where_it_would_discard_partial_results() -> None:
    words = ["sweep", "my rollout.yaml", "--fresh", "--k", "0,3"]
    finished = message(signal.SIGINT, words, Stopped(None, ("baseline", "drafts"), Path("runs/a")))
    assert "results of baseline, drafts are in runs/a" in finished
    assert "partial" not in finished
    assert "--fresh" not in finished
    said = message(signal.SIGTERM, words, Stopped(Path("runs/a/sweep.json")))
    assert said.splitlines() == [
        "stopped by SIGTERM; partial results are in runs/a/sweep.json",
        "resume with: specops sweep 'my rollout.yaml' --k 0,3",
    ]
    again = message(signal.SIGINT, words, KeyboardInterrupt()).splitlines()[-1]
    assert shlex.split(again.removeprefix("start again with: specops ")) == words


def stop(keep: Keep, *kept: Result) -> None:
    for one in kept:
        keep(one)
    raise KeyboardInterrupt


def test_where_partial_results_are(tmp_path: Path) -> None:
    path = tmp_path / "ab.json"
    result = Result(phase="ab", verdict="partial", reason="made up")
    there: list[bool] = []

    def look() -> None:
        there.append(path.exists())

    with (
        pytest.raises(KeyboardInterrupt) as bare,
        partial_results(path, SilentProgress(), before_first=look) as keep,
    ):
        stop(keep)
    assert not isinstance(bare.value, Stopped)
    with (
        pytest.raises(KeyboardInterrupt) as saved,
        partial_results(path, SilentProgress(), before_first=look) as keep,
    ):
        stop(keep, result, result)
    assert (getattr(saved.value, "path", None), there) == (path, [False])
    assert results.read(path).verdict == "partial"
    with (
        pytest.raises(KeyboardInterrupt) as again,
        partial_results(path, SilentProgress(), resumed=True) as keep,
    ):
        stop(keep)
    assert isinstance(again.value, Stopped)
    with pytest.raises(ServerError), partial_results(path, SilentProgress(), resumed=True):
        raise ServerError("it ended")
