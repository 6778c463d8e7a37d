"""Which names a pool's servers have for what they expose: by its engine, and by the engine's version."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Literal

from specops.config import CommandPool, Pool, Rollout, SglangPool, VllmPool
from specops.prometheus.series import SGLANG, VLLM, VLLM_BEFORE_0_11, Series

PoolName = Literal["standard", "speculative"]
POOLS: tuple[PoolName, ...] = ("standard", "speculative")
NAMINGS: Mapping[str, Series] = {"vllm": VLLM, "vllm-0.10": VLLM_BEFORE_0_11, "sglang": SGLANG}
"""What the rollout file's `monitor.names` says, by its words."""


def exposed(rollout: Rollout, pool: PoolName) -> Series:
    """By `monitor.names` where the rollout file has it, else by what the pool is.

    An endpoint, and a command that does not say sglang, is taken to have the names of a current vLLM;
    `monitor check` finds out where that is wrong.
    """
    named = rollout.monitor.names.get(pool)
    return NAMINGS[named] if named is not None else _of(getattr(rollout.pools, pool))


def _of(pool: Pool) -> Series:
    match pool:
        case SglangPool():
            return SGLANG
        case CommandPool() if any("sglang" in word for word in shlex.split(pool.command)):
            return SGLANG
        case VllmPool() if pool.version is not None and _version(pool.version) < (0, 11):
            return VLLM_BEFORE_0_11
    return VLLM


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text)[:2])
