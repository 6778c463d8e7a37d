"""A server that is up: its description, and its answers to one visit with its own counters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

from specops.load import counters
from specops.load.answer import CountTokens
from specops.load.arrivals import Level, Pace, Watch
from specops.load.client import Client
from specops.load.record import CellRecord
from specops.load.request_times import Observation
from specops.load.runner import CellFailed, Interrupted, run_cell, warm_up
from specops.load.settings import BaselineSettings
from specops.load.workload import Prompt
from specops.progress import Progress
from specops.prometheus.exposition import NoData, Scrape
from specops.serving import tables


class TargetServer:
    """An asynchronous context manager. `settings` has the server's address and how requests are sent.

    Servers that are measured in turn share one `pace`; `watch` is the server's own and outlives the block.
    """

    def __init__(
        self,
        settings: BaselineSettings,
        pace: Pace,
        watch: Watch,
        progress: Progress,
        count_tokens: CountTokens | None,
    ) -> None:
        self.settings = settings
        self.pace = pace
        self.count_tokens = count_tokens
        self.client = Client(settings.target(), settings.decoding())
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
        """The server's description, after one short request. Raises EndpointError where it does not
        answer."""
        await self.client.probe(prompt, self.pace)
        return {
            "model": self.settings.model,
            "server": await self.client.version(),
            "cache_config": await self._cache_config(),
        } | self.client.capabilities.described(retokenised=self.count_tokens is not None)

    async def _cache_config(self) -> dict[str, str] | None:
        scraped = await self._scrape()
        if isinstance(scraped, NoData):
            return None
        names = {series.cache_config for series in tables()}
        return next((dict(labels) for name, labels in scraped if name in names), None)

    async def _scrape(self) -> Scrape | NoData:
        return await counters.scrape(self.settings.base_url, self.client.endpoint.credentials)

    async def visit(
        self,
        prompts: Sequence[Prompt],
        level: Level,
        round_: int,
        *,
        warm_up_with: Sequence[Prompt],
        keep: Callable[[CellRecord], None],
        fillers: Sequence[Prompt] = (),
        warm: bool = True,
        live_answers: bool = False,
    ) -> None:
        """Send every prompt once. A warm-up precedes the first visit at a level; its requests are rows of
        that visit's record; without `warm` there is none. `fillers` keep all streams full
        (`runner.run_cell`); `live_answers` is described there, too.

        `keep` gets the record as soon as there is one, and again with the server's counters. What was
        measured of a visit that ends early goes to `keep` before the exception is raised.
        """
        settings = self.settings
        warmed: tuple[Observation, ...] = ()
        if warm and level not in self._warm:
            warmed = await warm_up(
                self.client, warm_up_with, settings.warmup, level, self.pace, self.count_tokens
            )
            self._warm.add(level)
        before = await self._scrape()
        try:
            cell = await run_cell(
                self.client,
                prompts,
                level,
                round_,
                seed=settings.seed,
                pace=self.pace,
                progress=self._progress,
                watch=self._watch,
                count_tokens=self.count_tokens,
                fillers=fillers,
                think_time=settings.think_time,
                live_answers=live_answers,
            )
        except (Interrupted, CellFailed) as stop:
            if stop.cell.observations:
                keep(CellRecord.from_cell(stop.cell.after(warmed), settings.slo))
            raise
        record = CellRecord.from_cell(cell.after(warmed), settings.slo)
        keep(counters.unread(record))
        after = await self._scrape()
        keep(counters.counted(record, before, after, settings.model))
