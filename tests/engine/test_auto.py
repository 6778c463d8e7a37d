"""`tree: auto` in the engine: lossless whatever is planned, with a draft that falls behind and catches up.

The plans are scripted so that the tree changes at every step, also in the middle of a prompt.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import cycle
from pathlib import Path
from types import SimpleNamespace

import pytest
from drafts_cases import save_head
from enumeration import Script, distribution_of, total_variation
from joint import after_cuts, continuations
from tables import Prefix, TableHead, TableModel, random_table
from tiny_models import Pair, clear_prompts, drain, tokens_of
from tokenizers import Tokenizer, models

from specops.engine import load_engine
from specops.engine import sequence as sequence_module
from specops.engine.draft import MakeGrower
from specops.engine.drafters import make_drafter
from specops.engine.drafters.auto import Auto
from specops.engine.heads.draft_model import ModelGrower
from specops.engine.heads.eagle import EagleGrower
from specops.engine.planner.cost_model import ROUGH
from specops.engine.planner.planner import NONE, Planner, StepObservation, StepTrees
from specops.engine.planner.warm_up import warm_up
from specops.engine.request import Sampling
from specops.engine.step import Engine
from specops.engine.tree import Draw, Topology
from specops.engine.verifiers import make_verifier
from specops.errors import UsageError
from specops.trees import parse_tree

EXACT = 1e-12
Q = TableModel(random_table(1))
TURNS = (
    StepTrees("expand:2,1"),
    StepTrees(NONE),
    StepTrees(NONE, "chain:2", alone=True),
    StepTrees("ngram:2"),
    StepTrees("chain:3", NONE),
    StepTrees("chain:1", "expand:3", alone=True),
    StepTrees("ngram:3", "chain:3", alone=True),
    StepTrees(NONE),
    StepTrees("chain:2"),
)


class Scripted:
    """Plans that change at every step, and what they were told."""

    def __init__(self, turns: Iterable[StepTrees]) -> None:
        self._turns = cycle(turns)
        self.seen: list[StepObservation] = []
        self.paths: list[tuple[int, ...]] = []
        self.copies: list[tuple[int, int]] = []

    def turn(self, batch: int, behind: Callable[[], int] | None) -> StepTrees:
        return next(self._turns)

    def learn(self, seen: StepObservation) -> None:
        self.seen.append(seen)

    def grown(self, topology: Topology, path: Sequence[int]) -> None:
        self.paths.append(tuple(path))

    def copied(self, found: int, right: int) -> None:
        self.copies.append((found, right))


Cases = list[tuple[list[int], list[int]]]  # prompts and what the target writes after them


@pytest.fixture(scope="module")
def cases(llama: Pair) -> Cases:
    return clear_prompts(llama.reference, [3, 40, 17, 9, 25, 31], 24)


def auto_of(engine: Engine) -> Auto:
    assert isinstance(engine.drafter, Auto)
    return engine.drafter


@pytest.mark.parametrize("start", [0, 2, 5])
@pytest.mark.parametrize("chunk", [1, 256])
@pytest.mark.parametrize(
    "grower", [partial(ModelGrower, Q), partial(EagleGrower, TableHead(Q.table))], ids=["draft model", "head"]
)
def test_the_output_has_the_targets_distribution_under_every_plan(
    start: int, chunk: int, grower: MakeGrower, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By enumeration: every answer that chance can give, four tokens, another tree at each step."""
    p, prompt, count = random_table(0), (0, 1, 0, 1), 3
    tokenizer = SimpleNamespace(
        backend_tokenizer=Tokenizer(models.WordLevel({"a": 0, "b": 1, "c": 2}, unk_token="a"))
    )
    sampling = Sampling(temperature=0.9, top_p=0.95, max_tokens=count)

    def run(chance: Script) -> Prefix:
        monkeypatch.setattr(sequence_module, "Dice", lambda seed: chance)
        drafter = make_drafter("auto:4", Draw.WITHOUT_REPLACEMENT, [grower], rows=1, length=12)
        engine = Engine(
            TableModel(p),
            drafter,
            make_verifier("traversal"),
            tokenizer,
            frozenset(),
            max_batch=1,
            max_length=12,
            prefill_chunk=chunk,
        )
        auto_of(engine).planner = Scripted(TURNS[start:])
        return tuple(engine.generate(list(prompt), sampling).tokens)

    expected = continuations(after_cuts(p, sampling), prompt, count)
    assert total_variation(distribution_of(run), expected) < EXACT


@pytest.mark.quick(1)
@pytest.mark.parametrize("prefill_chunk", [7, 256])
@pytest.mark.parametrize("with_head", [False, True], ids=["draft model", "head"])
def test_greedy_output_is_the_targets_while_plans_change(
    llama: Pair, cases: Cases, with_head: bool, prefill_chunk: int, tmp_path: Path
) -> None:
    """Six sequences in three rows: they come and go, and are drafted for now and then."""
    head = save_head(tmp_path / "head", llama.target_model.width) if with_head else None
    engine = llama.engine("auto:8", head=head, max_batch=3, prefill_chunk=prefill_chunk)
    plans = auto_of(engine).planner = Scripted(TURNS)
    ends = [24, 5, 24, 13, 24, 1]
    requests = [(prompt, Sampling(max_tokens=end)) for (prompt, _), end in zip(cases, ends, strict=True)]
    found = [tokens_of(emissions) for emissions in drain(engine, requests)]
    assert found == [output[:end] for (_, output), end in zip(cases, ends, strict=True)]
    counted = engine.counters
    assert sum(counted.steps_by_tree.values()) > 20
    assert len(counted.steps_by_tree) > 4
    assert with_head or any(plans.paths), "no draft was ever accepted"
    assert counted.drafts >= len(plans.paths) > 0


def test_a_draft_that_fell_behind_drafts_as_one_that_has_just_read_all(llama: Pair, cases: Cases) -> None:
    """After eleven steps without a draft, what is accepted is what it is with those tokens as the prompt."""
    prompt, output = cases[3]
    ahead = StepTrees("chain:4")

    def accepted(prompt: list[int], count: int, turns: Sequence[StepTrees]) -> list[tuple[int, ...]]:
        engine = llama.engine("auto:8", max_batch=1)
        plans = auto_of(engine).planner = Scripted(turns)
        engine.generate(prompt, Sampling(max_tokens=count))
        return plans.paths

    behind = accepted(prompt, 24, [*[StepTrees(NONE)] * 11, *[ahead] * 30])
    assert behind == accepted(prompt + output[:11], 13, [ahead])
    assert any(behind)


def test_the_planner_is_told_what_was_true(llama: Pair) -> None:
    """Costs only of steps without a prompt, how many tokens they gave, and what else the draft read."""
    engine = llama.engine("auto:8", max_batch=2)
    plans = auto_of(engine).planner = Scripted([StepTrees("chain:2"), StepTrees("ngram:4")])
    ids = [engine.submit([5, 6, 7, 8, 5, 6, 7, 8, 5, 6], Sampling(max_tokens=40)) for _ in range(2)]
    before, emitted, steps = 0, 0, 0
    while not engine.idle:
        emissions = engine.step()
        if len(plans.seen) > before:
            before = len(plans.seen)
            emitted += sum(len(emission.tokens) for emission in emissions)
        steps += bool(emissions)
    assert len(ids) == 2
    assert 10 < len([seen for seen in plans.seen if seen.read == 0]) < steps
    assert sum(seen.read for seen in plans.seen) == 20
    assert plans.seen[0].lengths.prompt == 0
    cut = sum(seen.emitted for seen in plans.seen) - emitted
    assert 0 <= cut <= 8  # what was verified beyond the ends
    assert all(seen.seconds > 0 and seen.tokens >= seen.batch for seen in plans.seen)
    assert plans.copies
    assert all(0 <= right <= found <= 8 for found, right in plans.copies)


@pytest.mark.parametrize("nodes", [1, 2, 8])
def test_the_real_planner_runs_and_has_measured(
    llama: Pair, cases: Cases, nodes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asks at half of all steps here, so that every question comes up."""
    monkeypatch.setattr("specops.engine.planner.planner.EXPLORED_EARLY", 0.5)
    engine = llama.engine(f"auto:{nodes}", max_batch=4)
    warm_up(engine, auto_of(engine))
    planner = auto_of(engine).planner
    assert isinstance(planner, Planner)
    assert set(planner.paid.base.target) == {1, 2, 4}
    requests = [(prompt, Sampling(max_tokens=24)) for prompt, _ in cases]
    assert [tokens_of(each) for each in drain(engine, requests)] == [output for _, output in cases]
    assert planner.seconds > 0
    assert planner.paid.observed_kinds > 0
    assert planner._trials > 0  # what that cost may be nothing, where no such step was slower than is usual
    kinds = {parse_tree(option.tree).kind for option in planner.options(4)}
    assert {"none", "chain"} <= kinds <= {"none", "chain", "expand", "ngram"}


@pytest.mark.parametrize(("positions", "measured"), [(1024, True), (64, True), (40, True), (39, False)])
def test_a_target_with_few_positions(
    positions: int, measured: bool, tiny_pair: tuple[Path, Path], tmp_path: Path
) -> None:
    """Its sequences end while steps are timed, and are begun anew."""
    shutil.copytree(tiny_pair[0], tmp_path / "target")
    config = tmp_path / "target" / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "max_position_embeddings": positions}))
    engine = load_engine(tmp_path / "target", tmp_path / "target", tree="auto", max_batch=4)
    planner = auto_of(engine).planner
    assert isinstance(planner, Planner)
    assert (planner.paid.base is not ROUGH) == measured
    if measured:
        assert set(planner.paid.base.target) == {1, 2, 4}
    sampling = Sampling(max_tokens=positions - 4, ignore_eos=True)
    assert len(engine.generate([1, 2, 3, 4], sampling).tokens) == positions - 4


def test_without_a_draft_it_copies(llama: Pair) -> None:
    drafter = make_drafter("auto:4", Draw.WITHOUT_REPLACEMENT, [], rows=1, length=64)
    assert isinstance(drafter, Auto)
    assert isinstance(drafter.planner, Planner)
    assert drafter.draws is Draw.DETERMINISTIC
    assert not drafter.reads_features
    kinds = {parse_tree(option.tree).kind for option in drafter.planner.options(1)}
    assert kinds == {"none", "ngram"}


def test_a_tree_of_one_node_without_a_draft_is_none(llama: Pair) -> None:
    """Copies start at two tokens, so that there is nothing else to choose or to ask for."""
    engine = load_engine(llama.target, tree="auto:1", max_batch=1)
    assert len(engine.generate([1, 2, 3], Sampling(max_tokens=40)).tokens) == 40
    assert engine.counters.steps_by_tree == {"none": engine.counters.steps}


def test_it_is_a_tree_like_any_other() -> None:
    spec, most = parse_tree("auto"), parse_tree("auto:32")
    assert (spec.nodes, spec.depth, most.nodes) == (16, 16, 32)
    assert spec.takes_draft
    assert not spec.needs_draft


@pytest.mark.parametrize("tree", ["auto:0", "auto:33", "auto:4:2", "auto+ngram:4", "ngram:4/auto", "auto:x"])
def test_what_is_no_plan_is_refused(tree: str) -> None:
    with pytest.raises(UsageError):
        parse_tree(tree)


def test_it_plans_for_one_draft() -> None:
    with pytest.raises(UsageError, match="one draft"):
        make_drafter("auto", Draw.WITHOUT_REPLACEMENT, [partial(ModelGrower, Q)] * 2, rows=1, length=12)
