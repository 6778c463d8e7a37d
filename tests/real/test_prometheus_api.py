"""Asking a Prometheus: a real one, and servers that behave as badly as they can over a real socket."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from daemons import free_port, prometheus

from specops.errors import EndpointError, UsageError
from specops.prometheus.api import HEADERS, TOKEN, Api, Sample

Answer = Callable[[BaseHTTPRequestHandler], None]
ONE = {"status": "success", "data": {"resultType": "scalar", "result": [1.5, "1"]}}


@contextmanager
def answering(*answers: Answer) -> Iterator[tuple[str, list[BaseHTTPRequestHandler]]]:
    """A server that gives `answers` in turn, the last one for ever, and the requests that it had."""
    had: list[BaseHTTPRequestHandler] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.do_GET()

        def do_GET(self) -> None:
            had.append(self)
            answers[min(len(had), len(answers)) - 1](self)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", had
    finally:
        server.shutdown()
        server.server_close()


def says(status: int, body: str, **headers: str) -> Answer:
    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(status)
        for name, value in headers.items():
            request.send_header(name, value)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body.encode())

    return answer


def hangs(request: BaseHTTPRequestHandler) -> None:
    """Until the client gives up."""
    request.connection.settimeout(30)
    request.connection.recv(1)


def trickles(request: BaseHTTPRequestHandler) -> None:
    """A byte now and then, for longer than anybody waits, each well within a time-out between two reads."""
    request.send_response(200)
    request.end_headers()
    for _ in range(40):
        try:
            request.wfile.write(b" ")
            request.wfile.flush()
        except OSError:
            return
        time.sleep(0.1)


def failure(url: str, timeout_s: float = 0.3) -> EndpointError:
    with pytest.raises(EndpointError) as raised:
        Api(url, timeout_s=timeout_s).instant("up")
    return raised.value


def test_samples_of_a_real_one(tmp_path: Path) -> None:
    (tmp_path / "prometheus.yml").write_text("scrape_configs: []\n")
    with prometheus(tmp_path / "prometheus.yml", tmp_path) as up:
        api = Api(up.url + "/")
        api.ready()
        now = time.time()
        (sample,) = api.instant('label_replace(vector(3), "a", "b", "", "")')
        assert (sample.labels, sample.value) == ({"a": "b"}, 3.0)
        assert sample.ts == pytest.approx(now, abs=5)
        assert api.instant("7", time_s=1000.25) == [Sample({}, 7.0, 1000.25)]
        assert api.instant("nothing_of_this_name") == []
        assert [math.isnan(found.value) for found in api.instant("vector(0) / 0")] == [True]
        assert [found.value for found in api.instant("vector(1) / 0")] == [math.inf]
        assert api.instant(" + ".join(["vector(1)"] * 2000))[0].value == 2000  # longer than an address may be
        (series,) = api.range("time() * vector(1)", 1000, 1030, 15)
        assert series.points == ((1000, 1000), (1015, 1015), (1030, 1030))
        with pytest.raises(EndpointError, match=r"400: .*parse error"):
            api.instant("sum(")
        api.close()


def test_one_that_is_not_there_is_told_at_once() -> None:
    began = time.monotonic()
    error = failure(f"http://127.0.0.1:{free_port()}", timeout_s=5)
    assert time.monotonic() - began < 2
    assert "nothing listens there" in error.message
    with pytest.raises(EndpointError, match="nothing listens there"):  # of a range, too, it asks twice
        Api(f"http://127.0.0.1:{free_port()}").range("up", 0, 60, 15)
    assert str(error.hint).endswith("/-/ready")


@pytest.mark.parametrize("answer", [hangs, trickles])
def test_one_that_is_slow_is_given_up_in_time(answer: Answer) -> None:
    with answering(answer) as (url, had):
        began = time.monotonic()
        assert "did not answer within 0.3 s" in failure(url).message
        assert time.monotonic() - began < 1.4
        assert len(had) == 1


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (says(200, "<html>Grafana</html>"), "expected an answer of Prometheus"),
        (says(200, '{"status": "success"}'), "expected an answer of Prometheus"),
        (says(200, '{"data": {"result": [{"metric": {}}]}}'), "expected an answer of Prometheus"),
        (says(200, '{"data": {"result": 3}}'), "expected an answer of Prometheus"),
        (says(200, json.dumps(ONE | {"warnings": ["s3: timeout"]})), "may be incomplete: s3: timeout"),
        (says(302, "", Location="http://127.0.0.1:1/login"), "it redirects"),
        (says(401, "who are you?"), r"refused access \(401\)"),
        (says(422, '{"error": "too many samples"}'), "422: too many samples"),
        (says(500, "a stack\n  trace"), "500: a stack trace"),
    ],
)
def test_what_is_no_answer_is_said_in_a_sentence_and_not_asked_again(answer: Answer, said: str) -> None:
    with answering(answer) as (url, had):
        with pytest.raises(EndpointError, match=said):
            Api(url).instant("up")
        assert len(had) == 1


def test_one_that_is_not_ready_is_asked_once_more() -> None:
    starting = says(503, "Service Unavailable", **{"Retry-After": "3600"})
    with answering(starting, says(200, json.dumps(ONE))) as (url, had):
        assert Api(url).instant("1") == [Sample({}, 1.0, 1.5)]
        assert len(had) == 2
    with answering(starting) as (url, had):
        assert "503: Service Unavailable" in failure(url, timeout_s=5).message
        assert len(had) == 2


def test_a_token_and_headers_go_along_and_nowhere_else(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login someone password else\n")
    monkeypatch.setenv("NETRC", str(netrc))
    monkeypatch.setenv(TOKEN, "s3cret")
    monkeypatch.setenv(HEADERS, "X-Scope-OrgID: team-a, X-More: b:c")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")  # loopback is asked without it
    with answering(says(200, json.dumps(ONE))) as (url, had):
        Api(url).instant("1")
        sent = had[0].headers
        assert (sent["Authorization"], sent["X-Scope-OrgID"], sent["X-More"]) == (
            "Bearer s3cret",
            "team-a",
            "b:c",
        )
    with answering(says(403, "no")) as (url, _):
        error = failure(url)
        assert TOKEN in (error.hint or "")
        assert "s3cret" not in error.message + str(error.hint)


@pytest.mark.parametrize("text", ["no colon", "X Y: z", "X-A: a\nb", ": z"])
def test_headers_that_cannot_be_sent_are_refused_without_repeating_them(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv(HEADERS, text)
    with pytest.raises(UsageError) as raised:
        Api("http://127.0.0.1:9090")
    assert HEADERS in raised.value.message
    assert text not in raised.value.message


@pytest.mark.parametrize("url", ["", "127.0.0.1:9090", "ftp://h", "http://", "http://h:x", "http://h:99999"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="invalid address of Prometheus"):
        Api(url)


def test_an_address_with_credentials_is_refused_without_repeating_them() -> None:
    with pytest.raises(UsageError) as raised:
        Api("http://me:s3cret@127.0.0.1:9090")
    assert "s3cret" not in raised.value.message
