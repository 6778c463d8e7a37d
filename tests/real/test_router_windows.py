"""Random windows of the live effect at a real NGINX, before and after a restart: the pools take turns by the
schedule, a window's begin is in no mean, and the effect is that of the two pools."""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from routers import Router, rollout, running
from test_router_effect import STREAMED, Key, scraped, streaming_pool, total

from specops.config import Rollout
from specops.effect.counters import counters_of
from specops.effect.estimate import effects
from specops.prometheus.api import Series
from specops.prometheus.series import EFFECT

WINDOW_S, BURN_IN_S, BLOCK_S = 2, 1, 4
EDGE_S = 0.15
"""A request this near to a change of the window may be of either side, by when NGINX read it."""


@pytest.fixture(scope="module")
def settings() -> Iterator[Rollout]:
    windows: dict[str, object] = {"mode": "windows", "window_s": WINDOW_S, "burn_in_s": BURN_IN_S}
    with streaming_pool("standard") as standard, streaming_pool("speculative") as speculative:
        yield rollout(
            standard=[standard],
            speculative=[speculative],
            holdout=WINDOW_S / BLOCK_S,
            effect=windows,
            nginx={"workers": 1},
        )


def is_held(ts: float) -> bool:
    """By the definition of the schedule: of each block's two windows, the hash of its number has one."""
    drawn = zlib.crc32(f"window:{int(ts // BLOCK_S)}".encode()) % 10_000
    return int(ts % BLOCK_S // WINDOW_S) == drawn * BLOCK_S // WINDOW_S // 10_000


def blocks(up: Router, count: int) -> tuple[list[tuple[float, str]], list[tuple[float, dict[Key, float]]]]:
    """Traffic for so many blocks: when each request began and its reason; and scrapes at their ends."""
    first = (time.time() // BLOCK_S + 1) * BLOCK_S
    end = first + count * BLOCK_S

    def stream() -> list[tuple[float, str]]:
        routes = []
        while (began := time.time()) < end:
            routes.append((began, up.ask(STREAMED).route[1]))
        return routes

    scrapes = []
    with ThreadPoolExecutor(4) as threads:
        streams = [threads.submit(stream) for _ in range(4)]
        for index in range(count + 1):
            time.sleep(max(first + index * BLOCK_S - time.time(), 0.0))
            scrapes.append((first + index * BLOCK_S, scraped(up)))
    return [route for one in streams for route in one.result()], scrapes


def test_the_pools_take_turns_by_the_schedule_also_after_a_restart(settings: Rollout, tmp_path: Path) -> None:
    seen = set()
    for _ in range(2):
        with running(tmp_path, settings) as up:
            routes, scrapes = blocks(up, 3)
        for began, reason in routes:
            if EDGE_S < began % WINDOW_S < WINDOW_S - EDGE_S:
                assert (reason == "holdout") == is_held(began), began % BLOCK_S
                seen.add((reason, int(began % BLOCK_S // WINDOW_S)))
        counts = scrapes[-1][1]
        in_means = total(counts, "requests", figure="failures")
        burn_in = total(counts, "left_out", reason="burn-in")
        assert 0.25 < burn_in / (burn_in + in_means) < 0.75  # half of each window
        names = {key for _, scrape in scrapes for key in scrape if dict(key)["__name__"] in EFFECT.values()}
        series = [
            Series(dict(key), tuple((ts, scrape.get(key, 0.0)) for ts, scrape in scrapes)) for key in names
        ]
        effect = effects(counters_of(series, np.array([ts for ts, _ in scrapes]), BLOCK_S, "windows"))[0]
        tpot = effect.figure_effect("tpot")
        assert tpot.ratio == pytest.approx(0.5, abs=0.2)
        assert (tpot.requests > 0, tpot.unmatched) == (True, 0)
    assert {reason for reason, _ in seen} == {"holdout", "long"}
