"""Any decoder-only architecture of transformers, with its attention replaced by the engine's own.

The model runs unchanged on one packed row of tokens. transformers' attention interface hands each layer's
queries, keys and values to `attend`, which writes them to the engine's cache.

On loading, its logits over this cache are compared with its own attention's. Some layers see only a window
of tokens, or a chunk. Which ones, and how many tokens, is what their own masks show: these are evaluated at
all kinds of distances. What a model limits only after thousands of tokens (windows, chunks, frequencies and
scales that change with the length) is compared without a pass that long: its limits are lowered for a short
pass, and one token of a short pass is at the last position.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import AttentionInterface
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

from specops.engine.attention import CPU, Layout, Limit, Scores, Span, attend, causal
from specops.engine.models.model import Shape
from specops.engine.parallel.process_group import Ranks
from specops.engine.parallel.shards import cut
from specops.engine.rng import all_finite
from specops.errors import ModelError

_NAME, _MEASURING = "specops_tree", "specops_shapes"
_OTHERS = "a decoder-only model with plain attention can be run; vLLM serves others"


_POSITIONS = ("position_ids", "cache_position")
"""Tensors beside queries, keys and values that change nothing in an attention."""


def _tree_attention(
    module: torch.nn.Module,
    query: Tensor,  # [1, heads, n, head_dim]
    key: Tensor,  # [1, kv_heads, n, head_dim]
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    *,
    softcap: float | None = None,
    s_aux: Tensor | None = None,  # [heads]
    **more: Any,
) -> tuple[Tensor, None]:
    """transformers' attention function. Raises ValueError for an argument that `attend` does not model."""
    if attention_mask is not None:
        raise ValueError("it adds to its attention scores, or hides tokens, by itself")
    if unknown := [
        name for name, value in more.items() if isinstance(value, Tensor) and name not in _POSITIONS
    ]:
        raise ValueError(f"its attention takes {', '.join(unknown)}")
    layout, limits = _pass.get()
    layer: int = module.layer_idx  # type: ignore[assignment]
    kv_heads, dim, width = layout.layer(layer).shape[2] // 2, layout.layer(layer).shape[3], value.shape[3]
    if scaling is None:
        scaling = query.shape[3] ** -0.5
    if key.shape[1] < kv_heads:  # in another layer they are more
        key, value = (kv.repeat_interleave(kv_heads // key.shape[1], 1) for kv in (key, value))
    query, key, value = (_wide(states, dim) for states in (query, key, value))
    kv = torch.cat((key[0], value[0])).transpose(0, 1)  # [n, 2 * kv_heads, head_dim]
    scores = None if softcap is None and s_aux is None else Scores(softcap, s_aux)
    q = query[0].transpose(0, 1)
    attended = attend(layout, layer, q, kv, scaling, limit=limits.get(module), scores=scores)
    return attended.view(1, query.shape[2], query.shape[1], -1)[..., :width], None


def _wide(vectors: Tensor, dim: int) -> Tensor:
    """Vectors with zeros up to `dim`, which change no product."""
    return vectors if vectors.shape[-1] == dim else F.pad(vectors, (0, dim - vectors.shape[-1]))


def _measuring_attention(
    module: torch.nn.Module, query: Tensor, key: Tensor, value: Tensor, *positional: Any, **more: Any
) -> tuple[Tensor, None]:
    """transformers' attention function that only notes the shapes of what it gets."""
    _measured.get()[module.layer_idx] = query.shape, key.shape, value.shape  # type: ignore[index]
    return query.new_zeros(1, query.shape[2], query.shape[1], value.shape[3]), None


AttentionInterface.register(_NAME, _tree_attention)
AttentionInterface.register(_MEASURING, _measuring_attention)

Limits = dict[torch.nn.Module, Limit]
"""What limits the attention of a module; others are not limited."""

_measured: ContextVar[dict[int, tuple[torch.Size, ...]]] = ContextVar("_measured")
"""Shapes of the queries, keys and values of each layer, [1, heads, n, dim]."""

_pass: ContextVar[tuple[Layout, Limits]] = ContextVar("_pass")
"""The pass that runs in this thread: not every architecture hands arguments on to its attention."""


class _Places:
    """Stands in for a cache of transformers, for layers that count on from its length: each token then has
    its own position. It stores nothing."""

    def __init__(self, positions: Tensor) -> None:
        """positions: [1, n] int64."""
        self._before = positions[0] - torch.arange(positions.shape[1], device=positions.device)

    def get_seq_length(self, layer: int = 0) -> Tensor:
        return self._before

    def update(self, keys: Tensor, values: Tensor, layer: int, *more: Any) -> tuple[Tensor, Tensor]:
        return keys, values


def _count_positions(source: Any) -> None:
    """Let Llama 4's layers scale their queries by position: without a cache they count places in a pass."""

    def place(module: Any, positional: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, Any]:
        return positional, named | {"past_key_values": _Places(named["position_ids"])}

    for module in source.modules():
        if getattr(getattr(module, "self_attn", None), "attn_temperature_tuning", False):
            module.register_forward_pre_hook(place, with_kwargs=True)


class GenericModel:
    """A model of transformers over the engine's cache."""

    def __init__(
        self,
        source: Any,
        device: torch.device = CPU,
        *,
        kernel: bool = False,
        ranks: Ranks | None = None,
    ) -> None:
        """ranks: run the part of this process only. Raises ModelError if the output would not be the model's
        own."""
        name = type(source).__name__
        self._ranks = ranks
        self._source = source
        self._features: Tensor
        self.limits: Limits = {}
        """What limits the attention of its modules."""
        try:
            self.shape = replace(_shape(source), device=device, kernel=kernel)
            if ranks is None:
                source.to(device)
            self.output = source.get_output_embeddings().weight
            self.width = self.output.shape[1]
            _count_positions(source)
            probe = Probe(self.shape.max_positions, self.shape.vocab)
            own = probe.own(source)
            if ranks is not None:
                layers, parts = cut(source, ranks)  # of the whole, which lies in host memory until then
                source.to(device)
                whole = self.shape
                heads, kv_heads = whole.heads // parts, whole.kv_heads // parts
                self.shape = replace(whole, layers=layers, heads=heads, kv_heads=kv_heads)
            source.get_output_embeddings().register_forward_pre_hook(self._keep_features)
            source.set_attn_implementation(_NAME)
            logits = probe.run(source, self._in_two_parts, own.lowered, own.limits)
        except (AttributeError, RuntimeError, TypeError, ValueError) as error:
            reason = str(error).partition("\n")[0]
            if isinstance(error, AttributeError | TypeError):
                reason = f"its code needs more than tokens and positions ({reason})"
            raise ModelError(f"could not run {name} over the engine's cache: {reason}; {_OTHERS}") from error
        # A stage of a pipeline other than the last has no logits, and rank 0 looks at them for all.
        # Windows, biases, sinks or caps that the interface does not see would change the output silently.
        if logits.numel() and not close(logits, own.logits.to(device), source.dtype):
            raise ModelError(
                f"could not run {name} over the engine's cache: its logits differ from its own attention's; "
                f"{_OTHERS}",
            )

    def _in_two_parts(self, tokens: Tensor, positions: Tensor, limits: Limits) -> Tensor:
        """[n, V] logits of two passes within `limits`; the second sees the first only through the cache.

        Logits are wanted in reverse order: a model that runs its last layers for those tokens only, or takes
        no such wish, is found out.
        """
        self.limits = limits
        n = len(tokens)
        cache = self.shape.cache(rows=1, capacity=n)
        logits = []
        for start, stop in pairwise((0, n // 2, n)):
            span = Span(0, start, stop - start, positions[start:stop], causal(stop - start))
            layout, last_first = Layout([span], cache, self.shape.tile), torch.arange(stop - start).flip(0)
            logits.append(self.forward(tokens[start:stop], layout, last_first).flip(0))
        return torch.cat(logits)

    def forward(self, tokens: Tensor, layout: Layout, indices: Tensor | None = None) -> Tensor:
        device = self.shape.device
        running = _pass.set((layout, self.limits))
        try:
            output = self._source(
                input_ids=tokens[None].to(device),
                position_ids=layout.positions[None],
                use_cache=False,
                logits_to_keep=0 if indices is None else indices.to(device),
            )
        finally:
            _pass.reset(running)
        logits: Tensor = output.logits[0].float()
        return logits

    def with_features(
        self, tokens: Tensor, layout: Layout, indices: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        logits = self.forward(tokens, layout)  # of all, so that the output layer reads all
        features = self._features
        if self._ranks is not None and self._ranks.parallel.kind == "pipeline":
            features = self._ranks.broadcast_tensor(features.contiguous())
        return logits if indices is None else logits[indices.to(logits.device)], features

    def _keep_features(self, module: torch.nn.Module, inputs: tuple[Tensor, ...]) -> None:
        self._features = inputs[0].flatten(0, -2).float()  # [1, n, width] or [n, width]


def _shape(source: Any) -> Shape:
    """The shape of what the layers hand to their attention: configs have many names for it, and latent
    attention (MLA) has keys that are wider than values. Raises ValueError if heads cannot be shared."""
    config = source.config.get_text_config()
    before = config._attn_implementation
    shapes_by_layer: dict[int, tuple[torch.Size, ...]] = {}
    running = _measured.set(shapes_by_layer)
    try:
        source.set_attn_implementation(_MEASURING)
        token = torch.zeros(1, 1, dtype=torch.int64, device=source.device)
        source(input_ids=token, position_ids=token, use_cache=False)
    finally:
        _measured.reset(running)
        source.set_attn_implementation(before)
    if not shapes_by_layer:
        raise ValueError("it does not take its attention from transformers' interface")
    heads = {query[1] for query, _, _ in shapes_by_layer.values()}
    kv_heads = {key[1] for _, key, _ in shapes_by_layer.values()}
    if len(heads) > 1 or any(max(heads) % most or max(kv_heads) % most for most in kv_heads):
        raise ValueError(f"its layers have {sorted(heads)} heads and {sorted(kv_heads)} key-value heads")
    return Shape(
        layers=max(shapes_by_layer) + 1,
        heads=max(heads),
        kv_heads=max(kv_heads),
        head_dim=max(shape[3] for shapes in shapes_by_layer.values() for shape in shapes),
        vocab=source.get_output_embeddings().weight.shape[0],
        max_positions=_steady_positions(config),
        dtype=source.dtype,
    )


def _steady_positions(config: Any) -> int:
    """Positions up to which rotary frequencies do not change with the longest sequence of a batch: else a
    sequence's output would depend on the others, and on what was cached before the change."""
    rope = getattr(config, "rope_parameters", None) or {}
    kinds = [rope, *(kind for kind in rope.values() if isinstance(kind, dict))]  # or one for each layer type
    last: int = config.max_position_embeddings
    changes: list[int] = [
        kind.get("original_max_position_embeddings", last)
        for kind in kinds
        if kind.get("rope_type") == "longrope"
    ]
    return min([last, *changes])


EAGER = "eager"
TOKENS, LOWERED = 16, 4
"""Tokens of a probe, and the value that a limit is lowered to."""

_LIMIT = re.compile(r"window|chunk|span|floor_scale|block_size|original_max_position")


@dataclass(frozen=True)
class ObservedAttention:
    """A probe of a model's own attention: logits, and the limits of each attention module."""

    logits: Tensor  # as of `Probe.run`
    lowered: Limits  # while the model's limits are lowered
    limits: Limits


class Probe:
    """A few tokens: at adjacent positions, and with the last one at the model's last position."""

    def __init__(self, positions: int, vocabulary: int) -> None:
        self.tokens = torch.arange(min(TOKENS, positions)) % vocabulary
        self.near = torch.arange(len(self.tokens))
        self.far = self.near.clone()
        self.far[-1] = positions - 1
        self._positions = positions

    def run(
        self,
        source: Any,
        forward: Callable[[Tensor, Tensor, Limits], Tensor],
        lowered: Limits,
        limits: Limits,
    ) -> Tensor:
        """[2n, V] logits of `forward`, a function of tokens, positions and limits: first with lowered limits
        and adjacent positions, then with the model's own limits and the last position."""
        with _lowered(source, self._positions):
            near = forward(self.tokens, self.near, lowered)
        return torch.cat((near, forward(self.tokens, self.far, limits)))

    def own(self, source: Any) -> ObservedAttention:
        """The same with the model's own eager attention, in float32.

        Raises ValueError if a mask hides earlier tokens otherwise than a `Limit`, or if a token changes the
        logits before it.
        """

        def forward(tokens: Tensor, positions: Tensor, limits: Limits) -> Tensor:
            with _watched_masks(source, self._positions, limits):
                logits: Tensor = source(
                    input_ids=tokens[None].to(source.device),
                    position_ids=positions[None].to(source.device),
                    attention_mask=torch.ones_like(tokens)[None].to(source.device),  # they are one sequence
                    use_cache=False,
                    logits_to_keep=torch.arange(len(tokens), device=source.device),  # a number may cut masks
                ).logits[0]
            return logits.float()

        lowered: Limits = {}
        limits: Limits = {}
        logits, n = self.run(source, forward, lowered, limits), len(self.tokens)
        near = forward(self.tokens, self.near, limits)[:-1]
        if not close(logits[n:-1], near, source.dtype):
            raise ValueError("its logits change with the position of a later token")
        return ObservedAttention(logits, lowered, limits)


def close(logits: Tensor, own: Tensor, dtype: torch.dtype) -> bool:
    """Return whether logits are finite and agree within the rounding of `dtype`."""
    if not all_finite(own):  # an infinite tolerance would accept everything
        return False
    tolerance = torch.finfo(dtype).eps ** 0.5 * float(own.abs().max())
    return torch.allclose(logits, own, rtol=0, atol=tolerance)


@contextmanager
def _watched_masks(source: Any, positions: int, limits: Limits) -> Iterator[None]:
    """Write the limit of each layer's mask to `limits`.

    Raises ValueError if a layer gets a mask that is not a `Limit`'s. A model may make masks that none of its
    layers uses.
    """
    right = ALL_MASK_ATTENTION_FUNCTIONS[EAGER]
    masks: list[tuple[Tensor, Limit | ValueError | None]] = []

    def watched(*positional: Any, mask_function: Callable[..., Any], **more: Any) -> Any:
        mask = right(*positional, mask_function=mask_function, **more)
        try:
            masks.append((mask, _limit(mask_function, more.get("local_size"), positions)))
        except ValueError as error:
            masks.append((mask, error))
        return mask

    def look(module: torch.nn.Module, positional: tuple[Any, ...], named: dict[str, Any]) -> None:
        for mask, limit in masks:
            if any(value is mask for value in (*positional, *named.values())):
                if isinstance(limit, ValueError):
                    raise limit
                if limit is not None:
                    limits[module] = limit

    layers = [module for module in source.modules() if hasattr(module, "layer_idx")]
    hooks = [layer.register_forward_pre_hook(look, with_kwargs=True) for layer in layers]
    ALL_MASK_ATTENTION_FUNCTIONS[EAGER] = watched
    try:
        yield
    finally:
        del ALL_MASK_ATTENTION_FUNCTIONS[EAGER]
        for hook in hooks:
            hook.remove()


def _limit(mask_function: Callable[..., Any], size: int | None, positions: int) -> Limit | None:
    """The limit that hides what a mask hides, for each of the tokens that were tried: at distances of powers
    of two and of multiples of `size`, and around them; None if it hides no earlier token.

    size: in tokens, of the limit that a mask is made for. Raises ValueError for any other mask.
    """
    marks = {1 << bit for bit in range(positions.bit_length())} | {positions}
    for multiple in range(1, 4):
        marks |= {multiple * size, positions // size * size - multiple * size} if size else set()
    near = sorted({mark + step for mark in marks for step in (-1, 0, 1) if 0 <= mark + step < positions})
    pairs = [(q, k) for q in near for k in sorted({*near, *(q - mark for mark in near)}) if 0 <= k <= q]
    token, earlier = torch.tensor(pairs).unbind(1)
    sees = torch.stack([mask_function(0, 0, q, k) for q, k in zip(token, earlier, strict=True)])
    if bool(sees.all()):
        return None
    forms: tuple[Literal["window", "chunk"], ...] = ("window", "chunk") if size else ()
    for limit in (Limit(form, size or 0) for form in forms):
        if torch.equal(limit.sees(token, earlier), sees):
            return limit
    q, k = pairs[int((~sees).nonzero()[0])]
    raise ValueError(f"its token {q} does not see token {k}, which is not the rule of a window or of chunks")


@contextmanager
def _lowered(source: Any, positions: int) -> Iterator[None]:
    """Set every limit below `positions` in the model's config and modules to `LOWERED`."""
    before: list[tuple[Any, str, int]] = [
        (holder, name, value)
        for holder in (source.config.get_text_config(), *source.modules())
        for name, value in vars(holder).items()
        if type(value) is int and LOWERED < value < positions and _LIMIT.search(name)
    ]
    try:
        for holder, name, _ in before:
            setattr(holder, name, LOWERED)
        yield
    finally:
        for holder, name, value in before:
            setattr(holder, name, value)
