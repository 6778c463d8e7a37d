"""Whether a head fits its target: it reads the target's features and speaks the target's ids. Pure.

All of it from shapes. A head whose shapes fit may still be another target's of the same size; only its
config's word, where it gives one, and its acceptance tell.
"""

from __future__ import annotations

from collections.abc import Iterator

from specops.checkpoints.config import Config
from specops.checkpoints.headers import Weights
from specops.checkpoints.kind import FUSE, WORDS, Draft, Kind
from specops.phases.verify_draft.engine import Engine
from specops.phases.verify_draft.findings import Finding

NEEDED_EMBEDDED: dict[Kind, tuple[str, ...]] = {
    "eagle": (FUSE, "embed_tokens.weight"),
    "medusa": ("medusa_head.0.0.linear.weight",),
    "recurrent": ("recurrent.weight", "token.weight", "down.weight"),
    "early_exit": ("exit.weight",),
}


def fits(
    engine: Engine, draft: Draft, target: Config, config: Config, weights: Weights | None, used: int
) -> Iterator[Finding]:
    """`used`: one more than the highest id that the target's tokenizer uses."""
    if draft.speculators:
        yield _complete(draft)
    yield _features(draft, target, config, weights)
    yield _ids(config, used)
    reduced = config.whole("draft_vocab_size")
    if draft.kind in ("eagle3", "dflash", "dspark") and reduced and reduced < (config.vocab_size or reduced):
        yield _reduced(reduced, weights)
    if engine.support.heads_compared:
        yield _embedded(draft, target, config, weights)


def _complete(draft: Draft) -> Finding:
    check = "format"
    if draft.lacks:
        detail = f"the speculators format requires {', '.join(draft.lacks)}"
        return Finding(check=check, verdict="incompatible", detail=detail)
    detail = f"speculators, {draft.tokens} tokens at a time, trained for {draft.verifier}"
    return Finding(check=check, verdict="compatible", detail=detail)


def _features(draft: Draft, target: Config, config: Config, weights: Weights | None) -> Finding:
    check = "features"
    width = target.hidden_size
    said = config.whole("target_hidden_size")
    own = config.hidden_size
    if said is None and draft.kind in ("eagle", "medusa", "mtp", "recurrent", "early_exit"):
        said = own  # these have no width of their own
    fuse = weights.ends_with(FUSE) if weights else None
    if width is None or (said is None and fuse is None):
        return Finding(check=check, verdict="compatible", detail="the files do not say how wide they are")
    if said is not None and said != width:
        detail = f"it reads features of {said:,}, the target's are {width:,} wide: another target's head"
        return Finding(check=check, verdict="incompatible", detail=detail)
    if fuse is not None and len(fuse.shape) == 2:
        # EAGLE joins an embedding and a feature, the later kinds several layers' features.
        features = fuse.shape[1] - (own or 0) if draft.kind == "eagle" else fuse.shape[1]
        if features <= 0 or features % width:
            detail = f"{FUSE} takes {fuse.shape[1]:,} numbers, which no features of {width:,} add up to"
            return Finding(check=check, verdict="incompatible", detail=detail)
    return Finding(check=check, verdict="compatible", detail=f"{width:,} wide, as the target's are")


def _ids(config: Config, used: int) -> Finding:
    check = "rows"
    rows = config.vocab_size
    if rows is None:
        return Finding(check=check, verdict="compatible", detail="the target's; config.json gives no size")
    if rows < used:
        detail = f"its vocabulary has {rows:,} entries, the target uses ids up to {used - 1:,}"
        return Finding(check=check, verdict="incompatible", detail=detail)
    return Finding(
        check=check, verdict="compatible", detail=f"the target's; room for {rows:,}, {used:,} used"
    )


def _reduced(size: int, weights: Weights | None) -> Finding:
    check = "reduced vocabulary"
    if weights is None or not weights.tensors:
        detail = f"it drafts from {size:,} tokens; whether its weights map them back (d2t) cannot be seen"
        return Finding(check=check, verdict="compatible", detail=detail)
    offsets = weights.ends_with("d2t")
    if offsets is None:
        detail = f"it drafts from {size:,} tokens, and its weights have no d2t to map them back"
        return Finding(check=check, verdict="incompatible", detail=detail)
    if offsets.shape != (size,):
        detail = f"it drafts from {size:,} tokens, and d2t maps {offsets.shape} of them back"
        return Finding(check=check, verdict="incompatible", detail=detail)
    return Finding(
        check=check, verdict="compatible", detail=f"it drafts from {size:,} tokens, d2t maps them back"
    )


def _embedded(draft: Draft, target: Config, config: Config, weights: Weights | None) -> Finding:
    check = "form"
    tensors = weights.tensors if weights else {}
    lacking = [name for name in NEEDED_EMBEDDED.get(draft.kind, ()) if name not in tensors]
    if lacking:
        words = WORDS[draft.kind]
        detail = f"the embedded engine takes {words} with {' and '.join(lacking)} in model.safetensors"
        return Finding(check=check, verdict="incompatible", detail=detail)
    if draft.kind != "eagle":
        detail = f"{WORDS[draft.kind]} as the embedded engine takes it"
        return Finding(check=check, verdict="compatible", detail=detail)
    rows = tensors["embed_tokens.weight"].shape[0]
    if rows != target.vocab_size:
        detail = f"its embedding has {rows:,} rows, the target's vocabulary {target.vocab_size} entries"
        return Finding(check=check, verdict="incompatible", detail=detail)
    detail = f"EAGLE's, {config.layers} layer, as the embedded engine takes it"
    return Finding(check=check, verdict="compatible", detail=detail)
