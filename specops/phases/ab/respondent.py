"""An arm whose server is up: what it says of itself, and its answers to one visit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from specops.launch.process import Server
from specops.load import counters
from specops.load.abort import Watch
from specops.load.answer import CountTokens
from specops.load.arrivals import Level
from specops.load.client import Client
from specops.load.pace import Pace
from specops.load.record import CellRecord
from specops.load.runner import Broken, Interrupted, run_cell, warm_up
from specops.load.settings import BaselineSettings
from specops.load.workload import Prompt
from specops.phases.ab.mixed import ask_mixed
from specops.phases.ab.parity import margin_at
from specops.phases.ab.records import Margin
from specops.progress import Progress
from specops.prometheus import NoData

CACHE_CONFIG = "vllm:cache_config_info"
"""A gauge whose labels are vLLM's settings of its KV cache."""


class Respondent:
    """Of an asynchronous block. `pace` is shared by all arms; `watch` is the arm's own, and outlives it."""

    def __init__(
        self,
        server: Server,
        asked: BaselineSettings,
        pace: Pace,
        watch: Watch,
        progress: Progress,
        count_tokens: CountTokens | None,
    ) -> None:
        self._settings = asked.model_copy(update={"base_url": server.base_url, "model": server.model})
        self._pace = pace
        self._watch = watch
        self._progress = progress
        self._count_tokens = count_tokens
        self._client = Client(self._settings.target(), self._settings.decoding())
        self._warm: set[Level] = set()

    async def __aenter__(self) -> Self:
        await self._client.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.__aexit__(kind, error, trace)

    async def introduce(self, prompt: Prompt) -> dict[str, Any]:
        """What the server is, after one short request. EndpointError where it cannot be asked."""
        await self._client.probe(prompt, self._pace)
        return {
            "model": self._settings.model,
            "server": await self._client.version(),
            "cache_config": await self._cache_config(),
        } | self._client.capabilities.described(retokenised=self._count_tokens is not None)

    async def _cache_config(self) -> dict[str, str] | None:
        scraped = await counters.scrape(self._settings.base_url)
        if isinstance(scraped, NoData):
            return None
        return next((dict(labels) for name, labels in scraped if name == CACHE_CONFIG), None)

    async def visit(
        self,
        prompts: Sequence[Prompt],
        level: Level,
        round_: int,
        *,
        warm_up_with: Sequence[Prompt],
        keep: Callable[[CellRecord], None],
    ) -> None:
        """Send every prompt once; the first visit at a level is warmed up for.

        `keep` gets the record as soon as there is one, and again with the server's counters. What is there
        of a visit that something ends early is kept before that is raised.
        """
        settings = self._settings
        if level not in self._warm:
            await warm_up(self._client, warm_up_with, settings.warmup, level, self._pace)
            self._warm.add(level)
        before = await counters.scrape(settings.base_url)
        try:
            cell = await run_cell(
                self._client,
                prompts,
                level,
                round_,
                seed=settings.seed,
                pace=self._pace,
                progress=self._progress,
                watch=self._watch,
                count_tokens=self._count_tokens,
            )
        except (Interrupted, Broken) as stop:
            if stop.cell.observations:
                keep(CellRecord.of(stop.cell, settings.slo))
            raise
        record = CellRecord.of(cell, settings.slo)
        keep(counters.unread(record))
        after = await counters.scrape(settings.base_url)
        keep(counters.counted(record, before, after, settings.model))

    async def ask_margins(self, prompt: Prompt, characters: Sequence[int]) -> list[Margin]:
        """How sure it is of its tokens at these characters of its answer."""
        await self._pace.turn()
        tokens = await self._client.likeliest(prompt)
        return [Margin(prompt=prompt.id, character=at, margin=margin_at(tokens, at)) for at in characters]

    async def ask_mixed(self, prompts: Sequence[Prompt], temperature: float) -> CellRecord:
        """The greedy half of what mixed.py asks."""
        decoding = replace(self._client.decoding, temperature=temperature, seed=self._settings.seed)
        async with Client(self._settings.target(), decoding) as sampled:
            sampled.adopt(self._client)
            cell = await ask_mixed(self._client, sampled, prompts, self._pace, self._count_tokens)
        return CellRecord.of(cell, self._settings.slo)
