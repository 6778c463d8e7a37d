"""The cells of a verification: within one of them all is decided alike, whatever the random numbers."""

from __future__ import annotations

from collections.abc import Iterator

from enumeration import Script
from torch import Tensor

from specops.engine.tree import TokenTree
from specops.engine.verifiers.verifier import Verifier

THINNEST = 1e-9
"""Volume: cells below it are the rounding of the enumeration itself, as where an answer is 1 - 1e-16 sure."""


class Cell(Script):
    """One line of answers, and the middle of the uniforms that give it."""

    def __init__(self, choices: list[int]) -> None:
        super().__init__(choices)
        self.uniforms: list[float] = []

    def accept(self, probability: float) -> bool:
        answer = super().accept(probability)
        self.uniforms.append(probability / 2 if answer else (1 + probability) / 2)
        return answer

    def sample(self, weights: Tensor) -> int:
        token = super().sample(weights)
        shares = (weights / weights.sum()).tolist()
        self.uniforms.append(sum(shares[:token]) + shares[token] / 2)
        return token


def cells(tree: TokenTree, verifier: Verifier, p: Tensor) -> Iterator[tuple[Cell, list[int], int]]:
    """Every cell, with the path and the bonus token that the engine comes to in it."""
    script: Script | None = Cell([])
    while script is not None:
        cell = Cell(script.choices)
        found = verifier.verify(tree, p, cell)
        if cell.weight > THINNEST:
            yield cell, found.path, found.bonus
        script = cell.next()
