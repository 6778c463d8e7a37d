"""Long prompts: near the model's limit they are answered as by the standard, and beyond it refused."""

from __future__ import annotations

import asyncio
from itertools import cycle

from specops.errors import PromptsError
from specops.load.workload import Prompt
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
LARGEST = 3_000_000
"""Characters of a request that a server must refuse unread."""


async def _text(pair: PoolPair, tokens: int) -> str:
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


def _asking(pool: PoolClient, text: str) -> CanaryRequest:
    return pool.greedy(Prompt("long", "all", text), TOKENS)


async def _long(pair: PoolPair) -> CheckOutcome:
    limits = await asyncio.gather(pair.standard.longest(), pair.speculative.longest())
    stated = [limit for limit in limits if limit is not None]
    prompt_tokens = min([pair.settings.long_prompt_tokens, *(limit - 2 * TOKENS for limit in stated)])
    text = await _text(pair, int(prompt_tokens * 0.95))
    for _ in range(ATTEMPTS):
        ask = _asking(pair.standard, text)
        standard_reply = await pair.standard.ask(ask)
        if not standard_reply.refused:
            break
        text = text[: int(len(text) * SHRINK)]
    speculative_ask = _asking(pair.speculative, text)
    speculative_reply, again = await asyncio.gather(
        pair.speculative.ask(speculative_ask), pair.standard.ask(ask)
    )
    standard, speculative = trouble(standard_reply, ask), trouble(speculative_reply, speculative_ask)
    if standard or speculative:
        return held(
            standard or PoolOutcome("ok", ask=ask), speculative or PoolOutcome("ok", ask=speculative_ask), ""
        )
    message = (
        f"of {standard_reply.usage.prompt} tokens" if standard_reply.usage else f"of {len(text)} characters"
    )
    side = await unlike(pair, standard_reply, again, speculative_reply, speculative_ask)
    return held(PoolOutcome("ok", ask=ask), side, f"a prompt {message} is answered as by the standard")


async def unlike(
    pair: PoolPair, standard: Reply, again: Reply, speculative: Reply, ask: CanaryRequest
) -> PoolOutcome:
    if standard.usage and speculative.usage and standard.usage.prompt != speculative.usage.prompt:
        message = f"a prompt of {standard.usage.prompt} tokens is counted as {speculative.usage.prompt}"
        return PoolOutcome("wrong", message, ask)
    if speculative.text == standard.text:
        return PoolOutcome("ok", ask=ask)
    more = await pair.speculative.ask(ask)
    if again.text != standard.text or more.text == standard.text:
        return PoolOutcome("unsure", "the answer to a long prompt is not steady", ask)
    return PoolOutcome(
        "wrong", f"it answers {speculative.text[:40]!r}, and the standard {standard.text[:40]!r}", ask
    )


async def beyond(pool: PoolClient, pair: PoolPair) -> PoolOutcome:
    """`ignored` where a prompt that cannot fit is answered: then it was cut."""
    limit = await pool.longest()
    if limit is None:
        return PoolOutcome("refused", "it does not list max_model_len at /v1/models")
    text = await _text(pair, int(limit * 1.2) + 64)
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
TOO_LONG = of_each("too_long", "a prompt beyond the model's limit is refused", beyond, feature=False)
