"""Any pool as a server that answers, started and stopped where that is specops's to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from specops.config import CommandPool, EmbeddedPool, EndpointPool, Pool
from specops.launch import command, embedded
from specops.launch.process import Server, running
from specops.progress import Progress


@contextmanager
def serving(pool: Pool, name: str, *, model: str, log: Path, progress: Progress) -> Iterator[Server]:
    """The server of `pool`, which messages call `name`, for as long as the block lasts.

    An embedded one serves its target as `model`. What a started server prints goes to the file `log`.
    Raises as `running` does, and ConfigError for a command that is not there.
    """
    match pool:
        case EndpointPool():
            yield Server(pool.base_url, pool.model)
        case EmbeddedPool():
            words = embedded.command(pool, model)
            with running(name, words, address=embedded.ANNOUNCED, log=log, progress=progress) as server:
                yield server
        case CommandPool():
            words, address = command.on_a_free_port(pool)
            with running(
                name,
                words,
                address=address,
                log=log,
                progress=progress,
                start_timeout_s=pool.start_timeout_s,
            ) as server:
                yield replace(server, model=pool.model or server.model)
