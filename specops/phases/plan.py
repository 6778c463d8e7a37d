"""`plan explain`: what the planner would choose at each batch size, and why.

The engine decodes the prompts at each batch size with a few trees in turn, and the planner of `tree: auto`
learns from those steps as it does in serving. What it then predicts of every tree is shown, and what it
rests on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from time import monotonic

from pydantic import Field, PositiveFloat, PositiveInt

from specops import results
from specops.engine import Engine, Sampling, load_engine
from specops.engine.drafters.auto import Auto
from specops.engine.planner import tree_choice
from specops.engine.planner.planner import COPIES, LASTS, NONE, Planner, StepObservation, StepTrees
from specops.engine.planner.tree_choice import Goal, TreeOption
from specops.engine.tree import Topology
from specops.errors import UsageError
from specops.hints import with_options
from specops.load.workload import load_prompts
from specops.progress import Progress
from specops.results import milliseconds, rounded
from specops.section import Frozen
from specops.trees import MOST_PLANNED, PLANNED, parse_tree

SURVEYED = (NONE, "chain:1", "chain:4", "expand:3,1", "ngram:8")
TOGETHER = LASTS
"""Steps of one tree before the next, of which the planner learns from the last."""

LONGEST_S = 20.0
"""Seconds at one batch size after which the observations have to do."""

SHOWN = 4
"""The best of the options, beside the best of each kind."""

PASSES = (0, 1, 2, 4, 8, 16, 32)
"""Nodes of each tree at which the target's pass is shown."""


class PlanSettings(Frozen):
    target: Path
    draft: str | None
    prompts: Path
    batches: tuple[PositiveInt, ...] = (1, 2, 4, 8, 16)
    nodes: int = Field(default=PLANNED, ge=1, le=MOST_PLANNED)
    threads: PositiveInt | None = None
    temperature: float = Field(default=0.0, ge=0)
    prompt_tokens: PositiveInt = 128  # the last ones of each prompt
    tokens: PositiveInt = 64  # of each answer
    steps: PositiveInt = 4 * TOGETHER * len(SURVEYED)
    """Observed at each batch size; those alone that had the whole batch and read no prompt."""

    gap_ms: PositiveFloat | None = None
    token_ms: PositiveFloat | None = None

    @property
    def goal(self) -> Goal:
        def seconds(ms: float | None) -> float | None:
            return None if ms is None else ms / 1000

        return Goal(gap=seconds(self.gap_ms), token=seconds(self.token_ms))


class DepthAcceptance(Frozen):
    """Children of nodes at one depth, the root's first."""

    by_rank: tuple[float, ...]
    observations: tuple[float, ...]
    """How many observations each stands on; older ones count for less."""


class Copies(Frozen):
    looked_up: float
    tokens_per_step: dict[int, float]
    """Tokens a step, by how many tokens are copied at most."""

    drafted_per_step: dict[int, float]


class Candidate(Frozen):
    tree: str
    tokens_per_step: float
    step_ms: float
    tokens_per_s: float
    """Tokens a second of the whole batch."""

    over_none: float
    """Times as fast."""

    within: bool
    """Whether it meets the limits that were set."""

    wins_at_tokens: float
    """Tokens a step at which it would be as fast as the one that is chosen."""

    wins_at_rate: float | None
    """The acceptance of a root's first child that this takes; None where none would do, and of copies."""

    any_shape: float | None
    """Tokens a step of the best tree of any shape with as many nodes (Sequoia), which is drafted
    `shape:…`."""


class BatchPlan(Frozen):
    batch: int
    chosen: str
    why: str
    steps: int
    """Number of steps that were observed."""

    plain_ms: float
    pass_ms: dict[int, float]
    """The target's pass and verification, by the nodes of each tree."""

    draft_first_ms: float | None
    draft_level_ms: dict[int, float]
    """A further pass of the draft, by the nodes of each tree on the level."""

    rest_ms: float
    options: tuple[Candidate, ...]


class PlanExplanation(Frozen):
    target: str
    draft: str | None
    nodes: int
    temperature: float
    acceptance: tuple[DepthAcceptance, ...]
    copies: Copies
    by_batch: tuple[BatchPlan, ...]


class _Survey:
    """Every tree in turn, whatever it brings; the planner learns from it."""

    def __init__(self, planner: Planner, trees: Sequence[str]) -> None:
        self._planner, self._trees = planner, trees
        self._turns = 0
        self.observed: list[int] = []
        """The batch sizes of steps that were learned from."""

    def turn(self, batch: int, behind: Callable[[], int] | None) -> StepTrees:
        self._turns += 1
        return StepTrees(self._trees[self._turns // TOGETHER % len(self._trees)])

    def learn(self, observed: StepObservation) -> None:
        self.observed.append(observed.batch)
        self._planner.learn(observed)

    def grown(self, topology: Topology, path: Sequence[int]) -> None:
        self._planner.accepted.see(topology, path)

    def copied(self, count: int, right: int) -> None:
        self._planner.copied(count, right)


def explain(settings: PlanSettings, progress: Progress) -> results.Result:
    """Explain the plan. Raises ModelError for a pair that cannot be loaded, PromptsError and UsageError for
    prompts or batches that cannot be decoded."""
    prompts = load_prompts(settings.prompts).as_text(progress.note)
    engine = load_engine(
        settings.target,
        settings.draft,
        tree=f"auto:{settings.nodes}",
        max_batch=max(settings.batches),
        threads=settings.threads,
    )
    auto = engine.drafter
    assert isinstance(auto, Auto)
    assert isinstance(auto.planner, Planner)
    planner = auto.planner
    planner.goal = settings.goal
    ids = [_encoded(engine, prompt.completion_prompt(), settings) for prompt in prompts.prompts]
    trees = [tree for tree in SURVEYED if _possible(tree, settings)]
    survey = _Survey(planner, trees)
    auto.planner = survey
    progress.start("batch sizes", len(settings.batches))
    for batch in sorted(settings.batches):
        _decode(engine, survey, ids, batch, settings)
        progress.advance()
    explanation = PlanExplanation(
        target=settings.target.name,
        draft=settings.draft and Path(settings.draft).name,
        nodes=settings.nodes,
        temperature=settings.temperature,
        acceptance=_acceptance(planner),
        copies=_copies(planner),
        by_batch=tuple(
            _batch_plan(planner, batch, survey.observed.count(batch)) for batch in sorted(settings.batches)
        ),
    )
    chosen = {batch_plan.batch: batch_plan.chosen for batch_plan in explanation.by_batch}
    return results.Result(
        phase="plan",
        inputs={"prompts": prompts.sha256},
        settings=settings.model_dump(mode="json"),
        environment=results.environment() | {"torch": version("torch")},
        verdict="yes" if any(tree != NONE for tree in chosen.values()) else "no",
        reason=", ".join(f"{tree} at {batch}" for batch, tree in chosen.items()),
        summary={"chosen": chosen},
        data=explanation.model_dump(mode="json"),
    )


def _possible(tree: str, settings: PlanSettings) -> bool:
    spec = parse_tree(tree)
    return spec.nodes <= settings.nodes and (settings.draft is not None or not spec.needs_draft)


def _encoded(engine: Engine, prompt: str | list[int], settings: PlanSettings) -> list[int]:
    ids = engine.tokenizer.encode(prompt) if isinstance(prompt, str) else prompt
    room = engine.max_length - settings.tokens
    if room < 1:
        raise UsageError(
            f"answers of {settings.tokens} tokens leave no room for a prompt: the target holds "
            f"{engine.max_length} tokens",
            hint=with_options({"--tokens": str(max(1, engine.max_length // 2))}),
        )
    return list(ids[-min(settings.prompt_tokens, room) :])


def _decode(
    engine: Engine, survey: _Survey, prompts: Sequence[list[int]], batch: int, settings: PlanSettings
) -> None:
    """Keep a batch of so many going until enough was observed of it."""
    started, submitted, running = monotonic(), 0, set[int]()
    while survey.observed.count(batch) < settings.steps and monotonic() - started < LONGEST_S:
        while len(running) < batch:
            sampling = Sampling(
                temperature=settings.temperature, seed=submitted, max_tokens=settings.tokens, ignore_eos=True
            )
            running.add(engine.submit(prompts[submitted % len(prompts)], sampling))
            submitted += 1
        running -= {e.sequence_id for e in engine.step() if e.finish_reason is not None}
    for sequence in running:
        engine.cancel(sequence)


def _acceptance(planner: Planner) -> tuple[DepthAcceptance, ...]:
    if not planner.grows:
        return ()
    rows = zip(planner.accepted.rates, planner.accepted.observations, strict=True)
    return tuple(
        DepthAcceptance(
            by_rank=tuple(round(r, 4) for r in rates), observations=tuple(round(n, 1) for n in numbers)
        )
        for rates, numbers in rows
    )


def _copies(planner: Planner) -> Copies:
    counts = [count for count in COPIES if count <= planner.copies.most]
    expected = {count: planner.copies.expected(count) for count in counts}
    return Copies(
        looked_up=round(planner.copies.observations, 1),
        tokens_per_step={count: round(tokens, 3) for count, (tokens, _) in expected.items()},
        drafted_per_step={count: round(drafted, 3) for count, (_, drafted) in expected.items()},
    )


def _batch_plan(planner: Planner, batch: int, steps: int) -> BatchPlan:
    options = planner.options(batch)
    best = options[0]
    plain = next(option for option in options if option.tree == NONE)
    kinds = {parse_tree(option.tree).kind: option for option in reversed(options)}
    listed = list(dict.fromkeys([*options[:SHOWN], *kinds.values()]))
    listed.sort(key=planner.goal.worth, reverse=True)
    candidates = tuple(_candidate(planner, option, best, plain, batch) for option in listed)
    costs = planner.paid.batch_costs(batch, planner.most_nodes)
    levels = [nodes for nodes in PASSES[1:] if nodes <= planner.most_nodes] if planner.grows else []
    return BatchPlan(
        batch=batch,
        chosen=best.tree,
        why=_why(candidates),
        steps=steps,
        plain_ms=milliseconds(costs.plain),
        pass_ms={nodes: milliseconds(costs.verify[nodes]) for nodes in PASSES if nodes <= planner.most_nodes},
        draft_first_ms=milliseconds(costs.first) if planner.grows else None,
        draft_level_ms={nodes: milliseconds(costs.level[nodes]) for nodes in levels},
        rest_ms=milliseconds(costs.rest),
        options=candidates,
    )


def _candidate(
    planner: Planner, option: TreeOption, best: TreeOption, plain: TreeOption, batch: int
) -> Candidate:
    spec = parse_tree(option.tree)
    wins = best.tokens_per_second * option.seconds_per_step
    rates = planner.accepted.rates
    return Candidate(
        tree=option.tree,
        tokens_per_step=round(option.tokens_per_step, 3),
        step_ms=milliseconds(option.seconds_per_step),
        tokens_per_s=round(batch * option.tokens_per_second, 1),
        over_none=round(option.tokens_per_second / plain.tokens_per_second, 3),
        within=planner.goal.met(option),
        wins_at_tokens=round(wins, 3),
        wins_at_rate=rounded(tree_choice.break_even(rates, spec.widths, wins)) if spec.needs_draft else None,
        any_shape=round(tree_choice.ceiling(rates, spec.nodes), 3) if spec.needs_draft else None,
    )


def _why(candidates: Sequence[Candidate]) -> str:
    """Return the reason in one sentence, `candidates` being the best first."""
    best, *slower = candidates
    if not slower:
        return "no other tree fits into this many nodes"
    second = slower[0]
    if best.tree == NONE:
        why = f"no tree is predicted to beat tree none: best is {second.tree} ({second.over_none:.2f}×)"
        if second.wins_at_rate is not None:
            why += f"; break-even at root acceptance {second.wins_at_rate:.2f}"
        return why
    why = f"{best.tokens_per_step:.2f} tokens in {best.step_ms:.2f} ms"
    why += f", {best.over_none:.2f}× the speed of tree none"
    if best.within and not second.within:
        return f"{why}; {second.tree} is beyond the limits"
    behind = 100 * (1 - second.tokens_per_s / best.tokens_per_s)
    return f"{why}; {second.tree} is {behind:.1f}% behind"
