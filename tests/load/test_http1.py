"""The framing of responses, wherever the network cuts them."""

from __future__ import annotations

import gzip

import pytest

from specops.load.http1 import BadResponse, Response, decoded, request

BODY = b"data: 1\n\ndata: 22\n\n"


def chunked(*pieces: bytes, ending: bytes = b"0\r\n\r\n", headers: bytes = b"") -> bytes:
    framed = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n" + headers + b"\r\n" + framed + ending


def fed(*pieces: bytes) -> tuple[Response, bytes]:
    response = Response()
    return response, b"".join(response.feed(piece) for piece in pieces)


WHOLE = [
    chunked(BODY[:9], BODY[9:]),
    chunked(BODY, ending=b"0;last\r\nX-Trailer: 1\r\n\r\n"),
    b"HTTP/1.1 100 Continue\r\n\r\n" + chunked(BODY[:1], BODY[1:]),
    b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY,
]


@pytest.mark.parametrize("whole", WHOLE)
def test_a_response_may_be_cut_anywhere(whole: bytes) -> None:
    for at in range(1, len(whole)):
        response, body = fed(whole[:at], whole[at:])
        assert (response.status, body, response.done, response.reusable) == (200, BODY, True, True)
    single, body = fed(*[whole[i : i + 1] for i in range(len(whole))])
    assert (body, single.done) == (BODY, True)


@pytest.mark.parametrize("whole", WHOLE)
def test_a_response_is_not_done_before_its_last_byte(whole: bytes) -> None:
    for at in range(len(whole)):
        response, _ = fed(whole[:at]) if at else fed()
        assert not response.done
        response.close()
        assert not response.done


def test_a_body_that_lasts_until_the_connection_ends() -> None:
    response, body = fed(b"HTTP/1.1 200 OK\r\n\r\nda", b"ta")
    assert (body, response.done) == (b"data", False)
    response.close()
    assert (response.done, response.reusable) == (True, False)


@pytest.mark.parametrize("status", [204, 304])
def test_a_response_without_a_body(status: int) -> None:
    response, body = fed(b"HTTP/1.1 %d None\r\n\r\n" % status)
    assert (response.status, body, response.done) == (status, b"", True)


@pytest.mark.parametrize(
    ("version", "headers", "reusable"),
    [
        (b"1.1", b"", True),
        (b"1.1", b"Connection: close\r\n", False),
        (b"1.1", b"connection: Keep-Alive\r\n", True),
        (b"1.0", b"", False),
        (b"1.0", b"Connection: keep-alive\r\n", True),
    ],
)
def test_whether_a_connection_may_be_used_again(version: bytes, headers: bytes, reusable: bool) -> None:
    response, _ = fed(b"HTTP/%s 200 OK\r\nContent-Length: 1\r\n%s\r\nx" % (version, headers))
    assert (response.done, response.reusable) == (True, reusable)


def test_bytes_after_the_end_are_not_the_next_response() -> None:
    for whole in WHOLE:
        response, body = fed(whole + b"HTTP")
        assert (body, response.done, response.reusable) == (BODY, True, False)


@pytest.mark.parametrize(
    "nonsense",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"<html>",
        b"HTTP/1.1 ok\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -3\r\n\r\n",
        chunked(ending=b"5;x\r\nabcdefgh\r\n"),
        chunked(ending=b"xyz\r\n"),
        chunked(ending=b"-1\r\n"),
        chunked(ending=b"1" * 9000),
        b"HTTP/1.1 200 OK\r\n" + b"X: " + b"y" * 70_000,
    ],
)
def test_nonsense_is_refused(nonsense: bytes) -> None:
    with pytest.raises(BadResponse):
        fed(nonsense)


def test_a_compressed_body_keeps_its_instants() -> None:
    packed = gzip.compress(BODY)
    reads = [(1.0, packed[:12]), (2.0, packed[12:])]
    for encoding in ("gzip", "x-gzip"):
        found = decoded(reads, encoding)
        assert [at for at, _ in found] == [1.0, 2.0]
        assert b"".join(data for _, data in found) == BODY
    for other in ("br", "deflate, br"):
        with pytest.raises(BadResponse, match="Content-Encoding"):
            decoded(reads, other)
    with pytest.raises(BadResponse, match="not in the encoding"):
        decoded([(1.0, BODY)], "gzip")


def test_a_request_is_one_piece() -> None:
    assert request("POST", "/v1/x", "h:8000", {"Accept": "*/*"}, b"{}") == (
        b"POST /v1/x HTTP/1.1\r\nHost: h:8000\r\nAccept: */*\r\nContent-Length: 2\r\n\r\n{}"
    )
