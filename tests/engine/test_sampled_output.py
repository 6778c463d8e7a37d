"""Every tree of a draft model, under every verifier: the output has the target's distribution, or the pair is
refused. By a chi-square test over a vocabulary that is small enough to count every outcome."""

from __future__ import annotations

from pathlib import Path

import pytest
from sampled_output import VERIFIERS, check


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("verifier", VERIFIERS)
@pytest.mark.parametrize("tree", ["chain:3", "adaptive:4", "expand:2,2", "shape:0,0,1", "dynamic:6:2"])
def test_trees_of_a_draft_model(tree: str, verifier: str, small: dict[str | None, Path]) -> None:
    check(small, "model", tree, verifier)
