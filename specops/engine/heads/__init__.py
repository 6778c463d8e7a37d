"""Forms of drafts, and their registry.

A form is its file here, which loads it, computes it and grows trees from it, and its entry in HEADS. A folder
is of the first form whose mark is among its weights. A folder without any mark is a draft model.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from specops.engine.draft import Draft, weight_names
from specops.engine.heads.draft_model import DraftModel, EarlyExit, early_exit
from specops.engine.heads.eagle import EagleHead
from specops.engine.heads.medusa import Medusa
from specops.engine.heads.recurrent import Recurrent
from specops.engine.models import load_model
from specops.engine.models.model import FeatureModel, Model
from specops.errors import ModelError
from specops.trees import exit_layers


class DraftForm(Protocol):
    """Loads a draft of one form: a class of drafts is one."""

    marks: frozenset[str]

    def __call__(self, folder: Path, target: FeatureModel) -> Draft:
        """Raises ModelError if the folder is damaged, or the draft belongs to another target."""


HEADS: tuple[DraftForm, ...] = (EagleHead, Recurrent, Medusa, EarlyExit)
"""The registry of all forms that draft beside their target only."""


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
    form, shape = _form(folder), model.shape
    if form is not None:
        if shape.device.type != "cpu":
            raise ModelError(
                f"could not load {folder} for a target on {shape.device}: draft heads run on CPUs only",
                hint="take a draft model, which runs where the target does",
            )
        return form(folder, model)
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
            f"{draft_model.shape.vocab} entries",
            hint="a draft must share the target's token ids; take one of the same family",
        )


def _form(folder: Path) -> DraftForm | None:
    names = weight_names(folder)
    return next((form for form in HEADS if names & form.marks), None)
