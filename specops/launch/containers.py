"""Engines in containers: which pools have one, of which image, on how many GPUs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from specops.config import Deploy, Pool
from specops.serving import ENGINES, Container


def contained(pool: Pool, deploy: Deploy, *, model: str, version: str | None) -> Container | str:
    """`pool` in a container, its model called `model` where the engine lets specops choose; a sentence where
    it has none.

    `version`: of the engine; None: the newest known. ConfigError for settings that this version lacks.
    """
    if pool.endpoint is not None:
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
