"""The width of intervals that are looked at several times, so that all of them hold together.

A comparison that ends at the first look whose 95% interval excludes 1 errs far more often than 5%. Lan and
DeMets (Biometrika 1983) spend the error over the looks by a function fixed beforehand; Jennison and
Turnbull (JRSS B 1989) turn each look's critical value into an interval at that look, a repeated confidence
interval. All of them contain the truth together with the requested confidence, whenever one stops and
whatever for. The spending function is the one that resembles O'Brien and Fleming's test: next to nothing is
spent early, so the last look's interval is hardly wider than that of a comparison with one look.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

HIGHEST_LEVEL = 1 - 1e-9
"""No look has more. Such a look spends a billionth more than its share, which no figure shows."""

_NORMAL = NormalDist()
_REACH = 9.0  # standard deviations beyond which a density is nothing
_NODES_A_STEP = 6  # of the quadrature, for each standard deviation of the next increment


def levels(fractions: Sequence[float], confidence: float) -> tuple[float, ...]:
    """The confidence level of the interval at each look, such that all hold together with `confidence`.

    `fractions` are the looks' shares of the information (of all prompts, say): rising, above 0, at most 1.
    The last of 1 spends everything. One look at 1 gives `confidence` itself.
    """
    return tuple(min(math.erf(z / math.sqrt(2)), HIGHEST_LEVEL) for z in boundaries(fractions, confidence))


def boundaries(fractions: Sequence[float], confidence: float) -> tuple[float, ...]:
    """The critical value, in standard errors and on both sides alike, of each look.

    Under the null the estimates, each times its information, are a Brownian motion observed at `fractions`.
    Its density within the boundaries so far is carried from look to look by quadrature (Armitage,
    McPherson and Rowe 1969), and the next boundary is where what it loses is what the look may spend.
    """
    _check(fractions, confidence)
    side = (1 - confidence) / 2
    critical_values: list[float] = []
    nodes, mass = np.zeros(1), np.ones(1)  # where the motion may be, having crossed nothing, how probably
    spent = before = 0.0
    for k, fraction in enumerate(fractions):
        step = math.sqrt(fraction - before)
        bound = _bound(nodes, mass, step, _spent(fraction, side) - spent)
        critical_values.append(bound / math.sqrt(fraction))
        spent, before = _spent(fraction, side), fraction
        if k + 1 < len(fractions):
            nodes, mass = _carried(nodes, mass, step, bound, fraction, fractions[k + 1] - fraction)
    return tuple(critical_values)


def _check(fractions: Sequence[float], confidence: float) -> None:
    if not 0 < confidence < 1:
        raise ValueError(f"a confidence lies between 0 and 1, not at {confidence}")
    rising = all(a < b for a, b in zip((0.0, *fractions), fractions, strict=False))
    if not (fractions and rising and fractions[-1] <= 1):
        raise ValueError(f"looks are rising shares of the information, above 0 and at most 1: {fractions}")


def _spent(fraction: float, side: float) -> float:
    """Return what one side may have spent by the share `fraction`: 2 - 2 Phi(z / sqrt(at)), z of half of what
    it has."""
    z = _NORMAL.inv_cdf(1 - side / 2)
    return math.erfc(z / math.sqrt(2 * fraction))


def _bound(nodes: NDArray[np.float64], mass: NDArray[np.float64], step: float, share: float) -> float:
    """Return where the motion, one step on, lies above with the probability `share`; by bisection."""
    low, high = 0.0, float(nodes[-1]) + 40 * step
    for _ in range(60):
        middle = (low + high) / 2
        beyond = [math.erfc((middle - node) / (step * math.sqrt(2))) / 2 for node in nodes]
        low, high = (middle, high) if float(mass @ beyond) > share else (low, middle)
    return (low + high) / 2


def _carried(
    nodes: NDArray[np.float64],
    mass: NDArray[np.float64],
    step: float,
    bound: float,
    fraction: float,
    following: float,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Gauss-Legendre nodes within the bound and the probability at each, as fine as the next step needs."""
    edge = min(bound, _REACH * math.sqrt(fraction))
    count = max(64, math.ceil(_NODES_A_STEP * edge / math.sqrt(following)))
    roots, weights = np.polynomial.legendre.leggauss(count)
    reached = edge * roots
    density = np.exp(-(((reached[:, None] - nodes) / step) ** 2) / 2) / (step * math.sqrt(2 * math.pi))
    return reached, edge * weights * (density @ mass)
