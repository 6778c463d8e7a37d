"""A draft head that reads the target's features: EAGLE (arXiv 2401.15077), in its authors' checkpoint form.

One decoder layer without a norm in front. For the token after position i it reads that token's embedding
and the target's feature at i, what the target's output layer reads there, and gives a guess at the feature
at i + 1, from which the target's own output layer predicts. Fed its own guesses, it drafts deeper.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors import SafetensorError, safe_open
from torch import Tensor

from specops.engine.attention import Layout
from specops.engine.lean import Norm, lean_layer, rotations
from specops.engine.linear import Linear
from specops.engine.model import FeatureModel, Shape
from specops.errors import ModelError

WEIGHTS = "model.safetensors"
FUSE = "fc.weight"
"""[hidden, 2 * hidden], over the embedding and the feature side by side: what tells a head from a model."""


def is_head(folder: Path) -> bool:
    try:
        with safe_open(folder / WEIGHTS, framework="pt") as weights:
            return FUSE in list(weights.keys())
    except (OSError, SafetensorError):
        return False  # load_model says what is wrong


class Head:
    def __init__(self, folder: Path, target: FeatureModel) -> None:
        """Raises ModelError where the folder is damaged or the head is another target's."""
        from transformers import LlamaConfig
        from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRotaryEmbedding

        try:
            with safe_open(folder / WEIGHTS, framework="pt") as file:
                weights = {name: file.get_tensor(name).float() for name in list(file.keys())}
            config = LlamaConfig(**json.loads((folder / "config.json").read_text(encoding="utf-8")))
            layer = LlamaDecoderLayer(config, 0)
            prefix = "layers.0."
            found = {k.removeprefix(prefix): v for k, v in weights.items() if k.startswith(prefix)}
            lacking = layer.load_state_dict(found, strict=False).missing_keys
            if set(lacking) - {"input_layernorm.weight"}:
                raise KeyError(f"the weights {', '.join(sorted(lacking))} are missing")
            fuse, embedding = weights[FUSE], weights["embed_tokens.weight"]
        except (OSError, SafetensorError, ValueError, KeyError, TypeError, RuntimeError) as error:
            reason = str(error).partition("\n")[0]
            raise ModelError(f"could not load a draft head from {folder}: {reason}") from error
        layer.eval().requires_grad_(False)
        width = embedding.shape[1]
        self.shape = Shape(
            layers=1,
            heads=config.num_attention_heads,
            kv_heads=config.num_key_value_heads,
            head_dim=config.head_dim,
            vocab=embedding.shape[0],
            max_positions=config.max_position_embeddings,
            dtype=torch.float32,
        )
        if self.shape.vocab != target.shape.vocab or width != target.width:
            raise ModelError(
                f"could not pair the draft head {folder} with this target: it is for {self.shape.vocab} "
                f"tokens and features of {width}, not for {target.shape.vocab} and {target.width}",
                hint="a head is trained for one target; take that one's",
            )
        self._embedding = embedding
        self._fuse = Linear(fuse)
        norm = Norm(layer.post_attention_layernorm.weight, config.rms_norm_eps)
        self._layer = lean_layer(layer.self_attn, layer.mlp, self.shape, None, norm)
        rotary = LlamaRotaryEmbedding(config)
        self._rope = rotations(rotary.inv_freq, config.max_position_embeddings, rotary.attention_scaling)
        self.logits = Linear(target.output.float())  # [n, hidden] features -> [n, vocab]

    def forward(self, tokens: Tensor, features: Tensor, layout: Layout) -> Tensor:
        """tokens [n], features [n, hidden] of the positions before them -> guesses at theirs, [n, hidden]."""
        x = self._fuse(torch.cat((F.embedding(tokens, self._embedding), features), -1))
        return self._layer(x, self._rope[layout.positions], layout, 0, self.shape)
