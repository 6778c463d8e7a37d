"""Fixes that can be pasted: commands for a shell, and whole sections for the rollout file.

Words in capitals are to be filled in: YOUR_KEY, HOST, PORT. What is behind # in a command is for a person.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from specops.access import Credentials
from specops.config import Rollout
from specops.phases.doctor.machine import FileText
from specops.prometheus.series import POOLS, PoolName
from specops.render.server import to_yaml
from specops.serving import ENGINES, OWN

ELSEWHERE = "http://HOST:PORT/v1"
"""An address that only the user knows."""


def start(base_url: str, *, speculates: bool, engine: str | None = None) -> str:
    """The start command of the user's own server, with what has to change in it. Nothing of ours is
    proposed for an address that is the user's."""
    address = urlsplit(base_url)
    engines = [
        candidate
        for candidate in ENGINES.values()
        if candidate.speculation_flags and engine in (None, candidate.name)
    ]
    flags = ", ".join(
        f"{candidate.title} {candidate.speculation_flags[0]}" for candidate in engines if candidate is not OWN
    )
    change = f"with speculation: {flags}" if speculates else "without speculation"
    return f"YOUR_START_COMMAND  # on {address.hostname}, port {address.port or 80}, {change}"


def request(base_url: str, model: str, credentials: Credentials) -> str:
    """A command that sends one short request."""
    body = json.dumps({"model": model, "prompt": "hello", "max_tokens": 16})
    url = shlex.quote(f"{base_url}/completions")
    return f"curl -s {url}{credentials.curl} -H 'Content-Type: application/json' -d {shlex.quote(body)}"


INTO_ROLLOUT = "ROLLOUT, in place of the sections of the same names"


def sections(rollout: Rollout, changes: Mapping[str, Mapping[str, Any]]) -> FileText:
    """Whole sections of the rollout file, each with what it has and the changes to it."""
    written = rollout.model_dump(mode="json", exclude_unset=True, include=set(changes))
    changed = {name: written.get(name, {}) | dict(change) for name, change in changes.items()}
    return FileText(into=INTO_ROLLOUT, text=to_yaml(changed))


def pool_at(rollout: Rollout, pool: PoolName, **changes: str) -> FileText:
    """The section `pools`, in which an endpoint has another address or model."""
    pools = _pools(rollout)
    return sections(rollout, {"pools": pools | {pool: pools[pool] | changes}})


def swapped(rollout: Rollout) -> FileText:
    """The sections that name a pool, each the other way round."""
    changes: dict[str, Mapping[str, Any]] = {"pools": _swapped(_pools(rollout))}
    if rollout.addresses.standard or rollout.addresses.speculative:
        changes["addresses"] = _swapped({pool: getattr(rollout.addresses, pool) for pool in POOLS})
    if rollout.monitor.names:
        changes["monitor"] = {"names": _swapped(rollout.monitor.names)}
    return sections(rollout, changes)


def _pools(rollout: Rollout) -> dict[str, Any]:
    pools: dict[str, Any] = rollout.pools.model_dump(mode="json", exclude_unset=True)
    return pools


def _swapped(by_pool: Mapping[Any, Any]) -> dict[str, Any]:
    return {
        pool: by_pool[opposite]
        for pool, opposite in zip(POOLS, reversed(POOLS), strict=True)
        if opposite in by_pool
    }
