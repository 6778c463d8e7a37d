"""Which of several workers a sequence goes to: the least loaded, but a conversation stays where it was."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

BLOCK = 8
"""Tokens of a prompt that are compared at once."""

MOST = 16_384
"""Conversations that are remembered."""


class Placement:
    """Places sequences. A conversation goes on where a prompt was that its own begins with, as a whole: what
    remains of its text is there. A text that many prompts begin with, such as instructions, is none of these
    prompts as a whole, and binds nothing."""

    def __init__(self, places: int) -> None:
        """places: sequences that a worker decodes at the same time."""
        self._places = places
        self._homes: OrderedDict[int, int] = OrderedDict()  # worker, by the hash of a prompt's blocks

    def place(self, prompt: list[int], loads: Sequence[int | None]) -> int:
        """The worker for a prompt. loads: the sequences of each worker; None: it takes none. One must take
        some."""
        able = {worker: load for worker, load in enumerate(loads) if load is not None}
        chosen = min(able, key=lambda worker: (able[worker], worker))
        hashes, state = [], 0
        for start in range(0, len(prompt) - BLOCK + 1, BLOCK):
            state = hash((state, *prompt[start : start + BLOCK]))
            hashes.append(state)
        home = next((self._homes[key] for key in hashes[-2::-1] if key in self._homes), None)
        # It waits for its worker only if it would wait everywhere.
        if home in able and (able[home] < self._places or able[home] == able[chosen]):
            chosen = home
        if hashes:
            self._homes[hashes[-1]] = chosen
            self._homes.move_to_end(hashes[-1])
            if len(self._homes) > MOST:
                self._homes.popitem(last=False)
        return chosen
