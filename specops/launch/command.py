"""A command of the user's own: a pool's settings -> its words and the address that they give the server."""

from __future__ import annotations

import shlex
import shutil

from specops.config import PORT, CommandPool
from specops.errors import ConfigError
from specops.launch.address import Known, free_port


def check(pool: CommandPool) -> None:
    """ConfigError where there is no such program."""
    check_program(shlex.split(pool.command)[0])


def check_program(program: str) -> None:
    if shutil.which(program) is None:
        raise ConfigError(
            f"could not start a server: there is no program {program}",
            hint="give its whole path, or activate the environment that it is installed in",
        )


def on_a_free_port(pool: CommandPool) -> tuple[list[str], Known]:
    check(pool)
    words = shlex.split(pool.command)
    port = free_port()
    return [word.replace(PORT, str(port)) for word in words], Known.on(port)
