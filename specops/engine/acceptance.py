"""How likely one of k drafted children is accepted, computed from the two distributions instead of counted.

Every function takes p and q, [n, V] (the target's and the draft's distribution at n positions), and a
width k, and returns [n, k]: the probability that verification gets past the position with 1, 2, …, k
children. These are SpecInfer's success rates (arXiv 2305.09781, table 1).
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from specops.engine.attention import Layout, Span, causal
from specops.engine.load import check_pair, load_engine
from specops.engine.model import Model, load_model
from specops.engine.request import Sampling
from specops.errors import UsageError


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


GREEDY = "greedy"
SAMPLED = ("multi-step, i.i.d.", "multi-step, without replacement", "naive, draft's top k", "naive, i.i.d.")
RULES = (GREEDY, *SAMPLED)


class Pair:
    """A target and a draft, for their acceptance along what the target itself writes."""

    def __init__(self, target: Path, draft: Path, seed: int) -> None:
        self._engine = load_engine(target, speculate=False, max_batch=1)
        self._draft = load_model(draft)
        check_pair(target, self._engine.target, draft, self._draft)
        self._seed = seed
        self._generator = torch.Generator().manual_seed(seed)

    def encode(self, text: str) -> list[int]:
        ids: list[int] = self._engine.tokenizer.encode(text)
        return ids

    @torch.inference_mode()
    def rates(self, prompt: list[int], tokens: int, widths: int) -> dict[str, list[float]]:
        """By rule, the mean rate at widths 1, 2, … over a continuation of `tokens` tokens."""
        room = min(self._engine.max_length, self._draft.shape.max_positions)
        if len(prompt) + tokens > room:
            raise UsageError(
                f"{len(prompt)} tokens of prompt and {tokens} after them do not fit in {room} positions",
                hint="measure fewer tokens",
            )
        widths = min(widths, self._draft.shape.vocab)
        p, q = self._along(prompt, tokens, temperature=0.0)
        found = {GREEDY: greedy(p, q, widths)}
        p, q = self._along(prompt, tokens, temperature=1.0)
        measured = (
            multi_step_iid(p, q, widths),
            multi_step_without_replacement(p, q, widths, self._generator),
            naive_top(p, q, widths),
            naive_iid(p, q, widths),
        )
        found |= dict(zip(SAMPLED, measured, strict=True))
        return {rule: rate.mean(0).tolist() for rule, rate in found.items()}

    def _along(self, prompt: list[int], tokens: int, temperature: float) -> tuple[Tensor, Tensor]:
        """p and q, [tokens, V], at each token of the target's own continuation."""
        sampling = Sampling(temperature=temperature, seed=self._seed, max_tokens=tokens, ignore_eos=True)
        whole = prompt + self._engine.generate(prompt, sampling).tokens
        p, q = (logits_of(m, whole[:-1])[len(prompt) - 1 :] for m in (self._engine.target, self._draft))
        return p.softmax(-1), q.softmax(-1)
