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
from specops.phases.canary.client import CanaryRequest, Pool, Reply
from specops.phases.canary.pool_pair import Check, Outcome, Pair, Status, trouble
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


async def _distribution(pair: Pair) -> Outcome:
    prompts = [_tail(prompt) for prompt in pair.prompts[:PROMPTS]]
    each = -(-pair.settings.samples // len(prompts))
    both = (pair.standard, pair.speculative)
    tells = all(await asyncio.gather(*(_tells(pool, prompts[0]) for pool in both)))

    def asks(pool: Pool, first: int, count: int) -> list[CanaryRequest]:
        first += THEIRS if pool is pair.speculative else 0
        plain = [
            pool.asking(prompt, max_tokens=TOKENS, temperature=1.0, seed=seed)
            for prompt in prompts
            for seed in range(first, first + count)
        ]
        return [ask.with_logprobs(TOP) for ask in plain] if tells else plain

    async def draw(pool: Pool, first: int, count: int) -> list[list[SampledAnswer]] | Outcome:
        wanted = asks(pool, first, count)
        replies = await pool.ask_all(wanted)
        for reply, ask in zip(replies, wanted, strict=True):
            if side := trouble(reply, ask):
                wrong = side.state == "wrong" and pool is pair.speculative
                return Outcome("fail" if wrong else "undecided", f"the {pool.name} pool: {side.message}", ask)
        drawn = [_drawn(reply) for reply in replies]
        return [drawn[i : i + count] for i in range(0, len(drawn), count)]

    async def look(first: int, count: int) -> tuple[list[list[SampledAnswer]], float] | Outcome:
        ours, theirs = await asyncio.gather(
            draw(pair.standard, first, count), draw(pair.speculative, first, count)
        )
        if isinstance(ours, Outcome):
            return ours
        if isinstance(theirs, Outcome):
            return theirs
        return ours, await asyncio.to_thread(two_samples.p_value, ours, theirs)

    observed = await look(0, each)
    if isinstance(observed, Outcome):
        return observed
    ours, first = observed
    shown = await asyncio.to_thread(two_samples.shown, ours, ALPHA)
    evidence: dict[str, object] = {"samples": each * len(prompts), "p": first, "alpha": ALPHA}
    evidence |= {"detectable_total_variation": shown.pieces, "detectable_nats": shown.nats}
    ask = asks(pair.speculative, 0, 1)[0]
    if first > ALPHA:
        message = (
            f"no difference found (p = {first:.2g}, n = {each * len(prompts)} per pool); {_power(shown)}"
        )
        status: Status = "undecided" if shown.pieces is None and shown.nats is None else "pass"
        return Outcome(status, message, ask, evidence=evidence)
    observed = await look(each, SECOND * each)
    if isinstance(observed, Outcome):
        return observed
    _, second = observed
    evidence |= {"second_p": second, "second_samples": SECOND * each * len(prompts)}
    message = f"p = {first:.2g}, then p = {second:.2g} with {SECOND}× as many new answers"
    if second > OPEN:
        message = f"first test differs, second test does not: {message}"
        return Outcome("pass", message, ask, evidence=evidence)
    if first * second > PRODUCT:
        return Outcome(
            "undecided",
            f"undecided whether the distributions differ: {message}; raise canary.samples",
            ask,
            evidence=evidence,
        )
    return Outcome("fail", f"sampled answers are not the standard's: {message}", ask, evidence=evidence)


def _power(shown: two_samples.DetectableDifferences) -> str:
    found = [f"total variation {shown.pieces:.2f} per word"] if shown.pieces is not None else []
    found += [f"{shown.nats:.2g} nats per token"] if shown.nats is not None else []
    if not found:
        return "too few answers to detect a difference: raise canary.samples"
    return f"detectable in {two_samples.POWER:.0%} of runs: {', or '.join(found)}"


async def _tells(pool: Pool, prompt: Prompt) -> bool:
    """Return whether the server reports log-probabilities."""
    reply = await pool.ask(pool.asking(prompt, max_tokens=2, temperature=1.0, seed=0).with_logprobs(TOP))
    return reply.first.tokens is not None


def _drawn(reply: Reply) -> SampledAnswer:
    tokens = reply.first.tokens
    if tokens is None or not all(token.top for token in tokens):
        return SampledAnswer(reply.text)  # llama.cpp has none of accepted drafts: `logprobs` finds that
    surprise = sum(token.logprob - two_samples.expected(token.top[:TOP]) for token in tokens)
    return SampledAnswer(reply.text, surprise / TOKENS)


def _tail(prompt: Prompt) -> Prompt:
    return replace(prompt, content=prompt.content[-TAIL:]) if isinstance(prompt.content, str) else prompt


DISTRIBUTION = Check("distribution", "sampled answers are distributed as the standard's", _distribution)
