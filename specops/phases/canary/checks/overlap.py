"""While requests overlap: no answer is another prompt's, and every feature works as it does alone.

A fault of a batch may hit one request in ten. So many answers are compared, and one that belongs to another
request is enough: unlike a rounded sum, that is nothing that the standard could give.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count

from specops.load.workload import Prompt
from specops.phases.canary.client import CanaryRequest, PoolClient, Reply
from specops.phases.canary.pool_pair import (
    PLAIN_TOKENS,
    CheckOutcome,
    ConformanceCheck,
    PoolPair,
    Status,
    trouble,
)

ANSWERS = 64
"""Overlapping answers: of a fault of one in ten, at least one is among them in 999 of 1,000 runs."""
OWN_WORDS = 16
"""Characters that two prompts' answers do not share by chance."""
COPIES = 4
"""Runs of a check at once."""
NEIGHBOURS = 3
"""Other requests that each pool has meanwhile."""


def belongs_to_another(name: str, text: str, answers: Mapping[str, frozenset[str]]) -> str | None:
    """Return the prompt whose answer `text` is, where it is not one of `name`'s. `answers`: the standard's
    answers by prompt."""
    own = answers[name]
    if text in own:
        return None
    begin = text[:OWN_WORDS]
    if len(begin) < OWN_WORDS or any(answer.startswith(begin) for answer in own):
        return None  # it parts from its own answer later, as after a near tie
    return next(
        (prompt for prompt in answers if any(answer.startswith(begin) for answer in answers[prompt])), None
    )


async def _overlap(pair: PoolPair) -> CheckOutcome:
    rounds = math.ceil(ANSWERS / len(pair.prompts))

    async def ask(pool: PoolClient) -> list[tuple[Prompt, Reply]]:
        prompts = [prompt for _ in range(rounds) for prompt in pair.prompts]
        replies = await pool.ask_all([pool.greedy(prompt, PLAIN_TOKENS) for prompt in prompts])
        return list(zip(prompts, replies, strict=True))

    alone = [
        (prompt, await pair.standard.plain(pair.standard.greedy(prompt, PLAIN_TOKENS)))
        for prompt in pair.prompts
    ]
    standard, speculative = await asyncio.gather(ask(pair.standard), ask(pair.speculative))
    for prompt, reply in (*alone, *standard):
        if side := trouble(reply, request := pair.standard.greedy(prompt, PLAIN_TOKENS)):
            return CheckOutcome("undecided", f"the standard pool: {side.message}", request)
    steady = _by_prompt(alone)
    for prompt, reply in standard:
        if owner := belongs_to_another(prompt.id, reply.text, steady):
            message = f"the standard pool itself answers {prompt.id} with the answer to {owner}"
            return CheckOutcome("undecided", message, pair.standard.greedy(prompt, PLAIN_TOKENS))
    answers = _by_prompt([*alone, *standard])
    swapped: list[tuple[Prompt, str]] = []
    for prompt, reply in speculative:
        request = pair.speculative.greedy(prompt, PLAIN_TOKENS)
        if side := trouble(reply, request):
            status: Status = "undecided" if side.state == "unsure" else "fail"
            return CheckOutcome(status, f"the speculative pool: {side.message}", request)
        if owner := belongs_to_another(prompt.id, reply.text, answers):
            swapped.append((prompt, owner))
    evidence = {"answers": len(speculative), "swapped": len(swapped)}
    if swapped:
        prompt, owner = swapped[0]
        message = (
            f"{len(swapped)} of {len(speculative)} overlapping answers are another prompt's:"
            f" {prompt.id} got the answer to {owner}"
        )
        among = tuple(
            pair.speculative.greedy(neighbour, PLAIN_TOKENS)
            for neighbour in pair.prompts
            if neighbour is not prompt
        )
        request = pair.speculative.greedy(prompt, PLAIN_TOKENS)
        return CheckOutcome("fail", message, request, among[:NEIGHBOURS], evidence=evidence)
    message = f"none of {len(speculative)} overlapping answers is another prompt's"
    example = pair.speculative.greedy(pair.prompts[0], PLAIN_TOKENS)
    return CheckOutcome("pass", message, example, evidence=evidence)


def _by_prompt(replies: Sequence[tuple[Prompt, Reply]]) -> dict[str, frozenset[str]]:
    answers: dict[str, set[str]] = {}
    for prompt, reply in replies:
        answers.setdefault(prompt.id, set()).add(reply.text)
    return {name: frozenset(texts) for name, texts in answers.items()}


@asynccontextmanager
async def neighbours(
    pool: PoolClient, number: int, request: Callable[[int], CanaryRequest]
) -> AsyncIterator[None]:
    """So many requests of `pool` in flight, all the time; `request` makes the next by its index."""
    done = asyncio.Event()

    async def keep_busy(first: int) -> None:
        for index in count(first):
            if done.is_set():
                return
            await pool.ask(request(index))

    tasks = [asyncio.create_task(keep_busy(first)) for first in range(number)]
    try:
        yield
    finally:
        done.set()
        await asyncio.gather(*tasks)


def alternating(pool: PoolClient, prompts: Sequence[Prompt]) -> Callable[[int], CanaryRequest]:
    """Return what makes greedy and sampled requests in turn."""

    def request(index: int) -> CanaryRequest:
        prompt, temperature = prompts[index % len(prompts)], 0.0 if index % 2 else 1.0
        return pool.asking(prompt, max_tokens=PLAIN_TOKENS, temperature=temperature, seed=index)

    return request


async def run_among_others(check: ConformanceCheck, pair: PoolPair) -> CheckOutcome:
    """The worst outcome of several runs of a check at once, while other requests are answered."""
    async with AsyncExitStack() as stack:
        for pool in (pair.standard, pair.speculative):
            await stack.enter_async_context(neighbours(pool, NEIGHBOURS, alternating(pool, pair.prompts)))
        outcomes = await asyncio.gather(*(check.run(pair) for _ in range(COPIES)))
    for status in ("fail", "undecided"):
        for outcome in outcomes:
            if outcome.status == status:
                return outcome
    return outcomes[0]


OVERLAP = ConformanceCheck("overlap", "overlapping requests get their own answers", _overlap)
