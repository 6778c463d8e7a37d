"""Requests that show which servers answer at the addresses of two or more arms."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from itertools import combinations

from specops.errors import EndpointError
from specops.load import counters
from specops.load.client import Client
from specops.load.server_identity import moved_along, one_address, one_process
from specops.load.settings import BaselineSettings
from specops.load.speculation import Observed, drafts_between
from specops.prometheus.exposition import NoData, Scrape

SCRAPES = 3
"""Of each address: a load balancer with as many replicas leads one of them to each."""

TOKENS = 32
"""Of one answer: enough for several drafts."""

ANSWER_S = 30.0
"""How long one answer may take."""


async def same_process(one: tuple[str, str], other: tuple[str, str]) -> str | None:
    """A reason where two (base URL, model) show one process in their /metrics; None where nothing shows
    it."""
    first = await _scrapes(one[0])
    between = await _scrapes(other[0]) if first else []
    last = await _scrapes(one[0]) if between else []
    return one_process(first, between, last, (one[1], other[1]))


async def moved_with(
    one: str, others: Mapping[str, str], send: Callable[[], Awaitable[None]]
) -> dict[str, str]:
    """Await `send`, which sends a request to the base URL `one` alone. Of `others`, base URLs by name:
    those whose counters show that they got it, each with the reason."""
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


async def probe(asked: Mapping[str, BaselineSettings]) -> tuple[str | None, dict[str, Observed]]:
    """Sends short requests to each server, by name. Returns a reason where two of them are one server,
    else what each did while it answered; a server that does not answer is left out."""
    limits = {"timeout_s": ANSWER_S, "retries": 0}
    asked = {name: each.model_copy(update=limits) for name, each in asked.items()}
    observed: dict[str, Observed] = {}
    names = list(asked)
    places = [(each.base_url, each.model) for each in asked.values()]
    for one, other in combinations(places, 2):
        shared = one_address(one, other) or await same_process(one, other)
        if shared is not None:
            return shared, {}

    async def send(name: str) -> None:
        found = await _answer(asked[name])
        if found is not None:
            observed[name] = found

    for number, name in enumerate(names):
        others = {later: asked[later].base_url for later in names[number + 1 :]}
        moved = await moved_with(asked[name].base_url, others, partial(send, name))
        if moved:
            return next(iter(moved.values())), {}
    return None, observed


async def _answer(asked: BaselineSettings) -> Observed | None:
    """None where it did not answer: the endpoint has a check of its own."""
    prompt = asked.prompt_set().prompts[0]
    before = await counters.scrape(asked.base_url)
    async with Client(asked.target(), asked.decoding()) as client:
        try:
            await client.probe(prompt)
        except EndpointError:
            return None
        answer = (await client.send(prompt, max_tokens=TOKENS)).observe(None).answer
    after = await counters.scrape(asked.base_url)
    drafts = None
    if not isinstance(before, NoData) and not isinstance(after, NoData):
        drafts = drafts_between(before, after, asked.model)
    chunks = len(answer.chunks)
    return Observed(drafts, answer.tokens / chunks if answer.tokens and chunks else None)


async def _scrapes(base_url: str) -> list[Scrape]:
    """Empty where the address has no metrics that can be read."""
    found: list[Scrape] = []
    for _ in range(SCRAPES):
        scraped = await counters.scrape(base_url)
        if isinstance(scraped, NoData):
            break
        found.append(scraped)
    return found
