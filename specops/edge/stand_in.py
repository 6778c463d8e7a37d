"""A model whose passes take declared times: it computes, then sleeps for the rest.

So a machine can stand in for a server's GPU and an edge's: tokens and acceptance are the real pair's, times
are the declared ones. A pass is never shorter than declared. Where computing takes longer than declared, the
pass takes that time, and `Pace` counts how often and by how much. Such times are this machine's.
"""

from __future__ import annotations

import time
from collections.abc import MutableSequence
from dataclasses import dataclass, fields

from torch import Tensor

from specops.engine.attention import Layout
from specops.engine.models.model import FeatureModel, Shape


@dataclass(frozen=True)
class PassCost:
    """Declared time of a forward pass, for tokens of any sequence."""

    pass_s: float
    token_s: float
    """Additional seconds for each token, of prompts and of trees with their roots."""

    def seconds(self, tokens: int) -> float:
        return self.pass_s + self.token_s * tokens


@dataclass(frozen=True)
class TimingDeviation:
    """Deviations from the declared times since the model was made."""

    passes: float = 0
    late: float = 0
    """Number of passes whose computation took longer than declared."""

    declared_s: float = 0.0
    computed_s: float = 0.0
    over_s: float = 0.0
    """Seconds beyond the declared times, of all late passes."""

    def since(self, earlier: TimingDeviation) -> TimingDeviation:
        return TimingDeviation(*(getattr(self, f.name) - getattr(earlier, f.name) for f in fields(self)))


FIGURES = len(fields(TimingDeviation))


class DelayedModel:
    """A FeatureModel with the results of another one, delayed to its declared times."""

    def __init__(
        self, model: FeatureModel, cost: PassCost, totals: MutableSequence[float] | None = None
    ) -> None:
        """totals: memory for the `FIGURES` sums of `pace`; an array in shared memory lets another process
        read them."""
        self._model = model
        self._cost = cost
        self._totals = [0.0] * FIGURES if totals is None else totals

    @property
    def pace(self) -> TimingDeviation:
        return TimingDeviation(*self._totals)

    @property
    def shape(self) -> Shape:
        return self._model.shape

    @property
    def width(self) -> int:
        return self._model.width

    @property
    def output(self) -> Tensor:
        return self._model.output

    def forward(self, tokens: Tensor, layout: Layout, indices: Tensor | None = None) -> Tensor:
        began = time.perf_counter()
        logits = self._model.forward(tokens, layout, indices)
        self._rest(began, len(tokens))
        return logits

    def with_features(
        self, tokens: Tensor, layout: Layout, indices: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        began = time.perf_counter()
        logits_and_features = self._model.with_features(tokens, layout, indices)
        self._rest(began, len(tokens))
        return logits_and_features

    def _rest(self, began: float, tokens: int) -> None:
        declared = self._cost.seconds(tokens)
        computed = time.perf_counter() - began
        over = max(computed - declared, 0.0)
        for place, more in enumerate((1, over > 0, declared, computed, over)):
            self._totals[place] += more
        while (left := began + declared - time.perf_counter()) > 0:  # a sleep may end a little early
            time.sleep(left)
