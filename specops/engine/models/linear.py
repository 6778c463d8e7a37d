"""y = x W^T in the form that reads the weights fastest, with float32's arithmetic; and tables of such
products."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


class Linear:
    """y = x W^T + b.

    With few tokens the time is that of reading W. Weights published in bfloat16 or float16 are float16 values
    times a power of two. So they are stored in half the bytes and multiplied as float32 (FBGEMM). Other
    weights are stored in two forms of float32. One token is a matrix-vector product, fastest with a
    transposed copy. More tokens use oneDNN's packed form, whose call costs 9 us more, and whose time hardly
    grows up to six tokens.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        """weight: W, [out, in] float32. bias: b, [out]."""
        self._bias = bias
        self._halved = _halved(weight)
        self.scale = 1.0
        """Factor of `product`: y = scale * product(x)."""
        if self._halved is not None:
            self._scale = 1 / self._halved.scale
            self.scale = self._scale if bias is None else 1.0
            return
        self._transposed = weight.t().contiguous()  # [in, out]
        self._packed: Tensor | None = None
        if torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
            self._packed = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), 8)
            self._multiply = torch.ops.mkldnn._linear_pointwise.default

    def product(self, x: Tensor) -> Tensor:
        """y / scale: a reader multiplies with `scale` where another pass over y would cost more."""
        if self._halved is None or self._bias is not None:
            return self(x)
        y: Tensor = torch.fbgemm_linear_fp16_weight_fp32_activation(x, self._halved.packed, None)
        return y

    def __call__(self, x: Tensor) -> Tensor:
        """x: [n, in] float32 -> y: [n, out]."""
        y: Tensor
        if self._halved is not None:
            y = torch.fbgemm_linear_fp16_weight_fp32_activation(x, self._halved.packed, None)
            if self._scale != 1:
                y = y.mul_(self._scale)
            return y if self._bias is None else y.add_(self._bias)
        if self._packed is not None and x.size(0) >= PACKED_FROM:
            y = self._multiply(x, self._packed, self._bias, "none", [], "")
            return y
        if self._bias is not None:
            return torch.addmm(self._bias, x, self._transposed)
        return torch.mm(x, self._transposed)


PACKED_FROM = 3
"""Tokens from which the packed form is faster; measured with AVX-512."""

UNSEEN = 2.0**-38
"""Rounding of the smallest weights that is allowed, relative to the largest: 2^-14 of float32's own rounding
of a product with the largest."""

LARGEST = torch.finfo(torch.float16).max


@dataclass(frozen=True)
class _Halved:
    """A matrix in float16, packed for FBGEMM."""

    packed: Tensor
    scale: float  # a power of two that the weights were multiplied with


def _halved(weight: Tensor) -> _Halved | None:
    """The matrix in half the bytes; None if float16 would round a weight noticeably, or FBGEMM is not
    available."""
    if not hasattr(torch, "fbgemm_pack_gemm_matrix_fp16") or "fbgemm" not in _engines():
        return None
    largest = float(weight.abs().max())
    if not 0 < largest < math.inf:
        return None
    # float16 has no small exponents to speak of; a matrix's largest weight is brought up to near its largest.
    for scale in (1.0, 2.0 ** (14 - math.frexp(largest)[1])):
        scaled = weight * scale
        lost = float((scaled.half().float() - scaled).abs().max()) if largest * scale < LARGEST else math.inf
        if lost <= UNSEEN * largest * scale:
            with warnings.catch_warnings():  # said to go some day; the forms of float32 are then left
                warnings.simplefilter("ignore", UserWarning)
                packed = torch.fbgemm_pack_gemm_matrix_fp16(scaled.contiguous())
                torch.fbgemm_linear_fp16_weight_fp32_activation(torch.zeros(1, weight.shape[1]), packed, None)
            return _Halved(packed, scale)
    return None


def _engines() -> list[str]:
    engines: list[str] = torch.backends.quantized.supported_engines
    return engines


LARGEST_TABLE = 2**28
"""Bytes of a table."""


class TokenTable:
    """The product of a matrix with each token's vector: a table of all tokens if it is small, else
    computed."""

    def __init__(self, vectors: Tensor, weight: Tensor, bias: Tensor | None = None) -> None:
        """vectors: [vocab, width] float32. weight: [out, width]. bias: [out]."""
        self._multiply = None
        self._rows = vectors
        if len(vectors) * len(weight) * vectors.element_size() <= LARGEST_TABLE:
            self._rows = vectors @ weight.t() if bias is None else vectors @ weight.t() + bias
        else:
            self._multiply = Linear(weight, bias)

    @property
    def rows(self) -> Tensor | None:
        """The table, [vocab, out]; None if it is too large."""
        return self._rows if self._multiply is None else None

    def __call__(self, tokens: Tensor) -> Tensor:
        """tokens: [n] int64 -> [n, out]."""
        rows = F.embedding(tokens, self._rows)
        return rows if self._multiply is None else self._multiply(rows)
