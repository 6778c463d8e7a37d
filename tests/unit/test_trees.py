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
        ("adaptive:6", 6, True),
        ("expand:2,2,1", 2 + 4 + 4, True),
        ("dynamic:16:6", 16, True),
        ("ngram:8", 8, False),
        ("chain:3+ngram:8", 11, True),
        ("ngram:4+ngram:8", 12, False),
        ("shape:0,0,1,1,4", 5, True),
        ("suffix:16", 16, False),
        ("suffix:6+chain:2", 8, True),
        ("ngram:8/chain:3", 8, True),
        ("suffix:4/expand:2,2+ngram:3", 9, True),
    ],
)
def test_what_a_spec_means(text: str, nodes: int, needs_draft: bool) -> None:
    spec = parse_tree(text)
    assert (spec.nodes, spec.needs_draft) == (nodes, needs_draft)


@pytest.mark.parametrize(
    ("text", "depth", "drafts", "branches"),
    [
        ("shape:0,0,1,1,4", 3, 1, True),
        ("shape:0,1,2", 3, 1, True),
        ("suffix:16", 16, 0, True),
        ("ngram:8", 8, 0, False),
        ("ngram:8/chain:3", 8, 1, False),
        ("ngram:2/chain:3+dynamic:9:4", 4, 2, True),
    ],
)
def test_what_follows_from_a_spec(text: str, depth: int, drafts: int, branches: bool) -> None:
    spec = parse_tree(text)
    assert (spec.depth, spec.drafts, spec.branches) == (depth, drafts, branches)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("shape:0,2", "node 2 has the parent 2: expected an earlier node"),
        ("shape:1", "node 1 has the parent 1"),
        ("shape:0,0,7,1", "node 3 has the parent 7"),
        ("chain:3/ngram:8", "expected COPY_TREE/DRAFT_TREE"),
        ("ngram:8/suffix:8", "expected COPY_TREE/DRAFT_TREE"),
        ("ngram:8/none", "expected COPY_TREE/DRAFT_TREE"),
    ],
)
def test_what_is_wrong_with_a_tree_is_said(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        parse_tree(text)


@pytest.mark.parametrize(
    "text", ["chain:1025", "dynamic:9:4096", "expand:40,40", "suffix:9999", "chain:600+ngram:600"]
)
def test_a_tree_of_too_many_nodes(text: str) -> None:
    with pytest.raises(UsageError, match="expected at most 1024 nodes"):
        parse_tree(text)


NO_TREES = [
    "",
    "chain",
    "chain:0",
    "chain:2,2",
    "none:1",
    "dynamic:4",
    "chian:3",
    "ngram:x",
    "chain:3+",
    "shape:",
    "shape:-1",
    "suffix:0",
    "/chain:3",
    "ngram:8/",
    "ngram:8/chain:3/chain:2",
]


@pytest.mark.parametrize("text", [*NO_TREES, "chain:3+none"])
def test_what_is_no_tree_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError, match="invalid tree") as caught:
        parse_tree(text)
    assert "chain:3" in str(caught.value.hint)
