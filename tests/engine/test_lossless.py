"""Lossless, exactly: the joint distribution of the next tokens is the target's, by enumeration.

Trees are drawn by the production drafters from a table-driven draft model and verified by the production
verifiers, both under every answer that chance can give. Nothing here is sampled.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from types import SimpleNamespace

import pytest
import torch
from enumeration import Script, distribution_of, total_variation
from joint import Joint, WeighedTrees, after_cuts, continuations, drafted, target_rows, verified
from tables import Prefix, Table, TableHead, TableMedusa, TableModel, TableRecurrent, random_table
from tokenizers import Tokenizer, models

from specops.engine import sequence as sequence_module
from specops.engine.draft import Drafter, MakeGrower
from specops.engine.drafters import make_drafter
from specops.engine.heads.draft_model import ModelGrower
from specops.engine.heads.eagle import EagleGrower
from specops.engine.heads.medusa import MedusaGrower
from specops.engine.heads.recurrent import RecurrentGrower
from specops.engine.request import Sampling
from specops.engine.step import Engine
from specops.engine.tree import Draw
from specops.engine.verifiers.mss import MultiStep
from specops.engine.verifiers.naive import Naive, verify_greedy
from specops.engine.verifiers.ranked import Ranked
from specops.engine.verifiers.traversal import Traversal
from specops.engine.verifiers.verifier import Verifier, check

EXACT = 1e-12
Q = TableModel(random_table(1))
PLAIN = Sampling(temperature=1.0)
RULES = [
    pytest.param(Ranked(), Draw.IID, id="ranked-iid"),
    pytest.param(Ranked(), Draw.WITHOUT_REPLACEMENT, id="ranked-wor"),
    pytest.param(Traversal(), Draw.IID, id="traversal-iid"),
    pytest.param(Traversal(), Draw.WITHOUT_REPLACEMENT, id="traversal-wor"),
    pytest.param(MultiStep(), Draw.IID, id="mss-iid"),
    pytest.param(MultiStep(), Draw.WITHOUT_REPLACEMENT, id="mss-wor"),
    pytest.param(Naive(), Draw.IID, id="naive-iid"),
    pytest.param(Naive(), Draw.WITHOUT_REPLACEMENT, id="naive-wor"),
    pytest.param(Naive(), Draw.DETERMINISTIC, id="naive-deterministic"),
]
DEPTHS = {"expand:2": 1, "expand:3": 1, "chain:2": 2, "expand:2,1": 2, "expand:2,2": 2}


def drafter_of(spec: str, draw: Draw, q: Table) -> Drafter:
    return make_drafter(spec, draw, [partial(ModelGrower, TableModel(q))], rows=1, length=12)


@cache
def trees_of(spec: str, draw: Draw, q: Table, sampling: Sampling) -> WeighedTrees:
    """For all verifiers: to draw every tree takes longer than to verify it."""
    trees = drafted(drafter_of(spec, draw, q), sampling)
    assert sum(weight for _, weight in trees) == pytest.approx(1.0, abs=EXACT)
    return trees


def distance(
    verifier: Verifier, spec: str, draw: Draw, q: Table, p: Table, sampling: Sampling, depth: int
) -> float:
    """Total variation between what is emitted and the target, over depth + 1 tokens."""
    check(verifier, drafter_of(spec, draw, q).draws)
    target = after_cuts(p, sampling)
    trees = trees_of(spec, draw, q, sampling)
    found = verified(trees, verifier, target, depth + 1)
    return total_variation(found, continuations(target, (0, 1), depth + 1))


@pytest.mark.quick(15)
@pytest.mark.parametrize(("verifier", "draw"), RULES)
@pytest.mark.parametrize("spec", DEPTHS)
def test_every_rule_on_every_shape(spec: str, verifier: Verifier, draw: Draw) -> None:
    q = random_table(1)
    assert distance(verifier, spec, draw, q, random_table(0), PLAIN, DEPTHS[spec]) < EXACT


@pytest.mark.quick(18)
@pytest.mark.parametrize(("verifier", "draw"), RULES)
@pytest.mark.parametrize(
    "sampling",
    [
        pytest.param(Sampling(temperature=0.5), id="cold"),
        pytest.param(Sampling(temperature=1.7), id="hot"),
        pytest.param(Sampling(temperature=1.0, top_k=2), id="top-k"),
        pytest.param(Sampling(temperature=1.0, top_k=1), id="top-1"),
        pytest.param(Sampling(temperature=1.0, top_p=0.6), id="top-p"),
        pytest.param(Sampling(temperature=0.8, top_k=2, top_p=0.7), id="all"),
    ],
)
def test_cuts_and_temperature(sampling: Sampling, verifier: Verifier, draw: Draw) -> None:
    for seed in range(3):
        q = random_table(100 + seed)
        assert distance(verifier, "expand:2,1", draw, q, random_table(seed), sampling, 2) < EXACT


@pytest.mark.parametrize(("verifier", "draw"), RULES)
@pytest.mark.parametrize(
    ("p", "q"),
    [
        pytest.param(random_table(0), random_table(0), id="p-is-q"),
        pytest.param(random_table(0), random_table(1, support=2), id="q-with-a-zero"),
        pytest.param(random_table(0), random_table(1, support=1), id="q-one-hot"),
        pytest.param(random_table(0, support=2), random_table(1), id="p-with-a-zero"),
        pytest.param(random_table(0, support=1), random_table(1), id="p-one-hot"),
        pytest.param(random_table(0, support=2), random_table(1, support=2), id="both-with-zeros"),
        pytest.param(random_table(0, support=1), random_table(1, support=1), id="both-one-hot"),
    ],
)
def test_degenerate_distributions(p: Table, q: Table, verifier: Verifier, draw: Draw) -> None:
    """With zeros in q its support is smaller than the width; with p == q the residual is zero."""
    for spec in ("expand:3", "expand:2,1"):
        assert distance(verifier, spec, draw, q, p, PLAIN, DEPTHS[spec]) < EXACT


@pytest.mark.parametrize("verifier", [MultiStep(), Ranked()], ids=lambda verifier: verifier.name)
@pytest.mark.parametrize("draw", [Draw.IID, Draw.WITHOUT_REPLACEMENT])
def test_many_random_models(draw: Draw, verifier: Verifier) -> None:
    for seed in range(20):
        q = random_table(1000 + seed)
        assert distance(verifier, "expand:3", draw, q, random_table(seed), PLAIN, 1) < EXACT


@pytest.mark.parametrize("spec", ["dynamic:4:2", "dynamic:3:3", "dynamic:6:2"])
def test_dynamic_trees(spec: str) -> None:
    draw, q = Draw.WITHOUT_REPLACEMENT, random_table(1)
    assert distance(Naive(), spec, draw, q, random_table(0), PLAIN, 3) < EXACT


def test_ngram_drafts() -> None:
    drafter = make_drafter("ngram:2", Draw.IID, [], rows=1, length=12)
    prompt = (0, 1, 2, 0, 1, 2, 0, 1)
    ((tree, _),) = trees = drafted(drafter, PLAIN, prompt)
    assert tree.tokens == [1, 2, 0]
    p = random_table(0)
    found = verified(trees, Naive(), p, 3, prompt)
    assert total_variation(found, continuations(p, prompt, 3)) < EXACT


@pytest.mark.parametrize("spec", [*DEPTHS, "dynamic:5:3"])
def test_greedy_verification_is_argmax_decoding(spec: str) -> None:
    """Whatever the tree holds, the emitted tokens begin the target's greedy continuation."""
    for seed in range(5):
        p = random_table(seed)
        for draw in (Draw.WITHOUT_REPLACEMENT, Draw.DETERMINISTIC):
            for tree, _ in drafted(drafter_of(spec, draw, random_table(50 + seed)), PLAIN):
                choices = target_rows(tree, p).argmax(-1).tolist()
                result = verify_greedy(tree, choices)
                emitted = [*(tree.tokens[node] for node in result.path), result.bonus]
                prefix: Prefix = (0, 1)
                for token in emitted:
                    assert token == int(p(prefix).argmax())
                    prefix = (*prefix, token)
                last = result.path[-1] if result.path else 0
                children = tree.topology.children[last]
                assert result.bonus not in [tree.tokens[child] for child in children]


@pytest.mark.parametrize(
    ("spec", "verifier", "draw"),
    [
        ("expand:2", MultiStep(), Draw.WITHOUT_REPLACEMENT),
        ("expand:2", MultiStep(), Draw.IID),
        ("chain:2", MultiStep(), Draw.WITHOUT_REPLACEMENT),
        ("dynamic:4:2", Naive(), Draw.DETERMINISTIC),
        ("ngram:2", Naive(), Draw.DETERMINISTIC),
        ("expand:2+ngram:2", Traversal(), Draw.WITHOUT_REPLACEMENT),
        ("expand:2+ngram:2", Ranked(), Draw.WITHOUT_REPLACEMENT),
        ("none", Naive(), Draw.DETERMINISTIC),
    ],
)
@pytest.mark.parametrize("chunk", [1, 256])
@pytest.mark.parametrize(
    "grower",
    [
        pytest.param(partial(ModelGrower, Q), id="draft model"),
        pytest.param(partial(EagleGrower, TableHead(Q.table)), id="head"),
        pytest.param(lambda rows, *_: RecurrentGrower(TableRecurrent(Q.table), rows), id="recurrent head"),
        pytest.param(lambda rows, *_: MedusaGrower(TableMedusa(Q.table), rows), id="Medusa heads"),
    ],
)
def test_the_whole_engine_over_several_steps(
    spec: str, verifier: Verifier, draw: Draw, chunk: int, grower: MakeGrower, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Drafts, forward passes, verification, compaction, EOS and max_tokens together, for 3 tokens out.

    The heads' tables refuse features that are not those of their very prefix, at their very position.
    """
    p, eos, prompt = random_table(0), 2, (0, 1, 0, 1)
    tokenizer = SimpleNamespace(
        backend_tokenizer=Tokenizer(models.WordLevel({"a": 0, "b": 1, "c": 2}, unk_token="a"))
    )
    sampling = Sampling(temperature=0.9, top_p=0.95, max_tokens=3)

    def run(chance: Script) -> Prefix:
        monkeypatch.setattr(sequence_module, "Dice", lambda seed: chance)
        engine = Engine(
            TableModel(p),
            make_drafter(spec, draw, [grower], rows=1, length=12),
            verifier,
            tokenizer,
            frozenset({eos}),
            max_batch=1,
            max_length=12,
            prefill_chunk=chunk,
        )
        return tuple(engine.generate(list(prompt), sampling).tokens)

    expected: Joint = {}
    for tokens, weight in continuations(after_cuts(p, sampling), prompt, 3).items():
        ended = tokens[: tokens.index(eos) + 1] if eos in tokens else tokens
        expected[ended] = expected.get(ended, 0.0) + weight
    assert total_variation(distribution_of(run), expected) < EXACT


def test_a_sampled_tree_without_its_draft_distribution_is_not_verified() -> None:
    (tree, _), *_ = drafted(drafter_of("expand:2", Draw.IID, random_table(1)), PLAIN)
    tree = replace(tree, q=None)
    with pytest.raises(ValueError, match="no draft distribution"):
        MultiStep().verify(tree, torch.full((3, 3), 1 / 3), Script([]))
