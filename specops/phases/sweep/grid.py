"""What a rollout asks a sweep to try: its settings and its loads. Pure.

A pool and a number of tokens K make a setting: each engine says what K means to it, and which takes trees in
its place (specops/serving). Endpoints that run already are given by K.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import product
from pathlib import Path
from typing import Any

from specops.config import Pool, Rollout, Sweep
from specops.errors import ConfigError, UsageError
from specops.phases.sweep.jobs import STANDARD, Load, Setting
from specops.serving import Grid, pool_of


def settings_of(rollout: Rollout, folder: Path) -> list[Setting]:
    """The standard, and every setting that is tried beside it. ConfigError for a pool that has no K.

    Folders of drafts are relative to `folder`, the rollout file's.
    """
    pool, asked = rollout.pools.speculative, rollout.sweep
    if pool.endpoint is not None:
        raise ConfigError(
            "the speculative pool is an endpoint that runs already, and its K is not specops's to set",
            hint="give endpoints by K: --attach 0=http://HOST:8000/v1 --attach 3=http://HOST:8001/v1",
        )
    standard = Setting(STANDARD, rollout.pools.standard, k=0)
    return [standard, *_drafting(pool, asked, folder)]


def attached(endpoints: Mapping[int, Pool]) -> list[Setting]:
    """Endpoints that run already, by their K. UsageError where one of K = 0, or any other, is missing."""
    if 0 not in endpoints or len(endpoints) < 2:
        raise UsageError(
            "a sweep compares endpoints that speculate with one that does not",
            hint="give both: --attach 0=http://HOST:8000/v1 --attach 3=http://HOST:8001/v1",
        )
    standard = Setting(STANDARD, endpoints[0], k=0)
    return [standard, *(Setting(f"k={k}", pool, k) for k, pool in sorted(endpoints.items()) if k)]


def endpoints_in(swept: Mapping[str, Any]) -> dict[int, Pool]:
    """Endpoints by their K, from the settings of a sweep's result. ValueError where it had others."""
    found = {
        0 if name == STANDARD else int(name.removeprefix("k=")): pool_of(pool) for name, pool in swept.items()
    }
    if any(pool.endpoint is None for pool in found.values()):
        raise ValueError("specops started the servers of this sweep")
    return found


def loads_of(rollout: Rollout, lengths: Iterable[str]) -> list[Load]:
    """Concurrency, ascending, within temperature, within class of prompt length."""
    asked, measure = rollout.sweep, rollout.measure
    concurrency = sorted(set(asked.concurrency or measure.concurrency))
    temperatures = sorted(set(asked.temperature or [measure.temperature]))
    return [
        Load(streams, temperature, length)
        for length, temperature, streams in product(lengths, temperatures, concurrency)
    ]


def _drafting(pool: Pool, asked: Sweep, folder: Path) -> list[Setting]:
    ks = sorted(k for k in set(asked.k) if k)
    if asked.trees is None and not ks:
        raise ConfigError("the sweep tries nothing but K = 0", hint="give sweep.k other numbers: [3, 4, 5]")
    found = pool.variants(Grid(ks, asked.trees, asked.drafts, folder))
    return [Setting(_named(one.name, one.draft), one.pool, one.k, one.tree, one.draft) for one in found]


def _named(what: str, draft: str | None) -> str:
    return f"{draft} {what}" if draft else what
