"""Which rounds a step takes: how long they wait, and that no client's wait for another's many."""

from __future__ import annotations

from math import ceil
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specops.edge.batching import DYNAMIC, Batching, FairQueue, WaitingRound
from specops.errors import UsageError


@pytest.mark.parametrize(
    ("text", "batching"),
    [
        ("dynamic", DYNAMIC),
        ("static:4", Batching(4)),
        ("static:4:50", Batching(4, 0.05)),
        ("static:1:0", Batching(1, 0.0)),
    ],
)
def test_as_people_write_it(text: str, batching: Batching) -> None:
    assert Batching.parse(text) == batching


@pytest.mark.parametrize(
    "text",
    ["", "static", "static:", "static:0", "static:-1", "static:2:x", "fixed:2", "static:1:2:3", "static:²"],
)
def test_what_is_no_batching(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        Batching.parse(text)
    assert "static:4:50" in str(caught.value.hint)


@given(waiting=st.integers(1, 40), possible=st.integers(0, 40), ago=st.floats(0, 10))
def test_dynamic_batches_wait_for_nobody(waiting: int, possible: int, ago: float) -> None:
    assert DYNAMIC.pause(waiting, waiting + possible, 100 - ago, 100) == 0


def test_static_batches_wait_for_so_many_or_so_long() -> None:
    batching = Batching(3, 0.5)
    assert batching.pause(2, 5, oldest=10.0, now=10.1) == pytest.approx(0.4)
    assert batching.pause(3, 5, oldest=10.0, now=10.1) == 0
    assert batching.pause(2, 2, oldest=10.0, now=10.1) == 0  # nobody else can come
    assert batching.pause(1, 5, oldest=10.0, now=10.6) == 0


@given(seed=st.integers(0, 2**32), most=st.integers(1, 5))
def test_no_client_waits_for_anothers_many(seed: int, most: int) -> None:
    """Against the bound that FairQueue states, while rounds keep coming: a client with one session beside
    others with up to a hundred."""
    random = Random(seed)
    clients = random.randint(1, 6)
    sessions = {client: random.choice([1, 2, 100]) for client in range(clients)}
    turns, step, number = FairQueue(), 0, 0
    waits: dict[int, tuple[int, int]] = {}  # key -> when it came, and how many of its client's were before it
    there = dict.fromkeys(sessions, 0)
    orders: dict[int, list[int]] = {client: [] for client in sessions}
    for step in range(60):
        for client, many in sessions.items():
            while there[client] < many and random.random() < 0.9:
                turns.add(WaitingRound(number, client, float(number)))
                waits[number] = step, there[client]
                orders[client].append(number)
                there[client] += 1
                number += 1
        assert len(turns) == sum(there.values())
        assert not len(turns) or turns.oldest == min(order[0] for order in orders.values() if order)
        for _ in range(min(most, len(turns))):
            first = turns.next
            taken = turns.take()
            assert taken == first
            assert orders[taken.client].pop(0) == taken.key, "of one client's, in the order they came"
            there[taken.client] -= 1
            came, before = waits.pop(taken.key)
            assert step - came + 1 <= ceil((before + 1) * clients / most)
    assert all(step - came + 1 <= ceil((before + 1) * clients / most) for came, before in waits.values())


def test_what_is_dropped_is_not_taken() -> None:
    turns = FairQueue()
    for key, client in enumerate([0, 0, 1, 0]):
        turns.add(WaitingRound(key, client, float(key)))
    turns.drop(0, 0)
    turns.drop(2, 1)
    turns.drop(2, 1)
    turns.drop(9, 5)
    assert len(turns) == 2
    assert turns.oldest == 1.0
    assert [turns.take().key for _ in range(2)] == [1, 3]
    assert len(turns) == 0
