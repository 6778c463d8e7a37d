"""A tiny random model of any of transformers' decoder-only families, and whether the engine runs it.

A family's own config class is given small sizes by the names that families have for them. Whatever limits
attention is a few tokens, so that texts of `LENGTH` tokens are beyond it.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from tiny_models import load_reference, perturb, reference_logits
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

from specops.engine.attention import Layout, Span, causal
from specops.engine.models import load_model
from specops.errors import ModelError

LENGTH, LIMIT = 48, 8
SIZES: dict[str, Any] = {
    "vocab_size": 60,
    "hidden_size": 32,
    "n_embd": 32,
    "d_model": 32,
    "word_embed_proj_dim": 32,
    "num_hidden_layers": 4,
    "n_layer": 4,
    "num_layers": 4,
    "num_attention_heads": 4,
    "n_head": 4,
    "num_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "intermediate_size": 48,
    "intermediate_size_mlp": 48,
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 16,
    "shared_intermediate_size": 16,
    "ffn_dim": 48,
    "n_inner": 48,
    "num_local_experts": 4,
    "num_experts": 4,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_num_experts": 4,
    "moe_k": 2,
    "n_group": 1,
    "topk_group": 1,
    "max_position_embeddings": 96,
    "n_positions": 96,
    "rotary_dim": 8,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}
LIMITS = {"sliding_window": LIMIT, "attention_chunk_size": LIMIT, "window_size": LIMIT, "floor_scale": LIMIT}
UNLIMITED: dict[str, Any] = {"sliding_window": None, "attention_chunk_size": 96, "use_sliding_window": False}


def tiny(family: str, *, limited: bool, **more: Any) -> Any:
    """A model; its limits a few tokens, or none where the family can do without. more: of its config."""
    kind = CONFIG_MAPPING[family]
    default = kind()
    wanted = SIZES | (LIMITS if limited else UNLIMITED)
    given = {name: value for name, value in wanted.items() if hasattr(default, name)}
    if limited:  # one that is off stays off
        given = {n: v for n, v in given.items() if n not in LIMITS or getattr(default, n) is not None}
    elif getattr(default, "layer_types", None):
        given["layer_types"] = ["full_attention"] * 4
    given |= more
    with torch.device("meta"):
        shapes = AutoModelForCausalLM.from_config(kind(**given)).parameters()
        if sum(shape.numel() for shape in shapes) > 3_000_000:
            raise ValueError("it is not tiny")
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(kind(**given), attn_implementation="eager")
    perturb(model, 0.2)
    return model.eval()


def verdict(family: str, folder: Path, *, limited: bool) -> str:
    """identical, or why the engine refuses it. AssertionError where it loads and computes something else."""
    tiny(family, limited=limited).save_pretrained(folder)
    try:
        model = load_model(folder)
    except ModelError as error:
        return error.message.partition("cache: ")[2] or error.message.partition(": ")[2]
    tokens = torch.randint(60, (LENGTH,), generator=torch.Generator().manual_seed(1))
    cache, found = model.shape.cache(1, LENGTH), []
    with torch.inference_mode():
        for start, stop in pairwise(range(0, LENGTH + 1, 6)):
            span = Span(0, start, stop - start, torch.arange(start, stop), causal(stop - start))
            found.append(model.forward(tokens[start:stop], Layout([span], cache, model.shape.tile)))
        own = reference_logits(load_reference(folder), tokens.tolist())
    assert torch.allclose(torch.cat(found), own, rtol=0, atol=2e-3 * float(own.abs().max())), family
    return "identical"
