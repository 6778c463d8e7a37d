"""The server's own counters of a cell, read before and after it, and whether it speculates."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from specops.access import Credentials
from specops.errors import EndpointError
from specops.load.record import CellRecord
from specops.prometheus import exposition
from specops.prometheus.exposition import NoData, Scrape
from specops.serving import USUAL

SEVERAL = 1.5
"""Tokens per chunk from which a server is said to send several. Text in which one character takes several
tokens reaches less than this."""

SINGLE = 1.05
"""Tokens per chunk up to which a server is said to send one at a time."""


COUNTED = 0.5
"""Share of the tokens of our answers that a server's own counters must have grown by, to be its own."""


@dataclass(frozen=True)
class Observed:
    """The counters of one server while it answered."""

    drafts: float | None
    """Drafts that it verified, by its counters; None where it has no such counter."""

    tokens_per_chunk: float | None
    """Mean; None where the tokens are not known."""

    token_s: float | None = None
    """Seconds of the answer over its tokens; None where they are not known."""

    @property
    def speculates(self) -> bool:
        return bool(self.drafts)

    @property
    def sends_several(self) -> bool:
        return self.tokens_per_chunk is not None and self.tokens_per_chunk >= SEVERAL

    @property
    def sends_one(self) -> bool:
        return self.tokens_per_chunk is not None and self.tokens_per_chunk <= SINGLE


def speculating_standard(standard: Observed, speculative: Observed | None) -> str | None:
    """A sentence where the standard's counters show that it speculates, or where the two look swapped.

    `speculative` is the pool that is to speculate; None where nothing is known of it.
    """
    if standard.speculates:
        drafts = f"it verified {standard.drafts:.0f} drafts while it answered"
        if speculative is not None and looks_idle(speculative):
            return (
                f"the pools look swapped: the standard speculates ({drafts}), and the speculative one "
                "verified none"
            )
        return f"the standard speculates: {drafts}"
    unknown = standard.drafts is None and standard.sends_several
    if unknown and speculative is not None and speculative.sends_one and not speculative.speculates:
        return (
            f"the pools look swapped: the standard sends {standard.tokens_per_chunk:.1f} tokens a chunk, and "
            f"the speculative one {speculative.tokens_per_chunk:.1f}"
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


def looks_idle(pool: Observed) -> bool:
    """Return whether the other pool shows no sign of speculation."""
    return pool.drafts == 0 or (pool.drafts is None and pool.sends_one)


async def scrape(base_url: str, credentials: Credentials) -> Scrape | NoData:
    try:
        return await asyncio.to_thread(exposition.scrape, base_url, credentials)
    except EndpointError as error:
        return NoData(error.message)


def unread(record: CellRecord) -> CellRecord:
    """Return the cell as it is stored before the counters are read a second time, lest a stop while they are
    loses it."""
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
    if not isinstance(tokens, NoData) and tokens < COUNTED * (record.tokens or 0):
        reason = (
            f"its counters grew by {tokens:.0f} tokens while it answered with {record.tokens}: they are "
            "another server's, such as those of a second replica behind one address"
        )
        return record.model_copy(update={"drafts_missing": reason})
    counts = exposition.draft_counts(before, after, model)
    cached = exposition.cache_counts(before, after, model)
    update: dict[str, Any] = {
        "server_tokens": None if isinstance(tokens, NoData) else tokens,
        "verified": counts.drafts,
        "cache_counts": None if isinstance(cached, NoData) else cached,
    }
    if isinstance(counts, NoData):
        update["drafts_missing"] = counts.reason
    else:
        update["drafts"] = counts
    return record.model_copy(update=update)
