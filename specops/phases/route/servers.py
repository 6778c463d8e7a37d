"""Where the servers of a pool answer."""

from __future__ import annotations

from typing import Literal
from urllib.parse import urlsplit

from specops.config import Pool, Rollout
from specops.errors import ConfigError


def servers(rollout: Rollout, pool: Literal["standard", "speculative"]) -> list[str]:
    """HOST:PORT of each; ConfigError where the rollout file does not say."""
    given: list[str] = getattr(rollout.addresses, pool)
    if given:
        return list(dict.fromkeys(given))
    configured: Pool = getattr(rollout.pools, pool)
    if configured.endpoint is None:
        raise ConfigError(
            f"the rollout file does not say where the {pool} pool answers",
            hint=f"add addresses.{pool}: [HOST:PORT], one for each of its servers",
        )
    url = urlsplit(configured.endpoint.base_url)
    if url.scheme != "http" or url.path.rstrip("/") != "/v1" or not url.hostname:
        raise ConfigError(
            f"the router cannot forward to {configured.endpoint.base_url}: it takes http://HOST:PORT/v1",
            hint=f"add addresses.{pool}: [HOST:PORT] of servers that answer plain HTTP at /v1",
        )
    host = f"[{url.hostname}]" if ":" in url.hostname else url.hostname
    return [f"{host}:{url.port or 80}"]
