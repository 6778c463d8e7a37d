"""Two arms' sampled answers: whether they come from one distribution. Exact under swaps of the arms' names.

If both arms answer alike, it is chance which of a prompt's answers came from which arm. So each statistic
is compared with its values after random swaps inside every prompt. Swaps among all prompts together would
have no power: prompts differ more than arms do.

Five statistics, each one-sided:

- the distance between the arms' mean features (maximum mean discrepancy, Gretton et al., JMLR 2012), of
  counts of character 1- to 4-grams: a broad change;
- how surprising the challenger's answers are, by a trigram model of the characters of all answers to other
  prompts, surprising ones counted more than in proportion: garbage, even in a few answers;
- how unsurprising they are, with very surprising ones cut off: less varied answers, such as greedy ones where
  the temperature is ignored;
- how far their lengths are from what is usual of the prompt, squared: some that are cut, or that do not end.
  Of two answers to a prompt, both are as far from their median, so that it needs three to one at least;
- how little they are like the likely answers to their own prompt, where those are known: words of the same
  vocabulary, or the answer to another prompt.

Answers of both arms train the model, so that a swap changes nothing in it, and the test stays exact.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

FEATURES: Final = 4096
LONGEST_GRAM: Final = 4
MODEL_BUCKETS: Final = 8192
BACKOFF: Final = 2.0
"""Counts that the shorter context is worth in the trigram model."""

ALPHABET: Final = 200
"""Characters that a model without counts chooses from."""

SHORT: Final = 20
"""Trigrams whose weight pulls an answer's surprise towards the usual: of short answers it is mostly noise."""

SHARES: Final = (0.3, 0.3, 0.15, 0.25)
"""Of the error, for the first four statistics."""

LIKELY_SHARE: Final = 0.25
"""What the fifth takes of each, where likely answers are known."""

LEAST_DEVIATION: Final = 0.02
"""Of a length, as a share of it: where nearly all answers of a prompt have one length, a character more is
not far from it."""

_MULTIPLIERS = np.array(
    [0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x27D4EB2F165667C5], dtype=np.uint64
)


def compare_samples(
    standard: Mapping[str, Sequence[str]],
    challenger: Mapping[str, Sequence[str]],
    likely: Mapping[str, Sequence[str]] = MappingProxyType({}),
    *,
    seed: int,
    swaps: int = 1999,
) -> float | None:
    """Return the p value of "both arms' answers have one distribution", by prompt; small: they differ.

    `likely` has likely answers by prompt, such as the standard's greedy ones, which neither arm's sampled
    answers may choose. Prompts that only one arm answered are left out. None where the answers to the others
    can be swapped in fewer ways than `swaps`. No p value is below 1 / 0.3 / (`swaps` + 1).
    """
    prompts = [prompt for prompt in standard if standard[prompt] and challenger.get(prompt)]
    sizes = np.array([(len(standard[prompt]), len(challenger[prompt])) for prompt in prompts], dtype=np.int64)
    ways = sum(math.log(math.comb(a + b, a)) for a, b in sizes.tolist())
    if ways < math.log(swaps):
        return None
    texts = [text for prompt in prompts for arm in (standard, challenger) for text in arm[prompt]]
    owners = np.repeat(np.arange(len(prompts)), sizes.sum(axis=1))
    challenges = np.repeat(np.tile([False, True], len(prompts)), sizes.ravel())
    # Within each owner a random order [swaps, answers].
    orders = np.argsort(owners + np.random.default_rng(seed).random((swaps, len(owners))), axis=1)
    labels = np.concatenate([challenges[None], challenges[orders]])
    # Each answer's part in the mean over prompts of the challenger's mean less the standard's.
    weights = np.where(labels, 1 / sizes[owners, 1], -1 / sizes[owners, 0]) / len(prompts)
    features = _features(texts)
    surprise = _surprise(texts, owners)
    statistics = [
        ((weights @ (features @ features.T)) * weights).sum(axis=1),
        weights @ (surprise + np.maximum(surprise, 0) ** 2 / 2),
        -weights @ np.clip(surprise, -3, 1),
        weights @ _unusual_length(texts, owners) ** 2,
    ]
    shares = list(SHARES)
    if sizes.sum(axis=1).max() < 3:  # of no prompt a length can be unusual
        del statistics[-1], shares[-1]
        shares = [share / sum(shares) for share in shares]
    likely_answers = [answer for prompt in prompts for answer in likely.get(prompt, ())]
    if likely_answers:
        answers_of = np.repeat(np.arange(len(prompts)), [len(likely.get(prompt, ())) for prompt in prompts])
        means = np.zeros((len(prompts), FEATURES))
        np.add.at(means, answers_of, _features(likely_answers))
        means /= np.maximum(np.linalg.norm(means, axis=1, keepdims=True), np.finfo(np.float64).tiny)
        likeness = (features * means[owners]).sum(axis=1)
        statistics.append(-weights @ likeness)
        shares = [*((1 - LIKELY_SHARE) * share for share in shares), LIKELY_SHARE]
    # Of all orders, this one included; values that are equal but for rounding count. Where all answers are
    # the same, each value is 0 but for rounding.
    p_values = [
        np.mean(values >= values[0] - 1e-9 * max(np.abs(values).max(), 1e-3)) for values in statistics
    ]
    return min(1.0, *(float(p_value) / share for p_value, share in zip(p_values, shares, strict=True)))


def _features(texts: Sequence[str]) -> Array:
    """Return hashed counts of character 1- to 4-grams as logarithms, of unit length [texts, FEATURES]."""
    counts = np.zeros(len(texts) * FEATURES)
    numbers, grams = _grams(texts, LONGEST_GRAM, FEATURES)
    for hashes in grams:
        inside = hashes >= 0
        counts += np.bincount(numbers[inside] * FEATURES + hashes[inside], minlength=len(counts))
    features = np.log1p(counts).reshape(len(texts), FEATURES)
    features /= np.maximum(np.linalg.norm(features, axis=1, keepdims=True), np.finfo(np.float64).tiny)
    return features


def _unusual_length(texts: Sequence[str], owners: Integers) -> Array:
    """Return by how many deviations the logarithm of each text's length is from its owner's median
    [texts]."""
    lengths = np.log1p([len(text) for text in texts])
    medians = np.array([np.median(lengths[owners == owner]) for owner in range(owners[-1] + 1)])
    unusual: Array = lengths - medians[owners]
    deviation = 1.4826 * float(np.median(np.abs(unusual)))
    return unusual / max(deviation, LEAST_DEVIATION)


def _surprise(texts: Sequence[str], owners: Integers) -> Array:
    """Return by how many deviations each text surprises more than usual [texts].

    By the texts of other owners, and a trigram model that falls back on shorter contexts (Dirichlet
    smoothing, MacKay and Peto 1995). The usual is the median, a deviation that of a normal distribution with
    the same median deviation.
    """
    numbers, (unigrams, bigrams, trigrams) = _grams(texts, 3, MODEL_BUCKETS)
    place = np.flatnonzero(trigrams >= 0)
    owner = owners[numbers[place]]

    def count(grams: Integers, offset: int) -> Array:
        inside = grams >= 0
        keys = owners[numbers[inside]] * MODEL_BUCKETS + grams[inside]
        by_owner = np.bincount(keys, minlength=(owners[-1] + 1) * MODEL_BUCKETS).reshape(-1, MODEL_BUCKETS)
        chosen = grams[place + offset]
        counts: Array = (by_owner.sum(axis=0)[chosen] - by_owner[owner, chosen]).astype(np.float64)
        return counts

    sizes = np.bincount(owners[numbers], minlength=owners[-1] + 1)
    chance = (count(unigrams, 2) + 0.5) / ((len(numbers) - sizes)[owner] + 0.5 * ALPHABET)
    for grams, contexts, offset in ((bigrams, unigrams, 1), (trigrams, bigrams, 0)):
        pair_count = count(grams, offset)
        # Hashes may meet: a context is not rarer than what it begins.
        chance = (pair_count + BACKOFF * chance) / (np.maximum(count(contexts, offset), pair_count) + BACKOFF)
    lengths = np.bincount(numbers[place], minlength=len(texts))
    sums = np.bincount(numbers[place], weights=-np.log(chance), minlength=len(texts))
    usual = float(np.median(sums[lengths > 0] / lengths[lengths > 0])) if len(place) else 0.0
    surprise = (sums - usual * lengths) / (lengths + SHORT)
    deviation = 1.4826 * float(np.median(np.abs(surprise)))
    scaled: Array = surprise / max(deviation, 1e-9)
    return scaled


def _grams(texts: Sequence[str], longest: int, buckets: int) -> tuple[Integers, list[Integers]]:
    """Return the number of the text of every character, and by length the hash of the characters from there;
    -1 where the text ends before."""
    sizes = np.array([len(text) for text in texts])
    numbers = np.repeat(np.arange(len(texts)), sizes)
    remaining = np.repeat(np.cumsum(sizes), sizes) - np.arange(len(numbers))
    encoded = "".join(texts).encode("utf-32-le", "surrogatepass") + bytes(4 * longest)
    characters = np.frombuffer(encoded, dtype=np.uint32).astype(np.uint64)
    hashes = np.zeros(len(numbers), dtype=np.uint64)
    grams = []
    for size in range(1, longest + 1):
        hashes = (hashes ^ characters[size - 1 : size - 1 + len(numbers)]) * _MULTIPLIERS[size - 1]
        hashes ^= hashes >> np.uint64(29)
        grams.append(np.where(remaining >= size, (hashes % np.uint64(buckets)).astype(np.int64), -1))
    return numbers, grams
