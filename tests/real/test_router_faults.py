"""Each fault that a first routing configuration had, on a real NGINX: none of them is there any more."""

from __future__ import annotations

import gzip
import http.client
import json
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from daemons import wait_until
from routers import CHAT, LONG, Pool, Router, pool, router


@pytest.fixture(scope="module")
def pools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Pool, Pool]]:
    folder = tmp_path_factory.mktemp("pools")
    with pool(folder, "standard") as standard, pool(folder, "speculative") as speculative:
        yield standard, speculative


@pytest.fixture(scope="module")
def up(pools: tuple[Pool, Pool], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Router]:
    standard, speculative = pools
    with router(
        tmp_path_factory.mktemp("router"),
        standard=[standard.address],
        speculative=[speculative.address],
        classes=[
            {"name": "code", "content": r"\bdef \w+\("},
            {"name": "legal", "contains": ["confidential"], "speculate": False},
            {"name": "batch", "headers": {"X-Task": "batch"}},
            {"name": "counted", "headers": {"X-Task": "counted"}},
        ],
        trusted=["10.0.0.0/8"],
        limits={"connections": 50},
        max_body_mb=4,
    ) as running:
        yield running


def body_of(size: int, **fields: object) -> bytes:
    return json.dumps({**LONG, "messages": [{"role": "user", "content": "x" * size}], **fields}).encode()


@pytest.mark.parametrize("size", [20_000, 200_000, 1_200_000, 3_000_000])
def test_a_body_of_any_size_is_read(up: Router, size: int) -> None:
    """Also one that NGINX keeps in a file."""
    assert up.ask(body_of(size)).route == ("speculative", "long")
    assert up.ask(body_of(size, max_tokens=3)).route == ("standard", "short")


def test_a_body_over_the_limit_is_413(up: Router) -> None:
    answer = up.ask(body_of(5_000_000))
    assert (answer.status, answer.route[0]) == (413, "none")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"{", "not-json"),
        (b"", "not-json"),
        (b"[]", "not-an-object"),
        (b'{"a":' * 2000, "too-complex"),
        (b'{"temperature": "0.7"}', "type"),
        (b'{"max_tokens": "300"}', "type"),
        (b'{"stream": "yes"}', "type"),
        (b'{"max_tokens": 300.5}', "type"),
    ],
)
def test_what_is_no_request_goes_to_the_standard_pool(up: Router, body: bytes, reason: str) -> None:
    answer = up.ask(body, method="POST")
    assert (answer.status, answer.route) == (200, ("standard", reason))


def test_what_is_compressed_is_not_read(up: Router) -> None:
    answer = up.ask(gzip.compress(json.dumps(LONG).encode()), content_encoding="gzip")
    assert (answer.status, answer.route) == (200, ("standard", "encoded"))


def test_another_method_is_passed_on(up: Router) -> None:
    answer = up.ask(method="GET")
    assert (answer.status, answer.route, answer.json["method"]) == (200, ("standard", "method"), "GET")


@pytest.mark.parametrize(
    "name", ["temperature", "max_tokens", "max_completion_tokens", "stream", "n", "min_p"]
)
def test_null_is_as_if_it_were_not_there(up: Router, name: str) -> None:
    without = {key: value for key, value in LONG.items() if key != name}
    assert up.ask({**without, name: None}).route == up.ask(without).route


def test_the_newer_name_of_the_size_comes_first(up: Router) -> None:
    assert up.ask({**LONG, "max_completion_tokens": 10}).route == ("standard", "short")
    assert up.ask({"max_tokens": 10, "max_completion_tokens": 300}).route == ("speculative", "long")


def test_completions_without_a_size_are_short(up: Router) -> None:
    """OpenAI's API takes 16 there, and so do vLLM and SGLang."""
    assert up.ask({"prompt": "x"}, "/v1/completions").route == ("standard", "short")
    assert up.ask({"prompt": "x", "max_tokens": 300}, "/v1/completions").route == ("speculative", "long")


def test_a_parameter_that_the_engine_refuses(up: Router) -> None:
    assert up.ask({**LONG, "min_p": 0.1}).route == ("standard", "parameter")
    assert up.ask({**LONG, "logit_bias": {}}).route == ("speculative", "long")


def test_a_stream_comes_as_it_is_made(up: Router) -> None:
    connection = http.client.HTTPConnection(urlsplit(up.url).netloc, timeout=10)
    script = {"speculative": {"chunks": 4, "gap_s": 0.3}}
    connection.request("POST", CHAT, json.dumps({**LONG, "stream": True, "script": script}))
    answer = connection.getresponse()
    started = time.monotonic()
    arrived = []
    while line := answer.readline():
        if line.strip():
            arrived.append(time.monotonic() - started)
    connection.close()
    assert len(arrived) == 4
    assert arrived[-1] - arrived[0] > 0.6  # three gaps of 0.3 s; in one lump there would be none


@pytest.mark.parametrize("path", ["/v1/models", "/health", "/v1/embeddings", "/tokenize", f"{CHAT}X"])
def test_other_paths_are_the_standard_pools(up: Router, path: str) -> None:
    assert up.ask(path=path).json["pool"] == "standard"


@pytest.mark.parametrize("path", ["/", "/metrics", "/nowhere", "/v1/../metrics", "/v1/%2e%2e/metrics"])
def test_what_is_not_the_users_is_404(up: Router, path: str) -> None:
    """A server's own pages are not for those who may ask the model."""
    answer = up.ask(path=path)
    assert (answer.status, answer.json["error"]["type"]) == (404, "not_found")
    assert answer.route == ("none", "path")


def test_a_server_sees_the_request_as_it_was_sent(up: Router) -> None:
    answer = up.ask(LONG, f"{CHAT}?a=%2F&b=c%20d", authorization="Bearer key", x_request_id="mine")
    saw = answer.json
    assert saw["path"] == f"{CHAT}?a=%2F&b=c%20d"
    assert saw["version"] == "HTTP/1.1"
    assert saw["headers"]["host"] == urlsplit(up.url).netloc
    assert saw["headers"]["authorization"] == "Bearer key"
    assert saw["headers"]["x-request-id"] == "mine"
    assert saw["headers"]["x-forwarded-for"] == "127.0.0.1"


def test_connections_to_servers_are_kept(up: Router) -> None:
    assert len({up.ask(LONG).json["connection"] for _ in range(12)}) <= 4  # two workers, and what was open


def test_a_caller_that_is_not_trusted_cannot_choose(up: Router) -> None:
    answer = up.ask({**LONG, "max_tokens": 3}, x_specops_pool="speculative")
    assert answer.route == ("standard", "short")
    assert "x-specops-pool" not in answer.json["headers"]


def test_classes_go_by_content_headers_and_their_order(up: Router) -> None:
    def of(content: object, **headers: str) -> tuple[str, str]:
        body = {**LONG, "messages": [{"role": "user", "content": content}]}
        answer = up.ask(body, **headers)
        return answer.headers["x-specops-class"], answer.route[0]

    assert of("DEF main(") == ("code", "speculative")
    assert of([{"type": "text", "text": "it is"}, {"type": "text", "text": "CONFIDENTIAL"}]) == (
        "legal",
        "standard",
    )
    assert of("confidential def f()") == ("code", "speculative")
    assert of("plain", x_task="batch") == ("batch", "speculative")
    assert of("plain", x_task="other") == ("default", "speculative")


def test_the_log_has_the_route_and_no_secret(up: Router) -> None:
    up.ask({**LONG, "secret": "in the body"}, authorization="Bearer hidden", x_request_id="the-logged-one")
    log = up.prefix / "access.log"
    deadline = time.monotonic() + 10
    while "the-logged-one" not in log.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    text = log.read_text()
    row = next(row for row in map(json.loads, text.splitlines()) if row["request_id"] == "the-logged-one")
    assert (row["pool"], row["served"], row["reason"]) == ("speculative", "speculative", "long")
    assert "hidden" not in text
    assert "in the body" not in text


def test_metrics_by_class(up: Router) -> None:
    """Of a class that nobody else asks in: what others asked is published up to a second later."""

    def counted() -> tuple[float, float]:
        labels = 'class="counted",pool="speculative",served="speculative",status="2xx"'
        requests = up.value(f"specops_route_requests_total{{{labels}}}")
        timed = 'specops_route_request_duration_seconds_count{class="counted",pool="speculative"}'
        return requests, up.value(timed)

    for _ in range(3):
        answer = up.ask(LONG, x_task="counted")
        assert (answer.status, answer.route) == (200, ("speculative", "long"))
    wait_until(lambda: counted() == (3, 3), "all to be counted")
    assert up.value('specops_route_in_flight{pool="speculative"}') == 0


def test_prometheus_own_parser_reads_the_metrics(up: Router) -> None:
    from prometheus_client.parser import text_string_to_metric_families

    up.ask(LONG)
    families = {family.name: family for family in text_string_to_metric_families(up.metrics())}
    buckets = families["specops_route_request_duration_seconds"].samples
    assert any(sample.labels.get("le") == "+Inf" for sample in buckets)
    assert families["specops_route_speculative_percent"].samples[0].value == 100


def test_a_client_that_asks_too_much_at_a_time_is_429(pools: tuple[Pool, Pool], tmp_path: Path) -> None:
    standard, speculative = pools
    limits = {"requests_per_s": 1.0, "burst": 1}
    with router(
        tmp_path, standard=[standard.address], speculative=[speculative.address], limits=limits
    ) as limited:
        answers = [limited.ask(LONG) for _ in range(5)]
        assert {one.route[0] for one in answers if one.status == 429} == {"none"}
