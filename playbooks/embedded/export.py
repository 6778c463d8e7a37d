"""A trained model as the folder that ships."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from llama import CONTEXT, VOCAB, Llama
from safetensors.torch import save_file
from text import END, Text


def export(model: Llama, text: Text, folder: Path) -> None:
    """A folder that `AutoModelForCausalLM` and `AutoTokenizer` load by itself."""
    folder.mkdir(parents=True, exist_ok=True)
    shape = model.shape
    weights = {f"model.{k}": v.to(torch.bfloat16).contiguous() for k, v in model.state_dict().items()}
    save_file(weights, str(folder / "model.safetensors"), metadata={"format": "pt"})
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": VOCAB,
        "hidden_size": shape.hidden,
        "num_hidden_layers": shape.layers,
        "intermediate_size": shape.inter,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "max_position_embeddings": CONTEXT,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": True,
        "bos_token_id": None,
        "eos_token_id": text.end,
        "dtype": "bfloat16",
    }
    tokenizer = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": END,
        "pad_token": END,
        "model_max_length": CONTEXT,
        "clean_up_tokenization_spaces": False,
        # A completion model: a chat is its messages' text, one after the other.
        "chat_template": "{% for message in messages %}{{ message['content'] }}{% endfor %}",
    }
    generation = {"eos_token_id": text.end, "pad_token_id": text.end, "do_sample": False}
    for name, value in (
        ("config.json", config),
        ("tokenizer_config.json", tokenizer),
        ("generation_config.json", generation),
    ):
        (folder / name).write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
    text.tokenizer.save(str(folder / "tokenizer.json"))
