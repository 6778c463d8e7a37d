"""A pair along what the target itself writes: what drafts would have met with, position by position.

The target's output does not depend on the draft, so one continuation and the two models' distributions along
it say how every tree of the draft's would have fared: no tree is grown. A draft model's distribution after
a token is the same at every depth, since what lies above an accepted token was accepted too. A head's is not:
below the root it reads its own guesses. Heads are therefore unrolled from every position, as in training.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from specops.engine.acceptance import (
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
from specops.engine.attention import Layout, Span, causal
from specops.engine.chance import distribution
from specops.engine.drafters.grower import DraftHead
from specops.engine.drafts import Drafting
from specops.engine.model import FeatureModel
from specops.engine.pair import Pair
from specops.engine.replay import Trace
from specops.engine.request import Sampling
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
    hits = np.zeros((depth if pair.reads_features else 1, len(written), ranks))
    logits, features = _target(pair.target, whole, first)
    sampling, generator = Sampling(temperature=temperature), torch.Generator().manual_seed(seed)
    for level, (place, drafted) in enumerate(_drafted(pair.draft, whole, first, features, depth)):
        tokens = torch.tensor(written[place:])
        if temperature == 0:
            found = greedy_of(drafted, tokens, ranks)
        else:
            p, q = distribution(logits[place:], sampling), distribution(drafted, sampling)
            found = multi_step_of(p, q, tokens, ranks, generator)
        hits[level, place:] = found.numpy()
    return Trace(tuple(prompt), tuple(written), hits, opens_bare=pair.reads_features)


@torch.inference_mode()
def rates(pair: Pair, prompt: list[int], tokens: int, widths: int, seed: int) -> Rates:
    """By rule, the mean rate at the root of a tree, over a continuation of `tokens` tokens."""
    if len(prompt) + tokens > pair.positions:
        raise UsageError(
            f"{len(prompt)} tokens of prompt and {tokens} after them do not fit in {pair.positions} "
            "positions",
            hint="measure fewer tokens",
        )
    if tokens < 2 and pair.reads_features:
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
    place, drafted = next(_drafted(pair.draft, whole, len(prompt), features, 1))
    return logits[place:].softmax(-1), drafted.softmax(-1)


def _target(model: FeatureModel, whole: list[int], first: int) -> tuple[Tensor, Tensor]:
    """[n, V] logits of what follows each token but the last, from the one before `first`; all features."""
    fed = len(whole) - 1
    layout = Layout([_line(fed)], model.shape.cache(1, fed), model.shape.tile)
    return model.with_features(torch.tensor(whole[:-1]), layout, torch.arange(first - 1, fed))


def _drafted(
    draft: Drafting, whole: list[int], first: int, features: Tensor, depth: int
) -> Iterator[tuple[int, Tensor]]:
    """For each depth at which the draft's distributions differ: from which written token on, and [those, V]
    logits, row by row of what it would have proposed in that token's place."""
    if isinstance(draft, DraftHead):
        yield from enumerate(draft.unroll(whole[:-1], first, features, depth), start=1)
        return
    fed = len(whole) - 1
    layout = Layout([_line(fed)], draft.shape.cache(1, fed), draft.shape.tile)
    yield 0, draft.forward(torch.tensor(whole[:-1]), layout, torch.arange(first - 1, fed))


def _line(count: int) -> Span:
    return Span(0, 0, count, torch.arange(count), causal(count))
