"""When requests are sent: by workers that wait for their answers, or at instants drawn beforehand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

Arrivals = Literal["closed", "poisson", "gamma"]
"""closed: each of N workers sends its next request when the last is answered. poisson, gamma: open loop,
requests leave at their drawn instants whether or not the server keeps up."""


@dataclass(frozen=True)
class Level:
    """How hard the endpoint is driven: by `concurrency` workers, or open loop at `rate` requests/s."""

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
    return [float(at) for at in np.cumsum(gaps)]
