"""Acceptance rates from the distributions equal what the production verifiers do, outcome by outcome."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from enumeration import Script, distribution_of
from torch import Tensor

from specops.engine.planner import offline_acceptance
from specops.engine.tree import Draw, TokenTree, Topology
from specops.engine.verifiers.mss import MultiStep
from specops.engine.verifiers.naive import Naive
from specops.engine.verifiers.verifier import Verifier

VOCAB, WIDTHS = 4, 3


def random_distributions(seed: int, count: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(count, VOCAB, generator=generator, dtype=torch.float64).pow(3).softmax(-1)


def enumerated(verifier: Verifier, draw: Draw, p: Tensor, q: Tensor, width: int) -> float:
    """The probability that a child of the root is accepted, over every draw and every decision."""

    def run(chance: Script) -> bool:
        if draw is Draw.DETERMINISTIC:
            children = q.topk(width).indices.tolist()
        else:
            children = chance.draw(q, width, replace=draw is Draw.IID)
        rows = None if draw is Draw.DETERMINISTIC else ((q,), *[()] * len(children))
        tree = TokenTree(Topology.expansion((len(children),)), [0, *children], draw, rows)
        return bool(verifier.verify(tree, p.expand(len(tree), -1), chance).path)

    return distribution_of(run).get(True, 0.0)


@pytest.mark.parametrize(
    ("rate", "verifier", "draw"),
    [
        (offline_acceptance.multi_step_iid, MultiStep(), Draw.IID),
        (offline_acceptance.naive_iid, Naive(), Draw.IID),
        (offline_acceptance.naive_top, Naive(), Draw.DETERMINISTIC),
    ],
)
def test_exact_rates(rate: Callable[[Tensor, Tensor, int], Tensor], verifier: Verifier, draw: Draw) -> None:
    p, q = random_distributions(0, 4), random_distributions(1, 4)
    rates = rate(p, q, WIDTHS)
    assert rates.shape == (4, WIDTHS)
    for row in range(4):
        for width in range(1, WIDTHS + 1):
            expected = enumerated(verifier, draw, p[row], q[row], width)
            assert rates[row, width - 1].item() == pytest.approx(expected, abs=1e-12)


def test_without_replacement_is_unbiased() -> None:
    """One sampled history a position: the mean over many is the enumerated rate, within 5 sigma."""
    p, q = random_distributions(2, 1), random_distributions(3, 1)
    count = 4000
    generator = torch.Generator().manual_seed(0)
    rates = offline_acceptance.multi_step_without_replacement(
        p.expand(count, -1), q.expand(count, -1), WIDTHS, generator
    )
    for width in range(1, WIDTHS + 1):
        column = rates[:, width - 1]
        expected = enumerated(MultiStep(), Draw.WITHOUT_REPLACEMENT, p[0], q[0], width)
        error = max(float(column.std()) / count**0.5, 1e-12)
        assert abs(float(column.mean()) - expected) < 5 * error


def test_identical_distributions_are_always_accepted() -> None:
    p = random_distributions(4, 8)
    generator = torch.Generator().manual_seed(0)
    assert offline_acceptance.multi_step_iid(p, p, 2).min() > 1 - 1e-12
    assert offline_acceptance.multi_step_without_replacement(p, p, 2, generator).min() > 1 - 1e-12


def test_greedy_counts_the_targets_choice_among_the_drafts_best() -> None:
    p = torch.tensor([[0.1, 0.6, 0.3], [0.8, 0.1, 0.1]])
    q = torch.tensor([[0.5, 0.3, 0.2], [0.9, 0.05, 0.05]])
    assert offline_acceptance.greedy(p, q, 3).tolist() == [[0, 1, 1], [1, 1, 1]]


def test_given_the_token_that_came_out() -> None:
    """Of each rank, given the output: against every draw and decision of the production verifier."""
    p, q = random_distributions(5, 1), random_distributions(6, 1)
    count = 4000
    generator = torch.Generator().manual_seed(0)

    def run(chance: Script) -> tuple[int, int | None]:
        children = chance.draw(q[0], WIDTHS, replace=False)
        rows = ((q[0],), *[()] * len(children))
        topology = Topology.expansion((len(children),))
        tree = TokenTree(topology, [0, *children], Draw.WITHOUT_REPLACEMENT, rows)
        verified = MultiStep().verify(tree, p[0].expand(len(tree), -1), chance)
        if not verified.path:
            return verified.bonus, None
        return tree.tokens[verified.path[0]], topology.rank[verified.path[0]]

    joint = distribution_of(run)
    # An accepted child is followed by a bonus token, which the outcome leaves out: the first token decides.
    for token in range(VOCAB):
        tokens = torch.full((count,), token)
        found = offline_acceptance.multi_step_of(
            p.expand(count, -1), q.expand(count, -1), tokens, WIDTHS, generator
        )
        for rank in range(WIDTHS):
            expected = joint.get((token, rank), 0.0) / float(p[0, token])
            error = max(float(found[:, rank].std()) / count**0.5, 1e-9)
            assert abs(float(found[:, rank].mean()) - expected) < 5 * error


def test_greedy_given_the_token() -> None:
    q = torch.tensor([[0.5, 0.3, 0.2], [0.9, 0.02, 0.08]])
    assert offline_acceptance.greedy_of(q, torch.tensor([1, 2]), 2).tolist() == [[0, 1], [0, 1]]
