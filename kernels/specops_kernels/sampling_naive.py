"""Multi-step sampling and traversal as the papers write them, on probabilities in float64: the reference.

Every residual is built and normalised, and every draft distribution renormalised, one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from specops_kernels.sampling_rows import Rows
from specops_kernels.verify_trees import PackedTrees, Verified


def probabilities(rows: Rows) -> Tensor:
    """[R, V] float64"""
    return (rows.logits.double() / rows.temperature.double()[:, None]).softmax(-1)


def multi_step(target: Rows, draft: Rows, trees: PackedTrees, uniforms: Tensor, *, replace: bool) -> Verified:
    """Verify as `specops_kernels.sampling.multi_step` does."""
    return _each(_Batch(target, draft, trees, replace), uniforms, _multi_step)


def traversal(target: Rows, draft: Rows, trees: PackedTrees, uniforms: Tensor, *, replace: bool) -> Verified:
    """Verify as `specops_kernels.sampling.traversal` does."""
    return _each(_Batch(target, draft, trees, replace), uniforms, _traversal)


class _Batch:
    def __init__(self, target: Rows, draft: Rows, trees: PackedTrees, replace: bool) -> None:
        self.p, self.q, self.trees, self.replace = probabilities(target), probabilities(draft), trees, replace
        self.roots, self.parents, self.turns, _, self.children, self.tokens, self.sources = (
            numbers.tolist() for numbers in trees.nodes
        )


class _Here:
    """A node, its next turn, and what is left there of the target's and the draft's distributions."""

    def __init__(self, batch: _Batch, node: int) -> None:
        self._batch, self.node = batch, node
        self.turn, self._stop = batch.turns[node], batch.turns[node + 1]
        self.p, self._q = batch.p[node], batch.q
        self.weight = 1.0  # the share of p that may be claimed

    @property
    def over(self) -> bool:
        return bool(self.turn == self._stop)

    @property
    def child(self) -> int:
        return int(self._batch.children[self.turn])

    @property
    def claimed(self) -> float:
        """The probability with which the child in turn is accepted, before it is cut to 1."""
        token, source = self._batch.tokens[self.turn], self._batch.sources[self.turn]
        drawn = 1.0 if source < 0 else float(self._q[source, token])
        return self.weight * float(self.p[token]) / drawn

    def reject(self) -> float:
        """The child in turn is rejected: what is left of p, not yet normalised. On to the next turn."""
        token, source = self._batch.tokens[self.turn], self._batch.sources[self.turn]
        sure = torch.zeros_like(self.p)
        sure[token] = 1
        q = sure if source < 0 else self._q[source]
        rest = (self.weight * self.p - q).clamp(min=0)
        left = float(rest.sum())
        if left > 0:
            self.p = rest / left
        if source >= 0 and not self._batch.replace:
            self._q = self._q.clone()
            self._q[source, token] = 0
            self._q[source] /= self._q[source].sum().clamp(min=torch.finfo(torch.float64).tiny)
        self.turn += 1
        return left


def _multi_step(batch: _Batch, root: int, uniforms: Iterator[float]) -> tuple[_Here, list[int]]:
    here = _Here(batch, root)
    path: list[int] = []
    while not here.over:
        child = here.child
        if next(uniforms) < here.claimed or here.reject() <= 0:
            here = _Here(batch, child)
            path.append(child)
    return here, path


def _traversal(batch: _Batch, root: int, uniforms: Iterator[float]) -> tuple[_Here, list[int]]:
    above = [_Here(batch, root)]
    while True:
        here = above[-1]
        if not here.over and here.claimed > 0:
            below = _Here(batch, here.child)
            below.weight = min(1.0, here.claimed)
            above.append(below)
            continue
        if here.over:
            if next(uniforms) < here.weight:
                return here, [each.node for each in above[1:]]
            above.pop()
            here = above[-1]
        left = here.reject()
        if left > 0:
            here.weight = left / (left + 1 - here.weight)
        elif here.weight < 1:
            here.weight = 0.0


Rule = Callable[[_Batch, int, Iterator[float]], tuple[_Here, list[int]]]


def _each(batch: _Batch, uniforms: Tensor, rule: Rule) -> Verified:
    verified = Verified.empty(batch.trees)
    verified.path.fill_(-1)
    for sequence, root in enumerate(batch.roots[:-1]):
        left = iter(uniforms[sequence].tolist())
        here, path = rule(batch, root, left)
        verified.path[sequence, : len(path)] = torch.tensor([node - root for node in path], dtype=torch.int32)
        verified.length[sequence] = len(path)
        verified.bonus[sequence] = _sample(here.p, next(left))
    return verified


def _sample(p: Tensor, uniform: float) -> int:
    """The first token whose cumulated probability is above uniform."""
    cumulated = p.cumsum(0)
    index = int(torch.searchsorted(cumulated, uniform * float(cumulated[-1]), right=True))
    return index if index < len(p) else int(p.nonzero()[-1])
