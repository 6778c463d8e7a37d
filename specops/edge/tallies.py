"""What a client counts: totals since its engine was made, whose differences are what to look at."""

from __future__ import annotations

from dataclasses import dataclass, field

from specops.edge.link import Traffic
from specops.edge.proposal import Proposal


@dataclass
class EdgeCounters:
    rounds: int = 0  # verdicts on what was sent, but for those on prompts
    verdicts: int = 0  # all, those that were not asked for as well
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
        """It is sent."""
        depths = [0]
        for parent in proposal.parents:
            depths.append(depths[parent] + 1)
        self.nodes += len(proposal.tokens)
        self.by_levels[max(depths)] = self.by_levels.get(max(depths), 0) + 1

    @property
    def misses(self) -> int:
        """Rounds after which the next tree began anew."""
        return self.rounds - self.hits


@dataclass(frozen=True)
class ClientState:
    """How a client is, for whoever shows it."""

    counters: EdgeCounters
    traffic: Traffic
    switches: dict[str, int]
    """Of who drafts, by cause."""

    server_drafts: bool
    connected: bool
