"""Traversal that tries siblings in the order of the target's preference, not in the order of the draw.

In the order of the draw, a token that the draft proposes too often claims what it can, and a better one
beside it comes too late. Here siblings drawn from one distribution are tried together, the greatest p / q
first. The probability that a token is met in the j-th place of that order, with all before it rejected,
follows from the draw. The token claims the target's probability divided by that, so that every token gets
exactly what is left of the target's, and the output stays the target's. This is a nearly optimal transport
plan for one level (SpecTr, arXiv 2310.15141), by one sort and a few sums. The weight of the path scales the
target in it, as in traversal. UniVer (arXiv 2605.04543) composes plans of levels under such weights too.

Independent draws are ranked all together. Draws without replacement are ranked in pairs, in the order drawn,
since for more of them the probability of a place has no closed form. A single child is tried as traversal
does, and so is one of several that would claim more in the order drawn.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from math import perm

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from specops.engine.tree import Draw
from specops.engine.verifiers.traversal import Claim, Traversal, Trial
from specops.engine.verifiers.verifier import Proposals, mass

Floats = NDArray[np.float64]
Plan = tuple[list[Floats], Floats]
"""A plan for the n tokens that can be drawn, in ranked order: for each place, the share that a token met
there may claim, [n]; and what all places together leave of the target's probabilities, [n]."""


class Ranked(Traversal):
    """Traversal with ranked siblings."""

    name = "ranked"

    def trials(self, claim: Claim, children: Proposals) -> Iterator[Trial]:
        most = None if children.draw is Draw.IID else 2
        while children.next():
            siblings = children.siblings(most)
            if len(siblings) > 1:
                m, q = claim.weight * _floats(claim.p), _floats(children.q)
                order = _by_ratio(m, q)
                plan = _plan(m[order], q[order], len(siblings), children.draw)
                if plan is not None:
                    yield from _ranked(siblings, order, plan)
                    children.skip(len(siblings) - 1)
                    children.forget([token for _, token in siblings])
                    m[order] = plan[1]
                    claim.keep(torch.from_numpy(m).to(claim.p))
                    continue
            yield children.child, children.accepted(claim.p, claim.weight)
            claim.keep(children.reject(claim.p, claim.weight))


VERIFIER = Ranked()


def _plan(m: Floats, q: Floats, count: int, draw: Draw) -> Plan | None:
    """The plan of `count` siblings; None if they claim more in the order drawn, as where draft and target
    agree."""
    if draw is Draw.IID:
        plan, plain = _of_independent(m, q, count), _of_independent_in_turn(m, q, count)
    else:
        plan, plain = _of_two(m, q), _of_two_in_turn(m, q)
    return plan if m.sum() - plan[1].sum() > plain else None


def _ranked(siblings: list[tuple[int, int]], order: NDArray[np.int64], plan: Plan) -> list[Trial]:
    """The siblings in ranked order, each with the share that it may claim."""
    places = sorted((int((order == token).argmax()), node) for node, token in siblings)
    return [(node, float(share[rank])) for share, (rank, node) in zip(plan[0], places, strict=True)]


def _floats(distribution: Tensor) -> Floats:
    """A distribution [V] as float64, normalised to a sum of 1."""
    wide = distribution.double()
    normalised: Floats = wide.cpu().numpy() / mass(wide)
    return normalised


def _by_ratio(m: Floats, q: Floats) -> NDArray[np.int64]:
    """The tokens that can be drawn, [n], by descending m / q."""
    (support,) = q.nonzero()
    return support[np.argsort(-m[support] / q[support])]


def _of_two(m: Floats, q: Floats) -> Plan:
    """The plan of two draws without replacement. Tokens x and y are drawn, in any order, with the probability
    q_x q_y (1 / (1 - q_x) + 1 / (1 - q_y))."""
    after = _after(q)
    odds = q / (_before(q) + after)  # q / (1 - q), to the last bit also where q is nearly 1
    first, left = _claimed(m, odds * after + q * _after(odds))
    rejected = 1 - first
    second, left = _claimed(left, q * _before(rejected * odds) + odds * _before(rejected * q))
    return [first, second], left


def _of_independent(m: Floats, q: Floats, count: int) -> Plan:
    """The plan of `count` independent draws; equal tokens have places of their own.

    A draw is a point of [0, 1], where each token has an interval of length q; u is the place within the
    interval. The j-th least draw is at u with the density count! / (count - j)! (1 - u)^(count - j) I(u). I
    is the volume in which the j - 1 draws before it lie and were rejected: a polynomial in u on each
    interval. Gauss's rule integrates it exactly.
    """
    nodes, weights = _gauss(count // 2 + 1)
    behind = _after(q) + q * (1 - nodes[:, None])  # [nodes, n], what of [0, 1] is behind the draw
    further = [np.ones_like(behind)]  # by draws that are behind it: the volume in which they lie
    for _ in range(1, count):
        further.append(further[-1] * behind)
    volume = np.ones((1, len(q)))  # [degree + 1, n], coefficients of I
    shares: list[Floats] = []
    for place in range(1, count + 1):
        powers = nodes[:, None] ** np.arange(len(volume))
        density = further[count - place] * (powers @ volume)
        share, m = _claimed(m, perm(count, place) * q * (weights @ density))
        shares.append(share)
        integral = (1 - share) * q * volume / np.arange(1, len(volume) + 1)[:, None]
        volume = np.concatenate((_before(integral.sum(0))[None], integral))
    return shares, m


def _of_two_in_turn(m: Floats, q: Floats) -> float:
    """The mean probability that two draws without replacement claim in the order drawn."""
    first = np.minimum(m, q)
    rest, reached = m - first, 1 - first.sum()
    if reached <= 0:
        return float(first.sum())
    scale = 1 / (_before(q) + _after(q))  # of what the second is drawn from, by the first
    below = np.searchsorted(-rest / (reached * q), -scale)  # of the second: where the draw is what limits
    sums, rests = (np.concatenate(([0.0], values.cumsum())) for values in (q, rest))
    second = scale * sums[below] + (rests[-1] - rests[below]) / reached
    return float(first.sum() + ((q - first) * second).sum())


def _of_independent_in_turn(m: Floats, q: Floats, count: int) -> float:
    """The probability that `count` independent draws claim in the order drawn."""
    claimed = 0.0
    for _ in range(count):
        claim = np.minimum(m, (1 - claimed) * q)
        m, claimed = m - claim, claimed + float(claim.sum())
    return claimed


def _claimed(left: Floats, met: Floats) -> tuple[Floats, Floats]:
    """The share that tokens met with probabilities `met` may claim of `left`, and what is left then."""
    share = np.divide(left, met, out=np.ones_like(met), where=met > left)
    return share, np.maximum(left - share * met, 0)


def _before(values: Floats) -> Floats:
    """The sum before each place. Never a difference, in which small sums would lose their digits."""
    sums = np.zeros_like(values)
    values[:-1].cumsum(out=sums[1:])
    return sums


def _after(values: Floats) -> Floats:
    """The sum after each place."""
    return _before(values[::-1])[::-1]


@lru_cache
def _gauss(count: int) -> tuple[Floats, Floats]:
    """Nodes and weights of Gauss-Legendre quadrature on [0, 1]."""
    nodes, weights = np.polynomial.legendre.leggauss(count)
    return (nodes + 1) / 2, weights / 2
