"""Sampled answers under a small grammar: the distribution of a few strings, which can be enumerated.

A grammar is mostly applied token by token: what it forbids is masked, and the rest renormalised. That is
another distribution than the model's own, given that the answer is valid (arXiv 2605.07698): a token counts
as much as it is likely, whatever the chance that a valid answer follows. Both are lawful, but the speculative
pool must draw from the one that the standard draws from.

From log-probabilities of the standard's answers both are computed, and the one that its own answers fit is
the exact distribution that the other pool's are tested against. Without one, two samples are compared.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from specops.phases.canary import two_samples
from specops.phases.canary.checks.distribution import ALPHA, SECOND, THEIRS, TOP, of_both_looks
from specops.phases.canary.client import CanaryRequest, PoolClient, Reply, Token
from specops.phases.canary.pool_pair import (
    CheckOutcome,
    ConformanceCheck,
    PoolOutcome,
    PoolPair,
    held,
    trouble,
)

STRINGS = ("small box", "small bag", "large box", "large crate")
"""Two begin alike, twice: so the two distributions differ."""
FORM = {
    "type": "json_schema",
    "json_schema": {"name": "parcel", "schema": {"enum": list(STRINGS)}, "strict": True},
}
QUESTION = f"Choose a parcel at random, and answer with it alone: {', '.join(STRINGS)}."
TOKENS = 24
FITS = 0.05
"""p from which the standard's own answers are those of an enumerated distribution."""
DRAWS = 10_000

Distribution = Mapping[str, float]
"""Probabilities of the strings of the grammar; they sum to 1."""


@dataclass(frozen=True)
class Enumeration:
    conditional: Distribution
    """The model's own, given that the answer is valid."""

    projected: Distribution
    """What masking and renormalising gives, token by token."""


def string_of(text: str) -> str | None:
    """Return which of STRINGS an answer is; None for anything else."""
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if value in STRINGS else None


def enumerate_strings(replies: Sequence[Reply]) -> Enumeration | None:
    """Return the exact distributions of the strings, from the log-probabilities of answers that hold each of
    them; None where a string was never drawn, or a server reports no log-probabilities.

    Of each string the first tokens that wrote it are taken. Other tokens for the same text are rare.
    """
    written: dict[str, tuple[Token, ...]] = {}
    for reply in replies:
        string, tokens = string_of(reply.text), reply.first.tokens
        if string is not None and tokens:
            written.setdefault(string, tokens)
    if written.keys() != set(STRINGS):
        return None
    totals = {string: sum(token.logprob for token in written[string]) for string in STRINGS}
    return Enumeration(_normalised(totals), _normalised(_projected(written)))


def _projected(written: Mapping[str, Sequence[Token]]) -> dict[str, float]:
    """Return log-probabilities of the strings where each token is renormalised among those that may follow
    the same beginning."""
    following: dict[tuple[str, ...], dict[str, float]] = defaultdict(dict)
    for tokens in written.values():
        texts = tuple(token.text for token in tokens)
        for place, token in enumerate(tokens):
            following[texts[:place]][token.text] = token.logprob
    logs = {}
    for string, tokens in written.items():
        texts = tuple(token.text for token in tokens)
        logs[string] = sum(
            token.logprob - float(np.logaddexp.reduce([*following[texts[:place]].values()]))
            for place, token in enumerate(tokens)
        )
    return logs


def _normalised(logs: Mapping[str, float]) -> Distribution:
    greatest = max(logs.values())
    weights = {string: math.exp(value - greatest) for string, value in logs.items()}
    return {string: weight / sum(weights.values()) for string, weight in weights.items()}


def p_of(counts: Counter[str], distribution: Distribution) -> float:
    """Return the p value of a multinomial test by simulation: whether `counts` are draws of `distribution`.
    A string that it excludes has p 0."""
    chances = np.array([distribution[string] for string in STRINGS])
    observed = np.array([counts[string] for string in STRINGS])
    total = int(observed.sum())
    if total != counts.total():
        return 0.0
    expected = np.maximum(chances * total, 1e-9)
    draws = np.random.default_rng(two_samples.SEED).multinomial(total, chances / chances.sum(), DRAWS)
    null = ((draws - expected) ** 2 / expected).sum(1)
    statistic = float(((observed - expected) ** 2 / expected).sum())
    return (1 + int((null >= statistic - 1e-9).sum())) / (1 + DRAWS)


def p_same(left: Counter[str], right: Counter[str]) -> float:
    """Return the p value of a permutation test: whether two samples are draws of one distribution."""
    texts = sorted({*left, *right})
    first, totals = (np.array([counts[text] for text in texts]) for counts in (left, left + right))
    share = left.total() / (left.total() + right.total())
    expected = totals * share
    permuted = np.random.default_rng(two_samples.SEED).multivariate_hypergeometric(
        totals, left.total(), DRAWS, method="marginals"
    )
    null = ((permuted - expected) ** 2 / expected).sum(1)
    statistic = float(((first - expected) ** 2 / expected).sum())
    return (1 + int((null >= statistic - 1e-9).sum())) / (1 + DRAWS)


def total_variation(left: Counter[str], right: Counter[str]) -> float:
    """Return the total variation distance of two samples, 0 to 1."""
    texts = {*left, *right}
    return sum(abs(left[t] / left.total() - right[t] / right.total()) for t in texts) / 2


async def _draw(pool: PoolClient, first: int, number: int, tells: bool) -> list[Reply]:
    return await pool.ask_all([_request(pool, seed, tells) for seed in range(first, first + number)])


def _request(pool: PoolClient, seed: int, tells: bool = False) -> CanaryRequest:
    ask = pool.chat_request(
        QUESTION, max_tokens=TOKENS, temperature=1.0, top_p=1.0, seed=seed, response_format=FORM
    )
    return ask.with_logprobs(TOP) if tells else ask


def _outcome(replies: Sequence[Reply], ask: CanaryRequest) -> PoolOutcome:
    if side := next((side for reply in replies if (side := trouble(reply, ask))), None):
        return side
    invalid = [reply.text for reply in replies if string_of(reply.text) is None and not begun(reply)]
    if len(invalid) > len(replies) / 2:
        return PoolOutcome("ignored", f"a schema was requested, and it wrote {invalid[0][:60]!r}", ask)
    whole = sum(string_of(reply.text) is not None for reply in replies)
    if whole < len(replies) / 2:
        message = f"{len(replies) - whole} of {len(replies)} answers are cut off, so they show nothing"
        return PoolOutcome("unsure", message, ask)
    return PoolOutcome("ok", ask=ask)


def begun(reply: Reply) -> bool:
    """Return whether an answer is spaces, and then maybe the beginning of a string, cut off by max_tokens."""
    return reply.first.finish_reason == "length" and reply.text.lstrip()[:1] in ("", '"')


@dataclass(frozen=True)
class Look:
    """The test of one set of answers."""

    p: float
    reference: str | None
    """The enumerated distribution that the standard's answers fit; None where there is none."""

    distance: float
    """Total variation between the two samples."""


def compare_draws(standard: Sequence[Reply], speculative: Sequence[Reply]) -> Look:
    """Test the speculative pool's answers against the standard's, and against the enumerated distribution
    that those fit."""
    counts = [
        Counter(string_of(reply.text) or "" for reply in replies) for replies in (standard, speculative)
    ]
    p = p_same(counts[0], counts[1])
    reference, distribution = _fitting(standard, counts[0])
    if distribution is not None:
        p = min(1.0, 2 * min(p, p_of(counts[1], distribution)))
    return Look(p, reference, total_variation(counts[0], counts[1]))


def _fitting(standard: Sequence[Reply], counts: Counter[str]) -> tuple[str | None, Distribution | None]:
    enumeration = enumerate_strings(standard)
    if enumeration is None:
        return None, None
    candidates = {
        "the model's own among valid answers": enumeration.conditional,
        "masked token by token": enumeration.projected,
    }
    name = max(candidates, key=lambda name: p_of(counts, candidates[name]))
    return (name, candidates[name]) if p_of(counts, candidates[name]) >= FITS else (None, None)


async def _grammar(pair: PoolPair) -> CheckOutcome:
    ask = _request(pair.speculative, THEIRS)
    probe = await pair.standard.ask(_request(pair.standard, 0, tells=True))
    tells = not probe.refused

    async def draw(first: int, number: int) -> tuple[list[Reply], list[Reply], list[PoolOutcome]]:
        standard, speculative = await asyncio.gather(
            _draw(pair.standard, first, number, tells), _draw(pair.speculative, THEIRS + first, number, False)
        )
        sides = [_outcome(replies, ask) for replies in (standard, speculative)]
        return standard, speculative, sides

    number = pair.settings.samples
    standard, speculative, sides = await draw(0, number)
    if any(side.state != "ok" for side in sides):
        return held(sides[0], sides[1], "")
    first = await asyncio.to_thread(compare_draws, standard, speculative)
    evidence: dict[str, object] = {"samples": number, "p": first.p, "reference": first.reference}
    evidence["total_variation"] = first.distance
    if first.p > ALPHA:
        message = f"{_words(first, number)}, p = {first.p:.2g}: no difference found"
        return CheckOutcome("pass", message, ask, evidence=evidence)
    standard, speculative, sides = await draw(number, SECOND * number)
    if any(side.state != "ok" for side in sides):
        return held(sides[0], sides[1], "")
    second = await asyncio.to_thread(compare_draws, standard, speculative)
    evidence |= {"second_p": second.p, "second_samples": SECOND * number}
    evidence |= {"reference": second.reference, "total_variation": second.distance}
    status, message = of_both_looks(first.p, second.p)
    return CheckOutcome(status, f"{message}; {_words(second, SECOND * number)}", ask, evidence=evidence)


def _words(look: Look, number: int) -> str:
    how = look.reference or "not enumerated, so two samples are compared"
    return (
        f"the standard's distribution is {how}; total variation {look.distance:.2f} (n = {number} per pool)"
    )


GRAMMAR = ConformanceCheck(
    "grammar",
    "sampled answers under a small grammar are distributed as the standard's",
    _grammar,
    "response_format",
)
