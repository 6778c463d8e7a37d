"""What the server's own counters say of a measured cell: read before it and after it."""

from __future__ import annotations

import asyncio
from typing import Any

from specops.errors import EndpointError
from specops.load.record import CellRecord, DraftCountsRecord
from specops.load.speculation import drafts_between
from specops.prometheus import exposition
from specops.prometheus.exposition import NoData, Scrape
from specops.serving import USUAL


async def scrape(base_url: str) -> Scrape | NoData:
    try:
        return await asyncio.to_thread(exposition.scrape, base_url)
    except EndpointError as error:
        return NoData(error.message)


def unread(record: CellRecord) -> CellRecord:
    """As it is kept before the counters are read a second time, lest a stop while they are loses it."""
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
