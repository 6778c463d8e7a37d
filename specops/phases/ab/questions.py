"""What only a comparison asks of an arm: how sure it is of its tokens, and greedy among sampled requests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from specops.load.arrivals import Level
from specops.load.client import DEFAULT_MAX_TOKENS, Client
from specops.load.record import CellRecord
from specops.load.respondent import Respondent
from specops.load.runner import run_cell
from specops.load.workload import Prompt
from specops.phases.ab import mixed
from specops.phases.ab.parity import margin_at
from specops.phases.ab.records import Margin
from specops.progress import Silent

GREEDY_TOKENS = 128
"""Longest answer of a greedy request beside a sampled measurement. Another model differs sooner."""


async def ask_margins(arm: Respondent, prompt: Prompt, characters: Sequence[int]) -> list[Margin]:
    """How sure it is of its tokens at these characters of its answer."""
    await arm.pace.turn()
    async with _greedy(arm) as client:
        tokens = await client.likeliest(prompt)
    return [Margin(prompt=prompt.id, character=at, margin=margin_at(tokens, at)) for at in characters]


async def ask_greedy(arm: Respondent, prompts: Sequence[Prompt], level: Level, round_: int) -> CellRecord:
    """Each prompt once at temperature 0, with answers of at most `GREEDY_TOKENS`."""
    short = [
        replace(prompt, max_tokens=min(prompt.max_tokens or DEFAULT_MAX_TOKENS, GREEDY_TOKENS))
        for prompt in prompts
    ]
    async with _greedy(arm) as client:
        cell = await run_cell(
            client,
            short,
            level,
            round_,
            seed=arm.asked.seed,
            pace=arm.pace,
            progress=Silent(),
            count_tokens=arm.count_tokens,
        )
    return CellRecord.of(cell, arm.asked.slo)


@asynccontextmanager
async def _greedy(arm: Respondent) -> AsyncIterator[Client]:
    """A client that sends what `arm` is sent, at temperature 0."""
    bound = arm.client.decoding.max_tokens
    bound = min(bound, GREEDY_TOKENS) if bound and arm.client.decoding.temperature > 0 else bound
    decoding = replace(arm.client.decoding, temperature=0.0, seed=None, max_tokens=bound)
    async with Client(arm.asked.target(), decoding) as client:
        client.adopt(arm.client)
        yield client


async def ask_mixed(arm: Respondent, prompts: Sequence[Prompt], temperature: float) -> CellRecord:
    """The greedy half of what mixed.py asks."""
    decoding = replace(arm.client.decoding, temperature=temperature, seed=arm.asked.seed)
    async with Client(arm.asked.target(), decoding) as sampled:
        sampled.adopt(arm.client)
        cell = await mixed.ask_mixed(arm.client, sampled, prompts, arm.pace, arm.count_tokens)
    return CellRecord.of(cell, arm.asked.slo)
