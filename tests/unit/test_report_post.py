"""The webhook: what it gets, what is tried again, and that its address is told to nobody."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from calling import specops
from made_reports import FILE, rollout, seen

from specops.errors import EndpointError, UsageError
from specops.phases.report import assembly
from specops.phases.report.delivery import body, post, read
from specops.phases.report.document import document

AT_ONCE = (0.0, 0.0)
Got = list[dict[str, Any]]


@contextmanager
def webhook(*statuses: int) -> Iterator[tuple[str, Got]]:
    """Answers with `statuses` in turn, the last of them from then on; what it got is kept."""
    got: Got = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            status = statuses[min(len(got), len(statuses)) - 1]
            self.send_response(status)
            if status == 302:
                self.send_header("Location", "http://127.0.0.1:9/")
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_POST

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/services/T00/s3cret", got
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_chat_reads_its_text_and_a_program_its_figures(tmp_path: Path) -> None:
    result = assembly.assemble(rollout(), FILE, tmp_path, seen())
    made = document(read(result), result)
    with webhook(200) as (url, got):
        post(url, body(made, result), AT_ONCE)
    (message,) = got
    assert message["text"].startswith("*Speculative decoding: made*, ")
    assert made.in_short() in message["text"]
    assert message["specops"]["acceptance"] == pytest.approx(0.7)
    assert message["specops"]["phase"] == "report"


@pytest.mark.parametrize("passing", [500, 503, 429])
def test_what_may_pass_is_tried_again(passing: int) -> None:
    with webhook(passing, passing, 200) as (url, got):
        post(url, {"text": "x"}, AT_ONCE)
    assert len(got) == 3


@pytest.mark.parametrize(("status", "times"), [(404, 1), (400, 1), (302, 1), (500, 3)])
def test_what_does_not_is_said_without_the_address(status: int, times: int) -> None:
    with webhook(status) as (url, got), pytest.raises(EndpointError, match=f"answered {status}") as caught:
        post(url, {"text": "x"}, AT_ONCE)
    assert len(got) == times
    assert "s3cret" not in f"{caught.value.message} {caught.value.hint}"


def test_nobody_there_is_said() -> None:
    with webhook(200) as (url, _):
        pass
    with pytest.raises(EndpointError, match="could not be reached") as caught:
        post(url, {"text": "x"}, AT_ONCE)
    assert "s3cret" not in caught.value.message


@pytest.mark.parametrize("name", ["a..b", "a" * 80])
def test_a_name_that_cannot_be_one_is_not_reached(name: str) -> None:
    with pytest.raises(EndpointError, match="could not be reached") as caught:
        post(f"http://{name}/s3cret", {"text": "x"}, AT_ONCE)
    assert "s3cret" not in caught.value.message


@pytest.mark.parametrize("url", ["", "hooks.example/x", "ftp://x/y", "http://", "http://[::1"])
def test_what_is_no_address_is_said(url: str) -> None:
    with pytest.raises(UsageError, match="invalid address"):
        post(url, {"text": "x"}, AT_ONCE)


@pytest.fixture
def rolled_out(tmp_path: Path) -> Path:
    path = tmp_path / "rollout.yaml"
    pools = "{standard: {engine: embedded}, speculative: {engine: embedded, speculation: {tree: 'ngram:4'}}}"
    path.write_text(f"rollout: made\npools: {pools}\naddresses: {{prometheus: 'http://127.0.0.1:9'}}\n")
    return path


def test_a_failed_post_keeps_the_report(
    rolled_out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assembly, "query", lambda *_: seen())
    given: Callable[..., Any] = lambda url: ["report", str(rolled_out), "--out", str(tmp_path), "-q", *url]  # noqa: E731
    with webhook(404) as (url, _):
        done = specops(*given(["--post", url]))
    assert done.returncode == 3
    assert "could not post the report to the webhook at 127.0.0.1: it answered 404" in done.stderr
    assert "s3cret" not in done.stdout + done.stderr
    (page,) = (tmp_path / "reports").glob("*.html")
    assert str(page) in done.stdout
    for path in (tmp_path / "reports").iterdir():
        assert "s3cret" not in path.read_text()
    with webhook(200) as (url, got):
        monkeypatch.setenv("SPECOPS_REPORT_WEBHOOK", url)
        assert specops(*given([])).returncode == 0
    assert len(got) == 1


def test_no_prometheus_is_a_sentence(rolled_out: Path, tmp_path: Path) -> None:
    done = specops("report", str(rolled_out), "--out", str(tmp_path))
    assert done.returncode == 3
    assert "nothing listens there" in done.stderr
    assert not (tmp_path / "reports").exists()


@pytest.mark.parametrize(
    "words", [["--tz", "Mars/Base"], ["--window", "7"], ["--end", "soon"], ["--tz", "../x"]]
)
def test_wrong_options_are_said(rolled_out: Path, words: list[str]) -> None:
    done = specops("report", str(rolled_out), *words)
    assert done.returncode == 2
    assert "error: " in done.stderr
    assert "hint: " in done.stderr
