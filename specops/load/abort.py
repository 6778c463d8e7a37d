"""When to leave an endpoint in peace."""

from __future__ import annotations

import statistics
from collections import deque
from dataclasses import dataclass

from specops.load.observation import Exchange


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
