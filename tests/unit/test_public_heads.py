"""Public checkpoints of drafts: kind, tokens and what an engine does with them."""

from __future__ import annotations

import pytest
from public_heads import HEADS, PublicHead

from specops.checkpoints.draft_kind import kind_of
from specops.checkpoints.model_config import Config
from specops.checkpoints.source import Tensor, Weights
from specops.phases.verify_draft.engine_fit import EngineRelease


def answers(head: PublicHead) -> dict[str, object]:
    """What the product says of a head, by the names of the row's fields."""
    raw = dict(head.config) | ({"gguf_file": True} if head.gguf else {})
    inner = raw.get("transformer_layer_config") or raw.get("text_config") or raw
    config = Config(raw, inner, head.name)
    weights = Weights(2, {name: Tensor("BF16", (1,), 2) for name in head.tensors})
    draft = kind_of(config, weights, {}, is_target=head.is_target)
    engine = EngineRelease.at_version(head.engine, head.version)
    treatment = engine.treats(draft)
    support = engine.support
    known = None
    if head.architecture_known is not None and support.architecture and support.heads:
        speculators = str(raw.get("speculators_model_type")) if draft.speculators else None
        named = next(iter(config.architectures), "")
        loaded = support.architecture(draft.kind, named, speculators, str(inner.get("model_type") or ""))
        known = loaded is not None and support.heads.knows(loaded, engine.number)
    return {
        "kind": draft.kind,
        "tokens": draft.tokens,
        "does": treatment.does,
        "method": treatment.method,
        "architecture_known": known,
    }


@pytest.mark.parametrize("head", HEADS, ids=[head.name for head in HEADS])
def test_a_public_head_is_told_by_its_files(head: PublicHead) -> None:
    observed = answers(head)
    assert observed == {name: getattr(head, name) for name in observed}


def test_every_row_has_its_source() -> None:
    assert all(head.source.startswith("https://") for head in HEADS)
    assert len({head.name for head in HEADS}) == len(HEADS)
