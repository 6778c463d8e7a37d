"""Trees with known distributions, and the engine's own verdict on them with the uniforms that lead to it.

A kernel computes in float32 and the engine here in float64, so that a uniform next to a threshold may fall on
either side of it. None does: `Replay` answers by a coin, wherever an answer is possible at all, and then
writes down a uniform that gives this answer, just so near the next one that a wrong probability shows.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from specops_kernels import sampling
from specops_kernels.sampling_rows import Rows
from specops_kernels.verify_trees import PackedTrees, Verified
from torch import Tensor

from specops.engine.rng import Dice
from specops.engine.tree import Draw, TokenTree, Topology
from specops.engine.verifiers.verifier import Verifier

LEAST = 1e-3
"""An answer that is less probable than this is not given: its interval is too narrow to be hit surely."""

NEAR = 0.02
"""How far from an interval's edge a uniform lies, of its width."""

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")

Distribute = Callable[[random.Random, int], Tensor]


class Replay:
    """A Chance."""

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)
        self.uniforms: list[float] = []

    def accept(self, probability: float) -> bool:
        answer = probability > LEAST and (probability > 1 - LEAST or self._random.random() < 0.35)
        self.uniforms.append(probability * (1 - NEAR) if answer else probability + (1 - probability) * NEAR)
        return answer

    def sample(self, weights: Tensor) -> int:
        shares = (weights / weights.sum()).tolist()
        chosen = self._random.choice([token for token, share in enumerate(shares) if share > LEAST])
        self.uniforms.append(sum(shares[:chosen]) + shares[chosen] * self._random.choice((NEAR, 1 - NEAR)))
        return chosen

    def draw(self, q: Tensor, count: int, *, replace: bool) -> list[int]:
        raise AssertionError("a verifier does not draw")


@dataclass(frozen=True)
class Case:
    trees: list[TokenTree]  # q in float64
    p: list[Tensor]  # of each tree, [n, V] float64
    replace: bool
    temperature: float = 1.0

    @property
    def packed(self) -> PackedTrees:
        return PackedTrees.of(self.trees, DEVICE)

    def target(self, tile: int | None) -> Rows:
        return rows_of(torch.cat(self.p), self.temperature, tile)

    def draft(self, tile: int | None) -> Rows:
        found = [q for tree in self.trees for node in tree.q or () for q in node]  # type: ignore[attr-defined]
        return rows_of(torch.stack(found) if found else self.p[0][:0], self.temperature, tile)


def rows_of(distributions: Tensor, temperature: float, tile: int | None) -> Rows:
    """As logits, each row shifted by something of its own. No tile: what only the reference is to read."""
    shift = torch.arange(len(distributions), dtype=torch.float64)[:, None] % 7 - 3
    logits = (distributions.log() * temperature + shift).float().to(DEVICE)
    warmth = torch.full((len(logits),), temperature, device=DEVICE)
    if tile is None:
        return Rows(logits, logits.stride(0), warmth, *torch.full((2, len(logits)), torch.nan, device=DEVICE))
    return Rows.of(logits, warmth, tile=tile)


def spread(rng: random.Random, vocab: int, sharpness: float = 0.8) -> Tensor:
    """[V] a random distribution, so flat that a target often has some of what its draft has and not all."""
    logits = torch.tensor([rng.gauss(0, sharpness) for _ in range(vocab)], dtype=torch.float64)
    return logits.softmax(0)


def cut(keep: int) -> Distribute:
    """All but `keep` of the tokens have no probability, as top-k leaves it."""

    def distribute(rng: random.Random, vocab: int) -> Tensor:
        whole = spread(rng, vocab)
        whole[rng.sample(range(vocab), vocab - keep)] = 0
        return whole / whole.sum()

    return distribute


def nearly_sure(rng: random.Random, vocab: int) -> Tensor:
    """One token has all but 1e-10 of the probability."""
    whole = spread(rng, vocab, 1.0) * 1e-10
    whole[rng.randrange(vocab)] = 1
    return whole / whole.sum()


def grown(
    widths: Sequence[int], draw: Draw, vocab: int, seed: str, distribute: Distribute = spread
) -> TokenTree:
    """A tree whose children are drawn as it says, by the engine's own dice."""
    rng, dice = random.Random(seed), Dice(seed=hash_of(seed))
    tokens, parents, level = [0], [-1], [0]
    q: list[tuple[Tensor, ...]] = [()]
    for width in widths:
        start = len(tokens)
        for node in level:
            here = distribute(rng, vocab)
            found = dice.draw(here, width, replace=draw is Draw.IID)
            if draw is Draw.DETERMINISTIC:
                found = here.topk(width).indices.tolist()
            else:
                q[node] = (here,)
            tokens += found
            parents += [node] * len(found)
            q += [()] * len(found)
        level = list(range(start, len(tokens)))
    topology = Topology.from_parents(tuple(parents))
    return TokenTree(topology, tokens, draw, None if draw is Draw.DETERMINISTIC else tuple(q))


def hash_of(seed: str) -> int:
    return random.Random(seed).getrandbits(32)


def case(
    trees: list[TokenTree], vocab: int, seed: str, distribute: Distribute = spread, temperature: float = 1.0
) -> Case:
    """The trees with random distributions of the target, all positive where the draft's are if `spread`."""
    rng = random.Random(f"{seed} target")
    p = [torch.stack([distribute(rng, vocab) for _ in tree.tokens]) for tree in trees]
    drawn = {tree.draw for tree in trees} - {Draw.DETERMINISTIC}
    return Case(trees, p, drawn != {Draw.WITHOUT_REPLACEMENT}, temperature)


def decided(case: Case, verifier: Verifier, seed: str) -> tuple[Verified, Tensor]:
    """What the engine's verifier decides, and the uniforms [B, questions] with which it does."""
    trees = case.packed
    verified = Verified.empty(trees)
    verified.path.fill_(-1)
    uniforms = torch.full((trees.sequences, sampling.questions(trees)), 0.5, dtype=torch.float64)
    for index, (tree, p) in enumerate(zip(case.trees, case.p, strict=True)):
        replay = Replay(f"{seed} {index}")
        found = verifier.verify(tree, p.clone(), replay)
        verified.path[index, : len(found.path)] = torch.tensor(found.path, dtype=torch.int32)
        verified.length[index], verified.bonus[index] = len(found.path), found.bonus
        uniforms[index, : len(replay.uniforms)] = torch.tensor(replay.uniforms, dtype=torch.float64)
    return verified, uniforms.to(DEVICE)


def same(one: Verified, other: Verified) -> bool:
    return all(torch.equal(*fields) for fields in zip(one, other, strict=True))


@contextmanager
def poisoned() -> Iterator[None]:
    """What is allocated and not written is NaN, or the largest integer."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.empty(1).isnan()
        yield
    finally:
        torch.use_deterministic_algorithms(before)
