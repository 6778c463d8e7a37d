"""What a server does when it is full, when clients leave, when it stops and when its engine breaks."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from live import DEADLINE, Live, Reply, events_of, until

from specops.errors import EnvironmentFailure

ABORTED = 'vllm:request_success_total{engine="0",finished_reason="abort",model_name="tiny"}'
RUNNING = 'vllm:num_requests_running{engine="0",model_name="tiny"}'
ENDLESS: dict[str, Any] = {"prompt": "a", "max_tokens": 900_000}


def test_a_client_that_goes_away_frees_its_place(serve_scripted: Callable[..., Live]) -> None:
    live = serve_scripted(max_batch=1)
    with live.open("/v1/completions", {**ENDLESS, "stream": True}) as response:
        next(events_of(response))
        live.engine.hold()
    live.engine.trickle(lambda: live.engine.idle, "the engine dropped the sequence of a client that left")
    until(lambda: live.metrics()[ABORTED] == 1, "the abort was counted")
    assert live.engine.counters.generated_tokens < ENDLESS["max_tokens"]
    until(lambda: live.metrics()[RUNNING] == 0, "the gauge fell")


def test_leaving_while_waiting_frees_the_queue(serve_scripted: Callable[..., Live]) -> None:
    live = serve_scripted(max_batch=1)
    live.engine.hold()
    with live.asking("/v1/completions", ENDLESS):
        until(lambda: live.engine.running == 1, "the first request runs")
        with live.asking("/v1/completions", ENDLESS):
            live.engine.trickle(lambda: live.engine.waiting == 1, "the second request waits")
        live.engine.trickle(lambda: live.engine.waiting == 0, "the second request was dropped")
        assert live.engine.running == 1
    # Released before that, the engine would flood the server that the fixture stops.
    live.engine.trickle(lambda: live.engine.idle, "the first request was dropped")


def test_a_full_queue_answers_429_with_retry_after(serve_scripted: Callable[..., Live]) -> None:
    live = serve_scripted(max_batch=1, capacity=2)
    live.engine.hold()
    with live.asking("/v1/completions", ENDLESS), live.asking("/v1/completions", ENDLESS):
        live.engine.trickle(lambda: live.engine.waiting == 1, "one request runs and one waits")
        refused = live.ask("/v1/completions", ENDLESS)
    assert refused.status == 429
    assert int(refused.headers["Retry-After"]) >= 1
    assert refused.error["type"] == "rate_limit_error"
    live.engine.trickle(lambda: live.engine.idle, "both clients' sequences were dropped")
    live.engine.release()
    assert live.ask("/v1/completions", {"prompt": "a", "max_tokens": 2}).status == 200


def test_more_sequences_than_the_server_holds_is_wrong_usage(serve_scripted: Callable[..., Live]) -> None:
    live = serve_scripted(max_batch=1, capacity=2)
    reply = live.ask("/v1/completions", {**ENDLESS, "n": 3})
    assert reply.status == 400
    assert reply.error["param"] == "n"


def test_an_engine_that_breaks_fails_its_requests_and_health_says_so(
    serve_scripted: Callable[..., Live], caplog: pytest.LogCaptureFixture
) -> None:
    live = serve_scripted(max_batch=2)
    live.engine.hold()
    with ThreadPoolExecutor(1) as pool:
        whole = pool.submit(live.ask, "/v1/completions", ENDLESS)
        until(lambda: live.engine.running == 1, "the request runs")
        live.engine.fault = ArithmeticError("a NaN in the logits")
        live.engine.release()
        broken: Reply = whole.result()
    assert broken.status == 500
    assert broken.error["type"] == "internal_error"
    assert "a NaN in the logits" in caplog.text

    health = live.ask("/health")
    assert health.status == 503
    assert "a NaN in the logits" in health.text
    assert live.ask("/v1/completions", ENDLESS).status == 503


def test_an_engine_that_loses_what_it_stands_on_says_so_in_one_sentence(
    serve_scripted: Callable[..., Live], caplog: pytest.LogCaptureFixture
) -> None:
    live = serve_scripted()
    live.engine.fault = EnvironmentFailure("could not receive from rank 1: a rank has ended")
    assert live.ask("/v1/completions", ENDLESS).status == 500
    assert live.ask("/health").text.endswith("failed: could not receive from rank 1: a rank has ended\n")
    [record] = [record for record in caplog.records if record.name == "specops.serve.worker_process"]
    assert record.exc_info is None


def test_an_engine_that_breaks_in_mid_stream_sends_the_error_as_an_event(
    serve_scripted: Callable[..., Live],
) -> None:
    live = serve_scripted()
    with live.open("/v1/completions", {**ENDLESS, "stream": True}) as response:
        events = events_of(response)
        next(events)
        live.engine.fault = ArithmeticError("a NaN in the logits")
        *_, error, done = events
    assert json.loads(error)["error"]["type"] == "internal_error"
    assert done == "[DONE]"


def test_a_prompt_that_the_engine_refuses_is_wrong_usage_even_when_streamed(
    serve_scripted: Callable[..., Live],
) -> None:
    live = serve_scripted()
    for stream in (False, True):
        reply = live.ask("/v1/completions", {"prompt": [[1], [1000]], "stream": stream})
        assert reply.status == 400
        assert "vocabulary" in reply.error["message"]
    until(lambda: live.engine.idle, "the other prompt of the request was dropped")


def test_draining_finishes_what_runs_and_refuses_what_comes(serve_scripted: Callable[..., Live]) -> None:
    live = serve_scripted()
    live.engine.hold()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(live.stream, "/v1/completions", {"prompt": "a", "max_tokens": 40})
        until(lambda: live.engine.running == 1, "the request runs")
        drained = live.spawn(live.server.drain())
        until(lambda: live.ask("/health").status == 503, "health says that it drains")
        refused = live.ask("/v1/completions", ENDLESS)
        assert refused.status == 503
        assert refused.error["type"] == "service_unavailable"
        assert not drained.done()
        live.engine.release()
        assert "".join(chunk["choices"][0]["text"] for chunk in running.result()) == " go" * 40
    drained.result(DEADLINE)


def test_stopping_ends_running_streams_with_an_error_event(serve_scripted: Callable[..., Live]) -> None:
    live = serve_scripted()
    with live.open("/v1/completions", {**ENDLESS, "stream": True}) as response:
        events = events_of(response)
        next(events)
        live.engine.hold()
        stopping = live.spawn(live.server.stop())
        *_, error, done = events
        live.engine.release()
        assert stopping.result(DEADLINE) == 1
    assert json.loads(error)["error"]["code"] == "shut_down"
    assert done == "[DONE]"


def test_the_engine_is_asked_by_one_thread_only(serve_scripted: Callable[..., Live]) -> None:
    live = serve_scripted()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: live.complete("a", max_tokens=3, n=2), range(8)))
    assert len(live.engine.callers) == 1
    assert threading.get_ident() not in live.engine.callers
