"""What an edge client adds to a server's /metrics: how its link, its drafts and its guesses do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily

from specops.edge.fallback import CAUSES
from specops.edge.tallies import ClientState


def edge_series(state: ClientState, labels: dict[str, str]) -> Iterator[Metric]:
    """`labels`: of every series."""
    counters, traffic, rounds = state.counters, state.traffic, state.counters.rounds
    names, values = list(labels), list(labels.values())

    def counter(name: str, help_text: str, value: float) -> Metric:
        family = CounterMetricFamily(f"specops_edge_{name}", help_text, labels=names)
        family.add_metric(values, value)
        return family

    def counters_by(name: str, help_text: str, label: str, by: Mapping[str, int]) -> Metric:
        family = CounterMetricFamily(f"specops_edge_{name}", help_text, labels=[*names, label])
        for key, value in by.items():
            family.add_metric([*values, key], value)
        return family

    def gauge(name: str, help_text: str, value: float) -> Metric:
        family = GaugeMetricFamily(f"specops_edge_{name}", help_text, labels=names)
        family.add_metric(values, value)
        return family

    def seconds(name: str, help_text: str, total: float) -> Metric:
        family = SummaryMetricFamily(f"specops_edge_{name}_seconds", help_text, labels=names)
        family.add_metric(values, rounds, total)
        return family

    yield gauge("connected", "1 while the verify-server can be reached.", state.connected)
    yield gauge("server_drafts", "1 while the server drafts for itself.", state.server_drafts)
    yield counter("rounds", "Trees that were verified.", rounds)
    yield counter("rounds_ahead", "Of these, those sent ahead of the verdict before them.", counters.taken)
    yield counter("verdicts", "All verdicts, also on what the server drafted.", counters.verdicts)
    yield counter("nodes", "Nodes sent.", counters.nodes)
    yield seconds(
        "network", "Of a round: there and back; next to nothing of one sent ahead.", counters.network_s
    )
    yield seconds("server_wait", "Of a round: at the server before its step.", counters.waited_s)
    yield seconds("server_step", "Of a round: the server's step.", counters.step_s)
    yield seconds("draft", "Of a round: drafting that the stream waited for.", counters.draft_s)
    guesses = {"hit": counters.hits, "miss": counters.misses}
    yield counters_by("guesses", "Rounds, by whether the next tree was begun ahead.", "outcome", guesses)
    yield counter("draft_passes", "Passes of the draft.", counters.passes)
    yield counter("wasted_nodes", "Nodes that were run ahead in vain.", counters.wasted)
    sizes = {"sent": traffic.sent, "received": traffic.received}
    yield counters_by("bytes", "Messages to and from the server.", "direction", sizes)
    yield counter("reconnects", "Times that the link was connected again.", traffic.reconnects)
    yield counter("reopened_sessions", "Sessions begun anew, which the server had lost.", counters.reopened)
    yield counter("failed_sequences", "Sequences that could not be ended.", counters.failed)
    causes: dict[str, int] = {cause: state.switches.get(cause, 0) for cause in CAUSES}
    yield counters_by("switches", "Changes of who drafts, by their cause.", "cause", causes)
