"""Pearson's chi-square test of counts against an exact distribution."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from typing import TypeVar

import torch

Key = TypeVar("Key", bound=Hashable)
LEAST_EXPECTED = 5.0  # in a cell; rarer outcomes share one


def p_value(counts: Counter[Key], expected: Mapping[Key, float]) -> float:
    """The probability of counts at least as far from `expected`, a distribution; 0 for an impossible one."""
    total = counts.total()
    if any(expected.get(key, 0.0) == 0 for key in counts):
        return 0.0
    common = [key for key, weight in expected.items() if weight * total >= LEAST_EXPECTED]
    cells = [(counts[key], expected[key] * total) for key in common]
    rare = total - sum(mean for _, mean in cells)
    if rare >= LEAST_EXPECTED:
        cells.append((total - sum(count for count, _ in cells), rare))
    statistic = sum((count - mean) ** 2 / mean for count, mean in cells)
    freedom = torch.tensor((len(cells) - 1) / 2, dtype=torch.float64)
    return float(torch.special.gammaincc(freedom, torch.tensor(statistic / 2, dtype=torch.float64)))
