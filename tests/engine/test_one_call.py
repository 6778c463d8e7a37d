"""Passes of draft heads that are one compiled call, against float64 and against many calls."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from drafts_cases import save_head, save_recurrent
from hypothesis import given
from hypothesis import strategies as st
from tiny_models import Pair
from torch import Tensor

from specops.engine import Sampling, compiled, load_engine, one_call
from specops.engine.attention import Mask, Span
from specops.engine.drafters.expansion import Expansion
from specops.engine.heads.eagle import EagleHead
from specops.engine.heads.recurrent import Recurrent
from specops.engine.one_call import EaglePasses, Fed
from specops.engine.request import Counters
from specops.engine.sequence import Sequence
from specops.engine.tree import TokenTree

EPS = 1e-6


def random(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def near(found: Tensor, exact: Tensor) -> None:
    """But for what comes of activations in 16 bits."""
    assert torch.allclose(found.double(), exact, rtol=0, atol=1e-3 * float(exact.abs().max()) + 1e-30)


def quantised(
    *shapes: tuple[int, int], seed: int, first: int | None = None
) -> tuple[one_call.Quantised, list[Tensor]]:
    """Matrices of very different sizes, and what is left of them in a byte a weight. The `first` rows of the
    first are a matrix of their own, where that is said."""
    weights = [random(*shape, seed=seed + i) * 2.0 ** (3 * i - 8) for i, shape in enumerate(shapes)]
    weights[0][0] = 0
    if first is not None:
        weights[:1] = weights[0][:first], weights[0][first:]
    of = one_call.Quantised(*weights)
    kept = []
    for (out, count), (pairs, scale) in zip((w.shape for w in weights), of._kept, strict=True):
        rows = pairs.transpose(1, 2).flatten(2).flatten(0, 1)  # of [blocks, pairs, ROWS, 2]
        assert not rows[out:].any()
        assert not rows[:, count:].any()
        kept.append(rows[:out, :count].double() * scale.double()[:, None])
    for weight, found in zip(weights, kept, strict=True):
        most = weight.abs().amax(1, keepdim=True)
        assert ((weight - found).abs() <= most / 254 * 1.001).all()
    return of, kept


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 50), st.integers(0, 99))
def test_recurrent(width: int, inter: int, vocab: int, seed: int) -> None:
    of, (r, d, output) = quantised((width + 2 * inter, width), (width, inter), (vocab, width), seed=seed)
    state, token = random(1, width, seed=seed + 5), random(1, width + 2 * inter, seed=seed + 6)
    after, logits = one_call.recurrent(state, token, of)
    x, gate, up = (state.double() @ r.t() + token.double()).split((width, inter, inter), 1)
    exact = x + (F.silu(gate) * up) @ d.t()
    near(after, exact)
    near(logits, exact @ output.t())


@pytest.mark.parametrize("width", [1, 255, 3000])
def test_sums_of_products_have_room(width: int) -> None:
    of = one_call.Quantised(torch.ones(width + 2, width), torch.zeros(width, 1), torch.ones(1, width))
    after, logits = one_call.recurrent(torch.full((1, width), -3.0), torch.zeros(1, width + 2), of)
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
    enter, (out, gate_up, down, output) = torch.cat(kept[:2]), kept[2:]
    entered, features = random(n, len(enter), seed=seed + 7), random(n, width, seed=seed + 8)
    norm, cache = random(width, seed=seed + 9), random(capacity, 2 * kv_heads, dim, seed=seed + 10)
    rope = torch.polar(torch.ones(31, 1, dim // 2), random(31, 1, dim // 2, seed=seed + 11))
    positions = torch.tensor(data.draw(st.lists(st.integers(0, 30), min_size=n, max_size=n)))
    last = data.draw(st.integers(n, start + n))
    sees = torch.tensor(data.draw(st.lists(st.booleans(), min_size=last, max_size=last)))
    sees = sees.repeat(n, 1)
    sees[-1, -1] = True  # itself

    y = entered.double() + features.double() @ enter.t()
    x, q, k, v = y.split((width, queries, keys, keys), 1)

    def turned(of: Tensor) -> Tensor:
        pairs = torch.view_as_complex(of.clone().view(n, -1, dim // 2, 2))
        return torch.view_as_real(pairs * rope[positions].to(torch.complex128)).flatten(-2)

    expected = cache.double()
    expected[start : start + n] = torch.cat((turned(k), v.reshape(n, kv_heads, dim)), 1)
    seen_slots = torch.cat((torch.ones(start + n - last, dtype=torch.bool), sees[-1]))
    past = expected[: start + n][seen_slots].repeat_interleave(heads // kv_heads, 1)
    scores = torch.einsum("hd,shd->hs", turned(q)[-1], past[:, :heads]) * dim**-0.5
    seen = torch.einsum("hs,shd->hd", scores.softmax(-1), past[:, heads:]).flatten()
    guess = x[-1] + out @ seen
    gate, up = (gate_up @ (guess * (guess.square().mean() + EPS).rsqrt() * norm.double())).chunk(2)
    guess = guess + down @ (F.silu(gate) * up)

    passes = EaglePasses(of, norm, EPS, rope, kv_heads, dim, None)
    found, logits = passes.guess(Fed(entered, features, positions, cache, start, sees))
    near(cache, expected)
    near(found[0], guess)
    near(logits[0], output @ guess)


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
    st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=5),
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
    fed, line = list(range(n)), torch.arange(16).clamp_(max=len(rope) - 1)

    def read(cache: Tensor, tokens: list[int], features: Tensor, start: int) -> Fed:
        stop = start + len(tokens)
        sees = torch.ones(len(tokens), stop, dtype=torch.bool)
        return Fed(table[tokens], features, line[start:stop], cache, start, sees)

    one, many, expected, odds = past.clone(), past.clone(), [], 1.0
    tokens, q = passes.chain(read(one, fed, features, start), dice, temperature=temperature, worth=worth)
    for at, chance in enumerate(dice):
        guess, logits = passes.guess(read(many, fed, features, start))
        if temperature == 0:
            expected.append(int(logits.argmax()))
            odds *= float(logits.softmax(-1).amax()) ** 0.5
        else:
            assert torch.allclose(q[at], (logits[0] / temperature).softmax(-1), rtol=1e-5, atol=1e-7)
            assert float(q[at].sum()) == pytest.approx(1)
            expected.append(compiled.sample(q[at], chance))
            odds *= (1 + float(q[at].dot(q[at]))) / 2
        assert tokens[at] == expected[at]
        if odds < worth:
            break
        start, fed, features = start + len(fed), tokens[at : at + 1], guess
    assert tokens == expected
    assert torch.equal(one, many)


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
    assert one_call.Quantised.of_small(torch.ones(2, 3), torch.ones(1, 2)) is not None
    monkeypatch.setattr(one_call, "SMALL", 7)
    assert one_call.Quantised.of_small(torch.ones(2, 3), torch.ones(1, 2)) is None
