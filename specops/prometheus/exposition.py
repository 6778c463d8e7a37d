"""Reading a server's /metrics: scrape, difference, and the acceptance of drafts between two scrapes.

Names are the engine's, by the table whose series a scrape has. A series that an exporter renamed from
`vllm:x` to `vllm_x` is read as `vllm:x`. No data is never zero: a server without these series, a counter that
was reset, and 0/0 all give `NoData`, which says why. A server that has none of an engine's names is
unknown; it is said not to speculate only where its engine's own names show that.
"""

from __future__ import annotations

import http.client
import math
import urllib.error
import urllib.request
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from specops.access import NOTHING, Credentials
from specops.errors import EndpointError, reason_of
from specops.hints import with_value
from specops.net import is_loopback
from specops.prometheus.promql import NO_MORE
from specops.serving import USUAL, Drafts, Series, tables

Labels = frozenset[tuple[str, str]]
Scrape = Mapping[tuple[str, Labels], float]
"""Every sample of one exposition by name and labels."""


@dataclass(frozen=True)
class NoData:
    reason: str
    drafts: float | None = None
    """Verifications of drafts, where these alone are known, 0 among them; None: whether there were any is not
    known."""


@dataclass(frozen=True)
class DraftCounts:
    """Increments of the draft counters over a window, summed over engines. Windows add up with `+`."""

    drafts: float
    draft_tokens: float
    accepted_tokens: float
    accepted_per_position: tuple[float, ...] = ()
    estimated: bool = False
    """Whether the engine does not count them all, and they follow from its gauges of the rate and the
    length."""

    def __add__(self, other: DraftCounts) -> DraftCounts:
        length = max(len(self.accepted_per_position), len(other.accepted_per_position))
        own_positions, added_positions = (
            counts.accepted_per_position + (0.0,) * (length - len(counts.accepted_per_position))
            for counts in (self, other)
        )
        return DraftCounts(
            self.drafts + other.drafts,
            self.draft_tokens + other.draft_tokens,
            self.accepted_tokens + other.accepted_tokens,
            tuple(a + b for a, b in zip(own_positions, added_positions, strict=True)),
            self.estimated or other.estimated,
        )

    @property
    def length(self) -> float | None:
        """Tokens a verification yields, the bonus token included: 1 + accepted / drafts."""
        return 1 + self.accepted_tokens / self.drafts if self.drafts else None

    @property
    def rate(self) -> float | None:
        """Share of the proposed tokens that were accepted."""
        return self.accepted_tokens / self.draft_tokens if self.draft_tokens else None

    @property
    def per_position(self) -> list[float | None]:
        """Return by position from 0 the share of drafts accepted that far (unconditional)."""
        return [count / self.drafts if self.drafts else None for count in self.accepted_per_position]

    @property
    def conditional(self) -> list[float | None]:
        """Return by position from 0 the share accepted of those whose previous position was accepted."""
        reached = (self.drafts, *self.accepted_per_position)
        return [
            count / before if before else None
            for before, count in zip(reached, self.accepted_per_position, strict=False)
        ]


@dataclass(frozen=True)
class CacheCounts:
    """Increments of the prefix cache's counters over a window, in tokens or in blocks."""

    hits: float
    lookups: float


def metrics_url(base_url: str, path: str = USUAL.path) -> str:
    """Return where an OpenAI base URL's server exposes its metrics: beside /v1, not below it."""
    return base_url.rstrip("/").removesuffix("/v1") + path


def scrape(base_url: str, credentials: Credentials = NOTHING, timeout_s: float = 5.0) -> Scrape:
    """Fetch and parse the metrics of the endpoint at `base_url`; EndpointError without metrics.

    Where /metrics answers with JSON, an engine has them at another path of the tables.
    """
    url = metrics_url(base_url)
    if not url.startswith(("http://", "https://")):
        raise EndpointError(
            f"invalid URL {url!r}: expected an http address",
            hint=with_value(base_url, "http://127.0.0.1:8000/v1"),
        )
    text = _read(url, credentials, timeout_s)
    if text.lstrip()[:1] in ("[", "{"):
        paths = dict.fromkeys(series.path for series in tables() if series.path != USUAL.path)
        for url in (metrics_url(base_url, path) for path in paths):
            text = _read(url, credentials, timeout_s)
    try:
        return parse(text)
    except ValueError as error:
        raise EndpointError(f"could not read {url}: {error}") from error


def _read(url: str, credentials: Credentials, timeout_s: float) -> str:
    try:
        with opened(url, credentials, timeout_s) as response:
            text: str = response.read().decode("utf-8")
            return text
    except urllib.error.HTTPError as error:
        error.close()
        raise EndpointError(f"could not read {url}: it answered {error.code}") from error
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise EndpointError(f"could not read {url}: {reason_of(error)}") from error


def opened(url: str, credentials: Credentials, timeout_s: float) -> http.client.HTTPResponse:
    """Return the answer of `url`, through the environment's proxy, except to loopback, where a proxy would
    find itself. Raises what urllib raises."""
    handlers: list[urllib.request.BaseHandler] = [urllib.request.HTTPSHandler(context=credentials.tls)]
    if is_loopback(url):
        handlers.append(urllib.request.ProxyHandler({}))
    request = urllib.request.Request(url)
    for name, value in credentials.all_headers.items():
        request.add_unredirected_header(name, value)  # a redirect would take secrets to another host
    answer: http.client.HTTPResponse = urllib.request.build_opener(*handlers).open(request, timeout=timeout_s)
    return answer


def parse(text: str) -> Scrape:
    """Samples of a text exposition. `_created` twins and NaN are left out; ValueError on nonsense."""
    prefixes = [series.prefix for series in tables()]
    return {
        (_canonical(sample.name, prefixes), frozenset(sample.labels.items())): float(sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if not sample.name.endswith("_created") and not math.isnan(float(sample.value))
    }


def _canonical(name: str, prefixes: Sequence[str]) -> str:
    """Return a name with the colon for which some exporters write an underscore. Ray puts its own prefix
    before an engine's."""
    own = name.removeprefix("ray_")
    renamed = next((prefix for prefix in prefixes if own.startswith((f"{prefix}_", f"{prefix}:"))), None)
    return f"{renamed}:{own[len(renamed) + 1 :]}" if renamed else name


def naming_of(*scrapes: Scrape) -> Series | None:
    """The table of names of which one of the scrapes has some: of running requests, generated tokens or
    drafts, else any with the engine's prefix. None where none is of an engine that specops reads."""
    exposed = {name for scrape in scrapes for name, _ in scrape}
    prefixes = {name.partition(":")[0] for name in exposed if ":" in name}
    named = (series for series in tables() if names_an_engine(series, exposed))
    return next(named, next((series for series in tables() if series.prefix in prefixes), None))


def names_an_engine(series: Series, exposed: Collection[str]) -> bool:
    """Return whether a server with the `exposed` names is of the engine of these names, as far as they
    tell."""
    return any(name in exposed for name in (series.running, series.generated, *series.draft_names))


def series_of(*scrapes: Scrape) -> Series:
    """The table of names of the scrapes' engine; of an engine that is not known, the usual one."""
    return naming_of(*scrapes) or USUAL


def increase(before: Scrape, after: Scrape, name: str | None, model: str | None = None) -> float | NoData:
    """Return how much the counter `name` grew, summed over its series, such as one for each engine.

    With `model`, only series of that `model_name`, and those without the label, count. A series that is new
    in `after` began at zero; one that shrank or vanished was reset, and then nothing is known.
    """
    increases = _increases(before, after, name, model, lambda labels: "")
    return increases if isinstance(increases, NoData) else increases[""]


def draft_counts(before: Scrape, after: Scrape, model: str | None = None) -> DraftCounts | NoData:
    """What the engine's own series say of its drafts between two scrapes."""
    series = naming_of(before, after)
    if series is None:
        names = sorted({name for name, _ in after})
        exposed = f"such as {', '.join(names[:2])}" if names else "none at all"
        return NoData(f"its metrics are of no engine whose names are known: {exposed}")
    read = [_count_drafts(before, after, series, names, model) for names in series.acceptance]
    counts = next(
        (
            candidate
            for candidate in read
            if isinstance(candidate, DraftCounts) or candidate.drafts is not None
        ),
        None,
    )
    if counts is not None:
        return counts
    missing = next(candidate for candidate in read if isinstance(candidate, NoData))
    return _without_drafts(before, after, series, missing, model)


def _count_drafts(
    before: Scrape, after: Scrape, series: Series, names: Drafts, model: str | None
) -> DraftCounts | NoData:
    if names.counted:
        return _counted(before, after, names, model)
    if names.accepted_tokens is not None:
        return _totalled(before, after, names, model)
    return _gauged(before, after, series, names, model)


def _counted(before: Scrape, after: Scrape, names: Drafts, model: str | None) -> DraftCounts | NoData:
    drafts = _verified(before, after, names, model)
    draft_tokens = increase(before, after, names.draft_tokens, model)
    accepted_tokens = increase(before, after, names.accepted_tokens, model)
    if isinstance(drafts, NoData):
        return drafts
    if isinstance(draft_tokens, NoData):
        return NoData(draft_tokens.reason, drafts)
    if isinstance(accepted_tokens, NoData):
        return NoData(accepted_tokens.reason, drafts)
    if not drafts:
        return NoData("the server verified no draft in this window", drafts=0.0)
    by_position = _increases(
        before, after, names.per_position, model, lambda labels: dict(labels).get(names.position, "")
    )
    if isinstance(by_position, NoData):
        return DraftCounts(drafts, draft_tokens, accepted_tokens)
    positions = sorted((int(key), value) for key, value in by_position.items() if key.isdigit())
    return DraftCounts(drafts, draft_tokens, accepted_tokens, tuple(value for _, value in positions))


def _gauged(
    before: Scrape, after: Scrape, series: Series, names: Drafts, model: str | None
) -> DraftCounts | NoData:
    rate, length = (_gauge(before, after, name, model) for name in (names.rate, names.length))
    generated = increase(before, after, series.generated, model)
    drafts = _verified(before, after, names, model)
    if isinstance(drafts, NoData) and not isinstance(generated, NoData) and length is not None:
        drafts = generated / length
    if isinstance(drafts, NoData):
        exposed = [name for name in sorted(names.names) if any(name == scraped for scraped, _ in after)]
        reason = f"{names.drafts} is missing, and {' and '.join(exposed)} show nothing"
        return NoData(reason) if exposed else drafts
    if isinstance(generated, NoData):
        return NoData(generated.reason, drafts)
    if not drafts:
        return NoData("the server verified no draft in this window", drafts=0.0)
    accepted = max(0.0, generated - drafts)
    if rate is None:
        # Of an answer's tokens, one is its prompt's and no verification's.
        finished = increase(before, after, series.finished, model)
        of_prompts = 0.0 if isinstance(finished, NoData) else finished
        if generated - of_prompts <= NO_MORE * drafts:
            return DraftCounts(drafts, drafts, 0.0, estimated=True)
        return NoData(f"{names.rate} showed nothing while the server verified {drafts:.0f} drafts", drafts)
    return DraftCounts(drafts, accepted / rate, accepted, estimated=True)


def _totalled(before: Scrape, after: Scrape, names: Drafts, model: str | None) -> DraftCounts | NoData:
    draft_tokens = increase(before, after, names.draft_tokens, model)
    accepted_tokens = increase(before, after, names.accepted_tokens, model)
    if isinstance(draft_tokens, NoData):
        return draft_tokens
    if isinstance(accepted_tokens, NoData):
        return accepted_tokens
    if not draft_tokens:
        return NoData("the server drafted no token in this window", drafts=0.0)
    length = _gauge(before, after, names.length, model)
    if length is None or length <= 1:
        return NoData(f"{names.length} showed nothing while the server drafted {draft_tokens:.0f} tokens")
    return DraftCounts(accepted_tokens / (length - 1), draft_tokens, accepted_tokens, estimated=True)


def _without_drafts(
    before: Scrape, after: Scrape, series: Series, missing: NoData, model: str | None
) -> NoData:
    """The reason for which a server with an engine's names shows no drafts: it has none, where the engine
    exposes their counters only while it speculates and no other of its names tells of drafts."""
    prefix = f"{series.prefix}:"
    exposed = {name for name, _ in (*before, *after)}
    if exposed & {*series.draft_names}:
        return missing
    unread = sorted(
        name for name in exposed if name.startswith(prefix) and any(word in name for word in _OF_DRAFTS)
    )
    if unread:
        return NoData(f"it has names for drafts that specops does not read, such as {unread[0]}")
    generated = increase(before, after, series.generated, model)
    if series.drafts_come_late and not isinstance(generated, NoData) and generated > 0:
        return NoData(f"it generated {generated:.0f} tokens and exposes no counters of drafts", drafts=0.0)
    return missing


_OF_DRAFTS = ("spec_", "draft", "specul", "accept")
"""Parts of names that tell of drafts, whatever else a release or a fork calls them."""


def cache_counts(before: Scrape, after: Scrape, model: str | None = None) -> CacheCounts | NoData:
    """What the engine's own counters say of its prefix cache between two scrapes."""
    for names in series_of(before, after).prefix_cache:
        hits = increase(before, after, names.hits, model)
        rest = increase(before, after, names.lookups or names.misses, model)
        if not isinstance(hits, NoData) and not isinstance(rest, NoData):
            return CacheCounts(hits, rest if names.lookups else hits + rest)
    return NoData("its metrics have no counters of a prefix cache that specops reads")


def _gauge(before: Scrape, after: Scrape, name: str | None, model: str | None) -> float | None:
    """Mean of a gauge over its series that show something; None where none does. After the window, else
    before it."""
    for scrape in (after, before):
        values = [
            value
            for (scraped, labels), value in scrape.items()
            if scraped == name and value > 0 and model in (None, dict(labels).get("model_name", model))
        ]
        if values:
            return sum(values) / len(values)
    return None


def _verified(before: Scrape, after: Scrape, names: Drafts, model: str | None) -> float | NoData:
    """Verifications between two scrapes, by the engine's counter."""
    held = names.which.items()
    increases = _increases(
        before, after, names.drafts, model, lambda labels: "held" if held <= labels else "other"
    )
    return increases if isinstance(increases, NoData) else increases.get("held", 0.0)


def mean(before: Scrape, after: Scrape, histogram: str, model: str | None = None) -> float | NoData:
    """Mean of what `histogram` observed between two scrapes: increase of its sum over that of its count."""
    total = increase(before, after, f"{histogram}_sum", model)
    count = increase(before, after, f"{histogram}_count", model)
    if isinstance(total, NoData):
        return total
    if isinstance(count, NoData):
        return count
    return total / count if count else NoData(f"{histogram} took no observation in this window")


def _increases(
    before: Scrape, after: Scrape, name: str | None, model: str | None, key: Callable[[Labels], str]
) -> dict[str, float] | NoData:
    series = {labels for scraped, labels in (*before, *after) if scraped == name}
    if name is None or not series:
        return NoData(f"the server exposes no {name}")
    model_series = {
        labels for labels in series if model is None or dict(labels).get("model_name", model) == model
    }
    if not model_series:
        models = ", ".join(sorted({dict(labels)["model_name"] for labels in series}))
        return NoData(f"{name} has no series of model {model}, only of {models}")
    grown: dict[str, float] = {}
    for labels in model_series:
        end = after.get((name, labels))
        start = before.get((name, labels), 0.0)
        if end is None or end < start:
            return NoData(f"{name} was reset: the server restarted between the scrapes")
        grown[key(labels)] = grown.get(key(labels), 0.0) + end - start
    return grown
