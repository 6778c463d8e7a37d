"""One HTTP question: whom it goes to, what it carries there, and when it gives up."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from specops.actions.http_client import ask
from specops.errors import EndpointError

SECRET = "s3cret"


class Service(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.seen: list[tuple[str, str | None]] = []
        self.over = threading.Event()


class Handler(BaseHTTPRequestHandler):
    server: Service

    def do_GET(self) -> None:
        self.server.seen.append((self.path, self.headers["Authorization"]))
        if self.path == "/login":
            self.send_response(302)
            self.send_header("Location", f"{self.server.url}/elsewhere")
            self.end_headers()
            return
        self.send_response(200)
        self.end_headers()
        if self.path == "/endless":
            while not self.server.over.wait(0.05):
                self.wfile.write(b".")
                self.wfile.flush()
        self.wfile.write(b"{}")

    do_POST = do_GET

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def service() -> Iterator[Service]:
    with Service() as made:
        thread = threading.Thread(target=made.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield made
        finally:
            made.over.set()
            made.shutdown()
            thread.join()


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_redirect_is_refused_and_gets_no_token(service, method) -> None:
    with pytest.raises(EndpointError, match="answered 302"):
        ask("set the flag", method, f"{service.url}/login", token=SECRET, timeout_s=5)
    assert [path for path, _ in service.seen] == ["/login"]


def test_the_newline_of_a_token_s_file_is_no_part_of_it(service) -> None:
    assert ask("set the flag", "GET", f"{service.url}/", token=f"{SECRET}\r\n", timeout_s=5) == b"{}"
    ask("set the flag", "GET", f"{service.url}/", token="\n", timeout_s=5)
    assert service.seen == [("/", f"Bearer {SECRET}"), ("/", None)]


@pytest.mark.parametrize("token", [f"{SECRET}\nX: y", f"{SECRET}é"])
def test_a_token_that_no_header_can_carry_is_said_without_it(service, token) -> None:
    with pytest.raises(EndpointError, match="no header can carry") as caught:
        ask("set the flag", "GET", f"{service.url}/", token=token, timeout_s=5)
    assert SECRET not in caught.value.message
    assert service.seen == []


def test_an_answer_that_does_not_end_is_given_up(service) -> None:
    with pytest.raises(EndpointError, match=r"did not answer within 0\.3 s"):
        ask("read the flag", "GET", f"{service.url}/endless", timeout_s=0.3)


def test_a_name_that_no_host_can_have_is_said() -> None:
    with pytest.raises(EndpointError, match="could not read the flag"):
        ask("read the flag", "GET", "http://flags..internal/", timeout_s=5)
