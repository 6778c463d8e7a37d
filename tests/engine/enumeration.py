"""Exact output distributions: run production code under every answer that chance can give it.

A `Script` is a `Chance` that answers by a list of choices. Any function of a `Chance` is run again and again,
each time with the next untried script, depth first; the weight of a run is the product of the probabilities
of its answers. The weights of all runs add up to one, and what they returned is the output distribution.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import TypeVar

from torch import Tensor

Outcome = TypeVar("Outcome")
Key = TypeVar("Key", bound=Hashable)


class Script:
    """Answers question number i by its choice number `choices[i]`, and by the first one after the end."""

    def __init__(self, choices: list[int]) -> None:
        self.choices = choices
        self.options: list[int] = []  # how many answers each question had
        self.weight = 1.0

    def accept(self, probability: float) -> bool:
        if not 0.0 <= probability <= 1.0:
            raise ValueError(f"{probability} is no probability")
        return self._choose([(True, probability), (False, 1.0 - probability)])

    def sample(self, weights: Tensor) -> int:
        values = weights.tolist()
        total = sum(values)
        if not (min(values) >= 0 and total > 0):  # nor where one is NaN
            raise ValueError(f"cannot sample from the weights {values}")
        return self._choose([(token, value / total) for token, value in enumerate(values)])

    def draw(self, q: Tensor, count: int, *, replace: bool) -> list[int]:
        drawn: list[int] = []
        left = q.clone()
        while len(drawn) < count and bool(left.sum() > 0):
            drawn.append(self.sample(left))
            if not replace:
                left[drawn[-1]] = 0
        return drawn

    def next(self) -> Script | None:
        """The script to run after this one; None when every one was run."""
        for place in reversed(range(len(self.choices))):
            if self.choices[place] + 1 < self.options[place]:
                return Script([*self.choices[:place], self.choices[place] + 1])
        return None

    def _choose(self, answers: Iterable[tuple[Outcome, float]]) -> Outcome:
        possible = [(answer, probability) for answer, probability in answers if probability > 0]
        asked = len(self.options)
        if asked == len(self.choices):
            self.choices.append(0)
        self.options.append(len(possible))
        answer, probability = possible[self.choices[asked]]
        self.weight *= probability
        return answer


def outcomes(run: Callable[[Script], Outcome]) -> Iterator[tuple[Outcome, float]]:
    """Every outcome of `run` with its weight; equal outcomes may come more than once."""
    script: Script | None = Script([])
    while script is not None:
        outcome = run(script)
        yield outcome, script.weight
        script = script.next()


def distribution_of(run: Callable[[Script], Key]) -> dict[Key, float]:
    """The exact distribution of what `run` returns."""
    weights: dict[Key, float] = defaultdict(float)
    for outcome, weight in outcomes(run):
        weights[outcome] += weight
    return dict(weights)


def total_variation(one: Mapping[Key, float], other: Mapping[Key, float]) -> float:
    """Half the sum of absolute differences: 0 for equal distributions, 1 for disjoint ones."""
    return sum(abs(one.get(key, 0.0) - other.get(key, 0.0)) for key in {*one, *other}) / 2
