"""Draft models: a separate model, or the target's first layers.

Early exit (self-speculation; LayerSkip, arXiv 2404.16710) applies the target's norm and output layer after
its first few layers. A target that was not trained for this predicts little there. An adapter, one matrix
beside the identity, improves it. The draft has a separate KV cache, for those layers only.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from collections.abc import Sequence as Batch
from pathlib import Path

import torch
from torch import Tensor

from specops.checkpoints.draft_kind import HEAD_FORMS
from specops.engine.attention import Layout, Span, causal
from specops.engine.draft import CachedGrower, Draft, Level, read_weights
from specops.engine.models.model import FeatureModel, LayeredModel, Model
from specops.engine.prefix_cache import DraftCache
from specops.engine.sequence import Sequence
from specops.errors import ModelError, UsageError
from specops.hints import listing, with_value

(EXIT,) = HEAD_FORMS["early_exit"].marks
"""[width, width], the adapter of an early exit."""


class DraftModel(Draft):
    """A model as a draft: it reads the text as the target does."""

    reads_features = False

    def __init__(self, model: Model) -> None:
        self.model = model
        self.max_positions = model.shape.max_positions

    def grower(self, rows: int, length: int, nodes: int) -> ModelGrower:
        return ModelGrower(self.model, rows, length, nodes)

    def unroll(
        self, whole: list[int], first: int, features: Tensor, depth: int
    ) -> Iterator[tuple[int, Tensor]]:
        """Yield its distributions at one depth: they are the same at every depth, since all above an accepted
        token is accepted."""
        fed, shape = len(whole) - 1, self.model.shape
        span = Span(0, 0, fed, torch.arange(fed), causal(fed))
        layout = Layout([span], shape.cache(1, fed), shape.tile)
        yield 0, self.model.forward(torch.tensor(whole[:-1]), layout, torch.arange(first - 1, fed))


class EarlyExit(DraftModel):
    """An early exit with an adapter, from a folder whose config.json has the number of layers,
    exit_layers."""

    def __init__(self, folder: Path, target: FeatureModel) -> None:
        """Raises ModelError if the folder is damaged, or the adapter belongs to another target."""
        description = "an adapter for early exit"
        weights = read_weights(folder, description)
        try:
            adapter = weights[EXIT]
            layers = json.loads((folder / "config.json").read_text(encoding="utf-8"))["exit_layers"]
            if type(layers) is not int:  # a bool is an int as well
                raise ValueError(f"exit_layers is {layers!r}")
        except (OSError, ValueError, KeyError, TypeError) as error:
            reason = str(error).partition("\n")[0]
            raise ModelError(f"could not load {description} from {folder}: {reason}") from error
        if adapter.shape != (target.width, target.width) or not 1 <= layers < target.shape.layers:
            raise ModelError(
                f"could not pair the adapter {folder} with this target: it is of the shape "
                f"{tuple(adapter.shape)} and for {layers} layers; the target has features of {target.width} "
                f"and {target.shape.layers} layers; an adapter is trained for one target",
                hint=listing(folder),
            )
        super().__init__(_first_layers(target, layers, adapter))


def early_exit(target: FeatureModel, layers: int) -> DraftModel:
    """The target's first `layers` as a draft.

    Raises ModelError if the engine does not run the target's layers itself, UsageError if it has too few.
    """
    return DraftModel(_first_layers(target, layers, None))


def _first_layers(target: FeatureModel, layers: int, adapter: Tensor | None) -> Model:
    if not isinstance(target, LayeredModel):
        raise ModelError(
            "could not leave the target early: expected a target of the Llama family in float32",
            hint=with_value(f"exit:{layers}", "DRAFT_FOLDER"),
        )
    if not 1 <= layers < target.shape.layers:
        raise UsageError(
            f"could not leave the target after {layers} layers: expected exit:1 to "
            f"exit:{target.shape.layers - 1}",
            hint=with_value(f"exit:{layers}", "exit:1"),
        )
    return target.first(layers, adapter)


class ModelGrower(CachedGrower):
    """Reads what was committed as the target does, then runs the nodes of trees."""

    reads_features = False

    def __init__(self, model: Model, rows: int, length: int, nodes: int) -> None:
        super().__init__(model.shape, rows, length, nodes)
        self._model = model
        self.caches = (DraftCache(self._cache, self._read),)

    def read(self, sequences: Batch[Sequence]) -> tuple[list[int], Tensor]:
        """A prompt is read in the same chunks as the target reads."""
        spans: list[Span] = []
        tokens: list[int] = []
        ready: list[int] = []
        ends: list[int] = []
        for index, sequence in enumerate(sequences):
            start = self._read[sequence.row]
            # Past the prompt, all at once: an accepted leaf that was never run is one more token than the
            # root.
            stop = sequence.chunk_end(start) if sequence.reading else len(sequence.tokens)
            tokens += sequence.tokens[start:stop]
            spans.append(self._span(sequence.row, start, stop))
            self._read[sequence.row] = stop
            if not sequence.reading and sequence.depth_left > 0:
                ready.append(index)
                ends.append(len(tokens) - 1)
        indices = torch.tensor(ends, dtype=torch.int64) if len(ends) < len(tokens) else None
        return ready, self._model.forward(torch.tensor(tokens), self._layout(spans), indices)

    def grow(self, levels: Batch[Level]) -> Tensor:
        tokens = [token for level in levels for token in level.tokens]
        spans = [self._level_span(level) for level in levels]
        return self._model.forward(torch.tensor(tokens), self._layout(spans))

    def commit(self, sequence: Sequence, places: list[int], features: Tensor | None) -> None:
        if not sequence.reading:
            self.splice(sequence, places, [])
