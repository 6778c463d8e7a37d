"""What each verifier accepts of the very same trees, and its time, for any pair on disk.

    python benchmarks/verifiers.py [--tree expand:2,2,1 …] [--count 16] [--rounds 3] [--draft DIR]

The pair decodes the prompts at T = 1. Before the tree of a step is verified, the mean number of tokens
that each verifier would accept of it is computed from the two distributions (`CountedVerifier.expected`).
So verifiers that differ by a hundredth of a token are ordered reliably. Each verifier also verifies the tree
once, which counts its accepted tokens and takes its time.

Of one tree no verifier has to yield more than a plainer one; of the trees that may be drawn it does, on
average. So each prompt is continued again and again, until its order is beyond doubt, or time is up.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter

import numpy as np
from numpy.typing import NDArray
from pair_options import PROMPT_TOKENS, encode, pair_parser
from pydantic import PositiveFloat, PositiveInt

from specops.engine import Engine, Sampling
from specops.engine.drafters import make_drafter
from specops.engine.load import Pair
from specops.engine.rng import Chance, Dice
from specops.engine.tree import Draw, TokenTree
from specops.engine.verifiers import VERIFIERS, best_verifier
from specops.engine.verifiers.verifier import CountedVerifier, Target, Verified
from specops.load.workload import Prompt, load_prompts
from specops.render.figures import aligned
from specops.section import Frozen
from specops.trees import parse_tree

TREES = ("chain:4", "expand:3,1,1", "expand:2,2,1", "expand:5")
SURE = 3.0
"""Standard errors. A prompt's order is looked at after every round of continuations, so two would be few."""

EQUAL = 1e-6
"""Tokens a step: float32 does not add up to the last bit."""


class VerifierSettings(Frozen):
    target: Path
    draft: Path
    prompts: Path
    trees: tuple[str, ...] = TREES
    count: PositiveInt = 16  # prompts, spread over the set
    tokens: PositiveInt = 32  # of each continuation
    continuations: PositiveInt = 8  # of each prompt, at a time
    rounds: PositiveInt = 3  # of them, at most
    temperature: PositiveFloat = 1.0
    seed: int = 0


class VerifierFigures(Frozen):
    """Figures of a verifier over the trees; tokens a step count the one that the target adds."""

    expected: float
    """Tokens a step, computed: the mean over the prompts."""

    error: float
    """Its standard error over the trees that may be drawn; the prompts are given."""

    measured: float
    """Tokens a step, counted."""

    ms: float
    """Milliseconds to verify one tree, in the middle."""

    ahead: list[float | None]
    """Tokens a step by which it is ahead of the next plainer verifier, by prompt; None of the plainest, and
    of a prompt for which fewer than two trees were drafted."""

    ahead_errors: list[float | None]

    def prompts(self, sign: int) -> int:
        """Return by prompt whether it surely yields more (1) or less (-1) than the next plainer one, or it is
        open (0)."""
        return sum(
            _sign(ahead, error) == sign and (error > EQUAL or abs(ahead) > EQUAL)
            for ahead, error in self.differences
        )

    @property
    def differences(self) -> list[tuple[float, float]]:
        both = zip(self.ahead, self.ahead_errors, strict=True)
        return [(ahead, error) for ahead, error in both if ahead is not None and error is not None]


class TreeFigures(Frozen):
    """One tree and one way of drawing it."""

    tree: str
    draw: Draw
    steps: int
    verifiers: dict[str, VerifierFigures]
    """The plainest first."""


class Ranking(Frozen):
    ranked: list[TreeFigures]
    prompts: list[str]


def _sign(ahead: float, error: float) -> int:
    """Return whether it is surely above (1) or below (-1) zero."""
    return int(ahead > SURE * error + EQUAL) - int(ahead < -SURE * error - EQUAL)


@dataclass
class _Trees:
    """Observations of the trees of one prompt: [trees, verifiers]."""

    expected: list[list[float]] = field(default_factory=list)
    measured: list[list[float]] = field(default_factory=list)
    ms: list[list[float]] = field(default_factory=list)

    def mean(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """[verifiers], and the standard errors."""
        return _mean(np.array(self.expected))

    def ahead(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """[verifiers - 1], each less the next plainer one, and the standard errors."""
        return _mean(np.diff(np.array(self.expected), axis=1))

    @property
    def enough(self) -> bool:
        """Return whether there are enough trees for a mean with its error. What copies may find nothing to
        copy."""
        return len(self.expected) > 1

    def decided(self) -> bool:
        if not self.enough:
            return False
        ahead, error = self.ahead()
        # where two verifiers are one rule, every difference is a rounding
        return all(_sign(a, e) != 0 or e <= EQUAL for a, e in zip(ahead, error, strict=True))


def _mean(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the mean of the rows, with its standard error."""
    return values.mean(axis=0), values.std(axis=0, ddof=1) / len(values) ** 0.5


@dataclass
class _Observed:
    """Lets every verifier try each tree, then the best one decide."""

    draw: Draw
    verifiers: list[CountedVerifier]
    dice: Dice
    name: str = "observed"
    lossless_for: frozenset[Draw] = frozenset(Draw)
    prefers: Draw = Draw.WITHOUT_REPLACEMENT
    records: _Trees = field(default_factory=_Trees)

    def verify(self, tree: TokenTree, p: Target, chance: Chance) -> Verified:
        if len(tree) > 1:
            rows = [p[node] for node in range(len(tree))]
            self.records.expected.append([1 + verifier.expected(tree, rows) for verifier in self.verifiers])
            counted = []
            for verifier in self.verifiers:
                began = perf_counter()
                accepted = len(verifier.verify(tree, rows, self.dice).path)
                counted.append((1.0 + accepted, 1000 * (perf_counter() - began)))
            self.records.measured.append([tokens for tokens, _ in counted])
            self.records.ms.append([ms for _, ms in counted])
        return best_verifier(self.draw).verify(tree, p, chance)


def measure(settings: VerifierSettings) -> Ranking:
    chosen = load_prompts(settings.prompts).spread(settings.count)
    for tree in settings.trees:
        if parse_tree(tree).nodes == 0:
            raise SystemExit(f"could not compare verifiers on {tree!r}: it drafts nothing")
    pair = Pair(settings.target, settings.draft)
    pairs = [(tree, draw) for tree in settings.trees for draw in Draw if _can_draw(pair, tree, draw)]
    ranked = [_ranked(pair, tree, draw, chosen, settings) for tree, draw in pairs]
    return Ranking(ranked=ranked, prompts=[prompt.id for prompt in chosen])


def _can_draw(pair: Pair, tree: str, draw: Draw) -> bool:
    return make_drafter(tree, draw, [pair.draft.grower], 1, 1).draws is draw


def _ranked(
    pair: Pair, tree: str, draw: Draw, prompts: list[Prompt], settings: VerifierSettings
) -> TreeFigures:
    able = [verifier for verifier in VERIFIERS.values() if draw in verifier.lossless_for]
    observed = _Observed(draw, able, Dice(settings.seed))
    room = min(pair.positions, PROMPT_TOKENS + settings.tokens)
    engine = pair.engine(tree, room, draw=draw, verifier=observed, max_batch=settings.continuations)
    records = [_looked_at(engine, observed, encode(pair, prompt), settings) for prompt in prompts]
    enough = [trees for trees in records if trees.enough]
    if not enough:
        raise SystemExit(
            f"could not compare verifiers on {tree!r}: too little was drafted for all prompts; "
            f"try --tokens {4 * settings.tokens}"
        )
    means, errors = (np.array(each) for each in zip(*(trees.mean() for trees in enough), strict=True))
    ahead = [trees.ahead() if trees.enough else None for trees in records]
    found = {}
    for number, verifier in enumerate(observed.verifiers):
        first = number == 0
        found[verifier.name] = VerifierFigures(
            expected=float(means[:, number].mean()),
            error=float((errors[:, number] ** 2).sum() ** 0.5 / len(enough)),
            measured=float(np.mean([np.mean(trees.measured, axis=0)[number] for trees in enough])),
            ms=float(np.median([row[number] for trees in records for row in trees.ms])),
            ahead=[None if first or each is None else float(each[0][number - 1]) for each in ahead],
            ahead_errors=[None if first or each is None else float(each[1][number - 1]) for each in ahead],
        )
    return TreeFigures(
        tree=tree, draw=draw, steps=sum(len(trees.expected) for trees in records), verifiers=found
    )


def _looked_at(engine: Engine, observed: _Observed, ids: list[int], settings: VerifierSettings) -> _Trees:
    """One prompt, continued until the order of the verifiers is beyond doubt."""
    observed.records = _Trees()
    for number in range(settings.rounds):
        for one in range(settings.continuations):
            sampling = Sampling(
                max_tokens=settings.tokens,
                temperature=settings.temperature,
                seed=settings.seed + settings.continuations * number + one,
                ignore_eos=True,
            )
            engine.submit(ids, sampling)
        while not engine.idle:
            engine.step()
        if observed.records.decided():
            break
    return observed.records


def reason(ranking: Ranking) -> str:
    prompts = len(ranking.prompts)
    steps = sum(one.steps for one in ranking.ranked)
    pairs = [of for one in ranking.ranked for of in list(one.verifiers.values())[1:]]
    less, open_ = sum(of.prompts(-1) for of in pairs), 0
    for of in pairs:
        open_ += sum(ahead < -EQUAL and _sign(ahead, error) == 0 for ahead, error in of.differences)
    message = f"{prompts} prompts, {steps} trees; a verifier surely yields less than the next plainer one on "
    return f"{message}{less} of {len(pairs) * prompts} prompts and pairs, and seems to on {open_}"


def table(ranking: Ranking) -> list[str]:
    rows: list[list[str]] = []
    for one in ranking.ranked:
        best = max(of.expected for of in one.verifiers.values())
        for name, of in one.verifiers.items():
            first = name == next(iter(one.verifiers))
            rows.append(
                [
                    one.tree if first else "",
                    one.draw.value if first else "",
                    name,
                    f"{of.expected:.3f} ± {2 * of.error:.3f}",
                    f"{of.measured:.3f}",
                    f"{of.expected / best:.1%}",
                    f"{of.ms:.2f}",
                    *(("", "", "") if first else (str(of.prompts(sign)) for sign in (1, 0, -1))),
                ]
            )
    columns = ["tree", "drawn", "verifier", "tokens/step", "measured", "of the best", "ms/tree"]
    return aligned([[*columns, "more", "open", "less"], *rows])


def over_naive(ranking: Ranking) -> list[str]:
    """Return what multi-step sampling yields over naive sampling, of the very same trees and of the draft's
    best."""
    lines = []
    for one in ranking.ranked:
        if "mss" not in one.verifiers:
            continue
        mss, naive = one.verifiers["mss"].expected, one.verifiers["naive"].expected
        same = f"{one.tree} {one.draw.value}: mss yields {mss / naive:.2f} times what naive does"
        best = (o for o in ranking.ranked if o.tree == one.tree and o.draw is Draw.DETERMINISTIC)
        top = [f", {mss / o.verifiers['naive'].expected:.2f} of naive over the draft's top k" for o in best]
        lines.append("".join([same, *top]))
    return lines


def main() -> None:
    parser = pair_parser(__doc__)
    parser.add_argument("--tree", action="append", help="to compare; repeatable [default: four shapes]")
    parser.add_argument("--count", type=int, default=16, help="prompts, spread over the set")
    parser.add_argument("--tokens", type=int, default=32, help="of each continuation")
    parser.add_argument("--rounds", type=int, default=3, help="of 8 continuations of each prompt, at most")
    parser.add_argument("--temperature", type=float, default=1.0)
    options = parser.parse_args()
    ranking = measure(
        VerifierSettings(
            target=options.target,
            draft=options.draft,
            prompts=options.prompts,
            trees=tuple(options.tree or TREES),
            count=options.count,
            tokens=options.tokens,
            rounds=options.rounds,
            temperature=options.temperature,
            seed=options.seed,
        )
    )
    print(*table(ranking), *over_naive(ranking), reason(ranking), sep="\n")
    if options.json is not None:
        options.json.write_text(ranking.model_dump_json(indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
