"""The same engine elsewhere: on a GPU where there is one, and with the Triton kernel for its attention."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import kernel_arm
import pytest
import torch
from test_models import TOKENS, in_parts
from tiny_models import Pair, clear_prompts, drain, tokens_of

from specops.engine import Sampling, load_engine
from specops.engine.load import find_backend
from specops.engine.models import load_model
from specops.engine.models.graphs import Graphed
from specops.engine.models.offload import Offload
from specops.errors import EnvironmentFailure, ModelError, UsageError

COUNT = 12
ON_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.mark.slow
@pytest.mark.skipif(find_spec("triton") is None and not os.environ.get("CI"), reason="needs triton")
def test_the_kernel_writes_what_pytorch_s_attention_writes(llama: Pair) -> None:
    """In the interpreter, which is slow: two short sequences, that end together, and a prompt in parts."""
    expected = clear_prompts(llama.reference, [3, 13], kernel_arm.COUNT)
    prompts = json.dumps([prompt for prompt, _ in expected])
    found = subprocess.run(
        [sys.executable, kernel_arm.__file__, str(llama.target), str(llama.draft), prompts],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        stdout=subprocess.PIPE,
        check=True,
    )
    written = json.loads(found.stdout)
    assert set(written) == {f"{tree} {arm}" for tree in kernel_arm.TREES for arm in ("reference", "kernel")}
    for name, outputs in written.items():
        assert outputs == [tokens for _, tokens in expected], name


@ON_GPU
@pytest.mark.parametrize("attention", ["reference", "kernel"])
@pytest.mark.parametrize("tree", ["none", "chain:3", "expand:3,2,1", "dynamic:8:3+ngram:4"])
@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_token_identical_on_a_gpu(
    family: str, tree: str, attention: str, pair_of: Callable[[str], Pair]
) -> None:
    pair = pair_of(family)
    expected = clear_prompts(pair.reference, [1, 5, 9, 23], COUNT)
    engine = load_engine(
        pair.target, pair.draft, tree=tree, device="cuda", attention=attention, max_batch=3, prefill_chunk=7
    )
    found = drain(engine, [(prompt, Sampling(max_tokens=COUNT)) for prompt, _ in expected])
    assert [tokens_of(emissions) for emissions in found] == [tokens for _, tokens in expected]


@ON_GPU
@pytest.mark.parametrize("graphs", [True, False])
@pytest.mark.parametrize("tree", ["none", "chain:3", "expand:3,2,1", "dynamic:8:3+ngram:4"])
@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_token_identical_with_graphs(
    family: str, tree: str, graphs: bool, pair_of: Callable[[str], Pair], caplog: pytest.LogCaptureFixture
) -> None:
    """Twice, so that most passes of the second time are replayed."""
    pair = pair_of(family)
    expected = clear_prompts(pair.reference, [1, 5, 9, 23], COUNT)
    engine = load_engine(
        pair.target, pair.draft, tree=tree, device="cuda", attention="kernel", graphs=graphs, max_batch=3
    )
    for _ in range(2):
        found = drain(engine, [(prompt, Sampling(max_tokens=COUNT)) for prompt, _ in expected])
        assert [tokens_of(emissions) for emissions in found] == [tokens for _, tokens in expected]
    assert isinstance(engine.target, Graphed) == graphs
    assert not isinstance(engine.target, Graphed) or engine.target.replays > 0
    assert not caplog.records


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=ON_GPU)])
@pytest.mark.parametrize(("dtype", "temperature"), [("bfloat16", 1.0), ("float16", 0.0)])
def test_half_precision(temperature: float, dtype: str, device: str, llama: Pair) -> None:
    """A draft equal to the target is nearly always right: last bits differ with how many tokens are fed."""
    engine = load_engine(llama.target, llama.target, tree="chain:3", device=device, dtype=dtype)
    assert str(engine.target.shape.dtype) == f"torch.{dtype}"
    requests = [
        (TOKENS[s : s + 9], Sampling(max_tokens=12, temperature=temperature, seed=s)) for s in range(4)
    ]
    drain(engine, requests)
    assert engine.counters.accepted_tokens > 0.9 * engine.counters.draft_tokens > 0


@ON_GPU
@pytest.mark.parametrize("source", ["disk", "host"])
def test_offloaded_on_a_gpu(source: str, llama: Pair) -> None:
    offload = Offload(source)  # type: ignore[arg-type]
    device = torch.device("cuda", 0)
    model = load_model(llama.target, device=device, offload=offload)
    for _ in range(3):  # a slot that is written over too early would show in a later pass
        found = in_parts(model, TOKENS, [20, 1, 39]).cpu()
        assert torch.allclose(found, in_parts(llama.target_model, TOKENS, [60]), atol=1e-3)


@ON_GPU
def test_heads_are_for_cpus(llama: Pair, tmp_path: Path) -> None:
    from drafts_cases import save_head

    with pytest.raises(ModelError, match="CPUs only"):
        load_engine(llama.target, save_head(tmp_path / "head", 32), device="cuda")


def test_what_there_is_not() -> None:
    for device in ("tpu", "cuda:x", "cpu0", ""):
        with pytest.raises(UsageError, match="there is no device"):
            find_backend(device, "float32", "reference")
    with pytest.raises(UsageError, match="float8"):
        find_backend("cpu", "float8", "reference")
    with pytest.raises(UsageError, match="'flash'"):
        find_backend("cpu", "float32", "flash")


def test_what_is_not_here(monkeypatch: pytest.MonkeyPatch, llama: Pair) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(EnvironmentFailure, match="PyTorch sees 1 CUDA devices"):
        find_backend("cuda:1", "bfloat16", "reference")
    monkeypatch.setattr("specops.engine.load.find_spec", lambda name: object())
    with pytest.raises(UsageError, match="runs on a GPU"):
        load_engine(llama.target, speculate=False, attention="kernel")
    monkeypatch.setattr("specops.engine.load.find_spec", lambda name: None)
    with pytest.raises(EnvironmentFailure, match="triton is not installed"):
        find_backend("cpu", "float32", "kernel")
