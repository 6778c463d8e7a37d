"""The test of whether two addresses lead to one server: pure decisions first, then the requests that they
take.

Two addresses are one server where they are equal after normalisation. They are also one server where both
show the same process in their /metrics. Counters only grow, so a scrape of the second address that was
taken between two scrapes of the first must lie between them, counter by counter. Two processes with a
history of their own fail this. What cannot be shown is None, never "different": many servers expose no
metrics.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import combinations, product

from specops.errors import EndpointError
from specops.load import counters
from specops.load.counters import Observed
from specops.load.settings import BaselineSettings, Reachable
from specops.net import address
from specops.prometheus.exposition import NoData, Scrape, draft_counts, increase
from specops.serving import tables

STARTED = "process_start_time_seconds"
"""Series of the start time, of prometheus_client's process collector, in hundredths of a second."""

GENERATED = tuple(dict.fromkeys(series.generated for series in tables()))
"""Counters of generated tokens: an engine has one, a gateway in front of engines has none of its own."""

OF_ONE_ENGINE = {
    "model_name", "engine", "engine_type", "le", "position", "finished_reason",
    "tp_rank", "pp_rank", "dp_rank", "moe_ep_rank", "pid",
}  # fmt: skip
"""Labels of which one server has several values. Several values of any other label, such as `server` or
`pod`, mean that the metrics were collected from several servers."""

_COUNTERS = ("_total", "_count", "_bucket")


def one_address(one: Reachable, other: Reachable) -> str | None:
    """A reason where two servers are one address; None for two models or unlike headers, by which a gateway
    may choose between two servers."""
    if address(one.base_url) != address(other.base_url):
        return None
    if (one.model, one.access.headers) != (other.model, other.access.headers):
        return None
    if one.base_url == other.base_url:
        return f"both are {one.base_url}"
    return f"{other.base_url} is {one.base_url}"


def one_process(
    first: Sequence[Scrape], other: Sequence[Scrape], last: Sequence[Scrape], models: tuple[str, str]
) -> str | None:
    """A reason where both addresses show one process, from scrapes of the first, the other, and the first
    again.

    Several scrapes of each, because a load balancer may lead each of them to another replica. The start
    times must be equal to all digits and the metrics must name the same model. Start times alone are not
    enough: two servers that one script starts within a hundredth of a second have equal ones.
    """
    for before, between, after in product(first, other, last):
        started, served = before.get((STARTED, frozenset())), _models(between)
        if started is None or between.get((STARTED, frozenset())) != started:
            continue
        if not served or served != _models(before) or _serves_both(served, models) or _collected(between):
            continue
        if _between(before, between, after):
            return f"both addresses show the process that started at {started:.2f} and serves {min(served)}"
    return None


def moved_along(
    before: Sequence[Scrape], first: Sequence[Scrape], other: Sequence[Scrape], last: Sequence[Scrape]
) -> str | None:
    """A reason where the other server counted the request that only the first was sent.

    `before`: the other, before that request. The rest as for `one_process`, after it.
    """
    for start, low, between, high in product(before, first, other, last):
        for name in GENERATED:
            grown = increase(start, between, name)
            if isinstance(grown, NoData) or grown <= 0 or _collected(between):
                continue
            if _between(low, between, high):
                return f"its {name} grew by {grown:g} while only the first was sent a request"
    return None


def _models(scraped: Scrape) -> frozenset[str]:
    return frozenset(dict(labels)["model_name"] for _, labels in scraped if "model_name" in dict(labels))


def _serves_both(served: Iterable[str], models: tuple[str, str]) -> bool:
    """Return whether the metrics are labelled with both models, as those of a server with several engines
    are."""
    return models[0] != models[1] and set(models) <= set(served)


def _collected(scraped: Scrape) -> bool:
    """Return whether the engine's series come from several servers."""
    generated = [dict(labels) for name, labels in scraped if name in GENERATED]
    keys = {key for labels in generated for key in labels} - OF_ONE_ENGINE
    return any(len({labels.get(key) for labels in generated}) > 1 for key in keys)


def _between(low: Scrape, between: Scrape, high: Scrape) -> bool:
    """Return whether every counter of `between` lies between those of `low` and `high`, which are of one
    process."""
    counted = [
        {key: value for key, value in scraped.items() if key[0].endswith(_COUNTERS)}
        for scraped in (low, between, high)
    ]
    if not counted[0].keys() <= counted[1].keys() <= counted[2].keys():
        return False
    return all(counted[0].get(key, 0.0) <= value <= counted[2][key] for key, value in counted[1].items())


SCRAPES = 3
"""Number of scrapes of each address: a load balancer with as many replicas leads one of them to each."""

TOKENS = 32
"""Number of tokens of one answer: enough for several drafts."""

ANSWER_S = 30.0
"""How long one answer may take."""


async def same_process(one: BaselineSettings, other: BaselineSettings) -> str | None:
    """A reason where two servers show one process in their /metrics; None where nothing shows it."""
    first = await _scrapes(one)
    between = await _scrapes(other) if first else []
    last = await _scrapes(one) if between else []
    return one_process(first, between, last, (one.model, other.model))


async def moved_with(
    one: BaselineSettings, others: Mapping[str, BaselineSettings], send: Callable[[], Awaitable[None]]
) -> dict[str, str]:
    """Await `send`, which sends a request to the server `one` alone. Of `others`, servers by name: those
    whose counters show that they got it, each with the reason."""
    before = {name: await _scrapes(other) for name, other in others.items()}
    await send()
    found = {}
    for name, other in others.items():
        first = await _scrapes(one) if before[name] else []
        between = await _scrapes(other) if first else []
        last = await _scrapes(one) if between else []
        reason = moved_along(before[name], first, between, last)
        if reason is not None:
            found[name] = reason
    return found


async def probe(settings: Mapping[str, BaselineSettings]) -> tuple[str | None, dict[str, Observed]]:
    """Sends short requests to each server, by name. Returns a reason where two of them are one server,
    else what each did while it answered; a server that does not answer is left out."""
    limits = {"timeout_s": ANSWER_S, "retries": 0}
    settings = {name: each.model_copy(update=limits) for name, each in settings.items()}
    observed: dict[str, Observed] = {}
    names = list(settings)
    for one, other in combinations(settings.values(), 2):
        shared = one_address(one, other) or await same_process(one, other)
        if shared is not None:
            return shared, {}

    async def send(name: str) -> None:
        found = await _answer(settings[name])
        if found is not None:
            observed[name] = found

    for number, name in enumerate(names):
        others = {later: settings[later] for later in names[number + 1 :]}
        moved = await moved_with(settings[name], others, partial(send, name))
        if moved:
            return next(iter(moved.values())), {}
    return None, observed


async def _answer(settings: BaselineSettings) -> Observed | None:
    """Return what the server did while it answered one prompt; None where it did not answer."""
    from specops.load.client import Client  # it loads an HTTP client, which the decisions do not need

    prompt = settings.prompt_set().prompts[0]
    target = settings.target()
    before = await counters.scrape(settings.base_url, target.credentials)
    async with Client(target, settings.decoding()) as client:
        try:
            await client.probe(prompt)
        except EndpointError:
            return None
        answer = (await client.send(prompt, max_tokens=TOKENS)).observe(None).answer
    after = await counters.scrape(settings.base_url, target.credentials)
    drafts = None
    if not isinstance(before, NoData) and not isinstance(after, NoData):
        drafts = draft_counts(before, after, settings.model).drafts
    chunks = len(answer.chunks)
    return Observed(drafts, answer.tokens / chunks if answer.tokens and chunks else None)


async def _scrapes(settings: BaselineSettings) -> list[Scrape]:
    """Empty where the server has no metrics that can be read."""
    found: list[Scrape] = []
    credentials = settings.target().credentials
    for _ in range(SCRAPES):
        scraped = await counters.scrape(settings.base_url, credentials)
        if isinstance(scraped, NoData):
            break
        found.append(scraped)
    return found
