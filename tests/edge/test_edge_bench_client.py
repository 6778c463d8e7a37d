"""A bench's client that only listens: what it takes from a link, and what it says where the link fails."""

from __future__ import annotations

from typing import Any

import pytest

from specops.edge.link import ClientTurn, Event, LinkDown, LinkUp, Pong, SessionRefused, Traffic, Verdict
from specops.engine.request import Sampling
from specops.load.workload import Prompt
from specops.phases.edge_bench.client import ArmClient, _send

SAMPLING = Sampling(max_tokens=6)


def verdict(session: int, number: int, tokens: list[int], *, ended: bool = False) -> Verdict:
    return Verdict(session, number, [], tokens, ended, 0.25, 0.5, 0, 0.0)


class Scripted:
    """A link that gives what it was told to, call by call; nothing more is silence."""

    def __init__(self, *events: list[Event]) -> None:
        self.events = list(events)
        self.asked: list[tuple[str, Any]] = []
        self.traffic = Traffic(sent=7, received=9)

    def receive(self, timeout: float | None) -> list[Event]:
        self.asked.append(("receive", timeout))
        return self.events.pop(0) if self.events else []

    def open(self, session: int, key: bytes, prompt: list[int], sampling: Sampling, **more: Any) -> None:
        assert more == {"server_drafts": True}
        assert len(key) == 16
        self.asked.append(("open", (session, prompt)))

    def end(self, session: int) -> None:
        self.asked.append(("end", session))


def listening(*events: list[Event]) -> tuple[ArmClient, Scripted]:
    link: Any = Scripted(*events)
    return ArmClient(link), link


class Words:
    """A tokenizer whose text is the ids."""

    def decode(self, ids: list[int], skip_special_tokens: bool) -> str:
        assert not skip_special_tokens
        return " ".join(map(str, ids))


def test_what_comes_together_is_one_verification() -> None:
    arm, link = listening(
        [], [verdict(1, 0, [5])], [verdict(1, 1, [6, 7]), Pong(0.1)], [verdict(1, 2, [8], ended=True)]
    )
    answered = arm.answer([1, 2], SAMPLING)
    assert answered.tokens == [5, 6, 7, 8]
    assert [chunk.tokens for chunk in answered.chunks] == [1, 2, 1]
    assert answered.failure is None
    assert ("open", (1, [1, 2])) in link.asked
    assert link.asked[-1] == ("end", 1)


def test_an_answer_is_observed_as_by_any_client() -> None:
    arm, _ = listening([], [verdict(1, 0, [5])], [verdict(1, 1, [6, 7], ended=True)], [])
    prompt = Prompt("p", "chat", (1, 2), temperature=0.0, seed=3)
    seen = _send(arm, prompt, Sampling(max_tokens=6, temperature=1.0), 1, Words())
    assert (seen.prompt, seen.traffic_class, seen.temperature, seen.connection) == ("p", "chat", 0.0, 2)
    assert (seen.answer.text, seen.answer.tokens, seen.answer.prompt_tokens) == ("5 6 7", 3, 2)
    assert [chunk.tokens for chunk in seen.answer.chunks] == [1, 2]
    assert seen.ok
    arm, _ = listening([], [verdict(1, 0, [], ended=True)])
    empty = _send(arm, prompt, SAMPLING, 0, Words())
    assert empty.answer.failure is not None
    assert empty.answer.failure.kind == "empty"


def test_a_turn_may_carry_the_end_and_others_sessions_do_not_count() -> None:
    arm, _ = listening(
        [], [verdict(9, 0, [1], ended=True), verdict(1, 0, [5])], [ClientTurn(1, 1, [6], True)]
    )
    assert arm.answer([1], SAMPLING).tokens == [5, 6]


@pytest.mark.parametrize(
    ("event", "kind", "words"),
    [
        (
            SessionRefused(1, "busy", "all sessions are taken", 0.5),
            "refused",
            "refused it: all sessions are taken",
        ),
        (LinkDown("nobody listens there"), "cut", "the link broke: nobody listens there"),
        (None, "stalled", "sent nothing for"),
    ],
)
def test_what_fails_is_a_failure_and_not_waited_for(event: Event | None, kind: str, words: str) -> None:
    arm, link = listening([], [verdict(1, 0, [5])], [] if event is None else [event])
    answered = arm.answer([1], SAMPLING)
    assert answered.failure is not None
    assert answered.failure.kind == kind
    assert words in answered.failure.detail
    assert answered.tokens == [5]
    assert link.asked[-1] == ("end", 1)


def test_a_link_that_broke_meanwhile_is_waited_for() -> None:
    arm, link = listening([LinkDown("cut")], [LinkUp()], [verdict(1, 0, [5], ended=True)])
    assert arm.answer([1], SAMPLING).tokens == [5]
    assert [what for what, _ in link.asked] == ["receive", "receive", "open", "receive", "end"]
