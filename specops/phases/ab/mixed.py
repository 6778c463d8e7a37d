"""Greedy requests asked again while sampled ones are in flight: a batch of both is what production has.

Speculation may change no greedy answer, whoever shares its batch. Servers have broken that: the answers
are right while every request is greedy, and wrong as soon as one is not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from specops.load.answer import CountTokens
from specops.load.arrivals import Level, Pace
from specops.load.client import Client
from specops.load.metrics import Exchange
from specops.load.record import Cell, Row
from specops.load.workload import Prompt


def longest(rows: Iterable[Row], count: int) -> list[str]:
    """The prompts of the `count` longest answers: a short one hardly shares a batch."""
    tokens = {row.prompt: row.tokens or len(row.text) for row in rows}
    return sorted(tokens, key=lambda prompt: (-tokens[prompt], prompt))[:count]


async def ask_mixed(
    greedy: Client, sampled: Client, prompts: Sequence[Prompt], pace: Pace, count_tokens: CountTokens | None
) -> Cell:
    """Ask every prompt greedily between two sampled requests, all at once, so that whoever goes first, they
    meet; the cell holds the greedy requests alone."""
    asked: list[asyncio.Task[Exchange]] = []
    async with asyncio.TaskGroup() as group:
        for prompt in prompts:
            group.create_task(sampled.send(prompt, pace))
            asked.append(group.create_task(greedy.send(prompt, pace)))
            group.create_task(sampled.send(prompt, pace))
    observations = tuple(task.result().observe(count_tokens) for task in asked)
    return Cell(Level(concurrency=3 * len(prompts)), 0, observations, complete=True)
