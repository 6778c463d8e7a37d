"""Writes a model folder of the Llama family as a GGUF file, which llama.cpp serves.

    python tools/to_gguf.py playbooks/embedded/target target.gguf [--type f32|f16|q8_0]

Takes a folder with config.json, model.safetensors and a byte-level BPE in tokenizer.json, as the shipped
pair is. For every other model, llama.cpp's own convert_hf_to_gguf.py is right: it knows a hundred families.

llama.cpp rotates neighbouring halves of a head, and Hugging Face its two half-heads; so rows of the query
and key projections change places here: (heads, 2, d/2) becomes (heads, d/2, 2).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

from specops.checkpoints.source import Folder, weights_of
from specops.errors import ModelError

TYPES = {
    "f32": (gguf.GGMLQuantizationType.F32, gguf.LlamaFileType.ALL_F32),
    "f16": (gguf.GGMLQuantizationType.F16, gguf.LlamaFileType.MOSTLY_F16),
    "q8_0": (gguf.GGMLQuantizationType.Q8_0, gguf.LlamaFileType.MOSTLY_Q8_0),
}
BYTE_LEVEL = "gpt-2"
"""llama.cpp's name for the splitting that GPT-2's byte-level BPE does."""
LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
OUTSIDE = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Write a model folder as a GGUF file.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--type", choices=TYPES, default="f16", help="of the matrices; vectors are f32")
    given = parser.parse_args()
    try:
        convert(given.folder, given.out, given.type)
    except (OSError, ValueError, KeyError, ModelError) as error:
        sys.exit(f"error: could not convert {given.folder}: {error}")


def convert(folder: Path, out: Path, type_: str = "f16") -> None:
    """ValueError for a model or a tokenizer of another form, OSError for files that cannot be read."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    if config.get("architectures") != ["LlamaForCausalLM"]:
        raise ValueError(
            f"its architecture is {config.get('architectures')}, expected ['LlamaForCausalLM']; "
            "convert_hf_to_gguf.py of llama.cpp knows others"
        )
    quantization, file_type = TYPES[type_]
    writer = gguf.GGUFWriter(out, "llama")
    writer.add_name(folder.resolve().name)
    writer.add_file_type(file_type)
    _add_shape(writer, config)
    _add_tokenizer(writer, folder, config)
    for name, values in _tensors(folder):
        if name == "lm_head.weight" and config.get("tie_word_embeddings"):
            continue  # llama.cpp takes token_embd where there is no output
        values = np.ascontiguousarray(_arranged(name, config)(values))
        one = gguf.GGMLQuantizationType.F32 if values.ndim == 1 else _whole_blocks(quantization, values.shape)
        writer.add_tensor(_name(name), gguf.quants.quantize(values, one), raw_dtype=one)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _tensors(folder: Path) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """By name, in float32. ValueError for another type, or where there are none."""
    checkpoint = Folder(folder)
    weights = weights_of(checkpoint)
    if weights is None:
        raise ValueError("it has no safetensors")
    for name, tensor in weights.tensors.items():
        data = checkpoint.tensor(tensor.file, tensor.offsets) or b""
        if tensor.dtype == "BF16":  # the upper half of a float32
            values = (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32)
        elif tensor.dtype in ("F16", "F32"):
            values = np.frombuffer(data, f"<f{2 if tensor.dtype == 'F16' else 4}").astype(np.float32)
        else:
            raise ValueError(f"its tensor {name} is of type {tensor.dtype}, expected BF16, F16 or F32")
        yield name, values.reshape(tensor.shape)


def _add_shape(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    heads = config["num_attention_heads"]
    size = config.get("head_dim") or config["hidden_size"] // heads
    if config.get("rope_scaling"):
        raise ValueError("its rope is scaled; convert_hf_to_gguf.py of llama.cpp knows that")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(config.get("num_key_value_heads", heads))
    writer.add_key_length(size)
    writer.add_value_length(size)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_dimension_count(size)
    writer.add_rope_freq_base(config.get("rope_theta", 10000.0))
    writer.add_vocab_size(config["vocab_size"])


def _add_tokenizer(writer: gguf.GGUFWriter, folder: Path, config: dict[str, Any]) -> None:
    tokenizer = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    model, pre = tokenizer["model"], tokenizer.get("pre_tokenizer") or {}
    if model["type"] != "BPE" or pre.get("type") != "ByteLevel" or not pre.get("use_regex", True):
        raise ValueError("its tokenizer is no byte-level BPE as GPT-2 has it")
    if pre.get("add_prefix_space") or tokenizer.get("normalizer"):
        raise ValueError("its tokenizer changes the text before it splits it")
    added = {token["id"]: token for token in tokenizer["added_tokens"]}
    names = {at: token for token, at in model["vocab"].items()} | {
        at: t["content"] for at, t in added.items()
    }
    types = []
    for at in range(config["vocab_size"]):
        if at in added:
            types.append(gguf.TokenType.CONTROL if added[at]["special"] else gguf.TokenType.USER_DEFINED)
        else:
            types.append(gguf.TokenType.NORMAL if at in names else gguf.TokenType.UNUSED)
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(BYTE_LEVEL)
    writer.add_token_list([names.get(at, f"[PAD{at}]") for at in range(config["vocab_size"])])
    writer.add_token_types(types)
    writer.add_token_merges(merges)
    writer.add_eos_token_id(config["eos_token_id"])
    writer.add_add_bos_token(False)
    if config.get("bos_token_id") is not None:
        writer.add_bos_token_id(config["bos_token_id"])
    said = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    pad = next((at for at, name in names.items() if name == said.get("pad_token")), None)
    if pad is not None:
        writer.add_pad_token_id(pad)
    if "chat_template" in said:
        writer.add_chat_template(said["chat_template"])


def _whole_blocks(
    quantization: gguf.GGMLQuantizationType, shape: tuple[int, ...]
) -> gguf.GGMLQuantizationType:
    """float16 for rows that are no whole blocks, as llama-quantize falls back."""
    block, _ = gguf.GGML_QUANT_SIZES[quantization]
    return quantization if shape[-1] % block == 0 else gguf.GGMLQuantizationType.F16


def _name(name: str) -> str:
    stem = name.removesuffix(".weight")
    if stem in OUTSIDE:
        return f"{OUTSIDE[stem]}.weight"
    _, _, layer, part = stem.split(".", 3)
    if part not in LAYER:
        raise ValueError(f"it has a tensor {name}, which is none of this family's")
    return f"blk.{layer}.{LAYER[part]}.weight"


def _arranged(name: str, config: dict[str, Any]) -> Callable[[NDArray[np.float32]], NDArray[np.float32]]:
    heads = config["num_attention_heads"]
    of = {"q_proj": heads, "k_proj": config.get("num_key_value_heads", heads)}
    count = next((count for part, count in of.items() if f".{part}." in name), None)
    if count is None:
        return lambda tensor: tensor
    return lambda t: t.reshape(count, 2, -1, t.shape[1]).swapaxes(1, 2).reshape(t.shape)


if __name__ == "__main__":
    main()
