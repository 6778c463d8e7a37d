"""Parameters of sampling, each at the value at which its effect is certain.

With top_k 1, min_p 1 or a tiny top_p only the likeliest token is left, so that at any temperature the answer
is the greedy one. Two tokens that are equal to the last bit may change one prompt's answer; one that ignores
the parameter changes nearly all.
"""

from __future__ import annotations

import asyncio

from specops.phases.canary.asking import Ask, Pool
from specops.phases.canary.finding import Side, trouble
from specops.phases.canary.pair import Check, Look, Pair, of_each, same_texts
from specops.phases.canary.reply import Choice

TOKENS = 24
HOT = 1.5
CHOICES = 3
BIASED = 50
"""A token's id: with most tokenizers one of a printable character."""
LARGEST_BIAS = 100.0


def leaves_one(parameter: str, value: float) -> Look:
    """That with `parameter` at `value` a hot request is answered greedily."""

    async def look(pool: Pool, pair: Pair) -> Side:
        hot = [
            pool.asking(p, max_tokens=TOKENS, temperature=HOT, seed=seed, **{parameter: value})
            for seed, p in enumerate(pair.few)
        ]
        if side := trouble(await pool.ask(hot[0]), hot[0]):
            return side
        same = await same_texts(pool, [pool.greedy(prompt, TOKENS) for prompt in pair.few], hot)
        return judged(
            same, f"{parameter} {value:g} leaves one token, and {{}} of {{}} answers are others", hot[0]
        )

    return look


def judged(same: list[bool | None], told: str, ask: Ask) -> Side:
    """`ignored` where more than half are unlike; `told` has a place for how many, and of how many."""
    known = [one for one in same if one is not None]
    unlike = sum(not one for one in known)
    if len(known) <= len(same) / 2:
        return Side("unsure", "its answers at temperature 0 differ between repeats", ask)
    if unlike > len(known) / 2:
        return Side("ignored", told.format(unlike, len(known)), ask)
    return Side("ok", ask=ask)


async def seeds(pool: Pool, pair: Pair) -> Side:
    # hot: at temperature 1 a model that is sure of its text gives the same one again without any seed
    asks = [pool.asking(p, max_tokens=TOKENS, temperature=HOT, seed=7) for p in pair.few]
    replies = [await pool.ask_all(asks) for _ in range(2)]
    for reply, ask in zip(replies[0] + replies[1], asks + asks, strict=True):
        if side := trouble(reply, ask):
            return side
    same: list[bool | None] = [a.text == b.text for a, b in zip(*replies, strict=True)]
    return judged(same, "{} of {} answers differ when repeated with their seed", asks[0])


async def several(pool: Pool, pair: Pair) -> Side:
    """n choices, each whole, in a stream too, and all of them counted."""
    ask = pool.asking(pair.few[0], max_tokens=TOKENS, temperature=1.0, seed=7, n=CHOICES)
    for asked in (ask, ask.streaming()):
        reply = await pool.ask(asked)
        if side := trouble(reply, asked):
            return side
        found = [reply.choices.get(index, Choice()) for index in range(CHOICES)]
        if len(reply.choices) == 1:
            return Side("ignored", f"n = {CHOICES} gave one answer", asked)
        if len(reply.choices) != CHOICES or not all(choice.finish_reason for choice in found):
            return Side("wrong", f"n = {CHOICES} gave {len(reply.choices)} or broken ones", asked)
        if len({choice.text for choice in found}) == 1:
            return Side("wrong", f"all {CHOICES} answers are the same at temperature 1", asked)
        counted = reply.usage.completion if reply.usage else None
        whole = all(choice.finish_reason == "length" for choice in found)
        if whole and counted is not None and counted != CHOICES * TOKENS:
            told = f"{CHOICES} answers of {TOKENS} tokens are counted as {counted}"
            return Side("wrong", told, asked)
    return Side("ok", ask=ask)


async def biased(pool: Pool, pair: Pair) -> Side:
    """At the largest bias every token of the answer is the biased one."""
    asks = [pool.greedy(p, 6).having(logit_bias={str(BIASED): LARGEST_BIAS}) for p in pair.few[:2]]
    plain = await asyncio.gather(*(pool.plain(pool.greedy(p, 6)) for p in pair.few[:2]))
    for ask, before, reply in zip(asks, plain, await pool.ask_all(asks), strict=True):
        if side := trouble(reply, ask):
            return side
        if reply.text and reply.text == before.text:
            return Side("ignored", "an answer is the same with the largest logit_bias", ask)
        unit = reply.text[: max(1, len(reply.text) // 6)]
        if reply.text.replace(unit, "") and reply.first.finish_reason == "length":
            return Side("wrong", f"only one token could be likely, and it wrote {reply.text[:40]!r}", ask)
    return Side("ok", ask=asks[0])


CHECKS: tuple[Check, ...] = (
    of_each("seed", "an answer comes again with its seed", seeds, "seed"),
    of_each("n", f"n = {CHOICES} gives {CHOICES} answers, all counted", several, "n"),
    of_each("logit_bias", "logit_bias decides where it is large", biased, "logit_bias"),
    of_each("min_p", "min_p is applied", leaves_one("min_p", 1.0), "min_p"),
    of_each("top_p", "top_p is applied", leaves_one("top_p", 0.001), "top_p"),
    of_each("top_k", "top_k is applied", leaves_one("top_k", 1), "top_k"),
)
