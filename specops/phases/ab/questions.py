"""Requests that only a comparison sends: log-probabilities, requests at temperature 0 beside a measurement at
a higher one, and greedy requests among sampled ones."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from specops.load.arrivals import Level
from specops.load.client import Client
from specops.load.record import CellRecord
from specops.load.runner import run_cell
from specops.load.target_server import TargetServer
from specops.load.workload import Prompt
from specops.phases.ab import mixed
from specops.phases.ab.parity import margin_at
from specops.phases.ab.records import Margin
from specops.progress import Progress


async def ask_margins(arm: TargetServer, prompt: Prompt, characters: Sequence[int]) -> list[Margin]:
    """How sure it is of its tokens at these characters of its answer."""
    async with _at(arm, 0.0) as greedy:
        await arm.pace.turn()
        tokens = await greedy.likeliest(prompt)
    return [Margin(prompt=prompt.id, character=at, margin=margin_at(tokens, at)) for at in characters]


async def ask_greedy(
    arm: TargetServer, prompts: Sequence[Prompt], level: Level, round_: int, progress: Progress
) -> CellRecord:
    """Each prompt once at temperature 0, at the load of the measurement."""
    async with _at(arm, 0.0) as greedy:
        cell = await run_cell(
            greedy,
            prompts,
            level,
            round_,
            seed=arm.settings.seed,
            pace=arm.pace,
            progress=progress,
            count_tokens=arm.count_tokens,
        )
    return CellRecord.of(cell, arm.settings.slo)


async def ask_mixed(arm: TargetServer, prompts: Sequence[Prompt], temperature: float) -> CellRecord:
    """The greedy half of what mixed.py asks."""
    async with _at(arm, temperature) as sampled:
        cell = await mixed.ask_mixed(arm.client, sampled, prompts, arm.pace, arm.count_tokens)
    return CellRecord.of(cell, arm.settings.slo)


@asynccontextmanager
async def _at(arm: TargetServer, temperature: float) -> AsyncIterator[Client]:
    """A second client of the arm's server, which sends its requests at `temperature`."""
    seed = arm.settings.seed if temperature > 0 else None
    changed = replace(arm.client.decoding, temperature=temperature, seed=seed)
    async with Client(arm.settings.target(), changed) as client:
        client.adopt(arm.client)
        yield client
