"""The plan of windows: paired, in random order, all prompts, nothing twice."""

from __future__ import annotations

from collections import Counter
from itertools import islice, takewhile

from hypothesis import given
from hypothesis import strategies as st
from made_windows import ARMS, CLASSES, plan

from specops.experiment.plan import window_size


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
    listed = list(takewhile(lambda window: window.cycle < 6, made.windows()))
    for one, two in zip(listed[::2], listed[1::2], strict=True):
        assert {one.arm, two.arm} == set(ARMS)
        assert (one.cycle, one.kind, one.level) == (two.cycle, two.kind, two.level)
        assert (one.requests, one.fillers) == (two.requests, two.fillers)
    assert len({window.key for window in listed}) == len(listed)
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
    measured = [w for w in islice(plan().windows(), 800) if w.kind == "measured" and w.arm == ARMS[0]]
    orders = [window.order for window in measured]
    assert abs(sum(orders) - len(orders) / 2) <= 1
    assert len({tuple(orders[at : at + 4]) for at in range(0, len(orders) - 4, 4)}) > 2


def test_restarts_end_with_their_rounds_and_start_each_arm_in_turn() -> None:
    made = plan(design="abba-restart", prompts=16)
    listed = list(made.windows())
    turns = list(dict.fromkeys((window.period, window.arm) for window in listed))
    assert [arm for _, arm in turns] == ["standard", "draft", "draft", "standard"]
