"""Log-probabilities are the target's: one for each token, of the token that was chosen, as the standard's.

A server that reports its draft's, or those of tokens that were rejected, answers well otherwise.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from specops.phases.ab.parity import NEAR_TIE
from specops.phases.canary.asking import Ask, Pool
from specops.phases.canary.finding import Outcome, Side, held, trouble
from specops.phases.canary.pair import Check, Pair
from specops.phases.canary.reply import Reply, Token

TOKENS = 24
OFF = 0.1
"""Nats, on average: in bfloat16 a verification rounds otherwise than a single step, by a few hundredths."""
ROUNDING = 1e-4


def sound(reply: Reply, ask: Ask) -> Side:
    """Of one greedy answer by itself."""
    tokens = reply.first.tokens
    if tokens is None:
        return Side("ignored", "logprobs were requested, and none came", ask)
    counted = reply.usage.completion if reply.usage else len(tokens)
    if len(tokens) != counted:
        return Side("wrong", f"it gave {len(tokens)} logprobs for {counted} tokens", ask)
    if any(token.logprob > ROUNDING for token in tokens):
        return Side("wrong", "a log-probability is above 0", ask)
    bare = sum(not token.top for token in tokens)
    if 0 < bare < len(tokens):
        told = f"{bare} of {len(tokens)} tokens have no top log-probabilities, such as {_first_bare(tokens)}"
        return Side("wrong", told, ask)
    below = [token for token in tokens if token.top and token.top[0] - token.logprob > NEAR_TIE]
    if below:
        nats = below[0].top[0] - below[0].logprob
        told = f"a greedy token {below[0].text!r} is {nats:.2f} nats below the likeliest"
        return Side("wrong", told, ask)
    return Side("ok", ask=ask)


def _first_bare(tokens: Sequence[Token]) -> str:
    return next(f"{token.text!r} with a logprob of {token.logprob:g}" for token in tokens if not token.top)


def apart(ours: Sequence[Token], theirs: Sequence[Token]) -> list[float]:
    """How far the log-probabilities are apart, in nats, as long as the tokens are the same."""
    found = []
    for one, other in zip(ours, theirs, strict=False):
        if one.text != other.text:
            break
        found.append(abs(one.logprob - other.logprob))
    return found


async def _logprobs(pair: Pair) -> Outcome:
    async def ask(pool: Pool) -> tuple[list[Reply], Side]:
        asks = [pool.greedy(prompt, TOKENS).telling(2) for prompt in pair.few]
        replies = await pool.ask_all(asks)
        sides = [trouble(reply, one) or sound(reply, one) for reply, one in zip(replies, asks, strict=True)]
        return replies, next((side for side in sides if side.state != "ok"), sides[0])

    (ours, standard), (theirs, speculative) = await asyncio.gather(ask(pair.standard), ask(pair.speculative))
    if standard.state != "ok" or speculative.state != "ok":
        return held(standard, speculative, "")
    again, _ = await ask(pair.standard)

    def off(others: list[Reply]) -> list[float]:
        found = (apart(a.first.tokens or (), b.first.tokens or ()) for a, b in zip(ours, others, strict=True))
        return [value for values in found for value in values]

    control, between = off(again), off(theirs)
    if not between or not control:
        return Outcome(
            "undecided", "the answers share no token, so that nothing can be compared", speculative.ask
        )
    mean, own = sum(between) / len(between), sum(control) / len(control)
    told = f"{mean:.2g} nats apart on average over {len(between)} tokens; the standard from itself, {own:.2g}"
    evidence = {"nats": mean, "control_nats": own, "tokens": len(between)}
    if own > OFF / 2:
        return Outcome("undecided", f"the standard is not steady: {told}", speculative.ask, evidence=evidence)
    return Outcome("fail" if mean > OFF else "pass", told, speculative.ask, evidence=evidence)


LOGPROBS = Check("logprobs", "log-probabilities are the standard's", _logprobs, "logprobs")
