"""Long prompts: near the model's limit they are answered as by the standard, up to the last token that fits,
and beyond it refused."""

from __future__ import annotations

import asyncio
from itertools import cycle

from specops.errors import PromptsError
from specops.experiment.answers import NEAR_TIE
from specops.load.workload import Prompt
from specops.phases.canary.checks.parity import TOP, difference, margin_of
from specops.phases.canary.client import CanaryRequest, PoolClient, Reply
from specops.phases.canary.pool_pair import (
    CheckOutcome,
    ConformanceCheck,
    PoolOutcome,
    PoolPair,
    held,
    of_each,
    trouble,
)

TOKENS = 32
SHRINK = 0.85
ATTEMPTS = 4
PER_TOKEN = 3.0
"""Characters, where the pool does not count a prompt's tokens."""
ROOM = 64
"""Tokens that a prompt leaves for an answer up to the limit, about."""
BEGINNINGS = 6
"""Long prompts that are tried while answers part at near ties: that so many do is no chance."""
LARGEST = 3_000_000
"""Characters of a request that a server must refuse unread."""


async def text_of(pair: PoolPair, tokens: int) -> str:
    """Return about so many tokens of the prompts' own text."""
    sample = [prompt for prompt in pair.prompts if _plain(prompt)] or [Prompt("", "", "a word and another. ")]
    replies = [await pair.standard.plain(pair.standard.greedy(prompt, 1)) for prompt in sample[:2]]
    counted = sum(reply.usage.prompt for reply in replies if reply.usage)
    length = sum(len(_plain(prompt)) for prompt in sample[:2])
    characters_per_token = length / counted if counted else PER_TOKEN
    pieces: list[str] = []
    for prompt in cycle(sample):
        if sum(map(len, pieces)) >= tokens * characters_per_token:
            break
        pieces.append(_plain(prompt) + "\n")
    return "".join(pieces)[: int(tokens * characters_per_token)]


def _plain(prompt: Prompt) -> str:
    try:
        text = prompt.completion_prompt()
    except PromptsError:  # a conversation has no single text
        return ""
    return text if isinstance(text, str) else ""


def _asking(pool: PoolClient, text: str, tokens: int = TOKENS) -> CanaryRequest:
    return pool.greedy(Prompt("long", "all", text), tokens)


async def longest_stated(pair: PoolPair) -> int | None:
    """Tokens that a sequence may have in both pools, as far as they list it."""
    limits = await asyncio.gather(pair.standard.longest(), pair.speculative.longest())
    return min((limit for limit in limits if limit is not None), default=None)


async def long_prompt_size(pair: PoolPair) -> int:
    """Tokens of a long prompt, which leave room for an ending and an answer."""
    limit, most = await longest_stated(pair), pair.settings.long_prompt_tokens
    return max(TOKENS, int(0.75 * (most if limit is None else min(most, limit - 2 * TOKENS))))


async def long_prompts(pair: PoolPair, number: int, run: str) -> list[Prompt]:
    """Return so many prompts of long_prompt_size, each with a beginning of its own, by `run` too."""
    text = await text_of(pair, await long_prompt_size(pair))
    return [Prompt(f"{n}", "all", text).fresh(run, f"{n}") for n in range(number)]


async def _fitting(pair: PoolPair, tokens: int, answer: int) -> tuple[str, CanaryRequest, Reply]:
    """Return a text of at most about `tokens` that the standard takes, the request with it, and its reply."""
    text = await text_of(pair, tokens)
    for _ in range(ATTEMPTS):
        ask = _asking(pair.standard, text, answer)
        reply = await pair.standard.ask(ask)
        if not reply.refused:
            break
        text = text[: int(len(text) * SHRINK)]
    return text, ask, reply


async def _long(pair: PoolPair) -> CheckOutcome:
    limit = await longest_stated(pair)
    most = pair.settings.long_prompt_tokens
    prompt_tokens = most if limit is None else min(most, limit - 2 * TOKENS)
    text, ask, standard_reply = await _fitting(pair, int(prompt_tokens * 0.95), TOKENS)
    for left in reversed(range(BEGINNINGS)):
        speculative_ask = _asking(pair.speculative, text)
        speculative_reply, again = await asyncio.gather(
            pair.speculative.ask(speculative_ask), pair.standard.ask(ask)
        )
        standard, speculative = trouble(standard_reply, ask), trouble(speculative_reply, speculative_ask)
        if standard or speculative:
            ok = PoolOutcome("ok", ask=ask), PoolOutcome("ok", ask=speculative_ask)
            return held(standard or ok[0], speculative or ok[1], "")
        side = await unlike(pair, standard_reply, again, speculative_reply, ask, speculative_ask)
        if side is not None or not left:
            break
        text = text[len(text) // (4 * BEGINNINGS) :]
        ask = _asking(pair.standard, text)
        standard_reply = await pair.standard.ask(ask)
    message = (
        f"of {standard_reply.usage.prompt} tokens" if standard_reply.usage else f"of {len(text)} characters"
    )
    if side is None:
        wrong = f"{BEGINNINGS} of {BEGINNINGS} long prompts are answered otherwise, each from a near tie on"
        side = PoolOutcome("wrong", wrong, speculative_ask)
    return held(PoolOutcome("ok", ask=ask), side, f"a prompt {message} is answered as by the standard")


async def unlike(
    pair: PoolPair,
    standard: Reply,
    again: Reply,
    speculative: Reply,
    standard_ask: CanaryRequest,
    ask: CanaryRequest,
) -> PoolOutcome | None:
    """How the speculative pool's answer is unlike the standard's; None where it parts from it at a near tie,
    so that what follows shows nothing."""
    if standard.usage and speculative.usage and standard.usage.prompt != speculative.usage.prompt:
        message = f"a prompt of {standard.usage.prompt} tokens is counted as {speculative.usage.prompt}"
        return PoolOutcome("wrong", message, ask)
    if speculative.text == standard.text:
        return PoolOutcome("ok", ask=ask)
    more = await pair.speculative.ask(ask)
    if again.text != standard.text or more.text == standard.text:
        return PoolOutcome("unsure", "the answer to a long prompt is not steady", ask)
    parting = difference("long", standard.text, speculative.text)
    margin = await margin_of(pair, standard_ask, standard.text, parting.character, parting.challenger)
    cut = standard.text.startswith(speculative.text) and speculative.first.finish_reason == "length"
    if margin is not None and margin < NEAR_TIE and not cut:  # what is cut off is no other token
        return None
    if margin is None and not cut:
        likely = (await pair.standard.plain(standard_ask.with_logprobs(TOP))).first.tokens
        if not likely:
            message = "the standard reports no log-probabilities, so it may be a near tie"
            return PoolOutcome("unsure", f"from character {parting.character} on it differs; {message}", ask)
    if standard.text.startswith(speculative.text):
        message = f"it ends after {len(speculative.text)} of the standard's {len(standard.text)} characters"
        return PoolOutcome("wrong", message, ask)
    message = f"it answers {parting.challenger!r}, and the standard {parting.standard!r}"
    return PoolOutcome("wrong", f"from character {parting.character} on {message}", ask)


async def _near_limit(pair: PoolPair) -> CheckOutcome:
    """Have both pools write up to the last token that fits, past the end of the text where they can."""
    limit, most = await longest_stated(pair), pair.settings.long_prompt_tokens
    if limit is None:
        return CheckOutcome("unsupported", "neither pool lists max_model_len at /v1/models")
    if limit > most:
        message = f"not sent: the limit of {limit} tokens is above canary.long_prompt_tokens, {most}"
        return CheckOutcome("unsupported", message)
    text, ask, counted = await _fitting(pair, limit - ROOM, 1)
    if side := trouble(counted, ask):
        return CheckOutcome("undecided", f"the standard pool: {side.message}", ask)
    if counted.usage is None:
        return CheckOutcome("unsupported", "not sent: the standard counts no tokens of a prompt", ask)
    room = limit - counted.usage.prompt
    asks = [
        _asking(pool, text, room).with_fields(ignore_eos=True) for pool in (pair.standard, pair.speculative)
    ]
    standard = await pair.standard.ask(asks[0])
    if standard.refused:
        asks = [ask.with_fields(ignore_eos=None) for ask in asks]
        standard = await pair.standard.ask(asks[0])
    again, speculative = await asyncio.gather(pair.standard.ask(asks[0]), pair.speculative.ask(asks[1]))
    sides = [
        trouble(reply, ask) or PoolOutcome("ok", ask=ask)
        for reply, ask in zip((standard, speculative), asks, strict=True)
    ]
    if any(side.state != "ok" for side in sides):
        return held(sides[0], sides[1], "")
    if standard.first.finish_reason != "length":
        message = f"the standard's answer ends by itself before its limit of {limit} tokens"
        return CheckOutcome("unsupported", message, asks[0])
    side = await unlike(pair, standard, again, speculative, *asks) or PoolOutcome("ok", ask=asks[1])
    if side.state == "ok" and speculative.first.finish_reason != "length":
        reason = speculative.first.finish_reason
        message = f"an answer that its limit cut off says finish_reason {reason!r}"
        side = PoolOutcome("wrong", message, asks[1])
    message = f"an answer of {room} tokens up to the limit of {limit} is the standard's"
    return held(PoolOutcome("ok", ask=asks[0]), side, message)


async def beyond(pool: PoolClient, pair: PoolPair) -> PoolOutcome:
    """`ignored` where a prompt that cannot fit is answered: then it was cut."""
    limit = await pool.longest()
    if limit is None:
        return PoolOutcome("refused", "it does not list max_model_len at /v1/models")
    text = await text_of(pair, int(limit * 1.2) + 64)
    if len(text) > LARGEST:
        return PoolOutcome(
            "refused", f"its limit of {limit} tokens takes a request of {len(text)} characters to pass"
        )
    ask = _asking(pool, text)
    reply = await pool.ask(ask)
    if reply.refused or (reply.failure and reply.failure.kind == "http_413"):
        return PoolOutcome("ok", ask=ask)
    return trouble(reply, ask) or PoolOutcome(
        "ignored", f"a prompt that is longer than its {limit} tokens is answered all the same", ask
    )


LONG = ConformanceCheck("long_prompt", "a long prompt is answered as by the standard", _long)
NEAR_LIMIT = ConformanceCheck(
    "near_limit", "an answer goes up to the model's limit as the standard's", _near_limit
)
TOO_LONG = of_each("too_long", "a prompt beyond the model's limit is refused", beyond, feature=False)
