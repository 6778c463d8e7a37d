"""When a draft is sent: the policies, as pure functions."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specops.edge.settings import (
    Adaptive,
    DraftedTree,
    Drafting,
    Excluded,
    Included,
    Pacing,
    RoundPace,
    parse_depth,
)
from specops.errors import UsageError

seconds = st.floats(1e-4, 1.0)
paces = st.builds(
    RoundPace, st.floats(1.0, 10.0), seconds, seconds, seconds, seconds, st.floats(0.05, 1.5), seconds
)
promises = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=30).map(lambda row: sorted(row, reverse=True))


def passes(pace: RoundPace, promised: list[float]) -> int:
    """How many passes are made where they promise this, one after the other."""
    made = 0
    while made < len(promised) and Adaptive().more(DraftedTree(made, 0, promised[made]), pace):
        made += 1
    return made


@given(paces, promises, st.floats(0.0, 1.0))
def test_a_slower_link_never_makes_for_a_shallower_draft(
    pace: RoundPace, row: list[float], more: float
) -> None:
    assert passes(replace(pace, away_s=pace.away_s + more), row) >= passes(pace, row)


@given(paces, promises, st.floats(0.0, 1.0))
def test_a_slower_draft_never_makes_for_a_deeper_one(pace: RoundPace, row: list[float], more: float) -> None:
    assert passes(replace(pace, pass_s=pace.pass_s + more), row) <= passes(pace, row)


@given(paces, promises, st.floats(0.0, 1.0))
def test_a_better_draft_is_never_a_shallower_one(pace: RoundPace, row: list[float], more: float) -> None:
    assert passes(replace(pace, gain=pace.gain + more), row) >= passes(pace, row)


@given(paces, promises)
def test_drafting_stops_where_it_no_longer_pays(pace: RoundPace, row: list[float]) -> None:
    """Were tokens as promised, no other number of passes from the front would give more of them a second,
    beyond the pace that there is anyway."""
    made = passes(pace, row)
    worth = [sum(row[:n]) * pace.gain - n * pace.pass_s * pace.rate for n in range(len(row) + 1)]
    assert worth[made] == pytest.approx(max(worth), abs=1e-9)


def test_what_was_drafted_ahead_counts_or_it_does_not() -> None:
    def made(depth: Included | Excluded, kept: int) -> int:
        return next(n for n in range(20) if not depth.more(DraftedTree(n, kept, 1.0), None))

    assert [made(Included(4), kept) for kept in (0, 3, 4, 9)] == [4, 1, 0, 0]
    assert [made(Excluded(4), kept) for kept in (0, 3, 4, 9)] == [4, 4, 4, 4]


def test_adaptive_begins_as_included() -> None:
    assert [Adaptive(first=2).more(DraftedTree(n, 0, 1.0), None) for n in range(3)] == [True, True, False]


def test_pacing_follows_what_was_measured() -> None:
    pacing = Pacing()
    assert pacing.pace(0.004) is None
    pacing.learn(tokens=3, promised=2.0, home_s=0.01, away_s=0.05, served_s=0.04, way_s=0.01)
    assert pacing.pace(None) is None  # of the draft nothing is known
    for n in range(200):
        way_s = 0.005 if n % 2 else None  # every other round was sent ahead
        pacing.learn(tokens=5, promised=8.0, home_s=0.02, away_s=0.03, served_s=0.025, way_s=way_s)
    pace = pacing.pace(0.004)
    expected = RoundPace(
        tokens=5, home_s=0.02, away_s=0.03, served_s=0.025, way_s=0.005, gain=0.5, pass_s=0.004
    )
    assert asdict(pace) == pytest.approx(asdict(expected), rel=1e-4)  # type: ignore[arg-type]
    assert pace.rate == pytest.approx(100)  # type: ignore[union-attr]


@given(paces, st.floats(0.0, 5.0), st.floats(0.0, 5.0))
def test_what_is_sent_ahead_must_bring_what_the_stream_brings_while_it_is_served(
    pace: RoundPace, promise: float, more: float
) -> None:
    sent = Adaptive().ahead(3, promise, pace)
    assert sent == (1 + promise * pace.gain > pace.rate * pace.served_s)
    assert Adaptive().ahead(3, promise + more, pace) >= sent
    assert Adaptive().ahead(3, promise, replace(pace, served_s=pace.served_s + more)) <= sent


@given(paces, st.integers(1, 9))
def test_only_what_counts_is_sent_ahead(pace: RoundPace, levels: int) -> None:
    assert Included(4).ahead(levels, 0.0, pace) == (levels >= 4)
    assert not Excluded(1).ahead(levels, 9.0, pace)


@pytest.mark.parametrize("text", ["adaptive", "included:4", "excluded:1"])
def test_depths_are_read_as_they_are_written(text: str) -> None:
    assert str(parse_depth(text)) == text


@pytest.mark.parametrize(
    "text", ["", "deep", "included", "included:0", "excluded:-1", "adaptive:3", "included:x"]
)
def test_other_depths_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="invalid depth"):
        parse_depth(text)


@pytest.mark.parametrize("wrong", [{"nodes": 0}, {"beams": 0}, {"heads": -1}, {"width": 40}, {"streams": 0}])
def test_settings_that_cannot_be_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        Drafting(**wrong)
