"""How likely one of k drafted children is accepted, computed from the two distributions instead of counted.

Every function takes p and q, [n, V] (the target's and the draft's distribution at n positions), and a
width k, and returns [n, k]: the probability that verification gets past the position with 1, 2, …, k
children. These are SpecInfer's success rates (arXiv 2305.09781, table 1).
"""

from __future__ import annotations

import torch
from torch import Tensor

from specops.engine.attention import Layout, Span, causal
from specops.engine.model import Model


def logits_of(model: Model, tokens: list[int]) -> Tensor:
    """One plain causal pass over a sequence -> [len(tokens), V] logits, row i of what follows token i."""
    n = len(tokens)
    cache = model.shape.cache(rows=1, capacity=n)
    layout = Layout([Span(0, 0, n, torch.arange(n), causal(n))], cache, model.shape.tile)
    return model.forward(torch.tensor(tokens), layout)


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
    rejected, results = torch.ones_like(p[..., 0]), []
    for _ in range(k):
        rejected = rejected * _rejection(p, q)
        results.append(1 - rejected)
        # A rejected token has q > p, in proportion to the difference; where there is none, any will do.
        excess = (q - p).clamp_(min=0) + torch.finfo(p.dtype).tiny
        token = (excess / torch.empty_like(q).exponential_(generator=generator)).argmax(-1, keepdim=True)
        p = _residual(p, q)
        q = q.scatter(-1, token, 0.0)
        q = q / q.sum(-1, keepdim=True).clamp_(min=torch.finfo(q.dtype).tiny)
    return torch.stack(results, -1)


def _rejection(p: Tensor, q: Tensor) -> Tensor:
    return (1 - torch.minimum(p, q).sum(-1)).clamp_(min=0)


def _residual(p: Tensor, q: Tensor) -> Tensor:
    rest = (p - q).clamp_(min=0)
    total = rest.sum(-1, keepdim=True)
    return torch.where(total > 0, rest / total, p)
