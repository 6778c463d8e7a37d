"""The OpenAI API in front of an edge client: what comes out is what the target alone would write."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the engine extra")
pytest.importorskip("aiohttp", reason="needs the serve extra")
pytest.importorskip("grpc", reason="needs the edge extra")

from live_verifier import LiveVerifier, serve_edge  # isort: skip  # puts `live` on the path
from live import Live, until

from specops.edge import client_sessions
from specops.edge.fallback import Fallback
from specops.edge.relay import relay
from specops.edge.settings import Drafting
from specops.engine import load_engine

PROMPTS = ["the server measures", "what it serves", "a draft proposes what", "verifies and the"]
LONG: dict[str, Any] = {"temperature": 0, "ignore_eos": True, "max_tokens": 200}


@pytest.fixture(scope="module")
def verifier(tiny_pair: tuple[Path, Path]) -> Iterator[LiveVerifier]:
    live = LiveVerifier(tiny_pair[0])
    live.start()
    yield live
    live.stop()
    live.close()


@pytest.fixture(scope="module")
def edge(verifier: LiveVerifier, tiny_pair: tuple[Path, Path]) -> Iterator[Live]:
    """The target's twin drafts, so that some of it is accepted whatever a random model writes."""
    live = serve_edge(verifier.port, tiny_pair[0])
    yield live
    live.close()
    live.engine.close()


@pytest.fixture(scope="module")
def alone(tiny_pair: tuple[Path, Path]) -> Iterator[Live]:
    live = Live(load_engine(tiny_pair[0], speculate=False, max_batch=4), model="target")
    yield live
    live.close()


@pytest.fixture
def own(tiny_pair: tuple[Path, Path]) -> Iterator[Callable[..., tuple[LiveVerifier, Live]]]:
    """A verifier and an edge of the test's own, to be broken."""
    ends: list[Callable[[], None]] = []

    def start(drafting: Drafting | None = None) -> tuple[LiveVerifier, Live]:
        verifier = LiveVerifier(tiny_pair[0])
        ends.append(verifier.close)
        verifier.start()
        ends.append(verifier.stop)
        live = serve_edge(verifier.port, tiny_pair[1], drafting)
        ends.append(live.engine.close)
        ends.append(live.close)
        return verifier, live

    yield start
    for end in reversed(ends):
        end()


def text_of(live: Live, prompt: str, **fields: Any) -> str:
    text: str = live.complete(prompt, **{**LONG, **fields})["choices"][0]["text"]
    return text


def test_greedy_answers_are_the_targets(edge: Live, alone: Live) -> None:
    """Several at once, over one connection; one more than it has places for."""
    with ThreadPoolExecutor(len(PROMPTS)) as pool:
        texts = list(pool.map(lambda prompt: text_of(edge, prompt), PROMPTS))
    assert texts == [text_of(alone, prompt) for prompt in PROMPTS]
    series = edge.metrics()
    labels = '{engine="0",model_name="target"}'
    assert series[f"specops_edge_connected{labels}"] == 1
    assert series[f"specops_edge_rounds_total{labels}"] >= 1
    assert (
        0
        <= series[f"specops_edge_rounds_ahead_total{labels}"]
        <= series[f"specops_edge_rounds_total{labels}"]
    )
    assert series[f"vllm:spec_decode_num_accepted_tokens_total{labels}"] >= 1
    assert series[f"specops_edge_network_seconds_count{labels}"] >= 1


def test_a_stream_is_the_same_in_pieces(edge: Live, alone: Live) -> None:
    chunks = edge.stream("/v1/completions", {"prompt": PROMPTS[0], **LONG})
    assert len(chunks) > 10
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == text_of(alone, PROMPTS[0])
    assert chunks[-1]["choices"][0]["finish_reason"] == "length"


def test_a_chat_goes_through_the_template(edge: Live, alone: Live) -> None:
    body = {"messages": [{"role": "user", "content": "measure"}], **LONG}
    answers = [live.ask("/v1/chat/completions", body).json for live in (edge, alone)]
    assert answers[0]["choices"][0]["message"] == answers[1]["choices"][0]["message"]
    assert answers[0]["usage"] == answers[1]["usage"]


def test_stop_strings_and_several_choices(edge: Live, alone: Live) -> None:
    whole = text_of(alone, PROMPTS[1])
    stop = whole[40:43]
    answers = [live.complete(PROMPTS[1], **LONG, n=2, stop=[stop]) for live in (edge, alone)]
    assert answers[0]["choices"] == answers[1]["choices"]
    assert [choice["finish_reason"] for choice in answers[0]["choices"]] == ["stop"] * 2


def test_sampling_asks_for_no_logprobs(edge: Live) -> None:
    edge.complete(PROMPTS[0], temperature=0.8, max_tokens=20)
    reply = edge.ask("/v1/completions", {"prompt": "a", "logprobs": 1})
    assert reply.status == 400
    assert "logprobs" in reply.error["message"]


def test_a_client_that_leaves_ends_its_session(edge: Live, verifier: LiveVerifier) -> None:
    stepped = edge.engine.own.verdicts
    with edge.asking("/v1/completions", {"prompt": "a", **LONG, "max_tokens": 400, "stream": True}):
        until(lambda: edge.engine.own.verdicts > stepped, "a verdict")
    until(lambda: verifier.server.service.sessions.running == 0, "the session's end")


def test_what_the_server_drafts_itself_is_the_same_text(
    verifier: LiveVerifier, tiny_pair: tuple[Path, Path], alone: Live
) -> None:
    live = serve_edge(verifier.port, tiny_pair[1], fallback=Fallback.always(server_drafts=True))
    try:
        assert text_of(live, PROMPTS[0]) == text_of(alone, PROMPTS[0])
        assert live.engine.own.rounds == 0
    finally:
        live.close()
        live.engine.close()


def test_an_answer_outlives_cuts(verifier: LiveVerifier, tiny_pair: tuple[Path, Path], alone: Live) -> None:
    with relay(verifier.port, delay_s=0.001) as path:
        live = serve_edge(path.port, tiny_pair[1])
        try:
            with ThreadPoolExecutor(2) as pool:
                answers = [pool.submit(text_of, live, prompt, max_tokens=300) for prompt in PROMPTS[:2]]
                for cuts in range(1, 4):
                    seen = live.engine.own.verdicts
                    until(lambda s=seen: live.engine.own.verdicts > s + 5, "progress")  # type: ignore[misc]
                    path.cut()
                    until(lambda c=cuts: live.engine.own.downs >= c, "that it is noticed")  # type: ignore[misc]
                texts = [answer.result() for answer in answers]
            assert texts == [text_of(alone, prompt, max_tokens=300) for prompt in PROMPTS[:2]]
        finally:
            live.close()
            live.engine.close()


def test_a_server_that_comes_back_without_its_sessions_loses_no_token(own: Any, alone: Live) -> None:
    verifier, live = own()
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(text_of, live, PROMPTS[0], max_tokens=300)
        until(lambda: live.engine.own.verdicts > 20, "progress")
        verifier.stop()
        until(lambda: live.engine.own.downs >= 1 or answer.done(), "that it is noticed")
        verifier.start()
        assert answer.result() == text_of(alone, PROMPTS[0], max_tokens=300)
    assert live.engine.own.reopened >= 1


@pytest.mark.slow
def test_a_server_that_is_away_is_said_so_until_it_is_back(
    own: Any, alone: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_sessions, "AWAY_TOO_LONG_S", 0.0)
    verifier, live = own()
    assert live.ask("/health").status == 200
    verifier.stop()
    until(lambda: live.ask("/health").status == 503, "that it is away")
    reply = live.ask("/v1/completions", {"prompt": "a"})
    assert (reply.status, reply.error["code"]) == (503, "unavailable")
    assert "out of reach" in reply.error["message"]
    assert live.metrics()['specops_edge_connected{engine="0",model_name="target"}'] == 0
    verifier.start()
    until(lambda: live.ask("/health").status == 200, "that it is back")
    assert text_of(live, PROMPTS[0]) == text_of(alone, PROMPTS[0])


def test_an_answer_does_not_wait_for_ever(own: Any) -> None:
    verifier, live = own(Drafting(streams=1, patience_s=0.3))
    with ThreadPoolExecutor(1) as pool:
        reply = pool.submit(live.ask, "/v1/completions", {"prompt": "a", **LONG, "max_tokens": 400})
        until(lambda: live.engine.own.verdicts > 5, "progress")
        verifier.stop()
        assert (reply.result().status, reply.result().error["code"]) == (503, "cut_off")
