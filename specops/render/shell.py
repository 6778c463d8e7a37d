"""A script that starts one server on this machine."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence

from specops.render.server import header


def script(
    command: Sequence[str], environment: Mapping[str, str], secrets: Iterable[str], *, rollout: str, pool: str
) -> str:
    """Bash that becomes `command`. Of `secrets`, variables that must be set, it holds the names alone."""
    lines = ["#!/usr/bin/env bash", header(rollout, f"Starts a server of the {pool} pool.").rstrip()]
    lines += ["set -euo pipefail", ""]
    lines += [f': "${{{name}:?set it first; it is not kept here}}"' for name in sorted(secrets)]
    lines += [f"export {name}={shlex.quote(value)}" for name, value in sorted(environment.items())]
    return "\n".join([*lines, "exec " + " \\\n  ".join(_lines(command)), ""])


def _lines(command: Sequence[str]) -> list[str]:
    """A flag with its value on each line, behind the program and what comes before its first flag."""
    lines: list[list[str]] = [[]]
    for word in command:
        if word.startswith("--"):
            lines.append([])
        lines[-1].append(shlex.quote(word))
    return [" ".join(line) for line in lines if line]
