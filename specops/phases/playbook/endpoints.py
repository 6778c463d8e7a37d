"""Whether pools that run already can be compared: two servers, the standard one without speculation."""

from __future__ import annotations

import asyncio
import shlex

from specops.config import Pool
from specops.errors import ConfigError
from specops.load.counters import speculating_standard
from specops.load.server_identity import one_address, probe
from specops.load.settings import BaselineSettings
from specops.phases.inputs import settings_of
from specops.phases.phase import PhaseInput
from specops.prometheus.series import POOLS


def check_endpoints(task: PhaseInput) -> None:
    """Raise ConfigError for two pools with one address, and UsageError for a pool whose secrets are not in
    the environment. Sends nothing."""
    standard, speculative = task.rollout.pools.standard.endpoint, task.rollout.pools.speculative.endpoint
    for name, endpoint in zip(POOLS, (standard, speculative), strict=True):
        if endpoint is not None:
            endpoint.access.credentials(name)
    if standard is not None and speculative is not None:
        reason = one_address(standard, speculative)
        if reason is not None:
            raise _one_server(reason, task)


def check_servers(task: PhaseInput) -> None:
    """Raise ConfigError for running pools that show that they are one server, or that the standard pool
    speculates. Sends short requests to both."""
    requested = settings_of(task.rollout, task.rollout.pools.standard)
    running: dict[str, BaselineSettings] = {}
    for name in POOLS:
        pool: Pool = getattr(task.rollout.pools, name)
        if pool.endpoint is not None:
            running[name] = requested.at(pool.endpoint, name)
    shared, counters = asyncio.run(probe(running))
    if shared is not None:
        raise _one_server(shared, task)
    if "standard" in counters:
        reason = speculating_standard(counters["standard"], counters.get("speculative"))
        if reason is not None:
            raise ConfigError(
                reason,
                hint=f"specops doctor {shlex.quote(str(task.file))}  # after pools.standard is a server "
                "without speculation",
            )


def _one_server(reason: str, task: PhaseInput) -> ConfigError:
    return ConfigError(
        f"the standard and the speculative pool are one server: {reason}",
        hint=f"specops doctor {shlex.quote(str(task.file))}  # after the address of the second server is in "
        "it",
    )
