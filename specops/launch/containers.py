"""Engines in containers: which have one, of which image, started by which words, on how many GPUs."""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass, replace
from pathlib import Path

from specops.config import (
    PORT,
    CommandPool,
    Deploy,
    EmbeddedPool,
    EndpointPool,
    Pool,
    SglangPool,
    VllmPool,
)
from specops.launch import embedded, sglang
from specops.launch.vllm import command as vllm
from specops.launch.vllm.versions import Version, table

EVERYWHERE = "0.0.0.0"
"""A container is reached from outside it; what may reach it is its network's to say."""

VLLM_IMAGE = "vllm/vllm-openai"
SGLANG_IMAGE = "lmsysorg/sglang"
DRAINS = "--shutdown-timeout"
"""vLLM's, since 0.18: without it SIGTERM ends running requests at once."""


@dataclass(frozen=True)
class Contained:
    """How a pool's server runs in a container."""

    image: str
    words: list[str]
    gpus: int
    downloads: bool
    drains: bool
    """It finishes running requests after SIGTERM."""


def why_not(pool: Pool, deploy: Deploy) -> str | None:
    """Why `pool` has no container; None where it has one."""
    if isinstance(pool, EndpointPool):
        return f"it runs already, at {pool.base_url}"
    if isinstance(pool, EmbeddedPool | CommandPool) and deploy.image is None:
        engine = "the embedded engine" if isinstance(pool, EmbeddedPool) else "a command of your own"
        return f"{engine} has no published image; name one that holds it as deploy.image"
    for key, path in _local_paths(pool).items():
        if not _mounted(path, deploy.model_folder):
            return f"{key} {path} would not be in them; name a folder that holds it as deploy.model_folder"
    return None


def contained(pool: Pool, deploy: Deploy, *, model: str, version: str | None) -> Contained:
    """`pool` in a container, its model called `model` where the engine lets specops choose.

    `version`: of the engine; None: the newest known.

    ConfigError for settings that the engine's version lacks. Only for pools that `why_not` says nothing of.
    """
    match pool:
        case VllmPool():
            release = table().release(Version.parse(version) if version else None)
            called = pool.model_copy(update={"program": "vllm serve"})
            words = vllm.command(called, port=deploy.port, host=EVERYWHERE, version=release.asked)
            drains = DRAINS in release.flags
            if drains and DRAINS not in words:
                words += [DRAINS, str(deploy.drain_s)]
            sizes = (pool.tensor_parallel_size, pool.pipeline_parallel_size, pool.data_parallel_size)
            found = Contained(f"{VLLM_IMAGE}:v{release.asked}", words, _gpus(sizes), True, drains)
        case SglangPool():
            called_ = pool.model_copy(update={"program": "python3 -m sglang.launch_server"})
            words = sglang.command(called_, port=deploy.port, host=EVERYWHERE)
            gpus = _gpus((pool.tp_size, pool.pp_size, pool.dp_size))
            found = Contained(f"{SGLANG_IMAGE}:v{version or sglang.VERSION}", words, gpus, True, True)
        case EmbeddedPool():
            words = ["specops", *embedded.arguments(pool, model, port=deploy.port)]
            words += ["--host", EVERYWHERE, "--grace", str(deploy.drain_s)]
            found = Contained("", words, 0, downloads=False, drains=True)
        case CommandPool():
            words = [word.replace(PORT, str(deploy.port)) for word in shlex.split(pool.command)]
            found = Contained("", words, 0, downloads=True, drains=False)
        case EndpointPool():
            raise AssertionError("an endpoint runs already")
    return replace(
        found,
        image=deploy.image or found.image,
        gpus=found.gpus if deploy.gpus is None else deploy.gpus,
    )


def _mounted(path: str, folder: str | None) -> bool:
    return folder is not None and Path(path).is_relative_to(folder) and ".." not in Path(path).parts


def _local_paths(pool: Pool) -> dict[str, str]:
    """The models that `pool` names by a path of a machine, by their key."""
    match pool:
        case VllmPool():
            named = {"model": pool.model}
            if pool.speculation and pool.speculation.model:
                named["speculation.model"] = pool.speculation.model
        case SglangPool():
            named = {"model_path": pool.model_path}
            if pool.speculation and pool.speculation.draft_model_path:
                named["speculation.draft_model_path"] = pool.speculation.draft_model_path
        case EmbeddedPool():
            folders = {
                "target": pool.target,
                "speculation.draft": pool.speculation and pool.speculation.folder,
            }
            return {key: str(folder.absolute()) for key, folder in folders.items() if folder}
        case _:
            return {}
    return {key: path for key, path in named.items() if path.startswith(("/", ".", "~"))}


def _gpus(sizes: tuple[int | None, ...]) -> int:
    return math.prod(size or 1 for size in sizes)
