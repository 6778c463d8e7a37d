"""What waits to be written to one client: bounded, and read by one task.

Of a round's CPU asyncio.Queue took a twentieth: it is for several readers, and counts what was done.
"""

from __future__ import annotations

import asyncio
from collections import deque


class Outgoing:
    def __init__(self, most: int) -> None:
        """most: messages that may wait."""
        self._most = most
        self._waiting: deque[bytes | None] = deque()
        self._reader: asyncio.Future[None] | None = None

    def put(self, data: bytes | None) -> bool:
        """False where there is no room. None: nothing follows."""
        if len(self._waiting) >= self._most:
            return False
        self._waiting.append(data)
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)
        return True

    async def get(self) -> bytes | None:
        if not self._waiting:
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader
        return self._waiting.popleft()
