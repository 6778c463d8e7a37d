"""Commands to the engine: none held while it is idle, none out of order, none held once it has answered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as some

from specops.edge.link import Proposal
from specops.edge.messages import Begin, Command, End, Propose, SetMode
from specops.edge.service import CommandBatch
from specops.engine.request import Sampling


def begin(key: int) -> Begin:
    return Begin(key, 0, [1], Sampling(), server_drafts=False)


def propose(key: int, number: int = 1) -> Propose:
    return Propose(key, number, Proposal((1,), (0,)), 0.0)


class Engine:
    """What it was told, message by message, and the event loop's timers, which run out when a test says."""

    def __init__(self) -> None:
        self.told: list[list[Command]] = []
        self.timers: list[asyncio.TimerHandle] = []
        self.gathering = CommandBatch(self.told.append, self.call_later)
        self._events = asyncio.new_event_loop()
        self._events.close()  # nothing runs in it

    def call_later(self, delay: float, what: Callable[[], None]) -> asyncio.TimerHandle:
        self.timers.append(asyncio.TimerHandle(delay, what, (), self._events))
        return self.timers[-1]

    def time_passes(self) -> None:
        for timer in self.timers:
            if not timer.cancelled():
                timer._run()
        self.timers.clear()


def test_an_idle_engine_is_told_at_once() -> None:
    engine = Engine()
    engine.gathering.tell([SetMode(3, True)])
    engine.gathering.tell([begin(1), begin(2)])
    assert engine.told == [[SetMode(3, True)], [begin(1), begin(2)]]
    assert not engine.timers


def test_what_is_told_during_a_step_waits_for_others_until_it_is_heard_of() -> None:
    engine = Engine()
    engine.gathering.tell([begin(1)])
    engine.gathering.tell([begin(2)])
    engine.gathering.tell([SetMode(3, True), begin(4)])
    assert engine.told == [[begin(1)]]
    engine.gathering.heard([1], [propose(1)])
    assert engine.told[1:] == [[begin(2), SetMode(3, True), begin(4), propose(1)]]
    assert all(timer.cancelled() for timer in engine.timers)


def test_what_waits_goes_after_a_while_even_so() -> None:
    engine = Engine()
    engine.gathering.tell([begin(1)])
    for times in (1, 2):
        engine.gathering.tell([begin(2)])
        engine.gathering.tell([begin(3)])
        assert len(engine.timers) == 1
        engine.time_passes()
        assert engine.told == [[begin(1)], *[[begin(2), begin(3)]] * times]


def test_an_engine_that_answered_all_or_was_told_to_end_it_is_idle() -> None:
    engine = Engine()
    engine.gathering.tell([begin(1), begin(2)])
    engine.gathering.heard([1], [])
    engine.gathering.tell([End(2)])
    assert engine.told == [[begin(1), begin(2)]]
    engine.time_passes()
    engine.gathering.tell([propose(1)])
    assert engine.told[1:] == [[End(2)], [propose(1)]]
    engine.gathering.heard([1], [])
    assert engine.told[3:] == []


@given(some.lists(some.tuples(some.sampled_from(["tell", "heard", "time"]), some.integers(0, 3))))
def test_whatever_happens_all_is_told_once_and_in_order(events: list[tuple[str, int]]) -> None:
    engine, said = Engine(), list[Command]()
    for number, (what, key) in enumerate(events):
        if what == "time":
            engine.time_passes()
            continue
        command = propose(key, number)
        said.append(command)
        if what == "tell":
            engine.gathering.tell([command])
        else:
            engine.gathering.heard([key], [command])
            assert engine.told[-1][-1] == command
    engine.gathering.flush()
    assert [command for message in engine.told for command in message] == said
    assert all(engine.told)
