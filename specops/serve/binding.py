"""Taking the address that a server answers on."""

from __future__ import annotations

import socket

from specops.errors import EnvironmentFailure


def bind(host: str, port: int) -> socket.socket:
    """Take an address, so that a taken one is known before models are loaded. Port 0 takes a free one.

    The socket does not listen yet: until the server is ready, clients are refused and not left waiting.
    Raises EnvironmentFailure when the host is unknown or the port is taken.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        bound = socket.socket(family, kind, protocol)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
        except OSError:
            bound.close()
            raise
    except OSError as error:
        raise not_listening(host, port, error) from error
    return bound


def not_listening(host: str, port: int, error: OSError) -> EnvironmentFailure:
    """The error to raise where the address cannot be listened on."""
    reason = error.strerror or str(error)
    return EnvironmentFailure(
        f"could not listen on {host} port {port}: {reason}",
        hint="choose another --host or --port (0 takes a free one), or stop what listens there",
    )
