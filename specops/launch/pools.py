"""Any pool as a server: started here, stopped where that is specops's to do, or described for a container."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from specops.config import Deploy, Pool
from specops.launch.process import Announced, Known, Server, free_port, running
from specops.progress import Progress
from specops.serving import ENGINES, Container, Startable

SERVED_AS = "specops"
"""What a model is called wherever settings are compared: the same, so that requests are the same bytes."""


@contextmanager
def serving(pool: Pool, name: str, *, model: str, log: Path, progress: Progress) -> Iterator[Server]:
    """The server of `pool`, which messages call `name`, for as long as the block lasts.

    An engine that lets specops choose serves its target as `model`. What a started server prints goes to the
    file `log`. Raises as `running` does, ConfigError for a program that is not there, and for settings that
    the engine does not have in the version that is.
    """
    if not isinstance(pool, Startable):
        assert pool.endpoint is not None
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
    if isinstance(pool, Startable):
        pool.start(0, SERVED_AS)


def contained(pool: Pool, deploy: Deploy, *, model: str, version: str | None) -> Container | str:
    """`pool` in a container, its model called `model` where the engine lets specops choose; a sentence where
    it has none.

    `version`: of the engine; None: the newest known. ConfigError for settings that this version lacks.
    """
    if not isinstance(pool, Startable):
        assert pool.endpoint is not None
        return f"it runs already, at {pool.endpoint.base_url}"
    found = pool.container(deploy.port, model, version, deploy.drain_s)
    image = deploy.image or found.image
    if image is None:
        engine = ENGINES[pool.engine].title
        return f"{engine} has no published image; name one that holds it as deploy.image"
    for key, path in pool.models.items():
        if path.startswith(("/", ".", "~")) and not _mounted(path, deploy.model_folder):
            return f"{key} {path} would not be in them; name a folder that holds it as deploy.model_folder"
    return replace(found, image=image, gpus=found.gpus if deploy.gpus is None else deploy.gpus)


def _mounted(path: str, folder: str | None) -> bool:
    return folder is not None and Path(path).is_relative_to(folder) and ".." not in Path(path).parts
