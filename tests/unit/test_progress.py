"""Progress: what a log and a terminal of 80 columns show."""

from __future__ import annotations

import io
import time

import pytest
from rich.console import Console

from specops.cli import progress as module
from specops.cli.progress import _Terminal, progress


def until(condition, seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_log_has_a_line_at_least_every_interval(capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LINE_EVERY_S", 0.05)
    said = ""

    def lines() -> int:
        nonlocal said
        said += capsys.readouterr().err
        return said.count("waiting for the server")

    with progress() as report:
        report.start("waiting for the server", 0)  # nothing advances
        until(lambda: lines() >= 3)
    assert "so far" in said


def test_a_log_says_how_far_it_is_and_what_is_left(capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LINE_EVERY_S", 0.0)
    with progress() as report:
        report.start("measuring", total=8)
        report.request(0.25, 12)
        report.advance(2)
    said = capsys.readouterr().err
    assert "measuring: 2/8, p50 250 ms" in said
    assert "left" in said


def test_a_terminal_without_escape_sequences_gets_the_lines_of_a_log(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module.sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "dumb")
    with progress() as report:
        report.phases({"baseline": None})
        report.phase("baseline", "running")
    assert capsys.readouterr().err == "baseline (1 of 1): running\n"


def test_a_log_names_each_phase_and_its_place(capsys) -> None:
    with progress() as report:
        report.phases({"baseline": None, "ab": None})
        report.phase("baseline", "running")
        report.phase("baseline", "yes", "measured")
        report.phase("ab", "running")
        report.phase("ab", "undecided", "too few prompts")
        report.phase("baseline", "yes", "measured", reused=True)
    assert capsys.readouterr().err.splitlines() == [
        "baseline (1 of 2): running",
        "baseline (1 of 2): passed after 0 s, measured",
        "ab (2 of 2): running",
        "ab (2 of 2): undecided after 0 s, too few prompts",
        "baseline (1 of 2): passed, reused, measured",
    ]


def shown(terminal: _Terminal, console: Console) -> list[str]:
    with console.capture() as captured:
        console.print(terminal._render())
    return [line.rstrip() for line in captured.get().splitlines()]


def test_a_terminal_shows_phases_and_the_step_within_80_columns() -> None:
    console = Console(file=io.StringIO(), width=80, color_system=None)
    terminal = _Terminal(console)
    terminal.phases({"baseline": 30.0, "drafts": 1.0, "sweep": 100.0, "ab": 612.6, "canary": None})
    terminal.phase("baseline", "running")
    terminal.phase("baseline", "yes", "32 requests, p50 412 ms")
    terminal.phase("drafts", "skipped", "which models a pool of engine endpoint serves is not known " * 3)
    terminal.phase("sweep", "running")
    terminal.start("k=3 at 4 streams", 96)
    for _ in range(48):
        terminal.request(0.2, 10)
        terminal.advance()
    lines = shown(terminal, console)
    assert all(len(line) <= 80 for line in lines)
    assert lines[0].startswith("2 of 5 phases, 0 s elapsed")
    assert "left" not in lines[0]  # how long the canary takes is not known
    assert lines[1] == " + baseline     passed             0 s  32 requests, p50 412 ms"
    assert lines[3] == " > sweep        running"
    assert lines[4] == "   ab           next      ~10 min 13 s"
    assert lines[5] == "   canary"
    assert lines[6].startswith("####")
    assert "k=3 at 4 streams   48/96   p50 200 ms" in lines[6]
    assert lines[6].endswith("left")


def test_a_long_label_leaves_room_for_the_figures() -> None:
    console = Console(file=io.StringIO(), width=80, color_system=None)
    terminal = _Terminal(console)
    terminal.start("comparing standard, speculative, and a challenger with a long name", 512)
    terminal.request(1.0, 10)
    terminal.advance(134)
    [line] = shown(terminal, console)
    assert len(line) <= 80
    assert line.startswith("comparing standard, sp")
    assert "…   134/512   p50 1.00 s" in line
    assert line.endswith("left")


def test_the_time_left_is_of_the_phases_to_come() -> None:
    console = Console(file=io.StringIO(), width=80, color_system=None)
    terminal = _Terminal(console)
    terminal.phases({"baseline": 30.0, "ab": 90.0})
    terminal.phase("baseline", "undecided", "too few prompts", reused=True)
    heading, earlier, *_ = shown(terminal, console)
    assert heading == "1 of 2 phases, 0 s elapsed, about 1 min 30 s left"
    assert earlier == " ? baseline     undecided       reused  too few prompts"
    terminal.phase("ab", "no", "slower")
    assert shown(terminal, console)[0] == "2 of 2 phases, 0 s elapsed"


def test_a_run_does_not_end_before_its_current_step() -> None:
    console = Console(file=io.StringIO(), width=80, color_system=None)
    terminal = _Terminal(console)
    terminal.phases({"ab": 40.0})
    terminal.phase("ab", "running")
    terminal.start("standard and speculative", 100)
    terminal.started -= 90.0
    terminal.advance(50)
    heading, _, step = shown(terminal, console)
    assert heading.endswith("about 1 min 30 s left")
    assert step.endswith("1 min 30 s left")


def test_states_are_told_apart_without_colour() -> None:
    marks = [mark for mark, _, _ in module.MARKS.values()]
    assert len(set(marks)) == len(marks)
