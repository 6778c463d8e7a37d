"""Passes of draft heads that are one compiled call, against their plain definitions and against many
calls."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from drafts_cases import save_head, save_recurrent
from hypothesis import given
from hypothesis import strategies as st
from tiny_models import Pair
from torch import Tensor

from specops.engine import Sampling, load_engine
from specops.engine.attention import Mask, Span
from specops.engine.cpu import ops, reference
from specops.engine.cpu.ops import EagleInput, EaglePasses
from specops.engine.drafters.expansion import Expansion
from specops.engine.heads.eagle import EagleHead
from specops.engine.heads.recurrent import Recurrent
from specops.engine.request import Counters
from specops.engine.sequence import Sequence
from specops.engine.tree import TokenTree

EPS = 1e-6


def random(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def near(found: Tensor, exact: Tensor, terms: Tensor | None = None) -> None:
    """But for what comes of activations in 16 bits. `terms`: the sums of the products' absolute values, where
    the products of a sum may cancel each other."""
    size = float((exact if terms is None else terms).abs().max())
    assert torch.allclose(found.double(), exact, rtol=0, atol=1e-3 * size + 1e-30)


def quantised(
    *shapes: tuple[int, int], seed: int, first: int | None = None
) -> tuple[ops.Quantised, list[Tensor]]:
    """Matrices of very different sizes, and what is left of them in a byte a weight. The `first` rows of the
    first are a matrix of their own, where that is said."""
    weights = [random(*shape, seed=seed + i) * 2.0 ** (3 * i - 8) for i, shape in enumerate(shapes)]
    weights[0][0] = 0
    if first is not None:
        weights[:1] = weights[0][:first], weights[0][first:]
    of = ops.Quantised(*weights)
    kept = of.plain()
    assert [found.shape for found in kept] == [weight.shape for weight in weights]
    for packed, (out, count) in zip(of._packed, of.shapes, strict=True):  # padding counts for nothing
        rows = packed.transpose(1, 2).flatten(2).flatten(0, 1)
        assert not rows[out:].any()
        assert not rows[:, count:].any()
    for weight, found in zip(weights, kept, strict=True):
        most = weight.abs().amax(1, keepdim=True)
        assert ((weight - found).abs() <= most / 254 * 1.001).all()
    return of, kept


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 50), st.integers(0, 99))
def test_recurrent(width: int, inter: int, vocab: int, seed: int) -> None:
    of, kept = quantised((width + 2 * inter, width), (width, inter), (vocab, width), seed=seed)
    state, token = random(1, width, seed=seed + 5), random(1, width + 2 * inter, seed=seed + 6)
    after, logits = ops.recurrent(state, token, of)
    exact_after, exact_logits = reference.recurrent(state, token, of)
    near(after, exact_after)
    near(logits, exact_logits, exact_after.abs() @ kept[-1].double().abs().t())


@pytest.mark.parametrize("width", [1, 255, 3000])
def test_sums_of_products_have_room(width: int) -> None:
    of = ops.Quantised(torch.ones(width + 2, width), torch.zeros(width, 1), torch.ones(1, width))
    after, logits = ops.recurrent(torch.full((1, width), -3.0), torch.zeros(1, width + 2), of)
    near(after, torch.full((1, width), -3.0 * width).double())
    near(logits, torch.full((1, 1), -3.0 * width * width).double())


@pytest.mark.quick(1)
@pytest.mark.parametrize(("heads", "kv_heads", "dim"), [(4, 2, 8), (3, 1, 6), (2, 2, 2)])
@given(data=st.data(), seed=st.integers(0, 99))
def test_eagle(heads: int, kv_heads: int, dim: int, data: st.DataObject, seed: int) -> None:
    """Of n tokens the last, which sees some of the slots before it; no other slot is touched."""
    width, inter, vocab = (data.draw(st.integers(1, 30)) for _ in range(3))
    n, start = data.draw(st.integers(1, 5)), data.draw(st.integers(0, 9))
    capacity = start + n + data.draw(st.integers(0, 3))
    queries, keys = heads * dim, kv_heads * dim
    shapes = (width + queries + 2 * keys, width), (width, queries), (2 * inter, width), (width, inter)
    of, kept = quantised(*shapes, (vocab, width), seed=seed, first=width + queries)
    entered = random(n, width + queries + 2 * keys, seed=seed + 7)
    features = random(n, width, seed=seed + 8)
    norm, cache = random(width, seed=seed + 9), random(capacity, 2 * kv_heads, dim, seed=seed + 10)
    rope = torch.polar(torch.ones(31, 1, dim // 2), random(31, 1, dim // 2, seed=seed + 11))
    positions = torch.tensor(data.draw(st.lists(st.integers(0, 30), min_size=n, max_size=n)))
    last = data.draw(st.integers(n, start + n))
    sees = torch.tensor(data.draw(st.lists(st.booleans(), min_size=last, max_size=last)))
    sees = sees.repeat(n, 1)
    sees[-1, -1] = True  # itself

    passes = EaglePasses(of, norm, EPS, rope, kv_heads, dim, None)
    expected = cache.double()
    exact, exact_logits = reference.guess(
        passes, EagleInput(entered, features, positions, expected, start, sees)
    )
    found, logits = passes.guess(EagleInput(entered, features, positions, cache, start, sees))
    near(cache, expected)
    near(found, exact)
    near(logits, exact_logits, exact.abs() @ kept[-1].double().abs().t())


@pytest.mark.parametrize("places", [[1], [3], [1, 2, 3]])
def test_a_head_drafts_alike_in_one_call_and_in_many(
    places: list[int], llama: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = llama.target_model
    head = EagleHead(save_head(tmp_path / "head", target.width), target)
    tokens, n = [5 + place for place in places], len(places)
    sees = torch.zeros(n, 3, dtype=torch.bool)
    for i, place in enumerate(places):
        sees[i, : place if n > 1 else 1] = True
        sees[i, 2 if n == 1 else i] = True
    span = Span(1, 6, n, torch.arange(6, 6 + n), Mask(sees))
    features = random(n, target.width, seed=3)

    def drafted() -> tuple[Tensor, Tensor, Tensor]:
        cache = head.shape.cache(2, 12)
        cache.data[:] = random(*cache.data.shape, seed=4)
        return *head.draft(tokens, features, [span], cache, [n - 1]), cache.data

    one = drafted()
    assert head._in_one_call is not None
    monkeypatch.setattr(head, "_in_one_call", None)
    for found, other in zip(one, drafted(), strict=True):
        assert torch.allclose(found, other, rtol=0, atol=0.05 * float(other.abs().max()))


@pytest.mark.slow
@given(
    st.lists(st.floats(0.001, 0.999), min_size=1, max_size=5),  # at 0, tokens of 1e-35 or of 0 decide
    st.sampled_from([0.0, 0.5, 1.0]),
    st.sampled_from([0.0, 0.6, 1.0]),
    st.integers(1, 3),
    st.integers(0, 99),
)
def test_a_chain_is_pass_after_pass(
    dice: list[float], temperature: float, worth: float, n: int, seed: int
) -> None:
    """Beside its own guesses; each token drawn from what its pass says, by a random number of its own."""
    heads, kv_heads, dim, width, inter, vocab, start = 4, 2, 4, 12, 9, 20, 3
    queries, keys = heads * dim, kv_heads * dim
    shapes = (width + queries + 2 * keys, width), (width, queries), (2 * inter, width), (width, inter)
    of, _ = quantised(*shapes, (vocab, width), seed=seed, first=width + queries)
    rope = torch.polar(torch.ones(7, 1, dim // 2), random(7, 1, dim // 2, seed=seed + 1))
    table = random(vocab, width + queries + 2 * keys, seed=seed + 2)
    passes = EaglePasses(of, random(width, seed=seed + 3), EPS, rope, kv_heads, dim, table)
    features, past = random(n, width, seed=seed + 4), random(16, 2 * kv_heads, dim, seed=seed + 5)
    positions = torch.arange(start, start + n).clamp_(max=len(rope) - 1)

    def read(cache: Tensor) -> EagleInput:
        sees = torch.ones(n, start + n, dtype=torch.bool)
        return EagleInput(table[:n].clone(), features, positions, cache, start, sees)

    one, many = past.clone(), past.clone()
    found, q = passes.chain(read(one), dice, temperature=temperature, worth=worth)
    expected, exact = reference.chain(
        passes, read(many), dice, temperature=temperature, worth=worth, guess=passes.guess
    )
    assert found == expected
    assert torch.equal(one, many)
    if temperature > 0:
        assert torch.allclose(q, exact, rtol=1e-5, atol=1e-7)
        assert q.sum(1).tolist() == pytest.approx([1.0] * len(q))


@pytest.mark.parametrize(("tree", "temperature"), [("chain:4", 0.0), ("adaptive:5", 0.0), ("chain:4", 1.0)])
def test_a_chain_in_one_go_is_what_it_is_level_by_level(
    temperature: float, tree: str, llama: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = save_head(tmp_path / "head", llama.target_model.width)
    made: list[bool] = []
    in_one_go = Expansion._in_one_go

    def noted(self: Expansion, sequence: Sequence) -> TokenTree | None:
        tree = in_one_go(self, sequence)
        made.append(tree is not None)
        return tree

    def written(sampling: Sampling) -> tuple[list[int], Counters]:
        made.clear()
        engine = load_engine(llama.target, head, tree=tree, max_batch=1)
        tokens = engine.generate([3, 1, 4], sampling).tokens
        return tokens, replace(engine.counters, draft_seconds=0, verify_seconds=0, commit_seconds=0)

    monkeypatch.setattr(Expansion, "_in_one_go", noted)
    sampling = Sampling(temperature=temperature, seed=5, max_tokens=24, ignore_eos=True)
    one = written(sampling)
    assert made.count(True) > 4
    if temperature > 0:
        written(replace(sampling, top_p=0.9))
        assert not any(made)
    monkeypatch.setattr(Expansion, "_in_one_go", lambda *_: None)
    assert written(sampling) == one


def test_a_chain_that_cannot_be_one_call_has_asked_for_nothing(
    llama: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not for random numbers either, which would change what a seed gives."""
    head = save_head(tmp_path / "head", llama.target_model.width)

    def written() -> list[int]:
        engine = load_engine(llama.target, head, tree="chain:4", max_batch=1)
        return engine.generate([3, 1, 4], Sampling(temperature=1.0, seed=5, max_tokens=24)).tokens

    monkeypatch.setattr(EagleHead, "chains", lambda *_: False)
    refused = written()
    monkeypatch.setattr(Expansion, "_in_one_go", lambda *_: None)
    assert written() == refused


def test_a_recurrent_head_drafts_alike(llama: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = llama.target_model
    head = Recurrent(save_recurrent(tmp_path / "recurrent", target.width), target)
    state = random(1, target.width, seed=3)
    one = head.draft(state, [7])
    assert head._in_one_call is not None
    monkeypatch.setattr(head, "_in_one_call", None)
    for found, other in zip(one, head.draft(state, [7]), strict=True):
        assert torch.allclose(found, other, rtol=0, atol=0.05 * float(other.abs().max()))


def test_what_is_large_is_not_in_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ops.Quantised.of_small(torch.ones(2, 3), torch.ones(1, 2)) is not None
    monkeypatch.setattr(ops, "SMALL", 7)
    assert ops.Quantised.of_small(torch.ones(2, 3), torch.ones(1, 2)) is None
