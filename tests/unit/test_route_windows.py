"""Random windows of the live effect: a schedule that follows from the time alone."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_rules import NO_FOLDER, asked, rollout
from made_windows import cell, row

from specops import results
from specops.config.effect import Effect
from specops.errors import ConfigError
from specops.load.arrivals import Level
from specops.phases.route.explain import explain
from specops.phases.route.thresholds import rules
from specops.results import Result
from specops.router import Decision, Judge, Request, StoredRules

NOW = 1_764_300_000.0
WINDOW_S, BURN_IN_S = 60, 15


def settings(holdout: float = 0.1, **effect: Any) -> Any:
    of_windows = {"window_s": WINDOW_S, "burn_in_s": BURN_IN_S, "mode": "windows", "holdout": holdout}
    return rollout(effect=of_windows | effect)


def judge(holdout: float = 0.1) -> Judge:
    given = settings(holdout)
    return given.route.router.judge(StoredRules(rules(given, NO_FOLDER).table, given.route.trusted))


TENTH = judge()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [NOW]
    monkeypatch.setattr("specops.router.nginx.judge.time.time", lambda: now[0])
    return now


def long(**fields: Any) -> Request:
    return asked(**{"max_tokens": 300, **fields})


def decisions(judge: Judge, clock: list[float], times: list[float], **state: Any) -> list[Decision]:
    answers = []
    for clock[0] in times:
        answers.append(judge.decide(long(), **state))
    return answers


def window(index: int, offset: float) -> float:
    """`offset` seconds into a window."""
    return (NOW // WINDOW_S + index) * WINDOW_S + offset


@pytest.mark.parametrize("holdout", [0.5, 0.1, 0.05])
def test_each_block_has_one_window_without_speculation(holdout: float, clock: list[float]) -> None:
    size = round(1 / holdout)
    first = (-int(NOW // WINDOW_S)) % size
    times = [window(first + index, 30) for index in range(size * 60)]
    groups = [one["group"] for one in decisions(judge(holdout), clock, times)]
    blocks = [groups[begin : begin + size] for begin in range(0, len(groups), size)]
    assert {block.count("holdout") for block in blocks} == {1}
    places = Counter(block.index("holdout") for block in blocks)
    assert len(places) > size / 2
    assert max(places.values()) < 3 * 60 / size + 10  # no place is preferred


@given(index=st.integers(0, 10**6), offset=st.floats(0, WINDOW_S - 0.001))
def test_every_window_has_a_burn_in_and_one_pool(index: int, offset: float) -> None:
    with pytest.MonkeyPatch.context() as patch:
        times = iter([window(index, offset), window(index, WINDOW_S / 2)])
        patch.setattr("specops.router.nginx.judge.time.time", lambda: next(times))
        now, middle = TENTH.decide(long()), TENTH.decide(long())
    assert now["pool"] == middle["pool"] == {"holdout": "standard"}.get(middle["group"], "speculative")
    is_burn_in = window(index, offset) % WINDOW_S < BURN_IN_S
    assert now["group"] == ("burn-in" if is_burn_in else middle["group"])


def test_a_router_that_starts_anew_goes_on_with_the_schedule(clock: list[float]) -> None:
    times = [window(index, 20) for index in range(100)]
    assert decisions(judge(), clock, times) == decisions(TENTH, clock, times)
    assert decisions(judge(0.5), clock, times) != decisions(TENTH, clock, times)


def test_a_request_without_a_free_place_is_of_its_window(clock: list[float]) -> None:
    """Else the holdout would have requests of busy moments that the other group leaves out."""
    times = [window(index, 30) for index in range(40)]
    full = decisions(TENTH, clock, times, in_flight=8)
    assert [one["group"] for one in full] == [one["group"] for one in decisions(TENTH, clock, times)]
    assert {(one["pool"], one["reason"]) for one in full} == {
        ("standard", "in-flight"),
        ("standard", "holdout"),
    }


def test_what_the_switch_or_a_rule_keeps_standard_is_in_no_group(clock: list[float]) -> None:
    times = [window(index, 30) for index in range(20)]
    off = decisions(TENTH, clock, times, percent=0.0)
    assert not any("group" in one for one in off)
    clock[0] = times[0]
    assert "group" not in TENTH.decide(long(max_tokens=8))


def test_explain_names_the_window(clock: list[float]) -> None:
    for clock[0] in (window(index, 30) for index in range(20)):
        explanation = explain(settings(), NO_FOLDER, long())
        if explanation.reason == "holdout":
            assert (explanation.pool, explanation.threshold) == ("standard", 0.1)
            return
    raise AssertionError("no window of 20 was the holdout's")


def test_the_burn_in_is_the_longest_answer_that_was_measured(tmp_path: Path) -> None:
    assert rules(settings(burn_in_s=None, window_s=300), tmp_path).table["windows"]["burn_in"] == 60
    rows = [row(f"p{n}", "chat", 1000.0 * n, ttft_ms=10.0, tpot_ms=5.0, tokens=9) for n in (3, 42)]
    cells = [cell(rows, Level(concurrency=1), 0).model_dump(mode="json", by_alias=True)]
    baseline = Result(phase="baseline", verdict="yes", reason="measured", data={"cells": cells})
    results.write(tmp_path / "baseline.json", baseline)
    measured = rules(settings(burn_in_s=None, window_s=300), tmp_path)
    assert measured.table["windows"] == {"seconds": 300, "block": 10, "burn_in": 42}
    assert "baseline" in measured.inputs


def test_a_window_that_is_mostly_burn_in_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="expected at least twice as long") as raised:
        rules(settings(burn_in_s=40), tmp_path)
    assert "window_s: 80" in (raised.value.hint or "")


def test_requests_have_no_windows() -> None:
    assert rules(rollout(), NO_FOLDER).table["windows"] is None
    assert rules(settings(holdout=0.0), NO_FOLDER).table["windows"] is None
    assert Effect(mode="windows", holdout=0.5).block_s == 600
    with pytest.raises(ValueError, match="of windows from"):
        Effect(mode="windows", holdout=0.005)
    with pytest.raises(ValueError, match="not 1/2, 1/3"):
        Effect(mode="windows", holdout=0.4)
