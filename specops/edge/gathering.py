"""Commands on their way to the engine: together, where it could not act on the first any sooner.

Every message is a write here and wakes the engine's process. So it is as Nagle has it for packets (RFC 896):
while nothing is out, what is told goes at once; while something is, the engine has a step to make, and what
is told waits for others until that was made.
"""

from __future__ import annotations

from asyncio import TimerHandle
from collections.abc import Callable, Iterable

from specops.edge.messages import Begin, Command, End, Propose

WAIT_S = 1e-3
"""No longer than this: what comes during a step is to be at the engine when that ends."""


class Gathering:
    def __init__(
        self,
        send: Callable[[list[Command]], object],
        call_later: Callable[[float, Callable[[], None]], TimerHandle],
    ) -> None:
        """call_later: the event loop's."""
        self._send, self._call_later = send, call_later
        self._waiting: list[Command] = []
        self._timer: TimerHandle | None = None
        self._out: set[int] = set()  # keys of sessions with a prompt or a round in the engine

    def tell(self, commands: list[Command]) -> None:
        if not commands:
            return
        idle = not self._out
        self._add(commands)
        if idle:
            self.flush()
        elif self._timer is None:
            self._timer = self._call_later(WAIT_S, self.flush)

    def heard(self, keys: Iterable[int], commands: list[Command]) -> None:
        """The engine has answered what was out of the sessions `keys`; what follows from that."""
        self._out.difference_update(keys)
        self._add(commands)
        self.flush()

    def flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waiting:
            commands, self._waiting = self._waiting, []
            self._send(commands)

    def _add(self, commands: list[Command]) -> None:
        self._waiting += commands
        for command in commands:
            if isinstance(command, Begin | Propose):
                self._out.add(command.key)
            elif isinstance(command, End):
                self._out.discard(command.key)
