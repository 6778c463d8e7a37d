"""Passes run by graphs are the model's own: on a CPU by graphs' stand-in (recorder.py), in process with the
kernel's reference for attention, and in a process of its own with the kernel in Triton's interpreter."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

import graphs_arm
import pytest
import torch
from architectures import tiny
from graphs_arm import grow
from recorder import Recorder, recorded
from test_models import TOKENS
from tiny_models import POSITIONS, VOCABULARY, Pair, clear_prompts, drain, load_reference, tokens_of
from torch import Tensor

from specops.engine import Sampling, load_engine
from specops.engine.attention import CPU, KVCache, Layout, Mask, Span, causal
from specops.engine.drafters import Autoregressive
from specops.engine.load import Backend, find_backend, load_target
from specops.engine.models import generic, graphs, load_model
from specops.engine.models.generic import GenericModel
from specops.engine.models.graphs import Graphed, GraphKey
from specops.engine.step import Engine
from specops.engine.tree import Topology

pytestmark = pytest.mark.skipif(
    find_spec("triton") is None and not os.environ.get("CI"), reason="needs triton"
)

COUNT = 12
TREES = ["none", "chain:3", "expand:3,2,1", "dynamic:8:3", "dynamic:8:3+ngram:4"]


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    """In place of CUDA's graphs, so that `load_engine` makes here what it makes on a GPU."""
    from specops_kernels import tree_attention, tree_attention_naive

    made = Recorder()
    backend = Backend(CPU, torch.float32, kernel=True, graphs=True)
    monkeypatch.setattr(tree_attention, "tree_attention", recorded(tree_attention_naive.tree_attention))
    monkeypatch.setattr("specops.engine.load.CudaCapture", lambda device: made)
    monkeypatch.setattr("specops.engine.load.find_backend", lambda *_, **__: backend)
    return made


def outputs(engine: Engine, expected: list[tuple[list[int], list[int]]]) -> list[list[int]]:
    found = drain(engine, [(prompt, Sampling(max_tokens=len(output))) for prompt, output in expected])
    return [tokens_of(emissions) for emissions in found]


@pytest.mark.quick(2)
@pytest.mark.parametrize(("family", "tree"), [*(("llama", tree) for tree in TREES), ("gpt2", "expand:3,2,1")])
def test_token_identical(
    family: str,
    tree: str,
    recorder: Recorder,
    pair_of: Callable[[str], Pair],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Sequences that come and go, of prompts in parts; the longest ends where its row does. Drafts may be
    wrong and the output right, but then fewer of them are accepted."""
    pair = pair_of(family)
    expected = clear_prompts(pair.reference, [1, 5, 20, 2], COUNT)
    options: dict[str, Any] = {"max_batch": 3, "max_length": 20 + COUNT, "prefill_chunk": 7}
    engine = load_engine(pair.target, pair.draft, tree=tree, **options)
    target = engine.target
    assert isinstance(target, Graphed)
    plain = pair.engine(tree, **options)
    for _ in range(2):
        for one in (engine, plain):
            assert outputs(one, expected) == [tokens for _, tokens in expected]
    assert engine.counters.accepted_tokens == plain.counters.accepted_tokens
    assert target.replays > 5
    drafts = recorder.replayed - target.replays
    assert drafts > 5 if tree != "none" else drafts == 0
    assert not caplog.records


def test_another_engine_over_the_same_model(recorder: Recorder, llama: Pair) -> None:
    """Whose cache lies elsewhere."""
    expected = clear_prompts(llama.reference, [4, 7], COUNT)
    loaded = load_target(llama.target, Backend(CPU, torch.float32, kernel=True, graphs=True))
    engine, other = (loaded.engine(Autoregressive(), max_batch=2, max_length=size) for size in (30, 40))
    for one in (engine, other, engine):
        before = recorder.replayed
        assert outputs(one, expected) == [tokens for _, tokens in expected]
        assert recorder.replayed > before


def test_no_more_graphs_than_may_be(recorder: Recorder, llama: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "MOST_GRAPHS", 2)
    expected = clear_prompts(llama.reference, [1, 5, 9], COUNT)
    engine = load_engine(llama.target, llama.draft, tree="chain:3", max_batch=2)
    target = engine.target
    assert isinstance(target, Graphed)
    for _ in range(2):
        assert outputs(engine, expected) == [tokens for _, tokens in expected]
    assert recorder.captured > 4
    assert len(target._graphs) == 2
    assert target.replays > 0


def fed(model: Any, tokens: list[int], counts: list[int], cache: Any = None) -> list[tuple[Tensor, Tensor]]:
    """Logits and features of one sequence that is fed part by part."""
    cache = cache or model.shape.cache(1, len(tokens))
    found, start = [], 0
    for count in counts:
        span = Span(0, start, count, torch.arange(start, start + count), causal(count))
        layout = Layout([span], cache, model.shape.tile)
        found.append(model.with_features(torch.tensor(tokens[start : start + count]), layout))
        start += count
    return found


def test_what_is_handed_out_lasts(recorder: Recorder, llama: Pair) -> None:
    """Logits and features, looked at when all passes are over."""
    model = load_model(llama.target, kernel=True)
    graphed = Graphed(model, recorder)
    counts = [3, 5, 5, 5, 5, 5, 5, 6, 6]  # 5 and 6 are of one form
    for found, own in zip(fed(graphed, TOKENS, counts), fed(model, TOKENS, counts), strict=True):
        for one, other in zip(found, own, strict=True):
            assert torch.allclose(one, other, atol=1e-4)
    assert graphed.replays == len(counts) - 3
    assert recorder.captured == 1


def test_wanted_rows_alone(recorder: Recorder, llama: Pair) -> None:
    model = load_model(llama.target, kernel=True)
    graphed = Graphed(model, recorder)
    cache = model.shape.cache(1, 40)
    wanted = torch.tensor([0, 2])
    for start in range(0, 40, 4):
        span = Span(0, start, 4, torch.arange(start, start + 4), causal(4))
        layout, tokens = Layout([span], cache, model.shape.tile), torch.tensor(TOKENS[start : start + 4])
        found = graphed.forward(tokens, layout, wanted)
        assert torch.allclose(found, model.forward(tokens, layout)[wanted], atol=1e-4)
    assert graphed.replays == 8


@pytest.mark.parametrize("reads", ["the device", "the host"])
def test_a_model_that_cannot_be_captured(
    reads: str, recorder: Recorder, llama: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    """One that waits for the device is refused; one that takes from the host what differs from pass to pass
    is captured, and found out."""
    engine = load_engine(llama.target, tree="none")
    target = engine.target
    assert isinstance(target, Graphed)

    def meddle(module: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        if reads == "the device":
            assert kwargs["position_ids"].max().item() < POSITIONS
            return args, kwargs
        positions = torch.cat([span.positions for span in generic._pass.get()[0].spans])
        return args, {**kwargs, "position_ids": positions[None]}

    model = target._model
    assert isinstance(model, GenericModel)
    model._source.register_forward_pre_hook(meddle, with_kwargs=True)
    expected = clear_prompts(llama.reference, [4, 9], COUNT)
    for one in expected:
        assert outputs(engine, [one]) == [one[1]]
    assert target.replays == 0
    assert len(caplog.records) == 1
    assert recorder.captured == (reads == "the host")
    said = "waits for the device" if reads == "the device" else "logits differ"
    assert said in caplog.text


@pytest.mark.parametrize("family", ["mistral", "gpt_oss"])
def test_limited_attention_runs_without_graphs(
    family: str, recorder: Recorder, llama: Pair, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its masks are made anew for each pass, and sinks are not the kernel's. The kernel takes the windows."""
    tiny(family, limited=True, vocab_size=VOCABULARY).save_pretrained(tmp_path)
    llama.tokenizer.save_pretrained(tmp_path)
    engine = load_engine(tmp_path, tree="none", max_batch=2)
    target = engine.target
    assert isinstance(target, Graphed)
    expected = clear_prompts(load_reference(tmp_path), [4, 13], COUNT)
    assert outputs(engine, expected) == [tokens for _, tokens in expected]
    assert target.replays == 0
    assert "its masks depend on the positions of a pass" in caplog.text


PARTS: dict[str, Callable[[Any], Tensor]] = {
    "tokens": lambda inputs: inputs.tokens,
    "positions": lambda inputs: inputs.addresses.positions,
    "slots": lambda inputs: inputs.addresses.slots,
    "table": lambda inputs: inputs.addresses.ragged.table,
    "offsets": lambda inputs: inputs.addresses.ragged.offsets,
    "starts": lambda inputs: inputs.addresses.ragged.starts,
    "stops": lambda inputs: inputs.addresses.ragged.stops,
    "ancestors": lambda inputs: inputs.addresses.ragged.ancestors,
}


@pytest.mark.quick(3)
@pytest.mark.parametrize("stale", [None, *PARTS])
def test_every_part_is_read_anew(
    stale: str | None, recorder: Recorder, llama: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every pass gives the model's logits, and the cache holds what it would, padding or not; and neither is
    so where a part of what a graph reads stays as it was captured, if nobody compares."""
    write = graphs._Inputs.write

    def write_but(inputs: Any, tokens: Tensor, layout: Layout) -> None:
        write(inputs, tokens, layout)
        if stale is not None:
            part = PARTS[stale](inputs)
            inputs.kept = getattr(inputs, "kept", part.clone())
            part.copy_(inputs.kept)

    monkeypatch.setattr(graphs._Inputs, "write", write_but)
    monkeypatch.setattr(Graphed, "_proved", lambda *_: True)
    model = load_model(llama.target, kernel=True)
    graphed = Graphed(model, recorder)
    try:
        found, cache = grow(graphed, passes=40)
    except IndexError:  # of the kernel's reference, where a sequence stops before it starts
        assert stale == "stops"
        return
    own, own_cache = grow(model, passes=40)
    assert graphed.replays > 15
    alike = [torch.allclose(one, other, atol=1e-4) for one, other in zip(found, own, strict=True)]
    assert all(alike) == (stale is None)
    if stale is None:
        assert torch.allclose(cache, own_cache, atol=1e-4)


def test_masks_of_several_words(recorder: Recorder, llama: Pair) -> None:
    """Beside one of a single word, as where a tree is grown for a while and another has just begun."""
    model = load_model(llama.target, kernel=True)
    graphed = Graphed(model, recorder)
    generator = torch.Generator().manual_seed(0)
    tokens = torch.tensor(TOKENS + TOKENS)
    sees = [torch.rand(2, 70, generator=generator) < 0.5 for _ in range(4)]
    found = []
    for one in (graphed, model):
        cache = model.shape.cache(2, 100)
        spans = [Span(row, 0, 70, torch.arange(70), causal(70)) for row in range(2)]
        one.forward(torch.cat((tokens[:70], tokens[30:100])), Layout(spans, cache, model.shape.tile))
        for number, some in enumerate(sees):
            start = 70 + 2 * number
            at = torch.arange(start, start + 2)
            long = torch.cat((some[:, 2:], torch.eye(2, dtype=torch.bool)), 1)
            spans = [Span(0, start, 2, at, Mask(long)), Span(1, start, 2, at, causal(2))]
            found.append(one.forward(tokens[start : start + 4], Layout(spans, cache, model.shape.tile)))
    assert graphed.replays == 2
    for logits, own in zip(found[:4], found[4:], strict=True):
        assert torch.allclose(logits, own, atol=1e-4)


def test_few_forms_for_all_passes() -> None:
    cache = KVCache(1, 16, 2048, 1, 2, torch.float32, kernel=True)
    forms = set()
    for sequences, nodes, start in product(range(1, 17), range(1, 17), (0, 100, 1500)):
        mask = Topology.expansion((nodes - 1,)).mask if nodes > 1 else causal(1)
        spans = [Span(row, start, nodes, torch.full((nodes,), start), mask) for row in range(sequences)]
        form = GraphKey.for_layout(Layout(spans, cache, 2))
        assert form is not None
        assert sequences * nodes <= form.tokens <= max(1.5 * sequences * nodes, sequences * nodes + 1)
        assert sequences <= form.sequences < 2 * sequences
        assert form.most >= nodes + form.tokens - sequences * nodes  # the last one has the padding
        assert start + nodes <= form.longest <= 2048
        forms.add(form)
    assert len(forms) < 150  # for 768 passes


@pytest.mark.parametrize("counts", [[65], [64] * 4 + [1], [1, 70]])
def test_a_pass_of_many_tokens_has_none(counts: list[int]) -> None:
    cache = KVCache(1, 5, 100, 1, 2, torch.float32, kernel=True)
    masks = [Mask(torch.ones(count, count, dtype=torch.bool)) for count in counts]
    spans = [
        Span(row, 0, count, torch.arange(count), mask)
        for row, (count, mask) in enumerate(zip(counts, masks, strict=True))
    ]
    assert GraphKey.for_layout(Layout(spans, cache, 2)) is None


@pytest.mark.slow
def test_with_the_kernel(llama: Pair) -> None:
    """In the interpreter, which is slow."""
    found = subprocess.run(
        [sys.executable, graphs_arm.__file__, str(llama.target)],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        stdout=subprocess.PIPE,
        check=True,
    )
    told = json.loads(found.stdout)
    assert told["replays"] == 3
    assert told["apart"] < 1e-4


def test_where_there_are_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert find_backend("cuda", "bfloat16", "kernel").graphs
    assert not find_backend("cuda", "bfloat16", "kernel", graphs=False).graphs
    assert not find_backend("cuda", "bfloat16", "reference").graphs
    assert not find_backend("cpu", "bfloat16", "kernel").graphs
