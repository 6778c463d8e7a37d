"""The instants of requests: levels of load, drawn instants, the cap on requests a second, and when to
stop."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections import deque
from dataclasses import dataclass
from typing import Literal

import numpy as np

from specops.load.request_times import Exchange

Arrivals = Literal["closed", "poisson", "gamma"]
"""closed: each of N workers sends its next request when the last is answered. poisson, gamma: open loop,
requests leave at their drawn instants whether or not the server keeps up."""


@dataclass(frozen=True)
class Level:
    """The load on the endpoint: `concurrency` workers, or an open loop at `rate` requests/s."""

    concurrency: int | None = None
    rate: float | None = None
    burstiness: float = 1.0

    def __str__(self) -> str:
        if self.concurrency is not None:
            return f"{self.concurrency} stream{'s' if self.concurrency > 1 else ''}"
        return f"{self.rate:g} requests/s"


def offsets(rate: float, count: int, *, burstiness: float = 1.0, seed: int = 0) -> list[float]:
    """Send instants of `count` requests, in seconds from the start, at `rate` a second on average.

    Gaps are gamma-distributed with shape `burstiness` (as vLLM's bench names it): 1 is a Poisson process,
    below 1 comes in bursts, above 1 is more even.
    """
    gaps = np.random.default_rng(seed).gamma(burstiness, 1 / (rate * burstiness), count)
    return [float(offset) for offset in np.cumsum(gaps)]


class Pace:
    """Keeps requests at least 1/`max_rps` seconds apart; None caps nothing."""

    def __init__(self, max_rps: float | None) -> None:
        self._gap = 1 / max_rps if max_rps else 0.0
        self._next = 0.0

    async def turn(self) -> float:
        """Wait for the next request's turn; the instant until which it was held back, 0.0 if it was not."""
        now = time.perf_counter()
        instant = max(now, self._next)
        self._next = instant + self._gap
        if instant == now:
            return 0.0
        await asyncio.sleep(instant - now)
        return instant


@dataclass(frozen=True)
class AbortRule:
    """Judged over the last `window` requests of a run, across its cells."""

    error_share: float = 0.5
    e2e_s: float | None = None
    """Bound of the median end-to-end latency."""

    window: int = 20


class Aborted(Exception):
    """The rule says to stop; the message says why."""


class Watch:
    """Outlives cells: an endpoint that fails is found out also where a cell has few prompts."""

    def __init__(self, rule: AbortRule) -> None:
        self._rule = rule
        self._last: deque[tuple[bool, float]] = deque(maxlen=rule.window)

    def add(self, exchange: Exchange) -> None:
        """Take note of a finished exchange; raise Aborted once the rule says to stop."""
        self._last.append((exchange.failure is not None, exchange.ended - exchange.sent))
        if len(self._last) < self._rule.window:
            return
        failed = sum(failure for failure, _ in self._last)
        if failed > self._rule.error_share * self._rule.window:
            raise Aborted(f"{failed} of the last {self._rule.window} requests failed")
        latency = statistics.median(seconds for _, seconds in self._last)
        if self._rule.e2e_s is not None and latency > self._rule.e2e_s:
            raise Aborted(
                f"the median latency of the last {self._rule.window} requests was {latency:.2f} s, "
                f"above the bound of {self._rule.e2e_s:g} s"
            )
