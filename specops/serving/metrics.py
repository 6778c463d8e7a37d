"""Names of the series that an engine exposes, by what they measure: the type of an engine's table."""

from __future__ import annotations

from dataclasses import dataclass

from specops.serving.acceptance import Drafts


@dataclass(frozen=True)
class Responses:
    """A counter of HTTP requests that the server's API answered, also those that the engine never had. It has
    the label `method` (GET, POST), and two whose names differ."""

    counter: str
    path: str
    """Label: the path of the API."""
    status: str
    """Label: "200" to "599", or "2xx" to "5xx"."""


@dataclass(frozen=True)
class PrefixCache:
    """Counters of what of the prompts was in the prefix cache, in tokens or in blocks."""

    hits: str
    lookups: str | None = None
    """All that was looked up; None: it counts `misses` in place of them."""

    misses: str | None = None


@dataclass(frozen=True)
class Series:
    ttft: str
    """Histograms, in seconds, without _sum, _count, _bucket."""
    tpot: str
    """Series of the mean time per token of a request after the first. With `tpot_counts_seconds`, a
    counter."""
    e2e: str
    running: str
    """Gauges."""
    waiting: str
    kv_usage: str | None
    """Share of the KV cache in use, 0 to 1; not GPU memory. None: it has no such gauge."""
    generated: str
    """Counters."""
    finished: str
    """Requests that ended, however they did."""
    preemptions: str | None
    """None: it counts none."""
    acceptance: tuple[Drafts, ...]
    """What it may show of its drafts, by its settings or its release. A server shows one of them."""
    aborted: str
    """Requests that the engine gave up, those whose client went away among them."""
    aborted_reasons: str | None = None
    """Where `aborted` counts all requests: its label finished_reason, as a regular expression."""
    http: Responses | None = None
    cache_config: str | None = None
    """A gauge whose labels are the settings of the KV cache."""

    prefix_cache: tuple[PrefixCache, ...] = ()
    """What it may show of its prefix cache, by its release. Empty: it counts no hits."""

    counts_at_end: bool = False
    """`generated` grows when an answer ends, and not while it is made."""

    tpot_of_events: bool = False
    """`tpot` has a sample for each output event, of however many tokens, and none for a request."""

    tpot_counts_seconds: bool = False
    """`tpot` is a counter of the seconds that all tokens after the first took."""

    requests_by_router: bool = False
    """It counts no requests and times none: `ttft`, `e2e`, `finished` and `aborted` are the router's, which
    Prometheus gives the pool's label where it scrapes them (specops/render/prometheus/scrape.py)."""

    drafts_come_late: bool = False
    """The counters of drafts are there only while it speculates."""

    path: str = "/metrics"
    """Where a server has them, beside its /v1."""

    @property
    def tpot_seconds(self) -> str:
        """The counter of the seconds that `tpot` observed."""
        return self.tpot if self.tpot_counts_seconds else f"{self.tpot}_sum"

    @property
    def draft_names(self) -> tuple[str, ...]:
        """Every name that acceptance is read from."""
        return tuple(dict.fromkeys(name for drafts in self.acceptance for name in drafts.names))

    @property
    def prefix(self) -> str:
        """Return the prefix of all its names: vllm of vllm:num_requests_running."""
        return self.running.partition(":")[0]
