"""A tiny random model of any of transformers' decoder-only families, and whether the engine runs it.

A family's own config class is given small sizes by the names that families have for them. Whatever limits
attention is a few tokens, so that texts of `LENGTH` tokens are beyond it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from shapes import ancestors
from tiny_models import load_reference, perturb, reference_logits
from torch import Tensor
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

from specops.engine.attention import Layout, Span, causal
from specops.engine.models import load_model
from specops.engine.tree import Topology
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
    "q_lora_rank": 16,
    "kv_lora_rank": 8,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 8,
    "v_head_dim": 8,
    "qk_head_dim": 16,
    "global_head_dim": 16,
    "expert_ffn_hidden_size": 16,
    "ffn_hidden_size": 48,
    "first_k_dense_replace": 1,
    "num_dense_layers": 1,
    "hidden_size_per_layer_input": 8,
    "vocab_size_per_layer_input": 60,
    "n_shared_experts": 1,
    "laurel_rank": 8,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}
SHARED: dict[str, Any] = {"layer_types": ["sliding_attention", "full_attention"] * 2}
"""Gemma's last layers may share the keys of earlier ones, which must be of both types."""
OWN: dict[str, dict[str, Any]] = {
    "cwm": {"bos_token_id": 1, "eos_token_id": 2},
    "gemma3n_text": {**SHARED, "num_kv_shared_layers": 2},
    "gemma4_text": {**SHARED, "num_kv_shared_layers": 2},
    "gemma4_unified_text": {**SHARED, "num_kv_shared_layers": 2},
    "gpt_neo": {"attention_types": [[["global", "local"], 2]]},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"] * 2},
    "modernbert-decoder": {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0},
}
"""Settings that a family's config class refuses to do without."""
LIMITS = ("sliding_window", "attention_chunk_size", "window_size", "floor_scale", "local_attention")
UNLIMITED: dict[str, Any] = {"sliding_window": None, "attention_chunk_size": 96, "use_sliding_window": False}


def tiny(family: str, *, limited: bool, limit: int = LIMIT, **more: Any) -> Any:
    """A model; its limits `limit` tokens, or none where the family can do without. more: of its config."""
    kind = CONFIG_MAPPING[family]
    default = kind()
    wanted = SIZES | (dict.fromkeys(LIMITS, limit) if limited else UNLIMITED)
    given = {name: value for name, value in wanted.items() if _has(default, name)}
    if limited:  # one that is off stays off
        given = {n: v for n, v in given.items() if n not in LIMITS or getattr(default, n) is not None}
    elif getattr(default, "layer_types", None):
        given["layer_types"] = ["full_attention"] * 4
    if "kv_lora_rank" in given:  # latent attention: each head has keys of its own
        given["num_key_value_heads"] = 4
    given |= OWN.get(family, {}) | more
    with torch.device("meta"):
        shapes = AutoModelForCausalLM.from_config(kind(**given)).parameters()
        if sum(shape.numel() for shape in shapes) > 3_000_000:
            raise ValueError("it is not tiny")
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(kind(**given), attn_implementation="eager")
    perturb(model, 0.2)
    return model.eval()


def has_limits(family: str) -> bool:
    """Whether a family's own config limits its attention to some tokens."""
    return any(CONFIG_MAPPING[family]().to_dict().get(name) for name in LIMITS)


def _has(config: Any, name: str) -> bool:
    """Whether a config can be given a setting."""
    described = getattr(type(config), name, None)
    return name in config.to_dict() or (not isinstance(described, property) and hasattr(config, name))


TREE = Topology.from_parents((-1, 0, 0, 2, 1, 3, 5, 4))


def verdict(family: str, folder: Path, *, limited: bool, limit: int = LIMIT) -> str:
    """identical, or why the engine refuses it. AssertionError where it loads and computes something else."""
    tiny(family, limited=limited, limit=limit).save_pretrained(folder)
    try:
        model = load_model(folder)
    except ModelError as error:
        return error.message.partition("cache: ")[2] or error.message.partition(": ")[2]
    generator, more = torch.Generator().manual_seed(1), len(TREE) - 1
    tokens = torch.randint(60, (LENGTH,), generator=generator)  # the last is the tree's root
    drafted = torch.randint(60, (len(TREE),), generator=generator)
    drafted[0] = tokens[-1]
    cache, reference, found = model.shape.cache(1, LENGTH + more), load_reference(folder), []
    with torch.inference_mode():
        for start, stop in pairwise((*range(0, LENGTH, 6), LENGTH - 1)):
            span = Span(0, start, stop - start, torch.arange(start, stop), causal(stop - start))
            found.append(model.forward(tokens[start:stop], Layout([span], cache, model.shape.tile)))
        span = Span(0, LENGTH - 1, len(TREE), LENGTH - 1 + TREE.depths, TREE.mask)
        nodes = model.forward(drafted, Layout([span], cache, model.shape.tile))
        own = reference_logits(reference, tokens.tolist())
        pairs = [(own[:-1], torch.cat(found))]
        for path, here in _leaves(tokens, drafted, nodes):
            pairs.append((reference_logits(reference, path)[LENGTH - 1 :], here))
    for right, here in pairs:
        assert torch.allclose(here, right, rtol=0, atol=2e-3 * float(own.abs().max())), family
    return "identical"


def _leaves(tokens: Tensor, drafted: Tensor, nodes: Tensor) -> Iterator[tuple[list[int], Tensor]]:
    """For each leaf of the tree, the text down to it, and the nodes' logits from the root on."""
    for leaf in (node for node, below in enumerate(TREE.children) if not below):
        path = ancestors(TREE.parents, leaf)[::-1]
        yield [*tokens[:-1].tolist(), *drafted[path].tolist()], nodes[path]
