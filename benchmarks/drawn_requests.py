"""Requests of simulated sweeps and comparisons, drawn with a known truth: lengths, gains, noise and drift.

Prompts of three traffic classes have lognormal lengths, and a speed-up of their own that grows with the
length. Noise is calm (lognormal), stalls (one request in 200 takes 5 to 20 times as long), or heavy (a Pareto
tail of index 2.2). A machine does not drift, slows down evenly, slows down by a step, or wanders.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specops.load.record import Row

TOKENS = {"edit": 120, "long": 400, "short": 30}  # medians, by class
LENGTH_SD, LONGER_GAINS, PROMPT_SD = 0.6, 0.10, 0.15  # of logarithms
TTFT_MS, TOKEN_MS = 50.0, 10.0
NOISES, DRIFTS = ("calm", "stalls", "heavy"), ("none", "linear", "step", "walk")
NOISE_SD, STALLED = 0.1, 0.005


@dataclass
class Tally:
    """Of yes and no answers to one question."""

    yes: int = 0
    asked: int = 0

    def add(self, answer: bool) -> None:
        self.yes += answer
        self.asked += 1

    @property
    def share(self) -> float | None:
        return round(self.yes / self.asked, 4) if self.asked else None


def answered(
    prompt: str, traffic_class: str, *, sent_s: float, ttft_ms: float, took_ms: float, tokens: int | None
) -> Row:
    """A request that was answered as it should be, and no retry needed."""
    return Row(
        prompt=prompt,
        traffic_class=traffic_class,
        due_s=sent_s,
        sent_s=sent_s,
        lag_ms=0.0,
        ttft_ms=ttft_ms,
        tpot_ms=None,
        e2e_ms=took_ms,
        e2e_with_retries_ms=took_ms,
        retries=0,
        chunks=1,
        n_first=None,
        tokens=tokens,
        tokens_from="unknown" if tokens is None else "usage",
        finish_reason="stop",
        text="",
        error=None,
        detail=None,
    )


def means(of: str, truth: float) -> tuple[float, float]:
    """The expectation over prompts of what each arm takes: `truth` is their ratio."""
    before = TTFT_MS + TOKENS[of] * TOKEN_MS * math.exp(LENGTH_SD**2 / 2)
    return before, before / truth


def typical_gain(of: str, truth: float) -> float:
    """In decoding, of a prompt of median length, such that the class gains `truth` end to end."""
    after = means(of, truth)[1] - TTFT_MS
    spread = (LENGTH_SD - LONGER_GAINS) ** 2 + PROMPT_SD**2
    return TOKENS[of] * TOKEN_MS * math.exp(spread / 2) / after


def draw_noise(kind: str, count: int, generator: np.random.Generator) -> NDArray[np.float64]:
    """What latencies are multiplied by, request by request."""
    noise = generator.lognormal(0, NOISE_SD, count)
    if kind == "stalls":
        noise *= np.where(generator.random(count) < STALLED, generator.uniform(5, 20, count), 1)
    if kind == "heavy":
        noise += NOISE_SD * generator.pareto(2.2, count)
    return noise


def draw_drift(kind: str, count: int, generator: np.random.Generator) -> NDArray[np.float64]:
    """What latencies are multiplied by, visit by visit."""
    at = np.arange(count) / count
    if kind == "linear":
        return 1 + 0.2 * at
    if kind == "step":
        return 1 + 0.15 * (at > generator.random())
    walk = np.cumsum(generator.standard_normal(count)) * 0.1 / math.sqrt(count)
    return np.exp(walk) if kind == "walk" else np.ones(count)
