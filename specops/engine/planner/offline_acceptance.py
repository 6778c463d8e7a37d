"""Acceptance of a pair offline: what drafts would have met with along what the target itself writes.

The target's output does not depend on the draft, so one continuation and the two models' distributions along
it say how every tree of the draft's would have fared: no tree is grown. A draft model's distribution after
a token is the same at every depth, since what lies above an accepted token was accepted too. A head's is not:
below the root it reads its own guesses. Heads are therefore unrolled from every position, as in training.

The first part computes, from two distributions p and q, [n, V] (the target's and the draft's at n positions),
and a width k, how likely one of k drafted children is accepted: [n, k], the probability that verification
gets past the position with 1, 2, …, k children. These are SpecInfer's success rates (table 1).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from specops.engine.attention import Layout, Span, causal
from specops.engine.load import Pair
from specops.engine.models.model import FeatureModel
from specops.engine.planner.copied_acceptance import ngram_drafts
from specops.engine.request import Sampling
from specops.engine.rng import distribution
from specops.errors import UsageError
from specops.hints import with_options


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
    """Return whether each of `tokens`, [n], which the target chose, is the draft's child of rank 0, 1, …: [n,
    k].

    For every tree of the draft's most likely tokens, the target's being its choices or its samples.
    """
    return (q.topk(k, -1).indices == tokens[:, None]).to(q.dtype)


def multi_step_of(p: Tensor, q: Tensor, tokens: Tensor, k: int, generator: torch.Generator) -> Tensor:
    """Multi-step sampling without replacement, given what came out: whether each of `tokens`, [n], is the
    accepted child of rank 0, 1, …, as probabilities, [n, k].

    `tokens` are drawn from p, as verification's output is. What a row is short of 1 is the probability that
    every draw was rejected and the residual gave the token. Unbiased over the histories, token by token.
    """
    index = tokens[:, None]
    chance = p.gather(-1, index)[:, 0]
    left = [chance]
    for rejected, rest in _without_replacement(p, q, k, generator):
        left.append(rejected * rest.gather(-1, index)[:, 0])
    return (-torch.stack(left, -1).diff() / chance[:, None]).clamp_(0, 1)


def _without_replacement(
    p: Tensor, q: Tensor, k: int, generator: torch.Generator
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yields, after each of k draws, the probability that all were rejected, [n], and the residual then,
    [n, V]."""
    rejected = torch.ones_like(p[..., 0])
    for _ in range(k):
        rejected = rejected * _rejection(p, q)
        # A rejected token has q > p, in proportion to the difference. Without a difference, any will do.
        excess = (q - p).clamp_(min=0) + torch.finfo(p.dtype).tiny
        token = _sample(excess, generator)
        p = _residual(p, q)
        yield rejected, p
        q = q.scatter(-1, token, 0.0)
        q = q / q.sum(-1, keepdim=True).clamp_(min=torch.finfo(q.dtype).tiny)


def _sample(weights: Tensor, generator: torch.Generator) -> Tensor:
    """[n, V] -> [n, 1], an index of each row, by the inverse of its cumulated weights."""
    cumulated = weights.cumsum(-1)
    targets = torch.rand(len(weights), 1, generator=generator, dtype=weights.dtype) * cumulated[:, -1:]
    return torch.searchsorted(cumulated, targets, right=True).clamp_(max=weights.shape[-1] - 1)


def _rejection(p: Tensor, q: Tensor) -> Tensor:
    return (1 - torch.minimum(p, q).sum(-1)).clamp_(min=0)


def _residual(p: Tensor, q: Tensor) -> Tensor:
    rest = (p - q).clamp_(min=0)
    total = rest.sum(-1, keepdim=True)
    return torch.where(total > 0, rest / total, p)


GREEDY = "greedy"
SAMPLED = ("multi-step, i.i.d.", "multi-step, without replacement", "naive, draft's top k", "naive, i.i.d.")
RULES = (GREEDY, *SAMPLED)

Rates = dict[str, list[float]]
"""Acceptance by rule, one of `RULES`, at widths 1, 2, …"""


@torch.inference_mode()
def trace(
    pair: Pair,
    prompt: list[int],
    written: list[int],
    temperature: float,
    *,
    depth: int,
    ranks: int,
    seed: int,
) -> Trace:
    """A trace of trees of up to `depth` levels and `ranks` children a node on the text that the target has
    `written`.

    temperature: that of the text. At 0, and under naive verification, a token is accepted or not. Above 0,
    trees are drawn without replacement and verified in many steps, so that each token has a probability.
    """
    whole, first = prompt + written, len(prompt)
    ranks = min(ranks, pair.target.shape.vocab)
    hits = np.zeros((depth if pair.draft.reads_features else 1, len(written), ranks))
    logits, features = _target(pair.target, whole, first)
    sampling, generator = Sampling(temperature=temperature), torch.Generator().manual_seed(seed)
    for level, (place, drafted) in enumerate(pair.draft.unroll(whole, first, features, depth)):
        tokens = torch.tensor(written[place:])
        if temperature == 0:
            accepted = greedy_of(drafted, tokens, ranks)
        else:
            p, q = distribution(logits[place:], sampling), distribution(drafted, sampling)
            accepted = multi_step_of(p, q, tokens, ranks, generator)
        hits[level, place:] = accepted.numpy()
    return Trace(tuple(prompt), tuple(written), hits, opens_bare=pair.draft.reads_features)


@torch.inference_mode()
def rates(pair: Pair, prompt: list[int], tokens: int, widths: int, seed: int) -> Rates:
    """Mean acceptance rate at the root of a tree, by rule, over a continuation of `tokens` tokens."""
    if len(prompt) + tokens > pair.positions:
        raise UsageError(
            f"{len(prompt)} tokens of prompt and {tokens} after them do not fit in {pair.positions} "
            "positions: expected fewer tokens",
            hint=with_options({"--tokens": str(max(2, pair.positions // 4))}),
        )
    if tokens < 2 and pair.draft.reads_features:
        raise UsageError(
            "a draft that reads the target's features has none to draft the first token from: expected 2 "
            "tokens "
            "or more",
            hint=with_options({"--tokens": "64"}),
        )
    widths = min(widths, pair.target.shape.vocab)
    generator = torch.Generator().manual_seed(seed)
    p, q = _along(pair, prompt, Sampling(max_tokens=tokens, ignore_eos=True))
    by_rule = {GREEDY: greedy(p, q, widths)}
    p, q = _along(pair, prompt, Sampling(temperature=1.0, seed=seed, max_tokens=tokens, ignore_eos=True))
    measured = (
        multi_step_iid(p, q, widths),
        multi_step_without_replacement(p, q, widths, generator),
        naive_top(p, q, widths),
        naive_iid(p, q, widths),
    )
    by_rule |= dict(zip(SAMPLED, measured, strict=True))
    return {rule: rate.mean(0).tolist() for rule, rate in by_rule.items()}


def _along(pair: Pair, prompt: list[int], sampling: Sampling) -> tuple[Tensor, Tensor]:
    """p and q, [n, V], at each token that a draft could have proposed of the target's own continuation."""
    room = len(prompt) + sampling.max_tokens
    whole = prompt + pair.engine("none", room).generate(prompt, sampling).tokens
    logits, features = _target(pair.target, whole, len(prompt))
    place, drafted = next(pair.draft.unroll(whole, len(prompt), features, 1))
    return logits[place:].softmax(-1), drafted.softmax(-1)


def _target(model: FeatureModel, whole: list[int], first: int) -> tuple[Tensor, Tensor]:
    """[n, V] logits of what follows each token but the last, from the one before `first`; all features."""
    fed = len(whole) - 1
    span = Span(0, 0, fed, torch.arange(fed), causal(fed))
    layout = Layout([span], model.shape.cache(1, fed), model.shape.tile)
    return model.with_features(torch.tensor(whole[:-1]), layout, torch.arange(first - 1, fed))


Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Trace:
    """The target's text after a prompt, and the acceptance that a draft would have had on it."""

    prompt: tuple[int, ...]
    written: tuple[int, ...]  # n tokens
    hits: Floats
    """[depths, n, ranks]: the probability that a written token, being at this depth of a tree whose nodes
    above it were accepted, is the accepted child of this rank. The last depth stands for deeper ones."""

    opens_bare: bool
    """Whether the step that reads the end of the prompt has no draft."""

    def accepted(self, widths: Sequence[int]) -> Floats:
        """[n, depth]: from a root before each token, the probability that the expansion <widths> is accepted
        to each depth. Nothing after the last token is."""
        n, depths = len(self.written), len(self.hits)
        reached = np.zeros((n, len(widths)))
        chance = np.ones(n)
        for depth, width in enumerate(widths):
            rate = np.zeros(n)
            rate[: max(n - depth, 0)] = self.hits[min(depth, depths - 1), depth:, :width].sum(-1)
            chance = chance * rate
            reached[:, depth] = chance
        return reached

    def steps(self, widths: Sequence[int]) -> float:
        """Expected number of steps with the expansion <widths>, the step that reads the prompt included."""
        n, depth = len(self.written), len(widths)
        reached = np.concatenate((np.ones((n, 1)), self.accepted(widths), np.zeros((n, 1))), axis=1)
        ends = -np.diff(reached)  # [n, depth + 1]: after 0, 1, … accepted tokens
        root = np.zeros(n + depth + 2)
        root[0] = 1.0
        for place in range(n):
            if place == 0 and self.opens_bare:
                root[1] = 1.0
            else:
                root[place + 1 : place + depth + 2] += root[place] * ends[place]
        return float(root[:n].sum())


@dataclass(frozen=True)
class AcceptanceTable:
    """Acceptance by depth and rank, over the roots of some traces, along each tree's first choices."""

    parents: Floats
    """[depths]: how many nodes were accepted, by their first choices from the root, whose children count."""

    accepted: Floats
    """[depths, ranks]: how many of their children of each rank were."""

    @property
    def rates(self) -> Floats:
        """[depths, ranks]; 0 where there was no parent."""
        rates: Floats = self.accepted / np.where(self.parents > 0, self.parents, 1)[:, None]
        return rates


def table(traces: Sequence[Trace], depth: int) -> AcceptanceTable:
    """The table of acceptance over `traces`, with every position as a root, for `depth` levels."""
    ranks = max(trace.hits.shape[-1] for trace in traces)
    parents, accepted = np.zeros(depth), np.zeros((depth, ranks))
    for trace in traces:
        n, roots = len(trace.written), int(trace.opens_bare)
        weight = np.zeros(n)
        weight[roots:] = 1.0
        for below in range(min(depth, n)):
            hits = trace.hits[min(below, len(trace.hits) - 1), below:]  # of roots 0 to n - below
            weight = weight[: n - below]
            parents[below] += weight.sum()
            accepted[below, : hits.shape[-1]] += weight @ hits
            weight = weight * hits[:, 0]
    return AcceptanceTable(parents, accepted)


def copied(trace: Trace, count: int) -> list[int]:
    """Number of tokens drafted at each step with n-gram drafts of up to `count` tokens, the first step
    included.

    The drafter itself drafts them, from the tokens alone. A copied token is right or wrong, greedily and
    under naive verification, which is lossless for it.
    """
    drafts = ngram_drafts(trace.prompt, trace.written, count, len(trace.written))
    return [drafted for drafted, _ in drafts.steps(count)]
