"""Counts of acceptance over answers, with intervals that resample whole conversations. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from specops.phases.predict.records import PredictedAcceptance
from specops.results import rounded
from specops.serving import Steps
from specops.stats import LEVEL, Interval

Floats = NDArray[np.float64]

FEWEST_CONVERSATIONS = 8
"""With fewer there is no interval: a bootstrap of so few is too narrow."""

RESAMPLES = 2000


@dataclass(frozen=True)
class AnswerCounts:
    """The steps of one answer with one setting."""

    conversation: str
    traffic_class: str
    prompt_tokens: int
    tokens: int
    steps: int
    draft_steps: int
    drafted: int
    accepted: int
    beyond_end: int
    depths: tuple[int, ...]
    """Number of steps with a draft by the tokens that were accepted, from 0."""


def count_steps(
    conversation: str, traffic_class: str, prompt: int, tokens: int, steps: Steps
) -> AnswerCounts:
    """The counts of an answer of `tokens` tokens after a prompt of `prompt`."""
    accepted = sum(right for _, right in steps)
    # Each step yields a token of the target's own, but for a last one that accepted the end of the answer.
    ended_in_draft = accepted + len(steps) > tokens
    drafting = [(drafted, right) for drafted, right in steps if drafted]
    depths = [0] * (1 + max((right for _, right in drafting), default=0))
    for _, right in drafting:
        depths[right] += 1
    last_drafted, last_accepted = steps[-1] if steps else (0, 0)
    return AnswerCounts(
        conversation=conversation,
        traffic_class=traffic_class,
        prompt_tokens=prompt,
        tokens=tokens,
        steps=len(steps),
        draft_steps=len(drafting),
        drafted=sum(drafted for drafted, _ in drafting),
        accepted=accepted,
        beyond_end=last_drafted - last_accepted if ended_in_draft else 0,
        depths=tuple(depths),
    )


def pooled(counts: Sequence[AnswerCounts]) -> PredictedAcceptance:
    """Acceptance over all the answers together: tokens are pooled, never rates."""
    tokens, steps = sum(c.tokens for c in counts), sum(c.steps for c in counts)
    draft_steps, drafted = sum(c.draft_steps for c in counts), sum(c.drafted for c in counts)
    accepted = sum(c.accepted for c in counts)
    depths = np.zeros(max(len(c.depths) for c in counts), dtype=np.int64)
    for answer in counts:
        depths[: len(answer.depths)] += answer.depths
    reached = list(accumulate(reversed(depths.tolist())))[::-1][1:]  # accepted at least 1, 2, …
    sums = by_conversation(
        [c.conversation for c in counts],
        np.array([(c.tokens, c.steps) for c in counts], dtype=np.float64),
    )
    return PredictedAcceptance(
        answers=len(counts),
        conversations=len(sums),
        tokens=tokens,
        steps=steps,
        draft_steps=draft_steps,
        drafted=drafted,
        accepted=accepted,
        beyond_end=sum(c.beyond_end for c in counts),
        tokens_per_step=round(tokens / steps, 4),
        interval=ratio_interval(sums[:, 0], sums[:, 1]),
        rate=rounded(accepted / drafted) if drafted else None,
        per_position=[round(number / draft_steps, 4) for number in reached] if draft_steps else [],
    )


def by_conversation(conversations: Sequence[str], values: Floats) -> Floats:
    """Sums of the rows of `values`, [n, m], by conversation: [conversations, m]."""
    _, index = np.unique(np.array(conversations), return_inverse=True)
    sums = np.zeros((int(index.max()) + 1, values.shape[1]))
    np.add.at(sums, index, values)
    return sums


def ratio_interval(numerators: Floats, denominators: Floats) -> Interval | None:
    """The ratio of two sums over conversations, [n] each, with the percentile bootstrap's interval; None with
    fewer than `FEWEST_CONVERSATIONS`."""
    number = len(numerators)
    if number < FEWEST_CONVERSATIONS:
        return None
    chance = np.random.default_rng(0)
    ratios = np.empty(RESAMPLES)
    for start in range(0, RESAMPLES, 100):  # in parts: a log may have many conversations
        draws = chance.integers(0, number, (100, number))
        ratios[start : start + 100] = numerators[draws].sum(1) / denominators[draws].sum(1)
    low, high = np.quantile(ratios, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    estimate = float(numerators.sum() / denominators.sum())
    return Interval(estimate, min(float(low), estimate), max(float(high), estimate), number)
