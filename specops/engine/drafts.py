"""What a draft is, told from its name: a folder, by the weights in it, or `exit:LAYERS` of the target."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from safetensors import SafetensorError, safe_open

from specops.engine import early_exit
from specops.engine.drafters.draft_model import DraftModel
from specops.engine.drafters.grower import Draft, DraftHead
from specops.engine.early_exit import exit_after, load_early_exit
from specops.engine.heads import HEADS
from specops.engine.model import FeatureModel, Model, load_model
from specops.errors import ModelError
from specops.trees import exit_layers

Drafting = Model | DraftHead
"""What drafts are computed with. All but a model read the target's features."""

WEIGHTS = "model.safetensors"

_FEATURES = frozenset({early_exit.MARK, *(mark for form in HEADS for mark in form.marks)})
"""Weights by which a draft is known that reads the target's features."""


def open_draft(name: str | Path, target: str | Path, model: FeatureModel) -> Drafting:
    """The draft of that name for `model`, which was loaded from the folder `target`. Raises ModelError, and
    UsageError for an exit that the target does not have."""
    layers = exit_layers(str(name))
    if layers is not None:
        return exit_after(model, layers)
    folder = Path(name)
    found, shape = _weights_in(folder), model.shape
    if shape.device.type != "cpu" and found & _FEATURES:
        raise ModelError(
            f"could not load {folder} for a target on {shape.device}: draft heads run on CPUs alone",
            hint="take a draft model, which runs where the target does",
        )
    for form in HEADS:
        if found & form.marks:
            return form(folder, model)
    if early_exit.MARK in found:
        return load_early_exit(folder, model)
    draft = load_model(folder, shape.dtype, device=shape.device, kernel=shape.kernel)
    check_pair(target, model, folder, draft)
    return draft


def reads_features(folder: Path) -> bool:
    """Whether the draft there is no model of its own: it drafts only beside its target."""
    return not _FEATURES.isdisjoint(_weights_in(folder))


def grower_of(draft: Drafting) -> Draft:
    """What grows trees from it."""
    return draft.grower if isinstance(draft, DraftHead) else partial(DraftModel, draft)


def check_pair(target: str | Path, model: Model, draft: str | Path, draft_model: Model) -> None:
    """ModelError where the two do not share their token ids, as far as a count can tell."""
    if draft_model.shape.vocab != model.shape.vocab:
        raise ModelError(
            f"could not pair {target} with {draft}: their vocabularies have {model.shape.vocab} and "
            f"{draft_model.shape.vocab} entries",
            hint="a draft must share the target's token ids; take one of the same family",
        )


def _weights_in(folder: Path) -> set[str]:
    try:
        with safe_open(folder / WEIGHTS, framework="pt") as weights:
            return set(weights.keys())
    except (OSError, SafetensorError):
        return set()  # load_model says what is wrong
