"""From a server's address and a draft's folder to an engine that drafts here and verifies there."""

from __future__ import annotations

from pathlib import Path

import torch

from specops.edge.client import EdgeEngine
from specops.edge.connection import connect
from specops.edge.describe import tokenizer_digest
from specops.edge.destination import Destination
from specops.edge.fallback import Fallback
from specops.edge.link import Link
from specops.edge.settings import DEFAULT, Drafting
from specops.engine.heads import needs_target
from specops.engine.models import load_model
from specops.engine.text import load_tokenizer
from specops.errors import ModelError

HINT = "a draft must share the target's token ids: `specops verify-draft TARGET DRAFT` says where they differ"


def open_client(
    destination: Destination,
    draft: Path,
    settings: Drafting = DEFAULT,
    fallback: Fallback | None = None,
    *,
    copies: bool = False,
    threads: int | None = None,
) -> EdgeEngine:
    """draft: a draft model's folder, whose tokenizer speaks for the server's as well. copies: draft without
    the model, by copying what followed the last few tokens before. threads: of torch; None leaves them.

    Raises what `connect` does, and ModelError for a draft that cannot be loaded or does not fit.
    """
    if threads is not None:
        torch.set_num_threads(threads)
    link = connect(destination)
    try:
        return _over(link, draft, settings, fallback, copies=copies)
    except BaseException:
        link.close()
        raise


def _over(
    link: Link, draft: Path, settings: Drafting, fallback: Fallback | None, *, copies: bool
) -> EdgeEngine:
    if not draft.is_dir():
        raise ModelError(
            f"could not draft with {draft}: there is no such folder",
            hint="give a local folder in transformers' format: config.json, weights and tokenizer",
        )
    if not copies and needs_target(draft):
        raise ModelError(
            f"could not draft with {draft}: it is a head or an early exit; those read the target's "
            "features, which stay on the server",
            hint="take a draft model of its own with the target's vocabulary, or --copy",
        )
    served, tokenizer = link.served, load_tokenizer(draft)
    if tokenizer_digest(tokenizer) != served.tokenizer:
        raise ModelError(
            f"could not draft for {served.model} with {draft}: their tokenizers have different tokens", HINT
        )
    model = None if copies else load_model(draft)
    if model is not None and model.shape.vocab != served.vocabulary:
        raise ModelError(
            f"could not draft for {served.model} with {draft}: their vocabularies have {served.vocabulary} "
            f"and {model.shape.vocab} entries",
            HINT,
        )
    return EdgeEngine(link, tokenizer, model, settings, fallback)
