"""Random drafts of every kind that has no model of its own, as folders for a target of some width."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import save_file
from tiny_models import VOCABULARY
from torch import Tensor

from specops.engine.heads import medusa, recurrent
from specops.engine.heads.draft_model import EXIT as EXIT


def _random(seed: int) -> Callable[..., Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return lambda *shape: torch.randn(*shape, generator=generator) * 0.3


def _saved(folder: Path, weights: dict[str, Tensor], config: dict[str, object]) -> Path:
    folder.mkdir(parents=True)
    save_file(weights, str(folder / "model.safetensors"))
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def save_head(folder: Path, hidden: int, *, vocabulary: int = VOCABULARY, seed: int = 0) -> Path:
    """In the form of EAGLE's checkpoints."""
    random = _random(seed)
    inter, heads, kv = 2 * hidden, 4, 2
    dim = hidden // heads
    weights = {
        "embed_tokens.weight": random(vocabulary, hidden),
        "fc.weight": random(hidden, 2 * hidden),
        "layers.0.self_attn.q_proj.weight": random(hidden, hidden),
        "layers.0.self_attn.k_proj.weight": random(kv * dim, hidden),
        "layers.0.self_attn.v_proj.weight": random(kv * dim, hidden),
        "layers.0.self_attn.o_proj.weight": random(hidden, hidden),
        "layers.0.post_attention_layernorm.weight": 1 + random(hidden),
        "layers.0.mlp.gate_proj.weight": random(inter, hidden),
        "layers.0.mlp.up_proj.weight": random(inter, hidden),
        "layers.0.mlp.down_proj.weight": random(hidden, inter),
    }
    config = {
        "architectures": ["EagleLlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": vocabulary,
        "hidden_size": hidden,
        "intermediate_size": inter,
        "num_hidden_layers": 1,
        "num_attention_heads": heads,
        "num_key_value_heads": kv,
        "max_position_embeddings": 512,
    }
    return _saved(folder, weights, config)


def save_recurrent(folder: Path, width: int, *, inter: int = 48, seed: int = 0) -> Path:
    random = _random(seed)
    weights = {
        recurrent.MARK: random(width + 2 * inter, width),
        "token.weight": random(width + 2 * inter, width),
        "down.weight": random(width, inter),
    }
    return _saved(folder, weights, {"model_type": "specops_recurrent", "hidden_size": width})


def save_medusa(
    folder: Path,
    width: int,
    *,
    heads: int = 3,
    prefix: str = medusa.PREFIXES[0],
    vocabulary: int | None = None,
) -> Path:
    """With an output layer for each head where a vocabulary is given, as the authors' have."""
    random, weights = _random(1), {}
    for head in range(heads):
        weights[f"{prefix}{head}.{medusa.BLOCK}"] = random(width, width)
        weights[f"{prefix}{head}.{medusa.BIAS}"] = random(width)
        if vocabulary is not None:
            weights[f"{prefix}{head}.{medusa.OUTPUT}"] = random(vocabulary, width)
    return _saved(folder, weights, {"model_type": "medusa", "hidden_size": width})


def save_exit(folder: Path, width: int, *, layers: int = 1) -> Path:
    weights = {EXIT: _random(2)(width, width)}
    return _saved(folder, weights, {"model_type": "specops_early_exit", "exit_layers": layers})
