"""Any decoder-only architecture of transformers, with its attention replaced by the engine's own.

The model runs as it is on one packed row of tokens; transformers' attention interface hands each layer's
queries, keys and values to `attend`, which writes them to the engine's cache. No model is written again.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface

from specops.engine.attention import Layout, Span, attend, causal
from specops.engine.model import Shape
from specops.errors import ModelError

_NAME = "specops_tree"


def _tree_attention(
    module: torch.nn.Module,
    query: Tensor,  # [1, heads, n, head_dim]
    key: Tensor,  # [1, kv_heads, n, head_dim]
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    *,
    specops_layout: Layout,
    **_: Any,
) -> tuple[Tensor, None]:
    kv = torch.cat((key[0], value[0])).transpose(0, 1)  # [n, 2 * kv_heads, head_dim]
    layer: int = module.layer_idx  # type: ignore[assignment]
    seen = attend(specops_layout, layer, query[0].transpose(0, 1), kv, scaling)
    return seen.view(1, query.shape[2], query.shape[1], -1), None


AttentionInterface.register(_NAME, _tree_attention)


class GenericModel:
    def __init__(self, source: Any) -> None:
        config = source.config.get_text_config()
        heads = config.num_attention_heads
        self.shape = Shape(
            layers=config.num_hidden_layers,
            heads=heads,
            kv_heads=getattr(config, "num_key_value_heads", None) or heads,
            head_dim=getattr(config, "head_dim", None) or config.hidden_size // heads,
            vocab=source.get_output_embeddings().weight.shape[0],
            max_positions=config.max_position_embeddings,
            dtype=source.dtype,
        )
        source.set_attn_implementation(_NAME)
        self._source = source
        self._check()

    def _check(self) -> None:
        """An architecture that does not go through the interface would ignore the cache: find out now."""
        cache = self.shape.cache(rows=1, capacity=2)
        span = Span(0, 0, 1, torch.zeros(1, dtype=torch.int64), causal(1))
        layout = Layout([span], cache, self.shape.tile)
        try:
            self.forward(torch.zeros(1, dtype=torch.int64), layout)
        except TypeError as error:
            raise ModelError(f"could not use {type(self._source).__name__}: {error}") from error
        if not bool(cache.data[:, 0, 0].flatten(1).any(-1).all()):
            raise ModelError(
                f"could not use {type(self._source).__name__}: its layers do not attend through "
                "transformers' attention interface"
            )

    def forward(self, tokens: Tensor, layout: Layout, wanted: Tensor | None = None) -> Tensor:
        output = self._source(
            input_ids=tokens[None],
            position_ids=layout.positions[None],
            use_cache=False,
            logits_to_keep=0 if wanted is None else wanted,
            specops_layout=layout,
        )
        logits: Tensor = output.logits[0].float()
        return logits
