"""A pair along what the target itself writes: what drafts would have met with, position by position.

The target's output does not depend on the draft, so one continuation and the two models' distributions along
it say how every tree of the draft's would have fared: no tree is grown. A draft model's distribution after
a token is the same at every depth, since what lies above an accepted token was accepted too. A head's is not:
below the root it reads its own guesses. Heads are therefore unrolled from every position, as in training.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from specops.engine.attention import Layout, Span, causal
from specops.engine.drafters.ngram import NGram
from specops.engine.load import Pair
from specops.engine.models.model import FeatureModel
from specops.engine.planner.acceptance_rates import (
    GREEDY,
    SAMPLED,
    greedy,
    greedy_of,
    multi_step_iid,
    multi_step_of,
    multi_step_without_replacement,
    naive_iid,
    naive_top,
)
from specops.engine.request import Sampling
from specops.engine.rng import distribution
from specops.engine.sequence import Sequence as Decoded
from specops.errors import UsageError

Rates = dict[str, list[float]]
"""By rule of acceptance.py, at widths 1, 2, …"""


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
    """How trees up to `depth` deep with up to `ranks` children a node fare on what the target has `written`.

    temperature: at which it was written. At 0, and under naive verification, a token is accepted or it is
    not; above, trees are drawn without replacement and verified in many steps, and it has a probability.
    """
    whole, first = prompt + written, len(prompt)
    ranks = min(ranks, pair.target.shape.vocab)
    hits = np.zeros((depth if pair.draft.reads_features else 1, len(written), ranks))
    logits, features = _target(pair.target, whole, first)
    sampling, generator = Sampling(temperature=temperature), torch.Generator().manual_seed(seed)
    for level, (place, drafted) in enumerate(pair.draft.unroll(whole, first, features, depth)):
        tokens = torch.tensor(written[place:])
        if temperature == 0:
            found = greedy_of(drafted, tokens, ranks)
        else:
            p, q = distribution(logits[place:], sampling), distribution(drafted, sampling)
            found = multi_step_of(p, q, tokens, ranks, generator)
        hits[level, place:] = found.numpy()
    return Trace(tuple(prompt), tuple(written), hits, opens_bare=pair.draft.reads_features)


@torch.inference_mode()
def rates(pair: Pair, prompt: list[int], tokens: int, widths: int, seed: int) -> Rates:
    """By rule, the mean rate at the root of a tree, over a continuation of `tokens` tokens."""
    if len(prompt) + tokens > pair.positions:
        raise UsageError(
            f"{len(prompt)} tokens of prompt and {tokens} after them do not fit in {pair.positions} "
            "positions",
            hint="measure fewer tokens",
        )
    if tokens < 2 and pair.draft.reads_features:
        raise UsageError(
            "a draft that reads the target's features has none to draft the first token from",
            hint="measure 2 tokens or more",
        )
    widths = min(widths, pair.target.shape.vocab)
    generator = torch.Generator().manual_seed(seed)
    p, q = _along(pair, prompt, Sampling(max_tokens=tokens, ignore_eos=True))
    found = {GREEDY: greedy(p, q, widths)}
    p, q = _along(pair, prompt, Sampling(temperature=1.0, seed=seed, max_tokens=tokens, ignore_eos=True))
    measured = (
        multi_step_iid(p, q, widths),
        multi_step_without_replacement(p, q, widths, generator),
        naive_top(p, q, widths),
        naive_iid(p, q, widths),
    )
    found |= dict(zip(SAMPLED, measured, strict=True))
    return {rule: rate.mean(0).tolist() for rule, rate in found.items()}


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
    """What the target wrote after a prompt, and how a draft would have fared on it."""

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
        found = np.zeros((n, len(widths)))
        chance = np.ones(n)
        for depth, width in enumerate(widths):
            at = np.zeros(n)
            at[: max(n - depth, 0)] = self.hits[min(depth, depths - 1), depth:, :width].sum(-1)
            chance = chance * at
            found[:, depth] = chance
        return found

    def steps(self, widths: Sequence[int]) -> float:
        """Expected, with the expansion <widths>, the step that reads the prompt included."""
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
class Table:
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


def table(traces: Sequence[Trace], depth: int) -> Table:
    """Every position is a root. `depth` levels."""
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
    return Table(parents, accepted)


def copied(trace: Trace, count: int) -> list[int]:
    """With n-gram drafts of up to `count` tokens: how many were drafted at each step, the first included.

    By the drafter itself, which looks at the tokens alone. A copied token is right or it is not, greedily
    and under naive verification, which is lossless for it.
    """
    drafter = NGram(count)
    prompt, whole = list(trace.prompt), [*trace.prompt, *trace.written]
    sequence = Decoded(
        0,
        prompt,
        Sampling(max_tokens=len(trace.written)),
        room=len(whole),
        chunk=len(whole),
        eos=frozenset(),
        tokenizer=None,
    )
    drafted = []
    while len(sequence.tokens) < len(whole):
        draft = drafter.draft([sequence])[0].tokens[1:]
        place = len(sequence.tokens)
        right = 0
        while right < len(draft) and draft[right] == whole[place + right]:
            right += 1
        sequence.tokens += whole[place : place + right + 1]
        drafted.append(len(draft))
    return drafted
