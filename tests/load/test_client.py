"""One request to an endpoint, sound or not: what is stamped, what is retried, how a fault is named."""

from __future__ import annotations

import asyncio
import re
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from email.utils import formatdate

import pytest
from stub import CHUNKS, Body, Reply, Stub, fault, stream, wait_until

from specops.access import Credentials
from specops.errors import EndpointError
from specops.load import clock
from specops.load.arrivals import Pace
from specops.load.client import Client
from specops.load.request_times import Exchange, Observation
from specops.load.settings import Capabilities, Decoding, Endpoint
from specops.load.workload import Prompt

PROMPT = Prompt("p", "all", "Hello")


def send(
    stub: Stub, prompt: Prompt = PROMPT, decoding: Decoding | None = None, **endpoint: object
) -> Exchange:
    async def one() -> Exchange:
        target = Endpoint(stub.base_url, "stub", **endpoint)  # type: ignore[arg-type]
        async with Client(target, decoding or Decoding()) as client:
            return await client.send(prompt)

    return asyncio.run(one())


def observe(stub: Stub, **endpoint: object) -> Observation:
    return send(stub, **endpoint).observe(None)  # type: ignore[arg-type]


def probe(base_url: str, **endpoint: object) -> Capabilities:
    async def one() -> Capabilities:
        async with Client(Endpoint(base_url, "stub", **endpoint), Decoding()) as client:  # type: ignore[arg-type]
            await client.probe(PROMPT)
            return client.capabilities

    return asyncio.run(one())


def test_arrivals_are_stamped_in_order_and_never_before_the_server_wrote(stub: Stub) -> None:
    stub.answer = lambda body: Reply(stream(body, CHUNKS), first_s=0.05, gap_s=0.02)
    found = observe(stub)
    assert found.ok
    stamps = [chunk.time_s for chunk in found.answer.chunks]
    assert stamps == sorted(stamps)
    assert stamps[0] - found.sent >= 0.05 + 0.02  # the role came first
    assert stamps[-1] - stamps[0] >= 3 * 0.02 - 0.001
    assert found.ended >= stamps[-1]


def test_what_is_asked_for(stub: Stub) -> None:
    decoding = Decoding(temperature=0.7, top_p=0.9, seed=5, ignore_eos=True)
    send(stub, Prompt("p", "all", "Hello", max_tokens=33), decoding)
    assert stub.requests[0] == {
        "model": "stub",
        "messages": [{"role": "user", "content": "Hello"}],
        "max_tokens": 33,
        "temperature": 0.7,
        "top_p": 0.9,
        "seed": 5,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    }


def test_completions_take_text_and_token_ids(stub: Stub) -> None:
    for content in ("Hello", (1, 2, 3)):
        found = send(stub, Prompt("p", "all", content), kind="completions").observe(None)
        assert found.answer.tokens == 8
    assert [request["prompt"] for request in stub.requests] == ["Hello", [1, 2, 3]]


def test_the_key_goes_out_as_a_bearer_token(stub: Stub) -> None:
    send(stub, credentials=Credentials(api_key="sk-test"))
    assert stub.headers[0]["Authorization"] == "Bearer sk-test"


def in_turn(*replies: Reply) -> Callable[[Body], Reply]:
    """Each reply once, then whole answers."""
    left = list(replies)
    return lambda body: left.pop(0) if left else Reply(stream(body, CHUNKS))


def test_a_429_is_retried_after_what_it_asks_for_and_counted(stub: Stub) -> None:
    stub.answer = in_turn(fault(429, "slow down", Retry_After="0.3"))
    found = observe(stub)
    assert found.ok
    assert found.retries == 1
    assert found.sent - found.first_sent >= 0.3  # TTFT counts from the attempt that was answered
    assert (
        found.answer.chunks[0].time_s - found.sent < found.answer.chunks[0].time_s - found.first_sent - 0.29
    )


@pytest.mark.parametrize(
    ("retry_after", "date", "waited"),
    [
        ("Sun, 06 Nov 1994 08:49:38 GMT", "Sun, 06 Nov 1994 08:49:37 GMT", 1.0),  # it is 1994 at the server
        ("Thu, 06 Nov 2098 08:49:36 GMT", "Thu, 06 Nov 2098 08:49:37 GMT", 0.0),
        ("Sun Nov  6 08:49:36 1994", "Sunday, 06-Nov-94 08:49:37 GMT", 0.0),  # obsolete forms, to be accepted
        ("Sun, 06 Nov 1994 08:49:38 GMT", "", 0.0),  # without a Date our own clock counts
        ("Sun, 06 Nov 1994 08:49:38 GMT", "yesterday", 0.0),
        ("tomorrow", "Sun, 06 Nov 1994 08:49:37 GMT", 0.25),
    ],
)
def test_retry_after_may_be_a_date_of_the_servers_clock(
    stub: Stub, retry_after: str, date: str, waited: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Etc/GMT+9")  # a date is in GMT, wherever the client is
    time.tzset()
    stub.answer = in_turn(fault(503, "loading", Retry_After=retry_after, Date=date))
    found = observe(stub)
    monkeypatch.undo()
    time.tzset()
    assert (found.ok, found.retries) == (True, 1)
    assert waited <= found.sent - found.first_sent < waited + 0.75


def test_a_date_that_is_far_from_the_servers_clock_is_no_retry(stub: Stub) -> None:
    date, an_hour_later = "Sun, 06 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 09:49:37 GMT"
    stub.answer = lambda _: fault(429, "later", Retry_After=an_hour_later, Date=date)
    assert observe(stub).retries == 0


def test_without_the_servers_clock_a_date_is_compared_with_one_that_is_never_set(
    stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    soon = formatdate(clock.now() + 1, usegmt=True)
    stub.answer = in_turn(fault(503, "loading", Retry_After=soon, Date=""))
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert observe(stub).retries == 1


def test_more_patience_than_a_measurement_has_is_no_retry(stub: Stub) -> None:
    stub.answer = lambda _: fault(429, "tomorrow", Retry_After="3600")
    found = observe(stub)
    assert found.answer.failure is not None
    assert (found.answer.failure.kind, found.retries, len(stub.requests)) == ("http_429", 0, 1)


def test_retries_are_bounded(stub: Stub) -> None:
    stub.answer = lambda _: fault(503, "busy", Retry_After="0")
    found = observe(stub, retries=2)
    assert found.answer.failure is not None
    assert (found.answer.failure.kind, found.retries, len(stub.requests)) == ("http_503", 2, 3)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 500, 502])
def test_no_other_status_is_retried(stub: Stub, status: int) -> None:
    stub.answer = lambda _: fault(status, "no")
    found = observe(stub)
    assert found.answer.failure is not None
    assert found.answer.failure.kind == f"http_{status}"
    assert "no" in found.answer.failure.detail
    assert len(stub.requests) == 1


def test_a_server_that_never_answers_times_out_and_its_request_is_dropped(stub: Stub) -> None:
    stub.answer = lambda _: Reply(hang=True)
    found = observe(stub, timeout_s=0.3)
    assert found.answer.failure is not None
    assert found.answer.failure.kind == "timeout"
    wait_until(lambda: stub.in_flight == 0)


def test_silence_in_the_middle_is_a_stall(stub: Stub) -> None:
    stub.answer = lambda body: Reply(stream(body, CHUNKS)[:2], hang=True)
    found = observe(stub, stall_s=0.2)
    assert found.answer.failure is not None
    assert found.answer.failure.kind == "stalled"
    assert found.answer.text == "Once"  # what came is kept


def test_silence_before_the_answer_is_no_stall(stub: Stub) -> None:
    stub.answer = lambda body: Reply(stream(body, CHUNKS), first_s=0.4)
    assert observe(stub, stall_s=0.2).ok


def test_an_answer_that_trickles_for_ever_times_out(stub: Stub) -> None:
    stub.answer = lambda body: Reply(stream(body, [("a", 1)] * 1000), gap_s=0.02)
    found = observe(stub, timeout_s=0.3, stall_s=5.0)
    assert found.answer.failure is not None
    assert found.answer.failure.kind == "timeout"


def test_a_connection_lost_in_the_middle_is_a_cut_and_not_retried(stub: Stub) -> None:
    stub.answer = lambda body: Reply(stream(body, CHUNKS)[:3], cut=True, gap_s=0.01)
    found = observe(stub)
    assert found.answer.failure is not None
    assert found.answer.failure.kind == "cut"
    assert (found.answer.text, len(stub.requests)) == ("Once upon a", 1)


def test_a_connection_lost_before_the_answer_is_a_cut(stub: Stub) -> None:
    stub.answer = lambda _: Reply(cut=True)
    found = observe(stub)
    assert found.answer.failure is not None
    assert found.answer.failure.kind == "cut"


def test_retries_keep_to_the_pace_as_well(stub: Stub) -> None:
    stub.answer = in_turn(*[fault(429, "slow down", Retry_After="0")] * 2)

    async def one() -> Exchange:
        async with Client(Endpoint(stub.base_url, "stub"), Decoding()) as client:
            return await client.send(PROMPT, Pace(5))

    found = asyncio.run(one())
    assert found.retries == 2
    assert found.sent - found.first_sent >= 2 * 0.2 - 0.05  # the first request takes longer to build


def test_an_encoding_that_is_not_what_it_says_is_malformed(stub: Stub) -> None:
    stub.answer = lambda _: Reply([b"data: [DONE]"], headers={"Content-Encoding": "gzip"})
    found = observe(stub)
    assert found.answer.failure is not None
    assert found.answer.failure.kind == "malformed"


def test_a_connection_that_never_comes_about_is_unreachable() -> None:
    with socket.socket() as listener, ExitStack() as callers:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):  # fill its queue: the kernel leaves the next caller without an answer
            caller = callers.enter_context(socket.socket())
            caller.setblocking(False)
            caller.connect_ex(listener.getsockname())
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        with pytest.raises(EndpointError, match="could not reach"):
            probe(url, retries=0, connect_s=0.3, timeout_s=20.0)


def test_no_proxy_stands_between_us_and_loopback(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{_closed_port()}")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    assert observe(stub, retries=0).ok


def test_nobody_there_is_refused() -> None:
    with pytest.raises(EndpointError, match="could not reach") as caught:
        probe(f"http://127.0.0.1:{_closed_port()}/v1", retries=0)
    assert caught.value.hint is not None
    assert caught.value.hint.startswith("curl ")


def test_a_name_that_does_not_resolve_is_unreachable() -> None:
    with pytest.raises(EndpointError, match="could not reach"):
        probe("http://no-such-host.invalid/v1", retries=0)


def test_an_unknown_key_is_said_with_its_mend(stub: Stub) -> None:
    stub.answer = lambda _: fault(401, "bad key")
    with pytest.raises(EndpointError, match="refused the API key") as caught:
        probe(stub.base_url)
    assert caught.value.hint is not None
    assert "SPECOPS_API_KEY" in caught.value.hint


def test_a_key_that_the_endpoint_echoes_is_not_told(stub: Stub) -> None:
    stub.answer = lambda _: fault(401, "x" * 240 + " no such key: sk-very-secret")
    with pytest.raises(EndpointError, match="no such key") as caught:
        probe(stub.base_url, credentials=Credentials(secrets=("sk-very-secret",)))
    assert "sk-" not in caught.value.message  # nor a part of it, where the message is cut


def test_what_the_endpoint_reports_is_probed(stub: Stub) -> None:
    assert probe(stub.base_url) == Capabilities(usage=True, continuous_usage=True)


def test_options_that_an_endpoint_refuses_are_not_asked_for(stub: Stub) -> None:
    def openai_like(body: Body) -> Reply:
        if "continuous_usage_stats" in body.get("stream_options", {}):
            return fault(400, "unknown option continuous_usage_stats")
        return Reply(stream(body, CHUNKS))

    stub.answer = openai_like
    assert probe(stub.base_url) == Capabilities(usage=True, continuous_usage=False)


def test_an_endpoint_that_knows_no_stream_options(stub: Stub) -> None:
    stub.answer = lambda body: (
        fault(422, "extra fields") if "stream_options" in body else Reply(stream(body, CHUNKS))
    )
    assert probe(stub.base_url) == Capabilities()


def test_an_endpoint_that_bounds_answers_by_the_other_name(stub: Stub) -> None:
    stub.answer = lambda body: (
        fault(400, "use max_completion_tokens") if "max_tokens" in body else Reply(stream(body, CHUNKS))
    )

    async def one() -> Exchange:
        async with Client(Endpoint(stub.base_url, "stub"), Decoding(max_tokens=7)) as client:
            await client.probe(PROMPT)
            assert client.capabilities == Capabilities(True, True)
            return await client.send(PROMPT)

    assert asyncio.run(one()).observe(None).ok
    assert stub.requests[-1]["max_completion_tokens"] == 7


def test_accepted_is_not_sent(stub: Stub) -> None:
    stub.answer = lambda body: Reply(stream(body, CHUNKS, usage=False))
    assert probe(stub.base_url) == Capabilities()


def test_a_refusal_for_another_reason_is_told(stub: Stub) -> None:
    stub.answer = lambda _: fault(400, "max_tokens is too large")
    with pytest.raises(EndpointError, match="max_tokens is too large"):
        probe(stub.base_url)


def test_the_models_and_the_version_of_a_server(stub: Stub) -> None:
    async def ask() -> tuple[list[str], str | None]:
        async with Client(Endpoint(stub.base_url, "stub"), Decoding()) as client:
            return await client.models(), await client.version()

    assert asyncio.run(ask()) == (["stub"], "stub-1")


@pytest.mark.parametrize(
    "page",
    [
        ("text/html", "<html>It works</html>"),
        ("application/json", '{"data": ['),
        ("application/json", '{"data": 3}'),
        ("application/json", '{"data": [{"id": 3}]}'),
    ],
)
def test_nonsense_for_models_is_named_and_for_a_version_is_none(stub: Stub, page: tuple[str, str]) -> None:
    stub.page = page

    async def ask() -> None:
        async with Client(Endpoint(stub.base_url, "stub"), Decoding()) as client:
            assert await client.version() is None
            await client.models()

    named = "an HTML page" if page[0] == "text/html" else "no list of models"
    with pytest.raises(EndpointError, match=named) as caught:
        asyncio.run(ask())
    assert caught.value.hint


@pytest.mark.parametrize(
    ("says", "named"),
    [
        (bytes.fromhex("000000040000000000"), "speaks HTTP/2 alone"),
        (bytes.fromhex("15030100020246"), "begins with https://"),
        (b"220 mail'\"box\r\n", r"does not begin as HTTP does: b'220 mail"),
        (b"HTTP/1.1 505 x\r\nContent-Length: 0\r\n\r\n", r"\(505\): HTTP Version Not Supported"),
        (b"HTTP/1.1 599 x\r\nContent-Length: 0\r\n\r\n", r"\(599\): no text"),
    ],
)
def test_a_server_of_another_protocol_is_named(says: bytes, named: str) -> None:
    async def ask() -> list[str]:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(says)
            writer.close()

        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            host, port = server.sockets[0].getsockname()
            found = []
            async with Client(Endpoint(f"http://{host}:{port}/v1", "stub"), Decoding()) as client:
                for question in (client.models(), client.probe(PROMPT)):
                    with pytest.raises(EndpointError) as caught:
                        await question
                    found.append(caught.value.message)
            return found

    for message in asyncio.run(ask()):
        assert re.search(named, message)


def _closed_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def test_a_probe_finds_an_endpoint_that_sends_no_finish_reasons(stub: Stub) -> None:
    """Its answers are measured from then on. Where one probe had a finish reason, none may lack it."""
    assert probe(stub.base_url).finish_reasons

    async def kinds(first: str | None) -> list[str | None]:
        stub.answer = lambda body: Reply(stream(body, CHUNKS, finish=first))
        async with Client(Endpoint(stub.base_url, "stub"), Decoding()) as client:
            await client.probe(PROMPT)
            stub.answer = lambda body: Reply(stream(body, CHUNKS, finish=None))
            failure = (await client.send(PROMPT)).observe(None).answer.failure
            return [failure and failure.kind, str(client.capabilities.finish_reasons)]

    assert asyncio.run(kinds(None)) == [None, "False"]
    assert asyncio.run(kinds("stop")) == ["cut", "True"]
