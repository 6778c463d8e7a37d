"""Passes of draft heads that are one compiled call, against float64 and against many calls."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from drafts_cases import save_head, save_recurrent
from hypothesis import given
from hypothesis import strategies as st
from tiny_models import Pair
from torch import Tensor

from specops.engine import compiled
from specops.engine.attention import Mask, Span
from specops.engine.head import Head
from specops.engine.recurrent import Recurrent

EPS = 1e-6


def random(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def near(found: Tensor, exact: Tensor) -> None:
    """But for what comes of activations in 16 bits."""
    assert torch.allclose(found.double(), exact, rtol=0, atol=1e-3 * float(exact.abs().max()) + 1e-30)


def quantised(
    *shapes: tuple[int, int], seed: int, first: int | None = None
) -> tuple[compiled.Quantised, list[Tensor]]:
    """Matrices of very different sizes, and what is left of them in a byte a weight. The `first` rows of the
    first are a matrix of their own, where that is said."""
    weights = [random(*shape, seed=seed + i) * 2.0 ** (3 * i - 8) for i, shape in enumerate(shapes)]
    weights[0][0] = 0
    if first is not None:
        weights[:1] = weights[0][:first], weights[0][first:]
    of = compiled.Quantised(*weights)
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
    after, logits = compiled.recurrent(state, token, of)
    x, gate, up = (state.double() @ r.t() + token.double()).split((width, inter, inter), 1)
    exact = x + (F.silu(gate) * up) @ d.t()
    near(after, exact)
    near(logits, exact @ output.t())


@pytest.mark.parametrize("width", [1, 255, 3000])
def test_sums_of_products_have_room(width: int) -> None:
    of = compiled.Quantised(torch.ones(width + 2, width), torch.zeros(width, 1), torch.ones(1, width))
    after, logits = compiled.recurrent(torch.full((1, width), -3.0), torch.zeros(1, width + 2), of)
    near(after, torch.full((1, width), -3.0 * width).double())
    near(logits, torch.full((1, 1), -3.0 * width * width).double())


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

    found, logits = compiled.eagle(entered, features, of, norm, EPS, rope, positions, cache, start, sees)
    near(cache, expected)
    near(found[0], guess)
    near(logits[0], output @ guess)


@pytest.mark.parametrize("places", [[1], [3], [1, 2, 3]])
def test_a_head_drafts_alike_in_one_call_and_in_many(
    places: list[int], llama: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = llama.target_model
    head = Head(save_head(tmp_path / "head", target.width), target)
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
    assert compiled.Quantised.of_small(torch.ones(2, 3), torch.ones(1, 2)) is not None
    monkeypatch.setattr(compiled, "SMALL", 7)
    assert compiled.Quantised.of_small(torch.ones(2, 3), torch.ones(1, 2)) is None
