"""The version of the Python package that a command runs: its own Python says it, without importing it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

ANSWER_S = 30.0
_QUESTION = """\
import sys
from importlib.metadata import distributions
found = {d.metadata["Name"].lower(): d.version for d in distributions() if d.metadata["Name"]}
print(next((found[name] for name in sys.argv[1:] if name in found), ""))
"""


def version_behind(words: Sequence[str], packages: Sequence[str]) -> str | None:
    """Of the first of `packages` that is there; None where `words` do not lead to a Python that has one."""
    python = _interpreter(words)
    if python is None:
        return None
    try:
        # -I: neither this folder nor PYTHONPATH may stand in for what is installed there.
        answer = subprocess.run(
            [python, "-I", "-c", _QUESTION, *packages],
            capture_output=True,
            text=True,
            timeout=ANSWER_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() or None


def _interpreter(words: Sequence[str]) -> str | None:
    rest = list(words)
    while rest and (rest[0] == "env" or "=" in rest[0]):
        rest.pop(0)
    program = shutil.which(rest[0]) if rest else None
    if program is None:
        return None
    if Path(program).name.startswith("python"):
        return program
    try:
        with Path(program).open("rb") as script:
            first = script.readline(256).decode(errors="replace")
    except OSError:
        return None
    shebang = first.removeprefix("#!").split() if first.startswith("#!") else []
    if not shebang or "python" not in first:
        return None
    return shutil.which(shebang[-1])
