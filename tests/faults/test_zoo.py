"""The zoo's servers do what their knobs say, as a plain HTTP client sees it."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import pytest
from daemons import wait_until
from zoo import Clock, Keeper
from zoo_host import Host, hosted
from zoo_knobs import Fault, Server, knobs_of, server_of


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    with hosted() as process:
        yield process


@dataclass
class Said:
    status: int
    events: list[Any]
    seconds: float
    raw: bytes

    @property
    def words(self) -> list[str]:
        deltas = [event["choices"][0]["delta"] for event in self.events if event.get("choices")]
        return [delta["content"] for delta in deltas if delta.get("content")]

    @property
    def text(self) -> str:
        return "".join(self.words)

    @property
    def tokens(self) -> int:
        return len(self.text.split(" ")) - 1

    @property
    def finish(self) -> str | None:
        reasons = [event["choices"][0]["finish_reason"] for event in self.events if event.get("choices")]
        return reasons[-1] if reasons else None

    @property
    def usages(self) -> list[Any]:
        return [event["usage"]["completion_tokens"] for event in self.events if event.get("usage")]


def ask(
    port: int,
    prompt: str = "short: one",
    *,
    connection: http.client.HTTPConnection | None = None,
    **body: Any,
) -> Said:
    fields = {"model": "zoo", "stream": True, "temperature": 0, "stream_options": {"include_usage": True}}
    payload = json.dumps(fields | {"messages": [{"role": "user", "content": prompt}]} | body)
    used = connection or http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    began = time.perf_counter()
    try:
        used.request("POST", "/v1/chat/completions", payload, {"Content-Type": "application/json"})
        with used.getresponse() as response:
            raw = response.read()
    finally:
        if connection is None:
            used.close()
    seconds = time.perf_counter() - began
    lines = [line.removeprefix(b"data: ") for line in raw.split(b"\n\n") if line.startswith(b"data: ")]
    events = [json.loads(line) for line in lines if line != b"[DONE]"]
    return Said(response.status, events, seconds, raw)


def asked(host: Host, server: Server, prompts: Sequence[str], **body: Any) -> list[Said]:
    """One after the other."""
    with host.up([server]) as up:
        return [ask(up.ports[0], prompt, **body) for prompt in prompts]


def get(port: int, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request("GET", path)
    response = connection.getresponse()
    text = response.read().decode()
    connection.close()
    return response.status, text


PROMPTS = [f"short: {number}" for number in range(12)]
QUICK = Server(ttft_ms=0.0, token_ms=0.0)


def quick(**knobs: Any) -> Server:
    return Server(ttft_ms=0.0, token_ms=0.0, **knobs)


def with_fault(kind: Any, share: float = 1.0, **more: Any) -> Server:
    return quick(faults=(Fault(kind, share, **{"after": 0} | more),))


def test_knobs_survive_their_way_to_the_process() -> None:
    server = Server(drift=((0, 1.0), (5, 2.0)), faults=(Fault("hang", 0.1, ms=3, classes=("long",)),))
    assert server_of(json.loads(json.dumps(knobs_of(server)))) == server
    with pytest.raises(TypeError, match="no such knobs"):
        server_of({"lenght": 0.5})


def test_answers_depend_on_the_prompt_alone_and_take_their_time(host: Host) -> None:
    with host.up([Server(ttft_ms=20.0, token_ms=10.0), QUICK]) as up:
        slow, again, other = ask(up.ports[0]), ask(up.ports[0]), ask(up.ports[1])
        limited = ask(up.ports[1], max_tokens=3)
    assert slow.text == again.text == other.text
    assert slow.usages == [slow.tokens] == [len(slow.words)]
    assert 6 <= slow.tokens <= 12
    assert slow.seconds >= 0.02 + 0.01 * (slow.tokens - 1)
    assert (limited.tokens, limited.finish, slow.finish) == (3, "length", "stop")
    assert up.requests == [2, 2]


def test_length_is_cut_for_the_classes_named(host: Host) -> None:
    whole = asked(host, QUICK, [*PROMPTS, "long: one"])
    half = asked(host, quick(length=0.5, length_classes=("short",)), [*PROMPTS, "long: one"])
    shares = [cut.tokens / full.tokens for cut, full in zip(half, whole, strict=True)]
    assert shares[-1] == 1.0
    assert all(0.4 < share < 0.6 for share in shares[:-1])


def test_sampled_answers_differ_and_are_as_long_in_the_mean(host: Host) -> None:
    greedy, sampled = asked(host, QUICK, PROMPTS * 4), asked(host, QUICK, PROMPTS * 4, temperature=0.7)
    assert all(one.text != two.text for one, two in zip(greedy, sampled, strict=True))
    ratio = sum(one.tokens for one in sampled) / sum(one.tokens for one in greedy)
    assert 0.9 < ratio < 1.1


@pytest.mark.parametrize(("share", "expected"), [(0.5, 6), (0.25, 3), (1.0, 12), (0.0, 0)])
def test_a_share_of_failures_is_met_exactly(host: Host, share: float, expected: int) -> None:
    statuses = [said.status for said in asked(host, with_fault("http_500", share), PROMPTS)]
    assert statuses.count(500) == expected
    assert statuses.count(200) == 12 - expected


def test_failures_are_of_their_kind(host: Host) -> None:
    (later,) = asked(host, with_fault("http_429_later"), ["short: one"])
    assert later.status == 429
    (aborted,) = asked(host, with_fault("abort"), ["short: one"])
    assert aborted.finish == "abort"
    assert aborted.tokens <= 4
    (broken,) = asked(host, with_fault("finish_error"), ["short: one"])
    assert (broken.finish, broken.tokens) == ("error", aborted.tokens)
    (page,) = asked(host, with_fault("html"), ["short: one"])
    assert (page.status, page.raw[:9]) == (200, b"<!DOCTYPE")
    (empty,) = asked(host, with_fault("empty"), ["short: one"])
    assert (empty.text, empty.finish, empty.usages) == ("", "stop", [0])
    (plain,) = asked(host, with_fault("error_json"), ["short: one"])
    assert (plain.status, json.loads(plain.raw)["object"]) == (200, "error")
    (event,) = asked(host, with_fault("error_object"), ["short: one"])
    assert event.events[-1]["object"] == "error"
    assert event.raw.endswith(b"data: [DONE]\n\n")
    (nested,) = asked(host, with_fault("error_event"), ["short: one"])
    assert nested.events[-1]["error"]["message"]
    for kind in ("hang", "stall"):
        (slow,) = asked(host, with_fault(kind, ms=150), ["short: one"])
        assert slow.seconds > 0.15
        assert slow.finish == "stop"


@pytest.mark.parametrize("kind", ["reset", "cut"])
def test_connections_are_lost(host: Host, kind: str) -> None:
    with pytest.raises((http.client.HTTPException, ConnectionError)):
        asked(host, with_fault(kind), ["short: one"])


def test_failures_wait_for_their_conditions(host: Host) -> None:
    after = asked(host, with_fault("http_500", after=2), ["short: one"] * 4)
    assert [said.status for said in after] == [200, 200, 500, 500]
    of_class = asked(host, with_fault("http_500", classes=("long",)), ["short: one", "long: one"])
    assert [said.status for said in of_class] == [200, 500]
    keeper = Keeper(with_fault("http_500", above=3), Clock())
    keeper.requests = 1
    found = []
    for keeper.in_flight in (3, 4):
        found.append(keeper.fault_of("short: one", 0.0, mixed=False) is not None)
    assert found == [False, True]
    mixed = Keeper(with_fault("http_500", mixed=True), Clock())
    mixed.requests = mixed.in_flight = 1
    assert mixed.fault_of("short: one", 0.0, mixed=True) is None
    mixed.sampled = 1
    assert mixed.fault_of("short: one", 0.0, mixed=True) is not None
    assert mixed.fault_of("short: one", 0.7, mixed=True) is None
    assert mixed.fault_of("short: one", 0.0, mixed=False) is None


def slowness(keepers: Sequence[Keeper], *turns: int, prompt: str = "short: one") -> list[float]:
    """How many times as long each of a sequence of requests takes; `turns` say whose it is."""
    found = []
    for turn in turns:
        keeper = keepers[turn]
        keeper.clock.arrive(keeper, keeper.knobs.visit_requests)
        keeper.requests += 1
        found.append(keeper.slowness(prompt))
    return found


def test_repeats_come_from_the_cache() -> None:
    keeper = Keeper(Server(repeat_factor=0.1), Clock())
    keeper.answered["short: one"] = 1
    assert keeper.slowness("short: one") == 0.1
    assert keeper.slowness("short: two") == 1.0


def test_servers_may_share_a_cache() -> None:
    clock = Clock()
    one, two = (Keeper(Server(repeat_factor=0.1, shares_cache=True), clock) for _ in range(2))
    other = Keeper(Server(repeat_factor=0.1), clock)
    one.answered["short: one"] = 1
    assert [keeper.slowness("short: one") for keeper in (one, two, other)] == [0.1, 0.1, 1.0]


def test_a_server_wakes_up_after_another_was_sent_requests() -> None:
    clock = Clock()
    keepers = [Keeper(Server(wake=wake), clock) for wake in ((2, 4.0), (0, 1.0))]
    assert slowness(keepers, 0, 0, 0, 1, 0, 0, 0) == [4.0, 4.0, 1.0, 1.0, 4.0, 4.0, 1.0]


def test_answers_end_without_a_finish_reason_or_by_a_filter(host: Host) -> None:
    (whole,) = asked(host, QUICK, ["short: one"])
    for kind, finish, done in (
        ("unended", None, True),
        ("silent_end", None, False),
        ("filtered", "content_filter", True),
    ):
        (said,) = asked(host, with_fault(kind), ["short: one"])
        assert (said.finish, said.raw.endswith(b"[DONE]\n\n")) == (finish, done)
        assert said.tokens == whole.tokens // 2


def test_answers_that_a_proxy_or_a_parser_spoils(host: Host) -> None:
    (whole,) = asked(host, QUICK, ["short: one"])
    (twice,) = asked(host, quick(copies=2), ["short: one"])
    assert twice.words[::2] == twice.words[1::2] == whole.words
    (commented,) = asked(host, quick(comments=3), ["short: one"])
    assert (commented.words, commented.raw.count(b": keep-alive")) == (whole.words, 3 * whole.tokens)
    (capped,) = asked(host, quick(cap=2), ["short: one"])
    assert (capped.words, capped.finish) == (whole.words[:2], "length")
    (thought,) = asked(host, quick(reasoning=1.0), ["short: one"])
    assert (thought.text, thought.usages) == ("", whole.usages)
    (looping,) = asked(host, quick(loops=True), ["short: one"], temperature=0.7)
    assert len(set(looping.words)) == 2


def test_speed_drifts_with_the_requests() -> None:
    keeper = Keeper(Server(drift=((2, 1.0), (4, 5.0))), Clock())
    assert slowness([keeper], *[0] * 6) == [1.0, 1.0, 3.0, 5.0, 5.0, 5.0]


def test_speed_depends_on_the_class_and_the_load() -> None:
    keeper = Keeper(Server(class_factors={"long": 4.0}, loaded_factor=5.0, loaded_above=2), Clock())
    keeper.in_flight = 2
    assert (keeper.slowness("short: one"), keeper.slowness("long: one")) == (1.0, 4.0)
    keeper.in_flight = 3
    assert (keeper.slowness("short: one"), keeper.slowness("long: one")) == (5.0, 20.0)


def test_a_visit_has_its_own_noise() -> None:
    clock = Clock()
    keepers = [Keeper(Server(visit_sd=0.5, visit_requests=3), clock) for _ in range(2)]
    found = slowness(keepers, 0, 0, 1, 1, 1, 1, 0)
    visits = [
        found[:2],
        found[2:5],
        found[5:6],
        found[6:],
    ]  # it ends by its requests, and by another server's
    assert all(len(set(visit)) == 1 for visit in visits)
    assert len({visit[0] for visit in visits}) == 4


def test_each_request_has_its_own_noise_around_one() -> None:
    found = slowness([Keeper(Server(request_sd=0.2), Clock())], *[0] * 2000)
    assert len(set(found)) == 2000
    assert abs(sum(found) / 2000 - 1) < 0.02


def test_speed_is_drawn_again_for_each_burst() -> None:
    async def factors(server: Server) -> set[float]:
        keeper, found = Keeper(server, Clock()), set()
        for _ in range(30):
            found.add(keeper.slowness("short: one"))
            await asyncio.sleep(0.002)
        return found

    assert asyncio.run(factors(Server(burst_s=0.004, burst_share=0.25))) == {1.0, 1.25}
    assert len(asyncio.run(factors(Server(burst_s=1e9, burst_share=0.25)))) == 1


def test_greedy_answers_are_garbled_by_company_and_by_repeats() -> None:
    def said(keeper: Keeper, temperature: float = 0.0) -> list[str]:
        return keeper.answer_to("short: one", temperature, 64).words

    own = said(Keeper(QUICK, Clock()))
    loaded = Keeper(quick(garble_share=1.0, garble_above=2), Clock())
    loaded.in_flight = 2
    assert said(loaded) == own
    loaded.in_flight = 3
    assert said(loaded) != own
    mixed = Keeper(quick(garble_share=1.0, garble_mixed=True), Clock())
    assert said(mixed) == own
    mixed.sampled = 1
    assert said(mixed) != own
    again = Keeper(quick(garble_share=1.0, garble_repeats=True), Clock())
    assert said(again) == own
    again.answered["short: one"] = 1
    assert said(again) != own
    again.knobs = quick(garble_share=0.0, garble_repeats=True)
    assert said(again) == own
    assert said(Keeper(quick(unsteady=1.0), Clock())) != own


def test_what_is_in_flight_is_counted(host: Host) -> None:
    """While a request that hangs is in flight, another one is not the only one."""
    faults = (Fault("hang", ms=600, after=0, classes=("long",)), Fault("http_500", after=0, above=1))
    with host.up([quick(faults=faults)]) as up, ThreadPoolExecutor(1) as pool:
        assert ask(up.ports[0]).status == 200
        long = pool.submit(ask, up.ports[0], "long: one")
        wait_until(lambda: ask(up.ports[0]).status == 500, "a request to meet the other")
        assert long.result().status == 200
        assert ask(up.ports[0]).status == 200


@pytest.mark.parametrize(
    ("knobs", "usages", "sizes"),
    [
        ({"usage": "own"}, [12], [1] * 12),
        ({"usage": "last_text"}, [12], [1] * 12),
        ({"usage": "zero"}, [0], [1] * 12),
        ({"usage": "none"}, [], [1] * 12),
        ({"usage": "null"}, [], [1] * 12),
        ({"usage": "every", "first_chunk": 4, "chunk": 4}, [4, 8, 12, 12], [4, 4, 4]),
        ({"usage_factor": 2.0, "first_chunk": 6, "chunk": 3}, [24], [6, 3, 3]),
    ],
)
def test_chunks_and_usage(host: Host, knobs: dict[str, Any], usages: list[int], sizes: list[int]) -> None:
    (said,) = asked(host, quick(tokens=(12, 12), **knobs), ["short: one"])
    assert said.usages == usages
    assert [len(word.split(" ")) - 1 for word in said.words] == sizes


def test_padding_is_white_space(host: Host) -> None:
    (own,) = asked(host, QUICK, ["short: one"])
    (padded,) = asked(host, quick(padding=1.0), ["short: one"])
    assert padded.text.rstrip() == own.text
    assert padded.usages == [2 * own.usages[0]]


def test_a_stump_ends_well(host: Host) -> None:
    (said,) = asked(host, with_fault("stump"), ["short: one"])
    assert (said.tokens, said.finish, said.usages) == (1, "stop", [1])


def test_the_temperature_may_be_ignored(host: Host) -> None:
    greedy = asked(host, QUICK, PROMPTS)
    sampled = asked(host, quick(ignores_temperature=1.0), PROMPTS, temperature=0.7)
    assert [one.text for one in sampled] == [one.text for one in greedy]


def test_chunks_may_come_twice_and_the_end_late(host: Host) -> None:
    (own,) = asked(host, QUICK, ["short: one"])
    (said,) = asked(host, quick(copies=2, linger_ms=150), ["short: one"])
    assert said.words == [word for word in own.words for _ in "12"]
    assert said.usages == own.usages
    assert said.seconds > 0.15


def test_a_server_may_wake_up_slowly_after_another_ones_turn() -> None:
    clock = Clock()
    keepers = [Keeper(Server(wake=(2, 3.0)), clock), Keeper(Server(), clock)]
    assert slowness(keepers, 1, 0, 0, 0, 1, 0) == [1.0, 3.0, 3.0, 1.0, 1.0, 3.0]


@pytest.mark.parametrize("closing", ["fin", "race"])
def test_a_connection_ends_after_one_answer(host: Host, closing: Any) -> None:
    with host.up([quick(closing=closing)]) as up:
        connection = http.client.HTTPConnection("127.0.0.1", up.ports[0], timeout=20)
        assert ask(up.ports[0], connection=connection).finish == "stop"
        with pytest.raises((http.client.HTTPException, ConnectionError)):
            ask(up.ports[0], connection=connection)
        connection.close()
        assert ask(up.ports[0]).finish == "stop"


def test_metrics_name_the_process_and_count_drafts(host: Host) -> None:
    servers = [Server(), Server(metrics=True), Server(metrics=True, speculates=True, started=5.0)]
    with host.up(servers) as up:
        for port in up.ports:
            ask(port)
        none, plain, drafting = (get(port, "/metrics") for port in up.ports)
    assert none[0] == 404
    assert "process_start_time_seconds" in plain[1]
    assert "spec_decode" not in plain[1]
    assert "process_start_time_seconds 5.0" in drafting[1]
    (drafts,) = [
        line for line in drafting[1].splitlines() if line.startswith("vllm:spec_decode_num_drafts_total")
    ]
    assert int(drafts.split()[-1]) > 0


@pytest.mark.parametrize(
    ("bad", "status", "word"),
    [
        ("html", 200, "<html>"),
        ("401", 401, ""),
        ("404", 404, ""),
        ("429", 429, ""),
        ("loading", 503, "loading"),
    ],
)
def test_bad_servers_answer_nothing_else(host: Host, bad: Any, status: int, word: str) -> None:
    with host.up([Server(bad=bad)]) as up:
        found = ask(up.ports[0])
        assert (found.status, get(up.ports[0], "/v1/models")[0]) == (status, status)
        assert word in found.raw.decode()


def test_a_server_may_speak_another_protocol(host: Host) -> None:
    with (
        host.up([Server(bad="http2")]) as up,
        socket.create_connection(("127.0.0.1", up.ports[0]), timeout=20) as connection,
    ):
        connection.sendall(b"GET /v1/models HTTP/1.1\r\nHost: here\r\n\r\n")
        assert connection.recv(100) == bytes.fromhex("000000040000000000")
        assert connection.recv(100) == b""


def test_a_server_may_list_no_model(host: Host) -> None:
    with host.up([Server(bad="no_models")]) as up:
        assert json.loads(get(up.ports[0], "/v1/models")[1])["data"] == []
        assert ask(up.ports[0]).status == 200


def test_answers_may_come_otherwise(host: Host) -> None:
    plain, bare = asked(host, QUICK, PROMPTS[:1]), asked(host, quick(no_spaces=True), PROMPTS[:1])
    assert bare[0].text == plain[0].text.replace(" ", "")
    (unended,) = asked(host, quick(no_finish=True), PROMPTS[:1])
    assert unended.finish is None
    assert unended.usages == [unended.tokens]
    assert unended.raw.endswith(b"data: [DONE]\n\n")
    (total,) = asked(host, quick(usage="total"), PROMPTS[:1])
    assert set(total.usages) == {total.tokens}
    assert len(total.usages) == total.tokens + 1
    (windows,) = asked(host, quick(crlf=True), PROMPTS[:1])
    assert windows.raw.count(b"\r\n\r\n") == plain[0].tokens
    assert b"id: 1\r\ndata: {" in windows.raw


def test_a_proxy_may_hold_an_answer_back(host: Host) -> None:
    with host.up(
        [replace(Server(ttft_ms=5.0, token_ms=10.0), buffered=buffered) for buffered in (False, True)]
    ) as up:
        waits = []
        for port in up.ports:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
            body = {"model": "zoo", "stream": True, "messages": [{"role": "user", "content": "short: one"}]}
            connection.request("POST", "/v1/chat/completions", json.dumps(body), {})
            response = connection.getresponse()
            began = time.perf_counter()
            first = response.read1(8)
            took = time.perf_counter() - began
            assert first + response.read()
            waits.append((took, time.perf_counter() - began))
            connection.close()
    (first, whole), (first_held, whole_held) = waits
    assert first < 0.5 * whole
    assert first_held > 0.9 * whole_held


def test_a_connection_may_end_after_some_answers_and_begin_slowly(host: Host) -> None:
    with host.up([quick(closing_after=2, connection_ms=60.0)]) as up:
        connection = http.client.HTTPConnection("127.0.0.1", up.ports[0], timeout=20)
        first, second = (ask(up.ports[0], connection=connection) for _ in range(2))
        assert first.seconds >= 0.06 > second.seconds
        with pytest.raises(ConnectionError):
            ask(up.ports[0], connection=connection)
        connection.close()


def test_a_server_may_refuse_more_than_so_many_requests_a_second(host: Host) -> None:
    statuses = [said.status for said in asked(host, quick(per_second=3), PROMPTS[:6])]
    assert statuses == [200] * 3 + [429] * 3


def test_work_that_an_answer_leaves_behind_delays_every_server(host: Host) -> None:
    with host.up([quick(burden_ms=80.0), QUICK]) as up:
        assert ask(up.ports[1]).seconds < 0.08
        ask(up.ports[0])
        assert ask(up.ports[1]).seconds >= 0.06


def test_every_second_request_may_be_slower() -> None:
    keeper = Keeper(Server(alternate=3.0), Clock())
    assert slowness([keeper], *[0] * 4) == [3.0, 1.0, 3.0, 1.0]


def test_a_limit_may_delay_requests(host: Host) -> None:
    took = [said.seconds for said in asked(host, quick(spacing_ms=80.0), PROMPTS[:3])]
    assert took[0] < 0.08
    assert all(seconds > 0.06 for seconds in took[1:])


def test_a_proxy_may_send_chunks_on_in_turns(host: Host) -> None:
    with host.up([Server(ttft_ms=5.0, token_ms=10.0, tokens=(12, 12), flush_ms=50.0)]) as up:
        connection = http.client.HTTPConnection("127.0.0.1", up.ports[0], timeout=20)
        message = {"role": "user", "content": "short: one"}
        body = {"model": "zoo", "stream": True, "temperature": 0, "messages": [message]}
        connection.request("POST", "/v1/chat/completions", json.dumps(body), {})
        response = connection.getresponse()
        reads = [(time.perf_counter(), piece) for piece in iter(lambda: response.read1(65536), b"")]
        connection.close()
    texts = [(at, piece.count(b'"content"')) for at, piece in reads if piece.count(b'"content"')]
    assert sum(count for _, count in texts) == 12
    assert len(texts) <= 4


def test_words_may_be_shorter_and_some_sampled_answers_greedy(host: Host) -> None:
    (own,), (other,) = asked(host, QUICK, PROMPTS[:1]), asked(host, quick(other_language=True), PROMPTS[:1])
    assert (other.tokens, other.usages) == (own.tokens, own.usages)
    assert 3 * len(other.text) == 2 * len(own.text)
    greedy = asked(host, QUICK, PROMPTS)
    half = asked(host, quick(ignores_temperature=0.5), PROMPTS, temperature=0.7)
    assert 1 < sum(one.text == two.text for one, two in zip(half, greedy, strict=True)) < 11
