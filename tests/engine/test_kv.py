"""After every step, what either cache holds of a sequence is what a fresh prefill of its tokens gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import pytest
import torch
from tiny_models import VOCABULARY, Pair
from torch import Tensor

from specops.engine.attention import KVCache, Layout, Span, causal
from specops.engine.heads.draft_model import ModelGrower
from specops.engine.models.model import Model
from specops.engine.request import Sampling
from specops.engine.step import Engine

LENGTHS = [3, 30, 1, 12, 21, 8]
ENDS = [14, 5, 9, 12, 3, 10]  # rows are freed in the middle of the batch and filled again


@lru_cache(maxsize=4096)
def prefill(model: Model, tokens: tuple[int, ...]) -> Tensor:
    """[layers, n, 2 * kv_heads, head_dim] after one plain causal pass.

    It is remembered: under other trees, batches and chunks the same tokens are written again.
    """
    n = len(tokens)
    cache = model.shape.cache(rows=1, capacity=n)
    layout = Layout([Span(0, 0, n, torch.arange(n), causal(n))], cache, model.shape.tile)
    model.forward(torch.tensor(tokens), layout)
    return cache.data[:, 0]


class Inspected:
    """An engine whose caches are compared with fresh ones; it counts what it could see."""

    def __init__(self, engine: Engine, target: Model, draft: Model) -> None:
        self.engine, self._target, self._draft = engine, target, draft
        self.rows_moved = 0

    def step(self) -> None:
        rows = {id(s): s.row for s in self.engine._running}
        self.engine.step()
        for sequence in self.engine._running:
            self.rows_moved += rows.get(id(sequence), sequence.row) != sequence.row
            _compare(self.engine._cache, sequence.row, self._target, sequence.tokens[: sequence.cached])
            draft: ModelGrower | None = getattr(self.engine._drafter, "_grower", None)
            if draft is not None:
                read = sequence.tokens[: draft._read[sequence.row]]
                _compare(draft._cache, sequence.row, self._draft, read)


def _compare(cache: KVCache, row: int, model: Model, tokens: list[int]) -> None:
    if tokens:  # a prompt may still wait for its turn
        kept = cache.data[:, row, : len(tokens)]
        torch.testing.assert_close(kept, prefill(model, tuple(tokens)), atol=1e-5, rtol=1e-4)


@pytest.fixture
def gathers(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The accepted slots of every compaction that has to move something."""
    seen: list[list[int]] = []
    compact = KVCache.compact

    def spy(self: KVCache, row: int, start: int, slots: Sequence[int]) -> None:
        if list(slots) != list(range(start, start + len(slots))):
            seen.append(list(slots))
        compact(self, row, start, slots)

    monkeypatch.setattr(KVCache, "compact", spy)
    return seen


@pytest.mark.quick(14)
@pytest.mark.parametrize(("batch", "chunk"), [(3, 1), (1, 7), (3, 256)])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize(
    "tree",
    ["none", "ngram:4", "chain:3", "expand:3,2,1", "shape:0,0,0,1,1,2,4", "dynamic:8:3", "chain:3+ngram:4"],
)
def test_both_caches(
    tree: str, temperature: float, batch: int, chunk: int, llama: Pair, gathers: list[list[int]]
) -> None:
    engine = llama.engine(tree, max_batch=batch, prefill_chunk=chunk)
    inspected = Inspected(engine, llama.target_model, llama.draft_model)
    generator = torch.Generator().manual_seed(0)
    for number, (length, end) in enumerate(zip(LENGTHS, ENDS, strict=True)):
        prompt = torch.randint(VOCABULARY, (length,), generator=generator).tolist()
        engine.submit(prompt, Sampling(temperature=temperature, top_k=20, seed=number, max_tokens=end))
    while not engine.idle:
        inspected.step()
    assert inspected.rows_moved > 0 or batch == 1
    if tree.startswith(("expand", "shape", "dynamic")):
        assert gathers


@pytest.mark.parametrize("family", ["qwen2", "opt", "gpt2"])
def test_other_families(family: str, pair_of: Callable[[str], Pair], gathers: list[list[int]]) -> None:
    pair = pair_of(family)
    engine = pair.engine("expand:3,2,1", max_batch=2, prefill_chunk=16)
    inspected = Inspected(engine, pair.target_model, pair.draft_model)
    for length in (20, 4, 9):
        engine.submit(list(range(40, 40 + length)), Sampling(max_tokens=12))
    while not engine.idle:
        inspected.step()
    assert gathers


@pytest.mark.parametrize("tree", ["chain:3", "expand:3,2,1", "dynamic:8:3"])
def test_a_cancelled_sequence_leaves_the_others_intact(tree: str, llama: Pair) -> None:
    engine = llama.engine(tree, max_batch=3)
    inspected = Inspected(engine, llama.target_model, llama.draft_model)
    ids = [engine.submit([5 + n, 6, 7], Sampling(max_tokens=30)) for n in range(5)]
    for doomed in (ids[0], ids[2], ids[4]):  # the first row, one that has moved, one that waits
        inspected.step()
        engine.cancel(doomed)
    while not engine.idle:
        inspected.step()


def test_the_draft_keeps_up(llama: Pair) -> None:
    """It is never more than the root and one unread leaf behind, and never ahead of what is committed."""
    engine = llama.engine("expand:2,1,1", max_batch=2, prefill_chunk=1)
    engine.submit([1, 2, 3, 4], Sampling(max_tokens=20))
    engine.submit([9], Sampling(max_tokens=25))
    draft = engine._drafter._grower  # type: ignore[attr-defined]
    while not engine.idle:
        engine.step()
        for sequence in engine._running:
            if len(sequence.tokens) > sequence.prompt_length:
                assert 1 <= len(sequence.tokens) - draft._read[sequence.row] <= 2
