"""Completion in a real bash: commands, and the phases of a walk."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
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
    assert completed(tmp_path, "specops", "run", "a.yaml", "--only", "c") == ["canary", "checklist"]
    assert completed(tmp_path, "specops", "checklist", "att") == ["attest"]
