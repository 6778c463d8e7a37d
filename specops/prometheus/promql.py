"""Expressions over what engines expose. Rules, panels, the guard and the report all take them from here.

Ratios divide increases of counters; the denominator is held above 0, so that an idle pool has no sample
rather than NaN. Latencies are means, the increase of a histogram's sum over that of its count: an engine's
buckets are too coarse to see a change of 20%.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, get_args

from specops.serving import Drafts, Series

Latency = Literal["ttft", "tpot", "e2e"]
LATENCIES: tuple[Latency, ...] = get_args(Latency)
Amount = Literal["drafts", "draft_tokens", "accepted_tokens"]
NO_MORE = 1.1
"""Tokens that a verification yields on average, up to which nothing is taken to be accepted."""


def stuck_window_s(series: Series, window_s: int) -> int:
    """Seconds without a token after which a server that runs requests is taken to be stuck. Longer where
    tokens are counted at the end of an answer: one may take minutes."""
    return window_s * (3 if series.counts_at_end else 1)


def selector(labels: Mapping[str, str]) -> str:
    """{a="1",b="2"}, with values escaped; empty without labels."""
    pairs = (f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return "{" + ",".join(pairs) + "}" if labels else ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


@dataclass(frozen=True)
class Signals:
    """Expressions over the series that have `labels`, over the last `window` (PromQL's duration, such as 5m
    or $__rate_interval), one result for each value of the labels `by`."""

    series: Series
    labels: Mapping[str, str]
    window: str
    by: tuple[str, ...] = ()

    def held_to(self, labels: Mapping[str, str]) -> Signals:
        """Return these expressions over only those series that also have `labels`."""
        return replace(self, labels={**self.labels, **labels})

    def acceptance(self) -> str:
        """Share of the drafted tokens that were accepted."""
        return f"{self._drafting('accepted_tokens')} / ({self._drafting('draft_tokens')} > 0)"

    def accepted_length(self) -> str:
        """Tokens that a verification yields, the bonus token included."""
        drafts = f"({self._drafting('drafts')} > 0)"
        if not all(names.accepted_tokens for names in self.series.acceptance):
            return f"{self._sum(self.series.generated)} / {drafts}"
        return f"1 + {self._drafting('accepted_tokens')} / {drafts}"

    def per_position(self) -> str | None:
        """Return the share of drafts accepted up to each `position`; None where the engine does not count
        it."""
        names = next((names for names in self.series.acceptance if names.per_position), None)
        if names is None or names.per_position is None or names.drafts is None:
            return None
        rate = f"rate({self._range_vector(names.per_position)})"
        if names.position != "position":
            rate = f'label_replace({rate}, "position", "$1", "{names.position}", "(.+)")'
        grown = f"sum by ({', '.join((*self.by, 'position'))}) ({rate})"
        drafts = self.held_to(names.which)._sum(names.drafts)
        return f"{grown} / ignoring (position) group_left () ({drafts} > 0)"

    def tokens_per_step(self) -> str | None:
        """Tokens that a sequence gets of a step of the engine: all tokens, over those that were not drafted.
        Every step yields one of these. None where the engine does not count accepted tokens."""
        if not all(names.accepted_tokens for names in self.series.acceptance):
            return None
        generated = self._sum(self.series.generated)
        return f"{generated} / ({generated} - {self._drafting('accepted_tokens')} > 0)"

    def mean(self, latency: Latency) -> str:
        """Seconds; of requests, but for TPOT where the engine has it of output events: there of tokens."""
        name: str = getattr(self.series, latency)
        if latency == "tpot" and self.series.tpot_of_events:
            later = f"{self._sum(self.series.generated)} - {self._sum(f'{self.series.ttft}_count')}"
            return f"{self._sum(self.series.tpot_seconds)} / ({later} > 0)"
        return self._ratio(f"{name}_sum", f"{name}_count")

    def quantile(self, latency: Latency, q: float) -> str | None:
        """Seconds, within its bucket. No sample in the first bucket, of which only the upper end is known;
        None where the engine has none of requests."""
        if latency == "tpot" and self.series.tpot_of_events:
            return None
        buckets = replace(self, by=(*self.by, "le"))._sum(f"{getattr(self.series, latency)}_bucket")
        # The smallest count is that of the first bucket, the largest that of all.
        first, all_ = (f"{self._aggregate(which)} ({buckets})" for which in ("min", "max"))
        return f"histogram_quantile({q:g}, {buckets}) and {first} < {q:g} * {all_}"

    def answer_tokens(self) -> str:
        """Tokens that an answer has on average. A router's count of requests has those that got no answer."""
        router = self.series.requests_by_router
        answers = f"{self.series.ttft}_count" if router else self.series.finished
        return self._ratio(self.series.generated, answers)

    def finished(self) -> str:
        """Requests that ended within the window."""
        return f"{self._aggregate('sum')} (increase({self._range_vector(self.series.finished)}))"

    def drafted(self) -> str:
        """Tokens that were drafted within the window."""
        return self._drafting("draft_tokens", "increase")

    def accepted(self) -> str:
        """Drafted tokens that were accepted within the window."""
        return self._drafting("accepted_tokens", "increase")

    def drafts(self) -> str:
        """Verifications of drafts within the window."""
        return self._drafting("drafts", "increase")

    def not_drafting(self, least: int) -> str:
        """Tokens of each server that made `least` or more in the window and drafted none, by `instance`."""
        generated, by, drafted = self._made_and_drafted(least)
        return f"{generated} unless on ({by}) {drafted} > 0"

    def stopped_drafting(self, least: int) -> str:
        """The same, of servers whose counters of drafts are there and stand still."""
        generated, by, drafted = self._made_and_drafted(least)
        return f"{generated} and on ({by}) {drafted} == 0"

    def _made_and_drafted(self, least: int) -> tuple[str, str, str]:
        servers = replace(self, by=(*self.by, "instance"))
        generated = (
            f"{servers._aggregate('sum')} (increase({self._range_vector(self.series.generated)})) >= {least}"
        )
        return generated, ", ".join(servers.by), servers.drafts()

    def http(self, *, failed: bool = False) -> str | None:
        """Requests that the server's API answered within the window, also those that the engine never had; or
        only those `failed` with a status of 500 or above. None where it does not count them."""
        responses = self.series.http
        if responses is None:
            return None
        labels = [f'{responses.path}=~"/v1/.*"', 'method="POST"']
        if failed:
            labels.append(f'{responses.status}=~"5.."')
        responses_range = self._range_vector(responses.counter, ",".join(labels))
        return f"{self._aggregate('sum')} (increase({responses_range}))"

    def stuck(self) -> str:
        """Requests of each server that had some all the time and made no token, by `instance`."""
        servers = replace(self, by=(*self.by, "instance"))
        aggregate, name = servers._aggregate("sum"), self.series.running
        running = f"{aggregate} (min_over_time({self._range_vector(name)})) > 0"
        # Scraped for as long as the window: what has just begun has made no token yet.
        since = f"{aggregate} ({name}{selector(self.labels)} offset {self.window}) > 0"
        return f"{running} and {since} and {servers._sum(self.series.generated)} == 0"

    def load(self) -> str:
        """Requests that a server has at a time, waiting ones included, as a request sees it: what a baseline
        calls its concurrency.

        Each instant counts by the requests that it has, so that idle time between them does not count, and it
        is at least 1: also where requests ended and no scrape caught one. By the gauges, not by a rate of how
        long requests took: that divides by the whole window, also by the part that was not scraped.
        """
        running, waiting = (
            f"{name}{selector(self.labels)}" for name in (self.series.running, self.series.waiting)
        )
        within, sums = f"({running} + {waiting})", self._aggregate("sum")
        squared = f"{sums} (sum_over_time(({within} ^ 2)[{self.window}:]))"
        observed = f"{squared} / ({sums} (sum_over_time({within}[{self.window}:])) > 0)"
        return f"{observed} or ({self.finished()} > 0) * 0 + 1"

    def waiting(self) -> str:
        """Requests that wait for a place, of all servers."""
        return f"{self._aggregate('sum')} (avg_over_time({self._range_vector(self.series.waiting)}))"

    def tokens_per_second(self) -> str:
        """Return the tokens a second that all servers generated."""
        return self._sum(self.series.generated)

    def kv_usage(self) -> str | None:
        """Share of the KV cache in use, of the server where it is largest. None where it has no gauge."""
        if self.series.kv_usage is None:
            return None
        return f"{self._aggregate('max')} (avg_over_time({self._range_vector(self.series.kv_usage)}))"

    def preemptions(self) -> str | None:
        """A second, of all servers. None where it counts none."""
        return self._sum(self.series.preemptions) if self.series.preemptions else None

    def aborted_share(self) -> str:
        """Return the share of the requests that ended which the engine gave up."""
        reasons = self.series.aborted_reasons
        which = f'finished_reason=~"{reasons}"' if reasons else ""
        finished = self._sum(self.series.finished)
        given_up = f"{self._aggregate('sum')} (rate({self._range_vector(self.series.aborted, which)}))"
        # A counter with labels may be there only from its first count on.
        return f"({given_up} or {finished} * 0) / ({finished} > 0)"

    def _drafting(self, amount: Amount, function: str = "rate") -> str:
        """Drafts, drafted or accepted tokens, by what the engine shows of its drafts (`Drafts`). Where it has
        several ways, or gauges, each server by the one that it shows."""
        ways = self.series.acceptance
        if len(ways) == 1 and ways[0].counted:
            return self._counted(ways[0], amount, function)
        servers = replace(self, by=tuple(dict.fromkeys((*self.by, "instance"))))
        by_way = " or ".join(servers._shown_by(names, amount, function) for names in ways)
        return f"{self._aggregate('sum')} ({by_way})"

    def _counted(self, names: Drafts, amount: Amount, function: str) -> str:
        held = self.held_to(names.which) if amount == "drafts" else self
        return held._sum(getattr(names, amount), function)

    def _shown_by(self, names: Drafts, amount: Amount, function: str) -> str:
        """The amount of each server by its counter, else by gauges."""
        if names.counted or (amount != "drafts" and getattr(names, amount)):
            return self._counted(names, amount, function)
        if names.accepted_tokens is not None:
            accepted = self._sum(names.accepted_tokens, function)
            return f"{accepted} / ({self._gauge(names.length)} - 1 > 0)"
        generated = self._sum(self.series.generated, function)
        drafts = f"({self._counted(names, 'drafts', function)} or {generated} / {self._gauge(names.length)})"
        if amount == "drafts":
            return drafts
        accepted = f"clamp_min({generated} - {drafts}, 0)"
        # Where nothing is accepted the gauge is 0 too. Then a verification yields one token, beside the one
        # that each answer gets from its prompt.
        yielded = f"{generated} - {self._sum(self.series.finished, function)}"
        in_vain = f"{drafts} unless {yielded} > {NO_MORE} * ({drafts} > 0)"
        if amount == "accepted_tokens":
            return f"{accepted} and {self._gauge(names.rate)} or ({in_vain}) * 0"
        return f"{accepted} / {self._gauge(names.rate)} or {in_vain}"

    def _gauge(self, gauge: str | None) -> str:
        """The mean of a gauge over its samples above 0: also an idle server has samples of 0."""
        above = f"{gauge}{selector(self.labels)} > 0"
        return f"{self._aggregate('avg')} (avg_over_time(({above})[{self.window}:]))"

    def _ratio(self, part: str, whole: str) -> str:
        return f"{self._sum(part)} / ({self._sum(whole)} > 0)"

    def _sum(self, counter: str, function: str = "rate") -> str:
        return f"{self._aggregate('sum')} ({function}({self._range_vector(counter)}))"

    def _range_vector(self, name: str, more: str = "") -> str:
        which = selector(self.labels)
        if more:
            which = f"{which[:-1]},{more}}}" if which else f"{{{more}}}"
        return f"{name}{which}[{self.window}]"

    def _aggregate(self, operator: str) -> str:
        return f"{operator} by ({', '.join(self.by)})" if self.by else operator
