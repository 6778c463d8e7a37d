"""Any decoder-only architecture of transformers, with its attention replaced by the engine's own.

The model runs as it is on one packed row of tokens; transformers' attention interface hands each layer's
queries, keys and values to `attend`, which writes them to the engine's cache. No model is written again.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface

from specops.engine.attention import Layout, Span, attend, causal
from specops.engine.cache import CPU
from specops.engine.limits import Probe, close
from specops.engine.model import Shape
from specops.engine.ranks import Ranks
from specops.engine.shards import cut
from specops.errors import ModelError

_NAME = "specops_tree"
_HINT = "serve it with vLLM, or take a decoder-only model with plain attention"


_POSITIONS = ("position_ids", "cache_position")
"""Tensors that an attention may be given beside queries, keys and values, and that change nothing in it."""


def _tree_attention(
    module: torch.nn.Module,
    query: Tensor,  # [1, heads, n, head_dim]
    key: Tensor,  # [1, kv_heads, n, head_dim]
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    *,
    specops_layout: Layout,
    softcap: float | None = None,
    **more: Any,
) -> tuple[Tensor, None]:
    if softcap is not None:
        raise ValueError("it caps its attention scores")
    if attention_mask is not None:
        raise ValueError("it adds to its attention scores, or hides tokens, by itself")
    if unknown := [
        name for name, value in more.items() if isinstance(value, Tensor) and name not in _POSITIONS
    ]:
        raise ValueError(f"its attention takes {', '.join(unknown)}")
    kv = torch.cat((key[0], value[0])).transpose(0, 1)  # [n, 2 * kv_heads, head_dim]
    layer: int = module.layer_idx  # type: ignore[assignment]
    seen = attend(specops_layout, layer, query[0].transpose(0, 1), kv, scaling)
    return seen.view(1, query.shape[2], query.shape[1], -1), None


AttentionInterface.register(_NAME, _tree_attention)


class GenericModel:
    def __init__(
        self,
        source: Any,
        device: torch.device = CPU,
        *,
        kernel: bool = False,
        ranks: Ranks | None = None,
    ) -> None:
        """ranks: of which this one runs its part alone.

        Raises ModelError where the result would not be the model's own.
        """
        name = type(source).__name__
        self._ranks = ranks
        self._source = source
        self._features: Tensor
        try:
            self.shape = replace(_shape(source), device=device, kernel=kernel)
            if ranks is None:
                source.to(device)
            self.output = source.get_output_embeddings().weight
            self.width = self.output.shape[1]
            probe = Probe(self.shape.max_positions, self.shape.vocab)
            own = probe.own(source).to(device)
            if ranks is not None:
                layers, parts = cut(source, ranks)  # of the whole, which lies in host memory until then
                source.to(device)
                whole = self.shape
                heads, kv_heads = whole.heads // parts, whole.kv_heads // parts
                self.shape = replace(whole, layers=layers, heads=heads, kv_heads=kv_heads)
            source.get_output_embeddings().register_forward_pre_hook(self._keep_features)
            source.set_attn_implementation(_NAME)
            found = probe.run(source, self._in_two_parts)
        except (AttributeError, RuntimeError, TypeError, ValueError) as error:
            reason = str(error).partition("\n")[0]
            raise ModelError(f"could not run {name} over the engine's cache: {reason}", _HINT) from error
        # A stage of a pipeline other than the last has no logits, and rank 0 looks at them for all.
        # Windows, biases, sinks or caps that the interface does not see would change the output silently.
        if found.numel() and not close(found, own, source.dtype):
            raise ModelError(
                f"could not run {name} over the engine's cache: its logits differ from its own attention's",
                _HINT,
            )

    def _in_two_parts(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """[n, V] logits; the second part sees the first one only through the cache."""
        n = len(tokens)
        cache = self.shape.cache(rows=1, capacity=n)
        logits = []
        for start, stop in pairwise((0, n // 2, n)):
            span = Span(0, start, stop - start, positions[start:stop], causal(stop - start))
            logits.append(self.forward(tokens[start:stop], Layout([span], cache, self.shape.tile)))
        return torch.cat(logits)

    def forward(self, tokens: Tensor, layout: Layout, wanted: Tensor | None = None) -> Tensor:
        device = self.shape.device
        output = self._source(
            input_ids=tokens[None].to(device),
            position_ids=layout.positions[None],
            use_cache=False,
            logits_to_keep=0 if wanted is None else wanted.to(device),
            specops_layout=layout,
        )
        logits: Tensor = output.logits[0].float()
        return logits

    def with_features(
        self, tokens: Tensor, layout: Layout, wanted: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        logits = self.forward(tokens, layout)  # of all, so that the output layer reads all
        features = self._features
        if self._ranks is not None and self._ranks.parallel.kind == "pipeline":
            features = self._ranks.from_first(features.contiguous())
        return logits if wanted is None else logits[wanted.to(logits.device)], features

    def _keep_features(self, module: torch.nn.Module, inputs: tuple[Tensor, ...]) -> None:
        self._features = inputs[0].flatten(0, -2).float()  # [1, n, width] or [n, width]


def _shape(source: Any) -> Shape:
    config = source.config.get_text_config()
    heads = config.num_attention_heads
    return Shape(
        layers=config.num_hidden_layers,
        heads=heads,
        kv_heads=getattr(config, "num_key_value_heads", None) or heads,
        head_dim=getattr(config, "head_dim", None) or config.hidden_size // heads,
        vocab=source.get_output_embeddings().weight.shape[0],
        max_positions=config.max_position_embeddings,
        dtype=source.dtype,
    )
