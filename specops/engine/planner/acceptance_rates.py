"""How likely one of k drafted children is accepted, computed from the two distributions instead of counted.

Every function takes p and q, [n, V] (the target's and the draft's distribution at n positions), and a
width k, and returns [n, k]: the probability that verification gets past the position with 1, 2, …, k
children. These are SpecInfer's success rates (arXiv 2305.09781, table 1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

from specops.engine.tree import TokenTree
from specops.engine.verifiers.ranked import Ranked
from specops.engine.verifiers.traversal import Claim, Traversal
from specops.engine.verifiers.verifier import Proposals, Target


def greedy(p: Tensor, q: Tensor, k: int) -> Tensor:
    """The draft's k most likely tokens, accepted where the target's most likely one is among them. Exact."""
    hit = q.topk(k, -1).indices == p.argmax(-1, keepdim=True)
    return hit.cumsum(-1).to(p.dtype)


def naive_top(p: Tensor, q: Tensor, k: int) -> Tensor:
    """The draft's k most likely tokens, accepted where the target samples one of them. Exact."""
    return p.gather(-1, q.topk(k, -1).indices).cumsum(-1)


def naive_iid(p: Tensor, q: Tensor, k: int) -> Tensor:
    """k independent draws, accepted where the target samples one of them. Exact."""
    missed = [((1 - q) ** count * p).sum(-1) for count in range(1, k + 1)]
    return 1 - torch.stack(missed, -1)


def multi_step_iid(p: Tensor, q: Tensor, k: int) -> Tensor:
    """Multi-step speculative sampling over k independent draws. Exact.

    After a rejection the residual does not depend on which token was rejected, so the chances multiply.
    """
    rejected, results = torch.ones_like(p[..., 0]), []
    for _ in range(k):
        rejected = rejected * _rejection(p, q)
        results.append(1 - rejected)
        p = _residual(p, q)
    return torch.stack(results, -1)


def multi_step_without_replacement(p: Tensor, q: Tensor, k: int, generator: torch.Generator) -> Tensor:
    """Multi-step speculative sampling over k draws without replacement.

    What is left depends on the tokens rejected so far. They are sampled, one history a position, and each
    further chance is computed given the history: unbiased, with little noise.
    """
    rejections = _without_replacement(p, q, k, generator)
    return torch.stack([1 - rejected for rejected, _ in rejections], -1)


def greedy_of(q: Tensor, tokens: Tensor, k: int) -> Tensor:
    """Whether each of `tokens`, [n], which the target chose, is the draft's child of rank 0, 1, …: [n, k].

    For every tree of the draft's most likely tokens, the target's being its choices or its samples.
    """
    return (q.topk(k, -1).indices == tokens[:, None]).to(q.dtype)


def multi_step_of(p: Tensor, q: Tensor, tokens: Tensor, k: int, generator: torch.Generator) -> Tensor:
    """Multi-step sampling without replacement, given what came out: whether each of `tokens`, [n], is the
    accepted child of rank 0, 1, …, as probabilities, [n, k].

    `tokens` are drawn from p, as verification's output is. What a row is short of 1 is the probability that
    every draw was rejected and the residual gave the token. Unbiased over the histories, token by token.
    """
    wanted = tokens[:, None]
    chance = p.gather(-1, wanted)[:, 0]
    left = [chance]
    for rejected, rest in _without_replacement(p, q, k, generator):
        left.append(rejected * rest.gather(-1, wanted)[:, 0])
    return (-torch.stack(left, -1).diff() / chance[:, None]).clamp_(0, 1)


def _without_replacement(
    p: Tensor, q: Tensor, k: int, generator: torch.Generator
) -> Iterator[tuple[Tensor, Tensor]]:
    """After each of k draws: [n], the probability that all were rejected, and [n, V], the residual then."""
    rejected = torch.ones_like(p[..., 0])
    for _ in range(k):
        rejected = rejected * _rejection(p, q)
        # A rejected token has q > p, in proportion to the difference; where there is none, any will do.
        excess = (q - p).clamp_(min=0) + torch.finfo(p.dtype).tiny
        token = _sample(excess, generator)
        p = _residual(p, q)
        yield rejected, p
        q = q.scatter(-1, token, 0.0)
        q = q / q.sum(-1, keepdim=True).clamp_(min=torch.finfo(q.dtype).tiny)


def _sample(weights: Tensor, generator: torch.Generator) -> Tensor:
    """[n, V] -> [n, 1], an index of each row, by the inverse of its cumulated weights."""
    cumulated = weights.cumsum(-1)
    at = torch.rand(len(weights), 1, generator=generator, dtype=weights.dtype) * cumulated[:, -1:]
    return torch.searchsorted(cumulated, at, right=True).clamp_(max=weights.shape[-1] - 1)


def _rejection(p: Tensor, q: Tensor) -> Tensor:
    return (1 - torch.minimum(p, q).sum(-1)).clamp_(min=0)


def _residual(p: Tensor, q: Tensor) -> Tensor:
    rest = (p - q).clamp_(min=0)
    total = rest.sum(-1, keepdim=True)
    return torch.where(total > 0, rest / total, p)


GREEDY = "greedy"
SAMPLED = ("multi-step, i.i.d.", "multi-step, without replacement", "naive, draft's top k", "naive, i.i.d.")
RULES = (GREEDY, *SAMPLED)

Expected = Callable[[TokenTree, Target], float]


def naive(tree: TokenTree, p: Target) -> float:
    """A node is accepted where the target samples its path. Children with one token are one."""

    def below(node: int) -> float:
        first = {tree.tokens[child]: child for child in reversed(tree.topology.children[node])}
        if not first:
            return 0.0
        here = p[node]
        return sum(float(here[token]) * (1 + below(child)) for token, child in first.items())

    return below(0)


def multi_step(tree: TokenTree, p: Target) -> float:
    def below(node: int) -> float:
        children, left, expected, rest = Proposals(tree, node), 1.0, 0.0, p[node]
        while left > 0 and children.next():
            accepted = min(1.0, float(rest[children.token]) / children.chance)
            if accepted > 0:
                expected += left * accepted * (1 + below(children.child))
            left *= 1 - accepted
            residual = children.reject(rest)
            total = float(residual.sum())
            if total <= 0:
                break
            rest = residual / total
        return expected

    return below(0)


def leaf_to_root(rule: Traversal, tree: TokenTree, p: Target) -> float:
    def visit(node: int, weight: float) -> tuple[float, float]:
        """The probability that the node is accepted, and the mean number of nodes below it that are."""
        claim, left, expected = Claim(node, weight, p[node]), 1.0, 0.0
        for child, claimed in rule.trials(claim, Proposals(tree, node)):
            accepted, further = visit(child, claimed) if claimed > 0 else (0.0, 0.0)
            expected += left * (accepted + further)
            left *= 1 - accepted
        return 1 - left * (1 - claim.weight), expected

    return visit(0, 1.0)[1]


EXPECTED_NODES: dict[str, Expected] = {
    "naive": naive,
    "mss": multi_step,
    "traversal": partial(leaf_to_root, Traversal()),
    "ranked": partial(leaf_to_root, Ranked()),
}
"""By the verifier's name, from the plainest on."""
