"""One prefix, requested again after something else: A, B, A.

The second turn of each conversation is requested, something happens to the pool, and the same requests come
again. Their answers may not change: a cache that mixes rows up answers the second time from another
request's. Both pools go through the same, and the standard's answers afterwards are the control.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace

from specops.config.rollout import CheckName
from specops.load.workload import Prompt
from specops.phases.canary.checks.endings import EVENTS
from specops.phases.canary.checks.overlap import alternating, neighbours
from specops.phases.canary.checks.parity import Replies, ask_greedily, judge_answers, matches
from specops.phases.canary.checks.prompts import long_prompt_size, long_prompts
from specops.phases.canary.checks.structured_output import CHOSEN, FORMATS, QUESTION, TOKENS, TOOL
from specops.phases.canary.client import CanaryRequest, PoolClient, Reply
from specops.phases.canary.pool_pair import (
    PLAIN_TOKENS,
    CheckOutcome,
    ConformanceCheck,
    PoolOutcome,
    PoolPair,
    Status,
    held,
    trouble,
)

Disturbance = Callable[[PoolClient, PoolPair, Sequence[Prompt]], AbstractAsyncContextManager[str | None]]
"""What happens to a pool before the prompts are sent again, or meanwhile. Yields why it did not happen."""

NEXT, OTHERWISE = "Explain the last sentence in other words.", "Write the last sentence in French."
"""What follows the first answer, and what follows it in another conversation with the same beginning."""
FILLING_TOKENS = 16_384
"""Tokens of other prompts. They fill a small cache, and take a GPU some seconds."""
STILL_CACHED = 0.5
"""Share of a prompt in the cache from which it has not been evicted."""


def _turn(pool: PoolClient, prompt: Prompt, answer: str, text: str) -> Prompt:
    """Return the turn that follows `answer`. Token ids have none: they are sent as they are."""
    if pool.endpoint.kind == "chat":
        following = ({"role": "assistant", "content": answer}, {"role": "user", "content": text})
        return replace(prompt, content=(*prompt.messages(), *following), turn=prompt.turn + 1)
    begun = prompt.completion_prompt()
    return replace(prompt, content=f"{begun}{answer}\n{text}\n") if isinstance(begun, str) else prompt


@asynccontextmanager
async def _conversation(
    pool: PoolClient, pair: PoolPair, turns: Sequence[Prompt]
) -> AsyncIterator[str | None]:
    """Conversations that begin alike and go on otherwise, and some that share nothing."""
    siblings = [_turn(pool, prompt, "", OTHERWISE) for prompt in turns]
    strangers = [prompt.fresh("another", "conversation") for prompt in pair.prompts]
    replies = await pool.ask_all([pool.greedy(prompt, PLAIN_TOKENS) for prompt in (*siblings, *strangers)])
    yield _unanswered(pool, replies)


@asynccontextmanager
async def _eviction(pool: PoolClient, pair: PoolPair, turns: Sequence[Prompt]) -> AsyncIterator[str | None]:
    number = max(1, round(FILLING_TOKENS / await long_prompt_size(pair)))
    prompts = await long_prompts(pair, number, "eviction")
    yield _unanswered(pool, await pool.ask_all([pool.greedy(prompt, 1) for prompt in prompts]))


def _unanswered(pool: PoolClient, replies: Sequence[Reply]) -> str | None:
    failed = [reply.failure for reply in replies if reply.failure is not None]
    if len(failed) < len(replies) / 2:
        return None
    number = f"{len(failed)} of {len(replies)} requests between"
    return f"{number} failed on the {pool.name} pool: {failed[0].detail}"


@asynccontextmanager
async def _cancelled(pool: PoolClient, pair: PoolPair, turns: Sequence[Prompt]) -> AsyncIterator[str | None]:
    """Clients of the same prefixes that leave in the middle of their answers."""
    leaving = [pool.greedy(prompt, PLAIN_TOKENS).streaming() for prompt in turns]
    replies = await asyncio.gather(*(pool.ask(ask, leave_after=EVENTS) for ask in leaving))
    yield _unanswered(pool, replies)


def _saturated(
    pool: PoolClient, pair: PoolPair, turns: Sequence[Prompt]
) -> AbstractAsyncContextManager[None]:
    return neighbours(pool, pool.concurrency, alternating(pool, pair.prompts))


def _structured(pool: PoolClient) -> list[CanaryRequest]:
    """Requests with a schema, and with a tool."""
    plain = pool.chat_request(QUESTION, max_tokens=TOKENS, temperature=0)
    return [
        plain.with_fields(response_format=FORMATS["json_schema"]),
        plain.with_fields(tools=[TOOL], tool_choice=CHOSEN),
    ]


def _beside_schemas(
    pool: PoolClient, pair: PoolPair, turns: Sequence[Prompt]
) -> AbstractAsyncContextManager[None]:
    requests = _structured(pool)
    return neighbours(pool, pool.concurrency // 2, lambda index: requests[index % len(requests)])


async def _repeat_after(pair: PoolPair, name: CheckName, disturbance: Disturbance) -> CheckOutcome:
    prompts = [prompt.fresh(name, "1") for prompt in pair.prompts]
    begun = await ask_greedily(pair.standard, prompts)
    await ask_greedily(pair.speculative, prompts)
    turns = [_turn(pair.standard, prompt, begun[prompt.id].text, NEXT) for prompt in prompts]
    before, speculative_before = await asyncio.gather(
        ask_greedily(pair.standard, turns), ask_greedily(pair.speculative, turns)
    )
    turns = [
        prompt for prompt in turns if not before[prompt.id].refused
    ]  # a prompt's second turn may not fit
    if not turns:
        example = pair.standard.greedy(prompts[0], PLAIN_TOKENS)
        return CheckOutcome("undecided", "the standard pool takes no second turn of a conversation", example)
    afterwards: dict[str, Reply] = {}
    undisturbed: list[str] = []

    async def ask(pool: PoolClient, prompts: Sequence[Prompt]) -> Replies:
        half, replies = pool.concurrency // 2, dict[str, Reply]()
        async with disturbance(pool, pair, turns) as why:
            undisturbed.extend([why] if why else [])
            for start in range(0, len(prompts), half):  # half of what may be in flight is left to others
                replies |= await ask_greedily(pool, prompts[start : start + half])
        if pool is pair.speculative:
            afterwards.update(replies)
        return replies

    outcome = await judge_answers(replace(pair, prompts=tuple(turns)), before, ask)
    message = outcome.message
    if outcome.status != "pass" and (early := matches(before, speculative_before).differences):
        message += f"; {len(early)} differ before it too"
    if name == "after_eviction" and _still_cached(afterwards):
        message += "; the prefixes were still cached, so nothing was evicted"
    if outcome.status == "pass" and undisturbed:
        return replace(outcome, status="undecided", message=f"{message}; {undisturbed[0]}")
    return replace(outcome, message=message)


def _still_cached(replies: Replies) -> bool:
    """Return whether each prompt that was sent again came out of a cache, by most of its tokens."""
    usages = [reply.usage for reply in replies.values() if reply.usage is not None]
    return bool(usages) and all(
        usage.cached is not None and usage.cached > STILL_CACHED * usage.prompt for usage in usages
    )


def _disturbed(name: CheckName, about: str, disturbance: Disturbance) -> ConformanceCheck:
    async def run(pair: PoolPair) -> CheckOutcome:
        return await _repeat_after(pair, name, disturbance)

    return ConformanceCheck(name, about, run)


async def _while_structured(pair: PoolPair) -> CheckOutcome:
    """Ask again beside schemas and tools; of pools that refuse a schema this is not known."""
    sides = []
    for pool in (pair.standard, pair.speculative):
        ask = _structured(pool)[0]
        sides.append(trouble(await pool.ask(ask), ask) or PoolOutcome("ok", ask=ask))
    if any(side.state != "ok" for side in sides):
        return held(sides[0], sides[1], "")
    return await _repeat_after(pair, "beside_schemas", _beside_schemas)


PREFIXES = 2
"""Number of long prompts that are repeated."""
LESS_CACHED = 0.5
"""Share of what the standard's cache gives at best, below which the other's cache is not the same."""
REPEATS = 3
"""Times that each prompt comes again: behind several replicas, some of them find its prefix."""


async def _cached(pair: PoolPair) -> CheckOutcome:
    """Count the prompt tokens that come from a cache where a long prompt is repeated."""
    prompts = await long_prompts(pair, PREFIXES, "cached")
    example = pair.speculative.greedy(prompts[0], 1)
    counts: dict[str, list[int | None]] = {}
    status: Status
    for pool in (pair.standard, pair.speculative):
        asks = [pool.greedy(prompt, 1) for prompt in prompts]
        counts[pool.name] = []
        for ask in [*asks, *(ask for _ in range(REPEATS) for ask in asks)]:
            reply = await pool.ask(ask)
            if side := trouble(reply, ask):
                status = "fail" if side.state == "wrong" and pool is pair.speculative else "undecided"
                return CheckOutcome(status, f"the {pool.name} pool: {side.message}", ask)
            usage = reply.usage
            if usage is not None and usage.cached is not None and usage.cached > usage.prompt:
                message = f"{usage.cached} cached tokens of a prompt of {usage.prompt}"
                status = "fail" if pool is pair.speculative else "undecided"
                return CheckOutcome(status, f"the {pool.name} pool counts {message}", ask)
            counts[pool.name].append(usage.cached if usage is not None else None)
    repeats = {name: values[len(prompts) :] for name, values in counts.items()}
    standard = [value for value in repeats["standard"] if value is not None]
    speculative = [value for value in repeats["speculative"] if value is not None]
    evidence = {"cached_tokens": repeats}
    if not any(standard):
        message = "neither pool is known to cache prefixes: the standard counts no cached tokens"
        return CheckOutcome("unsupported", message, example, evidence=evidence)
    message = f"of {len(prompts)} repeated prompts, {_mean(speculative)} tokens come from a cache on average"
    message += f"; on the standard pool {_mean(standard)}"
    if not speculative:
        why = "only the speculative pool lacks it: it does not count cached tokens"
        if None in counts["standard"]:  # a server that leaves out the field where it is zero
            why = "the speculative pool counts none: either it reports none, or its cache gives none"
            return CheckOutcome("undecided", why, example, evidence=evidence)
        return CheckOutcome("differs", why, example, speculative="not counted", evidence=evidence)
    status = "pass" if any(speculative) else "fail"
    if status == "pass" and max(speculative) < LESS_CACHED * max(standard):
        status = "undecided"
    return CheckOutcome(status, message, example, evidence=evidence)


def _mean(counts: Sequence[int]) -> str:
    return f"{sum(counts) / len(counts):.0f}" if counts else "none"


CHECKS: tuple[ConformanceCheck, ...] = (
    _disturbed("after_conversation", "a prefix is answered alike after other conversations", _conversation),
    _disturbed("after_eviction", "a prefix is answered alike after long other prompts", _eviction),
    _disturbed("after_cancel", "a prefix is answered alike after a cancelled request with it", _cancelled),
    _disturbed("saturated", "a prefix is answered alike while the pool is saturated", _saturated),
    ConformanceCheck(
        "beside_schemas",
        "a prefix is answered alike beside JSON and tools",
        _while_structured,
        "response_format",
    ),
    ConformanceCheck("cached_tokens", "repeated prompts come from a cache where the standard's do", _cached),
)
