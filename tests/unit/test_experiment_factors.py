"""What divides the samples takes a yes away, and never gives one."""

from __future__ import annotations

from typing import Any

import pytest
from made_windows import CLASSES, judged, windows

from specops.experiment.factors import FACTORS, NOTABLE
from specops.experiment.plan import Window


def cause(found: Any) -> str | None:
    waits = [one for one in found.findings if one.claim == "wait" and one.traffic_class is None]
    return next((one.cause for one in waits if one.verdict != "shown"), None)


def test_a_gain_that_ends_is_not_deployed() -> None:
    def ending(window: Window, prompt: str, at: float) -> dict[str, Any]:
        return {"slower": 1.0 if window.cycle < 30 or window.arm != "draft" else 2.0}

    found = judged(windows(1.9, cycles=40, answer=ending))
    assert found.decision.verdict != "yes"


def test_a_gain_in_one_order_only_is_not_deployed() -> None:
    """A cache that the other arm fills: what goes second is fast."""

    def second(window: Window, prompt: str, at: float) -> dict[str, Any]:
        return {"slower": 0.4 if window.arm == "draft" and window.order == 1 else 1.0}

    found = judged(windows(1.0, cycles=60, answer=second))
    assert found.decision.verdict != "yes"
    assert cause(found) == "order"


def test_a_server_that_is_slow_after_each_pause_is_no_gain() -> None:
    def waking(window: Window, prompt: str, at: float) -> dict[str, Any]:
        early = [request.prompt for request in window.requests[: len(window.requests) // 2]]
        return {"slower": 3.0 if window.arm == "standard" and prompt in early else 1.0}

    found = judged(windows(1.0, cycles=60, answer=waking))
    assert found.decision.verdict != "yes"


@pytest.mark.parametrize(("arm", "factor"), [("standard", 2.0), ("draft", 0.5)])
def test_a_server_that_differs_in_whole_windows_after_a_pause_is_no_gain(arm: str, factor: float) -> None:
    """Nothing within a window shows it: some of its windows have none of another arm before them."""
    turns: dict[tuple[object, ...], str] = {}

    def resting(window: Window, prompt: str, at: float) -> dict[str, Any]:
        turns.setdefault((window.cycle, window.kind, window.arm), window.arm)
        arms = list(turns.values())
        rested = len(arms) < 2 or arms[-2] != arm
        return {"slower": factor if window.arm == arm and rested else 1.0}

    found = judged(windows(1.0, cycles=40, answer=resting))
    wait = next(one for one in found.findings if one.claim == "wait" and one.traffic_class is None)
    assert wait.ratio is not None
    assert wait.ratio.low > 1.1
    assert found.decision.verdict != "yes"
    assert cause(found) == "pause"


@pytest.mark.parametrize(("arm", "factor"), [("draft", 0.5), ("standard", 2.0)])
def test_what_lasts_longer_than_all_usual_windows_is_seen_in_the_long_run(arm: str, factor: float) -> None:
    since = {"arm": "", "sent": 0}

    def credit(window: Window, prompt: str, at: float) -> dict[str, Any]:
        since["sent"] = since["sent"] + 1 if since["arm"] == window.arm else 1
        since["arm"] = window.arm
        return {"slower": factor if window.arm == arm and since["sent"] <= 20 else 1.0}

    found = judged(windows(1.0, cycles=24, answer=credit))
    assert found.decision.verdict != "yes"
    assert cause(found) == "pause"
    assert judged(windows(1.0, cycles=24, answer=credit, long_run=0)).decision.verdict == "yes"


def test_a_gain_that_an_even_change_of_the_standard_makes_is_not_deployed() -> None:
    """Each half of the run shows a gain by itself."""

    def slowing(window: Window, prompt: str, at: float) -> dict[str, Any]:
        return {"slower": 1 + 1.5 * window.cycle / 36 if window.arm == "standard" else 1.0}

    found = judged(windows(1.0, cycles=36, noise=0.1, answer=slowing))
    assert found.decision.verdict != "yes"
    assert cause(found) == "drift"
    both = judged(
        windows(
            1.0,
            cycles=36,
            noise=0.1,
            answer=lambda window, prompt, at: {
                "slower": (2.2 if window.arm == "standard" else 1.0) * (1 + 1.5 * window.cycle / 36)
            },
        )
    )
    assert both.decision.verdict == "yes"


def test_a_class_that_gains_in_one_order_only_is_not_deployed_beside_classes_that_lose() -> None:
    """Over all classes, it is surely slower: no factor is looked at there."""

    def first(window: Window, prompt: str, at: float) -> dict[str, Any]:
        if window.arm == "standard":
            return {}
        if int(prompt[1:]) % len(CLASSES):
            return {"slower": 1 / 0.7}
        return {"slower": 0.5 if window.order == 0 else 1.0}

    found = judged(windows(1.0, cycles=24, answer=first))
    assert found.together[0].verdict == "no"
    assert not found.deploy
    assert any(finding.cause == "order" for finding in found.classes[CLASSES[0]][0].findings)


@pytest.mark.parametrize("at_last", [False, True])
def test_a_few_windows_at_an_end_without_a_gain_are_not_hidden_by_a_wide_interval(at_last: bool) -> None:
    def ramp(window: Window, prompt: str, at: float) -> dict[str, Any]:
        cycle = 23 - window.cycle if at_last else window.cycle
        return {
            "slower": {0: 1.0, 1: 1.3, 2: 1.9, 3: 2.4}.get(cycle, 3.0) if window.arm == "standard" else 1.0
        }

    found = judged(windows(1.0, cycles=24, answer=ramp))
    wait = next(one for one in found.findings if one.claim == "wait" and one.traffic_class is None)
    assert wait.ratio is not None
    assert wait.ratio.low > 1.1
    assert found.decision.verdict != "yes"
    assert cause(found) == "time"


def test_repeats_from_a_cache_are_left_out() -> None:
    asked: set[tuple[str, str]] = set()

    def cached(window: Window, prompt: str, at: float) -> dict[str, Any]:
        known = (window.arm, prompt) in asked
        asked.add((window.arm, prompt))
        return {"slower": 0.2 if known and window.arm == "draft" else 1.0}

    found = judged(windows(1.0, cycles=40, answer=cached, same_prompts=True))
    assert found.decision.verdict != "yes"


@pytest.mark.slow
def test_factors_hardly_ever_take_a_true_yes_away() -> None:
    lost = sum(
        judged(windows(1.3, cycles=44, noise=0.15, seed=seed)).decision.verdict != "yes" for seed in range(40)
    )
    assert lost <= 3


@pytest.mark.slow
def test_equal_servers_are_not_deployed() -> None:
    deployed = sum(
        judged(windows(1.0, cycles=44, noise=0.15, seed=seed)).decision.verdict == "yes" for seed in range(40)
    )
    assert deployed <= 2


def test_each_factor_has_a_name_of_its_own() -> None:
    assert len({(factor.name, factor.split) for factor in FACTORS}) == len(FACTORS)
    assert NOTABLE > 1
