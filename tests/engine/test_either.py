"""Copies or a model's tree, step by step: lossless whichever is taken, and no draft pass where a copy is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence as Batch
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from enumeration import Script, distribution_of, total_variation
from joint import Joint, continuations
from tables import Prefix, TableHead, TableModel, random_table
from tiny_models import POSITIONS, VOCABULARY, Pair, drain, tokens_of
from tokenizers import Tokenizer, models
from torch import Tensor

from specops.engine import sequence as sequence_module
from specops.engine.draft import Drafter, Level, MakeGrower
from specops.engine.drafters import make_drafter
from specops.engine.drafters.compound import CopyFirst
from specops.engine.heads.draft_model import ModelGrower
from specops.engine.heads.eagle import EagleGrower
from specops.engine.request import Sampling
from specops.engine.sequence import Sequence
from specops.engine.step import Engine
from specops.engine.tree import Draw, TokenTree
from specops.engine.verifiers.mss import MultiStep
from specops.engine.verifiers.naive import Naive
from specops.engine.verifiers.ranked import Ranked
from specops.engine.verifiers.traversal import Traversal
from specops.engine.verifiers.verifier import Verifier

REPEATS = (0, 1, 0, 1)
Q = random_table(1)


def whole_engine(drafter: Drafter, verifier: Verifier) -> Engine:
    tokenizer = SimpleNamespace(
        backend_tokenizer=Tokenizer(models.WordLevel({"a": 0, "b": 1, "c": 2}, unk_token="a"))
    )
    target = TableModel(random_table(0))
    return Engine(
        target, drafter, verifier, tokenizer, frozenset(), max_batch=1, max_length=12, prefill_chunk=3
    )


@pytest.mark.quick(8)
@pytest.mark.parametrize(
    ("verifier", "grower"),
    [
        pytest.param(Traversal(), partial(EagleGrower, TableHead(Q)), id="traversal-head"),
        pytest.param(Traversal(), partial(ModelGrower, TableModel(Q)), id="traversal-model"),
        pytest.param(Ranked(), partial(ModelGrower, TableModel(Q)), id="ranked-model"),
        pytest.param(MultiStep(), partial(ModelGrower, TableModel(Q)), id="mss-model"),
        pytest.param(Naive(), partial(EagleGrower, TableHead(Q)), id="naive-head"),
    ],
)
@pytest.mark.parametrize(
    ("spec", "draw"),
    [
        ("ngram:2/chain:2", Draw.WITHOUT_REPLACEMENT),
        ("ngram:1/expand:2", Draw.WITHOUT_REPLACEMENT),
        ("ngram:1/expand:2", Draw.IID),
        ("suffix:3/chain:1", Draw.WITHOUT_REPLACEMENT),
        ("suffix:2/chain:1+ngram:1", Draw.IID),
    ],
)
def test_lossless_over_several_steps(
    spec: str, draw: Draw, verifier: Verifier, grower: MakeGrower, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The head's table refuses features that are not those of its very prefix: it has caught up rightly."""
    taken: Counter[bool] = Counter()
    draft = CopyFirst.draft

    def spy(self: CopyFirst, sequences: Batch[Sequence]) -> list[TokenTree]:
        trees = draft(self, sequences)
        taken[self._records[sequences[0].id].copied] += 1
        return trees

    monkeypatch.setattr(CopyFirst, "draft", spy)

    def run(chance: Script) -> Prefix:
        monkeypatch.setattr(sequence_module, "Dice", lambda seed: chance)
        engine = whole_engine(make_drafter(spec, draw, [grower], rows=1, length=12), verifier)
        return tuple(engine.generate(list(REPEATS), Sampling(temperature=1.0, max_tokens=3)).tokens)

    expected: Joint = continuations(random_table(0), REPEATS, 3)
    assert total_variation(distribution_of(run), expected) < 1e-12
    assert min(taken[True], taken[False]) > 0


COPYING = ["ngram:8/chain:3", "ngram:3/expand:2,2,1", "suffix:8/dynamic:6:3", "ngram:4/chain:2+ngram:2"]


@pytest.mark.parametrize("tree", [*COPYING, "suffix:6"])
@pytest.mark.parametrize(("chunk", "batch"), [(256, 1), (256, 3), (7, 3)])
def test_greedy_tokens_are_the_targets(tree: str, chunk: int, batch: int, llama: Pair) -> None:
    """Prompts that repeat themselves and prompts that do not, together, rows moving up as others end.

    Read in one chunk, a prompt that repeats itself is copied from in the very first step of its row.
    """
    generator = torch.Generator().manual_seed(0)
    requests = []
    for number in range(6):
        prompt = torch.randint(VOCABULARY, (6,), generator=generator).tolist()
        prompt = prompt * 4 if number % 2 else prompt
        requests.append((prompt, Sampling(max_tokens=10 + 3 * number, ignore_eos=True)))
    plain = drain(llama.engine("none", max_batch=1), requests)
    found = drain(llama.engine(tree, max_batch=batch, prefill_chunk=chunk), requests)
    assert [tokens_of(emissions) for emissions in found] == [tokens_of(emissions) for emissions in plain]


class Passes(ModelGrower):
    """Counts the draft's forward passes."""

    count = 0

    def read(self, sequences: Batch[Sequence]) -> tuple[list[int], Tensor]:
        Passes.count += 1
        return super().read(sequences)

    def grow(self, levels: Batch[Level]) -> Tensor:
        Passes.count += 1
        return super().grow(levels)


@torch.inference_mode()
def test_no_draft_pass_where_a_copy_holds(llama: Pair) -> None:
    """The draft is not run while all copies are right, and reads all that it missed when it is needed."""
    drafts = [partial(Passes, llama.draft_model)]
    either = make_drafter("ngram:4/chain:2", Draw.DETERMINISTIC, drafts, 1, POSITIONS)
    text = [3, 4, 5] * 12
    sampling = Sampling(max_tokens=40)
    sequence = Sequence(0, text[:12], sampling, room=60, chunk=64, eos=frozenset(), tokenizer=None)
    sequence.row, Passes.count = 0, 0
    for _ in range(4):
        (tree,) = either.draft([sequence])
        place = len(sequence.tokens)
        assert tree.tokens[1:] == text[place : place + 4]
        sequence.tokens += text[place : place + 5]
        either.commit(sequence, [1, 2, 3, 4], None)
    assert Passes.count == 0
    sequence.tokens += [7, 8]  # like nothing before
    (tree,) = either.draft([sequence])
    assert (len(tree), Passes.count) == (3, 2)
    fresh = make_drafter("chain:2", Draw.DETERMINISTIC, drafts, 1, POSITIONS)
    assert fresh.draft([sequence])[0].tokens == tree.tokens
