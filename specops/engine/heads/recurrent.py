"""A draft head without attention: each token moves a state on (ReDrafter, arXiv 2403.09919).

The first state is the target's feature before the root. A token moves it to a guess at the target's feature
of that token, from which the target's own output layer predicts. What a head costs beside its matrices is
its attention, its cache and reading again what was accepted: here there is none of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from collections.abc import Sequence as Batch
from pathlib import Path
from typing import ClassVar

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from specops.engine import compiled, one_call
from specops.engine.drafters.grower import DraftHead, Level
from specops.engine.linear import Linear
from specops.engine.model import FeatureModel
from specops.engine.sequence import Sequence
from specops.engine.token_table import TokenTable
from specops.errors import ModelError

WEIGHTS = "model.safetensors"
MARK = "recurrent.weight"
"""[width + 2 * inter, width]: what tells such a head from other drafts."""


class Recurrent(DraftHead):
    """y = R state + T token, cut in x, gate and up; the next state is x + D (silu(gate) * up).

    A token is read as its row of the target's output layer.
    """

    marks: ClassVar[Set[str]] = frozenset({MARK})

    def __init__(self, folder: Path, target: FeatureModel) -> None:
        """Raises ModelError where the folder is damaged or the head is another target's."""
        try:
            with safe_open(folder / WEIGHTS, framework="pt") as file:
                recurrent, token, down = (
                    file.get_tensor(name).float() for name in (MARK, "token.weight", "down.weight")
                )
        except (OSError, SafetensorError) as error:
            reason = str(error).partition("\n")[0]
            raise ModelError(f"could not load a recurrent head from {folder}: {reason}") from error
        width, inter = (*down.shape, 0, 0)[:2]
        expected = [(width + 2 * inter, width)] * 2 + [(width, inter)]
        if [tuple(part.shape) for part in (recurrent, token, down)] != expected:
            shapes = ", ".join(str(tuple(part.shape)) for part in (recurrent, token, down))
            raise ModelError(f"could not load a recurrent head from {folder}: its shapes are {shapes}")
        if width != target.width:
            raise ModelError(
                f"could not pair the recurrent head {folder} with this target: it is for features of "
                f"{width}, not for {target.width}",
                hint="a head is trained for one target; take that one's",
            )
        output = target.output.float()
        self.vocab = target.shape.vocab
        self._width = width
        self._recurrent = Linear(recurrent)
        self._down = Linear(down)
        self._of_token = TokenTable(output, token)
        self.logits = Linear(output)  # [n, width] states -> [n, vocab]
        self._in_one_call = one_call.Quantised.of_small(recurrent, down, output)

    def draft(self, states: Tensor, tokens: list[int]) -> tuple[Tensor, Tensor]:
        """states [n, width] before the tokens -> [n, width] after them, and their [n, V] logits."""
        fed = torch.tensor(tokens)
        if len(tokens) == 1 and self._in_one_call is not None:
            return one_call.recurrent(states, self._of_token(fed), self._in_one_call)
        states = self.forward(states, fed)
        return states, self.logits(states)

    def forward(self, states: Tensor, tokens: Tensor) -> Tensor:
        """states [n, width] before the tokens -> [n, width] after them."""
        y = torch.add(self._of_token(tokens), self._recurrent.product(states), alpha=self._recurrent.scale)
        x, gate_up = y[:, : self._width], y[:, self._width :].contiguous()
        return torch.add(x, self._down.product(compiled.gate(gate_up, 1.0)), alpha=self._down.scale)

    def unroll(self, whole: list[int], first: int, features: Tensor, depth: int) -> Iterator[Tensor]:
        states = features[first - 1 : len(whole) - 1]
        for below in range(min(depth, len(states))):
            states = self.forward(states[: len(whole) - first - below], torch.tensor(whole[first + below :]))
            yield self.logits(states)

    def grower(self, rows: int, length: int, nodes: int) -> RecurrentGrower:
        return RecurrentGrower(self, rows, length, nodes)

    @property
    def max_positions(self) -> int | None:
        return None


class RecurrentGrower:
    reads_features = True

    def __init__(self, head: Recurrent, rows: int, length: int, nodes: int) -> None:
        self._head = head
        # By row:
        self._feature: list[Tensor | None] = [None] * rows  # of the last token in the target's cache
        self._states: list[list[Tensor]] = [[] for _ in range(rows)]  # by place, [1, width]

    def read(self, sequences: Batch[Sequence]) -> tuple[list[int], Tensor]:
        ready, tokens, features = [], [], []
        for index, sequence in enumerate(sequences):
            feature = self._feature[sequence.row]
            # Its feature must be of the token before the root: what the root was chosen from.
            if feature is not None and sequence.uncached == 1 and sequence.depth_left > 0:
                ready.append(index)
                tokens.append(sequence.tokens[-1])
                features.append(feature)
        if not ready:
            return [], torch.empty(0, self._head.vocab)
        states, logits = self._head.draft(_joined(features), tokens)
        for index, state in zip(ready, states[:, None].unbind(), strict=True):
            self._states[sequences[index].row] = [state]
        return ready, logits

    def grow(self, levels: Batch[Level]) -> Tensor:
        tokens = [token for level in levels for token in level.tokens]
        parents = [self._states[level.sequence.row][place] for level in levels for place in level.parents]
        states, logits = self._head.draft(_joined(parents), tokens)
        rows = iter(states[:, None].unbind())
        for level in levels:
            self._states[level.sequence.row] += [next(rows) for _ in level.tokens]
        return logits

    def commit(self, sequence: Sequence, places: list[int], features: Tensor | None) -> None:
        assert features is not None
        self._feature[sequence.row] = features[-1:]

    def move(self, sequence: Sequence, row: int) -> None:
        self._feature[row], self._feature[sequence.row] = self._feature[sequence.row], None

    def release(self, sequence: Sequence) -> None:
        self._feature[sequence.row] = None


def _joined(rows: list[Tensor]) -> Tensor:
    return rows[0] if len(rows) == 1 else torch.cat(rows)
