"""Requests that show which servers answer at the addresses of two or more arms."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from specops.load import counters
from specops.load.server_identity import moved_along, one_process
from specops.prometheus.exposition import NoData, Scrape

SCRAPES = 3
"""Of each address: a load balancer with as many replicas leads one of them to each."""


async def same_process(one: tuple[str, str], other: tuple[str, str]) -> str | None:
    """A reason where two (base URL, model) show one process in their /metrics; None where nothing shows it."""
    first = await _scrapes(one[0])
    between = await _scrapes(other[0]) if first else []
    last = await _scrapes(one[0]) if between else []
    return one_process(first, between, last, (one[1], other[1]))


async def moved_with(
    one: str, others: Mapping[str, str], send: Callable[[], Awaitable[None]]
) -> dict[str, str]:
    """Await `send`, which sends a request to the base URL `one` alone. Of `others`, base URLs by name: those
    whose counters show that they got it, each with the reason."""
    before = {name: await _scrapes(url) for name, url in others.items()}
    await send()
    found = {}
    for name, url in others.items():
        first = await _scrapes(one) if before[name] else []
        between = await _scrapes(url) if first else []
        last = await _scrapes(one) if between else []
        reason = moved_along(before[name], first, between, last)
        if reason is not None:
            found[name] = reason
    return found


async def _scrapes(base_url: str) -> list[Scrape]:
    """Empty where the address has no metrics that can be read."""
    found: list[Scrape] = []
    for _ in range(SCRAPES):
        scraped = await counters.scrape(base_url)
        if isinstance(scraped, NoData):
            break
        found.append(scraped)
    return found
