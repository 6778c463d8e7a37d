"""The servers of a pool one by one, and what the pool has of those that Prometheus scraped. Pure.

A replica is covered where its scrapes and its series are there for the window. One that is not is left out of
every figure of the pool and named, so that the others are still judged; a pool of which fewer than half are
covered has no figures. Counts of the whole pool are sums, its latencies ratios of sums, and its load is that
which a *request* meets: each server's requests at a time count by the requests that ended there. Weighted by
the requests at a time, a slow server, which holds more of them, would raise the load that it is excused by.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from specops.serving import Series

BY_REPLICA = "replica_"
"""Before the names of `Replica` in the query."""

COVERED = 0.9
"""Share of a window's scrapes: with fewer the window counts as missing data. A gap in scraping looks like
traffic that stopped, and the first samples after it like a burst."""

TOO_MANY = 1.25
"""Times the samples that the scrape interval makes: with more, Prometheus scrapes more often than the rollout
file says, and what is left after a gap looks like a whole window. A window of few scrapes may have one
more."""

NOTHING = math.nan


@dataclass(frozen=True)
class Replica:
    """A window of one server. Counts are of the window, times in seconds; NaN where Prometheus has no
    number."""

    covered: float = NOTHING
    """Share of its scrapes that succeeded: samples of `up`."""

    sampled: float = NOTHING
    """Share of the expected samples of its own series."""

    age_s: float = NOTHING
    """Age of its newest sample of `up`."""

    finished: float = NOTHING
    generated: float = NOTHING
    """Tokens."""

    drafted: float = NOTHING
    """Tokens."""

    accepted: float = NOTHING
    tpot_s: float = NOTHING
    tpot_n: float = NOTHING
    first_n: float = NOTHING
    e2e_s: float = NOTHING
    e2e_n: float = NOTHING
    running: float = NOTHING
    """Mean of the gauge over its scrapes."""

    waiting: float = NOTHING
    variance: float = NOTHING
    gauged: float = NOTHING
    """Scrapes that `running` and `variance` are of."""

    long_running: float = NOTHING
    """The same as `running` and `variance`, over hours."""

    long_variance: float = NOTHING
    failed: float = NOTHING
    cancelled: float = NOTHING

    def over(self, copies: float) -> Replica:
        """The counts of a server that is scraped `copies` times, as of one scraped once."""
        if copies <= 1:
            return self
        return replace(self, **{name: getattr(self, name) / copies for name in COUNTS})

    @property
    def idle(self) -> bool:
        """Return whether it has had no request yet: some engines have no counter before the first."""
        return math.isnan(self.sampled) and self.running == 0 and self.covered >= COVERED - 1e-9

    @property
    def whole(self) -> bool:
        """Return whether the window is covered."""
        return self.idle or (self.covered >= COVERED - 1e-9 and self.sampled >= COVERED - 1e-9)

    def at_a_time(self, scrape_s: float, window_s: float, *, by_gauges: bool) -> float:
        """Mean requests at a time. Little's law: time spent in it over the time that its samples cover. Over
        the window, a gap in scraping would make a server look idle."""
        if by_gauges:
            return self.running + self.waiting
        if self.idle:
            return 0.0
        return self.e2e_s / (min(self.sampled, 1.0) * window_s)

    def tpot(self, *, of_tokens: bool) -> float:
        """Mean seconds of a token after the first: of requests, or of tokens."""
        n = self.generated - self.first_n if of_tokens else self.tpot_n
        return self.tpot_s / n if n > 0 else NOTHING


COUNTS = (
    "finished", "generated", "drafted", "accepted", "tpot_s", "tpot_n", "first_n", "e2e_s", "e2e_n", "gauged",
    "failed", "cancelled",
)  # fmt: skip


def pool_figures(
    replicas: Mapping[str, Replica], series: Series, scrape_s: float, window_s: float, *, routed: bool
) -> dict[str, float] | None:
    """Return the pool's figures by the names of `LiveFigures`, of the covered replicas; None where Prometheus
    has no target of it. Failures are among them where no router counts them.

    Instances without a target of the pool are routers, where the engine leaves counting requests to them, or
    servers that are gone.
    """
    targets = [replica for replica in replicas.values() if not math.isnan(replica.covered)]
    if not targets:
        return None
    covered = [replica for replica in targets if replica.whole]
    judged = covered if 2 * len(covered) >= len(targets) else targets
    shares = [
        share for replica in judged for share in (replica.covered, replica.sampled) if not math.isnan(share)
    ]
    too_many = max(shares) > TOO_MANY + 1e-9
    serving = [replica for replica in judged if not replica.idle]
    if series.requests_by_router:
        serving += [replica for replica in replicas.values() if math.isnan(replica.covered)]
    elif not serving:
        serving = [replace(NO_REQUEST, running=0.0, gauged=replica.gauged) for replica in judged]

    def total(name: str) -> float:
        """The sum of a figure that every replica has, else NaN."""
        values = [getattr(replica, name) for replica in serving]
        if series.requests_by_router:  # the router has some of the figures, the servers have the others
            values = [value for value in values if not math.isnan(value)]
        return math.fsum(values) if values else NOTHING

    def some(name: str) -> float:
        """The sum of a figure that a replica may not have yet."""
        values = [value for replica in serving if not math.isnan(value := getattr(replica, name))]
        return math.fsum(values) if values else NOTHING

    finished, drafted, e2e_n = total("finished"), some("drafted"), total("e2e_n")
    tokens = total("generated") - total("first_n") if series.tpot_of_events else total("tpot_n")
    by = "generated" if series.requests_by_router else "finished"
    held = [replica.at_a_time(scrape_s, window_s, by_gauges=series.requests_by_router) for replica in serving]
    weights = [getattr(replica, by) for replica in serving]
    figures = {
        "finished": finished,
        "drafted": drafted,
        "acceptance": _ratio(some("accepted"), drafted),
        "tpot": _ratio(total("tpot_s"), tokens),
        "tpot_n": total("tpot_n"),
        "e2e": _ratio(total("e2e_s"), e2e_n),
        "e2e_n": e2e_n,
        "tokens": _ratio(total("generated"), finished),
        "load": _mean(zip(held, weights, strict=True)),
        "spread": _ratio(some("variance"), some("running")),
        "bursts": _ratio(some("long_variance"), some("long_running")),
        "running": _mean(
            (replica.running + (0.0 if math.isnan(replica.waiting) else replica.waiting), weight)
            for replica, weight in zip(serving, weights, strict=True)
        ),
        "gauged": some("gauged"),
        "covered": max(shares) if too_many else min(replica.covered for replica in judged),
        "sampled": min((replica.sampled for replica in judged if not replica.idle), default=1.0),
        "missing": 1 - len(covered) / len(targets),
    }
    if not routed:
        failed = some("failed")
        figures |= {
            "requests": finished,
            # A counter with labels may be there only from its first count on.
            "failed": finished * 0 if math.isnan(failed) else failed,
            "cancelled": some("cancelled"),
        }
    return figures


NO_REQUEST = Replica(**dict.fromkeys(COUNTS, 0.0))


def not_covered(
    replicas: Mapping[str, Replica], series: Series, window_s: float, scrape_s: float, servers: int
) -> Iterator[str]:
    """Which replicas are not covered, each with what is missing, and how many have no target. `servers`:
    those of the rollout file."""
    for name, replica in replicas.items():
        if replica.whole:
            continue
        if replica.covered < COVERED - 1e-9:
            newest = f"; its newest is {replica.age_s:.0f} s old" if replica.age_s > 2 * scrape_s else ""
            yield (
                f"{name}: {replica.covered:.0%} of the scrapes of the last {window_s:.0f} s succeeded"
                f" (threshold {COVERED:.0%}, one every {scrape_s:g} s){newest}"
            )
        elif math.isnan(replica.sampled):
            counted = series.generated if series.requests_by_router else f"{series.e2e}_count"
            yield f"{name}: it is scraped, and has no {counted}"
        else:
            yield (
                f"{name}: {replica.sampled:.0%} of the samples of its series are there for the last"
                f" {window_s:.0f} s (threshold {COVERED:.0%}, one every {scrape_s:g} s)"
            )
    if replicas and len(replicas) < servers:
        yield f"{servers - len(replicas)} of {servers} servers of the rollout file have no target"


def late_s(replicas: Iterable[Replica], scrape_s: float) -> float:
    """Seconds by which the newest samples are late, of the replicas whose samples are late by `LATE` scrapes
    at most: a window that ends there is covered. 0 where none is."""
    late = [
        replica.age_s
        for replica in replicas
        if not replica.whole and scrape_s < replica.age_s <= LATE * scrape_s
    ]
    return max(late, default=0.0)


LATE = 6
"""Scrapes by which samples may come late, as from an agent that sends them in batches: with 15 s between two
scrapes 90 s. The window then ends at the newest sample."""


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole > 0 else NOTHING


def _mean(values: Iterable[tuple[float, float]]) -> float:
    """The mean of (value, weight), of those that are numbers."""
    pairs = [(value, weight) for value, weight in values if not math.isnan(value + weight)]
    weight = math.fsum(weight for _, weight in pairs)
    return math.fsum(value * weight for value, weight in pairs) / weight if weight > 0 else NOTHING
