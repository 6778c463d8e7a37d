"""From folders on disk to an engine."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import torch

from specops.engine.drafters import make_drafter
from specops.engine.drafters.draft_model import DraftModel
from specops.engine.drafters.eagle import Eagle
from specops.engine.drafters.grower import Draft
from specops.engine.head import Head, is_head
from specops.engine.model import FeatureModel, Model, eos_token_ids, load_model
from specops.engine.step import Engine
from specops.engine.tree import Draw
from specops.engine.verifiers import best_verifier, make_verifier
from specops.errors import ModelError, UsageError
from specops.trees import parse_tree


def load_engine(
    target: str | Path,
    draft: str | Path | None = None,
    *,
    tree: str = "chain:3",
    verifier: str | None = None,
    speculate: bool = True,
    max_batch: int = 8,
    max_length: int | None = None,
    prefill_chunk: int = 256,
    threads: int | None = None,
) -> Engine:
    """An engine over a target and, for trees that need one, a draft; local folders in transformers' format.

    tree: see specops.trees.
    verifier: for sequences at temperature > 0; None: the best that is lossless for the tree.
    max_length: tokens of one sequence, prompt included; default: the target's positions.
    threads: of torch; None leaves them as they are.
    """
    if threads is not None:
        torch.set_num_threads(threads)
    if max_batch < 1 or prefill_chunk < 1:
        raise UsageError(
            f"max_batch and prefill_chunk must be at least 1, not {max_batch} and {prefill_chunk}"
        )
    spec = parse_tree(tree if speculate else "none")
    chosen = make_verifier(verifier) if verifier is not None else None
    model = load_model(Path(target))
    positions = model.shape.max_positions
    length = positions if max_length is None else max_length
    if not 2 <= length <= positions:
        raise UsageError(f"max_length must be from 2 to the target's {positions} positions, not {length}")
    grower = load_draft(Path(draft), Path(target), model) if spec.needs_draft and draft else None
    draw = chosen.prefers if chosen is not None else Draw.WITHOUT_REPLACEMENT
    drafter = make_drafter(tree if speculate else "none", draw, grower, max_batch, length)
    return Engine(
        model,
        drafter,
        chosen or best_verifier(drafter.draws),
        load_tokenizer(Path(target)),
        eos_token_ids(Path(target)),
        max_batch=max_batch,
        max_length=length,
        prefill_chunk=prefill_chunk,
    )


def load_draft(folder: Path, target: Path, model: FeatureModel) -> Draft:
    """A draft model, or a draft head over `model`'s features, whichever the folder holds."""
    if is_head(folder):
        return partial(Eagle, Head(folder, model))
    draft = load_model(folder)
    check_pair(target, model, folder, draft)
    return partial(DraftModel, draft)


def check_pair(target: str | Path, model: Model, draft: str | Path, draft_model: Model) -> None:
    """ModelError where the two do not share their token ids, as far as a count can tell."""
    if draft_model.shape.vocab != model.shape.vocab:
        raise ModelError(
            f"could not pair {target} with {draft}: their vocabularies have {model.shape.vocab} and "
            f"{draft_model.shape.vocab} entries",
            hint="a draft must share the target's token ids; take one of the same family",
        )


def load_tokenizer(folder: Path) -> Any:
    """The folder's fast tokenizer."""
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    except (OSError, ValueError, KeyError) as error:
        reason = str(error).partition("\n")[0]
        raise ModelError(f"could not load a tokenizer from {folder}: {reason}") from error
    if not tokenizer.is_fast:
        raise ModelError(
            f"could not use the tokenizer of {folder}: it has no tokenizer.json",
            hint="save it with transformers as a fast tokenizer",
        )
    return tokenizer
