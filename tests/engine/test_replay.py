"""A replay says what the engine does: to the step where nothing is left to chance, else within its noise."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest
from tiny_models import Pair as TinyPair

from specops.assets import asset
from specops.engine import Sampling
from specops.engine.load import Pair
from specops.engine.planner.offline_acceptance import Trace, copied, rates, table, trace
from specops.load.workload import load_prompts
from specops.trees import parse_tree

TOKENS, ROOM = 40, 240
PROMPTS = 2


@cache
def shipped(draft: str) -> Pair:
    return Pair(asset("playbooks", "embedded", "target"), asset("playbooks", "embedded", draft))


def prompts(pair: Pair) -> Iterator[list[int]]:
    chosen = load_prompts(asset("playbooks", "embedded", "prompts.json")).prompts[:: 64 // PROMPTS]
    for prompt in chosen[:PROMPTS]:
        yield pair.tokenizer.encode(prompt.content)[-100:]


def written(pair: Pair, prompt: list[int], temperature: float, seed: int = 0) -> Trace:
    sampling = Sampling(temperature=temperature, seed=seed, max_tokens=TOKENS, ignore_eos=True)
    tokens = pair.engine("none", len(prompt) + TOKENS).generate(prompt, sampling).tokens
    return trace(pair, prompt, tokens, temperature, depth=5, ranks=4, seed=seed)


@pytest.mark.quick(1)
@pytest.mark.parametrize("draft", ["draft", "head", "recurrent", "medusa", "exit"])
def test_greedy_steps_are_the_engines(draft: str) -> None:
    pair = shipped(draft)
    # Token by token these two draft with a byte a weight, which may settle a near tie otherwise.
    off = 1 if draft in ("head", "recurrent") else 0
    drafted = 0
    for prompt in prompts(pair):
        along = written(pair, prompt, 0.0)
        for tree in ("chain:1", "chain:5", "expand:2,1,1", "expand:1,3,2", "expand:4"):
            engine = pair.engine(tree, ROOM)
            engine.generate(prompt, Sampling(max_tokens=TOKENS, ignore_eos=True))
            assert along.steps(parse_tree(tree).widths) == pytest.approx(engine.counters.steps, abs=off)
            drafted += engine.counters.accepted_tokens
    assert drafted > 5 * PROMPTS  # or it would have shown nothing


def test_copied_drafts_are_the_engines() -> None:
    pair = shipped("draft")
    accepted = 0
    for prompt in prompts(pair):
        engine = pair.engine("ngram:4", ROOM)
        engine.generate(prompt, Sampling(max_tokens=TOKENS, ignore_eos=True))
        drafted = copied(written(pair, prompt, 0.0), 4)
        assert (len(drafted), sum(drafted)) == (engine.counters.steps, engine.counters.draft_tokens)
        accepted += engine.counters.accepted_tokens
    assert accepted > 0


@pytest.mark.quick(1)
@pytest.mark.parametrize("tree", ["chain:4", "expand:3,2,1"])
def test_sampled_steps_are_the_engines_in_the_mean(llama: TinyPair, tree: str) -> None:
    """Both sides are random: the text that was written, and the engine's own draws. Within 5 sigma."""
    pair = Pair(llama.target, llama.draft)
    engine = pair.engine(tree, pair.positions)
    expected, found = [], []
    for seed in range(24):
        expected.append(written(pair, [5, 6, 7], 1.0, seed).steps(parse_tree(tree).widths))
        before = engine.counters.steps
        engine.generate([5, 6, 7], Sampling(1.0, seed=1000 + seed, max_tokens=TOKENS, ignore_eos=True))
        found.append(engine.counters.steps - before)
    noise = (statistics.variance(expected) + statistics.variance(found)) / len(found)
    assert abs(statistics.fmean(expected) - statistics.fmean(found)) < 5 * noise**0.5
    assert statistics.fmean(found) < 0.9 * TOKENS  # or it would have shown nothing


def made_up(hits: list[list[float]], *, opens_bare: bool = False) -> Trace:
    """Of a draft model: every depth alike. hits: by token, by rank."""
    return Trace((7, 8), tuple(range(len(hits))), np.array([hits]), opens_bare)


def test_steps_by_hand() -> None:
    certain = [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 0.0], [1.0, 0.0]]
    # roots before 0, 2 (1 was refused), 4 (3 was refused)
    assert made_up(certain).steps((1, 1)) == 3
    # 0 and 1 are accepted and 2 is the target's own; then 3 is refused, and 4 follows
    assert made_up(certain).steps((2, 2)) == 3
    assert made_up(certain).steps((2, 2, 2)) == 2
    # 0 comes without a draft; 1 is refused; 2 is accepted and 3 refused; 4
    assert made_up(certain, opens_bare=True).steps((1, 1)) == 4
    assert made_up(certain).steps(()) == 5
    # 0 comes alone or with 1: a root before 1 in half the cases, and it takes 2 along or not
    assert made_up([[0.5], [0.5], [0.5]]).steps((1,)) == pytest.approx(1 + 0.5 + 0.75)


def test_table_by_hand() -> None:
    found = table([made_up([[1, 0], [0.5, 0.5], [0, 0]]), made_up([[0, 1]], opens_bare=True)], 3)
    assert found.parents.tolist() == [3, 1.5, 0.5]  # the second trace's only root has no draft
    assert found.accepted.tolist() == [[1.5, 0.5], [0.5, 0.5], [0, 0]]
    assert found.rates[2].tolist() == [0, 0]


def test_rates_at_the_root_are_the_traces() -> None:
    """Greedy: the table's first row, added up by rank, is what `benchmarks/acceptance.py` counts."""
    pair = shipped("head")
    prompt = next(prompts(pair))
    counted = rates(pair, prompt, TOKENS, 4, seed=0)["greedy"]
    row = table([written(pair, prompt, 0.0)], 1).rates[0]
    assert np.cumsum(row).tolist() == pytest.approx(counted)
