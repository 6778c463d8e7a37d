"""HTTP/1.1 on the wire (RFC 9112): a request as bytes, and the framing of a response read in pieces. Pure."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping

_LONGEST_HEAD = 64 * 1024
_LONGEST_LINE = 8 * 1024
_WITHOUT_BODY = (204, 304)


class BadResponse(Exception):
    """The bytes are not an HTTP/1.1 response; the message says what is wrong with them."""


def request(method: str, target: str, host: str, headers: Mapping[str, str], body: bytes = b"") -> bytes:
    """Head and body in one piece, so that one system call hands the whole request to the kernel."""
    lines = [f"{method} {target} HTTP/1.1", f"Host: {host}", *(f"{k}: {v}" for k, v in headers.items())]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


class Response:
    """One response. `feed` takes what was read and returns the part that belongs to the body.

    `done` turns true with the last byte of the response, or with `close` where the body lasts until then.
    """

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        """Names in lower case; values of a repeated name joined by commas."""

        self.done = False
        self.reusable = False
        """Whether the server keeps the connection open for another request, by what it says."""

        self._head: bytes | None = b""
        self._chunked = False
        self._left: int | None = 0  # of the body, or of the chunk that is being read; None: until the end
        self._line = b""
        self._after_chunk = self._in_trailers = False

    def feed(self, data: bytes) -> bytes:
        """The bytes of the body in `data`. BadResponse where `data` does not follow the protocol."""
        if self._head is not None:
            self._head += data
            data = self._take_head()
        if self.done or not data:
            self.reusable = self.reusable and not (self.done and data)  # bytes that nobody asked for
            return b""
        if self._chunked:
            return self._dechunked(data)
        if self._left is None:
            return data
        body, surplus = data[: self._left], data[self._left :]
        self._left -= len(body)
        self.done = self._left == 0
        self.reusable = self.reusable and not surplus
        return body

    def close(self) -> None:
        """The server closed the connection: the end of a body that has no other."""
        self.done = self.done or (self._head is None and not self._chunked and self._left is None)
        self.reusable = False

    def _take_head(self) -> bytes:
        """Read the head once it is whole; what follows it. Interim responses (1xx) are passed over."""
        while True:
            assert self._head is not None
            head, end, rest = self._head.partition(b"\r\n\r\n")
            if not self._head.startswith(b"HTTP/1."[: len(self._head)]):
                raise BadResponse(f"the response does not begin as HTTP does: {self._head[:40]!r}")
            if not end:
                if len(head) > _LONGEST_HEAD:
                    raise BadResponse(f"the head of the response is longer than {_LONGEST_HEAD} bytes")
                return b""
            status, *lines = head.decode("latin-1").split("\r\n")
            version, _, code = status.partition(" ")
            if not code[:3].isdecimal():
                raise BadResponse(f"the status line of the response is {status[:80]!r}")
            self.status = int(code[:3])
            if self.status >= 200:
                self._head = None
                self._read_fields(version, lines)
                return rest
            self._head = rest
            if not rest:
                return b""

    def _read_fields(self, version: str, lines: Iterable[str]) -> None:
        for line in lines:
            name, _, value = line.partition(":")
            name, value = name.strip().lower(), value.strip()
            self.headers[name] = f"{self.headers[name]}, {value}" if name in self.headers else value
        options = {option.strip() for option in self.headers.get("connection", "").lower().split(",")}
        self.reusable = "close" not in options and (version != "HTTP/1.0" or "keep-alive" in options)
        length = self.headers.get("content-length")
        if self.status in _WITHOUT_BODY:
            self.done = True
        elif "chunked" in self.headers.get("transfer-encoding", "").lower():
            self._chunked = True
        elif length is None:
            self._left = None
        elif length.isdecimal():
            self._left = int(length)
            self.done = self._left == 0
        else:
            raise BadResponse(f"the Content-Length of the response is {length[:40]!r}")

    def _dechunked(self, data: bytes) -> bytes:
        assert self._left is not None
        found = []
        while data and not self.done:
            if self._left:
                piece = data[: self._left]
                found.append(piece)
                data = data[len(piece) :]
                self._left -= len(piece)
                self._after_chunk = self._left == 0
                continue
            line, end, data = data.partition(b"\n")
            self._line += line
            if len(self._line) > _LONGEST_LINE:
                raise BadResponse("the line with a chunk's size does not end")
            if end:
                line, self._line = self._line.rstrip(b"\r"), b""
                self._take_line(line)
        self.reusable = self.reusable and not data
        return found[0] if len(found) == 1 else b"".join(found)

    def _take_line(self, line: bytes) -> None:
        """What stands between the data of chunks: the end of one, the size of the next, trailers."""
        if self._in_trailers:
            self.done = not line
        elif self._after_chunk:
            if line:
                raise BadResponse(f"a chunk is longer than its size says: {line[:40]!r}")
            self._after_chunk = False
        else:
            try:
                self._left = int(line.partition(b";")[0].strip(), 16)
            except ValueError:
                raise BadResponse(f"{line[:40]!r} is not the size of a chunk") from None
            if self._left < 0:
                raise BadResponse(f"{line[:40]!r} is not the size of a chunk")
            self._in_trailers = self._left == 0


def decoded(reads: Iterable[tuple[float, bytes]], encoding: str) -> list[tuple[float, bytes]]:
    """`reads` without the Content-Encoding that a server used although it was asked for none.

    Raises BadResponse for an encoding other than gzip and deflate, and for bytes that are not in it.
    """
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise BadResponse(f"the Content-Encoding of the response is {encoding[:40]!r}")
    decoder = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)  # 32: gzip or zlib, by the first bytes
    try:
        return [(at, decoder.decompress(data)) for at, data in reads]
    except zlib.error as error:
        raise BadResponse(
            f"the bytes of the response are not in the encoding that it names, {encoding}: {error}"
        ) from None
