"""A single server: drained, stopped, and started without speculation, or with it.

All or nothing. What serves now is read from its /metrics, since only a server that speculates has the
counters of drafts (vllm/v1/metrics/loggers.py, 0.8 to 0.33), or by a command.
"""

from __future__ import annotations

import time
from typing import ClassVar, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from specops.actions.action import Action, Site, Target, Words
from specops.actions.command import Commands, printed
from specops.actions.http_client import ask
from specops.errors import EndpointError, EnvironmentFailure
from specops.hints import http_request
from specops.net import machine_address
from specops.quantities import Seconds
from specops.section import Url
from specops.serving import tables

ASK_S = 5.0
POLL_S = 0.5
STEPS = 5
"""Steps of a restart: drain, stop, start, wait until it is healthy, admit."""
COUNTERS = tuple(
    name.encode()
    for series in tables()
    if series.drafts_come_late
    for counter in series.draft_names
    for name in (counter, counter.replace(":", "_"))
)


class RestartAction(Action):
    """A single pool, whose server is drained and restarted with or without speculation."""

    kind: Literal["restart"]
    moves_traffic: ClassVar[bool] = False
    drain: Words | None = Field(
        default=None,
        description="Command that takes the server out of traffic and waits until it is; default: none.",
    )
    stop: Words = Field(description="Command that stops the server; it must succeed where none runs.")
    start_standard: Words = Field(
        description="Command that starts the server without speculation, and returns."
    )
    start_speculative: Words = Field(
        description="Command that starts the server with speculation, and returns."
    )
    admit: Words | None = Field(
        default=None, description="Command that gives traffic to the healthy server; default: none."
    )
    health: Url = Field(
        description="URL that answers 200 once the server serves, such as http://127.0.0.1:8000/health."
    )
    metrics: Url | None = Field(
        default=None,
        description="URL of vLLM's or the embedded engine's metrics, which show "
        "whether it speculates; default: none, `read` is given.",
    )
    read: Words | None = Field(
        default=None,
        description="Command whose last line says whether the server speculates, "
        "true or false; default: none, `metrics` is given.",
    )
    timeout_s: Seconds = Field(
        default=1800.0, gt=0.0, description="Timeout of each command, and of becoming healthy, in seconds."
    )

    @model_validator(mode="after")
    def _can_be_read(self) -> RestartAction:
        if (self.metrics is None) == (self.read is None):
            raise PydanticCustomError(
                "action",
                "either metrics or read is required, not both",
                {"advice": "such as metrics: http://127.0.0.1:8000/metrics"},
            )
        return self

    @property
    def stepwise(self) -> bool:
        return False

    @property
    def longest_s(self) -> float:
        return self.timeout_s * STEPS

    def targets(self, site: Site) -> list[Target]:
        return [Restart(self, site.commands)]


class Restart(Target):
    tries = 1

    def __init__(self, action: RestartAction, commands: Commands) -> None:
        self.name = f"server {action.health}"
        self._action = action
        self._commands = commands

    @property
    def identity(self) -> str:
        return f"server {machine_address(self._action.health)}"

    def read(self) -> int:
        action = self._action
        if action.metrics is None:
            assert action.read is not None
            return printed(self._commands, action.read, action.timeout_s)
        exposition = ask(f"read what {self.name} does", "GET", action.metrics, timeout_s=ASK_S)
        return 100 if any(name in exposition for name in COUNTERS) else 0

    def set(self, percent: int) -> None:
        action = self._action
        start = action.start_speculative if percent else action.start_standard
        for words in (action.drain, action.stop, start):
            if words is not None:
                self._commands.run(words, action.timeout_s)
        self._wait_until_healthy()
        self.finish()

    def finish(self) -> None:
        """Admitting it once more changes nothing, and leaving it out would leave nothing that serves."""
        if self._action.admit is not None:
            self._commands.run(self._action.admit, self._action.timeout_s)

    def _wait_until_healthy(self) -> None:
        deadline = time.monotonic() + self._action.timeout_s
        while True:
            try:
                ask(f"see whether {self.name} is up", "GET", self._action.health, timeout_s=ASK_S)
                return
            except EndpointError as error:
                if time.monotonic() > deadline:
                    raise EnvironmentFailure(
                        f"{self.name} was not healthy {self._action.timeout_s:g} s after it was started:"
                        f" {error.message}",
                        hint=http_request(self._action.health),
                    ) from None
                time.sleep(POLL_S)
