"""The live effect at a real NGINX: the holdout, what is counted of it, and the effect that follows from that.

Two servers stream answers; that of the standard pool takes twice as long for each token.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from daemons import wait_until
from routers import LONG, Router, router

from specops.effect.counters import counters_of
from specops.effect.estimate import ClassEffect, effects
from specops.prometheus.api import Series
from specops.prometheus.series import EFFECT

TOKENS = 9
GAP_S = {"standard": 0.012, "speculative": 0.006}
WARM_S = 0.01
SCRAPES, BATCH = 8, 60
Key = tuple[tuple[str, str], ...]
STREAMED = {**LONG, "stream": True}


class StreamServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


@contextmanager
def streaming_pool(name: str, status: int = 200) -> Iterator[str]:
    """HOST:PORT of a server that streams `TOKENS` tokens, and says at the end how many they were."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if status != 200:
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            time.sleep(WARM_S)
            for index in range(TOKENS):
                self.piece({"choices": [{"delta": {"content": str(index)}}]})
                time.sleep(GAP_S[name] if index < TOKENS - 1 else 0)
            self.piece({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": TOKENS}})
            self.wfile.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")

        def piece(self, body: object) -> None:
            data = f"data: {json.dumps(body)}\n\n".encode()
            self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

        def log_message(self, *_: object) -> None:
            pass

    with StreamServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()


@pytest.fixture(scope="module")
def standard() -> Iterator[str]:
    with streaming_pool("standard") as address:
        yield address


def ask_many(up: Router, count: int) -> list[tuple[str, str]]:
    """Pool and reason of so many streamed requests, four at a time."""
    with ThreadPoolExecutor(4) as threads:
        return list(threads.map(lambda _: up.ask(STREAMED).route, range(count)))


def scraped(up: Router) -> dict[Key, float]:
    rows = re.findall(r"^(specops_effect_\w+)\{(.*)\} (\S+)$", up.metrics(), re.MULTILINE)
    return {
        (("__name__", name), *re.findall(r'(\w+)="([^"]*)"', labels)): float(value)
        for name, labels, value in rows
    }


def total(counts: Mapping[Key, float], name: str, **labels: str) -> float:
    which = {"__name__": f"specops_effect_{name}_total", **labels}.items()
    return sum(value for key, value in counts.items() if which <= dict(key).items())


def has_counted(up: Router, requests: int) -> bool:
    return total(scraped(up), "requests", figure="failures") == requests


def measured(up: Router) -> tuple[ClassEffect, list[tuple[str, str]]]:
    """The effect over all traffic, and where the requests went. Bins are batches of requests."""
    routes, scrapes = [], [scraped(up)]
    for _ in range(SCRAPES):
        routes += ask_many(up, BATCH)
        wait_until(partial(has_counted, up, len(routes)), "all counts", 5)
        scrapes.append(scraped(up))
    names = {key for scrape in scrapes for key in scrape if dict(key)["__name__"] in EFFECT.values()}
    times = 60.0 * np.arange(len(scrapes))
    series = [
        Series(
            dict(key),
            tuple((float(ts), scrape.get(key, 0.0)) for ts, scrape in zip(times, scrapes, strict=True)),
        )
        for key in names
    ]
    return effects(counters_of(series, times, 60.0))[0], routes


def test_the_intervals_have_the_difference_of_two_real_pools(standard: str, tmp_path: Path) -> None:
    with (
        streaming_pool("speculative") as speculative,
        router(tmp_path, standard=[standard], speculative=[speculative], holdout=0.1) as up,
    ):
        effect, routes = measured(up)
        held = sum(reason == "holdout" for _, reason in routes)
        assert {pool for pool, reason in routes if reason == "holdout"} == {"standard"}
        assert SCRAPES * BATCH * 0.03 < held < SCRAPES * BATCH * 0.2
        tpot, e2e, tokens, failed = (
            effect.figure_effect(name) for name in ("tpot", "e2e", "tokens", "failures")
        )
        assert (tpot.holdout_requests + e2e.holdout_requests) == 2 * held
        assert tpot.requests + tpot.unmatched == SCRAPES * BATCH - held
        assert (tokens.speculative, tokens.holdout) == (pytest.approx(TOKENS), pytest.approx(TOKENS))
        assert tpot.ratio is not None
        assert tpot.low is not None
        assert tpot.high is not None
        assert tpot.low < 0.5 + 0.15  # the servers' clocks sleep a little longer than they are told to
        assert tpot.low < tpot.ratio < tpot.high < 1
        assert (failed.speculative, failed.holdout, failed.ratio) == (0.0, 0.0, None)


@pytest.mark.parametrize(("status", "reason"), [(500, "failed"), (503, "failover")])
def test_what_the_pool_does_not_answer_is_a_failure_and_no_time(
    status: int, reason: str, standard: str, tmp_path: Path
) -> None:
    with (
        streaming_pool("speculative", status) as speculative,
        router(tmp_path, standard=[standard], speculative=[speculative], holdout=0.1) as up,
    ):
        routes = ask_many(up, 40)
        speculative_group = sum(why != "holdout" for _, why in routes)
        wait_until(partial(has_counted, up, len(routes)), "all counts", 5)
        counts = scraped(up)
        failures = {"figure": "failures", "group": "speculative"}
        assert total(counts, "requests", **failures) == speculative_group
        assert total(counts, "sum", **failures) == speculative_group
        assert total(counts, "requests", figure="e2e", group="speculative") == 0
        assert total(counts, "left_out", reason=reason) == speculative_group


def test_without_a_holdout_nothing_is_counted(standard: str, tmp_path: Path) -> None:
    with (
        streaming_pool("speculative") as speculative,
        router(tmp_path, standard=[standard], speculative=[speculative]) as up,
    ):
        assert {reason for _, reason in ask_many(up, 20)} == {"long"}
        assert scraped(up) == {}
