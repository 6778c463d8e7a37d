"""What a model of transformers does over a length that no probe reaches: windows, chunks, and frequencies or
scales that change with the length.

Real limits lie thousands of tokens away, and a pass over so many tokens of a large model takes minutes. So
its own masks are asked about every distance that there is, its own limits are lowered for a short pass, and
one token of a short pass stands at the last position.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

EAGER = "eager"
TOKENS, LOWERED = 16, 4
"""Of a probe; and what stands there in place of a limit."""

_LIMIT = re.compile(r"window|chunk|span|floor_scale|block_size|original_max_position")


class Probe:
    """A few tokens, at adjacent positions and with the last one at the last position."""

    def __init__(self, positions: int, vocabulary: int) -> None:
        self.tokens = torch.arange(min(TOKENS, positions)) % vocabulary
        self.near = torch.arange(len(self.tokens))
        self.far = self.near.clone()
        self.far[-1] = positions - 1
        self._positions = positions

    def run(self, source: Any, forward: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        """[2n, V]: of `forward`, from tokens and positions to [n, V] logits, with lowered limits and adjacent
        positions; then as `source` is, with the last position."""
        with _lowered(source, self._positions):
            near = forward(self.tokens, self.near)
        return torch.cat((near, forward(self.tokens, self.far)))

    def own(self, source: Any) -> Tensor:
        """`run` of the model's own eager attention, float32.

        Raises ValueError where a mask hides an earlier token, and where a token changes what comes before it.
        """

        def forward(tokens: Tensor, positions: Tensor) -> Tensor:
            logits: Tensor = source(
                input_ids=tokens[None].to(source.device),
                position_ids=positions[None].to(source.device),
                attention_mask=torch.ones_like(tokens)[None].to(source.device),  # they are one sequence
                use_cache=False,
            ).logits[0]
            return logits.float()

        found, n = self.run(source, forward), len(self.tokens)
        with _watched_masks(source, self._positions):
            near = forward(self.tokens, self.near)[:-1]
        if not close(found[n:-1], near, source.dtype):
            raise ValueError("its logits change with the position of a later token")
        return found


def close(found: Tensor, own: Tensor, dtype: torch.dtype) -> bool:
    tolerance = torch.finfo(dtype).eps ** 0.5 * float(own.abs().max())
    return torch.allclose(found, own, rtol=0, atol=tolerance)


@contextmanager
def _watched_masks(source: Any, positions: int) -> Iterator[None]:
    """ValueError where a layer is given a mask that hides an earlier token. A model may make masks that none
    of its layers uses."""
    right = ALL_MASK_ATTENTION_FUNCTIONS[EAGER]
    limiting: list[tuple[Tensor, str]] = []

    def watched(*given: Any, mask_function: Callable[..., Any], **more: Any) -> Any:
        mask = right(*given, mask_function=mask_function, **more)
        if (hidden := _hidden(mask_function, positions)) is not None:
            limiting.append((mask, f"its token {hidden[0]} does not see token {hidden[1]}"))
        return mask

    def look(module: torch.nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        for mask, reason in limiting:
            if any(value is mask for value in (*given, *named.values())):
                raise ValueError(f"{reason}: it has a window or chunks")

    layers = [module for module in source.modules() if hasattr(module, "layer_idx")]
    hooks = [layer.register_forward_pre_hook(look, with_kwargs=True) for layer in layers]
    ALL_MASK_ATTENTION_FUNCTIONS[EAGER] = watched
    try:
        yield
    finally:
        del ALL_MASK_ATTENTION_FUNCTIONS[EAGER]
        for hook in hooks:
            hook.remove()


def _hidden(mask_function: Callable[..., Any], positions: int) -> tuple[int, int] | None:
    """A token and an earlier one that it does not see, looked for at powers of two, at the end, and at such
    distances."""
    powers = [0, *(1 << bit for bit in range(positions.bit_length()))]
    for token in sorted({min(power, positions - 1) for power in powers}):
        for other in sorted({min(power, token) for power in powers} | {max(token - p, 0) for p in powers}):
            if not bool(mask_function(0, 0, torch.tensor(token), torch.tensor(other))):
                return token, other
    return None


@contextmanager
def _lowered(source: Any, positions: int) -> Iterator[None]:
    """Every limit below `positions` that the model's config and modules name is `LOWERED`."""
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
