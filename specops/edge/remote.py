"""The edge as a drafter: trees that come over the network, verified as any others are.

The engine does not know the difference. It asks this drafter for a tree of each sequence that has a turn, and
a turn is given only to sequences whose client has sent one, or for which the server drafts itself.
"""

from __future__ import annotations

from collections.abc import Sequence as Batch

from torch import Tensor

from specops.edge.proposal import Proposal
from specops.edge.quantised import ClientDistributions
from specops.engine.draft import Drafter, Learner
from specops.engine.sequence import Sequence
from specops.engine.tree import Draw, TokenTree, Topology


class Remote:
    def __init__(self, own: Drafter, nodes: int, vocabulary: int) -> None:
        """own: drafts where no client does. nodes: the most that a client may propose."""
        if isinstance(own, Learner):
            raise ValueError("a drafter that learns from steps has none of its own here")
        self._own = own
        self._vocabulary = vocabulary
        self.draws = own.draws
        self.reads_features = own.reads_features
        self.nodes = max(nodes, own.nodes)
        self.depth = max(nodes, own.depth)
        # By sequence:
        self._proposals: dict[int, Proposal] = {}  # until they are verified
        self._paths: dict[int, list[int]] = {}  # of those that were
        self._itself: set[int] = set()  # the server drafts

    def put(self, sequence_id: int, proposal: Proposal) -> None:
        """A client's tree, checked (requests.py), for the sequence's next turn."""
        self._proposals[sequence_id] = proposal

    def draft_itself(self, sequence_id: int, itself: bool) -> None:
        """Whether the server drafts for a sequence when it has a turn and nothing was put for it."""
        (self._itself.add if itself else self._itself.discard)(sequence_id)

    def accepted(self, sequence_id: int) -> list[int]:
        """Nodes of the tree that was put last, verified since; asked once. Empty where none was put."""
        return self._paths.pop(sequence_id, [])

    def forget(self, sequence_id: int) -> None:
        """A sequence has ended, or was taken back."""
        self._proposals.pop(sequence_id, None)
        self._paths.pop(sequence_id, None)
        self._itself.discard(sequence_id)

    def draft(self, sequences: Batch[Sequence]) -> list[TokenTree]:
        trees = [self._proposed(sequence) for sequence in sequences]
        own = [index for index, sequence in enumerate(sequences) if self._drafts(sequence)]
        if own:
            drafted = self._own.draft([sequences[index] for index in own])
            for index, tree in zip(own, drafted, strict=True):
                trees[index] = tree
        return trees

    def _drafts(self, sequence: Sequence) -> bool:
        return sequence.id in self._itself and sequence.id not in self._proposals

    def _proposed(self, sequence: Sequence) -> TokenTree:
        root = sequence.tokens[-1]
        proposal = self._proposals.get(sequence.id)
        if proposal is None or sequence.reading or not proposal.tokens:
            return TokenTree.bare(root)
        topology = Topology.of((-1, *proposal.parents))
        tokens = [root, *proposal.tokens]
        if sequence.greedy or proposal.draw is Draw.DETERMINISTIC:
            return TokenTree(topology, tokens, Draw.DETERMINISTIC)
        return TokenTree(
            topology, tokens, proposal.draw, ClientDistributions(proposal.drawn, self._vocabulary)
        )

    def commit(self, sequence: Sequence, path: list[int], features: Tensor | None) -> None:
        proposed = not sequence.reading and self._proposals.pop(sequence.id, None) is not None
        if proposed:
            self._paths[sequence.id] = path
        # The own drafter catches up with what was not its own when it is next asked; features come only now.
        if sequence.id in self._itself and not proposed:
            self._own.commit(sequence, path, features)
        elif self.reads_features:
            self._own.commit(sequence, [], features)

    def move(self, sequence: Sequence, row: int) -> None:
        self._own.move(sequence, row)

    def release(self, sequence: Sequence) -> None:
        self._own.release(sequence)
