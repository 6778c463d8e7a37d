"""Each limit of docs/engine.md, tried: what a client does not send, does not read, or sends too much of."""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from live import DEADLINE, Live, events_of, until

from specops.serve.limits import DEFAULT, Limits
from specops.serve.protocol import LONG_TEXT, PromptEncoder

TEXT, CHAT = "/v1/completions", "/v1/chat/completions"
ENDLESS: dict[str, Any] = {"prompt": "a", "max_tokens": 900_000}
PAGE = Path(__file__).parents[2] / "docs" / "engine.md"


def connected(live: Live, sent: bytes) -> socket.socket:
    """A client that has sent that much and no more."""
    host, _, port = live.url.removeprefix("http://").rpartition(":")
    client = socket.socket()
    client.settimeout(DEADLINE)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect((host, int(port)))
    client.sendall(sent)
    return client


def received(client: socket.socket) -> bytes:
    """All until the server closes the connection."""
    parts = []
    while part := client.recv(65536):
        parts.append(part)
    return b"".join(parts)


def head(length: str, path: str = TEXT) -> bytes:
    return f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n{length}\r\n\r\n".encode()


def test_the_page_has_every_limit() -> None:
    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \| ([\d,]+) (s|MiB) \|", PAGE.read_text(encoding="utf-8"), re.M)
    factor = {"s": 1.0, "MiB": 2.0**20}
    page = {name: float(number.replace(",", "")) * factor[unit] for name, number, unit in rows}
    assert page == {field.name: getattr(DEFAULT, field.name) for field in fields(Limits)}


@pytest.mark.parametrize("sent", [b"", b"POST /v1/comp", b"POST / HTTP/1.1\r\nHost: a\r\nX-B: "])
def test_connections_without_complete_headers_are_closed(
    sent: bytes, serve_scripted: Callable[..., Live]
) -> None:
    live = serve_scripted(limits=Limits(headers_s=0.2))
    with ExitStack() as stack:
        clients = [stack.enter_context(closing(connected(live, sent))) for _ in range(30)]
        assert [received(client) for client in clients] == [b""] * 30
    assert live.ask("/health").status == 200


@pytest.mark.parametrize("length", ["Content-Length: 100", "Transfer-Encoding: chunked"])
def test_a_body_that_does_not_arrive_is_refused_and_its_connection_closed(
    length: str, serve_scripted: Callable[..., Live]
) -> None:
    live = serve_scripted(limits=Limits(body_s=0.2, linger_s=0.1))
    part = b'{"prompt": ' if "Length" in length else b'5\r\n{"pro\r\n'
    with ExitStack() as stack:
        clients = [stack.enter_context(closing(connected(live, head(length) + part))) for _ in range(30)]
        for client in clients:
            answer = received(client)
            assert answer.startswith(b"HTTP/1.1 408 ")
            assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == "body_timeout"


def test_a_body_that_is_too_large_is_refused_before_it_is_sent(serve_scripted: Callable[..., Live]) -> None:
    live = serve_scripted(limits=Limits(linger_s=0.1))
    for path in (TEXT, CHAT):
        with closing(connected(live, head(f"Content-Length: {10**12}", path))) as client:
            answer = received(client)
            assert answer.startswith(b"HTTP/1.1 413 ")
            assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == "body_too_large"


def test_a_chunked_body_that_is_too_large_is_refused_while_it_comes(
    serve_scripted: Callable[..., Live],
) -> None:
    live = serve_scripted(limits=Limits(body_bytes=1000, linger_s=0.1))
    chunk = b"400\r\n" + b"a" * 1024 + b"\r\n"
    with closing(connected(live, head("Transfer-Encoding: chunked") + chunk)) as client:
        assert received(client).startswith(b"HTTP/1.1 413 ")


def test_the_body_of_a_refused_request_is_waited_for_no_longer(serve_scripted: Callable[..., Live]) -> None:
    live = serve_scripted(limits=Limits(linger_s=0.1), api_key="s3cret")
    for path, status in ((TEXT, 401), ("/v1/nothing", 401), ("/health", 405)):
        with closing(connected(live, head("Content-Length: 100", path))) as client:
            assert received(client).startswith(f"HTTP/1.1 {status} ".encode())


def test_a_request_that_gets_no_place_is_refused(serve_scripted: Callable[..., Live]) -> None:
    live = serve_scripted(max_batch=1, limits=Limits(queue_s=0.3))
    live.engine.hold()
    with live.asking(TEXT, ENDLESS):
        until(lambda: live.engine.running == 1, "the first request runs")
        reply = live.ask(TEXT, ENDLESS)
        assert (reply.status, reply.error["code"]) == (503, "queue_timeout")
        assert int(reply.headers["Retry-After"]) >= 1
        live.engine.release()
    live.engine.trickle(lambda: live.engine.idle, "both were dropped")


def test_a_request_that_runs_may_take_longer_than_it_may_wait(serve_scripted: Callable[..., Live]) -> None:
    live = serve_scripted(max_batch=1, limits=Limits(queue_s=0.2))
    begun = time.monotonic()
    with live.open(TEXT, {**ENDLESS, "n": 2, "stream": True}) as response:
        events = events_of(response)
        while time.monotonic() < begun + 0.6:
            assert "error" not in json.loads(next(events))


@pytest.mark.parametrize(
    "body",
    [{**ENDLESS, "stream": True}, {"prompt": "a", "n": 64, "max_tokens": 600, "return_token_ids": True}],
)
def test_a_client_that_does_not_read_loses_its_connection(
    body: dict[str, Any], serve_scripted: Callable[..., Live]
) -> None:
    live = serve_scripted(max_batch=64, limits=Limits(write_s=0.3))
    live._bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)  # connections inherit it
    payload = json.dumps(body).encode()
    with closing(connected(live, head(f"Content-Length: {len(payload)}") + payload)):
        until(lambda: live.engine.running > 0, "it runs")
        until(lambda: live.engine.idle, "it ended, or was dropped")
        until(lambda: not live.server._runner.server.connections, "its connection is closed")


def test_health_says_that_an_engine_with_work_does_not_step(serve_scripted: Callable[..., Live]) -> None:
    live = serve_scripted(limits=Limits(step_s=0.3))
    assert live.ask("/health").status == 200
    live.engine.hold()
    with live.asking(TEXT, ENDLESS):
        until(lambda: live.engine.running == 1, "it runs")
        assert live.ask("/health").status == 200
        until(lambda: live.ask("/health").status == 503, "health says that the engine does not answer")
        live.engine.release()
        until(lambda: live.ask("/health").status == 200, "health says that it does again")
    live.engine.trickle(lambda: live.engine.idle, "the request was dropped")


def test_an_engine_in_a_step_for_a_client_that_has_gone_is_healthy(
    serve_scripted: Callable[..., Live],
) -> None:
    live = serve_scripted(limits=Limits(idle_answer_s=0.1))
    live.engine.hold()
    with live.asking(TEXT, ENDLESS):
        until(lambda: live.engine.running == 1, "it runs")
    for _ in range(3):
        assert live.ask("/health").status == 200
        time.sleep(0.1)
    live.engine.trickle(lambda: live.engine.idle, "the request was dropped")
    assert live.ask("/health").status == 200


# --- long prompts ----------------------------------------------------------------------------------


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, str]]:
    """What is encoded: characters, and the thread."""
    texts: list[tuple[int, str]] = []
    encode = PromptEncoder._ids

    def spy(self: PromptEncoder, text: str, add_special_tokens: bool) -> list[int]:
        texts.append((len(text), threading.current_thread().name))
        return encode(self, text, add_special_tokens)

    monkeypatch.setattr(PromptEncoder, "_ids", spy)
    return texts


def asked(text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    yield TEXT, {"prompt": text, "max_tokens": 1}
    yield TEXT, {"prompt": ["a", text], "max_tokens": 1}
    yield CHAT, {"messages": [{"role": "user", "content": text}], "max_tokens": 1}


@pytest.mark.parametrize("text", ["a" * 4_000_000, "the server measures " * 190_000, "é" * 600_000])
def test_a_prompt_that_cannot_fit_is_not_encoded(
    text: str, tiny: Live, encoded: list[tuple[int, str]]
) -> None:
    for path, body in asked(text):
        reply = tiny.ask(path, body)
        assert (reply.status, reply.error["code"]) == (400, "context_length_exceeded")
    assert all(characters <= 1 for characters, _ in encoded)  # "a"


def test_more_messages_than_tokens_are_refused(tiny: Live, encoded: list[tuple[int, str]]) -> None:
    reply = tiny.ask(CHAT, {"messages": [{"role": "user", "content": "a"}] * 50_000, "max_tokens": 1})
    assert (reply.status, reply.error["code"]) == (400, "context_length_exceeded")
    assert encoded == []


def test_a_prompt_that_does_not_fit_is_encoded_in_part_and_beside_the_event_loop(
    tiny: Live, encoded: list[tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PromptEncoder, "_refuse_by_bytes", lambda *_: None)
    for path, body in asked("the server measures " * 190_000):
        reply = tiny.ask(path, body)
        assert (reply.status, reply.error["code"]) == (400, "context_length_exceeded")
    for characters, thread in encoded:
        assert characters <= 2 * 8 * 256
        assert (thread.startswith("encoder")) == (characters > LONG_TEXT or thread != "live server")


def test_what_fits_is_encoded_whole(tiny: Live) -> None:
    """Also a text that is long for its tokens, or short."""
    backend = tiny.engine.tokenizer.backend_tokenizer
    encoder = tiny.server._api._encoder
    for text in ("the server measures " * 40, " " * 2000, "é" * 100, "a" * 254):
        ids = backend.encode(text, add_special_tokens=True).ids
        reply = tiny.ask(TEXT, {"prompt": text, "max_tokens": 1, "return_token_ids": True})
        if len(ids) < encoder._max_length:
            assert reply.status == 200, text
            assert reply.json["usage"]["prompt_tokens"] == len(ids)
        else:
            assert reply.error["code"] == "context_length_exceeded"


def test_long_prompts_leave_no_memory_behind(tiny: Live) -> None:
    """Encoding each whole kept 740 MB."""

    def resident() -> float:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20

    if not Path("/proc/self/statm").is_file():
        pytest.skip("needs Linux's /proc")
    text = "the server measures, and the draft " * 115_000
    assert tiny.ask(TEXT, {"prompt": text}).status == 400
    before = resident()
    for _ in range(8):
        assert tiny.ask(TEXT, {"prompt": text}).status == 400
    assert resident() < before + 100
