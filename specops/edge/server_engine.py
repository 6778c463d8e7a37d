"""The engine of a verification server, loaded from folders on disk. Its drafter, `Remote`, has the clients'
trees.

The engine asks this drafter for a tree of each sequence in a step. Only sequences take part whose client has
sent a tree, or for which the server drafts itself.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Batch
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path

from torch import Tensor

from specops.edge.link import Proposal
from specops.edge.quantisation import ClientDistributions
from specops.engine.draft import Drafter, Learner
from specops.engine.drafters import make_drafter
from specops.engine.heads import open_draft
from specops.engine.load import PREFILL_CHUNK, load_target
from specops.engine.models.model import FeatureModel, Shape
from specops.engine.sequence import Sequence
from specops.engine.step import Engine
from specops.engine.tree import Draw, TokenTree, Topology
from specops.engine.verifiers import ByDraw, make_verifier
from specops.errors import UsageError
from specops.hints import with_options, with_value
from specops.trees import parse_tree


class Remote:
    def __init__(self, own: Drafter, nodes: int, vocabulary: int) -> None:
        """own: drafter for sequences without a client's tree. nodes: the most that a client may propose."""
        if isinstance(own, Learner):
            raise ValueError("a drafter that learns from steps has none of its own here")
        self._own = own
        self._vocabulary = vocabulary
        self.draws = own.draws
        self.reads_features, self.caches = own.reads_features, own.caches
        self.nodes = max(nodes, own.nodes)
        self.depth = max(nodes, own.depth)
        # By sequence:
        self._proposals: dict[int, Proposal] = {}  # until they are verified
        self._paths: dict[int, list[int]] = {}  # of those that were
        self._itself: set[int] = set()  # the server drafts

    def put(self, sequence_id: int, proposal: Proposal) -> None:
        """Store a client's tree, checked by `wire.read_request`, for the sequence's next step."""
        self._proposals[sequence_id] = proposal

    def draft_itself(self, sequence_id: int, itself: bool) -> None:
        """Set whether the server drafts for a sequence without a stored tree."""
        (self._itself.add if itself else self._itself.discard)(sequence_id)

    def accepted(self, sequence_id: int) -> list[int]:
        """Accepted nodes of the last stored tree, once; empty without one."""
        return self._paths.pop(sequence_id, [])

    def forget(self, sequence_id: int) -> None:
        """Drop the state of a sequence."""
        self._proposals.pop(sequence_id, None)
        self._paths.pop(sequence_id, None)
        self._itself.discard(sequence_id)

    def draft(self, sequences: Batch[Sequence]) -> list[TokenTree]:
        trees = [self._proposed(sequence) for sequence in sequences]
        itself = self._itself - self._proposals.keys()
        own = [index for index, sequence in enumerate(sequences) if sequence.id in itself]
        if own:
            drafted = self._own.draft([sequences[index] for index in own])
            for index, tree in zip(own, drafted, strict=True):
                trees[index] = tree
        return trees

    def _proposed(self, sequence: Sequence) -> TokenTree:
        root = sequence.tokens[-1]
        proposal = self._proposals.get(sequence.id)
        if proposal is None or sequence.reading or not proposal.tokens:
            return TokenTree.bare(root)
        topology = Topology.from_parents((-1, *proposal.parents))
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
        # The server's drafter reads a client's tokens when it drafts next; their features come only now.
        if sequence.id in self._itself and not proposed:
            self._own.commit(sequence, path, features)
        elif self.reads_features:
            self._own.commit(sequence, [], features)

    def move(self, sequence: Sequence, row: int) -> None:
        self._own.move(sequence, row)

    def release(self, sequence: Sequence) -> None:
        self._own.release(sequence)


@dataclass(frozen=True)
class EngineSettings:
    """Models and capacity of a verifying engine."""

    target: Path
    tree: str = "none"
    """Tree that the server drafts for itself (specops.trees)."""

    draft: str | Path | None = None
    """Folder of the draft for that tree."""

    verifier: str | None = None
    """Verifier of trees at temperature > 0 for which it is lossless; None: the best for each draw."""

    max_batch: int = 8
    """Largest number of rounds in one step."""

    rows: int | None = None
    """Number of sessions with KV in memory; None: as many as `kv_mb` holds, or four times `max_batch`."""

    kv_mb: float | None = None
    """MiB for the target's KV."""

    max_length: int | None = None
    """Largest number of tokens of a session, prompt included; None: the target's positions."""

    max_nodes: int = 64
    """Largest number of nodes of a round."""

    prefill_chunk: int = PREFILL_CHUNK
    threads: int | None = None


def load_verifier(
    settings: EngineSettings,
    *,
    pace: Callable[[FeatureModel], FeatureModel] | None = None,
    pace_draft: Callable[[FeatureModel], FeatureModel] | None = None,
) -> Engine:
    """An engine for `verify_in_process`, over a Remote.

    pace, pace_draft: functions that wrap the target and the server's draft, such as a stand-in for another
    machine (paced.py). Raises UsageError and ModelError.
    """
    spec = parse_tree(settings.tree)
    chosen = None if settings.verifier is None else make_verifier(settings.verifier)
    if min(settings.max_batch, settings.max_nodes, settings.prefill_chunk) < 1:
        raise UsageError("max_batch, max_nodes and prefill_chunk must be at least 1")
    if spec.kind == "auto":
        raise UsageError(
            "the tree auto is unsupported on a server that verifies its clients' trees: expected a "
            "tree such as ngram:8 or chain:3, or none",
            hint=with_value(settings.tree, "ngram:8"),
        )
    if spec.needs_draft and settings.draft is None:
        raise UsageError(
            f"the tree {settings.tree!r} needs a draft; ngram:8 and none need none",
            hint=with_value(settings.tree, "ngram:8"),
        )
    target = load_target(settings.target, threads=settings.threads)
    shape, length = target.model.shape, target.length(settings.max_length)
    rows = _rows(settings, shape, length)
    growers = []
    if spec.needs_draft and settings.draft is not None:
        draft = open_draft(settings.draft, settings.target, target.model, pace_draft or target.wrap)
        growers = [draft.grower]
    verifier = ByDraw(chosen)
    own: Drafter = make_drafter(settings.tree, verifier.prefers, growers, rows, length)
    if pace is not None:
        target = replace(target, model=pace(target.model))
    return target.engine(
        Remote(own, settings.max_nodes, shape.vocab),
        verifier,
        max_batch=rows,
        max_length=length,
        prefill_chunk=settings.prefill_chunk,
    )


def row_bytes(shape: Shape, length: int, nodes: int) -> int:
    """Bytes of KV of one session with up to `length` tokens and a tree of `nodes` nodes."""
    values = shape.layers * (length + nodes) * 2 * shape.kv_heads * shape.head_dim
    return values * shape.dtype.itemsize


def _rows(settings: EngineSettings, shape: Shape, length: int) -> int:
    """Number of rows: at least one more than rounds in a step, so that a prompt can be read beside them."""
    least = settings.max_batch + 1
    if settings.rows is not None:
        rows, requested = settings.rows, f"{settings.rows} sessions"
    elif settings.kv_mb is not None:
        if not isfinite(settings.kv_mb):
            raise UsageError(f"kv_mb must be a number of MiB, not {settings.kv_mb}")
        nodes = max(settings.max_nodes, parse_tree(settings.tree).nodes)
        rows = int(settings.kv_mb * 2**20 // row_bytes(shape, length, nodes))
        requested = f"{settings.kv_mb:g} MiB, which is room for {rows} sessions of {length} tokens,"
    else:
        return max(least, 4 * settings.max_batch)
    if rows < least:
        raise UsageError(
            f"{requested} is too small to verify {settings.max_batch} rounds in a step and read beside them: "
            f"expected room for at least {least} sessions",
            hint=with_options({"--sessions": str(least), "--kv-mb": None}),
        )
    return rows
