"""Two ranks write what one writes: tensor and pipeline parallel over gloo, drafting side by side.

Rank 0 is this process, rank 1 another one (ranks_cases.py); starting it is most of the time these tests take.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from time import monotonic
from types import SimpleNamespace
from typing import Any

import pytest
import ranks_cases
import torch
import torch.distributed as dist
from drafts_cases import save_head
from ranks_cases import FAMILIES, KINDS, MOMENT, TREES
from test_models import TOKENS, in_parts
from tiny_models import Pair, clear_prompts, drain, tokens_of

from specops.engine import Engine, Sampling, load_engine
from specops.engine.parallel import parallel_engine
from specops.engine.parallel.parallel_engine import DataParallel, Followers
from specops.engine.parallel.process_group import Parallel, Ranks, meeting
from specops.engine.parallel.shards import cut
from specops.engine.rng import Dice
from specops.engine.sequence import Sequence
from specops.engine.text import load_tokenizer
from specops.engine.tree import Draw, TokenTree
from specops.errors import EnvironmentFailure, ModelError, UsageError

pytestmark = pytest.mark.timeout(300)  # in a fresh checkout both ranks compile their loops

COUNT = 8
LENGTHS, ENDS = [1, 5, 9, 17, 23, 40], [COUNT, 3, 7, COUNT, 1, 5]  # rows are left to others in mid-flight


@dataclass
class Found:
    logits: dict[str, torch.Tensor] = field(default_factory=dict)
    features: dict[str, torch.Tensor] = field(default_factory=dict)
    outputs: dict[str, list[list[int]]] = field(default_factory=dict)
    accepted: dict[str, tuple[int, int]] = field(default_factory=dict)  # and drafted
    gave_up: float = 0.0  # seconds


def decoded(engine: Engine, requests: list[tuple[list[int], Sampling]]) -> list[list[int]]:
    return [tokens_of(emissions) for emissions in drain(engine, requests)]


@pytest.fixture(scope="module")
def prompts(llama: Pair) -> list[tuple[list[int], list[int]]]:
    return clear_prompts(llama.reference, LENGTHS, COUNT)


def requests_of(name: str, prompts: list[tuple[list[int], list[int]]]) -> list[tuple[list[int], Sampling]]:
    temperature = 1.0 if name == "self" else 0.0
    return [
        (prompt, Sampling(max_tokens=end, temperature=temperature, seed=end))
        for (prompt, _), end in zip(prompts, ENDS, strict=True)
    ]


@pytest.fixture(scope="module")
def folder(pair_of: Callable[[str], Pair], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ranks")
    for family in FAMILIES:
        (folder / family).symlink_to(pair_of(family).target.parent)
    save_head(folder / "head", 32)
    return folder


@pytest.fixture(scope="module")
def found(folder: Path, prompts: list[tuple[list[int], list[int]]]) -> dict[str, Found]:
    """Everything that two ranks have to run, in one go."""
    store = meeting(folder, 2)
    command = [sys.executable, ranks_cases.__file__, str(folder)]
    results = {kind: Found() for kind in KINDS}
    with subprocess.Popen(command) as other:
        try:
            for kind, result in results.items():
                ranks = ranks_cases.joined(dist.PrefixStore(kind, store), kind, 0)
                for family, logits, features in ranks_cases.passes(folder, ranks):
                    result.logits[family], result.features[family] = logits, features
                for name, engine in ranks_cases.engines(folder, ranks):
                    result.outputs[name] = decoded(engine, requests_of(name, prompts))
                    counters = engine.counters
                    result.accepted[name] = counters.accepted_tokens, counters.draft_tokens
                    ranks.broadcast_work(None)
                ranks.leave()
            ranks = ranks_cases.joined(dist.PrefixStore("hanging", store), "tensor", 0, MOMENT)
            began = monotonic()
            with pytest.raises(EnvironmentFailure, match="no longer answers"):
                ranks.all_gather("who is there")
            results["tensor"].gave_up = monotonic() - began
            ranks.leave()
        finally:
            other.kill()
    return results


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("family", FAMILIES)
def test_logits_and_features(
    family: str, kind: str, found: dict[str, Found], pair_of: Callable[[str], Pair]
) -> None:
    """With biases, which are added once."""
    model = pair_of(family).target_model
    own = in_parts(model, TOKENS, [60])
    assert torch.allclose(found[kind].logits[family], own, atol=1e-4)
    assert torch.allclose(found[kind].features[family], ranks_cases.features(model), atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tree", [*TREES, "head"])
def test_token_identical(
    tree: str, kind: str, found: dict[str, Found], prompts: list[tuple[list[int], list[int]]]
) -> None:
    expected = [tokens[:end] for (_, tokens), end in zip(prompts, ENDS, strict=True)]
    assert found[kind].outputs[tree] == expected


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tree", [*TREES, "head"])
def test_drafts_are_as_good_as_one_rank_s(
    tree: str,
    kind: str,
    found: dict[str, Found],
    folder: Path,
    llama: Pair,
    prompts: list[tuple[list[int], list[int]]],
) -> None:
    """Were a draft's cache, a feature or a tree's way to the others ever wrong, less would be accepted."""
    head = folder / "head" if tree == "head" else None
    batch, chunk = TREES.get(tree, (3, 256))
    engine = llama.engine("chain:3" if head else tree, head=head, max_batch=batch, prefill_chunk=chunk)
    decoded(engine, requests_of(tree, prompts))
    assert found[kind].accepted[tree] == (engine.counters.accepted_tokens, engine.counters.draft_tokens)
    assert found[kind].accepted[tree][0] > 0 or tree in ("none", "head")  # which is a random one


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_distributions_come_to_rank_0(kind: str, found: dict[str, Found]) -> None:
    """At T = 1, of a draft equal to the target, the first child is always accepted, and the one below it."""
    accepted, drafted = found[kind].accepted["self"]
    assert 0 < drafted <= 2 * accepted  # <2,1>: two of four nodes lie on the first child's path


def test_drafts_and_verification_take_other_numbers(llama: Pair) -> None:
    """Of one seed, or a draft's token and the answer to whether it is accepted would come of one number.
    Which rank drafts must not matter to them either."""
    numbers: dict[int, list[float]] = {}
    for rank in (0, 1):
        drawn: list[float] = []

        def draft(own: list[Sequence], drawn: list[float] = drawn) -> list[TokenTree]:
            drawn += [number_of(sequence) for sequence in own]
            return [TokenTree.bare(sequence.tokens[-1]) for sequence in own]

        drafter: Any = SimpleNamespace(
            draws=Draw.DETERMINISTIC, reads_features=False, nodes=1, depth=1, draft=draft
        )
        ranks: Any = SimpleNamespace(rank=rank, size=2, all_gather=lambda own: [own, own], first=rank == 0)
        both = DataParallel(drafter, ranks)
        tokenizer = load_tokenizer(llama.target)
        sequences = [
            Sequence(
                id,
                [1],
                Sampling(temperature=1.0, seed=7),
                room=9,
                chunk=9,
                eos=frozenset(),
                tokenizer=tokenizer.backend_tokenizer,
            )
            for id in (0, 1)
        ]
        both.draft(sequences)
        both.draft(sequences)
        numbers[rank] = drawn
        assert [number_of(sequence) for sequence in sequences] == [random.Random(7).random()] * 2
    first, second = numbers[0]
    assert numbers[1] == [first, second]
    assert first != second
    assert random.Random(7).random() not in (first, second)


def number_of(sequence: Sequence) -> float:
    """What its source of chance gives next."""
    assert isinstance(sequence.chance, Dice)
    return sequence.chance._random.random()


@pytest.mark.slow
def test_a_rank_that_hangs_is_given_up(found: dict[str, Found]) -> None:
    assert MOMENT.total_seconds() * 0.9 <= found["tensor"].gave_up < 30


def test_from_load_engine_until_a_rank_dies(
    llama: Pair, prompts: list[tuple[list[int], list[int]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Gloo has once missed that a peer's connection closed. The patience of five minutes ends that, too.
    monkeypatch.setattr(parallel_engine, "Ranks", partial(Ranks, patience=timedelta(seconds=30)))
    engine: Any = load_engine(
        llama.target, llama.draft, tree="chain:2", threads=1, parallel=Parallel("tensor", 2)
    )
    [other] = engine.followers._processes
    other.send_signal(signal.SIGTERM)  # as a service manager's, to all: what runs may finish
    prompt, tokens = prompts[2]
    assert engine.generate(prompt, Sampling(max_tokens=COUNT)).tokens == tokens
    stopped = engine.submit(prompt, Sampling(max_tokens=COUNT))  # and on the followers too
    engine.step()
    engine.cancel(stopped)
    assert engine.step() == []
    engine.submit(prompt, Sampling(max_tokens=COUNT))
    engine.step()
    other.send_signal(signal.SIGKILL)
    other.wait()
    with pytest.raises(EnvironmentFailure, match="a rank has ended"):
        drain(engine, [])
    engine.close()
    assert not dist.is_initialized()


def test_a_rank_that_does_not_start(llama: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false" if os.name == "posix" else sys.executable)
    with pytest.raises(EnvironmentFailure, match="a rank ended with code 1"):
        load_engine(llama.target, speculate=False, parallel=Parallel("pipeline", 2))


@pytest.mark.slow
def test_a_rank_that_cannot_load_its_draft(
    llama: Pair, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Is told of at once, not by the first step."""
    began = Followers._start

    def other_target(self: Followers, place: dict[str, Any], arguments: dict[str, Any]) -> Any:
        return began(self, place, {**arguments, "draft": ["nowhere"]})

    monkeypatch.setattr(Followers, "_start", other_target)
    with pytest.raises(EnvironmentFailure, match="a rank ended with code 3"):
        load_engine(llama.target, llama.draft, threads=1, parallel=Parallel("tensor", 2))
    assert "rank 1: could not load a model from nowhere" in capfd.readouterr().err
    assert not dist.is_initialized()


def test_wrong_options(llama: Pair) -> None:
    assert Parallel.parse("pipeline:3") == Parallel("pipeline", 3)
    for text in ("tensor", "tensor:1", "tensor:x", "data:2", ""):
        with pytest.raises(UsageError, match="cannot be parallel"):
            Parallel.parse(text)
    with pytest.raises(UsageError, match="cannot all lie on 'cuda:1'"):
        load_engine(llama.target, speculate=False, device="cuda:1", parallel=Parallel("tensor", 2))
    with pytest.raises(UsageError, match="the tree auto is unsupported"):
        load_engine(llama.target, llama.draft, tree="auto", parallel=Parallel("tensor", 2))


@pytest.mark.parametrize(
    ("family", "kind", "count", "message"),
    [
        ("gpt2", "tensor", 2, "no tensor-parallel plan"),
        ("llama", "tensor", 3, "divides its 4 query and key-value heads"),
        ("llama", "pipeline", 3, "2 layers among 3 ranks"),
        ("gpt2", "pipeline", 2, "no pipeline plan"),
    ],
)
def test_what_cannot_be_cut(
    family: str, kind: Any, count: int, message: str, pair_of: Callable[[str], Pair]
) -> None:
    ranks: Any = SimpleNamespace(parallel=Parallel(kind, count), rank=0, size=count)
    with pytest.raises(ModelError, match=message):
        cut(pair_of(family).reference, ranks)
