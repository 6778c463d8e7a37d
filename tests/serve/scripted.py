"""An engine whose every step is the test's to allow, with the interface of specops.engine.Engine.

For what the real engine cannot be made to do at a given instant: to stand still, or to fail.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from live import DEADLINE, until

from specops.engine.request import Counters, Emission, Sampling, Streaming
from specops.errors import UsageError


class ScriptedEngine(Streaming):
    """Gives each running sequence one token " go" a step; `hold()` keeps it from stepping."""

    def __init__(self, tokenizer: Any, max_batch: int = 2) -> None:
        self.tokenizer = tokenizer
        self.max_batch = max_batch
        self.max_length = 1_000_000
        self.counters = Counters()
        self.fault: Exception | None = None
        self._rows: dict[int, tuple[Sampling, int]] = {}
        self._waiting: deque[tuple[int, Sampling]] = deque()
        self._next = 0
        self.callers: set[int] = set()  # threads
        self._allowed = threading.Semaphore(0)
        self._held = False

    def hold(self) -> None:
        """Let no step end until `release`."""
        self._held = True

    def release(self) -> None:
        self._held = False
        self._allowed.release()

    def trickle(self, condition: Callable[[], bool], what: str) -> None:
        """Let one step after another end until `condition` is true."""

        def allow_one() -> bool:
            if condition():
                return True
            self._allowed.release()
            return False

        until(allow_one, what)

    @property
    def idle(self) -> bool:
        return not self._rows and not self._waiting

    @property
    def running(self) -> int:
        return len(self._rows)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def kv_usage(self) -> float:
        return len(self._rows) / self.max_batch

    def submit(self, prompt: list[int], sampling: Sampling) -> int:
        self.callers.add(threading.get_ident())
        if max(prompt) >= 1000:
            raise UsageError("token 1000 is not in the vocabulary")
        self._next += 1
        self._waiting.append((self._next, sampling))
        self.counters.prompt_tokens += len(prompt)
        return self._next

    def cancel(self, sequence_id: int) -> None:
        self._rows.pop(sequence_id, None)
        self._waiting = deque(entry for entry in self._waiting if entry[0] != sequence_id)

    def step(self) -> list[Emission]:
        self.callers.add(threading.get_ident())
        if self.idle:
            return []
        while self._waiting and len(self._rows) < self.max_batch:
            sequence_id, sampling = self._waiting.popleft()
            self._rows[sequence_id] = (sampling, 0)
        if self._held:
            self._allowed.acquire(timeout=DEADLINE)
        if self.fault is not None:
            raise self.fault
        emissions = []
        for sequence_id, (sampling, done) in list(self._rows.items()):
            last = done + 1 >= sampling.max_tokens
            emissions.append(Emission(sequence_id, [7], " go", "length" if last else None))
            self._rows[sequence_id] = (sampling, done + 1)
            self.counters.generated_tokens += 1
            if last:
                del self._rows[sequence_id]
        return emissions
