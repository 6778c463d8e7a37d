"""Two-sample tests of whether two sets of answers were drawn from one distribution: permutation tests, and
their power. Pure.

Two things are looked at. Of an answer's text, each of its first few pieces by place, and each two that follow
each other: the two-sample chi-square, summed. And, where a server reports log-probabilities, by how much the
drawn tokens are likelier than such tokens are on average: one figure for an answer, whose mean is compared.
Drafts that are accepted too easily show there first.

Answers are permuted whole and within a prompt, so that nothing need be assumed of how tokens depend on each
other, nor of the log-probabilities being right.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

PIECES = 6
PERMUTATIONS = 10_000
SIMULATIONS = 200
POWER = 0.9
SEED = 0
TESTS = 2
_PIECE = re.compile(r"\s+|\w+|[^\w\s]")
_BEYOND = 50
"""Tokens that what is left of the probability is taken to be spread over."""


@dataclass(frozen=True)
class SampledAnswer:
    """An answer. `surprise`: how much likelier its tokens are than expected, in nats a token."""

    text: str
    surprise: float | None = None


Answers = Sequence[Sequence[SampledAnswer]]
"""Answers by prompt."""


@dataclass(frozen=True)
class DetectableDifferences:
    """The least differences that would be found; None where none would be."""

    pieces: float | None
    """Total variation of a piece, on average over places and prompts."""

    nats: float | None
    """Nats of the mean log-probability of a token."""


def pieces(text: str) -> list[str]:
    """The first words, signs and gaps: not every server reports tokens."""
    return _PIECE.findall(text)[:PIECES]


def expected(top: Sequence[float]) -> float:
    """Return about the mean log-probability, in nats, of a token that is drawn where `top` are the
    likeliest."""
    left = 1 - sum(map(math.exp, top))
    of_top = sum(math.exp(value) * value for value in top)
    return of_top + left * math.log(left / _BEYOND) if left > 0 else of_top


def p_value(standard: Answers, speculative: Answers) -> float:
    """The chance of such a difference, or a greater one, between two samples of one distribution.

    Both hold the same prompts in the same order.
    """
    p_values = [of_pieces(_texts(standard), _texts(speculative))]
    if (standard_surprises := _surprises(standard)) is not None and (
        speculative_surprises := _surprises(speculative)
    ) is not None:
        p_values.append(of_means(standard_surprises, speculative_surprises))
    return min(1.0, min(p_values) * len(p_values))


def of_pieces(standard: Sequence[Sequence[str]], speculative: Sequence[Sequence[str]]) -> float:
    rng = np.random.default_rng(SEED)
    observed, null = 0.0, np.zeros(PERMUTATIONS)
    for left, right in zip(standard, speculative, strict=True):
        has, labels = _categories([*left, *right]), _labels(len(left), len(right))
        observed += float(_chi_squares(has, labels[None])[0])
        null += _chi_squares(has, rng.permuted(np.tile(labels, (PERMUTATIONS, 1)), axis=1))
    return _share(null >= observed - 1e-6)


def of_means(standard: Sequence[Sequence[float]], speculative: Sequence[Sequence[float]]) -> float:
    """Two-sided, of the differences of means summed over the prompts."""
    rng = np.random.default_rng(SEED)
    observed, null = 0.0, np.zeros(PERMUTATIONS)
    for left, right in zip(standard, speculative, strict=True):
        values, labels = np.array([*left, *right]), _labels(len(left), len(right))
        weights = labels / labels.sum() - (1 - labels) / (1 - labels).sum()
        observed += float(weights @ values)
        null += rng.permuted(np.tile(weights, (PERMUTATIONS, 1)), axis=1) @ values
    return _share(np.abs(null) >= abs(observed) - 1e-12)


def detectable_differences(answers: Answers, alpha: float) -> DetectableDifferences:
    """Return what would be found at `alpha` with POWER, with as many of theirs."""
    share = alpha / TESTS
    surprises = _surprises(answers)
    if surprises is None:
        return DetectableDifferences(_pieces_shown(_texts(answers), alpha), None)
    return DetectableDifferences(_pieces_shown(_texts(answers), share), _nats_shown(surprises, share))


def _nats_shown(surprises: Sequence[Sequence[float]], alpha: float) -> float | None:
    """Return the smallest detectable difference, in nats a token, by the t test of two means, each prompt
    counted alike."""
    if min(map(len, surprises)) < 2:
        return None
    error = math.sqrt(sum(2 * float(np.var(prompt, ddof=1)) / len(prompt) for prompt in surprises)) / len(
        surprises
    )
    return (NormalDist().inv_cdf(1 - alpha / 2) + NormalDist().inv_cdf(POWER)) * error


def _pieces_shown(answers: Sequence[Sequence[str]], alpha: float) -> float | None:
    """Return the smallest detectable total variation, by simulation: both samples are drawn anew from
    `answers`, and a share of one is replaced by the answer that is most common there, as a distribution that
    is too sharp would have it."""
    rng = np.random.default_rng(SEED)
    prompts = [(_categories(texts), _commonest(texts)) for texts in answers]
    critical = float(np.quantile(_simulated(prompts, 0.0, rng), 1 - alpha))

    def observed(share: float) -> bool:
        return float((_simulated(prompts, share, rng) > critical).mean()) >= POWER

    low, high = 0.0, 1.0
    if not observed(high):
        return None
    for _ in range(6):
        share = (low + high) / 2
        low, high = (low, share) if observed(share) else (share, high)
    return high * sum(map(_room, answers)) / len(answers)


def _simulated(
    prompts: Sequence[tuple[NDArray[np.float32], int]], share: float, rng: np.random.Generator
) -> NDArray[np.float64]:
    """[simulations]: statistics of samples drawn from the answers of each prompt, [answers, categories], in
    one of which the share is replaced by the answer of that number."""
    totals = np.zeros(SIMULATIONS)
    for has, common in prompts:
        n = len(has)
        for number in range(SIMULATIONS):
            sample = has[rng.integers(0, n, n)].sum(0)
            sharper = has[np.where(rng.random(n) < share, common, rng.integers(0, n, n))].sum(0)
            totals[number] += float(np.sum((sample - sharper) ** 2 / np.maximum(sample + sharper, 1)))
    return totals


def _room(texts: Sequence[str]) -> float:
    """Total variation, of a piece on average, between the answers and the most common of them alone."""
    placed = [_placed(text) for text in texts]
    common = placed[_commonest(texts)]
    return sum(answer[place] != common[place] for answer in placed for place in range(PIECES)) / (
        PIECES * len(placed)
    )


def _commonest(texts: Sequence[str]) -> int:
    begins = [tuple(pieces(text)[:2]) for text in texts]
    return max(range(len(begins)), key=lambda i: begins.count(begins[i]))


def _placed(text: str) -> list[str]:
    """A piece for each place. An answer's end is a piece too, and the last one."""
    placed = [*pieces(text), "\0"][:PIECES]
    return placed + [""] * (PIECES - len(placed))


def _categories(texts: Sequence[str]) -> NDArray[np.float32]:
    """[answers, categories], 1 where an answer has the piece at the place, or the two from there on."""
    placed = [_placed(text) for text in texts]
    named = [
        {(place, piece, "") for place, piece in enumerate(answer)}
        | {(place, a, b) for place, (a, b) in enumerate(pairwise(answer))}
        for answer in placed
    ]
    numbers = {name: i for i, name in enumerate(sorted(set().union(*named)))}
    has = np.zeros((len(texts), len(numbers)), np.float32)
    for row, names in enumerate(named):
        has[row, [numbers[name] for name in names]] = 1
    return has


def _labels(standard: int, speculative: int) -> NDArray[np.float32]:
    return np.repeat(np.array([1, 0], np.float32), [standard, speculative])


def _chi_squares(has: NDArray[np.float32], labels: NDArray[np.float32]) -> NDArray[np.float64]:
    """[permutations], for labels [permutations, answers] that are 1 for ours."""
    total = has.sum(0)
    standard = labels @ has
    balance = math.sqrt(len(has) / max(1.0, float(labels[0].sum())) - 1)
    terms = (standard * balance - (total - standard) / balance) ** 2 / total
    summed: NDArray[np.float64] = terms.sum(1, dtype=np.float64)
    return summed


def _share(as_great: NDArray[np.bool_]) -> float:
    return (1 + int(as_great.sum())) / (1 + len(as_great))


def _texts(answers: Answers) -> list[list[str]]:
    return [[answer.text for answer in prompt] for prompt in answers]


def _surprises(answers: Answers) -> list[list[float]] | None:
    """Return the surprises of the answers; None where an answer has none."""
    surprises = [[answer.surprise for answer in prompt if answer.surprise is not None] for prompt in answers]
    whole = all(len(values) == len(prompt) for values, prompt in zip(surprises, answers, strict=True))
    return surprises if whole else None


def same_share(first: int, first_tries: int, second: int, second_tries: int) -> float:
    """Fisher's exact test: the two-sided p of two counts of successes, if both have the same probability.

    >>> round(same_share(1, 9, 11, 12), 6)
    0.000673
    """
    total, successes = first_tries + second_tries, first + second

    def chance(count: int) -> float:
        ways = math.comb(first_tries, count) * math.comb(second_tries, successes - count)
        return ways / math.comb(total, successes)

    possible = range(max(0, successes - second_tries), min(first_tries, successes) + 1)
    p_observed = chance(first)
    return min(1.0, sum(p for count in possible if (p := chance(count)) <= p_observed * (1 + 1e-9)))
