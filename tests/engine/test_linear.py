"""Every form of a matrix multiplies as float32 does, and half the bytes do only where nothing is lost."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from specops.engine.models.linear import Linear

OUT, IN = 24, 40


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def agrees(linear: Linear, weight: Tensor, bias: Tensor | None, tokens: int) -> None:
    """With float64's result, to a few roundings of float32."""
    x = random(tokens, IN, seed=1)
    exact = x.double() @ weight.double().T + (0 if bias is None else bias.double())
    near = 1e-6 * float(x.norm(dim=1).max() * weight.double().norm(dim=1).max())
    assert torch.allclose(linear(x).double(), exact, rtol=0, atol=near)
    assert torch.allclose(linear.product(x).double() * linear.scale, exact, rtol=0, atol=near)


@pytest.mark.parametrize("tokens", [1, 2, 3, 5, 13, 70])
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_every_form(dtype: torch.dtype, with_bias: bool, tokens: int) -> None:
    weight = random(OUT, IN).to(dtype).float()
    bias = random(OUT, seed=3) if with_bias else None
    agrees(Linear(weight, bias), weight, bias, tokens)


@given(exponent=st.integers(-100, 100), seed=st.integers(0, 100))
def test_any_magnitude_of_published_weights(exponent: int, seed: int) -> None:
    weight = random(OUT, IN, seed=seed).bfloat16().float() * 2.0**exponent
    agrees(Linear(weight), weight, None, 1)


@pytest.mark.skipif("fbgemm" not in torch.backends.quantized.supported_engines, reason="no FBGEMM here")
def test_half_the_bytes_only_where_nothing_is_lost() -> None:
    published = random(OUT, IN).bfloat16().float()
    assert Linear(published)._halved is not None
    assert Linear(random(OUT, IN))._halved is None  # 24 bits, of which float16 holds 11
    wide = published.clone()
    wide[0, 0] = 2.0**-24 * 1.0078125  # beside weights of 1, and not to be lost
    assert Linear(wide * 2.0**20)._halved is not None
    assert Linear(torch.zeros(OUT, IN))._halved is None
