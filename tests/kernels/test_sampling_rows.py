"""Distributions that stay logits: a peak and a sum a row, and nothing else is needed of them."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch

if not os.environ.get("CI"):
    pytest.importorskip("triton", reason="needs the kernels extra")

from sampling_cases import DEVICE, poisoned
from specops_kernels import sampling, sampling_naive
from specops_kernels.sampling_rows import Rows
from test_sampling_kernels import CASES, TILE
from torch import Tensor

INF = float("inf")


@pytest.fixture(autouse=True)
def _poison() -> Iterator[None]:
    with poisoned():
        yield


def rows(logits: Tensor, temperature: float = 1.0, tile: int = 8) -> Rows:
    return Rows.of(logits.to(DEVICE), torch.full((len(logits),), temperature, device=DEVICE), tile=tile)


def relative_error(made: Rows) -> float:
    logits = made.logits.double()
    found = ((logits - made.peak[:, None]) / made.temperature[:, None]).exp() / made.total[:, None]
    expected = sampling_naive.probabilities(made)
    return float(((found - expected).abs() / expected.clamp(min=1e-300)).max())


@pytest.mark.parametrize("temperature", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_probabilities(dtype: torch.dtype, temperature: float) -> None:
    made = rows((3 * torch.randn(4, 21)).to(dtype), temperature)
    assert relative_error(made) < 1e-5


def test_logits_far_from_zero() -> None:
    logits = torch.randn(3, 21)
    logits[0] += 3e4
    logits[1] -= 3e4
    logits[2, 4] = 1e30  # sure of one token
    assert relative_error(rows(logits)) < 1e-5


def test_tiles_that_are_cut_away_whole() -> None:
    logits = torch.full((3, 21), -INF)
    logits[0, 20], logits[1, 3], logits[2, 9:11] = 2.0, -5.0, 1.0
    made = rows(logits)
    assert made.peak.tolist() == [2.0, -5.0, 1.0]
    assert made.total.tolist() == [1.0, 1.0, 2.0]


def test_rows_that_are_part_of_wider_ones() -> None:
    """As where a model's vocabulary is padded: what lies behind a row is another's."""
    wide = torch.randn(5, 32)
    wide[:, 21:] = 1e4
    assert relative_error(rows(wide[:, :21])) < 1e-5


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("rule", ["multi_step", "traversal"])
def test_half_precision(rule: str, dtype: torch.dtype) -> None:
    """Logits are what is given; everything that is computed from them is float32."""
    made = CASES["merged"]
    target, draft = (rows(r.logits.to(dtype), tile=TILE) for r in (made.target(None), made.draft(None)))
    trees = made.packed
    asked = torch.rand(trees.sequences, sampling.questions(trees), dtype=torch.float64).to(DEVICE)
    found = getattr(sampling, rule)(target, draft, trees, asked, replace=False, tile=TILE)
    expected = getattr(sampling_naive, rule)(target, draft, trees, asked, replace=False)
    for one, two in zip(found, expected, strict=True):
        assert torch.equal(one, two)
