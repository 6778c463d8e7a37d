"""Whether the client, and not the server, set the pace of a cell. Pure.

A busy client does not falsify TTFT: requests are clocked from their last byte, and reads by the kernel. It
falsifies the load, since a stream whose next request waits in the client is not in flight; and the gaps
between chunks, once several chunks are read in one piece.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from specops.load import metrics
from specops.load.observation import Observation

MOST_LAG_SHARE = 0.05
"""Of the time of requests, waiting in the client and in flight: what a stream is idle, it does not load."""

LEAST_S = 0.005
"""A delay below this is that of any program on a shared machine."""

LEAST_IN_ALL_S = 0.5
"""Requests that waited for less than this all together are too few to say what set the pace."""


def client_bound(observations: Sequence[Observation]) -> str | None:
    """The sentence that says how the client was the bottleneck; None where it was not.

    What connections took to be set up is not the client's: a server far away takes longer.
    """
    return _late_to_send(observations) or _late_to_read(observations)


def _late_to_send(observations: Sequence[Observation]) -> str | None:
    lags = [max(0.0, metrics.lag(one) - one.connecting) for one in observations]
    in_flight = sum(metrics.e2e_with_retries(one) for one in observations)
    lag = statistics.median(lags) if lags else 0.0
    if lag < LEAST_S or sum(lags) < LEAST_IN_ALL_S:
        return None
    share = sum(lags) / (sum(lags) + in_flight)
    if share <= MOST_LAG_SHARE:
        return None
    return (
        f"the client was the bottleneck: requests waited {lag * 1000:.0f} ms in it before they were sent "
        f"(median; {share:.0%} of their time)"
    )


def _late_to_read(observations: Sequence[Observation]) -> str | None:
    """Chunks that wait for longer than one takes to follow another are read several at a time.

    A read is clocked by the kernel, so a few that are late falsify a few gaps. It takes half of them to
    falsify what is usual.
    """
    delays = [delay for one in observations for delay in one.delays]
    delay = statistics.median(delays) if delays else None
    gaps = [statistics.fmean(gaps) for one in observations if (gaps := metrics.chunk_gaps(one))]
    if delay is None or not gaps or sum(delays) < LEAST_IN_ALL_S:
        return None
    if delay < max(LEAST_S, statistics.median(gaps)):
        return None
    return (
        f"the client was the bottleneck: what had arrived waited {delay * 1000:.0f} ms to be read (median), "
        f"and chunks came every {statistics.median(gaps) * 1000:.0f} ms"
    )
