"""Every kind of head, under every verifier: the output has the target's distribution, or the pair is
refused. By a chi-square test over a vocabulary that is small enough to count every outcome."""

from __future__ import annotations

from pathlib import Path

import pytest
from sampled_output import VERIFIERS, check, p_of

ALONE = 4_000
"""Where sequences do not share steps, a sample takes eight times as long."""


@pytest.mark.parametrize("draft", ["head", "recurrent"])
def test_passes_in_one_call(draft: str, small: dict[str | None, Path]) -> None:
    """One sequence at a time: a chain of an EAGLE head's is then one compiled call, draws included.

    400 samples tell two draft distributions that changed places (p below 1e-12)."""
    assert p_of(small, draft, "chain:2", None, 400, batch=1) > 1e-3


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("draft", ["head", "recurrent"])
@pytest.mark.parametrize("verifier", ["traversal", "mss"])
@pytest.mark.parametrize("tree", ["chain:3", "adaptive:4"])
def test_passes_in_one_call_by_many_samples(
    tree: str, verifier: str, draft: str, small: dict[str | None, Path]
) -> None:
    assert p_of(small, draft, tree, verifier, ALONE, batch=1) > 1e-3


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("verifier", VERIFIERS)
@pytest.mark.parametrize("draft", ["head", "recurrent", "medusa", "exit"])
def test_trees_of_a_head(draft: str, verifier: str, small: dict[str | None, Path]) -> None:
    check(small, draft, "expand:2,2", verifier)
