"""What the guard asks of whatever it switches."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod


class Target(ABC):
    """Something that has a percentage, 0 to 100, of the traffic that may be speculative.

    Both questions raise EnvironmentFailure. Setting what it has already changes nothing; but it is asked
    first, and set only if it differs.
    """

    name: str
    tries: int = 3
    """How often it is set before it counts as failed, until the next evaluation."""

    patience_s: float = math.inf
    """After so long it is not set again until the next evaluation."""

    @abstractmethod
    def read(self) -> int:
        """What it has."""

    @abstractmethod
    def set(self, percent: int) -> None:
        """It has it when this returns, or soon."""

    def finish(self) -> None:  # noqa: B027, most have nothing left to do
        """What may be left to do where a guard was killed while it set it, though it reads as wanted."""
