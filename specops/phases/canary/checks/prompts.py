"""Long prompts: near the model's limit they are answered as by the standard, and beyond it refused."""

from __future__ import annotations

import asyncio
from itertools import cycle

from specops.errors import PromptsError
from specops.load.workload import Prompt
from specops.phases.canary.client import CanaryRequest, Pool, Reply
from specops.phases.canary.pool_pair import Check, Outcome, Pair, Side, held, of_each, trouble

TOKENS = 32
SHRINK = 0.85
ATTEMPTS = 4
PER_TOKEN = 3.0
"""Characters, where the pool does not count a prompt's tokens."""
LARGEST = 3_000_000
"""Characters of a request that a server must refuse unread."""


async def _text(pair: Pair, tokens: int) -> str:
    """Return about so many tokens of the prompts' own text."""
    sample = [prompt for prompt in pair.prompts if _plain(prompt)] or [Prompt("", "", "a word and another. ")]
    replies = [await pair.standard.plain(pair.standard.greedy(prompt, 1)) for prompt in sample[:2]]
    counted = sum(reply.usage.prompt for reply in replies if reply.usage)
    length = sum(len(_plain(prompt)) for prompt in sample[:2])
    each = length / counted if counted else PER_TOKEN
    pieces: list[str] = []
    for prompt in cycle(sample):
        if sum(map(len, pieces)) >= tokens * each:
            break
        pieces.append(_plain(prompt) + "\n")
    return "".join(pieces)[: int(tokens * each)]


def _plain(prompt: Prompt) -> str:
    try:
        text = prompt.completion_prompt()
    except PromptsError:  # a conversation has no single text
        return ""
    return text if isinstance(text, str) else ""


def _asking(pool: Pool, text: str) -> CanaryRequest:
    return pool.greedy(Prompt("long", "all", text), TOKENS)


async def _long(pair: Pair) -> Outcome:
    limits = await asyncio.gather(pair.standard.longest(), pair.speculative.longest())
    known = [limit for limit in limits if limit is not None]
    wanted = min([pair.settings.long_prompt_tokens, *(limit - 2 * TOKENS for limit in known)])
    text = await _text(pair, int(wanted * 0.95))
    for _ in range(ATTEMPTS):
        ask = _asking(pair.standard, text)
        ours = await pair.standard.ask(ask)
        if not ours.refused:
            break
        text = text[: int(len(text) * SHRINK)]
    shown = _asking(pair.speculative, text)
    theirs, again = await asyncio.gather(pair.speculative.ask(shown), pair.standard.ask(ask))
    standard, speculative = trouble(ours, ask), trouble(theirs, shown)
    if standard or speculative:
        return held(standard or Side("ok", ask=ask), speculative or Side("ok", ask=shown), "")
    message = f"of {ours.usage.prompt} tokens" if ours.usage else f"of {len(text)} characters"
    side = await unlike(pair, ours, again, theirs, shown)
    return held(Side("ok", ask=ask), side, f"a prompt {message} is answered as by the standard")


async def unlike(pair: Pair, ours: Reply, again: Reply, theirs: Reply, shown: CanaryRequest) -> Side:
    if ours.usage and theirs.usage and ours.usage.prompt != theirs.usage.prompt:
        message = f"a prompt of {ours.usage.prompt} tokens is counted as {theirs.usage.prompt}"
        return Side("wrong", message, shown)
    if theirs.text == ours.text:
        return Side("ok", ask=shown)
    more = await pair.speculative.ask(shown)
    if again.text != ours.text or more.text == ours.text:
        return Side("unsure", "the answer to a long prompt is not steady", shown)
    return Side("wrong", f"it answers {theirs.text[:40]!r}, and the standard {ours.text[:40]!r}", shown)


async def beyond(pool: Pool, pair: Pair) -> Side:
    """`ignored` where a prompt that cannot fit is answered: then it was cut."""
    limit = await pool.longest()
    if limit is None:
        return Side("refused", "it does not list max_model_len at /v1/models")
    text = await _text(pair, int(limit * 1.2) + 64)
    if len(text) > LARGEST:
        return Side(
            "refused", f"its limit of {limit} tokens takes a request of {len(text)} characters to pass"
        )
    ask = _asking(pool, text)
    reply = await pool.ask(ask)
    if reply.refused or (reply.failure and reply.failure.kind == "http_413"):
        return Side("ok", ask=ask)
    return trouble(reply, ask) or Side(
        "ignored", f"a prompt that is longer than its {limit} tokens is answered all the same", ask
    )


LONG = Check("long_prompt", "a long prompt is answered as by the standard", _long)
TOO_LONG = of_each("too_long", "a prompt beyond the model's limit is refused", beyond, feature=False)
