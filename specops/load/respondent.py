"""A server that is up: what it says of itself, and its answers to one visit, with its own counters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

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
from specops.progress import Progress
from specops.prometheus.exposition import NoData
from specops.serving import tables


class Respondent:
    """Of an asynchronous block. `asked` says at which address, and how.

    `pace` is shared by all that are asked in turn; `watch` is the server's own, and outlives this block.
    """

    def __init__(
        self,
        asked: BaselineSettings,
        pace: Pace,
        watch: Watch,
        progress: Progress,
        count_tokens: CountTokens | None,
    ) -> None:
        self.asked = asked
        self.pace = pace
        self.count_tokens = count_tokens
        self.client = Client(asked.target(), asked.decoding())
        self._watch = watch
        self._progress = progress
        self._warm: set[Level] = set()

    async def __aenter__(self) -> Self:
        await self.client.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.client.__aexit__(kind, error, trace)

    async def introduce(self, prompt: Prompt) -> dict[str, Any]:
        """What the server is, after one short request. EndpointError where it cannot be asked."""
        await self.client.probe(prompt, self.pace)
        return {
            "model": self.asked.model,
            "server": await self.client.version(),
            "cache_config": await self._cache_config(),
        } | self.client.capabilities.described(retokenised=self.count_tokens is not None)

    async def _cache_config(self) -> dict[str, str] | None:
        scraped = await counters.scrape(self.asked.base_url)
        if isinstance(scraped, NoData):
            return None
        known = {series.cache_config for series in tables()}
        return next((dict(labels) for name, labels in scraped if name in known), None)

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
        asked = self.asked
        if level not in self._warm:
            await warm_up(self.client, warm_up_with, asked.warmup, level, self.pace)
            self._warm.add(level)
        before = await counters.scrape(asked.base_url)
        try:
            cell = await run_cell(
                self.client,
                prompts,
                level,
                round_,
                seed=asked.seed,
                pace=self.pace,
                progress=self._progress,
                watch=self._watch,
                count_tokens=self.count_tokens,
            )
        except (Interrupted, Broken) as stop:
            if stop.cell.observations:
                keep(CellRecord.of(stop.cell, asked.slo))
            raise
        record = CellRecord.of(cell, asked.slo)
        keep(counters.unread(record))
        after = await counters.scrape(asked.base_url)
        keep(counters.counted(record, before, after, asked.model))
