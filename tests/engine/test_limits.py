"""Windows, chunks, sinks and caps: what a token sees by its position, in prompts, trees and their levels.

Every limit is 8 tokens, and texts are up to 70 tokens long. transformers' own pass over a whole text, with
eager attention, says what is right.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from architectures import tiny
from hypothesis import given
from hypothesis import strategies as st
from shapes import ancestors, parents
from tiny_models import (
    LLAMA,
    POSITIONS,
    VOCABULARY,
    Pair,
    clear_prompts,
    drain,
    load_reference,
    perturb,
    reference_logits,
    tokens_of,
)
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from specops.engine import Sampling
from specops.engine.attention import Addresses, KVCache, Layout, Limit, Mask, Scores, Span, attend, causal
from specops.engine.models import load_model
from specops.engine.tree import Topology

WINDOWS = ["mistral", "gemma3_text", "olmo3", "exaone4", "cohere2"]
FAMILIES = [*WINDOWS, "gemma2", "gpt_oss", "llama4_text", "mimo_v2_flash"]
TREES = ["none", "chain:3", "expand:3,2,1", "dynamic:8:3", "ngram:4", "chain:3+ngram:4"]
LENGTHS, COUNT = [2, 7, 9, 16, 23, 40], 20
ENDS = [COUNT, 3, COUNT, 11, 7, COUNT]

Expected = list[tuple[list[int], list[int]]]


@pytest.fixture(scope="module")
def limited(tiny_pair: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Pair]:
    """A family's name -> its pair, both limited, made once."""
    tokenizer = PreTrainedTokenizerFast.from_pretrained(tiny_pair[0])

    @cache
    def make(family: str) -> Pair:
        folder = tmp_path_factory.mktemp(family)
        source = tiny(family, limited=True, vocab_size=VOCABULARY)
        for name in ("target", "draft"):
            source.save_pretrained(folder / name)
            perturb(source, 0.02)
        return Pair(folder / "target", folder / "draft", tokenizer)

    return make


@pytest.fixture(scope="module")
def expected_of(limited: Callable[[str], Pair]) -> Callable[[str], Expected]:
    return cache(lambda family: clear_prompts(limited(family).reference, LENGTHS, COUNT))


@pytest.mark.quick(7)
@pytest.mark.parametrize("tree", TREES)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("chunk", "batch"), [(7, 3), (256, 1)])
def test_token_identical(
    family: str,
    tree: str,
    chunk: int,
    batch: int,
    limited: Callable[[str], Pair],
    expected_of: Callable[[str], Expected],
) -> None:
    """Batches of unequal lengths, within the limit and beyond it."""
    engine = limited(family).engine(tree, prefill_chunk=chunk, max_batch=batch, max_length=96)
    expected = expected_of(family)
    requests = [(prompt, Sampling(max_tokens=end)) for (prompt, _), end in zip(expected, ENDS, strict=True)]
    found = drain(engine, requests)
    for emissions, (_, tokens), end in zip(found, expected, ENDS, strict=True):
        assert tokens_of(emissions) == tokens[:end]
    if tree.startswith(("chain", "expand", "dynamic")):
        assert 0 < engine.counters.accepted_tokens < engine.counters.draft_tokens


@pytest.mark.parametrize("family", [*WINDOWS, "gemma2", "llama4_text"])
def test_a_draft_equal_to_the_target_is_always_right(
    family: str, limited: Callable[[str], Pair], expected_of: Callable[[str], Expected]
) -> None:
    """A draft reads its tree in levels, whose nodes lie behind each other in its cache."""
    pair = limited(family)
    engine = pair.engine("chain:4", draft=pair.target_model, max_batch=3, max_length=96)
    drain(engine, [(prompt, Sampling(max_tokens=COUNT)) for prompt, _ in expected_of(family)])
    assert engine.counters.accepted_tokens == engine.counters.draft_tokens > 0


TREE = Topology.from_parents((-1, 0, 0, 0, 1, 1, 2, 4, 4, 5, 6, 7, 7, 9, 11, 13, 15))


@pytest.mark.parametrize("whole", [True, False], ids=["at once", "in levels"])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_logits_of_every_node(family: str, whole: bool, limited: Callable[[str], Pair]) -> None:
    """Two sequences of unequal lengths, and under each a tree in which a node's slot says nothing of its
    position: its logits are those of the path to it."""
    pair = limited(family)
    model, tree = pair.target_model, TREE.level_order
    generator = torch.Generator().manual_seed(3)
    prompts = [torch.randint(VOCABULARY, (length,), generator=generator) for length in (5, 30)]
    nodes = torch.randint(VOCABULARY, (2, len(tree)), generator=generator)
    pool, tile = model.shape.cache(2, 60), model.shape.tile
    bounds = [(0, len(tree))]
    if not whole:
        depths = list(tree.depth)
        starts = [depths.index(depth) for depth in range(max(depths) + 1)]
        bounds = list(zip(starts, [*starts[1:], len(tree)], strict=True))
    found: list[list[Tensor]] = [[], []]
    with torch.inference_mode():
        for row, prompt in enumerate(prompts):
            span = Span(row, 0, len(prompt), torch.arange(len(prompt)), causal(len(prompt)))
            model.forward(prompt, Layout([span], pool, tile))
        for start, stop in bounds:
            mask = tree.mask if whole else Mask(tree.sees[start:stop, :stop])
            spans = [
                Span(row, len(prompt) + start, stop - start, len(prompt) + tree.depths[start:stop], mask)
                for row, prompt in enumerate(prompts)
            ]
            logits = model.forward(nodes[:, start:stop].flatten(), Layout(spans, pool, tile))
            for row, part in enumerate(torch.split(logits, stop - start)):
                found[row].append(part)
        for row, prompt in enumerate(prompts):
            for node, own in enumerate(torch.cat(found[row])):
                path = [*prompt.tolist(), *nodes[row, ancestors(tree.parents, node)[::-1]].tolist()]
                right = reference_logits(pair.reference, path)[-1]
                assert torch.allclose(own, right, rtol=0, atol=1e-3 * float(right.abs().max())), node


@given(
    shape=parents(max_nodes=20),
    before=st.integers(0, 12),
    size=st.integers(1, 12),
    form=st.sampled_from(["window", "chunk"]),
)
def test_a_limit_goes_by_positions(shape: tuple[int, ...], before: int, size: int, form: Any) -> None:
    tree, limit = Topology.from_parents(shape), Limit(form, size)
    sees = limit.mask(tree.mask, before + len(tree)).sees
    for node in range(len(tree)):
        path = [*range(before), *(before + above for above in ancestors(shape, node)[::-1])]
        own = len(path) - 1
        right = [
            slot
            for at, slot in enumerate(path)
            if (at > own - size if form == "window" else at // size == own // size)
        ]
        assert sees[node].nonzero().flatten().tolist() == right


def test_layers_without_a_limit_and_short_texts_pay_nothing() -> None:
    layout = Layout([Span(0, 2, 3, torch.arange(2, 5), causal(3))], KVCache(1, 1, 9, 1, 4, torch.float32), 1)
    assert layout.within(None) is layout
    assert layout.within(Limit("window", 5)) is layout
    hiding = layout.within(Limit("window", 4))
    assert hiding is not layout
    assert layout.within(Limit("window", 4)) is hiding  # once for all layers


def test_a_recorded_pass_refuses_what_a_replay_would_get_wrong() -> None:
    """A graph's masks are data on the device: one that was computed while it was recorded would be stale."""
    span = Span(0, 0, 3, torch.arange(3), causal(3))
    pool = KVCache(1, 1, 9, 1, 4, torch.float32, kernel=True)
    plain = Layout([span], pool, 1)
    recorded = Layout([span], pool, 1, Addresses(plain.positions, torch.arange(3), plain.ragged))
    q, kv = torch.zeros(3, 1, 4), torch.zeros(3, 2, 4)
    with pytest.raises(RuntimeError, match="depend on the positions"):
        attend(recorded, 0, q, kv, limit=Limit("window", 99))
    with pytest.raises(RuntimeError, match="depend on the positions"):
        attend(recorded, 0, q, kv, scores=Scores(cap=1.0))


@pytest.mark.parametrize("tile", [1, 2])
@pytest.mark.parametrize("cap", [None, 1.5])
@pytest.mark.parametrize("sinks", [False, True])
def test_caps_and_sinks_over_a_batch(tile: int, cap: float | None, sinks: bool) -> None:
    """Each head of each token on its own, as the formulas are written."""
    torch.manual_seed(0)
    kv_heads, dim, pool = 2, 4, KVCache(1, 2, 20, 2, 4, torch.float32)
    pool.data.normal_()
    tree = Topology.from_parents((-1, 0, 0, 1))
    spans = [Span(row, start, 4, start + tree.depths, tree.mask) for row, start in enumerate((3, 11))]
    q, kv = torch.randn(8, kv_heads * tile, dim), torch.randn(8, 2 * kv_heads, dim)
    extra = torch.randn(kv_heads * tile) if sinks else None
    limit = Limit("window", 5)
    scores = Scores(cap, extra)
    found = attend(Layout(spans, pool, tile), 0, q, kv, 0.7, limit=limit, scores=scores).view(8, -1, dim)
    for row, start in enumerate((3, 11)):
        for node in range(4):
            path = [*range(start), *(start + above for above in ancestors(tree.parents, node)[::-1])]
            slots = path[-5:]
            for head in range(kv_heads * tile):
                keys = pool.data[0, row, slots, head // tile]
                values = pool.data[0, row, slots, kv_heads + head // tile]
                score = keys @ q[4 * row + node, head] * 0.7
                if cap is not None:
                    score = cap * torch.tanh(score / cap)
                weights = score.exp()
                total = weights.sum() + (extra[head].exp() if extra is not None else 0)
                right = (weights / total) @ values
                assert torch.allclose(found[4 * row + node, head], right, atol=1e-5)


def longrope(folder: Path) -> Path:
    rope: dict[str, Any] = {"rope_type": "longrope", "rope_theta": 10000.0, "factor": 4.0}
    rope |= {"short_factor": [1.0] * 4, "long_factor": [3.0] * 4, "original_max_position_embeddings": 40}
    torch.manual_seed(0)
    source = LlamaForCausalLM(LlamaConfig(**LLAMA, rope_parameters=rope))
    perturb(source, 0.1)
    source.save_pretrained(folder)
    return folder


def test_frequencies_that_change_with_the_length_end_the_positions(llama: Pair, tmp_path: Path) -> None:
    """Cached keys would be of other frequencies from there on; up to there the model is its own."""
    folder = longrope(tmp_path)
    model = load_model(folder)
    assert model.shape.max_positions == 40
    pair, tokens = Pair(folder, folder, llama.tokenizer), list(range(3, 43))
    with torch.inference_mode():
        layout = Layout(
            [Span(0, 0, 40, torch.arange(40), causal(40))], model.shape.cache(1, 40), model.shape.tile
        )
        found = model.forward(torch.tensor(tokens), layout)
    assert torch.allclose(found, reference_logits(load_reference(folder), tokens), atol=1e-3)
    expected = clear_prompts(pair.reference, [5, 15], 20)
    engine = pair.engine("expand:2,2", max_length=40)
    found_tokens = [tokens_of(e) for e in drain(engine, [(p, Sampling(max_tokens=20)) for p, _ in expected])]
    assert found_tokens == [tokens for _, tokens in expected]


def test_frequencies_that_change_beyond_the_last_position(tmp_path: Path) -> None:
    rope = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}
    torch.manual_seed(0)
    LlamaForCausalLM(LlamaConfig(**LLAMA, rope_parameters=rope)).save_pretrained(tmp_path)
    model, n = load_model(tmp_path), POSITIONS
    tokens = (torch.arange(n) * 7) % VOCABULARY
    with torch.inference_mode():
        layout = Layout(
            [Span(0, 0, n, torch.arange(n), causal(n))], model.shape.cache(1, n), model.shape.tile
        )
        found = model.forward(tokens, layout)
    right: Tensor = reference_logits(load_reference(tmp_path), tokens.tolist())
    assert torch.allclose(found, right, atol=1e-3)
