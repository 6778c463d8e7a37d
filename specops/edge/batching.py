"""Which rounds take part in the server's next step: how long they wait for others, and whose are taken.

SpecEdge's server knows two modes: it takes what is there, or it blocks until so many have come. The first is
the second with one.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from msgspec import Struct

from specops.errors import UsageError

FORMS = "dynamic, static:N or static:N:WAIT_MS"


@dataclass(frozen=True)
class Batching:
    least: int = 1
    """Rounds that a step waits for; 1: it takes what is there."""

    wait_s: float = 0.2
    """No longer than this since the first of them came: its client may be gone, or slow."""

    @staticmethod
    def parse(text: str) -> Batching:
        """`dynamic`, or `static:N`, which waits for N rounds, `static:N:WAIT_MS` for at most so long.

        Raises UsageError.
        """
        if text == "dynamic":
            return Batching()
        kind, *numbers = text.split(":")
        right = kind == "static" and 1 <= len(numbers) <= 2
        if not right or not all(number.isascii() and number.isdigit() for number in numbers):
            raise UsageError(f"{text!r} is no batching", hint=f"write {FORMS}, such as static:4:50")
        least = int(numbers[0])
        if least < 1:
            raise UsageError(f"{text!r} waits for no round", hint=f"write {FORMS}, such as static:4:50")
        return Batching(least) if len(numbers) == 1 else Batching(least, int(numbers[1]) / 1000)

    def pause(self, waiting: int, possible: int, oldest: float, now: float) -> float:
        """Seconds that `waiting` rounds, the first of which came at `oldest`, are still to wait for others.

        possible: rounds that could be there and be taken, had every session sent one that may.
        """
        if waiting >= min(self.least, possible):
            return 0.0
        return max(0.0, oldest + self.wait_s - now)


DYNAMIC = Batching()


class Arrived(Struct, frozen=True):
    """A session's turn that has come up."""

    key: int
    client: int
    at: float


class Turns:
    """Takes turns between clients, whoever has many sessions; of one client's, in the order they came.

    Of C clients that ever wait at a time, and steps that take M each, what has n of its own client's before
    it is taken within ceil((n + 1) * C / M) steps: each take puts its client behind all others.
    """

    def __init__(self) -> None:
        self._by_client: dict[int, deque[Arrived]] = {}  # the client whose turn it is first
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def oldest(self) -> float:
        """When the first of those that wait came; there must be one."""
        return min(waiting[0].at for waiting in self._by_client.values())

    def add(self, arrived: Arrived) -> None:
        self._by_client.setdefault(arrived.client, deque()).append(arrived)
        self._count += 1

    @property
    def next(self) -> Arrived:
        """Whose turn it is; there must be one."""
        return next(iter(self._by_client.values()))[0]

    def take(self) -> Arrived:
        """The next one, which waits no longer."""
        client = self.next.client
        waiting = self._by_client.pop(client)
        taken = waiting.popleft()
        if waiting:
            self._by_client[client] = waiting
        self._count -= 1
        return taken

    def drop(self, key: int, client: int) -> None:
        """Where it waits, it does so no longer."""
        remaining = deque(each for each in self._by_client.get(client, ()) if each.key != key)
        self._count -= len(self._by_client.get(client, ())) - len(remaining)
        if remaining:
            self._by_client[client] = remaining
        else:
            self._by_client.pop(client, None)
