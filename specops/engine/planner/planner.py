"""The tree of the next step: the best by observation, changed only for a lasting gain. Pure.

Four rules limit errors, since the planner learns from its own steps:

- It changes trees if another is predicted to be faster by `MARGIN` (`CLEAR` from no draft) in `PATIENCE`
  evaluations in a row, so that noise in the clock does not make it oscillate.
- It drafts only where drafting is predicted to be faster than no draft, by `CLEAR` and the error of both:
  no draft has a known speed. The whole time of drafting counts, the reading of prompts included.
- It observes only the tree that it uses. So some steps are trials: a step is drafted with one of the next
  best trees; where the draft follows no sequence, one sequence alone is. Trials may cost `EXPLORED` of the
  time. The cost of a trial is the time of its step beyond the usual time of its tokens.
- Copies are looked up for one sequence at a time even where they are not drafted: the output shows whether
  they were right, and no verification is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from specops.engine.planner import tree_choice
from specops.engine.planner.acceptance_counts import MEMORY, SELDOM, CopyAcceptance, Lengths, TreeAcceptance
from specops.engine.planner.cost_model import BatchCosts, CostModel
from specops.engine.planner.tree_choice import Goal, TreeOption
from specops.engine.tree import Topology
from specops.trees import parse_tree

NONE = "none"
DEPTH = 8
"""Largest number of levels of a tree."""

COPIES = (2, 4, 6, 8)
"""Limits on copied tokens that are considered. The longest look-up also shows what shorter copies bring.
It takes a long run of right tokens in one step, more so the longer it is."""

CLEAR = 0.02
"""Smallest gain of a draft over no draft, as a share, beyond the errors of both predictions."""

MARGIN = 0.03
"""Smallest gain of one draft's tree over another's."""

PATIENCE = 3
RECKON, SELDOM_RECKON = 16, 64
"""Steps between two evaluations, which take some hundred microseconds. The second applies after `YOUNG`
evaluations while no other tree is within `NEAR`."""

YOUNG, NEAR = 32, 0.1

RANK = 16
"""Number of evaluations after which all trees are considered, not only the `SHORT` best of the last time."""

SHORT = 6
SETTLING = 4
"""Steps of one tree until its time is the usual one. After another tree, whose weights displaced the
target's in the cache, a plain step takes up to twice as long."""

LASTS = SETTLING + 4
"""Steps of a trial on all sequences."""

EXPLORED = 0.01
"""Share of the time that trials may cost."""

EARLY, EXPLORED_EARLY = 1000, 0.03
"""Steps at the beginning, a few seconds of a server's life, and the share of their time that trials may cost:
what was not tried is only assumed."""

RARELY = 0.1
"""Smallest assumed cost of a trial, as a share of a plain step, so that a cheap trial is not made at each
step."""

WIDE = ("expand:3,1", "expand:2", "chain:1")
"""Trees tried to observe the second and third rank, which chains do not show: the first that fits."""


@dataclass(frozen=True)
class StepTrees:
    """The trees that a step drafts."""

    tree: str
    """Tree of every sequence."""

    trial: str | None = None
    """Tree of a trial, drafted instead."""

    alone: bool = False
    """Whether the trial is on one sequence only, the one that the draft is least behind of."""

    @property
    def common(self) -> str:
        """The tree of every sequence that is not tried alone."""
        return self.tree if self.trial is None or self.alone else self.trial


@dataclass(frozen=True)
class StepObservation:
    """Observed times of a step, in seconds. From a step in which a draft caught up, only that is learned;
    other steps that read a prompt are not observed."""

    batch: int
    turn: StepTrees
    levels: tuple[int, ...] | None
    """Nodes on each level of the grown trees; () if none was grown, None if their shapes differ."""

    tokens: int
    """Number of tokens in all trees, roots included."""

    emitted: int
    draft: float
    verify: float
    rest: float
    read: int = 0
    """Number of tokens that the draft read to catch up."""

    lengths: Lengths = field(default_factory=Lengths)

    @property
    def seconds(self) -> float:
        return self.draft + self.verify + self.rest


class Plans(Protocol):
    """The planner's interface for the drafter `auto`."""

    def turn(self, batch: int, behind: Callable[[], int] | None) -> StepTrees:
        """The trees of the next step for `batch` sequences.

        behind: returns the fewest tokens by which the draft is behind of any sequence; None if the step reads
        a prompt, so that no trial is made.
        """

    def learn(self, observed: StepObservation) -> None: ...

    def grown(self, topology: Topology, path: Sequence[int]) -> None:
        """Record the verdict on a tree: the nodes on `path` were accepted."""

    def copied(self, count: int, right: int) -> None:
        """Record a look-up of `count` tokens, of which the first `right` agree with the output."""


@dataclass
class _Held:
    """The planner's choice at one batch size."""

    option: TreeOption
    short: list[str]
    grown: str
    """The best tree that the draft grows."""

    wins: int = 0
    reckoned: int = 0
    """Step of the last evaluation."""

    pause: int = RECKON
    """Steps until the next evaluation."""

    reckonings: int = 0


@dataclass
class Planner:
    most_nodes: int
    grows: bool
    """Whether there is a draft."""

    goal: Goal = field(default_factory=Goal)
    paid: CostModel = field(default_factory=CostModel)
    accepted: TreeAcceptance = field(default_factory=lambda: TreeAcceptance(DEPTH))
    copies: CopyAcceptance = field(init=False)
    lengths: Lengths = field(default_factory=Lengths)
    """Mean lengths of the last sequences."""

    seconds: float = 0.0
    trial_seconds: float = 0.0
    """Part of `seconds` that trials cost."""

    _held: dict[int, _Held] = field(default_factory=dict)
    _credit: float = 0.0
    _saved_for: float = 0.0
    _trials: int = 0
    """Number of trials."""

    _asking: tuple[int, StepTrees, int] | None = None
    """Batch size of the running trial, its trees, and its remaining steps."""

    _settled: tuple[int, str, int] = (0, "", 0)
    """Batch size and tree of the last steps, and their number."""

    _steps: int = 0
    _grows_now: bool = False

    def __post_init__(self) -> None:
        self.copies = CopyAcceptance(min(max(COPIES), self.most_nodes))

    def turn(self, batch: int, behind: Callable[[], int] | None) -> StepTrees:
        held = self._held.get(batch)
        if held is None:
            options = self.options(batch)
            short, grown = _short(options), _grown(options)
            best = max(self._to_beat(options, batch), key=self.goal.worth)
            (best,) = (option for option in options if option.tree == best.tree)
            held = self._held[batch] = _Held(best, short, grown, reckoned=self._steps)
        elif self._steps - held.reckoned >= held.pause:
            self._reckon(batch, held)
        self._steps += 1
        self._grows_now = parse_tree(held.option.tree).needs_draft
        if self._asking is not None:
            size, turn, left = self._asking
            self._asking = (size, turn, left - 1) if left > 1 and size == batch else None
            if size == batch:
                return turn
        asks = behind is not None and self._credit >= self._saved_for
        question = self._question(batch, behind(), held) if behind is not None and asks else None
        if question is not None and not question.alone:
            self._asking = batch, question, LASTS - 1
        return question or StepTrees(held.option.tree)

    def learn(self, observed: StepObservation) -> None:
        self.lengths = observed.lengths
        if observed.read > 0:
            if observed.levels:
                self.paid.caught_up(observed.batch, observed.levels, observed.read, observed.draft)
            return
        self.seconds += observed.seconds
        self._credit += (EXPLORED if self._steps > EARLY else EXPLORED_EARLY) * observed.seconds
        if observed.turn.trial is not None:
            usual = self._held[observed.batch].option.tokens_per_second * observed.batch
            cost = max(0.0, observed.seconds - observed.emitted / usual)
            self.trial_seconds += cost
            self._credit -= cost
        size, tree, steps = self._settled
        steps = (
            steps + 1
            if (size, tree) == (observed.batch, observed.turn.common) and not observed.turn.alone
            else 0
        )
        self._settled = observed.batch, observed.turn.common, steps
        if observed.levels is None or observed.turn.alone or steps < SETTLING:
            return
        if observed.levels:
            self.paid.grew(observed.batch, observed.levels, observed.draft)
        elif observed.turn.common != NONE:
            self.paid.looked_up(observed.batch, observed.draft)
        self.paid.committed(observed.batch, observed.rest)
        ragged = observed.batch > 1 and not observed.levels and observed.tokens > observed.batch
        self.paid.verified(observed.batch, observed.tokens, observed.verify, ragged=ragged)

    def grown(self, topology: Topology, path: Sequence[int]) -> None:
        self.accepted.see(topology, path, MEMORY if self._grows_now else SELDOM)

    def copied(self, count: int, right: int) -> None:
        self.copies.see(count, right)

    def options(self, batch: int) -> list[TreeOption]:
        """All ways to decode a batch of `batch` sequences, the best first."""
        costs = self.paid.batch_costs(batch, self.most_nodes)
        options = tree_choice.ranked(self._rates(), costs, batch=batch, most_nodes=self.most_nodes)
        options = self._with_prompts(options, batch)
        options += [self._copy(count, costs) for count in COPIES if count <= self.most_nodes]
        return sorted(options, key=self.goal.worth, reverse=True)  # stable: among equals the smallest first

    def _rates(self) -> list[list[float]]:
        return self.accepted.rates if self.grows else []

    def _copy(self, count: int, costs: BatchCosts) -> TreeOption:
        tokens, drafted = self.copies.expected(count)
        return TreeOption(f"ngram:{count}", tokens, costs.copying(drafted, self.copies.lengths(count)))

    def _with_prompts(self, options: Sequence[TreeOption], batch: int) -> list[TreeOption]:
        """The options with the time in which the draft reads prompts, spread over the output; all
        sequences wait for it."""
        if self.lengths.prompt == 0 or not self.grows:
            return list(options)
        token = batch * self.paid.read(round(self.lengths.prompt)) / self.lengths.written
        return [
            option
            if option.tree == NONE
            else replace(option, seconds_per_step=option.seconds_per_step + token * option.tokens_per_step)
            for option in options
        ]

    def _to_beat(self, options: Sequence[TreeOption], batch: int) -> list[TreeOption]:
        """The options as they are compared: `none` with the gain that a draft must have, the others
        without their error."""
        error = self.paid.error(batch, batch)
        return [
            replace(option, tokens_per_step=option.tokens_per_step * (1 + CLEAR + error))
            if option.tree == NONE
            else replace(option, tokens_per_step=option.tokens_per_step * (1 - self._error(option, batch)))
            for option in options
        ]

    def _error(self, option: TreeOption, batch: int) -> float:
        spec = parse_tree(option.tree)
        drafted = self.copies.expected(spec.nodes)[1] if spec.kind == "ngram" else spec.nodes
        return self.paid.error(batch, round(batch * (1 + drafted)))

    def _some(self, trees: Sequence[str], batch: int) -> list[TreeOption]:
        costs, rates = self.paid.batch_costs(batch, self.most_nodes), self._rates()
        options = []
        for tree in trees:
            spec = parse_tree(tree)
            if spec.kind == "ngram":
                options.append(self._copy(spec.nodes, costs))
            else:
                options += self._with_prompts(
                    [tree_choice.option(spec.widths, rates, costs, batch=batch)], batch
                )
        return options

    def _reckon(self, batch: int, held: _Held) -> None:
        held.reckoned, held.reckonings = self._steps, held.reckonings + 1
        if held.reckonings % RANK == 0:
            options = self.options(batch)
            held.short, held.grown = _short(options), _grown(options)
        options = self._some([held.option.tree, *held.short], batch)
        held.option = options[0]
        current, *alternatives = self._to_beat(options, batch)
        best = max(alternatives, key=self.goal.worth)
        margin = 0.0 if current.tree == NONE else MARGIN  # what beats no draft is clear already
        held.wins = held.wins + 1 if self.goal.beats(best, current, margin) else 0
        near = held.reckonings < YOUNG or self.goal.beats(best, current, -NEAR)
        held.pause = RECKON if near else SELDOM_RECKON
        if held.wins >= PATIENCE:
            held.option, held.wins = next(option for option in options if option.tree == best.tree), 0

    def _question(self, batch: int, behind: int, held: _Held) -> StepTrees | None:
        """The trial of this step; None if the credit does not cover its cost."""
        trial = self._questions_at(batch, behind, held)
        if not trial:  # trees of one node, without a draft: copies start at two
            return None
        question = trial[self._trials % len(trial)]
        self._saved_for = self._cost(question, batch, behind, held)
        # What was not tried for a long time is tried once more, and not often.
        self._credit = min(self._credit, 2 * self._saved_for)
        if self._credit < self._saved_for:
            return None
        self._trials += 1
        return question

    def _questions_at(self, batch: int, behind: int, held: _Held) -> list[StepTrees]:
        """Possible trials at this batch size. Trees that the draft can grow for all sequences are tried on
        all. On one sequence alone are tried: trees for which the draft would have to catch up, and a wide
        one that shows further ranks."""
        tree = held.option.tree
        follows = (batch == 1 and behind <= DEPTH + 1) or parse_tree(tree).needs_draft
        alternatives = [candidate for candidate in held.short if candidate not in (tree, NONE)]
        if tree != NONE:  # tried as often as all others: what must not be slower than it
            alternatives = [candidate for rival in alternatives for candidate in (NONE, rival)]
        trial = [
            StepTrees(tree, candidate)
            for candidate in alternatives
            if follows or not parse_tree(candidate).needs_draft
        ]
        if self.grows:
            wide = next(candidate for candidate in WIDE if parse_tree(candidate).nodes <= self.most_nodes)
            alone = (wide,) if follows else (wide, held.grown, held.grown)
            trial += [StepTrees(tree, candidate, alone=True) for candidate in alone]
        return trial

    def _cost(self, question: StepTrees, batch: int, behind: int, held: _Held) -> float:
        """Predicted cost of a trial, in seconds. A trial on one sequence counts as if nothing of it were
        accepted."""
        assert question.trial is not None
        costs = self.paid.batch_costs(batch, self.most_nodes)
        least = RARELY * costs.plain
        if not question.alone:
            (option,) = self._some([question.trial], batch)
            usual = option.tokens_per_step / held.option.tokens_per_second
            return LASTS * max(least, option.seconds_per_step - usual)
        spec = parse_tree(question.trial)
        alone = self.paid.batch_costs(1, self.most_nodes)
        drafted = alone.first + sum(alone.level[nodes] for nodes in tree_choice.levels(spec.widths)[:-1])
        node_cost = (costs.verify[-1] - costs.verify[0]) / (batch * self.most_nodes)
        return max(least, drafted + self.paid.read(max(behind, 1)) + node_cost * spec.nodes)


def _short(options: Sequence[TreeOption]) -> list[str]:
    """The best few trees and the best of each kind, the smallest first, which wins among equals."""
    kinds = {parse_tree(option.tree).kind: option.tree for option in reversed(options)}
    trees = {*(option.tree for option in options[:SHORT]), *kinds.values()}
    return sorted(trees, key=lambda tree: (parse_tree(tree).nodes, tree))


def _grown(options: Sequence[TreeOption]) -> str:
    return next((option.tree for option in options if parse_tree(option.tree).needs_draft), NONE)
