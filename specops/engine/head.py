"""A draft head that reads the target's features: EAGLE (arXiv 2401.15077), in its authors' checkpoint form.

One decoder layer without a norm in front. For the token after position i it reads that token's embedding
and the target's feature at i, what the target's output layer reads there, and gives a guess at the feature
at i + 1, from which the target's own output layer predicts. Fed its own guesses, it drafts deeper.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from specops.engine import compiled
from specops.engine.attention import SHORT, Layout, Span, attend_rotated
from specops.engine.cache import KVCache
from specops.engine.family import Weights, as_told, checked_config, head_dim, layer_shapes, rotation
from specops.engine.lean import Norm, queries_keys_values, rotations
from specops.engine.linear import Linear
from specops.engine.model import FeatureModel, Shape, reason_of
from specops.engine.one_call import EaglePasses, Fed, Quantised
from specops.engine.token_table import TokenTable
from specops.errors import ModelError

WEIGHTS = "model.safetensors"
FUSE = "fc.weight"
"""[hidden, 2 * hidden], over the embedding and the feature side by side: what tells a head from a model."""
FUSE_BIAS = "fc.bias"
"""[hidden], which some of the authors' heads have."""


class Head:
    def __init__(self, folder: Path, target: FeatureModel) -> None:
        """Raises ModelError where the folder is damaged or the head is another target's."""
        try:
            with safe_open(folder / WEIGHTS, framework="pt") as file:
                weights = {name: file.get_tensor(name).float() for name in list(file.keys())}
            config = _config(json.loads((folder / "config.json").read_text(encoding="utf-8")))
            if config.hidden_act != "silu":
                raise ValueError(f"its activation is {config.hidden_act}, not silu")
            layer = _layer(Weights(weights).below("layers.0."), layer_shapes(config))
            fuse, embedding = weights[FUSE], weights["embed_tokens.weight"]
            width = config.hidden_size
            if fuse.shape != (width, 2 * width) or embedding.shape != (len(embedding), width):
                shapes = f"{tuple(fuse.shape)} and {tuple(embedding.shape)}"
                raise ValueError(f"{FUSE} and embed_tokens.weight are {shapes}, and its width is {width}")
            turned = rotation(config)
        except (
            OSError,
            SafetensorError,
            ValueError,
            KeyError,
            TypeError,
            AttributeError,
            ZeroDivisionError,
            RuntimeError,
        ) as error:
            raise ModelError(f"could not load a draft head from {folder}: {reason_of(error)}") from error
        self.shape = Shape(
            layers=1,
            heads=config.num_attention_heads,
            kv_heads=config.num_key_value_heads,
            head_dim=head_dim(config),
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
        self._width = width
        of_feature = self._enter_with(layer, fuse, weights.get(FUSE_BIAS), embedding)
        out, gate_up = layer.joined("self_attn.o_proj"), layer.joined("mlp.gate_proj", "mlp.up_proj")
        down, output = layer.joined("mlp.down_proj"), target.output.float()
        self._out, self._gate_up, self._down = Linear(*out), Linear(*gate_up), Linear(*down)
        self._norm = Norm(layer["post_attention_layernorm.weight"], config.rms_norm_eps)
        self._rope = rotations(*turned, positions=config.max_position_embeddings)
        self.logits = Linear(output)  # [n, hidden] features -> [n, vocab]
        self._in_one_call: EaglePasses | None = None
        if all(bias is None for _, bias in (out, gate_up, down)):
            before_keys = self._width + self.shape.heads * self.shape.head_dim
            entered = of_feature[:before_keys], of_feature[before_keys:]
            small = Quantised.of_small(*entered, out[0], gate_up[0], down[0], output)
            if small is not None:
                kv_heads, norm, table = self.shape.kv_heads, self._norm, self._of_token.rows
                rope, dim = self._rope, self.shape.head_dim
                self._in_one_call = EaglePasses(small, norm.weight, norm.eps, rope, kv_heads, dim, table)

    def _enter_with(
        self, layer: Weights, fuse: Tensor, fuse_bias: Tensor | None, embedding: Tensor
    ) -> Tensor:
        """Nothing stands between fc and the projections: one matrix does both, and of tokens a table.

        Returns what it does to features.
        """
        weight, bias = queries_keys_values(layer, self.shape)
        behind = torch.cat((torch.eye(self._width), weight))
        whole = behind @ fuse  # [hidden + q, k and v, 2 * hidden]
        self._of_feature = Linear(halved(whole[:, self._width :]))
        if bias is not None:
            bias = torch.cat((torch.zeros(self._width), bias))
        if fuse_bias is not None:
            bias = behind @ fuse_bias + (0 if bias is None else bias)
        self._of_token = TokenTable(embedding, whole[:, : self._width], bias)
        return whole[:, self._width :]

    def draft(
        self, tokens: list[int], features: Tensor, spans: list[Span], cache: KVCache, wanted: list[int]
    ) -> tuple[Tensor, Tensor]:
        """Of the `wanted` places in `tokens`, ascending, guesses [wanted, hidden] and [wanted, V] logits.

        features: [n, hidden] of the positions before the tokens. spans: as they follow each other in
        `tokens`; where there is one, what is wanted of it is all, or its last token.
        """
        fed = torch.tensor(tokens)
        if len(spans) == 1 and len(wanted) == 1 and len(tokens) <= SHORT and self._in_one_call is not None:
            return self._in_one_call.guess(self._fed(fed, features, spans[0], cache))
        layout = Layout(spans, cache, self.shape.tile)
        rows = None if len(wanted) == len(tokens) else torch.tensor(wanted, dtype=torch.int64)
        guessed = self.forward(fed, features, layout, rows)
        return guessed, self.logits(guessed)

    def chains(self, count: int) -> bool:
        """Whether a chain after `count` tokens can be one call."""
        return self._in_one_call is not None and self._in_one_call.draws and count <= SHORT

    def chain(
        self,
        tokens: list[int],
        features: Tensor,
        span: Span,
        cache: KVCache,
        dice: list[float],
        *,
        temperature: float,
        worth: float,
    ) -> tuple[list[int], Tensor]:
        """A chain of guesses after the last of `tokens`, in one call (EaglePasses.chain), where it `chains`
        so many. The cache needs room for the tokens, and a slot less than there are dice. span: causal."""
        assert self._in_one_call is not None
        fed = self._fed(torch.tensor(tokens), features, span, cache)
        return self._in_one_call.chain(fed, dice, temperature=temperature, worth=worth)

    def _fed(self, tokens: Tensor, features: Tensor, span: Span, cache: KVCache) -> Fed:
        row = cache.layers[0][span.row]
        return Fed(self._of_token(tokens), features, span.positions, row, span.start, span.mask.sees)

    def forward(
        self, tokens: Tensor, features: Tensor, layout: Layout, wanted: Tensor | None = None
    ) -> Tensor:
        """tokens [n], features [n, hidden] of the positions before them -> guesses at theirs, [n, hidden], or
        at the `wanted` ones only: of the others keys and values alone are made."""
        of_feature = self._of_feature
        y = torch.add(self._of_token(tokens), of_feature.product(features), alpha=of_feature.scale)
        x, qkv = y[:, : self._width].contiguous(), y[:, self._width :].contiguous()
        seen = attend_rotated(layout, 0, qkv.view(len(y), -1, self.shape.head_dim), 1.0, self._rope)
        if wanted is not None:
            x, seen = x[wanted], seen[wanted]
        h = self._norm(x, (self._out.product(seen), self._out.scale))
        h = compiled.gate(self._gate_up.product(h), self._gate_up.scale)
        return torch.add(x, self._down.product(h), alpha=self._down.scale)


def _config(told: dict[str, Any]) -> Any:
    config = as_told(told)
    if config is None:
        with checked_config():
            from transformers import LlamaConfig

            config = LlamaConfig(**told)
    return config


def _layer(found: Weights, wanted: dict[str, tuple[int, ...]]) -> Weights:
    """Its weights. KeyError where some are missing, ValueError where one has another shape."""
    lacking = sorted(name for name in wanted if name not in found and name != "input_layernorm.weight")
    if lacking:
        raise KeyError(f"the weights {', '.join(lacking)} are missing")
    for name, shape in wanted.items():
        if name in found and tuple(found[name].shape) != shape:
            raise ValueError(f"{name} is {tuple(found[name].shape)}, and its config makes it {shape}")
    return Weights({name: found[name] for name in wanted if name in found})


def halved(weight: Tensor) -> Tensor:
    """Rounded to what `Linear` can keep in half the bytes. A draft may be a little off."""
    up = 2.0 ** (14 - math.frexp(float(weight.abs().max()))[1])  # float16 has no small exponents to speak of
    return (weight * up).half().float() / up
