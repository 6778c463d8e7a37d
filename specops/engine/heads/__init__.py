"""Forms of drafts, and their registry.

A form is its file here, which loads it, computes it and grows trees from it, and its entry in
`specops.checkpoints.draft_kind.HEAD_FORMS`, which is read without torch. A folder is of the first form whose
mark is among its weights. A folder without any mark is a draft model.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from specops.checkpoints.draft_kind import HEAD_FORMS, HeadForm
from specops.engine.draft import Draft, weight_names
from specops.engine.heads.draft_model import DraftModel, early_exit
from specops.engine.models import load_model
from specops.engine.models.model import FeatureModel, Model
from specops.errors import ModelError
from specops.hints import with_value
from specops.trees import exit_layers

Load = Callable[[Path, FeatureModel], Draft]
"""Loads a folder for a target. Raises ModelError if it is damaged, or the draft belongs to another target."""


def open_draft(
    name: str | Path,
    target: str | Path,
    model: FeatureModel,
    wrap: Callable[[FeatureModel], Model] = lambda model: model,
) -> Draft:
    """The draft `name` for `model`, which was loaded from the folder `target`.

    name: a folder, or exit:LAYERS for the target's own first layers. wrap: applied to a draft model, which
    runs by itself. Raises ModelError for a damaged draft or one of another target, UsageError for an exit
    that the target does not have.
    """
    layers = exit_layers(str(name))
    if layers is not None:
        return early_exit(model, layers)
    folder = Path(name)
    load, shape = _loader(folder), model.shape
    if load is not None:
        if shape.device.type != "cpu":
            raise ModelError(
                f"could not load {folder} for a target on {shape.device}: draft heads run on CPUs only; a "
                "draft "
                "model runs where the target does",
                hint=with_value(shape.device, "cpu"),
            )
        return load(folder, model)
    draft = load_model(folder, shape.dtype, device=shape.device, kernel=shape.kernel)
    check_pair(target, model, folder, draft)
    return DraftModel(wrap(draft))


def needs_target(folder: Path) -> bool:
    """Return whether the draft in `folder` drafts beside its target only, and so is not a model by itself."""
    return _form(folder) is not None


def check_pair(target: str | Path, model: Model, draft: str | Path, draft_model: Model) -> None:
    """Raises ModelError if the vocabularies differ in size, so that token ids cannot be the same."""
    if draft_model.shape.vocab != model.shape.vocab:
        raise ModelError(
            f"could not pair {target} with {draft}: their vocabularies have {model.shape.vocab} and "
            f"{draft_model.shape.vocab} entries; a draft must have the target's token ids",
            hint=f"specops verify-draft {shlex.quote(str(target))} {shlex.quote(str(draft))}",
        )


def _form(folder: Path) -> HeadForm | None:
    names = weight_names(folder)
    return next((form for form in HEAD_FORMS.values() if names.intersection(form.marks)), None)


def _loader(folder: Path) -> Load | None:
    form = _form(folder)
    if form is None:
        return None
    module, _, name = form.loader.rpartition(".")
    load: Load = getattr(import_module(f"{__name__}.{module}"), name)
    return load
