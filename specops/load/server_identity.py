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
from specops.load.request_times import e2e
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


def one_address(first: Reachable, second: Reachable) -> str | None:
    """A reason where two servers are one address; None for two models or unlike headers, by which a gateway
    may choose between two servers."""
    if address(first.base_url) != address(second.base_url):
        return None
    if (first.model, first.access.headers) != (second.model, second.access.headers):
        return None
    if first.base_url == second.base_url:
        return f"both are {first.base_url}"
    return f"{second.base_url} is {first.base_url}"


def one_process(
    first: Sequence[Scrape], second: Sequence[Scrape], last: Sequence[Scrape], models: tuple[str, str]
) -> str | None:
    """A reason where both addresses show one process, from scrapes of the first, the other, and the first
    again.

    Several scrapes of each, because a load balancer may lead each of them to another replica. The start
    times must be equal to all digits and the metrics must name the same model. Start times alone are not
    enough: two servers that one script starts within a hundredth of a second have equal ones.
    """
    for before, between, after in product(first, second, last):
        started, model_names = before.get((STARTED, frozenset())), _models(between)
        if started is None or between.get((STARTED, frozenset())) != started:
            continue
        if (
            not model_names
            or model_names != _models(before)
            or _serves_both(model_names, models)
            or _collected(between)
        ):
            continue
        if _between(before, between, after):
            return (
                f"both addresses show the process that started at {started:.2f} and serves {min(model_names)}"
            )
    return None


def moved_along(
    before: Sequence[Scrape], first: Sequence[Scrape], second: Sequence[Scrape], last: Sequence[Scrape]
) -> str | None:
    """A reason where the other server counted the request that only the first was sent.

    `before`: the other, before that request. The rest as for `one_process`, after it.
    """
    for start, low, between, high in product(before, first, second, last):
        for name in GENERATED:
            grown = increase(start, between, name)
            if isinstance(grown, NoData) or grown <= 0 or _collected(between):
                continue
            if _between(low, between, high):
                return f"its {name} grew by {grown:g} while only the first was sent a request"
    return None


def _models(scraped: Scrape) -> frozenset[str]:
    return frozenset(dict(labels)["model_name"] for _, labels in scraped if "model_name" in dict(labels))


def _serves_both(model_names: Iterable[str], models: tuple[str, str]) -> bool:
    """Return whether the metrics are labelled with both models, as those of a server with several engines
    are."""
    return models[0] != models[1] and set(models) <= set(model_names)


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


async def same_process(server: BaselineSettings, candidate: BaselineSettings) -> str | None:
    """A reason where two servers show one process in their /metrics; None where nothing shows it."""
    first = await _scrapes(server)
    between = await _scrapes(candidate) if first else []
    last = await _scrapes(server) if between else []
    return one_process(first, between, last, (server.model, candidate.model))


async def moved_with(
    server: BaselineSettings, candidates: Mapping[str, BaselineSettings], send: Callable[[], Awaitable[None]]
) -> dict[str, str]:
    """Await `send`, which sends a request to `server` alone. Of `candidates`, servers by name:
    those whose counters show that they got it, each with the reason."""
    before = {name: await _scrapes(candidate) for name, candidate in candidates.items()}
    await send()
    reasons = {}
    for name, candidate in candidates.items():
        first = await _scrapes(server) if before[name] else []
        between = await _scrapes(candidate) if first else []
        last = await _scrapes(server) if between else []
        reason = moved_along(before[name], first, between, last)
        if reason is not None:
            reasons[name] = reason
    return reasons


async def probe(settings: Mapping[str, BaselineSettings]) -> tuple[str | None, dict[str, Observed]]:
    """Sends short requests to each server, by name. Returns a reason where two of them are one server,
    else what each did while it answered; a server that does not answer is left out."""
    limits = {"timeout_s": ANSWER_S, "retries": 0}
    settings = {name: server.model_copy(update=limits) for name, server in settings.items()}
    observed: dict[str, Observed] = {}
    names = list(settings)
    for server, candidate in combinations(settings.values(), 2):
        shared = one_address(server, candidate) or await same_process(server, candidate)
        if shared is not None:
            return shared, {}

    async def send(name: str) -> None:
        answered = await _answer(settings[name])
        if answered is not None:
            observed[name] = answered

    for number, name in enumerate(names):
        candidates = {later: settings[later] for later in names[number + 1 :]}
        moved = await moved_with(settings[name], candidates, partial(send, name))
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
        observation = (await client.send(prompt, max_tokens=TOKENS)).observe(None)
    after = await counters.scrape(settings.base_url, target.credentials)
    drafts = None
    if not isinstance(before, NoData) and not isinstance(after, NoData):
        drafts = draft_counts(before, after, settings.model).drafts
    answer = observation.answer
    if not answer.tokens or not answer.chunks:
        return Observed(drafts, None)
    return Observed(drafts, answer.tokens / len(answer.chunks), e2e(observation) / answer.tokens)


async def _scrapes(settings: BaselineSettings) -> list[Scrape]:
    """Empty where the server has no metrics that can be read."""
    scrapes: list[Scrape] = []
    credentials = settings.target().credentials
    for _ in range(SCRAPES):
        scraped = await counters.scrape(settings.base_url, credentials)
        if isinstance(scraped, NoData):
            break
        scrapes.append(scraped)
    return scrapes
