"""Checkpoints of the Llama family read from their files alone: the same model, or left to transformers."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_models import LEAN, Pair, load_reference, reference_logits
from torch import Tensor

from specops.assets import asset
from specops.engine.attention import Layout, Span, causal
from specops.engine.models import load_model
from specops.engine.models.generic import GenericModel
from specops.engine.models.llama import LeanLlama, explicit_config, read_family
from specops.engine.models.model import FeatureModel

TOKENS = list(range(3, 20))
Change = Callable[[Path], None]


def logits_of(model: FeatureModel) -> Tensor:
    n = len(TOKENS)
    span = Span(0, 0, n, torch.arange(n), causal(n))
    with torch.inference_mode():
        return model.forward(torch.tensor(TOKENS), Layout([span], model.shape.cache(1, n), model.shape.tile))


def told(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = folder / "config.json"
    config = json.loads(path.read_text())
    change(config)
    path.write_text(json.dumps(config))


def in_shards(folder: Path) -> None:
    whole = folder / "model.safetensors"
    weights = load_file(whole)
    names = sorted(weights)
    shards = {"model-1.safetensors": names[::2], "model-2.safetensors": names[1::2]}
    for shard, some in shards.items():
        save_file({name: weights[name] for name in some}, folder / shard, metadata={"format": "pt"})
    where = {name: shard for shard, some in shards.items() for name in some}
    index = {"metadata": {"total_size": 1}, "weight_map": where}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    whole.unlink()


def weights_beside(folder: Path) -> None:
    """Such as old checkpoints keep: no weights of the model."""
    weights = load_file(folder / "model.safetensors")
    weights["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(4)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def a_config_of_old(folder: Path) -> None:
    def change(config: dict[str, Any]) -> None:
        config["rope_theta"] = config.pop("rope_parameters")["rope_theta"]

    told(folder, change)


def left_to_defaults(folder: Path) -> None:
    told(folder, lambda config: (config.pop("rms_norm_eps"), config.pop("hidden_act")))


def as_pickles(folder: Path) -> None:
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


@pytest.mark.parametrize("family", LEAN)
def test_each_is_read(family: str, pair_of: Callable[[str], Pair]) -> None:
    assert read_family(pair_of(family).target) is not None


@pytest.mark.parametrize(
    ("change", "lean"),
    [
        (in_shards, True),
        (weights_beside, True),
        (a_config_of_old, True),
        (left_to_defaults, True),
        (as_pickles, False),
    ],
)
def test_the_same_model(change: Change, lean: bool, llama: Pair, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(llama.target, folder)
    change(folder)
    model = load_model(folder)
    assert type(model) is (LeanLlama if lean else GenericModel)
    expected = reference_logits(load_reference(folder), TOKENS)
    assert torch.allclose(logits_of(model), expected, atol=1e-4)


def test_two_output_layers_are_left_to_transformers(pair_of: Callable[[str], Pair], tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(pair_of("llama-tied").target, folder)
    weights = load_file(folder / "model.safetensors")
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"] + 1
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    expected = reference_logits(load_reference(folder), TOKENS)
    assert torch.allclose(logits_of(load_model(folder)), expected, atol=1e-4)


@pytest.mark.parametrize(
    "change",
    [
        {"model_type": "gemma"},
        {"quantization_config": {"quant_method": "awq"}},
        {"hidden_act": "gelu"},
        {"rope_parameters": {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0}},
        {"num_hidden_layers": 3},
        {"num_hidden_layers": "2"},
        {"num_attention_heads": 0, "head_dim": None},
        {"intermediate_size": 56},
    ],
    ids=lambda change: next(iter(change)),
)
def test_what_is_not_plain_is_left_to_transformers(
    change: dict[str, Any], llama: Pair, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(llama.target, folder)
    told(folder, lambda config: config.update(change))
    assert read_family(folder) is None


def test_a_window_is_left_to_transformers(llama: Pair, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(llama.target, folder)
    told(folder, lambda config: config.update(model_type="mistral", sliding_window=6))
    model = load_model(folder)
    assert type(model) is GenericModel
    assert torch.allclose(logits_of(model), reference_logits(load_reference(folder), TOKENS), atol=1e-4)


def test_what_tells_everything_needs_no_defaults(llama: Pair) -> None:
    config = json.loads((llama.target / "config.json").read_text())
    assert explicit_config(config) is not None
    for name in ("rms_norm_eps", "tie_word_embeddings", "rope_parameters"):
        assert explicit_config({key: value for key, value in config.items() if key != name}) is None


def test_the_shipped_pair_starts_without_code_for_models() -> None:
    """It takes seconds to import, at every start of a server."""
    pair = asset("playbooks", "embedded")
    program = (
        "import sys\n"
        "from specops.engine import load_engine\n"
        f"load_engine({str(pair / 'target')!r}, {str(pair / 'head')!r}, tree='chain:2')\n"
        f"load_engine({str(pair / 'target')!r}, {str(pair / 'draft')!r}, tree='chain:2')\n"
        "print([name for name in sys.modules if name in ('torch._dynamo', 'transformers.modeling_utils')])\n"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
