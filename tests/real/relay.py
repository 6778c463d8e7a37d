"""One address whose server can be exchanged without its port being closed for a moment."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

from daemons import free_port


class Relay:
    """Connections to `address` go on to HOST:PORT `to`; open ones stay with the server that they have."""

    def __init__(self, address: str | None = None) -> None:
        self.address = address or f"127.0.0.1:{free_port()}"
        self.to = ""
        self._listener = socket.create_server(_pair(self.address))
        self._accepting = threading.Thread(target=self._accept)
        self._open: set[socket.socket] = set()

    def __enter__(self) -> Relay:
        self._accepting.start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._accepting.join()
        for end in list(self._open):
            _end(end)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if not self.to:  # its server is not up yet
                client.close()
                continue
            try:
                server = socket.create_connection(_pair(self.to), timeout=2)
                server.settimeout(None)
            except OSError:
                client.close()
                continue
            self._open |= {client, server}
            for source, sink in ((client, server), (server, client)):
                threading.Thread(target=self._carry, args=(source, sink), daemon=True).start()

    def _carry(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
        for end in (source, sink):
            _end(end)
        self._open.discard(source)
        source.close()


def _pair(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


def _end(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
