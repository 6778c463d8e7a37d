"""The instants of requests: levels of load, drawn instants, the cap on requests a second, and when to
stop."""

from __future__ import annotations

import asyncio
import math
import re
import statistics
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from specops.load.request_times import Exchange
from specops.quantities import seconds_of

Drawn = Literal["closed", "poisson", "gamma"]
"""closed: each of N workers sends its next request when the last is answered. poisson, gamma: open loop,
requests leave at their drawn instants whether or not the server keeps up."""


@dataclass(frozen=True)
class Level:
    """The load on the endpoint: `concurrency` workers, or an open loop at `rate` requests/s."""

    concurrency: int | None = None
    rate: float | None = None
    burstiness: float = 1.0
    replay: str = ""
    """The trace or the ramp whose instants are sent, in words; `rate` is its mean. Empty for other loads."""

    def __str__(self) -> str:
        if self.replay:
            return self.replay
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


@dataclass(frozen=True)
class Ramp:
    """A Poisson process whose rate changes evenly from `first` to `last` requests/s within `duration_s`."""

    first: float
    last: float
    duration_s: float

    def __str__(self) -> str:
        return f"a ramp from {self.first:g} to {self.last:g} requests/s in {self.duration_s:g} s"

    @property
    def expected(self) -> float:
        """Expected number of requests."""
        return (self.first + self.last) / 2 * self.duration_s

    def instants(self, seed: int) -> Iterator[float]:
        """Yield the send instants in seconds from the start, in order."""
        generator, number = np.random.default_rng(seed), 0.0
        slope = (self.last - self.first) / self.duration_s
        while (number := number + generator.exponential()) < self.expected:
            # The instant until which `number` requests are expected: the rate's integral, inverted.
            root = math.sqrt(max(0.0, self.first**2 + 2 * slope * number))
            yield min(2 * number / (self.first + root), self.duration_s)


def parse_arrivals(text: str) -> Drawn | Ramp | Path:
    """The arrival process that `text` names; a trace by the path of its file. Raises ValueError."""
    match text.partition(":"):
        case ("closed" | "poisson" | "gamma") as name, "", "":
            return name
        case "trace", ":", path if path:
            return Path(path)
        case "ramp", ":", rates if ramp := _RAMP.fullmatch(rates):
            first, last, duration_s = float(ramp[1]), float(ramp[2]), seconds_of(ramp[3])
            if max(first, last) > 0 and duration_s > 0:
                return Ramp(first, last, duration_s)
    raise ValueError(
        f"expected closed, poisson, gamma, trace:FILE or a ramp such as ramp:1-20/10m, not {text!r}"
    )


_NUMBER = r"([0-9]{1,6}(?:\.[0-9]{1,6})?)"
_RAMP = re.compile(rf"{_NUMBER}-{_NUMBER}/([0-9].*)")


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

    def begin(self, exchange: Exchange) -> None:
        """Take note of an exchange that is about to be sent; this rule needs only finished ones."""

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
