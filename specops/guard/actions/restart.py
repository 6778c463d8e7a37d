"""A single server: drained, stopped, and started without speculation, or with it.

All or nothing. What serves now is read from its /metrics, since only a server that speculates has the
counters of drafts (vllm/v1/metrics/loggers.py, 0.8 to 0.33), or by a command.
"""

from __future__ import annotations

import time

from specops.config.guard import RestartAction
from specops.errors import EndpointError, EnvironmentFailure
from specops.guard.actions.asking import ask
from specops.guard.actions.command import printed
from specops.guard.actions.running import Commands
from specops.guard.actions.target import Target
from specops.serving import tables

ASK_S = 5.0
POLL_S = 0.5
COUNTERS = tuple(
    name.encode()
    for series in tables()
    if series.drafts_come_late
    for name in (series.acceptance.verifications, series.acceptance.verifications.replace(":", "_"))
)


class Restart(Target):
    tries = 1

    def __init__(self, action: RestartAction, commands: Commands) -> None:
        self.name = f"server {action.health}"
        self._action = action
        self._commands = commands

    def read(self) -> int:
        action = self._action
        if action.metrics is None:
            assert action.read is not None
            return printed(self._commands, action.read, action.timeout_s)
        said = ask(f"read what {self.name} does", "GET", action.metrics, timeout_s=ASK_S)
        return 100 if any(name in said for name in COUNTERS) else 0

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
                        hint="look at its log",
                    ) from None
                time.sleep(POLL_S)
