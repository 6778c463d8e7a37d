"""Mixed and planned trees and copies, under every verifier: the output has the target's distribution, or the
pair is refused. By a chi-square test over a vocabulary that is small enough to count every outcome."""

from __future__ import annotations

from pathlib import Path

import pytest
from sampled_output import VERIFIERS, check


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("verifier", VERIFIERS)
@pytest.mark.parametrize("tree", ["chain:2+ngram:2", "chain:2+expand:2", "ngram:2/chain:2", "auto:4"])
def test_trees_from_several_sources(tree: str, verifier: str, small: dict[str | None, Path]) -> None:
    check(small, "model", tree, verifier)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("verifier", VERIFIERS)
@pytest.mark.parametrize("tree", ["none", "ngram:3", "suffix:4"])
def test_trees_without_a_draft_model(tree: str, verifier: str, small: dict[str | None, Path]) -> None:
    check(small, None, tree, verifier)
