"""Where a setting stops paying: the last load at which it does and the first at which it does not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_sweeps import setting
from made_windows import windows

from specops.experiment.findings import Decision
from specops.load.record import acceptance
from specops.phases.sweep.advice import NO_DRAFTS, crossover, line_of
from specops.stats import Interval

WORDS = {"y": "yes", "n": "no", "u": "undecided"}


def measured(said: str) -> list[tuple[int, Decision]]:
    """At 1, 2, 4, … streams."""
    speedup = Interval(1.01, 0.9, 1.1, 20)
    return [
        (2**number, Decision(verdict=WORDS[letter], reason="r", speedup=speedup))  # type: ignore[arg-type]
        for number, letter in enumerate(said)
    ]


@pytest.mark.parametrize(
    ("said", "on_max", "off_min"),
    [
        ("y", 1, None),
        ("yyy", 4, None),
        ("yyn", 2, 4),
        ("yu", 1, 2),
        ("yun", 1, 2),
        ("yuy", 4, None),
        ("yuyu", 4, 8),
        ("yny", 1, 2),  # surely slower in between: what pays above it does not make that load pay
        ("n", None, 1),
        ("uu", None, 1),
        ("uy", 2, None),
        ("uyn", 2, 4),
    ],
)
def test_both_sides_were_measured(said: str, on_max: int | None, off_min: int | None) -> None:
    found = crossover("k=3", measured(said))
    assert (found.on_max, found.off_min, found.per) == (on_max, off_min, "replica")


@given(st.text("ynu", min_size=1, max_size=7))
def test_it_pays_at_one_side_and_not_at_the_other(said: str) -> None:
    found, by_load = crossover("k=3", measured(said)), dict(measured(said))
    if found.on_max is not None:
        assert by_load[found.on_max].verdict == "yes"
        assert all(by_load[load].verdict != "no" for load in by_load if load < found.on_max)
    if found.off_min is not None:
        assert by_load[found.off_min].verdict != "yes"
        assert found.off_min > (found.on_max or 0)
    assert (found.on_max, found.off_min) != (None, None)


def test_the_words_say_what_to_measure_and_what_was_not() -> None:
    assert crossover("k=3", measured("yy")).message == (
        "k=3 is faster up to 2 streams, the most that were measured: "
        "measure 4 streams or more to find the limit"
    )
    assert crossover("k=3", measured("yn")).message == (
        "k=3 pays up to 1 stream and does not pay at 2: 1.01× [0.90, 1.10]"
    )
    told = crossover("k=3", [measured("y")[0], (16, measured("u")[0][1])]).message
    assert told.endswith(
        "is not shown to pay at 16: 1.01× [0.90, 1.10]; nothing was measured between 1 and 16"
    )
    assert "does not surely pay at any" in crossover("k=3", measured("u")).message


def test_answers_that_do_not_say_how_many_drafts_they_verified_have_no_steps() -> None:
    """llama.cpp reports tokens alone: there is a rate, but no time of a step."""
    window = next(one for one in windows(cycles=1) if one.kind == "measured")
    rows = tuple(row.model_copy(update={"drafted": 4, "accepted": 3}) for row in window.cell.rows)
    cell = window.cell.model_copy(update={"rows": rows, "drafts": None, "drafts_missing": "no counters"})
    counts, _ = acceptance([cell])
    assert counts is not None
    assert (counts.rate, counts.drafts, counts.length) == (0.75, None, None)
    line = line_of((None, None), [setting(3)], {}, {"k=3": [cell]})
    assert (line.positions, line.missing) == ([], NO_DRAFTS)
