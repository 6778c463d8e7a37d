"""Counters of a client since its engine was made, and their series for /metrics."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from prometheus_client.core import Metric, SummaryMetricFamily

from specops.edge.fallback import CAUSES
from specops.edge.link import Proposal, Traffic
from specops.serve.metrics import Families


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
    own = Families("specops_edge_", labels)

    def seconds(name: str, help_text: str, total: float) -> Metric:
        family = SummaryMetricFamily(f"specops_edge_{name}_seconds", help_text, labels=list(labels))
        family.add_metric(list(labels.values()), rounds, total)
        return family

    yield own.gauge("connected", "1 while the verify-server can be reached.", state.connected)
    yield own.gauge("server_drafts", "1 while the server drafts for itself.", state.server_drafts)
    yield own.counter("rounds", "Trees that were verified.", rounds)
    yield own.counter("rounds_ahead", "Rounds sent before the previous verdict.", counters.taken)
    yield own.counter("verdicts", "All verdicts, also on what the server drafted.", counters.verdicts)
    yield own.counter("nodes", "Nodes sent.", counters.nodes)
    yield seconds(
        "network",
        "Network round-trip time of a round in seconds; near 0 for rounds sent ahead.",
        counters.network_s,
    )
    yield seconds("server_wait", "Time that a round waited at the server, in seconds.", counters.waited_s)
    yield seconds("server_step", "Time of the server's step of a round, in seconds.", counters.step_s)
    yield seconds(
        "draft", "Drafting time of a round that its stream waited for, in seconds.", counters.draft_s
    )
    guesses = {"hit": counters.hits, "miss": counters.misses}
    yield own.counters("guesses", "Rounds, by whether the next tree was begun ahead.", "outcome", guesses)
    yield own.counter("draft_passes", "Passes of the draft.", counters.passes)
    yield own.counter("wasted_nodes", "Nodes drafted ahead and not used.", counters.wasted)
    sizes = {"sent": traffic.sent, "received": traffic.received}
    yield own.counters("bytes", "Messages to and from the server.", "direction", sizes)
    yield own.counter("reconnects", "Reconnections of the link.", traffic.reconnects)
    yield own.counter(
        "reopened_sessions", "Sessions begun anew, which the server had lost.", counters.reopened
    )
    yield own.counter("failed_sequences", "Sequences that could not be completed.", counters.failed)
    causes: dict[str, int] = {cause: state.switches.get(cause, 0) for cause in CAUSES}
    yield own.counters("switches", "Changes of who drafts, by their cause.", "cause", causes)
