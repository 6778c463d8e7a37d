"""When a cell says that its client was the bottleneck, and when it does not."""

from __future__ import annotations

import pytest

from specops.load.answer import Answer, Chunk
from specops.load.request_times import Observation, client_bound


def observed(
    count: int,
    *,
    lag: float = 0.0,
    connecting: float = 0.0,
    e2e: float = 0.2,
    delay: float = 0.0,
    gap: float = 0.02,
    chunks: int = 10,
) -> list[Observation]:
    answer = Answer(tuple(Chunk(10.0 + gap * i, 1) for i in range(chunks)), "x", chunks, "usage", "length")
    sent = 10.0 + lag
    one = Observation(
        "p", "all", 10.0, sent, sent, sent + e2e, answer, connecting=connecting, delays=(delay,) * chunks
    )
    return [one] * count


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"lag": 0.004, "e2e": 0.02},  # a fifth of the time, and little
        {"lag": 0.02, "e2e": 1.0},  # 2% of the time
        {"lag": 0.3, "connecting": 0.299},  # a server far away
        {"delay": 0.01},  # less than the gap between chunks
        {"delay": 0.004, "gap": 0.001},
        {"delay": 0.5, "chunks": 1},
    ],
    ids=str,
)
def test_a_client_that_keeps_up(fields: dict[str, float]) -> None:
    assert client_bound(observed(100, **fields)) is None  # type: ignore[arg-type]


def test_requests_that_wait_in_the_client() -> None:
    said = client_bound(observed(100, lag=0.05))
    assert said == (
        "the client was the bottleneck: requests waited 50 ms in it before they were sent "
        "(median; 20% of their time)"
    )
    assert client_bound(observed(9, lag=0.05)) is None  # too few to say


def test_bytes_that_wait_to_be_read() -> None:
    said = client_bound(observed(100, delay=0.03))
    assert said == (
        "the client was the bottleneck: received chunks waited 30 ms before they were read "
        "(median); chunks arrived every 20 ms"
    )
    assert client_bound(observed(1, delay=0.03)) is None


@pytest.mark.parametrize(("late", "bound"), [(0, False), (40, False), (60, True)])
def test_it_takes_half_of_the_reads_to_be_late(late: int, bound: bool) -> None:
    """The kernel clocks a read, so that a few late ones falsify no more than their own gaps."""
    found = client_bound([*observed(100 - late), *observed(late, delay=0.1)])
    assert (found is not None) == bound


def test_one_late_start_is_no_bottleneck() -> None:
    assert client_bound([*observed(90), *observed(10, lag=0.2)]) is None


def test_nothing_was_measured() -> None:
    assert client_bound([]) is None
