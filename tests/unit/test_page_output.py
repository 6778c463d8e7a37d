"""Pages on a terminal: folded at words, lines to paste whole, verdicts in colour unless NO_COLOR."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys

import pytest

from specops.cli.output import coloured, folded

CODE = """
from specops.cli.output import print_lines
print_lines(["  baseline     passed     measured 256 requests in 4 cells and many words more than fit",
            "next: specops run a/very/long/path/to/a/rollout.yaml --continue --only baseline --out a/folder"])
"""


def test_a_long_line_goes_on_below_its_last_column() -> None:
    line = "  launch       failed     capacity too low: 1 standard server sustains at most 1.213 requests/s"
    pieces = folded(line, 60)
    assert all(len(piece) <= 60 for piece in pieces)
    assert pieces[1].startswith(" " * 26)
    assert " ".join(" ".join(pieces).split()) == " ".join(line.split())


def test_a_row_of_figures_goes_on_at_a_cell() -> None:
    head = "  measured  standard     8 streams  "
    pieces = folded(f"{head}TTFT 196 ms  TPOT 6.54 ms  p95 14 ms    E2E 751 ms  739 tok/s", 80)
    assert pieces == [
        f"{head}TTFT 196 ms  TPOT 6.54 ms  p95 14 ms",
        f"{' ' * len(head)}E2E 751 ms  739 tok/s",
    ]


@pytest.mark.parametrize(
    "line", ["next: specops run rollout.yaml " + "x" * 80, "  pip install -e '.[serve]' " + "y " * 60]
)
def test_a_line_to_paste_stays_whole(line: str) -> None:
    assert folded(line, 60) == [line]


def test_a_command_after_a_sentence_has_a_line_to_itself() -> None:
    command = "curl -sS http://127.0.0.1:8000/v1/models"
    line = f"the server does not answer, or this is not its address. Try: {command}"
    assert folded(line, 60) == [
        "the server does not answer, or this is not its address. Try:",
        f"  {command}",
    ]
    assert folded(line, 200) == [line]


@pytest.mark.parametrize(
    "line",
    [
        "change: compare its two models (`specops verify-draft TARGET DRAFT`), then attest it",
        "ok    vllm        vLLM is not installed here ('vllm serve'); needed only if specops starts vLLM",
    ],
)
def test_a_command_between_quotes_and_a_name_are_parts_of_their_line(line: str) -> None:
    pieces = folded(line, 60)
    assert all(20 < len(piece) <= 60 for piece in pieces[:-1])
    assert pieces[0].startswith(line[:20])


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("  ab  passed     x", "passed"),
        ("  ab  failed     x", "failed"),
        ("  NO        ids", "NO"),
        ("a  open", "open"),
        ("ok  standard speculates  no", "ok"),
        ("warn  prompts  samples", "warn"),
    ],
)
def test_a_verdict_has_a_colour_in_its_column(line: str, word: str) -> None:
    shown = coloured(line)
    assert f"m{word}\x1b[0m" in shown
    assert re.sub(r"\x1b\[[0-9;]*m", "", shown) == line


def test_words_of_a_sentence_have_none() -> None:
    assert coloured("it is ok to go on, no harm done") == "it is ok to go on, no harm done"


@pytest.mark.parametrize(
    ("told", "plain"),
    [({}, False), ({"NO_COLOR": ""}, False), ({"NO_COLOR": "1"}, True), ({"TERM": "dumb"}, True)],
    ids=["usual", "NO_COLOR empty", "NO_COLOR", "TERM=dumb"],
)
def test_a_real_terminal(told: dict[str, str], plain: bool) -> None:
    master, slave = pty.openpty()
    environment = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "COLUMNS")}
    environment |= {"COLUMNS": "80", "TERM": "xterm"} | told
    done = subprocess.run([sys.executable, "-c", CODE], stdout=slave, env=environment, timeout=60, check=True)
    os.close(slave)
    assert done.returncode == 0
    said = os.read(master, 65536).decode()
    os.close(master)
    assert ("\x1b[" in said) != plain
    lines = re.sub(r"\x1b\[[0-9;]*m", "", said).splitlines()
    assert all(len(line) <= 80 for line in lines if "specops" not in line)
    assert any(line.startswith("next: specops run") and line.endswith("a/folder") for line in lines)


def test_a_pipe_gets_whole_lines_without_colour() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE], capture_output=True, text=True, timeout=60, check=True
    )
    assert len(done.stdout.splitlines()) == 2
    assert "\x1b" not in done.stdout
