"""The best that any lossless verifier can do with the trees of a drafter: a linear programme.

A verifier emits, for each tree, one of its paths and a token more, with some probability. It is lossless
where what it emits, continued by sampling from the target, is distributed as the target's own text. That is
linear in those probabilities, and so is the number of tokens accepted.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from joint import PROMPT, WeighedTrees, continuations
from scipy.optimize import linprog
from scipy.sparse import coo_array
from tables import VOCABULARY, Prefix, Table

from specops.engine.tree import TokenTree

Paths = frozenset[Prefix]
"""Of a tree, the root's empty one included."""


def optimum(trees: WeighedTrees, p: Table) -> float:
    """The mean number of drafted tokens that the best lossless verifier accepts."""
    drafts: dict[Paths, float] = defaultdict(float)
    for tree, weight in trees:
        drafts[_paths(tree)] += weight
    longest = 1 + max(len(path) for draft in drafts for path in draft)
    texts = {text: row for row, text in enumerate(continuations(p, PROMPT, longest))}
    entries: list[tuple[int, int, float]] = []  # row, column, value
    gains: list[int] = []
    for number, draft in enumerate(drafts):
        for path in draft:
            for bonus in range(VOCABULARY):
                emitted, column = (*path, bonus), len(gains)
                gains.append(len(path))
                entries.append((len(texts) + number, column, 1.0))
                rest = continuations(p, (*PROMPT, *emitted), longest - len(emitted))
                entries += [(texts[*emitted, *text], column, share) for text, share in rest.items()]
    rows, columns, values = map(np.array, zip(*entries, strict=True))
    masses = np.array([*continuations(p, PROMPT, longest).values(), *drafts.values()])
    # both kinds of rows add up to one: the last says nothing new, and would contradict by a rounding
    sums = coo_array((values, (rows, columns))).tocsr()[:-1]
    found = linprog(-np.array(gains), A_eq=sums, b_eq=masses[:-1], method="highs")
    assert found.status == 0, found.message
    return -float(found.fun)


def _paths(tree: TokenTree) -> Paths:
    return frozenset(tuple(tree.tokens[step] for step in tree.path_to(node)) for node in range(len(tree)))
