"""The plan of windows: paired, in random order, all prompts, nothing twice."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import groupby, islice, takewhile

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_windows import ARMS, CLASSES, experiment, plan, windows

from specops.experiment.plan import window_size
from specops.experiment.records import Measurements
from specops.experiment.run import LONG_RUN


@given(
    prompts=st.integers(1, 60),
    streams=st.lists(st.integers(1, 20), min_size=1, max_size=3, unique=True),
    seed=st.integers(0, 5),
    same=st.booleans(),
)
def test_windows_are_pairs_of_the_same_requests(
    prompts: int, streams: list[int], seed: int, same: bool
) -> None:
    made = plan(prompts=prompts, concurrency=streams, seed=seed, same_prompts=same)
    listed = list(takewhile(lambda window: window.cycle < 9, made.windows()))
    assert len({window.key for window in listed}) == len(listed)
    pairs = defaultdict(list)
    for window in listed:
        pairs[window.cycle, window.kind, window.level].append(window)
    assert {len(pair) for pair in pairs.values()} == {2}
    for one, two in pairs.values():
        assert {(one.arm, one.order), (two.arm, two.order)} in (
            {(ARMS[0], 0), (ARMS[1], 1)},
            {(ARMS[1], 0), (ARMS[0], 1)},
        )
        assert (one.requests, one.fillers) == (two.requests, two.fillers)
    for window in listed:
        if window.kind == "measured":
            assert len(window.requests) == window_size(window.level)
            assert window.fillers
    asked = Counter(
        (request.prompt, request.variant)
        for window in listed
        if window.arm == ARMS[0] and window.kind in ("measured", "open")
        for request in window.requests
    )
    if not same:
        assert set(asked.values()) == {1}  # nothing comes again but the control


def test_each_prompt_comes_once_before_any_comes_twice() -> None:
    made = plan(prompts=48)
    drawn = [
        request.prompt
        for window in islice(made.windows(), 400)
        if window.kind == "measured" and window.arm == ARMS[0]
        for request in window.requests
    ]
    assert len(set(drawn[:48])) == 48
    for stretch in range(0, 48, 12):
        classes = Counter(int(prompt[1:]) % len(CLASSES) for prompt in drawn[stretch : stretch + 12])
        assert max(classes.values()) - min(classes.values()) <= 3


def test_which_arm_goes_first_is_balanced_and_not_regular() -> None:
    made = plan(long_run=0)
    measured = [w for w in islice(made.windows(), 800) if w.kind == "measured" and w.arm == ARMS[0]]
    orders = [window.order for window in measured]
    assert abs(sum(orders) - len(orders) / 2) <= 1
    assert len({tuple(orders[at : at + 4]) for at in range(0, len(orders) - 4, 4)}) > 2


def test_each_arm_is_once_measured_without_a_pause() -> None:
    made = plan(concurrency=[1, 8])
    listed = list(takewhile(lambda window: window.cycle < 30, made.windows()))
    stretches = [list(windows) for _, windows in groupby(listed, key=lambda window: window.arm)]
    long = [stretch for stretch in stretches if len(stretch) > 3]
    assert {windows[0].arm for windows in long} == set(ARMS)
    for stretch in long:
        by_level = Counter(window.level for window in stretch if window.kind == "measured")
        assert set(by_level.values()) == {LONG_RUN}
        assert len(by_level) == 2
    assert max(len(stretch) for stretch in stretches if stretch not in long) <= 3
    kinds = Counter((window.cycle, window.kind) for window in listed)
    assert {kinds[cycle, "open"] for cycle in range(30)} == {2}


@pytest.mark.parametrize("requests", [30, 90, 210, 300, 750, 3000])
def test_the_long_run_ends_before_the_first_look(requests: int) -> None:
    made = experiment([], requests=requests)
    made.windows = {record.key: record for record in windows(2.0, cycles=1, long_run=0)}
    longest = list(islice(made.plan.windows(), 400))
    arms = [list(group) for _, group in groupby(longest, key=lambda window: window.arm)]
    last = max((window.cycle for run in arms if len(run) > 3 for window in run), default=0)
    assert last < min(made._look_cycles(made.cycles))


def test_restarts_end_with_their_rounds_and_start_each_arm_in_turn() -> None:
    made = plan(design="abba-restart", prompts=16)
    listed = list(made.windows())
    turns = list(dict.fromkeys((window.period, window.arm) for window in listed))
    assert [arm for _, arm in turns] == ["standard", "draft", "draft", "standard"]


@pytest.mark.parametrize(("kind", "cycle", "measured", "open_"), [("open", 9, 10, 9), ("measured", 4, 4, 10)])
def test_a_resumed_comparison_has_no_half_of_a_pair_nor_of_the_long_run(
    kind: str, cycle: int, measured: int, open_: int
) -> None:
    earlier = windows(2.0, cycles=10)
    left = [w for w in earlier if (w.kind, w.cycle, w.arm) != (kind, cycle, ARMS[1])]
    made = experiment(earlier)
    made.windows = {}
    made.resume(Measurements(run="x", windows=left, margins=[]), {})
    for arm in ARMS:
        kinds = Counter(window.kind for window in made.windows.values() if window.arm == arm)
        assert (kinds["measured"], kinds["open"]) == (measured, open_)
