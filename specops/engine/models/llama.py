"""The Llama family: its checkpoints, and a lean forward pass on a CPU with the same arithmetic in a sixth of
the operators.

A model is made of config.json and safetensors only: transformers' code for models takes seconds to import.
What is not plainly of the family and complete is left to transformers, which loads it or reports what is
wrong.

The time of a small model's step on a CPU depends on the number of operators and the bytes of weights. So q, k
and v become one matrix on loading, gate and up another. Rows of q and k are reordered so that rotary
embedding turns adjacent pairs. Matrices have the form that reads fastest (linear.py). What lies between two
of them is one compiled call (cpu/ops.py).
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from specops.engine.attention import Layout, attend_rotated
from specops.engine.cpu import ops
from specops.engine.models.linear import Linear
from specops.engine.models.model import Shape

MODELS = {"llama", "qwen2", "mistral"}
STATIC_ROPE = {"default", "linear", "llama3"}
"""Rotary embeddings whose frequencies do not change with the length."""

EXPLICIT = {
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "intermediate_size",
    "num_attention_heads",
    "num_key_value_heads",
    "max_position_embeddings",
    "rms_norm_eps",
    "hidden_act",
    "tie_word_embeddings",
}
"""Entries that a config must have, so that no default of transformers is needed."""


class Weights(Mapping[str, Tensor]):
    """Named weights, or those below a prefix."""

    def __init__(self, every: Mapping[str, Tensor], prefix: str = "") -> None:
        self._every, self._prefix = every, prefix

    def below(self, prefix: str) -> Weights:
        """The weights whose names begin with a further prefix, without it."""
        return Weights(self._every, self._prefix + prefix)

    def joined(self, *modules: str) -> tuple[Tensor, Tensor | None]:
        """The modules' matrices as one, row below row, and their biases, or None. Raises ValueError if only
        some have a bias."""
        biases = [self.get(f"{module}.bias") for module in modules]
        present = [bias for bias in biases if bias is not None]
        if present and len(present) < len(modules):
            raise ValueError(f"of {', '.join(modules)} some have a bias and some have none")
        return torch.cat([self[f"{module}.weight"] for module in modules]), torch.cat(
            present
        ) if present else None

    def __getitem__(self, name: str) -> Tensor:
        return self._every[self._prefix + name]

    def __iter__(self) -> Iterator[str]:
        return (name.removeprefix(self._prefix) for name in self._every if name.startswith(self._prefix))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def head_dim(config: Any) -> int:
    """Dimensions of a head, from a config of transformers."""
    size: int = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return size


def layer_shapes(config: Any) -> dict[str, tuple[int, ...]]:
    """Shapes of one layer's weights, by their names in the layer. Raises ValueError if heads cannot share KV
    heads."""
    hidden, inter, dim = config.hidden_size, config.intermediate_size, head_dim(config)
    if config.num_attention_heads % config.num_key_value_heads:
        raise ValueError(
            f"{config.num_attention_heads} heads cannot share {config.num_key_value_heads} key-value heads"
        )
    queries, keys = config.num_attention_heads * dim, config.num_key_value_heads * dim
    into = {"self_attn.q_proj": queries, "self_attn.k_proj": keys, "self_attn.v_proj": keys}
    matrices = {
        **{name: (out, hidden) for name, out in into.items()},
        "self_attn.o_proj": (hidden, queries),
        "mlp.gate_proj": (inter, hidden),
        "mlp.up_proj": (inter, hidden),
        "mlp.down_proj": (hidden, inter),
    }
    biased: set[str] = set(into) if config.model_type == "qwen2" else set()
    if getattr(config, "attention_bias", False):
        biased |= {*into, "self_attn.o_proj"}
    if getattr(config, "mlp_bias", False):
        biased |= {name for name in matrices if name.startswith("mlp.")}
    return {
        **{f"{name}.weight": shape for name, shape in matrices.items()},
        **{f"{name}.bias": shape[:1] for name, shape in matrices.items() if name in biased},
        "input_layernorm.weight": (hidden,),
        "post_attention_layernorm.weight": (hidden,),
    }


def shapes(config: Any) -> dict[str, tuple[int, ...]]:
    """Shapes of all weights of a model, by name."""
    table = config.vocab_size, config.hidden_size
    by_name = {"model.embed_tokens.weight": table, "model.norm.weight": (config.hidden_size,)}
    if not config.tie_word_embeddings:
        by_name["lm_head.weight"] = table
    for index in range(config.num_hidden_layers):
        of_layer = layer_shapes(config).items()
        by_name.update({f"model.layers.{index}.{name}": shape for name, shape in of_layer})
    return by_name


def rotation(config: Any) -> tuple[Tensor, float]:
    """Angle per position of each rotated pair, [dim / 2], and the factor that scales the pairs."""
    rope, dim = config.rope_parameters, head_dim(config)
    if rope["rope_type"] == "default":
        return 1.0 / rope["rope_theta"] ** (torch.arange(0, dim, 2, dtype=torch.float32) / dim), 1.0
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    frequencies, scaling = ROPE_INIT_FUNCTIONS[rope["rope_type"]](config)
    return frequencies, float(scaling)


def explicit_config(raw: dict[str, Any]) -> Any:
    """A config.json as transformers' config would have it, without its classes, which take seconds to import.

    None if it lacks an entry, and so needs a default of transformers, or is of another family.
    """
    if raw.get("model_type") not in MODELS or not raw.keys() >= EXPLICIT:
        return None
    rope = raw.get("rope_parameters")
    if rope is None and "rope_theta" in raw and raw.get("rope_scaling") is None:
        rope = {"rope_type": "default", "rope_theta": raw["rope_theta"]}
    if not isinstance(rope, dict) or "rope_theta" not in rope or rope.get("rope_type") != "default":
        return None
    return SimpleNamespace(**{**raw, "rope_parameters": rope})


def windowed(config: Any) -> bool:
    """Return whether some layers see only a window of tokens, which is shorter than the model's positions."""
    window = getattr(config, "sliding_window", None)
    used = getattr(config, "use_sliding_window", True)
    layers = getattr(config, "layer_types", None) or ["sliding_attention"]
    return bool(window and used and window < config.max_position_embeddings and "sliding_attention" in layers)


@contextmanager
def checked_config() -> Iterator[None]:
    """Raises ValueError if transformers finds an entry of a wrong type in a config."""
    from huggingface_hub.errors import StrictDataclassError  # it imports an HTTP client

    try:
        yield
    except StrictDataclassError as error:
        raise ValueError(str(error)) from error


def read_family(folder: Path) -> tuple[Any, dict[str, Tensor]] | None:
    """A model's config and its float32 weights by name; None if they are not plainly of this family."""
    try:
        config = explicit_config(json.loads((folder / "config.json").read_text(encoding="utf-8")))
        if config is None:
            with checked_config():
                from transformers import AutoConfig

                config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
        rope = getattr(config, "rope_parameters", None) or {}
        plain = config.model_type in MODELS and getattr(config, "quantization_config", None) is None
        plain = plain and rope.get("rope_type") in STATIC_ROPE and not windowed(config)
        if not plain or config.hidden_act != "silu":
            return None
        stored = _stored(folder)
        expected = shapes(config)
    except (
        OSError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        ZeroDivisionError,
        SafetensorError,
    ):
        return None
    if config.tie_word_embeddings and "lm_head.weight" in stored:
        return None  # one of the two counts
    if any(name not in stored or tuple(stored[name].shape) != shape for name, shape in expected.items()):
        return None
    return config, {name: stored[name].float() for name in expected}


def _stored(folder: Path) -> dict[str, Tensor]:
    index, names = folder / "model.safetensors.index.json", ["model.safetensors"]
    if not (folder / names[0]).is_file() and index.is_file():
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    weights: dict[str, Tensor] = {}
    for name in names:
        weights.update(load_file(str(folder / name)))
    return weights


Due = tuple[Tensor, float]
"""(y, factor): factor * y is still to be added to the residual stream. The next norm does both."""


class Norm:
    """RMSNorm (arXiv 1910.07467)."""

    def __init__(self, weight: Tensor, eps: float) -> None:
        self.weight, self.eps = weight.contiguous(), eps

    def __call__(self, x: Tensor, due: Due | None = None) -> Tensor:
        """The norm of x, [n, width], to which `due` is added first, in place."""
        if due is None:
            return ops.norm(x, self.weight, self.eps)
        return ops.add_norm(x, *due, self.weight, self.eps)


@dataclass(frozen=True)
class Layer:
    """A decoder layer: attention and a gated MLP."""

    before_attention: Norm
    qkv: Linear
    out: Linear
    before_mlp: Norm
    gate_up: Linear
    down: Linear

    def __call__(
        self, x: Tensor, due: Due | None, rope: Tensor, layout: Layout, index: int, shape: Shape
    ) -> Due:
        """x: [n, hidden], the residual stream, which is overwritten. index: of the layer. Returns what is due
        to x."""
        h = self.before_attention(x, due)
        qkv = self.qkv.product(h).view(x.size(0), -1, shape.head_dim)
        attended = attend_rotated(layout, index, qkv, self.qkv.scale, rope)
        h = self.before_mlp(x, (self.out.product(attended), self.out.scale))
        h = ops.gate(self.gate_up.product(h), self.gate_up.scale)
        return self.down.product(h), self.down.scale


class LeanLlama:
    """A model of the Llama family in float32 on a CPU."""

    def __init__(self, config: Any, weights: Mapping[str, Tensor]) -> None:
        """weights: all of `shapes`, float32."""
        heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
        self._embedding = weights["model.embed_tokens.weight"]
        self.output = self._embedding if config.tie_word_embeddings else weights["lm_head.weight"]
        self.shape = Shape(
            layers=config.num_hidden_layers,
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim(config),
            vocab=len(self.output),
            max_positions=config.max_position_embeddings,
            dtype=torch.float32,
        )
        self.width = config.hidden_size
        named = Weights(weights)
        self._layers = [
            _layer(named.below(f"model.layers.{index}."), self.shape, config.rms_norm_eps)
            for index in range(self.shape.layers)
        ]
        self._adapter: Linear | None = None
        self._norm = Norm(weights["model.norm.weight"], config.rms_norm_eps)
        self._logits = Linear(self.output)
        self._rope = rotations(*rotation(config), positions=config.max_position_embeddings)

    def first(self, layers: int, adapter: Tensor | None = None) -> LeanLlama:
        """The same weights without the layers from `layers` on; with an `adapter`, [width, width], the norm
        reads x + adapter x."""
        part = copy.copy(self)
        part.shape = replace(self.shape, layers=layers)
        part._layers = self._layers[:layers]
        part._adapter = None if adapter is None else Linear(adapter)
        return part

    def forward(self, tokens: Tensor, layout: Layout, indices: Tensor | None = None) -> Tensor:
        return self.with_features(tokens, layout, indices)[0]

    def with_features(
        self, tokens: Tensor, layout: Layout, indices: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        x = F.embedding(tokens, self._embedding)  # [n, hidden]
        due: Due | None = None
        for index, layer in enumerate(self._layers):
            due = layer(x, due, self._rope, layout, index, self.shape)
        if self._adapter is not None and due is not None:
            x.add_(due[0], alpha=due[1])
            due = self._adapter.product(x), self._adapter.scale
        features = self._norm(x, due)
        return self._logits(features if indices is None else features[indices]), features


def rotations(frequencies: Tensor, scaling: float, positions: int) -> Tensor:
    """[positions, 1, dim / 2] complex: the rotation of each pair of a query or key, by position."""
    angles = torch.outer(torch.arange(positions, dtype=torch.float32), frequencies.float())
    return torch.polar(torch.full_like(angles, scaling), angles)[:, None]


def _layer(weights: Weights, shape: Shape, eps: float) -> Layer:
    return Layer(
        Norm(weights["input_layernorm.weight"], eps),
        qkv=Linear(*queries_keys_values(weights, shape)),
        out=Linear(*weights.joined("self_attn.o_proj")),
        before_mlp=Norm(weights["post_attention_layernorm.weight"], eps),
        gate_up=Linear(*weights.joined("mlp.gate_proj", "mlp.up_proj")),
        down=Linear(*weights.joined("mlp.down_proj")),
    )


def queries_keys_values(weights: Weights, shape: Shape) -> tuple[Tensor, Tensor | None]:
    """A layer's three projections as one, [queries + keys + values, hidden], and its bias.

    Rows of queries and keys are reordered so that the pairs (i, i + dim/2) of rotary embedding are adjacent.
    Both are reordered alike, so that their products, all that attention needs, stay the same.
    """
    weight, bias = weights.joined("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
    turned = shape.heads + shape.kv_heads
    place = torch.arange(turned * shape.head_dim).view(turned, 2, -1).transpose(1, 2).flatten()
    place = torch.cat((place, torch.arange(len(place), len(weight))))
    return weight[place], None if bias is None else bias[place]
