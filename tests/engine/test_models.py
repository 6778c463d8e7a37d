"""The engine's forward passes are the models': logits, and the KV they leave, equal transformers'."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from tiny_models import FAMILIES, LEAN, VOCABULARY, Pair, load_reference, reference_logits

from specops.engine.attention import Layout, Span, causal
from specops.engine.models.generic import GenericModel
from specops.engine.models.llama import LeanLlama
from specops.engine.models.model import Model
from specops.engine.tree import Topology

TOKENS = torch.randint(VOCABULARY, (60,), generator=torch.Generator().manual_seed(1)).tolist()


def in_parts(model: Model, tokens: list[int], sizes: list[int]) -> torch.Tensor:
    """[n, V] logits of one sequence that is fed part by part."""
    cache = model.shape.cache(rows=1, capacity=len(tokens))
    logits, start = [], 0
    for size in sizes:
        span = Span(0, start, size, torch.arange(start, start + size), causal(size))
        layout = Layout([span], cache, model.shape.tile)
        logits.append(model.forward(torch.tensor(tokens[start : start + size]), layout))
        start += size
    assert start == len(tokens)
    return torch.cat(logits)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_right_forward_is_chosen(family: str, pair_of: Callable[[str], Pair]) -> None:
    expected = LeanLlama if family in LEAN else GenericModel
    assert type(pair_of(family).target_model) is expected


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "sizes", [[60], [1] * 60, [7] * 8 + [4], [2, 3, 4, 5, 46]], ids=["whole", "ones", "sevens", "mixed"]
)
def test_logits(family: str, sizes: list[int], pair_of: Callable[[str], Pair]) -> None:
    pair = pair_of(family)
    expected = reference_logits(pair.reference, TOKENS)
    found = in_parts(pair.target_model, TOKENS, sizes)
    assert expected.std() > 0.5  # of a scale at which the tolerance says something
    assert torch.allclose(found, expected, atol=1e-4)


@pytest.mark.parametrize("family", LEAN)
def test_lean_and_generic_agree(family: str, pair_of: Callable[[str], Pair]) -> None:
    pair = pair_of(family)
    generic = GenericModel(load_reference(pair.target))
    assert generic.shape == pair.target_model.shape
    assert torch.allclose(
        in_parts(generic, TOKENS, [50, 10]), in_parts(pair.target_model, TOKENS, [50, 10]), atol=1e-4
    )


@pytest.mark.parametrize("family", ["llama", "qwen2", "opt", "gpt2"])
def test_a_tree_of_two_sequences_in_one_pass(family: str, pair_of: Callable[[str], Pair]) -> None:
    """Each node's logits are those of the plain sequence of its ancestors; only the wanted ones come back."""
    pair = pair_of(family)
    model, topology = pair.target_model, Topology.from_parents((-1, 0, 0, 1, 1, 2))
    prefixes = [TOKENS[:9], TOKENS[20:24]]
    cache = model.shape.cache(rows=2, capacity=20)
    for row, prefix in enumerate(prefixes):
        read = len(prefix) - 1
        span = Span(row, 0, read, torch.arange(read), causal(read))
        model.forward(torch.tensor(prefix[:-1]), Layout([span], cache, model.shape.tile))
    drafted = TOKENS[40:45]
    spans, fed = [], []
    for row, prefix in enumerate(prefixes):
        root = len(prefix) - 1
        spans.append(Span(row, root, len(topology), root + topology.depths, topology.mask))
        fed += [prefix[-1], *drafted]
    wanted = torch.tensor([0, 3, 4, 5, 8, 11])
    layout = Layout(spans, cache, model.shape.tile)
    found = model.forward(torch.tensor(fed), layout, wanted)
    for logits, place in zip(found, wanted.tolist(), strict=True):
        row, node = divmod(place, len(topology))
        path = [step for step in range(1, len(topology)) if topology.sees[node, step]]
        plain = prefixes[row] + [drafted[step - 1] for step in path]
        assert torch.allclose(logits, reference_logits(pair.reference, plain)[-1], atol=1e-4)


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_nothing_wanted_gives_no_logits(family: str, pair_of: Callable[[str], Pair]) -> None:
    """While every sequence of a step is still reading its prompt."""
    model = pair_of(family).target_model
    cache = model.shape.cache(rows=1, capacity=4)
    layout = Layout([Span(0, 0, 4, torch.arange(4), causal(4))], cache, model.shape.tile)
    none = torch.empty(0, dtype=torch.int64)
    assert model.forward(torch.tensor(TOKENS[:4]), layout, none).shape == (0, VOCABULARY)
