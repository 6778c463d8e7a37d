"""A server that is up: its description, its own counters before and after a visit, and whether it speculates.

for `scrape`.

Counters of drafts that grow while a server answers are a fact. Several tokens in a chunk are not: a
server may also collect tokens before it sends them (a stream interval).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from specops.errors import EndpointError
from specops.load.answer import CountTokens
from specops.load.arrivals import Level, Pace, Watch
from specops.load.client import Client
from specops.load.record import CellRecord, DraftCountsRecord
from specops.load.runner import Broken, Interrupted, run_cell, warm_up
from specops.load.settings import BaselineSettings
from specops.load.workload import Prompt
from specops.progress import Progress
from specops.prometheus import exposition
from specops.prometheus.exposition import NoData, Scrape, increase
from specops.serving import USUAL, tables

SEVERAL = 1.5
"""Tokens per chunk from which a server is said to send several. Text in which one character takes several
tokens reaches less than this."""

SINGLE = 1.05
"""Tokens per chunk up to which a server is said to send one at a time."""


@dataclass(frozen=True)
class Observed:
    """What one server did while it answered."""

    drafts: float | None
    """Drafts that it verified, by its counters; None where it has no such counter."""

    tokens_per_chunk: float | None
    """Mean; None where the tokens are not known."""

    @property
    def speculates(self) -> bool:
        return bool(self.drafts)

    @property
    def sends_several(self) -> bool:
        return self.tokens_per_chunk is not None and self.tokens_per_chunk >= SEVERAL

    @property
    def sends_one(self) -> bool:
        return self.tokens_per_chunk is not None and self.tokens_per_chunk <= SINGLE


def speculating_standard(standard: Observed, other: Observed | None) -> str | None:
    """A sentence where the standard's counters show that it speculates, or where the two look swapped.

    `other` is the pool that is to speculate; None where nothing is known of it.
    """
    if standard.speculates:
        drafts = f"it verified {standard.drafts:.0f} drafts while it answered"
        if other is not None and _idle(other):
            return (
                f"the pools look swapped: the standard speculates ({drafts}), and the speculative one "
                "verified none"
            )
        return f"the standard speculates: {drafts}"
    unknown = standard.drafts is None and standard.sends_several
    if unknown and other is not None and other.sends_one and not other.speculates:
        return (
            f"the pools look swapped: the standard sends {standard.tokens_per_chunk:.1f} tokens a chunk, and "
            f"the speculative one {other.tokens_per_chunk:.1f}"
        )
    return None


def several_tokens(standard: Observed) -> str | None:
    """A sentence where the standard sends several tokens a chunk and no counter explains it: an
    observation."""
    if standard.sends_several and not standard.speculates:
        counted = "" if standard.drafts is None else "; its counters show no drafts"
        return (
            f"the standard sends {standard.tokens_per_chunk:.1f} tokens a chunk: it may speculate, or send "
            f"several tokens at a time (a stream interval){counted}"
        )
    return None


def _idle(other: Observed) -> bool:
    """Whether the other pool shows no sign of speculation."""
    return other.drafts == 0 or (other.drafts is None and other.sends_one)


def drafts_between(before: Scrape, after: Scrape, model: str | None = None) -> float | None:
    """Verifications of drafts between two scrapes, by the engine's counter.

    0 for an engine that generated tokens and, as vLLM, exposes such counters only while it speculates.
    None where nothing is known.
    """
    for series in tables():
        grown = exposition.verified(before, after, series.acceptance, model)
        if not isinstance(grown, NoData):
            return grown
    for series in tables():
        generated = increase(before, after, series.generated, model) if series.drafts_come_late else 0.0
        if not isinstance(generated, NoData) and generated > 0:
            return 0.0
    return None


async def scrape(base_url: str) -> Scrape | NoData:
    try:
        return await asyncio.to_thread(exposition.scrape, base_url)
    except EndpointError as error:
        return NoData(error.message)


def unread(record: CellRecord) -> CellRecord:
    """As it is stored before the counters are read a second time, lest a stop while they are loses it."""
    return record.model_copy(update={"drafts_missing": "stopped before they were read"})


def counted(record: CellRecord, before: Scrape | NoData, after: Scrape | NoData, model: str) -> CellRecord:
    """`record` with what the server generated for `model` in between, and what became of its drafts."""
    if isinstance(before, NoData) or isinstance(after, NoData):
        missing = before if isinstance(before, NoData) else after
        assert isinstance(missing, NoData)
        return record.model_copy(update={"drafts_missing": missing.reason})
    series = exposition.series_of(before, after)
    generated = USUAL.generated if series.counts_at_end else series.generated
    tokens = exposition.increase(before, after, generated, model)
    counts = exposition.draft_counts(before, after, model)
    update: dict[str, Any] = {
        "server_tokens": None if isinstance(tokens, NoData) else tokens,
        "verified": drafts_between(before, after, model),
    }
    if isinstance(counts, NoData):
        update["drafts_missing"] = counts.reason
    else:
        update["drafts"] = DraftCountsRecord(**vars(counts))
    return record.model_copy(update=update)


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
        """The server's description, after one short request. EndpointError where it does not answer."""
        await self.client.probe(prompt, self.pace)
        return {
            "model": self.settings.model,
            "server": await self.client.version(),
            "cache_config": await self._cache_config(),
        } | self.client.capabilities.described(retokenised=self.count_tokens is not None)

    async def _cache_config(self) -> dict[str, str] | None:
        scraped = await scrape(self.settings.base_url)
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
        """Send every prompt once. A warm-up precedes the first visit at a level.

        `keep` gets the record as soon as there is one, and again with the server's counters. What was
        measured of a visit that ends early goes to `keep` before the exception is raised.
        """
        settings = self.settings
        if level not in self._warm:
            await warm_up(self.client, warm_up_with, settings.warmup, level, self.pace)
            self._warm.add(level)
        before = await scrape(settings.base_url)
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
            )
        except (Interrupted, Broken) as stop:
            if stop.cell.observations:
                keep(CellRecord.of(stop.cell, settings.slo))
            raise
        record = CellRecord.of(cell, settings.slo)
        keep(unread(record))
        after = await scrape(settings.base_url)
        keep(counted(record, before, after, settings.model))
