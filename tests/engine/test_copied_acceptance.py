"""Acceptance of copied drafts from the text alone is the engine's own count, step by step."""

from __future__ import annotations

from pathlib import Path

import pytest

from specops.engine import Sampling, load_engine
from specops.engine.planner.copied_acceptance import SuffixDrafts, ngram_drafts
from specops.serving import Steps

KS = (1, 2, 4, 8)
PROMPTS = [[5, 6, 7, 8, 5, 6, 7], [9, 9, 9, 4, 3], [2, 3, 4, 2, 3, 4, 2, 3], [11, 12, 13, 14, 15, 16]]
TOKENS = 40


def counters(tree: str, target: Path, samplings: list[Sampling]) -> tuple[list[list[int]], tuple[int, ...]]:
    """The answers of an engine with copies, one after the other, and its counters over all of them."""
    engine = load_engine(target, None, tree=tree, max_batch=1)
    answers = [
        engine.generate(prompt, sampling).tokens for prompt, sampling in zip(PROMPTS, samplings, strict=True)
    ]
    counted = engine.counters
    positions = [number for number in counted.accepted_per_position if number]
    return answers, (counted.drafts, counted.draft_tokens, counted.accepted_tokens, *positions)


def predicted(steps: list[Steps]) -> tuple[int, ...]:
    """The same figures from the steps that the text says."""
    drafting = [pair for answer in steps for pair in answer if pair[0]]
    most = max((accepted for _, accepted in drafting), default=0)
    positions = [sum(accepted >= depth for _, accepted in drafting) for depth in range(1, most + 1)]
    return (
        len(drafting),
        sum(drafted for drafted, _ in drafting),
        sum(accepted for _, accepted in drafting),
        *positions,
    )


@pytest.fixture(scope="module")
def whole() -> list[Sampling]:
    """Greedy, up to the limit: nothing ends within a draft."""
    return [Sampling(max_tokens=TOKENS, ignore_eos=True) for _ in PROMPTS]


@pytest.mark.parametrize("k", KS)
def test_ngrams_are_accepted_as_the_engine_counts(k: int, tiny_pair: tuple[Path, Path], whole) -> None:
    answers, counted = counters(f"ngram:{k}", tiny_pair[0], whole)
    drafts = [
        ngram_drafts(prompt, answer, max(KS), TOKENS) for prompt, answer in zip(PROMPTS, answers, strict=True)
    ]
    assert predicted([each.steps(k) for each in drafts]) == counted
    assert counted[2] > 0, "nothing was accepted, so nothing was tested"


@pytest.mark.parametrize("size", KS)
def test_suffix_trees_are_accepted_as_the_engine_counts(size: int, tiny_pair, whole) -> None:
    """All sizes are predicted in one pass; the engine runs one of them."""
    answers, counted = counters(f"suffix:{size}", tiny_pair[0], whole)
    trees = SuffixDrafts(KS)
    steps = [
        trees.steps(prompt, answer, TOKENS)[size] for prompt, answer in zip(PROMPTS, answers, strict=True)
    ]
    assert predicted(steps) == counted
    assert counted[2] > 0


def test_an_end_within_a_draft_is_bounded(tiny_pair: tuple[Path, Path], whole) -> None:
    """The engine counts what it accepted behind the end of an answer, which no log has."""
    answers, _ = counters("none", tiny_pair[0], whole)
    stops = [Sampling(max_tokens=TOKENS, stop_token_ids=(answer[TOKENS // 2],)) for answer in answers]
    ended, counted = counters("ngram:4", tiny_pair[0], stops)
    steps = [
        ngram_drafts(prompt, answer, 4, TOKENS).steps(4)
        for prompt, answer in zip(PROMPTS, ended, strict=True)
    ]
    figures = predicted(steps)
    assert figures[:2] == counted[:2]  # what was drafted does not depend on what comes behind
    last = [answer[-1] for answer in steps]
    beyond = sum(
        drafted - accepted
        for (drafted, accepted), each, answer in zip(last, steps, ended, strict=True)
        if sum(a + 1 for _, a in each) > len(answer)
    )
    assert figures[2] <= counted[2] <= figures[2] + beyond
