"""runbook.md: the shipped runbook, its commands with the rollout's own file and addresses."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from specops.config import Rollout
from specops.errors import ConfigError
from specops.render.prometheus.targets import pool_targets

_COMMANDS = re.compile(r"^```sh\n.*?^```$|`[^`\n]*`|`specops [^`]*`", re.MULTILINE | re.DOTALL)


def runbook(text: str, rollout: Rollout, path: Path | None) -> str:
    """`text` with words in capitals replaced in its commands; those of which no value is known stay.

    `path` is the rollout file's, as commands are to name it.
    """
    known = _values(rollout, path)
    if not known:
        return text
    word = re.compile(rf"\b({'|'.join(known)})\b")
    return _COMMANDS.sub(lambda found: word.sub(lambda name: known[name[0]], found[0]), text)


def _values(rollout: Rollout, path: Path | None) -> dict[str, str]:
    addresses = rollout.addresses
    found = {
        "ROLLOUT": shlex.quote(str(path)) if path else None,
        "PROMETHEUS": shlex.quote(str(addresses.prometheus).rstrip("/")) if addresses.prometheus else None,
        "ROUTER": next(iter(addresses.routers), None),
        "GUARD": addresses.guard,
        "SERVER": _server(rollout),
    }
    return {word: value for word, value in found.items() if value}


def _server(rollout: Rollout) -> str | None:
    try:
        return pool_targets(rollout, "speculative").addresses[0]
    except ConfigError:
        return None
