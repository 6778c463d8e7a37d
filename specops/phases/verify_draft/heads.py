"""Whether a head fits its target: it reads the target's features and speaks the target's ids. Pure.

All of it from shapes. A head whose shapes fit may still be another target's of the same size; only its
config's word, where it gives one, and its acceptance tell.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specops.checkpoints.draft_kind import FUSE, WORDS, Draft, Kind
from specops.checkpoints.model_config import Config
from specops.checkpoints.source import Tensor, Weights
from specops.phases.verify_draft.engine import Engine
from specops.phases.verify_draft.findings import Finding, Severity
from specops.phases.verify_draft.pair import Side

NEEDED_EMBEDDED: dict[Kind, tuple[str, ...]] = {
    "eagle": (FUSE, "embed_tokens.weight"),
    "medusa": ("medusa_head.0.0.linear.weight",),
    "recurrent": ("recurrent.weight", "token.weight", "down.weight"),
    "early_exit": ("exit.weight",),
}


def fits(engine: Engine, draft: Draft, target: Side, head: Side, used: int) -> Iterator[Finding]:
    """`used`: one more than the highest id that the target's tokenizer uses."""
    if draft.speculators:
        yield _complete(draft)
    if draft.verifier_architectures:
        yield _trained_for(draft, target.config)
    yield _features(draft, target.config, head.config, head.weights)
    reduced = head.config.whole("draft_vocab_size")
    drafts_fewer = reduced is not None and reduced < (head.config.vocab_size or reduced)
    yield _ids(head.config, target.config, used, reduced=drafts_fewer)
    if draft.kind in ("eagle3", "dflash", "dspark") and reduced and drafts_fewer:
        yield _reduced(reduced, target.config.vocab_size, head)
    if engine.support.heads_compared:
        yield _embedded(draft, target.config, head.config, head.weights)


def _complete(draft: Draft) -> Finding:
    check = "format"
    if draft.lacks:
        detail = f"the speculators format requires {', '.join(draft.lacks)}"
        return Finding(check=check, verdict="incompatible", detail=detail)
    detail = f"speculators, {draft.tokens} tokens at a time, trained for {draft.verifier}"
    return Finding(check=check, verdict="compatible", detail=detail)


def _trained_for(draft: Draft, target: Config) -> Finding:
    """A head reads one model's features. A text model inside a multimodal one has another name."""
    check = "trained for"
    trained, served = draft.verifier_architectures, target.architectures
    if not served or set(trained) & set(served):
        return Finding(check=check, verdict="compatible", detail=f"{draft.verifier}, {', '.join(trained)}")
    detail = f"its config names {', '.join(trained)}; the target is {', '.join(served)}"
    multimodal = any("ConditionalGeneration" in name for name in (*trained, *served))
    return Finding(check=check, verdict="degraded" if multimodal else "incompatible", detail=detail)


def _features(draft: Draft, target: Config, config: Config, weights: Weights | None) -> Finding:
    check = "features"
    width = target.hidden_size
    said = config.whole("backbone_hidden_size" if draft.assistant else "target_hidden_size")
    own = config.hidden_size
    if said is None and draft.kind in ("eagle", "medusa", "mtp", "recurrent", "early_exit"):
        said = own  # these have no width of their own
    fuse = weights.ends_with(FUSE) if weights else None
    if width is None or (said is None and fuse is None):
        return Finding(check=check, verdict="compatible", detail="the files do not give its width")
    if said is not None and said != width:
        detail = f"it reads features of {said:,}, the target's are {width:,} wide: another target's head"
        return Finding(check=check, verdict="incompatible", detail=detail)
    if fuse is not None and len(fuse.shape) == 2:
        # EAGLE joins an embedding and a feature, the later kinds several layers' features.
        features = fuse.shape[1] - (own or 0) if draft.kind == "eagle" else fuse.shape[1]
        layers = _layers_read(draft, config)
        if features <= 0 or features % width or (layers is not None and features != layers * width):
            read = "a whole number" if layers is None else str(layers)
            detail = (
                f"{FUSE} takes {fuse.shape[1]:,} numbers, which are not the features of {read} "
                f"{'layer' if layers == 1 else 'layers'} of {width:,}"
            )
            return Finding(check=check, verdict="incompatible", detail=detail)
    return Finding(check=check, verdict="compatible", detail=f"{width:,} wide, as the target's are")


def _layers_read(draft: Draft, config: Config) -> int | None:
    """How many layers' features the head joins (vLLM 0.33); None where its kind has no default."""
    if draft.kind == "eagle":
        return 1
    for key in ("eagle_aux_hidden_state_layer_ids", "aux_hidden_state_layer_ids", "target_layer_ids"):
        for section in (config.raw, config.text, *map(config.raw.get, ("eagle_config", "dflash_config"))):
            listed = section.get(key) if isinstance(section, dict) else None
            if isinstance(listed, list) and listed:
                return len(listed)
    return 3 if draft.kind == "eagle3" else None


def _ids(config: Config, target: Config, used: int, *, reduced: bool) -> Finding:
    check = "rows"
    rows, most = config.vocab_size, target.vocab_size
    if rows is None:
        return Finding(check=check, verdict="compatible", detail="the target's; config.json gives no size")
    if rows < used:
        detail = f"its vocabulary has {rows:,} entries, the target uses ids up to {used - 1:,}"
        return Finding(check=check, verdict="incompatible", detail=detail)
    if most is not None and rows > most and not reduced:
        detail = f"its vocabulary has {rows:,} entries, the target's {most:,}: another target's head"
        return Finding(check=check, verdict="incompatible", detail=detail)
    return Finding(
        check=check, verdict="compatible", detail=f"the target's; room for {rows:,}, {used:,} used"
    )


def _reduced(size: int, target_rows: int | None, head: Side) -> Finding:
    """d2t[i] + i is the target's id of the head's token i, and t2d marks those ids (arXiv:2503.01840)."""
    check, weights = "reduced vocabulary", head.weights

    def found(verdict: Severity, detail: str) -> Finding:
        return Finding(check=check, verdict=verdict, detail=f"it drafts from {size:,} tokens, {detail}")

    if weights is None or not weights.tensors:
        return found("compatible", "and its files do not show whether its weights map them back (d2t)")
    offsets, marks = weights.ends_with("d2t"), weights.ends_with("t2d")
    if offsets is None:
        return found("incompatible", "and its weights have no d2t to map them back")
    if offsets.shape != (size,):
        return found("incompatible", f"and d2t maps {offsets.shape} of them back")
    if marks is not None and target_rows is not None and marks.shape != (target_rows,):
        detail = f"t2d covers {marks.shape[0]:,} ids, the target has {target_rows:,}: another target's head"
        return found("incompatible", detail)
    values = _values(head, offsets)
    if values is None:
        return found("compatible", "d2t maps them back (its values were not read)")
    ids = values.astype(np.int64) + np.arange(size)
    if target_rows is not None and (ids.min() < 0 or ids.max() >= target_rows):
        detail = (
            f"d2t maps them to ids up to {ids.max():,}, the target has {target_rows:,}: another target's head"
        )
        return found("incompatible", detail)
    if len(np.unique(ids)) != size:
        return found("incompatible", "and d2t maps several of them to one id")
    marked = None if marks is None else _values(head, marks)
    if marked is not None and not np.array_equal(np.flatnonzero(marked), np.sort(ids)):
        return found("incompatible", "and t2d marks other ids than d2t maps them to")
    return found("compatible", "d2t maps them back")


def _values(head: Side, tensor: Tensor) -> NDArray[Any] | None:
    """A vector's numbers; None where they cannot be read (the hub, an unusual type)."""
    types = {"I64": "<i8", "I32": "<i4", "BOOL": "?", "U8": "u1"}
    if tensor.dtype not in types:
        return None
    content = head.checkpoint.tensor(tensor.file, tensor.offsets)
    return None if content is None else np.frombuffer(content, types[tensor.dtype])


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
