"""Loading a model: the lean forward for the Llama family, transformers' own otherwise."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError
from torch import Tensor

from specops.engine.attention import Layout
from specops.engine.cache import CPU, KVCache
from specops.engine.offload import Offload
from specops.engine.ranks import Ranks
from specops.errors import ModelError


@dataclass(frozen=True)
class Shape:
    """What the cache and the attention need to know of a model, as far as it lies here."""

    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    max_positions: int
    dtype: torch.dtype
    device: torch.device = CPU
    kernel: bool = False
    """Attention by the Triton kernel, in place of PyTorch's."""

    @property
    def tile(self) -> int:
        """Query heads that share one KV head."""
        return self.heads // self.kv_heads

    def cache(self, rows: int, capacity: int) -> KVCache:
        form = self.layers, rows, capacity, self.kv_heads, self.head_dim
        return KVCache(*form, self.dtype, self.device, kernel=self.kernel)


class Model(Protocol):
    @property
    def shape(self) -> Shape: ...

    def forward(self, tokens: Tensor, layout: Layout, wanted: Tensor | None = None) -> Tensor:
        """[n] packed token ids -> float32 logits [n, vocab], or of the `wanted` ones only, [w, vocab].

        The keys and values of all n are written to the cache that `layout` is over.
        """


class FeatureModel(Model, Protocol):
    """A model that also gives its features: what its output layer reads, one row of `width` for a token."""

    @property
    def width(self) -> int: ...

    @property
    def output(self) -> Tensor:
        """[vocab, width], the weight of the output layer."""

    def with_features(
        self, tokens: Tensor, layout: Layout, wanted: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """As `forward`, and the features of all n tokens, [n, width]."""


def load_model(
    folder: Path,
    dtype: torch.dtype = torch.float32,
    *,
    device: torch.device = CPU,
    kernel: bool = False,
    offload: Offload | None = None,
    ranks: Ranks | None = None,
) -> FeatureModel:
    """Load a decoder-only model from a local folder in transformers' format.

    device: where it runs; the lean forward is for CPUs alone.
    kernel: attention by the Triton kernel, which needs a GPU (or Triton's interpreter).
    offload: leave its layers on disk or in host memory, and read them for every pass.
    ranks: hold the part of this one of them.
    Raises ModelError.
    """
    if not (folder / "config.json").is_file():
        raise ModelError(
            f"could not load a model from {folder}: there is no config.json",
            hint="give a folder in transformers' format: config.json, weights and tokenizer",
        )
    if offload is not None:
        return _offloaded(folder, dtype, device, kernel, offload)

    from specops.engine.family import checked_config, read_family
    from specops.engine.lean import LeanLlama

    if ranks is None and not kernel and device.type == "cpu" and dtype == torch.float32:
        read = read_family(folder)
        if read is not None:
            _refuse(folder, read[0])
            return LeanLlama(*read)

    from transformers import AutoModelForCausalLM  # seconds of imports, needed only here
    from transformers.utils import logging

    from specops.engine.generic import GenericModel

    logging.disable_progress_bar()
    try:
        with checked_config():
            source, loading = AutoModelForCausalLM.from_pretrained(
                folder,
                dtype=dtype,
                attn_implementation="eager",
                trust_remote_code=False,
                output_loading_info=True,
            )
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise ModelError(f"could not load a model from {folder}: {reason_of(error)}") from error
    missing = sorted(loading["missing_keys"])
    if missing:  # transformers would go on with random ones
        raise ModelError(
            f"could not load a model from {folder}: {len(missing)} weights are missing, {missing[0]} first",
            hint="copy the folder again; config.json and the weights must be of the same model",
        )
    source.eval().requires_grad_(False)
    _refuse(folder, source.config.get_text_config())
    return GenericModel(source, device, kernel=kernel, ranks=ranks)


def _offloaded(
    folder: Path, dtype: torch.dtype, device: torch.device, kernel: bool, offload: Offload
) -> FeatureModel:
    from transformers import AutoConfig

    from specops.engine.family import checked_config
    from specops.engine.generic import GenericModel
    from specops.engine.streamed import load_streamed

    try:
        with checked_config():
            config = AutoConfig.from_pretrained(folder, trust_remote_code=False).get_text_config()
            _refuse(folder, config)
            source = load_streamed(folder, config, dtype, offload, device)
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise ModelError(f"could not load a model from {folder}: {reason_of(error)}") from error
    return GenericModel(source.eval().requires_grad_(False), device, kernel=kernel)


def reason_of(error: Exception) -> str:
    """One line: the first that is no heading of those below it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return next((line for line in lines if not line.endswith(":")), lines[0])


def _refuse(folder: Path, config: Any) -> None:
    """What would run and give another model's output."""
    hint = "take a model with full attention and fixed frequencies, or serve this one with vLLM"
    # The cache keeps every slot visible; a model trained with a shorter window would see too much.
    window = getattr(config, "sliding_window", None)
    used = getattr(config, "use_sliding_window", True)
    layers = getattr(config, "layer_types", None) or ["sliding_attention"]
    if window and used and window < config.max_position_embeddings and "sliding_attention" in layers:
        raise ModelError(
            f"could not load {folder}: it attends within a window of {window} tokens, which the embedded "
            "engine does not support",
            hint,
        )
    # Frequencies that change with the longest sequence of a batch: the output would depend on the others.
    rope = (getattr(config, "rope_parameters", None) or {}).get("rope_type")
    if rope in ("dynamic", "longrope"):
        raise ModelError(
            f"could not load {folder}: its rotary embedding ({rope}) changes with the length, which the "
            "embedded engine does not support",
            hint,
        )


def eos_token_ids(folder: Path) -> frozenset[int]:
    """Ids that end a sequence: generation_config.json's where it has them, else config.json's."""
    for name in ("generation_config.json", "config.json"):
        path = folder / name
        if path.is_file():
            try:
                value = json.loads(path.read_text(encoding="utf-8")).get("eos_token_id")
            except (ValueError, AttributeError) as error:
                raise ModelError(f"could not load {path}: it is no JSON object") from error
            if value is not None:
                return frozenset(value if isinstance(value, list) else [value])
    return frozenset()
