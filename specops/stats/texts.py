"""Two arms' sampled answers: whether they come from one distribution. Exact under swaps of the arms' names.

Where both arms answer alike, it is chance which of a prompt's answers came from which arm. So each statistic
is compared with its values after random swaps inside every prompt. Over all prompts together there would
be no power: prompts differ more than arms do.

Three statistics, each one-sided:

- the distance between the arms' mean features (maximum mean discrepancy, Gretton et al., JMLR 2012), of
  counts of character 1- to 4-grams: a broad change;
- how improbable the challenger's character trigrams are, by those of all answers to other prompts: garbage,
  even in a few answers;
- how probable they are: less varied answers, such as greedy ones where the temperature is ignored.

Both arms' answers train the trigrams, so a swap changes nothing there, and the test stays exact.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

FEATURES = 4096
LONGEST_GRAM = 4
TRIGRAMS = 8192
SMOOTHING = 0.2
"""Added to the count of each trigram."""

SHARES: Final = (0.4, 0.4, 0.2)
"""Of the error, for the three statistics. Six bad answers of 64, one a prompt and arm, have p = 1/64 at best:
with a third of 5% they would not be noticed."""

_MULTIPLIERS = np.array(
    [0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x27D4EB2F165667C5], dtype=np.uint64
)


def compare_samples(
    standard: Mapping[str, Sequence[str]],
    challenger: Mapping[str, Sequence[str]],
    *,
    seed: int,
    swaps: int = 199,
) -> float | None:
    """Return the p value of "both arms' answers have one distribution", by prompt; small: they differ.

    Prompts that only one arm answered are left out. None where the others have fewer than `swaps` ways to
    swap answers. The least p value is 2.5 / (`swaps` + 1).
    """
    prompts = [prompt for prompt in standard if standard[prompt] and challenger.get(prompt)]
    ways = sum(
        math.log(math.comb(len(standard[prompt]) + len(challenger[prompt]), len(standard[prompt])))
        for prompt in prompts
    )
    if ways < math.log(swaps + 1):
        return None
    texts = [text for prompt in prompts for arm in (standard, challenger) for text in arm[prompt]]
    sizes = np.array([(len(standard[prompt]), len(challenger[prompt])) for prompt in prompts])
    owners = np.repeat(np.arange(len(prompts)), sizes.sum(axis=1))
    challenges = np.repeat(np.tile([False, True], len(prompts)), sizes.ravel())
    labels = np.concatenate(
        [challenges[None], _swapped(owners, challenges, swaps, np.random.default_rng(seed))]
    )
    # Each answer's part in the mean over prompts of the challenger's mean less the standard's.
    weights = np.where(labels, 1 / sizes[owners, 1], -1 / sizes[owners, 0]) / len(prompts)
    features = _gram_features(texts)
    distances = ((weights @ (features @ features.T)) * weights).sum(axis=1)
    changes = weights @ _log_likelihoods(texts, owners)
    statistics = (distances, -changes, changes)
    return min(1.0, *(_p_value(values) / share for values, share in zip(statistics, SHARES, strict=True)))


def _p_value(values: Array) -> float:
    """Return the share of the values that are at least the first; equal but for rounding counts."""
    slack = 1e-9 * float(np.abs(values).max())
    return float(np.count_nonzero(values >= values[0] - slack)) / len(values)


def _swapped(
    owners: NDArray[np.int64], challenges: NDArray[np.bool_], swaps: int, generator: np.random.Generator
) -> NDArray[np.bool_]:
    """Return `challenges` with the values of each owner in a random order, `swaps` times [swaps, answers]."""
    orders = np.argsort(owners + generator.random((swaps, len(owners))), axis=1)
    swapped: NDArray[np.bool_] = challenges[orders]
    return swapped


def _gram_features(texts: Sequence[str]) -> Array:
    """Return hashed counts of character 1- to 4-grams as logarithms, of unit length [texts, FEATURES]."""
    counts = sum(_gram_counts(texts, size, FEATURES) for size in range(1, LONGEST_GRAM + 1))
    features = np.log1p(counts)
    features /= np.maximum(np.linalg.norm(features, axis=1, keepdims=True), np.finfo(np.float64).tiny)
    return features


def _log_likelihoods(texts: Sequence[str], owners: NDArray[np.int64]) -> Array:
    """Return each text's mean log-probability of a trigram, by all texts of other owners; 0 without any."""
    counts = _gram_counts(texts, 3, TRIGRAMS)
    by_owner = np.zeros((owners[-1] + 1, TRIGRAMS))
    np.add.at(by_owner, owners, counts)
    others = by_owner.sum(axis=0) - by_owner + SMOOTHING
    logs = np.log(others / others.sum(axis=1, keepdims=True))
    means: Array = (counts * logs[owners]).sum(axis=1) / np.maximum(counts.sum(axis=1), 1)
    return means


def _gram_counts(texts: Sequence[str], size: int, buckets: int) -> Array:
    """Return how often each text has character sequences of `size`, hashed [texts, buckets]."""
    counts = np.zeros((len(texts), buckets))
    for row, text in zip(counts, texts, strict=True):
        characters = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32).astype(
            np.uint64
        )
        grams = max(0, len(characters) - size + 1)
        hashes = np.full(grams, size, dtype=np.uint64)
        for place, multiplier in enumerate(_MULTIPLIERS[:size]):
            hashes = (hashes ^ characters[place : place + grams]) * multiplier
            hashes ^= hashes >> np.uint64(29)
        row += np.bincount((hashes % np.uint64(buckets)).astype(np.int64), minlength=buckets)
    return counts
