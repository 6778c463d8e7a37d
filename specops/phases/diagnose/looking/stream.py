"""A few streamed requests: how many tokens a chunk has, and how evenly they come."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from itertools import accumulate, pairwise

from specops import stats
from specops.config import Rollout
from specops.errors import EndpointError, SpecopsError
from specops.load.client import Client
from specops.load.metrics import Observation
from specops.load.settings import BaselineSettings
from specops.load.workload import Prompt
from specops.phases.diagnose.observations import Stream
from specops.phases.inputs import settings_of

REQUESTS = 12
"""One after the other: it looks at how text comes, and is no load."""
BUDGET_S = 20.0
"""After which no other is sent."""


def stream(rollout: Rollout, server: str) -> Stream | str:
    """Of the server at this base URL."""
    asked = settings_of(rollout, rollout.pools.standard)
    try:
        prompts = asked.prompt_set().prompts
        prompts = prompts[:: max(1, len(prompts) // REQUESTS)][
            :REQUESTS
        ]  # of every class, where they are sorted
        answers = asyncio.run(_ask(rollout, asked, server, prompts))
    except SpecopsError as error:
        return error.message
    return told(answers, server)


async def _ask(
    rollout: Rollout, asked: BaselineSettings, server: str, prompts: Sequence[Prompt]
) -> list[Observation]:
    pool = rollout.pools.speculative
    named = None if pool.endpoint is None else pool.endpoint.model
    if named is None:
        async with Client(asked.at(server, "").target(), asked.decoding()) as client:
            named = await client.only_model()
    at = asked.at(server, named)
    async with Client(at.target(), at.decoding()) as client:
        await client.probe(prompts[0])
        answers: list[Observation] = []
        until = time.monotonic() + BUDGET_S
        for prompt in prompts:
            if not answers or time.monotonic() < until:
                answers.append((await client.send(prompt)).observe(None))
    failed = next((one.answer.failure for one in answers if one.answer.failure), None)
    if failed is not None and not any(one.ok for one in answers):
        raise EndpointError(f"no stream of {server} came to its end: {failed.detail}")
    return answers


def told(answers: Sequence[Observation], server: str) -> Stream | str:
    """Pure. A chunk's tokens are the server's own count, else an even share of the answer's."""
    marks = [mark for one in answers if one.ok and (mark := _marks(one))]
    later = sum(tokens for mark in marks for _, tokens in mark[1:])
    took = sum(mark[-1][0] - mark[0][0] for mark in marks)
    if not later or took <= 0:
        return f"{server} does not say how many tokens its answers have, or they are one chunk each"
    pace = later / took
    counts = [tokens for mark in marks for _, tokens in mark]
    gaps = [1000 * (after[0] - before[0]) for mark in marks for before, after in pairwise(mark)]
    held = max(_held(mark, pace) for mark in marks)
    return Stream(
        source=f"{len(marks)} streamed answers of {server}",
        requests=len(marks),
        chunks=len(counts),
        tokens_per_chunk=sum(counts) / len(counts),
        tokens_per_chunk_p95=stats.percentile(counts, 0.95),
        gap_p50_ms=stats.percentile(gaps, 0.5),
        gap_p95_ms=stats.percentile(gaps, 0.95),
        tokens_per_s=pace,
        buffer_ms=1000 * held,
    )


Mark = tuple[float, float]
"""When a chunk came, in seconds, and how many tokens it has."""


def _marks(one: Observation) -> list[Mark]:
    chunks, tokens = one.answer.chunks, one.answer.tokens
    if not chunks:
        return []
    if all(chunk.tokens is not None for chunk in chunks):
        return [(chunk.at, float(chunk.tokens or 0)) for chunk in chunks]
    if tokens is None:
        return []
    return [(chunk.at, tokens / len(chunks)) for chunk in chunks]


def _held(marks: Sequence[Mark], pace: float) -> float:
    """Seconds that a reader of `pace` tokens a second waits after the first chunk so as never to run dry: the
    largest t_i - t_0 - N_i / pace, with N_i tokens before chunk i. A leaky bucket's bound."""
    before = accumulate((tokens for _, tokens in marks), initial=0.0)
    return max(at - marks[0][0] - drawn / pace for (at, _), drawn in zip(marks, before, strict=False))
