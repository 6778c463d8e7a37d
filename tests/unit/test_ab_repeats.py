"""Arms that answer repeated requests from a cache: only what was asked first says how fast they are."""

from __future__ import annotations

from typing import Any

import pytest
from made_visits import ARMS, judged, visits

from specops.phases.ab.confounders import CACHED, Repeats, cached_figures, compare_repeats
from specops.phases.ab.speedups import Figure
from specops.phases.ab.verdict import look
from specops.phases.ab.visits import AbSettings


def caching(*arms: str, factor: float = 0.02, figures: tuple[str, ...] = ("e2e",)) -> Any:
    """Later requests of a prompt take `factor` of the time."""
    sent: set[tuple[str, str]] = set()

    def answer(visit: Any, prompt: str, at: float) -> dict[str, Any]:
        key = visit.arm, prompt
        again = key in sent and visit.arm in arms
        sent.add(key)
        fields: dict[str, Any] = {}
        if again and "e2e" in figures:
            fields["slower"] = factor
        if again and "ttft" in figures:
            fields["ttft_ms"] = 20.0 * factor
        return fields

    return answer


def test_a_challenger_that_caches_gains_nothing_by_it() -> None:
    found = judged(visits(1.0, prompts=64, answer=caching("draft")))
    assert (found.verdict, found.summary["deploy"]) == ("undecided", [])
    assert "repeats come from a cache in draft (" in found.reason
    assert "only first requests count" in found.reason
    challenger = found.data["challengers"]["draft"]
    e2e = challenger["levels"][0]["speedups"]["e2e"]
    assert 0.95 < e2e["estimate"] < 1.05
    served = challenger["levels"][0]["throughput"]
    assert 0.95 < served["challenger"] / served["standard"] < 1.05
    named = {(one["arm"], one["figure"]): one["cached"] for one in challenger["repeats"]}
    assert named["draft", "e2e"]
    assert not named["standard", "e2e"]


def test_a_challenger_that_caches_and_is_faster_deploys_by_its_first_requests() -> None:
    found = judged(visits(1.6, prompts=64, answer=caching("draft")))
    assert found.verdict == "yes"
    assert found.summary["e2e_speedup"]["estimate"] == pytest.approx(1.6, rel=0.05)
    assert "only first requests count" in found.reason


def test_a_standard_that_caches_costs_the_challenger_nothing() -> None:
    found = judged(visits(1.6, prompts=64, answer=caching("standard")))
    assert found.verdict == "yes"
    assert found.summary["e2e_speedup"]["estimate"] == pytest.approx(1.6, rel=0.05)


def test_where_both_cache_first_requests_count() -> None:
    found = judged(visits(1.6, prompts=64, answer=caching("standard", "draft")))
    assert found.summary["e2e_speedup"]["estimate"] == pytest.approx(1.6, rel=0.05)
    assert "repeats come from a cache in draft and standard" in found.reason


def test_prompts_that_warmed_the_arm_up_are_repeats_already() -> None:
    cache = caching("draft")

    def warmed(visit: Any, prompt: str, at: float) -> dict[str, Any]:
        early = visit.arm == "draft" and prompt in ("p000", "p001", "p002", "p003")
        return cache(visit, prompt, at) | ({"slower": 0.02} if early else {})

    made = visits(1.0, prompts=64, answer=warmed)
    found = judged(made, sent_before=("p000", "p001", "p002", "p003"))
    assert (found.verdict, found.summary["deploy"]) == ("undecided", [])
    assert found.data["challengers"]["draft"]["levels"][0]["speedups"]["prompts"] == 60


def test_at_a_second_load_everything_is_a_repeat() -> None:
    found = judged(visits(2.0, prompts=96, concurrency=(1, 8), answer=caching("draft")))
    assert {one["level"]["concurrency"] for one in found.summary["deploy"]} == {1}
    later = found.data["challengers"]["draft"]["levels"][1]
    assert (later["decision"]["verdict"], later["speedups"]["e2e"]) == ("undecided", None)


def test_one_round_at_two_loads_shows_a_cache_too() -> None:
    found = judged(visits(1.0, prompts=96, rounds=1, concurrency=(1, 8), answer=caching("draft")))
    assert found.summary["deploy"] == []
    assert "repeats come from a cache in draft" in found.reason


def test_lighter_loads_that_are_faster_are_no_cache() -> None:
    def heavy(visit: Any, prompt: str, at: float) -> dict[str, Any]:
        return {"slower": 3.0 if visit.level.concurrency == 8 else 1.0}

    made = visits(1.5, prompts=96, rounds=1, concurrency=(8, 1), answer=heavy)
    assert cached_figures(compare_repeats(made, "draft", 0.95)) == frozenset()


def test_a_prefix_cache_leaves_the_time_to_the_first_token_to_first_requests() -> None:
    made = visits(1.6, prompts=64, answer=caching("draft", factor=0.2, figures=("ttft",)))
    assert cached_figures(compare_repeats(made, "draft", 0.95)) == {"ttft"}
    found = judged(made)
    assert found.verdict == "yes"
    assert "cache" not in found.reason  # what decides is not cached
    ttft = found.data["challengers"]["draft"]["levels"][0]["speedups"]["ttft"]
    assert ttft["estimate"] == pytest.approx(1.0)


def test_equal_repeats_are_no_cache() -> None:
    assert cached_figures(compare_repeats(visits(2.0, prompts=64, noise=0.1), "draft", 0.95)) == frozenset()
    little = visits(2.0, prompts=64, noise=0.001, answer=caching("draft", factor=1 / (CACHED - 0.01)))
    assert cached_figures(compare_repeats(little, "draft", 0.95)) == frozenset()
    more = visits(2.0, prompts=64, noise=0.001, answer=caching("draft", factor=1 / (CACHED + 0.01)))
    assert cached_figures(compare_repeats(more, "draft", 0.95)) == {"e2e", "tpot"}


def test_a_cache_does_not_end_the_run_early() -> None:
    made = visits(1.0, prompts=96, noise=0.1, answer=caching("draft"))
    early = [visit for visit in made if visit.stage < 2]
    assert not look(early, ARMS, AbSettings(), 2, 4).decided


def test_first_requests_that_hang_are_no_cache() -> None:
    def hanging(visit: Any, prompt: str, at: float) -> dict[str, Any]:
        hung = visit.arm == "draft" and visit.round == 0 and int(prompt[1:]) % 16 == 0
        return {"e2e_ms": 1e4, "e2e_with_retries_ms": 1e4} if hung else {}

    made = visits(2.0, prompts=64, noise=0.1, answer=hanging)
    assert cached_figures(compare_repeats(made, "draft", 0.95)) == frozenset()


def test_a_cached_time_per_token_leaves_no_figure_but_ttft_to_repeats() -> None:
    def cached(figure: Figure) -> Repeats:
        return Repeats(arm="draft", figure=figure, ratio=None, cached=True)

    assert cached_figures([cached("tpot")]) == cached_figures([cached("e2e")]) == {"e2e", "tpot"}
    assert cached_figures([cached("ttft")]) == {"ttft"}
    assert cached_figures([cached("e2e").model_copy(update={"cached": False})]) == set()


def test_repeats_that_are_faster_by_chance_are_no_cache() -> None:
    """A few prompts carry it all: the mean is faster by more than is notable, and the interval has 1."""

    def lucky(visit: Any, prompt: str, at: float) -> dict[str, Any]:
        return {"slower": 0.01} if visit.round and visit.arm == "draft" and int(prompt[1:]) < 2 else {}

    (e2e,) = [one for one in compare_repeats(visits(1.0, answer=lucky), "draft", 0.95) if one.figure == "e2e"]
    assert e2e.ratio is not None
    assert e2e.ratio.low < 1 < CACHED < e2e.ratio.estimate
    assert not e2e.cached
