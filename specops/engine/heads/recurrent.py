"""A draft head without attention: each token moves a state on (ReDrafter, arXiv 2403.09919).

The first state is the target's feature before the root. A token moves it to a guess at the target's feature
of that token, from which the target's own output layer predicts. Without attention there is no cache, and
nothing is read again after verification.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as Batch
from pathlib import Path

import torch
from torch import Tensor

from specops.checkpoints.draft_kind import HEAD_FORMS
from specops.engine.cpu import ops
from specops.engine.draft import Draft, FeatureGrower, Level, joined, read_weights
from specops.engine.models.linear import Linear, TokenTable
from specops.engine.models.model import FeatureModel
from specops.engine.sequence import Sequence
from specops.errors import ModelError
from specops.hints import listing

(MARK,) = HEAD_FORMS["recurrent"].marks
"""[width + 2 * inter, width], R."""


class Recurrent(Draft):
    """y = R state + T token, split into x, gate and up; the next state is x + D (silu(gate) * up).

    A token is read as its row of the target's output layer.
    """

    reads_features = True
    max_positions = None

    def __init__(self, folder: Path, target: FeatureModel) -> None:
        """Raises ModelError if the folder is damaged, or the head belongs to another target."""
        weights = read_weights(folder, "a recurrent head")
        try:
            recurrent, token, down = (weights[name] for name in (MARK, "token.weight", "down.weight"))
        except KeyError as missing:
            raise ModelError(
                f"could not load a recurrent head from {folder}: there is no {missing}"
            ) from missing
        width, inter = (*down.shape, 0, 0)[:2]
        expected = [(width + 2 * inter, width)] * 2 + [(width, inter)]
        if [tuple(part.shape) for part in (recurrent, token, down)] != expected:
            shapes = ", ".join(str(tuple(part.shape)) for part in (recurrent, token, down))
            raise ModelError(f"could not load a recurrent head from {folder}: its shapes are {shapes}")
        if width != target.width:
            raise ModelError(
                f"could not pair the recurrent head {folder} with this target: it is for features of "
                f"{width}, not for {target.width}; "
                "a head is trained for one target",
                hint=listing(folder),
            )
        output = target.output.float()
        self.vocab = target.shape.vocab
        self._width = width
        self._recurrent = Linear(recurrent)
        self._down = Linear(down)
        self._of_token = TokenTable(output, token)
        self.logits = Linear(output)  # [n, width] states -> [n, V]
        self._in_one_call = ops.Quantised.of_small(recurrent, down, output)

    def draft(self, states: Tensor, tokens: list[int]) -> tuple[Tensor, Tensor]:
        """states [n, width] before the n tokens -> [n, width] after them, and [n, V] logits from these."""
        fed = torch.tensor(tokens)
        if len(tokens) == 1 and self._in_one_call is not None:
            return ops.recurrent(states, self._of_token(fed), self._in_one_call)
        states = self.forward(states, fed)
        return states, self.logits(states)

    def forward(self, states: Tensor, tokens: Tensor) -> Tensor:
        """states [n, width] before the tokens [n] -> [n, width] after them."""
        y = torch.add(self._of_token(tokens), self._recurrent.product(states), alpha=self._recurrent.scale)
        x, gate_up = y[:, : self._width], y[:, self._width :].contiguous()
        return torch.add(x, self._down.product(ops.gate(gate_up, 1.0)), alpha=self._down.scale)

    def unroll(
        self, whole: list[int], first: int, features: Tensor, depth: int
    ) -> Iterator[tuple[int, Tensor]]:
        roots = len(whole) - 1 - first
        states = features[first - 1 :][:roots]
        for below in range(min(depth, roots)):
            count = roots - below
            states = self.forward(states[:count], torch.tensor(whole[first + below :][:count]))
            yield below + 1, self.logits(states)

    def grower(self, rows: int, length: int, nodes: int) -> RecurrentGrower:
        return RecurrentGrower(self, rows, per_sequence=self._in_one_call is not None)


class RecurrentGrower(FeatureGrower):
    """Grows trees whose nodes have a state each."""

    def __init__(self, head: Recurrent, rows: int, *, per_sequence: bool = False) -> None:
        """per_sequence: draft for each sequence by itself, where one token is one call. Its last bits differ
        from those of several multiplied together, and a draft must not depend on the other sequences."""
        super().__init__(rows, head.vocab)
        self._head, self._per_sequence = head, per_sequence
        self._states: list[list[Tensor]] = [[] for _ in range(rows)]  # by row and place, [1, width]

    def first(self, ready: Batch[Sequence], features: list[Tensor]) -> Tensor:
        states, logits = self._draft(features, [sequence.tokens[-1:] for sequence in ready])
        for sequence, state in zip(ready, states[:, None].unbind(), strict=True):
            self._states[sequence.row] = [state]
        return logits

    def grow(self, levels: Batch[Level]) -> Tensor:
        parents = [self._states[level.sequence.row][place] for level in levels for place in level.parents]
        states, logits = self._draft(parents, [level.tokens for level in levels])
        rows = iter(states[:, None].unbind())
        for level in levels:
            self._states[level.sequence.row] += [next(rows) for _ in level.tokens]
        return logits

    def _draft(self, states: list[Tensor], tokens: list[list[int]]) -> tuple[Tensor, Tensor]:
        """States and logits after tokens that are listed by sequence, with a state [1, width] before each."""
        if not self._per_sequence or len(tokens) == 1:
            return self._head.draft(joined(states), [token for own in tokens for token in own])
        parts, start = [], 0
        for own in tokens:
            parts.append(self._head.draft(joined(states[start : start + len(own)]), own))
            start += len(own)
        return joined([after for after, _ in parts]), joined([logits for _, logits in parts])
