"""The exact joint distribution of the next tokens: of the target, and of draft-then-verify."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import cache

import torch
from enumeration import Script, outcomes
from tables import Prefix, Table
from torch import Tensor

from specops.engine.draft import Drafter
from specops.engine.request import Sampling
from specops.engine.rng import distribution
from specops.engine.sequence import Sequence
from specops.engine.tree import TokenTree
from specops.engine.verifiers.verifier import Verifier

PROMPT: Prefix = (0, 1)
Joint = dict[Prefix, float]  # the tokens after the prompt -> probability
WeighedTrees = list[tuple[TokenTree, float]]


def after_cuts(table: Table, sampling: Sampling) -> Table:
    """The table that is left after temperature, top-k and top-p."""
    return cache(lambda prefix: distribution(table(prefix).log()[None], sampling)[0])


def continuations(p: Table, prefix: Prefix, count: int) -> Joint:
    """The joint distribution of the `count` tokens that sampling from p puts after the prefix."""
    joint: Joint = {(): 1.0}
    for _ in range(count):
        joint = {
            (*tokens, token): weight * probability
            for tokens, weight in joint.items()
            for token, probability in enumerate(p((*prefix, *tokens)).tolist())
            if probability > 0
        }
    return joint


def drafted(drafter: Drafter, sampling: Sampling, prompt: Prefix = PROMPT) -> WeighedTrees:
    """Every tree that the drafter may propose after the prompt, with its probability."""

    def run(chance: Script) -> TokenTree:
        sequence = Sequence(0, list(prompt), sampling, room=12, chunk=256, eos=frozenset(), tokenizer=None)
        sequence.row, sequence.chance = 0, chance
        (tree,) = drafter.draft([sequence])
        drafter.release(sequence)
        return tree

    return list(outcomes(run))


def target_rows(tree: TokenTree, p: Table, prompt: Prefix = PROMPT) -> Tensor:
    """[n, V] what the target's forward pass would give for the tree."""
    prefixes = [(*prompt, *(tree.tokens[step] for step in tree.path_to(node))) for node in range(len(tree))]
    return torch.stack([p(prefix) for prefix in prefixes])


def verified(trees: WeighedTrees, verifier: Verifier, p: Table, count: int, prompt: Prefix = PROMPT) -> Joint:
    """The joint distribution of `count` tokens; shorter outputs go on by sampling from the target."""
    joint: Joint = defaultdict(float)
    for tokens, weight in _emitted(trees, verifier, p, prompt).items():
        rest = continuations(p, (*prompt, *tokens), count - len(tokens))
        for further, probability in rest.items():
            joint[*tokens, *further] += weight * probability
    return dict(joint)


def expected_accepted(trees: WeighedTrees, verifier: Verifier, p: Table, prompt: Prefix = PROMPT) -> float:
    """The mean number of drafted tokens that one verification accepts."""
    emitted = _emitted(trees, verifier, p, prompt)
    return sum(weight * (len(tokens) - 1) for tokens, weight in emitted.items())


def _emitted(trees: WeighedTrees, verifier: Verifier, p: Table, prompt: Prefix) -> Joint:
    emitted: Joint = defaultdict(float)
    for tree, weight in trees:
        run = _verification(tree, verifier, target_rows(tree, p, prompt))
        for tokens, probability in outcomes(run):
            emitted[tokens] += weight * probability
    return dict(emitted)


def _verification(tree: TokenTree, verifier: Verifier, rows: Tensor) -> Callable[[Script], Prefix]:
    def run(chance: Script) -> Prefix:
        result = verifier.verify(tree, rows, chance)
        return (*(tree.tokens[node] for node in result.path), result.bonus)

    return run
