"""Commands of one's own: one sets, one prints what is set."""

from __future__ import annotations

from collections.abc import Sequence

from specops.config.guard import ENABLED, PERCENT, CommandAction
from specops.errors import EnvironmentFailure
from specops.guard.actions.running import Commands
from specops.guard.actions.target import Target

WORDS = {"true": 100, "on": 100, "false": 0, "off": 0}


class Command(Target):
    tries = 1

    def __init__(self, action: CommandAction, commands: Commands) -> None:
        self.name = f"command {action.set[0]}"
        self._action = action
        self._commands = commands

    def read(self) -> int:
        return printed(self._commands, self._action.read, self._action.timeout_s)

    def set(self, percent: int) -> None:
        filled = {PERCENT: str(percent), ENABLED: "true" if percent else "false"}
        words = self._action.set
        for placeholder, value in filled.items():
            words = [word.replace(placeholder, value) for word in words]
        self._commands.run(words, self._action.timeout_s)


def printed(commands: Commands, words: Sequence[str], timeout_s: float) -> int:
    """The percentage that a command prints in its last line."""
    lines = commands.run(words, timeout_s).strip().splitlines()
    last = lines[-1].strip().lower() if lines else ""
    if last in WORDS:
        return WORDS[last]
    if last.isascii() and last.isdecimal() and int(last) <= 100:
        return int(last)
    raise EnvironmentFailure(
        f"could not read what is set: {words[0]} printed {last[:80]!r}",
        hint="its last line is a whole number from 0 to 100, or true or false",
    )
