"""The check that at temperature 1 both pools draw their answers from one distribution, as lossless means
there.

Two looks at fresh samples: the second, at three times as many, only where the first finds a difference. What
counts is the product of their two chances, so that a false alarm takes two accidents: one run in 10,000.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from specops.load.workload import Prompt
from specops.phases.canary import two_samples
from specops.phases.canary.client import CanaryRequest, PoolClient, Reply
from specops.phases.canary.pool_pair import CheckOutcome, ConformanceCheck, PoolPair, Status, trouble
from specops.phases.canary.two_samples import SampledAnswer

ALPHA = 0.01
"""Error of the first look."""
PRODUCT = 1.3e-5
"""Limit of the product of both p values. Behind a first of at most ALPHA its chance is c (1 + ln (ALPHA /
c)), c being this."""
OPEN = 0.05
"""Limit of the p value of the second look: above it, the first was chance."""
PROMPTS = 4
TAIL = 100
"""Characters of a prompt's end that are sent: many short answers cost what their prompts cost to read."""
TOKENS = 16
TOP = 5
SECOND = 3
"""Times as many samples in the second look."""
THEIRS = 1_000_000
"""Seeds from here on are the speculative pool's: with the same ones, answers might be alike for no merit."""


async def _distribution(pair: PoolPair) -> CheckOutcome:
    prompts = [tail(prompt) for prompt in pair.prompts[:PROMPTS]]
    per_prompt = -(-pair.settings.samples // len(prompts))
    pools = (pair.standard, pair.speculative)
    tells = all(await asyncio.gather(*(_tells(pool, prompts[0]) for pool in pools)))

    def asks(pool: PoolClient, first: int, count: int) -> list[CanaryRequest]:
        first += THEIRS if pool is pair.speculative else 0
        plain = [
            pool.asking(prompt, max_tokens=TOKENS, temperature=1.0, seed=seed)
            for prompt in prompts
            for seed in range(first, first + count)
        ]
        return [ask.with_logprobs(TOP) for ask in plain] if tells else plain

    async def draw(pool: PoolClient, first: int, count: int) -> list[list[SampledAnswer]] | CheckOutcome:
        requests = asks(pool, first, count)
        replies = await pool.ask_all(requests)
        for reply, ask in zip(replies, requests, strict=True):
            if side := trouble(reply, ask):
                wrong = side.state == "wrong" and pool is pair.speculative
                return CheckOutcome(
                    "fail" if wrong else "undecided", f"the {pool.name} pool: {side.message}", ask
                )
        drawn = [_drawn(reply) for reply in replies]
        return [drawn[i : i + count] for i in range(0, len(drawn), count)]

    async def look(first: int, count: int) -> tuple[list[list[SampledAnswer]], float] | CheckOutcome:
        standard_answers, speculative_answers = await asyncio.gather(
            draw(pair.standard, first, count), draw(pair.speculative, first, count)
        )
        if isinstance(standard_answers, CheckOutcome):
            return standard_answers
        if isinstance(speculative_answers, CheckOutcome):
            return speculative_answers
        return standard_answers, await asyncio.to_thread(
            two_samples.p_value, standard_answers, speculative_answers
        )

    observed = await look(0, per_prompt)
    if isinstance(observed, CheckOutcome):
        return observed
    standard_answers, first = observed
    detectable = await asyncio.to_thread(two_samples.detectable_differences, standard_answers, ALPHA)
    evidence: dict[str, object] = {"samples": per_prompt * len(prompts), "p": first, "alpha": ALPHA}
    evidence |= {"detectable_total_variation": detectable.pieces, "detectable_nats": detectable.nats}
    ask = asks(pair.speculative, 0, 1)[0]
    if first > ALPHA:
        size = f"n = {per_prompt * len(prompts)} per pool"
        message = f"no difference found (p = {first:.2g}, {size}); {_power(detectable)}"
        status: Status = "undecided" if detectable.pieces is None and detectable.nats is None else "pass"
        return CheckOutcome(status, message, ask, evidence=evidence)
    observed = await look(per_prompt, SECOND * per_prompt)
    if isinstance(observed, CheckOutcome):
        return observed
    _, second = observed
    evidence |= {"second_p": second, "second_samples": SECOND * per_prompt * len(prompts)}
    status, message = of_both_looks(first, second)
    return CheckOutcome(status, message, ask, evidence=evidence)


def of_both_looks(first: float, second: float) -> tuple[Status, str]:
    """Return what follows from the p values of a first look of at most ALPHA, and of a second one."""
    message = f"p = {first:.2g}, then p = {second:.2g} with {SECOND}× as many new answers"
    if second > OPEN:
        return "pass", f"first test differs, second test does not: {message}"
    if first * second > PRODUCT:
        return "undecided", f"undecided whether the distributions differ: {message}; raise canary.samples"
    return "fail", f"sampled answers are not the standard's: {message}"


def _power(differences: two_samples.DetectableDifferences) -> str:
    parts = [f"total variation {differences.pieces:.2f} per word"] if differences.pieces is not None else []
    parts += [f"{differences.nats:.2g} nats per token"] if differences.nats is not None else []
    if not parts:
        return "too few answers to detect a difference: raise canary.samples"
    return f"detectable in {two_samples.POWER:.0%} of runs: {', or '.join(parts)}"


async def _tells(pool: PoolClient, prompt: Prompt) -> bool:
    """Return whether the server reports log-probabilities."""
    reply = await pool.ask(pool.asking(prompt, max_tokens=2, temperature=1.0, seed=0).with_logprobs(TOP))
    return reply.first.tokens is not None


def _drawn(reply: Reply) -> SampledAnswer:
    tokens = reply.first.tokens
    if tokens is None or not all(token.top for token in tokens):
        return SampledAnswer(reply.text)  # llama.cpp has none of accepted drafts: `logprobs` finds that
    surprise = sum(token.logprob - two_samples.expected(token.top[:TOP]) for token in tokens)
    return SampledAnswer(reply.text, surprise / TOKENS)


def tail(prompt: Prompt) -> Prompt:
    return replace(prompt, content=prompt.content[-TAIL:]) if isinstance(prompt.content, str) else prompt


DISTRIBUTION = ConformanceCheck(
    "distribution", "sampled answers are distributed as the standard's", _distribution
)
