"""A batch client: hundreds of requests within seconds, every five minutes, between scrapes that hardly meet
them. Request by request, on a server whose time per token rises with the requests that it has."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

from specops.guard.policy import GuardRules
from specops.guard.signals.criteria import Baseline, BaselineLevel, Criteria
from specops.guard.signals.query import FIGURES, STANDARD, LiveFigures, LiveQuery
from specops.guard.simulation.simulate import simulate
from specops.guard.simulation.traces import Answers, LiveTrace
from specops.guard.state import Threshold
from specops.serving.vllm.pool import SERIES as VLLM

INTERVAL_S, SCRAPE_S, BURSTS_S = 60.0, 15.0, 4 * 3600.0
STEP_S = 0.05
TOKENS = 40
SPREAD = {"tpot_cv": 0.2, "tpot_error": 0.01, "e2e_cv": 0.2, "e2e_error": 0.01}
SPREAD |= {"whole_cv": 0.5, "whole_error": 0.03}


def token_s(running: float) -> float:
    """The standard's time per token, by the requests that its server has."""
    return 0.010 + 0.0004 * running


LEVELS = tuple(
    BaselineLevel(streams=n, ttft=0.0, tpot=token_s(n), token=token_s(n), e2e=token_s(n) * TOKENS, **SPREAD)
    for n in (1.0, 8.0, 32.0, 128.0, 400.0)
)
CRITERIA = Criteria(
    query=LiveQuery("batches", VLLM, VLLM, {}, scrape_s=SCRAPE_S, routed=True),
    window_s=300.0,
    min_acceptance=Threshold(value=0.4, source="made up"),
    baseline=Baseline(LEVELS, "made up"),
    regression=Threshold(value=1.2, source="made up"),
    max_error_share=Threshold(value=0.05, source="made up"),
    min_requests=None,
)


@dataclass(frozen=True)
class Served:
    began: NDArray[np.float64]
    ended: NDArray[np.float64]
    scraped: NDArray[np.float64]
    """Requests at each scrape."""


def serve(
    arrivals: NDArray[np.float64], length_s: float, slower: NDArray[np.float64], phase: float
) -> Served:
    """Each request gets a token after as long as all that run now take, `slower` times the standard's time;
    one item for each minute."""
    ended = np.full(len(arrivals), np.nan)
    scrapes = np.zeros(int(length_s / SCRAPE_S))
    left = np.full(len(arrivals), float(TOKENS))
    # All requests have as many tokens, so they end in the order in which they began: these run now.
    first_running, following, now = 0, 0, 0.0
    while now < length_s:
        if first_running == following < len(arrivals):
            now = max(now, arrivals[following])  # nothing to do until then
        while following < len(arrivals) and arrivals[following] <= now:
            following += 1
        count = following - first_running
        if not count:
            break
        before = now
        now += STEP_S
        index = min(int(now / INTERVAL_S), len(slower) - 1)
        left[first_running:following] -= STEP_S / (slower[index] * token_s(count))
        first = int(np.ceil((before - phase) / SCRAPE_S))
        for scrape in range(max(first, 0), min(int((now - phase) / SCRAPE_S) + 1, len(scrapes))):
            if before <= phase + scrape * SCRAPE_S < now:
                scrapes[scrape] = count
        while first_running < following and left[first_running] <= 0:
            ended[first_running] = now
            first_running += 1
    return Served(arrivals, ended, scrapes)


def trace(
    seed: int, hours: float, gain: float, slow_from: float | None = None, slow: float = 1.0
) -> LiveTrace:
    """300 requests in 5 s every 5 minutes. The speculative pool takes `gain` times the standard's time, and
    `slow` times from an hour on; a third as many requests go to the standard pool."""
    random = np.random.default_rng(seed)
    length_s = hours * 3600
    intervals = int(length_s / INTERVAL_S)
    starts = np.arange(0, length_s - 60, 300) + random.uniform(0, 20, int((length_s - 60) // 300) + 1)

    def arrivals(count: int) -> NDArray[np.float64]:
        return np.sort((starts[:, None] + random.uniform(0, 5, (len(starts), count))).ravel())

    took = np.full(intervals, gain)
    if slow_from is not None:
        took[int(slow_from * 60) :] = slow
    figures = _figures(serve(arrivals(300), length_s, took, random.uniform(0, SCRAPE_S)), intervals)
    standard_took = np.ones(intervals)
    standard_served = serve(arrivals(100), length_s, standard_took, random.uniform(0, SCRAPE_S))
    standard = _figures(standard_served, intervals)
    finished = figures["e2e_n"]
    figures |= {f"{STANDARD}{name}": values for name, values in standard.items()}
    ones, none = np.ones(intervals), np.zeros(intervals)
    figures |= dict.fromkeys(("counted", "targets", "up"), ones)
    figures |= dict.fromkeys(("failed", "cancelled", "standard_failed", "restarts", "missing"), none)
    figures |= dict.fromkeys(("finished", "requests", "eligible"), finished)
    figures |= {
        "drafted": finished * 90,
        "acceptance": np.where(finished > 0, 0.7, np.nan),
        "standard_requests": standard["e2e_n"],
    }
    assert set(figures) == set(FIGURES)
    nothing = np.full(intervals, np.nan)
    ts = INTERVAL_S * np.arange(1, intervals + 1)
    return LiveTrace(INTERVAL_S, LiveFigures(ts=ts, **figures), Answers(nothing, nothing, nothing), took)


def _figures(served: Served, intervals: int) -> dict[str, NDArray[np.float64]]:
    # Requests end in the order in which they began; those without an end, NaN, are last.
    bounds = np.searchsorted(np.floor(served.ended / INTERVAL_S), np.arange(intervals + 1))
    e2e = served.ended - served.began
    n = np.diff(bounds).astype(float)
    seconds = np.array([e2e[begin:end].sum() for begin, end in pairwise(bounds)])
    mean = np.where(n > 0, seconds / np.maximum(n, 1), np.nan)
    scrapes = served.scraped.reshape(intervals, -1)
    met = scrapes.mean(axis=1)
    back = int(BURSTS_S / SCRAPE_S)
    ends = (np.arange(intervals) + 1) * scrapes.shape[1]
    hours = [served.scraped[max(end - back, 0) : end] for end in ends]
    whole = np.ones(intervals)
    spread = np.where(met > 0, scrapes.var(axis=1) / np.maximum(met, 1e-9), np.nan)
    return {
        "tpot": mean / TOKENS,
        "tpot_n": n,
        "e2e": mean,
        "e2e_n": n,
        "tokens": np.where(n > 0, TOKENS, np.nan),
        "load": seconds / INTERVAL_S,
        "spread": spread,
        "gauged": whole * scrapes.shape[1],
        "running": met,
        "covered": whole,
        "sampled": whole,
        "bursts": np.array([span.var() / span.mean() if span.mean() > 0 else np.nan for span in hours]),
    }


def test_the_server_is_as_slow_as_its_load_makes_it() -> None:
    """The world itself: one request alone, and a burst, which its own load slows."""
    alone = serve(np.array([10.0]), 60.0, np.ones(1), 0.0)
    assert alone.ended[0] - 10.0 == pytest.approx(token_s(1) * TOKENS, abs=STEP_S)
    burst = serve(np.linspace(10, 15, 300), 120.0, np.ones(2), 0.0)
    assert (burst.ended - burst.began).mean() > 4 * token_s(1) * TOKENS


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 6))])
def test_a_batch_client_never_falls_back_where_speculation_pays(seed: int) -> None:
    found = simulate(trace(seed, 8.0, 0.68), CRITERIA, GuardRules())
    assert found.fallbacks == [], found.fallbacks
    assert "bad" not in found.verdicts, found.verdicts


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 30))
def test_a_batch_client_never_falls_back_in_a_day(seed: int) -> None:
    found = simulate(trace(seed, 24.0, 0.68), CRITERIA, GuardRules())
    assert found.fallbacks == [], found.fallbacks


@pytest.mark.slow
def test_a_batch_client_s_pool_that_gets_twice_as_slow_is_found() -> None:
    found = simulate(trace(1, 10.0, 0.68, slow_from=6.0, slow=2.0), CRITERIA, GuardRules())
    assert [one.status for one in found.detections] != ["missed"], found.verdicts


@pytest.mark.slow
def test_chance_decides_where_neither_hours_nor_the_requests_own_time_are_looked_at() -> None:
    """The world is as hard as it was: by the scrapes of a window alone the pool that pays is bad."""
    made = trace(0, 8.0, 0.68)
    nothing, enough = np.full(len(made), np.nan), np.full(len(made), 1e9)
    by_window = {"bursts": nothing, "standard_bursts": nothing, "running": enough, "standard_running": enough}
    found = simulate(replace(made, figures=replace(made.figures, **by_window)), CRITERIA, GuardRules())
    assert "bad" in found.verdicts
    by_time = {"bursts": nothing, "standard_bursts": nothing}
    found = simulate(replace(made, figures=replace(made.figures, **by_time)), CRITERIA, GuardRules())
    assert "bad" not in found.verdicts, "requests that no scrape met leave the load open"
