"""What only a comparison asks of an arm: how sure it is of its tokens, and greedy among sampled requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from specops.load.client import Client
from specops.load.record import CellRecord
from specops.load.respondent import Respondent
from specops.load.workload import Prompt
from specops.phases.ab import mixed
from specops.phases.ab.parity import margin_at
from specops.phases.ab.records import Margin


async def ask_margins(arm: Respondent, prompt: Prompt, characters: Sequence[int]) -> list[Margin]:
    """How sure it is of its tokens at these characters of its answer."""
    await arm.pace.turn()
    tokens = await arm.client.likeliest(prompt)
    return [Margin(prompt=prompt.id, character=at, margin=margin_at(tokens, at)) for at in characters]


async def ask_mixed(arm: Respondent, prompts: Sequence[Prompt], temperature: float) -> CellRecord:
    """The greedy half of what mixed.py asks."""
    decoding = replace(arm.client.decoding, temperature=temperature, seed=arm.asked.seed)
    async with Client(arm.asked.target(), decoding) as sampled:
        sampled.adopt(arm.client)
        cell = await mixed.ask_mixed(arm.client, sampled, prompts, arm.pace, arm.count_tokens)
    return CellRecord.of(cell, arm.asked.slo)
