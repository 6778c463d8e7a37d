"""Messages of known types over a connection, as MessagePack: how vLLM's front end and engine core talk, too.

A pickle names its classes in every message and looks them up again in every other: a sixth of what a round
took of the service's CPU.
"""

from __future__ import annotations

from multiprocessing.connection import Connection
from typing import Any, Generic, TypeVar

from msgspec import msgpack

Heard = TypeVar("Heard")

_ENCODER = msgpack.Encoder()


class Packed(Generic[Heard]):
    """One end of a connection whose other end is one as well. Closing is the connection's matter."""

    def __init__(self, connection: Connection, heard: Any) -> None:
        """heard: the type of what the other end sends."""
        self._connection = connection
        self._decoder: msgpack.Decoder[Heard] = msgpack.Decoder(heard)

    def send(self, message: object) -> None:
        self._connection.send_bytes(_ENCODER.encode(message))

    def recv(self) -> Heard:
        """Waits for one. EOFError where the other end is closed."""
        return self._decoder.decode(self._connection.recv_bytes())
