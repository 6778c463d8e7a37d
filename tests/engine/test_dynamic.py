"""Dynamic trees against their definition: the best candidates of a beam search, and where it stops."""

from __future__ import annotations

import math
from collections.abc import Sequence as Batch
from functools import partial

import pytest
from tables import Prefix, TableModel, random_table
from torch import Tensor

from specops.engine.draft import Level
from specops.engine.drafters import dynamic, make_drafter
from specops.engine.heads.draft_model import ModelGrower
from specops.engine.request import Sampling
from specops.engine.sequence import Sequence
from specops.engine.tree import Draw, TokenTree

PROMPT: Prefix = (0, 1)


class Passes(ModelGrower):
    """Counts the passes that grow trees."""

    count = 0

    def grow(self, levels: Batch[Level]) -> Tensor:
        Passes.count += 1
        return super().grow(levels)


def grown(seed: int, nodes: int, depth: int) -> TokenTree:
    draft = partial(Passes, TableModel(random_table(seed), max_positions=16))
    drafter = make_drafter(f"dynamic:{nodes}:{depth}", Draw.IID, [draft], rows=1, length=16)
    sampling = Sampling(temperature=1.0, max_tokens=12)
    sequence = Sequence(0, list(PROMPT), sampling, room=16, chunk=16, eos=frozenset(), tokenizer=None)
    sequence.row, Passes.count = 0, 0
    return drafter.draft([sequence])[0]


def by_definition(seed: int, nodes: int, depth: int) -> tuple[dict[Prefix, float], int]:
    """The kept paths with their probabilities, and how many levels were expanded below the root."""
    q, beams = random_table(seed), math.ceil(nodes / depth)
    candidates: dict[Prefix, float] = {}
    frontier: dict[Prefix, float] = {(): 1.0}
    expanded = 0
    while True:
        level = {
            (*path, token): chance * probability
            for path, chance in frontier.items()
            for token, probability in enumerate(q((*PROMPT, *path)).tolist())
        }
        candidates |= level
        frontier = dict(sorted(level.items(), key=lambda item: -item[1])[:beams])
        if expanded + 1 == depth or sum(frontier.values()) < dynamic.WORTH_A_PASS:
            break
        expanded += 1
    return dict(sorted(candidates.items(), key=lambda item: -item[1])[:nodes]), expanded


@pytest.mark.parametrize(("nodes", "depth"), [(4, 2), (6, 3), (3, 3), (9, 4), (12, 6), (2, 6)])
def test_the_best_candidates_of_a_beam_search(nodes: int, depth: int) -> None:
    stopped = 0
    for seed in range(12):
        tree = grown(seed, nodes, depth)
        expected, expanded = by_definition(seed, nodes, depth)
        found = [tuple(tree.tokens[step] for step in tree.path_to(node)) for node in range(1, len(tree))]
        assert set(found) == set(expected)
        assert len(found) == len(set(found))
        assert tree.draw is Draw.DETERMINISTIC
        assert Passes.count == expanded
        stopped += expanded + 1 < depth
    assert stopped > 0 or (nodes, depth) != (2, 6)  # a lone path soon becomes unlikely


def test_every_level_is_grown_where_a_pass_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dynamic, "WORTH_A_PASS", 0.0)
    for seed in range(5):
        grown(seed, 6, 6)
        assert Passes.count == 5
