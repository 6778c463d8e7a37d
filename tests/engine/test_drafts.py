"""Every kind of draft: output stays the target's, and each is told from its folder or its name."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from drafts_cases import save_exit, save_medusa, save_recurrent
from safetensors.torch import load_file, save_file
from tiny_models import POSITIONS, VOCABULARY, Pair, clear_prompts, drain, load_reference, tokens_of
from torch import Tensor, nn

from specops.engine import Sampling, load_engine
from specops.engine.heads import open_draft
from specops.engine.heads.draft_model import DraftModel
from specops.engine.heads.medusa import Medusa, MedusaGrower
from specops.engine.heads.recurrent import RecurrentGrower
from specops.engine.models.model import FeatureModel
from specops.errors import ModelError, UsageError

LENGTHS = [1, 2, 9, 23, 40]
ENDS = [12, 3, 11, 12, 7]
KINDS: dict[str, Callable[[Path, int], str]] = {
    "recurrent": lambda folder, width: str(save_recurrent(folder, width)),
    "medusa": lambda folder, width: str(save_medusa(folder, width)),
    "exit": lambda folder, width: "exit:1",
    "exit with an adapter": lambda folder, width: str(save_exit(folder, width)),
}
FEATURES = ("recurrent", "medusa")


@pytest.fixture(scope="module")
def expected(llama: Pair) -> list[tuple[list[int], list[int]]]:
    return clear_prompts(llama.reference, LENGTHS, max(ENDS))


@pytest.mark.quick(12)
@pytest.mark.parametrize("tree", ["chain:4", "expand:3,2,1", "dynamic:8:3"])
@pytest.mark.parametrize(("chunk", "batch"), [(256, 1), (7, 3), (1, 5)])
@pytest.mark.parametrize("kind", KINDS)
def test_token_identical(
    kind: str,
    chunk: int,
    batch: int,
    tree: str,
    llama: Pair,
    expected: list[tuple[list[int], list[int]]],
    tmp_path: Path,
) -> None:
    draft = KINDS[kind](tmp_path / "draft", llama.target_model.width)
    engine = load_engine(
        llama.target, draft, tree=tree, max_batch=batch, prefill_chunk=chunk, max_length=POSITIONS
    )
    requests = [(prompt, Sampling(max_tokens=end)) for (prompt, _), end in zip(expected, ENDS, strict=True)]
    for emissions, (_, tokens), end in zip(drain(engine, requests), expected, ENDS, strict=True):
        assert tokens_of(emissions) == tokens[:end]
    assert engine.counters.draft_tokens > 0


@pytest.mark.parametrize("kind", FEATURES)
@pytest.mark.parametrize("family", ["opt", "gpt2"])
def test_heads_over_any_architecture(
    family: str, kind: str, pair_of: Callable[[str], Pair], tmp_path: Path
) -> None:
    pair = pair_of(family)
    engine = load_engine(
        pair.target, KINDS[kind](tmp_path / "draft", pair.target_model.width), tree="chain:3"
    )
    for prompt, tokens in clear_prompts(pair.reference, [5, 20], 8):
        assert engine.generate(prompt, Sampling(max_tokens=8)).tokens == tokens


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("kind", FEATURES)
def test_every_node_is_drafted_from_the_true_feature(
    kind: str, batch: int, llama: Pair, tmp_path: Path
) -> None:
    """Along every drafted chain, what a plain reading of the weights and transformers' features predicts."""
    folder = Path(KINDS[kind](tmp_path / "draft", llama.target_model.width))
    engine = load_engine(llama.target, folder, tree="chain:3", max_batch=batch, prefill_chunk=5)
    for seed in range(batch):
        prompt = torch.randint(VOCABULARY, (11 + seed,), generator=torch.Generator().manual_seed(seed))
        engine.submit(prompt.tolist(), Sampling(max_tokens=10 + seed))
    compared, draft = 0, engine._drafter.draft
    plain = plain_recurrent if kind == "recurrent" else plain_medusa

    def checked(sequences):  # type: ignore[no-untyped-def]
        nonlocal compared
        trees = draft(sequences)
        for sequence, tree in zip(sequences, trees, strict=True):
            if sequence.uncached == 1:  # also where a sequence has just moved to another row
                assert len(tree) == 1 + min(3, sequence.depth_left)
            for depth in range(1, len(tree)):
                logits = plain(folder, llama.reference, sequence.tokens, tree.tokens[1:depth])
                # One token is drafted with a byte a weight; of a wrong feature the gap is ten times as wide.
                assert logits.max() - logits[tree.tokens[depth]] < 0.1 * logits.std()
                compared += 1
        return trees

    engine._drafter.draft = checked  # type: ignore[method-assign]
    while not engine.idle:
        engine.step()
    assert compared > 10 * batch


def feature_before(reference, tokens: list[int]) -> Tensor:  # type: ignore[no-untyped-def]
    """Of the token before the root, the last of `tokens`: what transformers' output layer reads."""
    return reference.model(torch.tensor([tokens[:-1]])).last_hidden_state[0, -1]  # type: ignore[no-any-return]


def plain_recurrent(folder: Path, reference, tokens: list[int], drafted: list[int]) -> Tensor:  # type: ignore[no-untyped-def]
    weights, output = load_file(folder / "model.safetensors"), reference.lm_head.weight
    state = feature_before(reference, tokens)
    width = len(state)
    for token in [tokens[-1], *drafted]:
        y = weights["recurrent.weight"] @ state + weights["token.weight"] @ output[token]
        gate, up = y[width:].chunk(2)
        state = y[:width] + weights["down.weight"] @ (nn.functional.silu(gate) * up)
    return output @ state  # type: ignore[no-any-return]


def plain_medusa(folder: Path, reference, tokens: list[int], drafted: list[int]) -> Tensor:  # type: ignore[no-untyped-def]
    weights, feature = load_file(folder / "model.safetensors"), feature_before(reference, tokens)
    name = f"medusa_head.{len(drafted)}.0.linear."
    block = weights[name + "weight"] @ feature + weights[name + "bias"]
    return reference.lm_head.weight @ (feature + nn.functional.silu(block))  # type: ignore[no-any-return]


@pytest.mark.parametrize("kind", ["exit", "exit with an adapter"])
def test_an_exit_says_what_the_first_layers_say(kind: str, llama: Pair, tmp_path: Path) -> None:
    """transformers' own model with its second layer taken out."""
    name = KINDS[kind](tmp_path / "draft", llama.target_model.width)
    reference = load_reference(llama.target)
    reference.model.layers = reference.model.layers[:1]
    if kind != "exit":
        adapter = load_file(tmp_path / "draft" / "model.safetensors")["exit.weight"]
        reference.model.norm = nn.Sequential(_Adapted(adapter), reference.model.norm)
    tokens = list(range(3, 40))
    wanted = reference(torch.tensor([tokens])).logits[0]
    exit_model = open_draft(name, llama.target, llama.target_model)
    assert isinstance(exit_model, DraftModel)
    engine = llama.engine("chain:1", draft=exit_model.model, max_batch=1)
    proposed = []
    draft = engine._drafter.draft

    def seen(sequences):  # type: ignore[no-untyped-def]
        trees = draft(sequences)
        proposed.append((len(sequences[0].tokens), trees[0].tokens[1:]))
        return trees

    engine._drafter.draft = seen  # type: ignore[method-assign]
    engine.generate(tokens, Sampling(max_tokens=3))
    (length, (child,)), *_ = proposed
    assert length == len(tokens)
    assert wanted[-1].max() - wanted[-1, child] < 1e-3


class _Adapted(nn.Module):
    def __init__(self, adapter: Tensor) -> None:
        super().__init__()
        self.adapter = adapter

    def forward(self, x: Tensor) -> Tensor:
        return x + x @ self.adapter.T


def test_kinds_are_told_by_their_weights(llama: Pair, tmp_path: Path) -> None:
    target, width = llama.target_model, llama.target_model.width

    def kind(name: str | Path) -> str:
        return type(open_draft(name, llama.target, target)).__name__

    assert kind(save_recurrent(tmp_path / "r", width)) == "Recurrent"
    assert kind(save_medusa(tmp_path / "m", width)) == "Medusa"
    assert kind(save_medusa(tmp_path / "own", width, prefix="", vocabulary=VOCABULARY)) == "Medusa"
    assert kind(save_exit(tmp_path / "e", width)) == "EarlyExit"
    assert kind(llama.draft) == "DraftModel"


def test_medusa_heads_with_output_layers_of_their_own(llama: Pair, tmp_path: Path) -> None:
    target = llama.target_model
    folder = save_medusa(tmp_path / "own", target.width, prefix="", vocabulary=VOCABULARY)
    heads, weights = Medusa(folder, target), load_file(folder / "model.safetensors")
    features = torch.randn(4, target.width, generator=torch.Generator().manual_seed(0))
    block = features @ weights["1.0.linear.weight"].T + weights["1.0.linear.bias"]
    wanted = (features + nn.functional.silu(block)) @ weights["1.1.weight"].T
    assert torch.allclose(heads.predict(features, 2), wanted, atol=1e-4)
    assert torch.equal(heads.predict(features, 9), heads.predict(features, 3))  # there is no fourth


def _wide(folder: Path, target: FeatureModel) -> str:
    return str(save_recurrent(folder, 2 * target.width))


def _torn(folder: Path, target: FeatureModel) -> str:
    weights = load_file(save_recurrent(folder, target.width) / "model.safetensors")
    weights["down.weight"] = weights["down.weight"][:, 1:].contiguous()
    save_file(weights, str(folder / "model.safetensors"))
    return str(folder)


def _without(folder: Path, target: FeatureModel) -> str:
    weights = load_file(save_recurrent(folder, target.width) / "model.safetensors")
    del weights["down.weight"]
    save_file(weights, str(folder / "model.safetensors"))
    return str(folder)


def _flat(folder: Path, target: FeatureModel) -> str:
    weights = load_file(save_recurrent(folder, target.width) / "model.safetensors")
    save_file(weights | {"down.weight": torch.tensor(1.0)}, str(folder / "model.safetensors"))
    return str(folder)


def _deep_medusa(folder: Path, target: FeatureModel) -> str:
    weights = load_file(save_medusa(folder, target.width) / "model.safetensors")
    weights["medusa_head.0.1.linear.weight"] = weights["medusa_head.0.0.linear.weight"].clone()
    save_file(weights, str(folder / "model.safetensors"))
    return str(folder)


def _flat_exit(folder: Path, target: FeatureModel) -> str:
    weights = load_file(save_exit(folder, target.width) / "model.safetensors")
    save_file({name: value[0] for name, value in weights.items()}, str(folder / "model.safetensors"))
    return str(folder)


def _exit_at(layers: object, folder: Path, target: FeatureModel) -> str:
    config = save_exit(folder, target.width) / "config.json"
    config.write_text(json.dumps({"exit_layers": layers}))
    return str(folder)


def _exit_without_config(folder: Path, target: FeatureModel) -> str:
    (save_exit(folder, target.width) / "config.json").unlink()
    return str(folder)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (_wide, "could not pair"),
        (_torn, "its shapes are"),
        (_without, "down.weight"),
        (lambda folder, target: str(save_medusa(folder, target.width + 1)), "could not pair"),
        (lambda folder, target: str(save_medusa(folder, target.width, vocabulary=7)), r"\(7, 32\)"),
        (_deep_medusa, "expected one residual block a head"),
        (_flat, "its shapes are"),
        (lambda folder, target: str(save_exit(folder, target.width + 1)), "could not pair"),
        (_exit_without_config, "could not load an adapter"),
        (_flat_exit, r"of the shape \(32,\)"),
        (partial(_exit_at, 9), "for 9 layers"),
        (partial(_exit_at, 0), "for 0 layers"),
        (partial(_exit_at, True), "exit_layers is True"),
    ],
)
def test_what_does_not_fit_is_refused(
    make: Callable[[Path, FeatureModel], str], words: str, llama: Pair, tmp_path: Path
) -> None:
    with pytest.raises(ModelError, match=words):
        open_draft(make(tmp_path / "draft", llama.target_model), llama.target, llama.target_model)


@pytest.mark.parametrize("name", ["exit:2", "exit:9", "exit:0", "exit:", "exit:two"])
def test_exits_that_are_not_there(name: str, llama: Pair) -> None:
    with pytest.raises(UsageError, match=r"could not (leave|take)|expected exit:LAYERS"):
        open_draft(name, llama.target, llama.target_model)


def test_an_exit_of_a_generic_model_is_refused(pair_of: Callable[[str], Pair]) -> None:
    pair = pair_of("gpt2")
    with pytest.raises(ModelError, match="could not leave the target early"):
        open_draft("exit:1", pair.target, pair.target_model)


@pytest.mark.parametrize("grower", [RecurrentGrower, MedusaGrower])
def test_a_row_forgets_the_sequence_that_left_it(
    grower: type[RecurrentGrower] | type[MedusaGrower], llama: Pair, tmp_path: Path
) -> None:
    """The next sequence in a row has no feature until the target has read it: its first tree is bare."""
    kind = "recurrent" if grower is RecurrentGrower else "medusa"
    folder = KINDS[kind](tmp_path / "draft", llama.target_model.width)
    engine = load_engine(llama.target, folder, tree="chain:2", max_batch=1)
    engine.generate([1, 2, 3], Sampling(max_tokens=6))
    drafts: list[int] = []
    draft = engine._drafter.draft

    def counted(sequences):  # type: ignore[no-untyped-def]
        trees = draft(sequences)
        drafts.append(len(trees[0]) - 1)
        return trees

    engine._drafter.draft = counted  # type: ignore[method-assign]
    engine.generate([4], Sampling(max_tokens=6))  # one token: all but the root is cached from the beginning
    assert drafts[0] == 0
    assert drafts[1] == 2
