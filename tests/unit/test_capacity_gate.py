"""The gate: an interval against a peak. It passes nothing that it does not know."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from specops.config import Peak
from specops.phases.capacity.gate import Capacity, MeasuredServer, Rate, UnknownCapacity, gate


def rate(low: float | None, estimate: float, high: float | None, n: int = 3) -> Rate:
    return Rate(estimate=estimate, low=low, high=high, n=n)


def found(requests: Rate | None, tokens: Rate | None = None, above: str | None = None) -> MeasuredServer:
    return MeasuredServer(
        source="baseline.json",
        sha256="0" * 64,
        created="2026-11-20 12:00 UTC",
        processor=None,
        concurrency=8,
        above=above,
        requests_per_s=requests,
        tokens_per_s=tokens,
    )


def asked(requests: float, tokens: float | None = None, headroom: float = 0.0) -> Peak:
    return Peak(requests_per_s=requests, tokens_per_s=tokens, headroom=headroom)


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [(10.0, 12.0, "yes"), (9.9, 12.0, "undecided"), (8.0, 10.0, "undecided"), (8.0, 9.9, "no")],
)
def test_the_interval_decides_not_the_estimate(low: float, high: float, verdict: str) -> None:
    assert gate(asked(10.0), 1, found(rate(low, (low + high) / 2, high))).verdict == verdict


def test_what_is_kept_free_is_not_offered() -> None:
    ten = found(rate(10.0, 11.0, 12.0))
    assert gate(asked(8.0, headroom=0.2), 1, ten).verdict == "yes"
    assert gate(asked(8.1, headroom=0.2), 1, ten).verdict == "undecided"


def test_both_kinds_of_peak_must_be_carried() -> None:
    measured = found(rate(20.0, 21.0, 22.0), rate(100.0, 110.0, 120.0))
    assert gate(asked(10.0, tokens=99.0), 1, measured).verdict == "yes"
    answer = gate(asked(10.0, tokens=121.0), 1, measured)
    assert answer.verdict == "no"
    assert "tokens/s" in answer.reason
    assert [demand.answer for demand in answer.demands] == ["yes", "no"]


def test_one_repeat_never_passes() -> None:
    once = found(rate(None, 1000.0, None, n=1))
    answer = gate(asked(10.0), 1, once)
    assert answer.verdict == "undecided"
    assert "repeats" in str(answer.change)
    assert gate(asked(2000.0), 1, once).verdict == "no"


@pytest.mark.parametrize(
    ("peak", "measured", "why"),
    [
        (None, found(rate(10.0, 11.0, 12.0)), "names no peak"),
        (
            asked(1.0),
            UnknownCapacity(why="there is no baseline.json", change="measure it"),
            "no baseline.json",
        ),
        (asked(1.0, tokens=1.0), found(rate(10.0, 11.0, 12.0)), "has no tokens/s"),
        (asked(1.0), found(None), "has no requests/s"),
    ],
)
def test_what_is_not_known_does_not_pass_and_says_what_would_change_it(
    peak: Peak | None, measured: MeasuredServer | UnknownCapacity, why: str
) -> None:
    answer = gate(peak, 100, measured)
    assert answer.verdict == "undecided"
    assert why in answer.reason
    assert answer.change


def test_it_says_why_no_higher_load_counts() -> None:
    answer = gate(
        asked(100.0), 1, found(rate(1.0, 2.0, 3.0), above="the p95 of TTFT at 16 streams is 900 ms")
    )
    assert "16 streams" in str(answer.change)


def test_a_peak_of_nothing_is_no_peak() -> None:
    with pytest.raises(ValidationError, match="has no load"):
        Peak()


positive = st.floats(0.01, 1e6)


@given(positive, positive, positive, st.integers(1, 50), st.floats(0.0, 0.95))
def test_more_servers_never_make_it_worse_and_the_number_named_is_enough(
    low: float, width: float, peak: float, servers: int, headroom: float
) -> None:
    measured = found(rate(low, low + width / 2, low + width))

    def answer(count: int) -> Capacity:
        return gate(asked(peak, headroom=headroom), count, measured)

    order = ("no", "undecided", "yes")
    assert order.index(answer(servers + 1).verdict) >= order.index(answer(servers).verdict)
    enough = answer(servers).demands[0].servers
    assert enough is not None
    assert answer(enough + 1).verdict == "yes"  # + 1: the division may round
    if enough > 2:
        assert answer(enough - 2).verdict != "yes"


def test_the_answer_of_a_gate_is_not_changed_in_place() -> None:
    answer = gate(asked(8.0), 1, found(rate(10.0, 11.0, 12.0)))
    with pytest.raises(ValidationError, match="frozen"):
        answer.verdict = "no"
