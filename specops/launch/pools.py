"""Any pool as a server that answers, started and stopped where that is specops's to do."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from specops.config import CommandPool, EmbeddedPool, EndpointPool, Pool, SglangPool, VllmPool
from specops.launch import command, embedded, sglang
from specops.launch.address import Known, free_port
from specops.launch.process import Server, running
from specops.launch.vllm import command as vllm
from specops.launch.vllm.installed import version_of
from specops.progress import Progress


@contextmanager
def serving(pool: Pool, name: str, *, model: str, log: Path, progress: Progress) -> Iterator[Server]:
    """The server of `pool`, which messages call `name`, for as long as the block lasts.

    An embedded one serves its target as `model`. What a started server prints goes to the file `log`.
    Raises as `running` does, ConfigError for a program that is not there, and for settings that vLLM does not
    have in the version that is.
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
        case VllmPool() | SglangPool():
            port = free_port()
            with running(
                name,
                _words(pool, port),
                address=Known.on(port),
                log=log,
                progress=progress,
                start_timeout_s=pool.start_timeout_s,
            ) as server:
                yield server


def check(pool: Pool) -> None:
    """ConfigError where `serving` would raise it, without starting anything."""
    match pool:
        case CommandPool():
            command.check(pool)
        case VllmPool() | SglangPool():
            _words(pool, port=0)


def _words(pool: VllmPool | SglangPool, port: int) -> list[str]:
    command.check_program(shlex.split(pool.program)[0])
    if isinstance(pool, VllmPool):
        words = vllm.command(pool, port=port, version=version_of(pool))
    else:
        words = sglang.command(pool, port=port)
    variables = [f"{name}={value}" for name, value in pool.environment.items()]
    return ["env", *variables, *words] if variables else words
