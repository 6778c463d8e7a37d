"""The framing of responses, wherever the network cuts them."""

from __future__ import annotations

import gc
import gzip
import weakref

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


@pytest.mark.parametrize("ending", [b"", b"Connection: close\r\n"])
def test_another_response_that_nobody_asked_for_is_not_the_body(ending: bytes) -> None:
    response, body = fed(chunked(BODY, headers=ending) + chunked(b"more"))
    assert (body, response.done, response.reusable) == (BODY, True, False)


def test_the_fields_of_an_interim_response_are_its_own() -> None:
    response, body = fed(
        b"HTTP/1.1 103 Early\r\nLink: </x>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx"
    )
    assert (response.status, response.headers, body) == (200, {"content-length": "1"}, b"x")


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


@pytest.mark.parametrize(
    ("first", "named"),
    [
        ("000000040000000000", "speaks HTTP/2 alone"),
        ("000008070000000000 0000000000000001", "speaks HTTP/2 alone"),
        ("000000040000000001", "does not begin as HTTP does"),
        ("000000010000000000", "does not begin as HTTP does"),
        ("15030100020246", "begins with https://"),
        ("160303", "begins with https://"),
        ("170303", "does not begin as HTTP does"),
        ("1500", "does not begin as HTTP does"),
    ],
)
def test_another_protocol_is_named(first: str, named: str) -> None:
    with pytest.raises(BadResponse, match=named):
        fed(bytes.fromhex(first))


@pytest.mark.parametrize(
    "sloppy",
    [
        chunked(ending=b"13 \r\n" + BODY + b"\r\n0\r\n\r\n"),  # spaces after the size
        chunked(BODY, headers=b"Content-Length: 5\r\n"),
    ],
    ids=["space", "a length beside chunks"],
)
def test_what_servers_get_wrong_is_read_all_the_same(sloppy: bytes) -> None:
    response, body = fed(sloppy)
    assert (response.status, body, response.done) == (200, BODY, True)


@pytest.mark.parametrize("whole", WHOLE)
def test_a_response_that_is_over_is_freed_without_the_collector(whole: bytes) -> None:
    """In a measured window nothing collects rings."""
    response, _ = fed(whole)
    gone = weakref.ref(response)
    gc.disable()
    try:
        del response
        assert gone() is None
    finally:
        gc.enable()


def test_fields_are_joined_and_trailers_are_none() -> None:
    response, _ = fed(chunked(BODY, ending=b"0\r\nX-Last: 1\r\n\r\n", headers=b"X-A: 1\r\nx-a:  2 \r\n"))
    assert response.headers == {"transfer-encoding": "chunked", "x-a": "1, 2"}


def test_a_head_may_be_long_and_what_follows_it_longer() -> None:
    head = b"HTTP/1.1 200 OK\r\nX: " + b"y" * 60_000 + b"\r\nContent-Length: 90000\r\n\r\n"
    response, body = fed(head[:100], head[100:] + b"z" * 90_000)
    assert (len(body), response.done) == (90_000, True)


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
