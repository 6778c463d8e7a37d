"""HTTP/1.1 on the wire (RFC 9112): a request as bytes, and the framing of a response read in pieces. Pure."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping

from httptools import HttpParserError, HttpResponseParser

_LONGEST_HEAD = 64 * 1024
_BEGINNING = b"HTTP/1."

_LENIENT = {
    "lenient_chunked_length": True,
    "lenient_spaces_after_chunk_size": True,
}
"""What servers get wrong and every client accepts. A client alone cannot be misled by it: what a proxy reads
otherwise is the proxy's own."""


class BadResponse(Exception):
    """The bytes are not an HTTP/1.1 response; the message says what is wrong with them."""


def request(method: str, target: str, host: str, headers: Mapping[str, str], body: bytes = b"") -> bytes:
    """Head and body in one piece, so that one system call hands the whole request to the kernel."""
    lines = [f"{method} {target} HTTP/1.1", f"Host: {host}", *(f"{k}: {v}" for k, v in headers.items())]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def no_http(data: bytes) -> str:
    """The sentence on a response that begins with `data`, and not as HTTP/1.1 does."""
    if data[:1] in (b"\x15", b"\x16") and data[1:2] == b"\x03":  # an alert or a handshake
        return "the server speaks TLS: its address begins with https://"
    if data[3:4] in (b"\x04", b"\x07") and data[5:9] == bytes(4):  # SETTINGS or GOAWAY of stream 0
        return "the server speaks HTTP/2 alone, and HTTP/1.1 is needed"
    return f"the response does not begin as HTTP does: {data[:40]!r}"


class Response:
    """One response, framed by llhttp. `feed` takes what was read and returns what of it is the body's.

    `done` turns true with the last byte of the response, or with `close` where the body lasts until then.
    """

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        """Names in lower case; values of a repeated name joined by commas."""

        self.done = False
        self.reusable = False
        """Whether the server keeps the connection open for another request, by what it says."""

        self._parser: HttpResponseParser | None = HttpResponseParser(self)
        self._parser.set_dangerous_leniencies(**_LENIENT)
        self._head = b""
        self._in_head = True
        self._until_end = False
        self._body: list[bytes] = []

    def feed(self, data: bytes) -> bytes:
        """The bytes of the body in `data`. BadResponse where `data` does not follow the protocol."""
        if self._parser is None:
            self.reusable = self.reusable and not data  # bytes that nobody requested
            return b""
        if self._in_head:
            self._check_head(data)
        try:
            self._parser.feed_data(data)
        except HttpParserError as error:
            if not self.done:
                raise BadResponse(f"the response is not HTTP: {error}, in {data[:40]!r}") from None
            self.reusable = False
        if self.done:
            self._parser = None  # it refers to this object, and nothing collects a ring in a measured window
        body = self._body
        if not body:
            return b""
        self._body = []
        return body[0] if len(body) == 1 else b"".join(body)

    def close(self) -> None:
        """The server closed the connection: the end of a body that has no other."""
        self.done = self.done or self._until_end
        self.reusable = False
        self._parser = None

    def _check_head(self, data: bytes) -> None:
        if len(self._head) + len(data) > _LONGEST_HEAD and b"\r\n\r\n" not in self._head + data:
            raise BadResponse(f"the head of the response is longer than {_LONGEST_HEAD} bytes")
        self._head += data
        if not self._head.startswith(_BEGINNING[: len(self._head)]):
            raise BadResponse(no_http(self._head))

    # what the parser calls

    def on_message_begin(self) -> None:
        self.reusable = self.reusable and not self.done  # bytes that nobody requested

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # else it is a trailer
            key, text = name.decode("latin-1").lower(), value.decode("latin-1").strip()
            self.headers[key] = f"{self.headers[key]}, {text}" if key in self.headers else text

    def on_headers_complete(self) -> None:
        assert self._parser is not None
        if self.done:
            return
        self.status = self._parser.get_status_code()
        if self.status < 200:  # an interim response, which another follows
            self.headers.clear()
            return
        self._in_head = False
        self._head = b""
        chunked = "chunked" in self.headers.get("transfer-encoding", "").lower()
        self._until_end = not chunked and "content-length" not in self.headers

    def on_body(self, data: bytes) -> None:
        if not self.done:
            self._body.append(data)

    def on_message_complete(self) -> None:
        if self._parser is not None and not self._in_head and not self.done:
            self.done = True
            self.reusable = self._parser.should_keep_alive()


def decoded(reads: Iterable[tuple[float, bytes]], encoding: str) -> list[tuple[float, bytes]]:
    """`reads` without the Content-Encoding that a server used although none was requested.

    Raises BadResponse for an encoding other than gzip and deflate, and for bytes that are not in it.
    """
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise BadResponse(f"the Content-Encoding of the response is {encoding[:40]!r}")
    decoder = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)  # 32: gzip or zlib, by the first bytes
    try:
        return [(time_s, decoder.decompress(data)) for time_s, data in reads]
    except zlib.error as error:
        raise BadResponse(
            f"the bytes of the response are not in the encoding that it names, {encoding}: {error}"
        ) from None
