"""What the policy goes by."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from specops.config.guard import Guard, stepwise
from specops.guard.state import FULL


@dataclass(frozen=True)
class Rules:
    """Of a rollout file's `guard`."""

    interval_s: float = 60.0
    consecutive: int = 3
    cooldown_s: float = 1800.0
    steps: tuple[int, ...] = (5, 25, 50)
    hold: int = 5
    margin: float = 0.05
    attempts: int = 4
    backoff: float = 2.0
    max_wait_s: float = 86400.0
    floor: int = 0
    """The percentage that stays speculative when it falls back, since the standard pool carries no more. Not
    where requests fail: then all of them move."""

    @classmethod
    def of(cls, guard: Guard) -> Rules:
        return cls(
            interval_s=guard.interval_s,
            consecutive=guard.consecutive,
            cooldown_s=guard.cooldown_s,
            steps=tuple(guard.canary_percents) if all(map(stepwise, guard.actions)) else (),
            hold=guard.hold_evaluations,
            margin=guard.margin,
            attempts=guard.attempts,
            backoff=guard.backoff,
            max_wait_s=guard.max_wait_s,
        )

    def above(self, percent: int) -> int:
        """The next step of the ladder."""
        return next((step for step in self.steps if step > percent), FULL)

    def wait_s(self, attempts: int) -> float:
        """The cool-down after so many attempts failed."""
        grown = self.cooldown_s * self.backoff**attempts
        return float(max(min(grown, self.max_wait_s), self.cooldown_s))

    def keeping(self, floor: int) -> Rules:
        """These, where the standard pool carries no more than all but `floor` per cent. What can only be
        switched as a whole is."""
        return replace(self, floor=floor if self.steps else 0)

    @property
    def settled(self) -> int:
        """Healthy evaluations after which it is on for good: a cool-down of them."""
        return max(math.ceil(self.cooldown_s / self.interval_s), self.hold)
