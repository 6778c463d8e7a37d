"""Which names a pool's servers have for what they expose: by its engine, and by the engine's version."""

from __future__ import annotations

import shlex
from typing import Literal

from specops.config import Pool, Rollout
from specops.serving import ENGINES, USUAL, Series, namings

PoolName = Literal["standard", "speculative"]
POOLS: tuple[PoolName, ...] = ("standard", "speculative")


def exposed(rollout: Rollout, pool: PoolName) -> Series:
    """By `monitor.names` where the rollout file has it, else by what the pool is.

    An endpoint, and a command that names no engine, is taken to have the names of a current vLLM;
    `monitor check` finds out where that is wrong.
    """
    named = rollout.monitor.names.get(pool)
    return namings()[named] if named is not None else _of(getattr(rollout.pools, pool))


def _of(pool: Pool) -> Series:
    if pool.series is not None:
        return pool.series
    words = [word for program in pool.programs for word in shlex.split(program)]
    for engine in ENGINES.values():
        line, series = engine.command_line, next(iter(engine.namings.values()), USUAL)
        if series is not USUAL and line is not None and any(line.call.mark in word for word in words):
            return series
    return USUAL
