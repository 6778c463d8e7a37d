"""Parameters of sampling, each at the value at which its effect is certain.

With top_k 1, min_p 1 or a tiny top_p only the likeliest token is left, so that at any temperature the answer
is the greedy one. Two tokens that are equal to the last bit may change one prompt's answer; one that ignores
the parameter changes nearly all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from specops.experiment.answers import NEAR_TIE
from specops.phases.canary.client import AnswerChoice, CanaryRequest, PoolClient, Reply, Token
from specops.phases.canary.pool_pair import (
    PLAIN_TOKENS,
    CheckFunction,
    CheckOutcome,
    ConformanceCheck,
    PoolOutcome,
    PoolPair,
    held,
    of_each,
    same_texts,
    trouble,
)
from specops.phases.canary.two_samples import same_share

TOKENS = 24
HOT = 1.5
CHOICES = 3
BIASED = 50
"""A token's id: with most tokenizers one of a printable character."""
LARGEST_BIAS = 100.0


def leaves_one(parameter: str, value: float) -> CheckFunction:
    """Return a check that with `parameter` at `value` a hot request is answered greedily."""

    async def look(pool: PoolClient, pair: PoolPair) -> PoolOutcome:
        hot = [
            pool.asking(p, max_tokens=TOKENS, temperature=HOT, seed=seed, **{parameter: value})
            for seed, p in enumerate(pair.few)
        ]
        if side := trouble(await pool.ask(hot[0]), hot[0]):
            return side
        same = await same_texts(pool, [pool.greedy(prompt, TOKENS) for prompt in pair.few], hot)
        return judged(
            same,
            f"{parameter} {value:g} allows only one token, but {{}} of {{}} answers differ from the greedy"
            " answer",
            hot[0],
        )

    return look


def judged(same: list[bool | None], message: str, ask: CanaryRequest) -> PoolOutcome:
    """`ignored` where more than half are unlike; `message` has a place for how many, and of how many."""
    answered = [equal for equal in same if equal is not None]
    unlike = sum(not equal for equal in answered)
    if len(answered) <= len(same) / 2:
        return PoolOutcome("unsure", "its answers at temperature 0 differ between repeats", ask)
    if unlike > len(answered) / 2:
        return PoolOutcome("ignored", message.format(unlike, len(answered)), ask)
    return PoolOutcome("ok", ask=ask)


async def seeds(pool: PoolClient, pair: PoolPair) -> PoolOutcome:
    # hot: at temperature 1 a model that is sure of its text gives the same one again without any seed
    asks = [pool.asking(p, max_tokens=TOKENS, temperature=HOT, seed=7) for p in pair.few]
    replies = [await pool.ask_all(asks) for _ in range(2)]
    for reply, ask in zip(replies[0] + replies[1], asks + asks, strict=True):
        if side := trouble(reply, ask):
            return side
    same: list[bool | None] = [a.text == b.text for a, b in zip(*replies, strict=True)]
    return judged(same, "{} of {} answers differ when repeated with their seed", asks[0])


async def several(pool: PoolClient, pair: PoolPair) -> PoolOutcome:
    """n choices, each whole, in a stream too, and all of them counted."""
    ask = pool.asking(pair.few[0], max_tokens=TOKENS, temperature=1.0, seed=7, n=CHOICES)
    for requested in (ask, ask.streaming()):
        reply = await pool.ask(requested)
        if side := trouble(reply, requested):
            return side
        choices = [reply.choices.get(index, AnswerChoice()) for index in range(CHOICES)]
        if len(reply.choices) == 1:
            return PoolOutcome("ignored", f"n = {CHOICES} gave one answer", requested)
        if len(reply.choices) != CHOICES or not all(choice.finish_reason for choice in choices):
            message = f"n = {CHOICES}: got {len(reply.choices)} choices, or choices without a finish reason"
            return PoolOutcome("wrong", message, requested)
        if len({choice.text for choice in choices}) == 1:
            return PoolOutcome("wrong", f"all {CHOICES} answers are the same at temperature 1", requested)
        counted = reply.usage.completion if reply.usage else None
        whole = all(choice.finish_reason == "length" for choice in choices)
        if whole and counted is not None and counted != CHOICES * TOKENS:
            message = f"{CHOICES} answers of {TOKENS} tokens are counted as {counted}"
            return PoolOutcome("wrong", message, requested)
    return PoolOutcome("ok", ask=ask)


async def biased(pool: PoolClient, pair: PoolPair) -> PoolOutcome:
    """Check that at the largest bias every token of the answer is the biased one."""
    asks = [pool.greedy(p, 6).with_fields(logit_bias={str(BIASED): LARGEST_BIAS}) for p in pair.few[:2]]
    plain = await asyncio.gather(*(pool.plain(pool.greedy(p, 6)) for p in pair.few[:2]))
    for ask, before, reply in zip(asks, plain, await pool.ask_all(asks), strict=True):
        if side := trouble(reply, ask):
            return side
        if reply.text and reply.text == before.text:
            return PoolOutcome("ignored", "an answer is the same with the largest logit_bias", ask)
        unit = reply.text[: max(1, len(reply.text) // 6)]
        if reply.text.replace(unit, "") and reply.first.finish_reason == "length":
            return PoolOutcome(
                "wrong", f"only one token could be likely, and it wrote {reply.text[:40]!r}", ask
            )
    return PoolOutcome("ok", ask=asks[0])


CHECKS: tuple[ConformanceCheck, ...] = (
    of_each("seed", "the same seed gives the same answer", seeds, "seed"),
    of_each("n", f"n = {CHOICES} gives {CHOICES} answers, all counted", several, "n"),
    of_each("logit_bias", "logit_bias decides where it is large", biased, "logit_bias"),
    of_each("min_p", "min_p is applied", leaves_one("min_p", 1.0), "min_p"),
    of_each("top_p", "top_p is applied", leaves_one("top_p", 0.001), "top_p"),
    of_each("top_k", "top_k is applied", leaves_one("top_k", 1), "top_k"),
)

TEMPERATURES = (0.1, HOT)
SAMPLES = 64
"""Answers at each temperature, by pool."""
BEGINNING = 6
"""Tokens: at a low temperature nearly all answers begin as the greedy one, at a high one few do."""
NOTABLE, SURE = 0.02, 1e-4
"""p of a first look, after which new answers are requested, and of those."""


async def _temperature(pair: PoolPair) -> CheckOutcome:
    """Count at a low and at a high temperature the answers that begin as the standard's greedy one."""
    greedy = {
        prompt.id: (await pair.standard.plain(pair.standard.greedy(prompt, BEGINNING))).text
        for prompt in pair.prompts
    }

    async def count(pool: PoolClient, temperature: float, first: int) -> int | PoolOutcome:
        """How many of SAMPLES; or why one is not an answer."""
        prompts = [pair.prompts[number % len(pair.prompts)] for number in range(SAMPLES)]
        asks = [
            pool.asking(prompt, max_tokens=BEGINNING, temperature=temperature, seed=first + number)
            for number, prompt in enumerate(prompts)
        ]
        replies = await pool.ask_all(asks)
        troubles = (trouble(reply, ask) for reply, ask in zip(replies, asks, strict=True))
        if side := next((side for side in troubles if side), None):
            return side
        return sum(reply.text == greedy[prompt.id] for reply, prompt in zip(replies, prompts, strict=True))

    example = pair.speculative.asking(pair.prompts[0], max_tokens=BEGINNING, temperature=HOT)
    counts: dict[str, list[int]] = {"standard": [], "speculative": []}
    for temperature in TEMPERATURES:
        for first, limit in ((0, NOTABLE), (SAMPLES, SURE)):
            results = await asyncio.gather(
                count(pair.standard, temperature, first), count(pair.speculative, temperature, first)
            )
            standard, speculative = results
            if isinstance(standard, PoolOutcome) or isinstance(speculative, PoolOutcome):
                sides = [
                    side if isinstance(side, PoolOutcome) else PoolOutcome("ok", ask=example)
                    for side in results
                ]
                return held(sides[0], sides[1], "")
            p = same_share(standard, SAMPLES, speculative, SAMPLES)
            if p >= limit:
                break
        else:
            message = (
                f"at temperature {temperature:g}, {speculative} of {SAMPLES} answers begin as the greedy one;"
                f" {standard} of the standard pool's (p = {p:.1g})"
            )
            shows = example.with_fields(temperature=temperature)
            return CheckOutcome("fail", message, shows, evidence={"temperature": temperature, "p": p})
        counts["standard"].append(standard)
        counts["speculative"].append(speculative)
    low, high = counts["standard"]
    message = f"{low} of {SAMPLES} answers begin as the greedy one at {TEMPERATURES[0]:g}, {high} at {HOT:g}"
    if same_share(low, SAMPLES, high, SAMPLES) > NOTABLE:
        return CheckOutcome("undecided", f"the standard's own answers show no effect: {message}", example)
    return CheckOutcome(
        "pass", f"temperature works as on the standard pool: {message}", example, evidence=dict(counts)
    )


TEMPERATURE = ConformanceCheck("temperature", "temperature is applied", _temperature)

PROMPTS = 6
PENALTIES = {"presence_penalty": 2.0, "frequency_penalty": 2.0, "repetition_penalty": 1.5}


def judge(
    parameter: str, plain: list[Reply], once: list[Reply], again: list[Reply], speculative: list[Reply]
) -> tuple[PoolOutcome, PoolOutcome]:
    """Return how the standard and the speculative pool did. `plain` is the standard's without the penalty,
    `once` and `again` with it, `speculative` the speculative pool's with it; all of the same prompts."""
    changed = [i for i, reply in enumerate(once) if reply.text != plain[i].text]
    steady = [i for i in changed if once[i].text == again[i].text]
    if not changed:
        return PoolOutcome("ignored", f"{parameter} changes none of {len(once)} answers"), PoolOutcome("ok")
    if not steady:
        return PoolOutcome("unsure", "the standard differs from itself at temperature 0"), PoolOutcome("ok")
    unlike = [i for i in steady if speculative[i].text != once[i].text]
    if 2 * len(unlike) <= len(steady):
        return PoolOutcome("ok"), PoolOutcome("ok")
    if all(speculative[i].text == plain[i].text for i in unlike):
        return PoolOutcome("ok"), PoolOutcome(
            "ignored", f"{parameter} changes nothing in {len(unlike)} of {len(steady)} answers"
        )
    return PoolOutcome("ok"), PoolOutcome(
        "wrong", f"{len(unlike)} of {len(steady)} answers are not the standard's"
    )


def penalty(parameter: str, value: float) -> ConformanceCheck:
    async def run(pair: PoolPair) -> CheckOutcome:
        prompts = pair.prompts[:PROMPTS]

        async def ask(pool: PoolClient) -> tuple[list[Reply], PoolOutcome | None]:
            fields = {await pool.called(parameter): value}
            asks = [pool.greedy(prompt, PLAIN_TOKENS).with_fields(**fields) for prompt in prompts]
            replies = await pool.ask_all(asks)
            troubles = (trouble(reply, request) for reply, request in zip(replies, asks, strict=True))
            return replies, next((side for side in troubles if side), None)

        (once, bad), (speculative_replies, worse) = await asyncio.gather(
            ask(pair.standard), ask(pair.speculative)
        )
        penalty = {await pair.speculative.called(parameter): value}
        shows = pair.speculative.greedy(prompts[0], PLAIN_TOKENS).with_fields(**penalty)
        if bad or worse:
            return held(bad or PoolOutcome("ok", ask=shows), worse or PoolOutcome("ok", ask=shows), "")
        again, _ = await ask(pair.standard)
        asks = [pair.standard.greedy(prompt, PLAIN_TOKENS) for prompt in prompts]
        plain = [await pair.standard.plain(request) for request in asks]
        standard, speculative = judge(parameter, plain, once, again, speculative_replies)
        if (
            standard.state == "ignored"
        ):  # then so it does for the speculative pool, or it is distinguished there
            own = [await pair.speculative.plain(pair.speculative.greedy(p, PLAIN_TOKENS)) for p in prompts]
            same = all(a.text == b.text for a, b in zip(own, speculative_replies, strict=True))
            speculative = PoolOutcome("ignored", standard.message) if same else PoolOutcome("ok")
        outcome = held(standard, speculative, f"{parameter} changes answers as the standard's")
        return replace(outcome, ask=shows, among=(), evidence={"prompts": len(prompts)})

    about = f"{parameter} works as on the standard pool"
    return ConformanceCheck(parameter, about, run, parameter, feature=True)  # type: ignore[arg-type]


PENALTY_CHECKS = tuple(penalty(parameter, value) for parameter, value in PENALTIES.items())

OFF = 0.1
"""Nats, on average: in bfloat16 a verification rounds otherwise than a single step, by a few hundredths."""
ROUNDING = 1e-4


def sound(reply: Reply, ask: CanaryRequest) -> PoolOutcome:
    """Check the log-probabilities of one greedy answer by itself."""
    tokens = reply.first.tokens
    if tokens is None:
        return PoolOutcome("ignored", "logprobs were requested, and none came", ask)
    counted = reply.usage.completion if reply.usage else len(tokens)
    if len(tokens) != counted:
        return PoolOutcome("wrong", f"it gave {len(tokens)} logprobs for {counted} tokens", ask)
    if any(token.logprob > ROUNDING for token in tokens):
        return PoolOutcome("wrong", "a log-probability is above 0", ask)
    bare = sum(not token.top for token in tokens)
    if 0 < bare < len(tokens):
        first = next(token for token in tokens if not token.top)
        example = f"{first.text!r} with a logprob of {first.logprob:g}"
        message = f"{bare} of {len(tokens)} tokens have no top log-probabilities, such as {example}"
        return PoolOutcome("wrong", message, ask)
    below = [token for token in tokens if token.top and token.top[0] - token.logprob > NEAR_TIE]
    if below:
        nats = below[0].top[0] - below[0].logprob
        message = f"a greedy token {below[0].text!r} is {nats:.2f} nats below the likeliest"
        return PoolOutcome("wrong", message, ask)
    return PoolOutcome("ok", ask=ask)


def logprob_distances(standard: Sequence[Token], speculative: Sequence[Token]) -> list[float]:
    """Return how far the log-probabilities are apart, in nats, as long as the tokens are the same."""
    distances = []
    for left, right in zip(standard, speculative, strict=False):
        if left.text != right.text:
            break
        distances.append(abs(left.logprob - right.logprob))
    return distances


async def _logprobs(pair: PoolPair) -> CheckOutcome:
    async def ask(pool: PoolClient) -> tuple[list[Reply], PoolOutcome]:
        asks = [pool.greedy(prompt, TOKENS).with_logprobs(2) for prompt in pair.few]
        replies = await pool.ask_all(asks)
        sides = [
            trouble(reply, request) or sound(reply, request)
            for reply, request in zip(replies, asks, strict=True)
        ]
        return replies, next((side for side in sides if side.state != "ok"), sides[0])

    (standard_replies, standard), (speculative_replies, speculative) = await asyncio.gather(
        ask(pair.standard), ask(pair.speculative)
    )
    if standard.state != "ok" or speculative.state != "ok":
        return held(standard, speculative, "")
    again, _ = await ask(pair.standard)

    def off(replies: list[Reply]) -> list[float]:
        per_reply = (
            logprob_distances(a.first.tokens or (), b.first.tokens or ())
            for a, b in zip(standard_replies, replies, strict=True)
        )
        return [value for values in per_reply for value in values]

    control, between = off(again), off(speculative_replies)
    if not between or not control:
        return CheckOutcome(
            "undecided", "the answers share no token, so that nothing can be compared", speculative.ask
        )
    mean, own = sum(between) / len(between), sum(control) / len(control)
    message = (
        f"{mean:.2g} nats apart on average over {len(between)} tokens; the standard from itself, {own:.2g}"
    )
    evidence = {"nats": mean, "control_nats": own, "tokens": len(between)}
    if own > OFF / 2:
        return CheckOutcome(
            "undecided", f"the standard is not steady: {message}", speculative.ask, evidence=evidence
        )
    return CheckOutcome("fail" if mean > OFF else "pass", message, speculative.ask, evidence=evidence)


LOGPROBS = ConformanceCheck(
    "logprobs", "log-probabilities are the standard's", _logprobs, "logprobs", feature=True
)
