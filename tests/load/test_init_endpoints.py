"""`init --base-url A --base-url B`: a short rollout file for two servers that run."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from calling import specops

from specops.config import load
from specops.phases.inputs import settings_of

NAMES = ("num_drafts", "num_draft_tokens", "num_accepted_tokens")


def chunk(**fields: object) -> bytes:
    return (
        b"data: "
        + json.dumps({"id": "1", "object": "chat.completion.chunk", "created": 1, **fields}).encode()
    )


@contextmanager
def server(model: str, *, speculates: bool, chats: bool = True) -> Iterator[str]:
    """A server that answers each request with one token, and counts a draft for it where it speculates."""
    answered = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/v1/models":
                self.say(json.dumps({"object": "list", "data": [{"id": model, "object": "model"}]}).encode())
            elif self.path == "/metrics":
                lines = [
                    f"process_start_time_seconds {self.server.server_address[1]}",
                    "vllm:e2e_request_latency_seconds_count 1",
                ]
                if speculates:
                    lines += [f"vllm:spec_decode_{name}_total {len(answered)}" for name in NAMES]
                self.say("".join(f"{line}\n" for line in lines).encode(), "text/plain")
            else:
                self.send_error(404)

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            chat = self.path == "/v1/chat/completions"
            if chat and not chats:
                self.send_error(400)
                return
            answered.append(body)
            text = {"delta": {"content": "x"}} if chat else {"text": "x"}
            events = [
                chunk(model=model, choices=[{"index": 0, **text, "finish_reason": None}]),
                chunk(
                    model=model,
                    choices=[{"index": 0, **(text if not chat else {"delta": {}}), "finish_reason": "stop"}],
                ),
                chunk(
                    model=model,
                    choices=[],
                    usage={"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4},
                ),
                b"data: [DONE]",
            ]
            self.say(b"".join(event + b"\n\n" for event in events), "text/event-stream")

        def say(self, body: bytes, kind: str = "application/json") -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as up:
        up.daemon_threads = True
        thread = threading.Thread(target=up.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{up.server_port}/v1"
        finally:
            up.shutdown()
            thread.join()


@pytest.mark.parametrize("chats", [True, False])
def test_the_pool_that_speculates_is_found_whatever_the_order(tmp_path: Path, chats: bool) -> None:
    with (
        server("draft:1b", speculates=True, chats=chats) as fast,
        server("plain", speculates=False, chats=chats) as plain,
    ):
        done = specops("init", str(tmp_path / "my chat"), "--base-url", fast, "--base-url", plain)
    path = tmp_path / "my chat" / "rollout.yaml"
    assert (done.returncode, done.stderr) == (0, "")
    assert len(path.read_text().splitlines()) <= 40
    file = load(path)
    assert file.rollout == "my-chat"
    # Both were timed: the file proposes half of the rate, and the command says what a run sends.
    [limit] = [line for line in path.read_text().splitlines() if "max_rps" in line]
    half, whole = re.fullmatch(
        r"  # max_rps: ([\d.]+)  # limit on requests .* users; without it, about ([\d.]+)", limit
    ).groups()
    assert float(half) == pytest.approx(float(whole) / 2, rel=0.05)
    assert file.measure.max_rps is None
    sends = re.sub(r"\n +", " ", done.stdout).splitlines()[1]
    assert re.fullmatch(
        rf"a run sends up to \d+ requests to {plain} and {fast}, about 8 at a time to each, for .+",
        sends,
    )
    standard, speculative = file.pools.standard.endpoint, file.pools.speculative.endpoint
    assert standard is not None
    assert speculative is not None
    assert (standard.base_url, standard.model) == (plain, "plain")
    assert (speculative.base_url, speculative.model) == (fast, "draft:1b")
    assert file.measure.endpoint == ("chat" if chats else "completions")
    prompts = settings_of(file, file.pools.standard).prompt_set()
    assert Path(prompts.path).name == "prompts.json"
    assert prompts.provenance()["samples"]


def test_two_that_speculate_and_one_server_twice_are_refused(tmp_path: Path) -> None:
    with server("a", speculates=True) as one, server("a", speculates=True) as other:
        both = specops("init", str(tmp_path), "--base-url", one, "--base-url", other)
        same = specops("init", str(tmp_path), "--base-url", one, "--base-url", one)
    assert (both.returncode, same.returncode) == (2, 2)
    assert "both endpoints speculate" in both.stderr
    assert "both endpoints have the address" in same.stderr
    assert list(tmp_path.iterdir()) == []


def test_without_counters_the_order_decides_and_the_file_says_so(tmp_path: Path) -> None:
    own = tmp_path / "own.json"
    own.write_text(json.dumps([{"id": "1", "text": "hello", "class": "chat", "max_tokens": 4}]))
    with server("a", speculates=False) as one, server("b", speculates=False) as other:
        done = specops(
            "init", str(tmp_path / "x"), "--base-url", one, "--base-url", other, "--prompts", str(own)
        )
    assert done.returncode == 0
    text = (tmp_path / "x" / "rollout.yaml").read_text()
    assert "the second address, taken as such: whether they speculate is not known: no counters" in text
    file = load(tmp_path / "x" / "rollout.yaml")
    assert not settings_of(file, file.pools.standard).prompt_set().provenance()["samples"]


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("--base-url", "http://127.0.0.1:1/v1"), 2, "two endpoints, not 1"),
        (("--base-url", "x", "--base-url", "y"), 2, "could not use --base-url 'x'"),
        (("--base-url", "http://127.0.0.1:1/v1", "--base-url", "http://127.0.0.1:2/v1"), 3, "127.0.0.1:1"),
    ],
)
def test_what_cannot_be_a_pair_is_a_sentence(
    tmp_path: Path, words: tuple[str, ...], code: int, says: str
) -> None:
    done = specops("init", str(tmp_path), *words)
    assert done.returncode == code
    assert says in done.stderr
    assert "hint: " in done.stderr
