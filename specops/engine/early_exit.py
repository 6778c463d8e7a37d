"""Early exit: the target's own first layers draft for it (self-speculation; LayerSkip, arXiv 2404.16710).

What is left of the target after some layers goes through its own norm and output layer. A target that was not
trained to be left early predicts little there; an adapter, one matrix beside the identity, makes up for some.
The draft keeps a KV cache of its own, of those layers alone.
"""

from __future__ import annotations

import json
from pathlib import Path

from safetensors import SafetensorError, safe_open
from torch import Tensor

from specops.engine.lean import LeanLlama
from specops.engine.model import FeatureModel, Model
from specops.errors import ModelError, UsageError

WEIGHTS = "model.safetensors"
MARK = "exit.weight"
"""[width, width]: what tells an adapter's folder from other drafts."""


def exit_after(target: FeatureModel, layers: int, adapter: Tensor | None = None) -> Model:
    """The target, left after its first `layers`."""
    if not isinstance(target, LeanLlama):
        raise ModelError(
            "could not leave the target early: its layers are not the engine's own to run one by one",
            hint="early exit works with the Llama family in float32; take a draft model for this target",
        )
    if not 1 <= layers < target.shape.layers:
        raise UsageError(
            f"could not leave the target after {layers} layers: it has {target.shape.layers}",
            hint=f"take exit:1 to exit:{target.shape.layers - 1}",
        )
    return target.first(layers, adapter)


def load_early_exit(folder: Path, target: FeatureModel) -> Model:
    """An adapter's folder; which layer it is for stands in its config.json as `exit_layers`."""
    try:
        with safe_open(folder / WEIGHTS, framework="pt") as file:
            adapter = file.get_tensor(MARK).float()
        layers = json.loads((folder / "config.json").read_text(encoding="utf-8"))["exit_layers"]
        if type(layers) is not int:  # nor a truth value, which Python counts among them
            raise ValueError(f"exit_layers is {layers!r}")
    except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
        reason = str(error).partition("\n")[0]
        raise ModelError(f"could not load an adapter for early exit from {folder}: {reason}") from error
    if adapter.shape != (target.width, target.width) or not 1 <= layers < target.shape.layers:
        raise ModelError(
            f"could not pair the adapter {folder} with this target: it is of the shape "
            f"{tuple(adapter.shape)} and for {layers} layers; the target has features of {target.width} "
            f"and {target.shape.layers} layers",
            hint="an adapter is trained for one target; take that one's",
        )
    return exit_after(target, layers, adapter)
