"""config.json of a model. Sizes of a multimodal model are its text model's."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specops.checkpoints.gguf import GGUF_FILE
from specops.checkpoints.source import Checkpoint, access_check, read_json
from specops.errors import ModelError
from specops.hints import with_value

TEXT_SECTIONS = ("text_config", "llm_config", "language_config", "thinker_config", "transformer_layer_config")
"""Where multimodal configs, and drafts in the speculators format, keep the text model's section."""

NO_CACHE = ("linear_attention", "mamba", "mamba2", "conv", "recurrent", "moe", "mlp")
"""Layer types without keys and values: their state does not grow with the text."""

BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "float64": 8, "float8_e4m3fn": 1, "float8_e5m2": 1}


@dataclass(frozen=True)
class KvCache:
    """The size of a token's entries in the KV cache."""

    layers: int
    """Layers with keys and values."""

    windowed: int
    """How many of these hold only the last `window` tokens."""

    window: int | None
    heads: int | None
    """KV heads, which are divided among GPUs. None for latent attention (MLA), which is whole on each GPU."""

    values: int
    """Numbers of one token in one layer: of one head, or of the whole layer for MLA."""

    def bytes_per_token(self, width: int, tensor_parallel: int = 1) -> int:
        """Bytes of one token on one GPU, with numbers of `width` bytes. A head that cannot be divided is
        stored on several GPUs."""
        heads = 1 if self.heads is None else max(1, -(-self.heads // tensor_parallel))
        return self.layers * heads * self.values * width


@dataclass(frozen=True)
class Config:
    """config.json, as it is and as typed properties. A property is None if the config does not have it."""

    raw: dict[str, Any]
    text: dict[str, Any]
    """The text model's section, or all of `raw`."""

    name: str
    """The checkpoint's name, for messages."""

    @property
    def gguf(self) -> bool:
        """Return whether it was made of a GGUF file, which counts layers of multi-token prediction too."""
        return bool(self.raw.get(GGUF_FILE))

    @property
    def architectures(self) -> list[str]:
        names = self.raw.get("architectures") or self.text.get("architectures") or []
        return [str(name) for name in names] if isinstance(names, list) else []

    @property
    def model_type(self) -> str:
        return str(self.raw.get("model_type") or self.text.get("model_type") or "")

    @property
    def vocab_size(self) -> int | None:
        return self.whole("vocab_size")

    @property
    def hidden_size(self) -> int | None:
        return self.whole("hidden_size")

    @property
    def layers(self) -> int | None:
        return self.whole("num_hidden_layers") or self.whole("n_layer")

    @property
    def max_positions(self) -> int | None:
        return self.whole("max_position_embeddings")

    @property
    def dtype(self) -> str | None:
        """The dtype of the published weights, such as bfloat16."""
        for part in (self.raw, self.text):
            named = part.get("dtype") or part.get("torch_dtype")
            if isinstance(named, str):
                return named.removeprefix("torch.")
        return None

    @property
    def quantization(self) -> str | None:
        section = self.raw.get("quantization_config") or self.text.get("quantization_config")
        return str(section.get("quant_method", "unnamed")) if isinstance(section, dict) else None

    def whole(self, key: str) -> int | None:
        """The whole number at `key`; None without this key. Raises ModelError for any other value."""
        value = self.text.get(key, self.raw.get(key))
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise ModelError(
                f"could not use config.json of {self.name}: {key} is {value!r}: expected a whole number",
                hint=access_check(self.name),
            )
        return value

    def kv_cache(self) -> KvCache | None:
        """The KV cache of the text model; None if the config has too few fields to compute it."""
        layers = self.layers
        if layers is None:
            return None
        types = self.text.get("layer_types")
        windowed = 0
        if isinstance(types, list) and types:
            named = [str(kind) for kind in types]
            layers = sum(not kind.startswith(NO_CACHE) for kind in named)
            windowed = sum(kind.startswith(("sliding", "chunked")) for kind in named)
        elif self._window():
            pattern = self.whole("sliding_window_pattern")
            windowed = layers - layers // pattern if pattern else layers
        window = self._window() if windowed else None
        windowed = windowed if window else 0
        latent, rope = self.whole("kv_lora_rank"), self.whole("qk_rope_head_dim")
        if latent and rope is not None:
            return KvCache(layers, windowed, window, None, latent + rope)
        heads = self.whole("num_attention_heads") or self.whole("n_head")
        hidden = self.hidden_size or self.whole("n_embd")
        if not heads or not (hidden or self.whole("head_dim")):
            return None
        head_dim = self.whole("head_dim") or (hidden or 0) // heads
        return KvCache(layers, windowed, window, self.whole("num_key_value_heads") or heads, 2 * head_dim)

    def _window(self) -> int | None:
        if self.text.get("use_sliding_window") is False:  # Qwen names a window and does not use it
            return None
        return self.whole("sliding_window") or self.whole("attention_chunk_size")


def config_of(checkpoint: Checkpoint) -> Config:
    """The checkpoint's config. Raises ModelError if it has no config.json, or a damaged one."""
    raw = read_json(checkpoint, "config.json")
    adapter = read_json(checkpoint, "adapter_config.json") if raw is None else None
    if adapter is not None:
        base = adapter.get("base_model_name_or_path") or "its base model"
        raise ModelError(
            f"could not use {checkpoint.name} alone: it is an adapter (LoRA) for {base}: "
            "expected a folder with the merged model",
            hint=access_check(checkpoint.name),
        )
    if raw is None and (snapshot_path := snapshot(checkpoint)) is not None:
        raise ModelError(
            f"could not read {checkpoint.name}: it is a model's folder in the hub's cache: "
            "expected its snapshot",
            hint=with_value(checkpoint.name, snapshot_path),
        )
    if raw is None:
        raise ModelError(
            f"could not read {checkpoint.name}: it has no config.json: "
            "expected a model in transformers' format, with config.json, tokenizer and weights",
            hint=access_check(checkpoint.name),
        )
    return Config(raw, _text(raw), checkpoint.name)


def snapshot(checkpoint: Checkpoint) -> Path | None:
    """The newest commit in a folder such as models--ORG--NAME of the hub's cache; None for another folder."""
    commits = [path for path in Path(checkpoint.name).glob("snapshots/*") if path.is_dir()]
    return max(commits, key=lambda path: path.stat().st_mtime, default=None)


def _text(raw: dict[str, Any]) -> dict[str, Any]:
    # vLLM's converted EAGLE heads nest the head's own config under "model" (configs/eagle.py of 0.33).
    sections = ("model", *TEXT_SECTIONS) if raw.get("model_type") == "eagle" else TEXT_SECTIONS
    for section in sections:
        inner = raw.get(section)
        if isinstance(inner, dict) and inner:
            return _text(inner)
    return raw
