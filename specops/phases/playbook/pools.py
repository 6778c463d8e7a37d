"""What the pools of a rollout must be before anything is measured: two servers, the standard without
speculation."""

from __future__ import annotations

import asyncio
from dataclasses import astuple

from specops.config import Pool
from specops.errors import ConfigError
from specops.load.counters import speculating_standard
from specops.load.server_identity import one_address, probe
from specops.load.settings import BaselineSettings
from specops.phases.inputs import settings_of
from specops.phases.playbook.step import Given
from specops.prometheus.exposed import POOLS


def check_addresses(at: Given) -> None:
    """ConfigError for two pools with one address. Sends nothing."""
    one, other = at.rollout.pools.standard, at.rollout.pools.speculative
    if one.endpoint is not None and other.endpoint is not None:
        reason = one_address(astuple(one.endpoint), astuple(other.endpoint))
        if reason is not None:
            raise _one_server(reason, at)


def check_servers(at: Given) -> None:
    """ConfigError for pools that run already and show that they are one server, or that the standard
    speculates. Sends short requests to both."""
    asked = settings_of(at.rollout, at.rollout.pools.standard)
    running: dict[str, BaselineSettings] = {}
    for name in POOLS:
        pool: Pool = getattr(at.rollout.pools, name)
        if pool.endpoint is not None:
            running[name] = asked.at(pool.endpoint.base_url, pool.endpoint.model)
    shared, observed = asyncio.run(probe(running))
    if shared is not None:
        raise _one_server(shared, at)
    if "standard" in observed:
        reason = speculating_standard(observed["standard"], observed.get("speculative"))
        if reason is not None:
            raise ConfigError(
                reason,
                hint=f"give pools.standard in {at.file} a server without speculation, "
                f"then: specops doctor {at.file}",
            )


def _one_server(reason: str, at: Given) -> ConfigError:
    return ConfigError(
        f"the standard and the speculative pool are one server: {reason}",
        hint=f"write the address of the second server to {at.file}, then: specops doctor {at.file}",
    )
