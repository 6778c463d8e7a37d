"""From folders on disk to the engine of a verification server: one whose drafter is its clients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path

from specops.edge.remote import Remote
from specops.engine.draft import Drafter
from specops.engine.drafters import make_drafter
from specops.engine.heads import open_draft
from specops.engine.load import PREFILL_CHUNK, load_target
from specops.engine.models.model import FeatureModel, Shape
from specops.engine.step import Engine
from specops.engine.verifiers import ByDraw, make_verifier
from specops.errors import UsageError
from specops.trees import parse_tree


@dataclass(frozen=True)
class EngineSettings:
    """What verifies, and how much of it there is."""

    target: Path
    tree: str = "none"
    """What the server drafts for itself, where a client does not (specops.trees)."""

    draft: str | Path | None = None
    """For that tree."""

    verifier: str | None = None
    """For trees at temperature > 0, where it is lossless for how they were drawn; None: the best that is."""

    max_batch: int = 8
    """Rounds verified in one step, at most."""

    rows: int | None = None
    """Sessions that keep their KV at a time; None: what `kv_mb` holds, or else four for each of max_batch."""

    kv_mb: float | None = None
    """MiB for the target's KV."""

    max_length: int | None = None
    """Tokens of one session, its prompt included; None: the target's positions."""

    max_nodes: int = 64
    """Of a round."""

    prefill_chunk: int = PREFILL_CHUNK
    threads: int | None = None


def load_verifier(
    settings: EngineSettings,
    *,
    pace: Callable[[FeatureModel], FeatureModel] | None = None,
    pace_draft: Callable[[FeatureModel], FeatureModel] | None = None,
) -> Engine:
    """An engine for `verify_in_process`, over a Remote.

    pace, pace_draft: put in the place of target and own draft, such as a stand-in for another machine's
    (paced.py). Raises UsageError and ModelError.
    """
    spec = parse_tree(settings.tree)
    chosen = None if settings.verifier is None else make_verifier(settings.verifier)
    if min(settings.max_batch, settings.max_nodes, settings.prefill_chunk) < 1:
        raise UsageError("max_batch, max_nodes and prefill_chunk must be at least 1")
    if spec.kind == "auto":
        raise UsageError(
            "a server that verifies its clients' trees cannot plan its own by what steps take",
            hint="name a tree, such as ngram:8 or chain:3, or none",
        )
    if spec.needs_draft and settings.draft is None:
        raise UsageError(
            f"the tree {settings.tree!r} needs a draft", hint="name one, or draft ngram:8 or none"
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
    """Of the KV of one session of up to `length` tokens, with a tree of `nodes` behind it."""
    values = shape.layers * (length + nodes) * 2 * shape.kv_heads * shape.head_dim
    return values * shape.dtype.itemsize


def _rows(settings: EngineSettings, shape: Shape, length: int) -> int:
    """One more than rounds in a step, at least: beside those, something may have to be read."""
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
            f"{requested} is too little to verify {settings.max_batch} rounds in a step and read beside them",
            hint=f"give room for at least {least}, a smaller --max-batch or a smaller --max-length",
        )
    return rows
