"""Tiny random pairs of every supported family, saved as transformers saves them, and engines over them.

The draft is the target with noise on its weights, so that it is often right and often not. Biases and norm
weights, which a fresh model has at zero and one, are random too: a forward pass that forgot one would show.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    OPTConfig,
    OPTForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from specops.engine.draft import MakeGrower
from specops.engine.drafters import make_drafter
from specops.engine.heads.draft_model import ModelGrower
from specops.engine.heads.eagle import EagleGrower, EagleHead
from specops.engine.models import load_model
from specops.engine.models.model import FeatureModel, Model
from specops.engine.request import Emission, Sampling
from specops.engine.step import Engine
from specops.engine.tree import Draw
from specops.engine.verifiers import best_verifier, make_verifier

VOCABULARY, POSITIONS = 300, 160
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": POSITIONS,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
    "tie_word_embeddings": False,
}
LLAMA = {**SIZES, "intermediate_size": 48, "num_key_value_heads": 2, "initializer_range": 0.3}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 40,
}

FAMILIES: dict[str, Callable[[], Any]] = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**LLAMA)),
    "llama-tied": lambda: LlamaForCausalLM(LlamaConfig(**{**LLAMA, "tie_word_embeddings": True})),
    "llama-biases": lambda: LlamaForCausalLM(LlamaConfig(**LLAMA, attention_bias=True, mlp_bias=True)),
    "llama-rope3": lambda: LlamaForCausalLM(LlamaConfig(**LLAMA, rope_parameters=LLAMA3_ROPE)),
    "llama-wide-heads": lambda: LlamaForCausalLM(LlamaConfig(**LLAMA, head_dim=16)),
    "mistral": lambda: MistralForCausalLM(MistralConfig(**LLAMA, sliding_window=None)),
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**LLAMA)),
    "opt": lambda: OPTForCausalLM(
        OPTConfig(**{**SIZES, "tie_word_embeddings": True}, ffn_dim=48, word_embed_proj_dim=32, init_std=0.3)
    ),
    "gpt2": lambda: GPT2LMHeadModel(
        GPT2Config(**{**SIZES, "tie_word_embeddings": True}, initializer_range=0.3)
    ),
}
LEAN = [name for name in FAMILIES if name.startswith(("llama", "mistral", "qwen2"))]


@dataclass(frozen=True)
class Pair:
    """Folders of a target and a draft, and what the engine and transformers load from them."""

    target: Path
    draft: Path
    tokenizer: Any

    @cached_property
    def reference(self) -> Any:
        return load_reference(self.target)

    @cached_property
    def target_model(self) -> FeatureModel:
        return load_model(self.target)

    @cached_property
    def draft_model(self) -> Model:
        return load_model(self.draft)

    def engine(
        self,
        tree: str,
        *,
        draft: Model | None = None,
        head: Path | None = None,
        verifier: str | None = None,
        max_batch: int = 8,
        max_length: int = POSITIONS,
        prefill_chunk: int = 256,
        prefix_cache_mb: int = 0,
        eos: Iterable[int] = (),
    ) -> Engine:
        """Like `load_engine`, over the models that are loaded already."""
        draw = make_verifier(verifier).prefers if verifier else Draw.WITHOUT_REPLACEMENT
        grower: MakeGrower = partial(ModelGrower, draft or self.draft_model)
        if head is not None:
            grower = partial(EagleGrower, EagleHead(head, self.target_model))
        drafter = make_drafter(tree, draw, [grower], max_batch, max_length)
        return Engine(
            self.target_model,
            drafter,
            make_verifier(verifier) if verifier else best_verifier(drafter.draws),
            self.tokenizer,
            frozenset(eos),
            max_batch=max_batch,
            max_length=max_length,
            prefill_chunk=prefill_chunk,
            prefix_cache_mb=prefix_cache_mb,
        )


def save_pair(family: str, folder: Path, tokenizer: Any) -> Pair:
    torch.manual_seed(0)
    source = FAMILIES[family]()
    perturb(source, 0.1)
    for name in ("target", "draft"):
        source.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
        perturb(source, 0.06)
    return Pair(folder / "target", folder / "draft", tokenizer)


def load_reference(folder: Path) -> Any:
    source = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return source.eval().requires_grad_(False)


def perturb(source: Any, scale: float) -> None:
    with torch.no_grad():
        for parameter in source.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=scale)


def reference_logits(reference: Any, tokens: list[int]) -> Tensor:
    """[n, V] of one plain forward pass of transformers."""
    logits: Tensor = reference(torch.tensor([tokens]), use_cache=False).logits[0]
    return logits


def reference_greedy(reference: Any, prompt: list[int], count: int) -> list[int]:
    """What transformers' own `generate` puts after the prompt."""
    ids = torch.tensor([prompt])
    output = reference.generate(
        ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=count, pad_token_id=0
    )
    tokens: list[int] = output[0, len(prompt) :].tolist()
    return tokens


def clear_prompts(reference: Any, lengths: Iterable[int], count: int) -> list[tuple[list[int], list[int]]]:
    """Random prompts with their greedy continuations, none of whose choices is nearly a tie.

    Two forward passes that add up in different orders may break a tie differently; that is not at issue.
    """
    generator = torch.Generator().manual_seed(0)
    found = []
    for length in lengths:
        while True:
            prompt = torch.randint(VOCABULARY, (length,), generator=generator).tolist()
            output = reference_greedy(reference, prompt, count)
            best = reference_logits(reference, prompt + output)[length - 1 : -1].topk(2).values
            if float((best[:, 0] - best[:, 1]).min()) > 1e-3:
                found.append((prompt, output))
                break
    return found


def drain(engine: Engine, requests: Iterable[tuple[list[int], Sampling]]) -> list[list[Emission]]:
    """Submit all, step until idle -> the emissions of each, in the order of the requests."""
    ids = [engine.submit(prompt, sampling) for prompt, sampling in requests]
    emissions: dict[int, list[Emission]] = {sequence_id: [] for sequence_id in ids}
    while not engine.idle:
        for emission in engine.step():
            emissions[emission.sequence_id].append(emission)
    return [emissions[sequence_id] for sequence_id in ids]


def tokens_of(emissions: Iterable[Emission]) -> list[int]:
    return [token for emission in emissions for token in emission.tokens]
