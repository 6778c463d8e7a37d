"""Any pool as a server that answers, started and stopped where that is specops's to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from specops.config import Pool
from specops.launch.address import Announced, Known, free_port
from specops.launch.process import Server, running
from specops.progress import Progress

SERVED_AS = "specops"
"""What a model is called wherever settings are compared: the same, so that requests are the same bytes."""


@contextmanager
def serving(pool: Pool, name: str, *, model: str, log: Path, progress: Progress) -> Iterator[Server]:
    """The server of `pool`, which messages call `name`, for as long as the block lasts.

    An engine that lets specops choose serves its target as `model`. What a started server prints goes to the
    file `log`. Raises as `running` does, ConfigError for a program that is not there, and for settings that
    the engine does not have in the version that is.
    """
    if pool.endpoint is not None:
        yield Server(pool.endpoint.base_url, pool.endpoint.model)
        return
    port = free_port()
    start = pool.start(port, model)
    address = Known.on(port) if start.announced is None else Announced(start.announced)
    with running(
        name,
        start.words,
        address=address,
        log=log,
        progress=progress,
        start_timeout_s=start.timeout_s,
    ) as server:
        yield replace(server, model=start.model or server.model)


def check(pool: Pool) -> None:
    """ConfigError where `serving` would raise it, without starting anything."""
    if pool.endpoint is None:
        pool.start(0, SERVED_AS)
