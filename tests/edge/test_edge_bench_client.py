"""What a bench's client observes of one answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from specops.engine.request import Emission, Sampling
from specops.load.request_times import Observation, tpot, ttft
from specops.load.workload import Prompt
from specops.phases.edge_bench.client import observe


class Scripted:
    """An engine that emits what it was given; and a tokenizer whose text is the ids."""

    def __init__(self, *emissions: Emission) -> None:
        self.emissions = emissions
        self.requests: list[tuple[list[int], Sampling]] = []

    def stream(self, prompt: list[int], sampling: Sampling) -> Iterator[Emission]:
        self.requests.append((prompt, sampling))
        yield from self.emissions

    def decode(self, ids: list[int], skip_special_tokens: bool) -> str:
        assert not skip_special_tokens  # answers that differ in one are not the same
        return " ".join(map(str, ids))


def observed(engine: Any, prompt: Prompt) -> Observation:
    return observe(engine, prompt, Sampling(temperature=0.7, max_tokens=6), engine, connection=2)


def test_what_comes_together_is_one_chunk() -> None:
    engine = Scripted(Emission(1, [5], ""), Emission(1, [], ""), Emission(1, [6, 7], "", "length"))
    answer = observed(engine, Prompt("p", "chat", (1, 2), seed=3))
    assert (answer.prompt, answer.traffic_class, answer.connection) == ("p", "chat", 2)
    assert [chunk.tokens for chunk in answer.answer.chunks] == [1, 2]
    assert (answer.answer.text, answer.answer.tokens, answer.answer.prompt_tokens) == ("5 6 7", 3, 2)
    assert answer.ok
    assert ttft(answer) is not None
    assert tpot(answer) is not None
    assert engine.requests == [([1, 2], Sampling(temperature=0.7, max_tokens=6, seed=3))]


def test_a_request_may_have_a_temperature_of_its_own() -> None:
    engine = Scripted(Emission(1, [5], "", "length"))
    assert observed(engine, Prompt("p", "chat", (1,), temperature=0.0)).temperature == 0.0
    assert engine.requests[0][1].temperature == 0.0
    assert observed(engine, Prompt("p", "chat", (1,))).temperature == 0.7


def test_what_ends_early_is_a_failure() -> None:
    cut = observed(
        Scripted(Emission(1, [5], ""), Emission(1, [], "", "cancelled", error="the link broke")),
        Prompt("p", "chat", (1,)),
    )
    assert cut.answer.failure is not None
    assert (cut.answer.failure.kind, cut.answer.failure.detail) == ("stream_error", "the link broke")
    assert cut.answer.tokens == 1
    empty = observed(Scripted(Emission(1, [], "", "stop")), Prompt("p", "chat", (1,)))
    assert empty.answer.failure is not None
    assert empty.answer.failure.kind == "empty"
