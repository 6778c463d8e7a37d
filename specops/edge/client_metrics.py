"""Counters of a client since its engine was made, and their series for /metrics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily

from specops.edge.fallback import CAUSES
from specops.edge.link import Proposal, Traffic


@dataclass
class EdgeCounters:
    rounds: int = 0  # verdicts on what was sent, but for those on prompts
    verdicts: int = 0  # all, those that were not requested as well
    nodes: int = 0  # sent
    hits: int = 0  # of these rounds, after which the next tree went on from what was drafted ahead
    taken: int = 0  # of these, whose next tree the server had and went on with at once
    passes: int = 0  # of the draft; one that reads is one
    run: int = 0  # nodes that passes ran
    ahead: int = 0  # of these, while their tree was away
    spliced: int = 0  # of these, what the round's verdict let stand
    wasted: int = 0  # and what it did not
    by_levels: dict[int, int] = field(default_factory=dict)  # rounds by how deep the tree was
    draft_s: float = 0.0  # from a verdict to the next round's departure
    network_s: float = 0.0  # from there to its verdict, without the next two
    waited_s: float = 0.0  # at the server, from a round's arrival to its step
    step_s: float = 0.0  # of the server
    evicted: int = 0  # tokens that the server read again
    downs: int = 0  # times that the link broke
    resumed: int = 0  # sessions taken up again
    reopened: int = 0  # sessions begun anew, since the server had lost them
    failed: int = 0  # sequences that could not be ended
    to_server: int = 0  # sessions handed to the server's own drafting
    to_client: int = 0  # and taken back

    def count_tree(self, proposal: Proposal) -> None:
        """Count a tree that is sent."""
        depths = [0]
        for parent in proposal.parents:
            depths.append(depths[parent] + 1)
        self.nodes += len(proposal.tokens)
        self.by_levels[max(depths)] = self.by_levels.get(max(depths), 0) + 1

    @property
    def misses(self) -> int:
        """Number of rounds after which nothing that was drafted ahead could be used."""
        return self.rounds - self.hits


@dataclass(frozen=True)
class ClientState:
    """State of a client, for display."""

    counters: EdgeCounters
    traffic: Traffic
    switches: dict[str, int]
    """Number of changes between drafting at the client and at the server, by cause."""

    server_drafts: bool
    connected: bool


def edge_series(state: ClientState, labels: dict[str, str]) -> Iterator[Metric]:
    """The series of a client. labels: those of every series."""
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
