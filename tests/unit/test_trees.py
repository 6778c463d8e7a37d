"""Tree specs: what is read, how many nodes it means, and what is refused."""

from __future__ import annotations

import pytest

from specops.errors import UsageError
from specops.trees import parse_tree


@pytest.mark.parametrize(
    ("text", "nodes", "needs_draft"),
    [
        ("none", 0, False),
        ("chain:3", 3, True),
        ("expand:2,2,1", 2 + 4 + 4, True),
        ("dynamic:16:6", 16, True),
        ("ngram:8", 8, False),
    ],
)
def test_what_a_spec_means(text: str, nodes: int, needs_draft: bool) -> None:
    spec = parse_tree(text)
    assert (spec.nodes, spec.needs_draft) == (nodes, needs_draft)


@pytest.mark.parametrize(
    "text", ["", "chain", "chain:0", "chain:2,2", "none:1", "dynamic:4", "chian:3", "ngram:x"]
)
def test_what_is_no_tree_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError, match="is no tree") as caught:
        parse_tree(text)
    assert "chain:3" in str(caught.value.hint)
