"""Selection of the rounds of a server's next step: how long they wait for others, and whose rounds are taken.

SpecEdge's server has two modes: it takes the waiting rounds, or it blocks until a number of them has come.
The first is the second with a number of 1.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from msgspec import Struct

from specops.errors import UsageError
from specops.hints import with_value

FORMS = "dynamic, static:N or static:N:WAIT_MS"


@dataclass(frozen=True)
class Batching:
    least: int = 1
    """Number of rounds that a step waits for; 1: it takes the waiting ones."""

    wait_s: float = 0.2
    """Longest wait, in seconds since the first round came: a client may be gone, or slow."""

    @staticmethod
    def parse(text: str) -> Batching:
        """The batching that `text` describes: `dynamic`, `static:N` (wait for N rounds) or
        `static:N:WAIT_MS` (wait for N rounds, at most WAIT_MS ms). Raises UsageError for other text."""
        if text == "dynamic":
            return Batching()
        kind, *numbers = text.split(":")
        right = kind == "static" and 1 <= len(numbers) <= 2
        if not right or not all(number.isascii() and number.isdigit() for number in numbers):
            raise UsageError(
                f"invalid batching {text!r}: expected {FORMS}", hint=with_value(text, "static:4:50")
            )
        least = int(numbers[0])
        if least < 1:
            raise UsageError(
                f"invalid batching {text!r}: the round count must be at least 1",
                hint=with_value(text, "static:4:50"),
            )
        return Batching(least) if len(numbers) == 1 else Batching(least, int(numbers[1]) / 1000)

    def pause(self, waiting: int, possible: int, oldest: float, now: float) -> float:
        """Seconds for which `waiting` rounds, the first of which came at `oldest`, still wait for others.

        possible: number of rounds that could be waiting if every session that may send one had sent it.
        """
        if waiting >= min(self.least, possible):
            return 0.0
        return max(0.0, oldest + self.wait_s - now)


DYNAMIC = Batching()


class WaitingRound(Struct, frozen=True):
    """A round that waits for a step."""

    key: int
    client: int
    arrived_s: float


class FairQueue:
    """A queue of rounds that is fair between clients, whatever their number of sessions. Rounds of one client
    are taken in the order of arrival.

    With at most C waiting clients and M rounds a step, a round behind n others of its client is taken within
    ceil((n + 1) * C / M) steps, since each take puts the client behind all others.
    """

    def __init__(self) -> None:
        self._by_client: dict[int, deque[WaitingRound]] = {}  # the client whose turn it is first
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def oldest(self) -> float:
        """Arrival time of the oldest waiting round; there must be one."""
        return min(waiting[0].arrived_s for waiting in self._by_client.values())

    def add(self, arrived: WaitingRound) -> None:
        self._by_client.setdefault(arrived.client, deque()).append(arrived)
        self._count += 1

    @property
    def next(self) -> WaitingRound:
        """The round that is taken next; there must be one."""
        return next(iter(self._by_client.values()))[0]

    def take(self) -> WaitingRound:
        """Remove the next round from the queue, and return it."""
        client = self.next.client
        waiting = self._by_client.pop(client)
        waiting_round = waiting.popleft()
        if waiting:
            self._by_client[client] = waiting
        self._count -= 1
        return waiting_round

    def drop(self, key: int, client: int) -> None:
        """Remove the waiting rounds of session `key`, if there are any."""
        remaining = deque(
            waiting_round for waiting_round in self._by_client.get(client, ()) if waiting_round.key != key
        )
        self._count -= len(self._by_client.get(client, ())) - len(remaining)
        if remaining:
            self._by_client[client] = remaining
        else:
            self._by_client.pop(client, None)
