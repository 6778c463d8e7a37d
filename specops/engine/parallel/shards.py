"""One rank's part of a transformers model, cut by the architecture's own plan.

The plans (`base_model_tp_plan`, `base_model_pp_plan`) are transformers' data. Its code for them
(`DistributedConfig` in 5.23) is not used: its interface differs between releases, its parameters are
DTensors, and its logits go to every rank. Here a part is a slice of a weight, with a hook that adds up or
joins the ranks' results. A rank's model still runs unchanged over the engine's cache.
"""

from __future__ import annotations

import re
from typing import Any

import torch
from torch import Tensor, nn

from specops.engine.parallel.process_group import Ranks
from specops.errors import ModelError
from specops.hints import with_options

WHOLE = {"replicated_with_grad_allreduce", "embedding_rowwise"}
"""Parts that each rank holds whole: small norms, and the embedding, of which a token needs one row."""


def cut(source: Any, ranks: Ranks) -> tuple[int, int]:
    """Reduce `source` to this rank's part. Returns its number of layers, and the divisor of its heads.

    Raises ModelError if the architecture has no plan, or a plan that is not supported.
    """
    if ranks.parallel.kind == "tensor":
        cut_layers(source, ranks)
        return source.config.num_hidden_layers, ranks.size
    return deal_layers(source, ranks), 1


def _by_layers(ranks: Ranks) -> str:
    """Return the command that gives each rank whole layers instead of parts of them."""
    return with_options({"--parallel": f"pipeline:{ranks.size}"})


def cut_layers(source: Any, ranks: Ranks) -> None:
    """Tensor parallel (Megatron-LM, arXiv 1909.08053): a rank has some heads, and a part of the MLP's
    width."""
    config, name = source.config, type(source).__name__
    base: dict[str, str] = getattr(source.config, "base_model_tp_plan", None) or {}
    plan = {f"{source.base_model_prefix}.{path}": style for path, style in base.items()}
    plan |= type(source)._tp_plan or {}
    if not plan:
        raise ModelError(
            f"could not cut {name} into parts: transformers has no tensor-parallel plan for it",
            _by_layers(ranks),
        )
    for heads in (config.num_attention_heads, config.num_key_value_heads):
        if heads % ranks.size:
            raise ModelError(
                f"could not cut {name} into {ranks.size} parts: expected a number of ranks that divides its "
                f"{heads} query and key-value heads",
                hint=with_options({"--parallel": "tensor:2"}),
            )
    for path, module in source.named_modules():
        style = plan.get(re.sub(r"\.\d+\.", ".*.", path))
        if style is None or style in WHOLE:
            continue
        if not isinstance(module, nn.Linear):
            raise ModelError(
                f"could not cut {name} into parts: {path} is not a linear layer", _by_layers(ranks)
            )
        if style == "colwise":
            _keep_rows(module, ranks)
        elif style == "rowwise":
            _keep_columns(module, ranks)
        elif style in ("colwise_gather_output", "colwise_rep"):
            if module.weight.shape[0] % ranks.size == 0:  # else each computes all of it
                _keep_rows(module, ranks)
                module.register_forward_hook(lambda module, inputs, y: ranks.concatenate(y))
        else:
            raise ModelError(
                f"could not cut {name} into parts: {path} is to be cut {style}", _by_layers(ranks)
            )


def _keep_rows(module: nn.Linear, ranks: Ranks) -> None:
    module.weight = _parameter(_part(module.weight, 0, ranks))
    if module.bias is not None:
        module.bias = _parameter(_part(module.bias, 0, ranks))


def _keep_columns(module: nn.Linear, ranks: Ranks) -> None:
    """Hold some columns. The result is then a summand of the whole; a bias is added once, to the sum."""
    module.weight = _parameter(_part(module.weight, 1, ranks))
    module.register_buffer("whole_bias", module.bias, persistent=False)
    module.register_parameter("bias", None)

    def add_up(module: Any, inputs: Any, y: Tensor) -> Tensor:
        total = ranks.all_reduce(y)
        return total if module.whole_bias is None else total + module.whole_bias

    module.register_forward_hook(add_up)


def _part(weight: Tensor, dim: int, ranks: Ranks) -> Tensor:
    if weight.shape[dim] % ranks.size:
        raise ModelError(
            f"could not cut a weight of the shape {tuple(weight.shape)} into {ranks.size} parts: expected a "
            "number of ranks that divides it",
            hint=with_options({"--parallel": "tensor:2"}),
        )
    return weight.chunk(ranks.size, dim)[ranks.rank].clone()


def _parameter(data: Tensor) -> nn.Parameter:
    return nn.Parameter(data, requires_grad=False)


def deal_layers(source: Any, ranks: Ranks) -> int:
    """Pipeline parallel: each rank has some of the layers. Returns their number.

    The first are rank 1's and the last rank 0's, which so has the logits. A stage receives the hidden states
    before its first layer. One batch is in the pipeline at a time: this spreads memory, not work.
    """
    body, name = source.base_model, type(source).__name__
    plan = list(getattr(source.config, "base_model_pp_plan", None) or {})
    layer_lists = [
        index for index, path in enumerate(plan) if isinstance(getattr(body, path, None), nn.ModuleList)
    ]
    if len(layer_lists) != 1 or plan[: layer_lists[0]] != ["embed_tokens"] or len(plan) != layer_lists[0] + 2:
        raise ModelError(
            f"could not divide the layers of {name}: transformers has no pipeline plan for it from an "
            "embedding over layers to a norm; one of the Llama family has one",
            hint=with_options({"--parallel": None}),
        )
    path, norm = plan[layer_lists[0]], plan[layer_lists[0] + 1]
    layers = getattr(body, path)
    stage, last = (ranks.rank - 1) % ranks.size, ranks.size - 1
    if len(layers) < ranks.size:
        raise ModelError(
            f"could not divide {len(layers)} layers among {ranks.size} ranks: expected fewer ranks",
            with_options({"--parallel": f"pipeline:{len(layers)}"}),
        )
    bounds = [len(layers) * place // ranks.size for place in range(ranks.size + 1)]
    start, stop = bounds[stage], bounds[stage + 1]
    for layer in layers[start:stop]:
        for module in layer.modules():
            if hasattr(module, "layer_idx"):
                module.layer_idx -= start  # the engine's cache has the rank's own layers
    setattr(body, path, nn.ModuleList(layers[start:stop]))
    if stage > 0:
        width, dtype = body.embed_tokens.weight.shape[1], source.dtype
        body.embed_tokens = _Receive((ranks.rank - 1) % ranks.size, width, dtype, ranks)
    if stage < last:
        setattr(body, norm, _Send((ranks.rank + 1) % ranks.size, ranks))
        source.set_output_embeddings(_Nothing())
    return stop - start


class _Receive(nn.Module):
    """Receives hidden states, in place of an embedding."""

    def __init__(self, source: int, width: int, dtype: torch.dtype, ranks: Ranks) -> None:
        super().__init__()
        self._source, self._width, self._dtype, self._ranks = source, width, dtype, ranks

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = torch.empty(*tokens.shape, self._width, dtype=self._dtype, device=tokens.device)
        return self._ranks.receive(hidden, self._source)


class _Send(nn.Module):
    """Sends hidden states, in place of the norm after the layers."""

    def __init__(self, to: int, ranks: Ranks) -> None:
        super().__init__()
        self._to, self._ranks = to, ranks

    def forward(self, hidden: Tensor) -> Tensor:
        self._ranks.send(hidden, self._to)
        return hidden


class _Nothing(nn.Module):
    """No logits, in place of the output layer."""

    def forward(self, hidden: Tensor) -> Tensor:
        return hidden[..., :0]
