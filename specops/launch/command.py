"""A command of the user's own: a pool's settings -> its words and the address that they give the server."""

from __future__ import annotations

import shlex
import shutil
import socket

from specops.config import PORT, CommandPool
from specops.errors import ConfigError
from specops.launch.address import Known


def check(pool: CommandPool) -> None:
    """ConfigError where there is no such program."""
    program = shlex.split(pool.command)[0]
    if shutil.which(program) is None:
        raise ConfigError(
            f"could not start a server: there is no program {program}",
            hint="give its whole path, or activate the environment that it is installed in",
        )


def on_a_free_port(pool: CommandPool) -> tuple[list[str], Known]:
    check(pool)
    words = shlex.split(pool.command)
    port = _free_port()
    return [word.replace(PORT, str(port)) for word in words], Known(f"http://127.0.0.1:{port}")


def _free_port() -> int:
    # Free now; another program may take it before the server does, which then says so in its log and ends.
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
