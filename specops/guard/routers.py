"""Where requests go, by the routers' own counters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from prometheus_client.parser import text_string_to_metric_families

from specops.errors import EndpointError
from specops.guard.actions.asking import ask
from specops.guard.actions.nginx import TIMEOUT_S
from specops.guard.together import each
from specops.prometheus.series import ROUTE_DECISIONS, ROUTE_REQUESTS

Counts = dict[str, float]


def decided(routers: Sequence[str]) -> Counts:
    """Requests decided so far, by pool, over all routers (their admin listeners). Raises EndpointError where
    one does not say."""
    return _summed(routers, ROUTE_DECISIONS, lambda labels: labels.get("pool", ""))


def answered(routers: Sequence[str]) -> Counts:
    """Requests that ended so far: `lost`, where nothing served them or the answer was a 5xx, and `well`."""
    return _summed(routers, ROUTE_REQUESTS, _how)


def grown(before: Counts, after: Counts) -> Counts:
    """What was added since. A router that started anew counts from nothing again, and is left out."""
    return {key: max(count - before.get(key, 0.0), 0.0) for key, count in after.items()}


def _how(labels: Mapping[str, str]) -> str:
    lost = labels.get("served") == "none" or labels.get("status") == "5xx"
    return "lost" if lost else "well"


def _summed(routers: Sequence[str], name: str, key: Callable[[Mapping[str, str]], str]) -> Counts:
    counts: Counts = {}
    for text in each(_scraped, routers):
        for labels, value in _samples(text, name):
            counts[key(labels)] = counts.get(key(labels), 0.0) + value
    return counts


def _scraped(router: str) -> str:
    what = f"see where router {router} sends requests"
    return ask(what, "GET", f"http://{router}/metrics", timeout_s=TIMEOUT_S).decode(errors="replace")


def _samples(text: str, name: str) -> list[tuple[Mapping[str, str], float]]:
    try:
        return [
            (sample.labels, sample.value)
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == name
        ]
    except ValueError as error:
        raise EndpointError(
            f"could not read a router's counters: {error}", hint="addresses.routers are their admin listeners"
        ) from None
