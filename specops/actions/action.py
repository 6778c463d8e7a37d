"""The protocol of an action: its settings in the rollout file, and what the guard asks of it."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from specops.section import Section

if TYPE_CHECKING:
    from specops.actions.command import Commands

Words = Annotated[list[str], Field(min_length=1)]
PERCENT, ENABLED = "{percent}", "{enabled}"
"""Where an action puts the share of traffic that may be speculative: 0 to 100, or whether it is above 0."""

SWITCH_KEY = "speculative_percent"
"""The key of a switch in JSON, at a router and in a flag file."""


class Target(ABC):
    """A switch with a percentage, 0 to 100, of the traffic that may be speculative.

    `read` and `set` raise EnvironmentFailure. Setting the percentage that it has changes nothing; but it is
    read first, and set only if it differs.
    """

    name: str
    tries: int = 3
    """How often it is set before it counts as failed, until the next evaluation."""

    patience_s: float = math.inf
    """Seconds after which it is not set again until the next evaluation."""

    @property
    def identity(self) -> str:
        """Name of what is switched: equal for two guards that switch the same target, from any folder."""
        return self.name

    @abstractmethod
    def read(self) -> int:
        """The percentage that it has now."""

    @abstractmethod
    def set(self, percent: int) -> None:
        """Set the percentage: the target has `percent` when this returns, or soon."""

    def finish(self) -> None:  # noqa: B027, most have nothing left to do
        """Completes a `set` that a killed guard did not finish, though `read` gives the percentage."""


@dataclass(frozen=True)
class Message:
    """The text of a notification of a change."""

    rollout: str
    percent: int
    """Percentage of the traffic that may be speculative, as the guard has decided."""

    confirmed: bool
    """Whether every target has it."""

    text: str
    """The reason, in words."""


class Notification(ABC):
    """A receiver of a message after a change. It has no percentage, so nothing is read back."""

    name: str

    @abstractmethod
    def send(self, message: Message) -> None:
        """Raises SpecopsError. The guard records it, and goes on."""


@dataclass(frozen=True)
class Site:
    """The rollout's addresses and folders, on which actions act besides their own settings."""

    routers: tuple[Target, ...]
    """The switch of every router in addresses.routers."""

    commands: Commands


class Action(Section):
    """A section of `guard.actions`, selected by its `kind`."""

    kind: str
    switches: ClassVar[bool] = True
    """Whether it has targets; else it only notifies."""

    moves_traffic: ClassVar[bool] = True
    """Whether requests then go to another pool: a router's counters show it."""

    @property
    def stepwise(self) -> bool:
        """Return whether it can set a share of the traffic; else all or nothing."""
        return True

    @property
    def longest_s(self) -> float:
        """Return how long its commands may take in all."""
        return 0.0

    def targets(self, site: Site) -> list[Target]:
        return []

    def notifications(self) -> list[Notification]:
        return []


def placeholders(value: object, keys: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield for each value of a body that is a placeholder the keys that lead to it, and which placeholder it
    is."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from placeholders(inner, (*keys, str(key)))
    elif value in (PERCENT, ENABLED):
        yield keys, str(value)
