"""The cap on requests a second, whoever sends them."""

from __future__ import annotations

import asyncio
import time


class Pace:
    """Keeps requests at least 1/`max_rps` seconds apart; None caps nothing."""

    def __init__(self, max_rps: float | None) -> None:
        self._gap = 1 / max_rps if max_rps else 0.0
        self._next = 0.0

    async def turn(self) -> float:
        """Wait for the next request's turn; the instant until which it was held back, 0.0 if it was not."""
        now = time.perf_counter()
        at = max(now, self._next)
        self._next = at + self._gap
        if at == now:
            return 0.0
        await asyncio.sleep(at - now)
        return at
