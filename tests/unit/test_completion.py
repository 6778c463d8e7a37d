"""Completion in a real bash: commands, and the phases of a walk."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

SCRIPT = """
eval "$(_SPECOPS_COMPLETE=source_bash specops)"
COMP_WORDS=({words}) COMP_CWORD={number} COMP_LINE="{words}"
_specops_completion specops "{last}" ""
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


def completed(tmp_path: Path, *words: str) -> list[str]:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("there is no bash here")
    program = tmp_path / "specops"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m specops "$@"\n')
    program.chmod(0o755)
    script = SCRIPT.format(words=" ".join(words), number=len(words) - 1, last=words[-1])
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run(
        [bash, "--norc", "-c", script],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return done.stdout.split()


@pytest.mark.slow  # bash starts specops for each
def test_bash_completes_commands_and_phases(tmp_path: Path) -> None:
    assert completed(tmp_path, "specops", "verify-") == ["verify-draft"]
    assert completed(tmp_path, "specops", "run", "a.yaml", "--only", "guard-") == ["guard-drill"]
    phases = completed(tmp_path, "specops", "run", "a.yaml", "--only", "c")
    assert phases == ["capacity", "canary", "checklist"]
    assert completed(tmp_path, "specops", "checklist", "att") == ["attest"]


@pytest.mark.slow
def test_zsh_completes_at_the_first_tab_once_it_is_installed(tmp_path: Path) -> None:
    """In a terminal, as `specops --install-completion` leaves it."""
    zsh = shutil.which("zsh")
    if zsh is None:
        pytest.skip("there is no zsh here")
    program = tmp_path / "bin" / "specops"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m specops "$@"\n')
    program.chmod(0o755)
    environment = os.environ | {
        "HOME": str(tmp_path), "TERM": "xterm", "PATH": f"{program.parent}:{os.environ['PATH']}",
        "PYTHONPATH": ":".join(sys.path),
    }  # fmt: skip
    environment.pop("ZDOTDIR", None)
    subprocess.run(
        [zsh, "-fc", "specops --install-completion; true"], env=environment, check=True, timeout=60
    )
    ours, theirs = pty.openpty()
    shell = subprocess.Popen([zsh, "-i"], env=environment, stdin=theirs, stdout=theirs, stderr=theirs,
                             start_new_session=True, cwd=tmp_path)  # fmt: skip
    try:
        _until(ours, b"")
        os.write(ours, b"specops verify-\t")
        assert b"verify-draft" in _until(ours, b"verify-draft")
    finally:
        shell.kill()
        shell.wait()
        os.close(ours)
        os.close(theirs)


def _until(terminal: int, wanted: bytes) -> bytes:
    """What the terminal shows until `wanted` is in it, or 30 s have passed."""
    shown, deadline = b"", time.monotonic() + 30
    while (not shown or wanted not in shown) and time.monotonic() < deadline:
        if select.select([terminal], [], [], 0.2)[0]:
            shown += os.read(terminal, 4096)
    return shown
