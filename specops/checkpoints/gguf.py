"""A GGUF file, llama.cpp's format, as a checkpoint: its metadata as the files that transformers would have.

A GGUF file holds settings, tokenizer and weights. From its metadata come config.json, generation_config.json,
tokenizer.json and tokenizer_config.json, in a temporary folder, so that everything else reads it as any other
model. Weights are not read, only where they lie. The format: ggml-org/ggml, docs/gguf.md, versions 2 and 3.

Of a model in several files, the first is given, and the others lie beside it.
"""

from __future__ import annotations

import json
import math
import mmap
import re
import shutil
import struct
import tempfile
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specops.errors import ModelError
from specops.hints import listing

SUFFIX = ".gguf"
GGUF_FILE = "gguf_file"
"""The key that marks a config.json as made of a file's metadata."""
MAGIC = b"GGUF"
SHARD = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf")
WEIGHTS = "model.safetensors"
"""The name under which the tensors are listed."""

NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""struct's letters, by the type of a value."""
STRING, ARRAY = 8, 9

TYPES = {
    0: ("F32", 1, 4), 1: ("F16", 1, 2), 2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20), 6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24), 8: ("Q8_0", 32, 34), 9: ("Q8_1", 32, 40), 10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110), 12: ("Q4_K", 256, 144), 13: ("Q5_K", 256, 176), 14: ("Q6_K", 256, 210),
    15: ("Q8_K", 256, 292), 16: ("IQ2_XXS", 256, 66), 17: ("IQ2_XS", 256, 74), 18: ("IQ3_XXS", 256, 98),
    19: ("IQ1_S", 256, 50), 20: ("IQ4_NL", 32, 18), 21: ("IQ3_S", 256, 110), 22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136), 24: ("I8", 1, 1), 25: ("I16", 1, 2), 26: ("I32", 1, 4), 27: ("I64", 1, 8),
    28: ("F64", 1, 8), 29: ("IQ1_M", 256, 56), 30: ("BF16", 1, 2), 34: ("TQ1_0", 256, 54),
    35: ("TQ2_0", 256, 66), 39: ("MXFP4", 32, 17), 40: ("NVFP4", 64, 36), 41: ("Q1_0", 128, 18),
}  # fmt: skip
"""Types of a tensor: name, numbers in a block, bytes of a block."""

NAMES = {"token_embd.weight": "model.embed_tokens.weight", "output.weight": "lm_head.weight"}
"""What transformers calls a tensor, where something is read by its name."""

CONFIG = {
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.sliding_window": "sliding_window",
    "attention.kv_lora_rank": "kv_lora_rank",
    "rope.dimension_count": "qk_rope_head_dim",
    "nextn_predict_layers": "num_nextn_predict_layers",
    "target_hidden_size": "target_hidden_size",
    "embedding_length_out": "backbone_hidden_size",
    "block_size": "block_size",
    "norm_before_residual": "norm_before_residual",
    "norm_before_fc": "norm_before_fc",
    "sample_from_anchor": "sample_from_anchor",
}
LISTS = {"target_layers": "target_layer_ids", "extract_layers": "target_layer_ids"}
"""Settings that stay lists."""

LATENT = ("kv_lora_rank", "qk_rope_head_dim")
"""Keys of latent attention alone."""

GPT2 = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
SPLITS = {
    "llama-bpe": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+",
    "qwen2": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+",
}
"""How a byte-level BPE splits a text first, by llama.cpp's name for it."""

SAME = {
    **dict.fromkeys(
        ("llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano"),
        "llama-bpe",
    ),
    **dict.fromkeys(("phi-2", "gigachat", "a.x-4.0", "mellum", "modern-bert", "exaone4"), "gpt-2"),
    **dict.fromkeys(("deepseek-r1-qwen", "kormo", "f2llmv2", "megrez"), "qwen2"),
    **dict.fromkeys(("llama4", "kanana2", "talkie"), "gpt-4o"),
    **dict.fromkeys(("bailingmoe2", "llada-moe"), "bailingmoe"),
    "chatglm-bpe": "glm4",
    "cohere2moe": "tiny_aya",
}
"""Names that llama.cpp takes for one another (src/llama-vocab.cpp)."""

NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = range(1, 7)
"""Types of tokens."""


@dataclass(frozen=True)
class _Part:
    """One file: its metadata, and {tensor: {dtype, shape, data_offsets}}."""

    path: Path
    metadata: dict[str, Any]
    tensors: dict[str, dict[str, Any]]
    start: int
    """Byte at which the tensors begin."""


class Gguf:
    """Raises ModelError where the file is damaged, not whole, or of a kind that is not known."""

    revision = None

    def __init__(self, path: Path) -> None:
        self.path, self.name = path, str(path)
        self._parts = [_read(part) for part in _shards(path)]
        folder = Path(tempfile.mkdtemp(prefix="specops-gguf-"))
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        for name, content in _files(self._parts[0].metadata, self._tensors, self.name).items():
            (folder / name).write_text(json.dumps(content), encoding="utf-8")
        self._folder = folder

    def file(self, name: str) -> Path | None:
        path = self._folder / name
        return path if path.is_file() else None

    def names(self) -> list[str]:
        return sorted([*(path.name for path in self._folder.iterdir()), WEIGHTS])

    def header(self, name: str) -> dict[str, Any]:
        return self._tensors

    def tensor(self, name: str, offsets: tuple[int, int]) -> bytes | None:
        """Return the bytes of a tensor, such as the map of a head's vocabulary. None for a model in several
        files, whose offsets are each file's own."""
        if len(self._parts) > 1:
            return None
        with self.path.open("rb") as file:
            file.seek(self._parts[0].start + offsets[0])
            return file.read(offsets[1] - offsets[0])

    @property
    def _tensors(self) -> dict[str, dict[str, Any]]:
        return {
            NAMES.get(name, name): tensor for part in self._parts for name, tensor in part.tensors.items()
        }


def _shards(path: Path) -> list[Path]:
    match = SHARD.fullmatch(path.name)
    if match is None:
        return [path]
    stem, count = match[1], int(match[3])
    parts = [path.with_name(f"{stem}-{number:05}-of-{count:05}.gguf") for number in range(1, count + 1)]
    missing = [part.name for part in parts if not part.is_file()]
    if missing:
        raise ModelError(
            f"could not use {path}: {count - len(missing)} of {count} files are here, {missing[0]} is not: "
            "the download is not complete",
            hint=listing(path.parent),
        )
    return parts


class _Reader:
    def __init__(self, data: mmap.mmap) -> None:
        self.data, self.offset = data, len(MAGIC)

    def number(self, letter: str) -> Any:
        (value,) = struct.unpack_from(f"<{letter}", self.data, self.offset)
        self.offset += struct.calcsize(f"<{letter}")
        return value

    def text(self) -> str:
        length = self.number("Q")
        if length > len(self.data) - self.offset:
            raise ValueError(f"a text in it would be {length:,} bytes long")
        self.offset += length
        return self.data[self.offset - length : self.offset].decode("utf-8", errors="replace")

    def value(self, kind: int) -> Any:
        if kind == STRING:
            return self.text()
        if kind == ARRAY:
            inner, count = self.number("I"), self.number("Q")
            if count > len(self.data) - self.offset:
                raise ValueError(f"a list in it would have {count:,} entries")
            if inner in (STRING, ARRAY):
                return [self.value(inner) for _ in range(count)]
            form = f"<{count}{NUMBERS[inner]}"
            self.offset += struct.calcsize(form)
            return list(struct.unpack_from(form, self.data, self.offset - struct.calcsize(form)))
        return self.number(NUMBERS[kind])


def _read(path: Path) -> _Part:
    try:
        with path.open("rb") as file:
            if file.read(len(MAGIC)) != MAGIC:
                raise ValueError("it does not begin with GGUF")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _part(path, _Reader(data))
    except (OSError, ValueError, KeyError, struct.error) as error:
        reason = f"unknown type {error}" if isinstance(error, KeyError) else error
        if isinstance(error, struct.error):
            reason = "it ends within its metadata"
        raise ModelError(
            f"could not read {path}: {reason}: expected a whole GGUF file", hint=listing(path)
        ) from error


def _part(path: Path, reader: _Reader) -> _Part:
    version = reader.number("I")
    if version not in (2, 3):
        raise ValueError(f"it is of GGUF version {version}, and 2 and 3 are known")
    tensors, entries = reader.number("Q"), reader.number("Q")
    metadata = {reader.text(): reader.value(reader.number("I")) for _ in range(entries)}
    described = [_tensor(reader) for _ in range(tensors)]
    alignment = metadata.get("general.alignment", 32)
    start = -(-reader.offset // alignment) * alignment
    end = start + max((info["data_offsets"][1] for _, info in described), default=0)
    if end > len(reader.data):
        raise ValueError(f"the file has {len(reader.data):,} bytes, its header describes {end:,}")
    return _Part(path, metadata, dict(described), start)


def _tensor(reader: _Reader) -> tuple[str, dict[str, Any]]:
    name = reader.text()
    shape = [reader.number("Q") for _ in range(reader.number("I"))]
    kind, offset = reader.number("I"), reader.number("Q")
    dtype, block, size = TYPES[kind]
    end = offset + math.prod(shape) // block * size
    return name, {"dtype": dtype, "shape": shape[::-1], "data_offsets": [offset, end]}


# As transformers would have it


def _files(metadata: dict[str, Any], tensors: dict[str, Any], name: str) -> dict[str, dict[str, Any]]:
    files = {"config.json": _config(metadata, tensors), "generation_config.json": _generation(metadata)}
    if "tokenizer.ggml.tokens" in metadata:
        files["tokenizer.json"] = _tokenizer(metadata, name)
        files["tokenizer_config.json"] = _tokenizer_config(metadata)
    return files


def _config(metadata: dict[str, Any], tensors: dict[str, Any]) -> dict[str, Any]:
    architecture = str(metadata.get("general.architecture", ""))
    config: dict[str, Any] = {
        GGUF_FILE: True,
        "model_type": architecture,
        "architectures": [_architecture(architecture, tensors)],
    }
    for key, name in CONFIG.items():
        value = metadata.get(f"{architecture}.{key}")
        if isinstance(value, list):  # of each layer; most are alike
            value = max(value, default=None)
        if value is not None:
            config[name] = value
    for key, name in LISTS.items():
        if isinstance(listed := metadata.get(f"{architecture}.{key}"), list):
            config[name] = listed
    if "kv_lora_rank" not in config:
        config = {key: value for key, value in config.items() if key not in LATENT}
    embedding = tensors.get("model.embed_tokens.weight")
    tokens = metadata.get("tokenizer.ggml.tokens") or []
    if rows := embedding["shape"][0] if embedding else len(tokens):
        config["vocab_size"] = rows
    if "d2t" in tensors:  # the target's ids themselves, where safetensors store the differences
        config["draft_vocab_size"] = tensors["d2t"]["shape"][0]
    config["dtype"] = "float16"  # of the KV cache, whatever the weights are
    quantised = sorted({info["dtype"] for info in tensors.values()} - {"F32", "F16", "BF16"})
    if quantised:
        config["quantization_config"] = {"quant_method": "/".join(quantised)}
    return config | _ends(metadata)


def _architecture(architecture: str, tensors: dict[str, Any]) -> str:
    """Named as in a config.json. DFlash and DSpark have one name: only their tensors tell them apart."""
    if architecture == "dflash":
        return "DSparkDraftModel" if "markov_w1.weight" in tensors else "DFlashDraftModel"
    if architecture == "eagle3":
        return "Eagle3ForCausalLM"
    if architecture == "gemma4-assistant":
        return "Gemma4AssistantForCausalLM"
    words = re.split(r"[^a-z0-9]+", architecture.lower())
    ending = (
        "Encoder" if any("bert" in word or "embed" in word or "t5encoder" in word for word in words) else ""
    )
    return "".join(word.capitalize() for word in words) + (ending or "ForCausalLM")


def _ends(metadata: dict[str, Any]) -> dict[str, Any]:
    named = {"bos_token_id": "bos", "eos_token_id": "eos", "pad_token_id": "padding"}
    ids = {key: metadata.get(f"tokenizer.ggml.{name}_token_id") for key, name in named.items()}
    return {key: value for key, value in ids.items() if value is not None}


def _generation(metadata: dict[str, Any]) -> dict[str, Any]:
    """llama.cpp ends an answer at the end of a turn as well."""
    ends = _ends(metadata)
    turn = metadata.get("tokenizer.ggml.eot_token_id")
    if turn is not None and "eos_token_id" in ends and turn != ends["eos_token_id"]:
        return ends | {"eos_token_id": [ends["eos_token_id"], turn]}
    return ends


def _tokenizer(metadata: dict[str, Any], name: str) -> dict[str, Any]:
    model, pre = metadata.get("tokenizer.ggml.model"), str(metadata.get("tokenizer.ggml.pre", "default"))
    pre = SAME.get(pre, pre)
    converter = {"gpt2": _byte_level, "llama": _pieces, "t5": _pieces, "bert": _word_pieces}.get(str(model))
    if converter is None:
        raise ModelError(
            f"could not read the tokenizer of {name}: invalid kind {model!r}: expected gpt2, llama, t5, "
            "bert, or a folder in transformers' format",
            hint=listing(name),
        )
    return {"version": "1.0", "added_tokens": list(_added(metadata)), **converter(metadata, pre)}


def _added(metadata: dict[str, Any]) -> Iterator[dict[str, Any]]:
    types = metadata.get("tokenizer.ggml.token_type") or []
    for index, kind in enumerate(types):
        if kind in (CONTROL, USER):
            token = metadata["tokenizer.ggml.tokens"][index]
            flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
            yield {"id": index, "content": token, **flags, "special": kind == CONTROL}


def _byte_level(metadata: dict[str, Any], pre: str) -> dict[str, Any]:
    merges = [merge.split(" ", 1) for merge in metadata.get("tokenizer.ggml.merges") or []]
    types = metadata.get("tokenizer.ggml.token_type") or []
    fillers = {index for index, kind in enumerate(types) if kind == UNUSED}  # of rows without a token
    tokens = enumerate(metadata["tokenizer.ggml.tokens"])
    vocab = {token: index for index, token in tokens if index not in fillers}
    return {
        "model": {"type": "BPE", "vocab": vocab, "merges": merges, "ignore_merges": pre == "llama-bpe"},
        "pre_tokenizer": _splitting(pre),
        "decoder": GPT2,
    }


def _splitting(pre: str) -> dict[str, Any]:
    """Return the pre-tokeniser of a name; of a name that is not known, one that splits nothing. The name
    stays in it, to be compared."""
    if pre == "gpt-2":
        return GPT2
    pattern = {"Regex": SPLITS[pre]} if pre in SPLITS else {"String": f"\0{pre}"}
    split = {"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": False}
    return {"type": "Sequence", "pretokenizers": [split, GPT2 | {"use_regex": False}]}


def _pieces(metadata: dict[str, Any], pre: str) -> dict[str, Any]:
    """SentencePiece's, by scores. llama.cpp joins pieces of a `llama` by score, and so does this, nearly."""
    tokens = metadata["tokenizer.ggml.tokens"]
    scores = metadata.get("tokenizer.ggml.scores") or [0.0] * len(tokens)
    unknown = metadata.get("tokenizer.ggml.unknown_token_id", 0)
    prefix = "always" if metadata.get("tokenizer.ggml.add_space_prefix", True) else "never"
    spaces = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": prefix, "split": False}
    vocab = [[token, score] for token, score in zip(tokens, scores, strict=True)]
    fallback = BYTE in (metadata.get("tokenizer.ggml.token_type") or [])
    return {
        "model": {"type": "Unigram", "vocab": vocab, "unk_id": unknown, "byte_fallback": fallback},
        "pre_tokenizer": spaces,
        "decoder": spaces,
    }


def _word_pieces(metadata: dict[str, Any], pre: str) -> dict[str, Any]:
    tokens = metadata["tokenizer.ggml.tokens"]
    unknown = tokens[metadata.get("tokenizer.ggml.unknown_token_id", 0)]
    model = {"type": "WordPiece", "unk_token": unknown, "max_input_chars_per_word": 100}
    return {
        # llama.cpp marks the pieces that begin a word, and WordPiece those that do not.
        "model": model | {"continuing_subword_prefix": "", "vocab": {t: i for i, t in enumerate(tokens)}},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
    }


def _tokenizer_config(metadata: dict[str, Any]) -> dict[str, Any]:
    tokens, config = metadata["tokenizer.ggml.tokens"], {}
    for role, key in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding")):
        index = metadata.get(f"tokenizer.ggml.{key}_token_id")
        if index is not None and index < len(tokens):
            config[f"{role}_token"] = tokens[index]
    template = metadata.get("tokenizer.chat_template")
    architecture = metadata.get("general.architecture")
    longest = metadata.get(f"{architecture}.context_length")
    config |= {"chat_template": template} if template else {}
    return config | ({"model_max_length": longest} if longest else {})
